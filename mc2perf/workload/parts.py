"""What a schedule can lay over each other: plain work, a collective fused with a matmul, the expert path.

A part is built for any number of pieces: ``build(n)`` prices *one* piece when the rows are cut n ways.
Times may be columns: n is then an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from mc2perf.costs import Cost
from mc2perf.units import Num


class Segment(NamedTuple):
    """A named piece of work on one of the two engines, with the parallel group whose traffic it is.

    The host issues it with ``launches`` kernels, and waits for ``reads`` results of it before it goes on.
    """

    name: str
    engine: Literal["compute", "comm"]
    cost: Cost
    group: str = ""
    launches: float = 1.0
    reads: float = 0.0


Segments = tuple[Segment, ...]


def is_weight_gradient(segment: Segment) -> bool:
    """Whether nothing but the optimizer waits for it: matmuls of weight gradients, and their sums.

    Those of the router, of shared experts and of the embedding are part of kernels that do more.
    """
    return " wgrad" in segment.name


def time_of(segments: Segments, engine: str) -> Num:
    """Sum of the times on one engine. [s]"""
    return sum((s.cost.time for s in segments if s.engine == engine), 0.0)


def work_of(segments: Segments) -> Num:
    """Sum of the times without launches. [s]"""
    return sum((s.cost.work for s in segments), 0.0)


def launch_of(segments: Segments) -> Num:
    """Sum of the launches. [s]"""
    return sum((s.cost.launch for s in segments), 0.0)


def launches_of(segments: Segments) -> float:
    """Kernels that the host issues."""
    return sum((s.launches for s in segments), 0.0)


def reads_of(segments: Segments) -> float:
    """Results that the host waits for."""
    return sum((s.reads for s in segments), 0.0)


@dataclass(frozen=True)
class Plain:
    """Work that no schedule pipelines by itself."""

    name: str
    build: Callable[[Num], Segments]


@dataclass(frozen=True)
class Ring(Plain):
    """Attention with context parallelism: keys and values travel beside it; what is left over is exposed."""


def inverse_shares(loads: Sequence[float]) -> Num:
    """Into how many pieces like each of these a whole would fall: along the first of three axes.

    Examples
    --------
    >>> inverse_shares([3.0, 0.0, 1.0]).ravel().round(2).tolist()
    [1.33, 4.0]
    """
    some = np.array([load for load in loads if load > 0.0]).reshape(-1, 1, 1)
    inverse: Num = some.sum() / some
    return inverse


@dataclass(frozen=True)
class Slices(Plain):
    """Experts cut by tensor parallelism alone, with the collectives around them: no operator fuses both."""


class Tiles(NamedTuple):
    """Pieces of one length, and one that holds the rest and runs first or last; lengths in any unit.

    Without lengths all are equal. ``rest_first`` is 1 or 0; not-a-number if a schedule may choose.

    Examples
    --------
    >>> cut = Tiles(5.0, 896.0, 512.0, rest_first=1.0)
    >>> cut.whole, cut.in_order()
    (4096.0, (512.0, 896.0, 896.0, 896.0, 896.0))
    """

    pieces: Num
    each: Num = 1.0
    rest: Num = 1.0
    rest_first: Num = np.nan

    @property
    def whole(self) -> Num:
        """What is cut."""
        return (self.pieces - 1.0) * self.each + self.rest

    @property
    def equal(self) -> bool:
        """Whether no piece differs from the others, in any row."""
        return self.rest is self.each or bool(np.all(np.equal(self.rest, self.each)))

    def scaled(self, by: Num) -> Tiles:
        """The same in another unit of length."""
        return self._replace(each=self.each * by, rest=self.rest * by)

    def in_order(self) -> tuple[float, ...]:
        """The length of every piece of one row, in the order they run."""
        pieces, each, rest = (np.asarray(x).item() for x in self[:3])
        longer = (float(each),) * (int(pieces) - 1)
        return (float(rest), *longer) if np.any(np.equal(self.rest_first, 1.0)) else (*longer, float(rest))


class PairPieces(NamedTuple):
    """One piece of a pair: what is sent once before, the transfer, the matmul, own rows, what follows."""

    prefix: Segments
    comm: Segment
    compute: Segments
    head: Segments = ()
    after: Segments = ()


@dataclass(frozen=True)
class Pair:
    """A collective next to a matmul; ``build(n, local_first)`` prices a piece.

    Where local experts differ in load, ``loads`` has that of each, and ``of_experts(n, e)`` prices pieces
    of e experts with a share of 1 / n, along the first axis.
    """

    name: str
    order: Literal["comm_first", "compute_first"]
    ranks: float
    rows: Num
    build: Callable[[Num, bool], PairPieces]
    local_first: bool = False
    experts: int = 0
    piece_bytes: Num = 0.0
    scale_bytes: Num = 0.0
    inside: Callable[[Num, bool], PairPieces] | None = None
    loads: tuple[float, ...] = ()
    of_experts: Callable[[Num, float], PairPieces] | None = None

    def build_inside(self, pieces: Num, local_first: bool) -> PairPieces:
        """A piece inside one kernel: its transfer is not launched by the host."""
        return (self.inside or self.build)(pieces, local_first)


class ExpertPieces(NamedTuple):
    """One piece of the expert path, in order; ``beside`` needs no communication (shared experts)."""

    before: Segments
    comm_in: Segment
    first: Segment
    middle: Segments
    second: Segment
    comm_out: Segment
    after: Segments
    weight_grads: Segments = ()
    beside: Segments = ()


@dataclass(frozen=True)
class ExpertPath:
    """Gate, dispatch, experts, combine; ``build(n, by_expert)`` prices a piece of tokens or one expert.

    ``by_expert`` is the n that makes a piece of one local expert; where experts differ in load, of each of
    them along the first of three axes. ``fusible``: an operator exists that fuses its exchange with its
    matmuls.
    """

    name: str
    ranks: float
    experts_per_rank: int
    tokens: Num
    build: Callable[[Num, bool], ExpertPieces]
    by_expert: Num = 1.0
    fusible: bool = True

    @property
    def fuses(self) -> bool:
        """Whether there is an exchange that such an operator could take in."""
        return self.fusible and self.ranks > 1


Part = Plain | Pair | ExpertPath


def all_segments(part: Part, pieces: Num = 1.0) -> Segments:
    """Everything in a part, in order, for one of ``pieces`` pieces."""
    if isinstance(part, Plain):
        return part.build(pieces)
    if isinstance(part, Pair):
        p = part.build(pieces, False)
        ordered = (p.comm, *p.compute) if part.order == "comm_first" else (*p.compute, p.comm)
        return (*p.prefix, *ordered, *p.after)
    e = part.build(pieces, False)
    return (
        *e.beside,
        *e.before,
        e.comm_in,
        e.first,
        *e.middle,
        e.second,
        e.comm_out,
        *e.after,
        *e.weight_grads,
    )


def in_turns(segments: Iterable[Segment]) -> tuple[list[list[Segment]], list[list[Segment]]]:
    """Neighbours on the same engine together: computations, each with the communication after it."""
    compute: list[list[Segment]] = [[]]
    comm: list[list[Segment]] = [[]]
    last = "compute"
    for segment in segments:
        if segment.engine == "compute" and last == "comm":
            compute.append([])
            comm.append([])
        (compute if segment.engine == "compute" else comm)[-1].append(segment)
        last = segment.engine
    return compute, comm
