"""What users measured: benchmark tables, profiler exports, training logs, launch scripts, all in SI.

Each kind of file is one frozen dataclass whose ``takes`` says in a few lines what a model may use of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median
from typing import Protocol

from mc2perf.units import show

WARM_UP = 5
"""Iterations at the start of a training run that compile and warm up."""
OUTLIER = 1.5
"""An iteration longer than this multiple of the median is no steady one."""


class Takes(Protocol):
    """Anything that was measured."""

    def takes(self) -> Iterator[str]:
        """Say line by line what may be used."""


@dataclass(frozen=True)
class SetAside:
    """Rows that were not taken: why, how many, and where the first stands."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True)
class Report:
    """What a reader took, what it set aside, and what the user should know."""

    read: int
    what: str
    set_aside: tuple[SetAside, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One file: its name, its format, what it holds, and the report of the reader."""

    name: str
    format: str
    data: Takes
    report: Report


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
                f"{whose}: {len(found)} sizes, {show(low, 'B')} to {show(high, 'B')}; shortest "
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


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Where the time of one step of one rank went [s].

    ``communication`` = ``exposed`` + ``overlapped``, waiting for slower ranks included.
    """

    step: str
    rank: str = ""
    computing: float
    exposed: float
    overlapped: float
    communication: float
    free: float
    stage: float | None = None
    bubble: float | None = None
    exposed_without_receive: float | None = None
    preparing: float | None = None

    @property
    def busy(self) -> float:
        """Computing, exposed communication and free time together [s]."""
        return self.computing + self.exposed + self.free

    @property
    def exposed_share(self) -> float:
        """Exposed communication over the step [1]."""
        return self.exposed / self.busy if self.busy else 0.0

    @property
    def free_share(self) -> float:
        """Time without any device work over the step [1]."""
        return self.free / self.busy if self.busy else 0.0

    @property
    def overlap_efficiency(self) -> float:
        """Share of communication that hides behind computation [1]."""
        return self.overlapped / self.communication if self.communication else 0.0


@dataclass(frozen=True)
class StepTrace:
    """Step times of one rank or of all."""

    steps: tuple[StepTime, ...]

    def takes(self) -> Iterator[str]:
        """Shares of the steps; the least communication over ranks is nearest to the transfer."""
        for s in self.steps[:8]:
            at = f"step {s.step or '(whole capture)'}" + (f", rank {s.rank}" if s.rank else "")
            yield (
                f"{at}: {show(s.busy, 's')}, computing {show(s.computing, 's')}, exposed communication "
                f"{s.exposed_share:.1%}, overlap efficiency {s.overlap_efficiency:.1%}, "
                f"free {s.free_share:.1%}"
            )
        if len(self.steps) > 8:
            yield f"... {len(self.steps) - 8} more"
        if len({s.rank for s in self.steps}) > 1:
            yield f"least communication of a rank and step: {show(self.least_communication, 's')}"

    @property
    def least_communication(self) -> float:
        """Communication of the rank and step that waited least [s]."""
        return min(s.communication for s in self.steps)


@dataclass(frozen=True)
class Traffic:
    """Bytes of one operation over one kind of link; ``link_time`` is summed over parallel links [s]."""

    transport: str
    size: float
    link_time: float


@dataclass(frozen=True, kw_only=True)
class CommOp:
    """One communication operation of one rank [s]; ``transit`` alone is transfer."""

    name: str
    group: str = ""
    step: str = ""
    kind: str = ""
    rank: str = ""
    elapsed: float
    transit: float
    wait: float
    idle: float
    traffic: tuple[Traffic, ...] = ()

    @property
    def size(self) -> float:
        """Bytes that the rank sent on the wire, over all links [B]."""
        return math.fsum(t.size for t in self.traffic)

    @property
    def wire_rate(self) -> float | None:
        """Bytes on the wire over the transit time of the operation [B/s]; unknown without transit time."""
        return self.size / self.transit if self.transit and self.size else None


@dataclass(frozen=True)
class CommOps:
    """Operations of a ``communication.json``."""

    ops: tuple[CommOp, ...]

    def takes(self) -> Iterator[str]:
        """Rate of each operation with a transit time."""
        timed = [op for op in self.ops if op.wire_rate]
        yield f"{len(timed)} of {len(self.ops)} operations have bytes and a transit time"
        for op in timed[:8]:
            where = f" (rank {op.rank})" if op.rank else ""
            yield (
                f"{op.name}{where}: {op.size / 1e6:.4g} MB in {show(op.transit, 's')} of transit = "
                f"{show(op.wire_rate or 0, 'B/s')}; elapsed {show(op.elapsed, 's')}"
            )
        if len(timed) > 8:
            yield f"... {len(timed) - 8} more"


@dataclass(frozen=True, kw_only=True)
class LinkUse:
    """Traffic from one rank to another: bytes, time on the link [s]."""

    op: str
    source: int
    target: int
    transport: str
    size: float
    time: float
    step: str = ""

    @property
    def rate(self) -> float | None:
        """Bytes over time of this one link [B/s]."""
        return self.size / self.time if self.time and self.size else None


@dataclass(frozen=True)
class LinkUses:
    """Links of a ``communication_matrix.json``."""

    links: tuple[LinkUse, ...]

    def takes(self) -> Iterator[str]:
        """Rate of one link by transport: bytes over link time, so that tiny transfers weigh little."""
        for transport in sorted({link.transport for link in self.links}):
            timed = [u for u in self.links if u.transport == transport and u.rate]
            if timed:
                rate = math.fsum(u.size for u in timed) / math.fsum(u.time for u in timed)
                yield f"{transport}: {show(rate, 'B/s')} on one link, over {len(timed)} pairs"


@dataclass(frozen=True)
class CommGroup:
    """One communication group: its kind, its ranks, and what it is for where the file says so."""

    kind: str
    ranks: tuple[int, ...]
    purpose: str = ""
    name: str = ""


@dataclass(frozen=True)
class CommGroups:
    """Groups of a ``communication_group.json``."""

    groups: tuple[CommGroup, ...]

    def takes(self) -> Iterator[str]:
        """Sizes of groups by purpose."""
        for purpose in sorted({g.purpose for g in self.groups}):
            sizes = sorted({len(g.ranks) for g in self.groups if g.purpose == purpose})
            yield f"{purpose or 'purpose not stated'}: groups of {', '.join(map(str, sizes))} ranks"


@dataclass(frozen=True, kw_only=True)
class KernelTotal:
    """All runs of one kind of kernel [s]."""

    type: str
    core: str
    count: int
    total: float
    shortest: float
    longest: float

    @property
    def mean(self) -> float:
        """Total over count [s]."""
        return self.total / self.count


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One run of one kernel; ``start`` in nanoseconds, as seconds do not fit into a float."""

    step: str
    name: str
    type: str
    core: str
    start: int | None
    duration: float
    wait: float | None
    blocks: int | None
    input_shapes: tuple[tuple[int, ...], ...] = ()
    communication: bool = False


@dataclass(frozen=True)
class KernelTotals:
    """Kernels by type and core; ``communication`` holds elapsed times, which include waiting."""

    compute: tuple[KernelTotal, ...]
    communication: tuple[KernelTotal, ...] = ()

    def takes(self) -> Iterator[str]:
        """The longest types."""
        for title, found in (("compute", self.compute), ("communication, elapsed", self.communication)):
            if found:
                total = math.fsum(k.total for k in found)
                yield f"{title}: {sum(k.count for k in found)} runs, {show(total, 's')} together"
            for k in sorted(found, key=lambda k: -k.total)[:5]:
                yield f"    {k.type} on {k.core or 'core not stated'}: {k.count} x {show(k.mean, 's')}"


@dataclass(frozen=True)
class ExpertLoad:
    """Tokens by layer and expert slot."""

    tokens: tuple[tuple[float, ...], ...]

    @property
    def imbalance(self) -> tuple[float, ...]:
        """Most loaded slot over the mean, layer by layer [1]."""
        return tuple(max(row) * len(row) / math.fsum(row) for row in self.tokens)

    def takes(self) -> Iterator[str]:
        """Imbalance over layers."""
        found = self.imbalance
        yield f"{len(found)} layers, {len(self.tokens[0])} slots"
        yield f"imbalance (max / mean of slots): median {median(found):.3g}, worst layer {max(found):.3g}"


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration of a training run: time [s], samples and tokens of all ranks where the log says so."""

    number: int
    time: float
    global_batch_size: int | None = None
    tokens: float | None = None
    compute_rate: float | None = None


@dataclass(frozen=True)
class TrainingRun:
    """Iterations of one run, in order."""

    iterations: tuple[Iteration, ...]

    @property
    def steady(self) -> tuple[Iteration, ...]:
        """Iterations after the warm-up that are no outliers.

        Notes
        -----
        A run of more than twice ``WARM_UP`` iterations loses the first ``WARM_UP``; a shorter one its first.
        Of the rest, what takes more than ``OUTLIER`` times their median is left out.
        """
        count = len(self.iterations)
        rest = self.iterations[WARM_UP if count > 2 * WARM_UP else min(1, count - 1) :]
        limit = OUTLIER * median(i.time for i in rest)
        return tuple(i for i in rest if i.time <= limit)

    @property
    def time(self) -> float:
        """Median time of a steady iteration [s]."""
        return median(i.time for i in self.steady)

    @property
    def token_rate(self) -> float | None:
        """Median rate over steady iterations of tokens of all ranks [1/s]; unknown without token counts."""
        rates = [i.tokens / i.time for i in self.steady if i.tokens is not None]
        return median(rates) if rates else None


@dataclass(frozen=True)
class TrainingLog:
    """Runs of a training log."""

    runs: tuple[TrainingRun, ...]

    def takes(self) -> Iterator[str]:
        """One line per run."""
        for run in self.runs:
            rate = f", {run.token_rate:.4g} tokens/s" if run.token_rate else ""
            batch = run.iterations[-1].global_batch_size
            size = f", global batch {batch}" if batch else ""
            yield (
                f"{len(run.iterations)} iterations, {len(run.steady)} of them steady: median "
                f"{show(run.time, 's')}{rate}{size}"
            )


@dataclass(frozen=True)
class Launch:
    """A launch script: inputs of an estimate, sizes of the model, and what could not be resolved.

    ``inputs`` bear the names of a scenario plus ``pp vpp cp etp dp sp global_batch_size recompute``;
    ``sizes`` those of a model; ``other`` are known arguments that are neither.
    """

    inputs: Mapping[str, float | str | bool]
    sizes: Mapping[str, float]
    other: Mapping[str, str] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def accumulation(self) -> float | None:
        """Micro-batches of a step: global batch over micro-batch and data-parallel ranks."""
        names = ("global_batch_size", "micro_batch_size", "dp")
        batch, micro, dp = (self.inputs.get(name) for name in names)
        if not batch or not micro or not dp:
            return None
        return float(batch) / (float(micro) * float(dp))

    def takes(self) -> Iterator[str]:
        """Inputs, sizes, and what is missing."""
        for title, found in (("inputs", self.inputs), ("sizes", self.sizes), ("other", self.other)):
            if found:
                yield f"{title}: " + ", ".join(f"{key} = {_plain(value)}" for key, value in found.items())
        if self.accumulation:
            yield f"micro-batches of a step: {self.accumulation:g}"
        if self.unresolved:
            yield f"not resolved: {', '.join(self.unresolved)}"
        if self.unknown:
            yield f"not used: {', '.join(self.unknown)}"


def _plain(value: float | str | bool) -> str:
    return f"{value:.15g}" if type(value) is float else str(value)


@dataclass(frozen=True)
class TileTimes:
    """Measured time by number of tiles."""

    points: tuple[tuple[int, float], ...]

    def takes(self) -> Iterator[str]:
        """Best count and its gain over one tile."""
        count, time = self.best
        times = self.medians()
        yield f"{len(times)} tile counts, best {count}: {show(time, 's')}"
        if 1 in times:
            yield f"gain over one tile: {times[1] / time:.3g}"

    def medians(self) -> dict[int, float]:
        """Median time of each count, in order of counts [s]."""
        ordered = sorted(self.points)
        return {n: median(t for _, t in found) for n, found in groupby(ordered, key=lambda p: p[0])}

    @property
    def best(self) -> tuple[int, float]:
        """The count with the least median time, and that time [s]."""
        return min(self.medians().items(), key=lambda item: item[1])


@dataclass(frozen=True)
class KernelTime:
    """Time [s] of one kernel of given sizes; ``label`` is the model where the table names one."""

    sizes: Mapping[str, float]
    time: float
    label: str = ""


@dataclass(frozen=True)
class KernelTimes:
    """A table of measured kernels of one kind: ``matmul``, ``attention`` or ``moe_ffn``."""

    kind: str
    rows: tuple[KernelTime, ...]

    def takes(self) -> Iterator[str]:
        """Ranges of sizes and times."""
        times = [row.time for row in self.rows]
        yield f"{self.kind}: {len(times)} times, {show(min(times), 's')} to {show(max(times), 's')}"
        for name in self.rows[0].sizes:
            values = [row.sizes[name] for row in self.rows]
            yield f"    {name}: {min(values):g} to {max(values):g}"
        if self.kind == "matmul":
            best = max(2 * r.sizes["m"] * r.sizes["n"] * r.sizes["k"] / r.time for r in self.rows)
            yield f"    best rate {show(best, 'FLOP/s')}"
