"""Times of collectives, of kernels of given sizes, of fused operators by number of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median

from mc2perf.units import counted, show


def bus_factor(op: str, ranks: float) -> float:
    """Bytes that cross a rank's links per byte of the whole array.

    Parameters
    ----------
    op : str
        ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``all_to_all_v``, ``broadcast``,
        ``reduce``, ``scatter`` or ``gather``.
    ranks : float
        Ranks of the group, at least 2.

    Returns
    -------
    float
        Bus rate over algorithm rate [1].

    Raises
    ------
    KeyError
        An operation without a known factor.

    References
    ----------
    NVIDIA/nccl-tests, doc/PERFORMANCE.md.

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8)
    (1.75, 0.875)
    """
    share = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}
    factors |= dict.fromkeys(
        ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "scatter", "gather"), share
    )
    return factors[op]


@dataclass(frozen=True)
class CollectiveTime:
    """Time of one collective at one size; ``size`` is the whole array [B], ``samples`` rows it stands for."""

    size: float
    time: float
    op: str | None = None
    ranks: int | None = None
    samples: int = 1

    @property
    def algorithm_rate(self) -> float:
        """Size over time [B/s]."""
        return self.size / self.time

    @property
    def bus_rate(self) -> float | None:
        """Rate on the links of a rank [B/s]; unknown without operation and ranks."""
        if self.op is None or self.ranks is None:
            return None
        return self.algorithm_rate * bus_factor(self.op, self.ranks)


@dataclass(frozen=True)
class CollectiveTimes:
    """Points of a collective benchmark."""

    points: tuple[CollectiveTime, ...]

    def takes(self) -> Iterator[str]:
        """One line per operation and group."""
        for (op, ranks), found in self.groups().items():
            whose = f"{op or 'operation not stated'}, {f'{ranks} ranks' if ranks else 'ranks not stated'}"
            low, high = found[0].size, found[-1].size
            best = max(p.algorithm_rate for p in found)
            bus = max((p.bus_rate for p in found if p.bus_rate), default=None)
            rates = f"{show(best, 'B/s')} by the array" + (f", {show(bus, 'B/s')} on the bus" if bus else "")
            yield (
                f"{whose}: {counted(len(found), 'size')}, {show(low, 'B')} to {show(high, 'B')}; shortest "
                f"{show(min(p.time for p in found), 's')}, best rate {rates}"
            )
            if len(found) < 3:
                yield "fewer than 3 sizes: too few to fit a latency and a bandwidth"

    def groups(self) -> dict[tuple[str | None, int | None], list[CollectiveTime]]:
        """Points by operation and ranks, each in the order of size."""

        def whose(p: CollectiveTime) -> tuple[str, int]:
            return p.op or "", p.ranks or 0

        ordered = sorted(self.points, key=lambda p: (*whose(p), p.size))
        return {(op or None, n or None): list(found) for (op, n), found in groupby(ordered, key=whose)}


@dataclass(frozen=True)
class KernelTime:
    """Time [s] of one kernel of given sizes; ``label`` is the model where the table names one.

    ``dtype`` is the type of its elements where the table says it: ``bf16``, ``fp16``, ``w8a8``, ...
    """

    sizes: Mapping[str, float]
    time: float
    label: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class KernelTimes:
    """A table of measured kernels of one kind: ``matmul``, ``attention`` or ``moe_ffn``."""

    kind: str
    rows: tuple[KernelTime, ...]

    def takes(self) -> Iterator[str]:
        """Ranges of sizes and times."""
        times = [row.time for row in self.rows]
        count = counted(len(times), "time")
        yield f"{self.kind}: {count}, {show(min(times), 's')} to {show(max(times), 's')}"
        for name in self.rows[0].sizes:
            values = [row.sizes[name] for row in self.rows]
            yield f"    {name}: {min(values):g} to {max(values):g}"
        if self.kind == "matmul":
            best = max(2 * r.sizes["m"] * r.sizes["n"] * r.sizes["k"] / r.time for r in self.rows)
            yield f"    best rate {show(best, 'FLOP/s')}"


@dataclass(frozen=True)
class TileScan:
    """Measured time by number of tiles of one fused operator; ``inputs`` as far as the file says them.

    ``inputs`` bear the names of a scenario: ``target m n k ranks dtype split_axis experts_per_rank``.
    """

    points: tuple[tuple[int, float], ...]
    inputs: Mapping[str, float | str] = field(default_factory=dict)

    def medians(self) -> dict[int, float]:
        """Median time of each count, in order of counts [s]."""
        ordered = sorted(self.points)
        return {n: median(t for _, t in found) for n, found in groupby(ordered, key=lambda p: p[0])}

    @property
    def best(self) -> tuple[int, float]:
        """The count with the least median time, and that time [s]."""
        return min(self.medians().items(), key=lambda item: item[1])

    @property
    def whose(self) -> str:
        """The operator and its inputs in words."""
        said = (
            f"{name} {value:g}" if isinstance(value, float) else value for name, value in self.inputs.items()
        )
        return ", ".join(map(str, said)) or "operator not stated"


@dataclass(frozen=True)
class TileTimes:
    """Scans over the number of tiles, one for each operator and its inputs."""

    scans: tuple[TileScan, ...]

    def takes(self) -> Iterator[str]:
        """Best count of each scan and its gain over one tile."""
        for scan in self.scans:
            (count, time), times = scan.best, scan.medians()
            yield f"{scan.whose}: {len(times)} tile counts, best {count}: {show(time, 's')}"
            if 1 in times:
                yield f"gain over one tile: {times[1] / time:.3g}"
