"""What a profiler exports: step times, operations and links of communication, kernels, expert loads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from mc2perf.units import show

UNEVEN = 0.05
"""Ranks that differ by more of their mean hint at a slow one [1]."""


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
        yield from self._uneven()

    @property
    def least_communication(self) -> float:
        """Communication of the rank and step that waited least [s]."""
        return min(s.communication for s in self.steps)

    def spread(self, what: str) -> tuple[float, StepTime]:
        """Widest span between ranks of one step over their mean [1], and the rank and step of most."""
        found = []
        for step in dict.fromkeys(s.step for s in self.steps):
            ranks = [s for s in self.steps if s.step == step]
            times = [float(getattr(s, what)) for s in ranks]
            mean = math.fsum(times) / len(times)
            found.append(((max(times) - min(times)) / mean if mean else 0.0, ranks[times.index(max(times))]))
        return max(found, key=lambda one: one[0])

    def _uneven(self) -> Iterator[str]:
        """Ranks that differ: the others wait for a slow one, which itself waits least."""
        for what in ("computing", "communication", "free"):
            spread, most = self.spread(what)
            if spread > UNEVEN:
                at = f"rank {most.rank}" + (f" in step {most.step}" if most.step else "")
                yield f"ranks differ by {spread:.0%} of the mean in {what}; most: {at}"


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
    input_types: tuple[str, ...] = ()
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
