"""Schedules: how the communication of a part is laid over computation, and what that takes.

Every schedule turns a part into a :class:`Timing`; the number of pieces may be an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, cast

import numpy as np

from mc2perf.equations import overlap as overlapping
from mc2perf.equations import three_stages
from mc2perf.equations.overlap import Overlap, Paths
from mc2perf.equations.three_stages import ThreeStagePaths
from mc2perf.equations.unequal import (
    Pieces,
    better_end,
    rest_at,
    rest_first,
    rest_last,
    unequal_pieces,
)
from mc2perf.machine.links import Engine
from mc2perf.units import Num
from mc2perf.workload.parts import (
    ExpertPath,
    Pair,
    PairPieces,
    Part,
    Segment,
    Segments,
    Tiles,
    all_segments,
    in_turns,
    inverse_shares,
    is_weight_gradient,
    launch_of,
    launches_of,
    reads_of,
    time_of,
    work_of,
)


class Timing(NamedTuple):
    """What a schedule takes on the device. [s]

    ``total = busy + exposed + idle`` exactly, and only pipeline stages are idle; ``compute`` and ``comm``
    are stand-alone sums; ``memory`` is the part of the computation that memory bounds; ``launches`` counts
    kernels issued by the host, ``reads`` results that it waits for.
    """

    total: Num
    compute: Num
    comm: Num
    busy: Num
    exposed: Num
    memory: Num
    launches: Num
    idle: Num = 0.0
    reads: Num = 0.0

    def __add__(self, other: object) -> Timing:
        assert isinstance(other, Timing)
        return Timing(*(_plus(a, b) for a, b in zip(self, other, strict=True)))

    def times(self, count: float) -> Timing:
        """The same, ``count`` times in a row."""
        return Timing(*(count * value for value in self))


def _plus(a: Num, b: Num) -> Num:
    """A sum; nothing is not added to millions of rows."""
    return b if type(a) is float and a == 0.0 else a if type(b) is float and b == 0.0 else a + b


NOTHING = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Conditions:
    """What the engines under a schedule say: slow-down factors, cost of a round; buffers; who runs."""

    comm_slowdown: float
    compute_slowdown: float
    round_cost: float
    buffers: float
    run: Callable[..., Any]

    @classmethod
    def of(cls, engines: Sequence[Engine], buffers: float, run: Callable[..., Any]) -> Conditions:
        """The worst of every engine that a group of ranks uses."""
        return cls(
            _worst([e.comm_under_compute for e in engines]),
            _worst([e.compute_under_comm for e in engines]),
            _worst([e.round_cost for e in engines]),
            buffers,
            run,
        )


def _worst(numbers: Sequence[float]) -> float:
    """The largest number; row by row where the numbers of a machine are columns."""
    if not any(map(np.ndim, numbers)):
        return max(numbers)
    largest: Any = reduce(np.maximum, numbers)
    return cast(float, largest)


def serial(segments: Segments) -> Timing:
    """One after the other."""
    compute, comm = time_of(segments, "compute"), time_of(segments, "comm")
    return Timing(
        compute + comm, compute, comm, compute, comm, _memory(segments), launches_of(segments),
        reads=reads_of(segments),
    )  # fmt: skip


def _memory(segments: Segments) -> Num:
    return sum((s.cost.memory for s in segments), 0.0)


def pair_serial(part: Part) -> Timing:
    """A part without overlap: the base line of every speed-up."""
    return serial(all_segments(part))


def pair_mc2(pair: Pair, pieces: Num | Tiles, on: Conditions) -> Timing:
    """One fused kernel: launched once, n tiles, a round cost for each beyond the first."""
    return pair_in_tiles(pair, pieces if isinstance(pieces, Tiles) else Tiles(pieces), on)[0]


class _Piece(NamedTuple):
    """What one tile takes on either engine, and in memory; what is computed beside all. [s]"""

    comm: Num
    compute: Num
    memory: Num
    head: Num = 0.0
    head_memory: Num = 0.0


def pair_in_tiles(pair: Pair, tiles: Tiles, on: Conditions) -> tuple[Timing, Num]:
    """One fused kernel in tiles of which one may be another; and where that one had better run first."""
    once, n = pair.build(1.0, False), tiles.pieces
    if tiles.equal:
        one = _piece_of(pair, once, n, n, on, "a piece")
        sent, computed, memory = n * one.comm, n * one.compute, n * one.memory
        overlap = _two_stages(pair.name, one.comm, one.compute, n, one.head, on.buffers, on)
        first: Num = 0.0
    else:
        one, rest = _full_and_rest(pair, once, tiles, on)
        sent, computed, memory = _sums(n, one, rest)
        overlap, first = _rest_at_an_end(pair, tiles, one, rest, on)
    memory = np.where(np.greater(n, 1.0), memory + one.head_memory, _memory(once.compute))
    launches = launch_of(once.compute)
    return fused_timing(once, overlap, computed + one.head, sent, memory, launches), first


def makespan_in_tiles(pair: Pair, tiles: Tiles, on: Conditions) -> tuple[Num, Num]:
    """What the pipeline of a fused kernel takes with the rest at its better end; where that is first. [s]"""
    one, rest = _full_and_rest(pair, pair.build(1.0, False), tiles, on)
    if on.buffers <= 1:
        sent, computed, _ = _sums(tiles.pieces, one, rest)
        return sent + computed + one.head, 0.0
    total, first = better_end(_pieces_of(tiles.pieces, one, rest, on))
    return total, _in_run_order(pair, first)


def _full_and_rest(pair: Pair, once: PairPieces, tiles: Tiles, on: Conditions) -> tuple[_Piece, _Piece]:
    """One of the equal tiles, and the rest."""
    n, whole = tiles.pieces, tiles.whole
    return (
        _piece_of(pair, once, n, whole / tiles.each, on, "a full piece"),
        _piece_of(pair, once, n, whole / tiles.rest, on, "the rest"),
    )


def _sums(pieces: Num, one: _Piece, rest: _Piece) -> tuple[Num, Num, Num]:
    """All transfers, all computation but the head, their memory-bound part. [s]"""
    comm, compute, memory = (pieces * a + (b - a) for a, b in zip(one[:3], rest[:3], strict=True))
    return comm, compute, memory


def _piece_of(pair: Pair, once: PairPieces, pieces: Num, like: Num, on: Conditions, what: str) -> _Piece:
    """One of so many tiles, of which the rows would make ``like`` ones of its length."""
    p = pair.build_inside(like, pair.local_first and on.buffers > 1)
    cut = np.greater(pieces, 1.0)
    compute = on.run(
        f"{pair.name}: compute of {what}", overlapping.piece_time,
        work=np.where(cut, work_of(p.compute), work_of(once.compute)),
        overhead=np.where(cut, on.round_cost, 0.0),
    )  # fmt: skip
    head = np.where(cut, work_of(p.head), 0.0) if p.head else 0.0
    return _Piece(p.comm.cost.work, compute, _memory(p.compute), head, _memory(p.head))


def _pieces_of(pieces: Num, one: _Piece, rest: _Piece, on: Conditions) -> Pieces:
    """The numbers of a pipeline of which one piece is another."""
    f, g = on.comm_slowdown, on.compute_slowdown
    covered_comm = on.run("cost of covered transfers", three_stages.covering_cost,
                          slowdown=f, slowdown_of_critical=g)  # fmt: skip
    covered_compute = on.run("cost of covered computation", three_stages.covering_cost,
                             slowdown=g, slowdown_of_critical=f)  # fmt: skip
    sent, computed, _ = _sums(pieces, one, rest)
    return Pieces(
        one.comm, one.compute, rest.comm, rest.compute, sent, computed, pieces, one.head, on.buffers,
        covered_comm, covered_compute,
    )  # fmt: skip


def _in_run_order(pair: Pair, first: Num) -> Num:
    """Computation before transfers is the same read backwards: there the first one is the last to run."""
    return first if pair.order == "comm_first" else 1.0 - first


def _rest_at_an_end(
    pair: Pair, tiles: Tiles, one: _Piece, rest: _Piece, on: Conditions
) -> tuple[Overlap, Num]:
    """The pipeline with the rest first or last, as the tiles say or as is faster; and where it is first."""
    if on.buffers <= 1:
        sent, computed, _ = _sums(tiles.pieces, one, rest)
        return Overlap(sent + computed + one.head, computed + one.head, sent), 0.0
    numbers = _pieces_of(tiles.pieces, one, rest, on)
    first, pace = tiles.rest_first, on.compute_slowdown / on.comm_slowdown
    if np.any(np.isnan(first)):
        first = _in_run_order(pair, better_end(numbers)[1])
    if np.size(first) > 1:
        return rest_at(numbers, _in_run_order(pair, first), pace), first
    equation = rest_first if np.all(_in_run_order(pair, first)) else rest_last
    overlap: Overlap = on.run(
        f"{pair.name}: makespan, the rest {'first' if np.all(first) else 'last'}", equation,
        **numbers._asdict(), pace=pace,
    )  # fmt: skip
    return overlap, first


def pieces_of_experts(pair: Pair, count: int) -> PairPieces:
    """So many pieces of as many local experts, which differ in load: along the first axis."""
    assert pair.of_experts is not None
    each = len(pair.loads) // count
    loads = np.reshape(pair.loads, (count, each)).sum(axis=1)
    return pair.of_experts(inverse_shares(loads.tolist()), float(each))


def pair_by_expert(pair: Pair, count: int, on: Conditions) -> Timing:
    """One fused kernel over experts that differ in load, in so many pieces of as many experts."""
    once, p = pair.build(1.0, False), pieces_of_experts(pair, count)
    compute = work_of(p.compute) + (on.round_cost if count > 1 else 0.0)
    order = 1 if pair.order == "comm_first" else -1
    sums = _unequal(pair.name, p.comm.cost.work, compute, _memory(p.compute), 0.0, on, order)
    return fused_timing(once, *sums, launch_of(once.compute))


def fused_timing(
    once: PairPieces, overlap: Overlap, compute: Num, comm: Num, memory: Num, launches: Num
) -> Timing:
    """A fused kernel: what goes before, the pipeline, its one launch, what follows."""
    fixed = serial((*once.prefix, _only_launch(once.comm)))
    fused = Timing(
        overlap.total + launches,
        compute + launches,
        comm,
        overlap.busy_compute + launches,
        overlap.exposed_comm,
        memory,
        1.0,
    )
    return _exact(fixed._replace(launches=0.0) + fused + serial(once.after))


def scalar(timing: Timing) -> Timing:
    """The timing of one row and one count as plain numbers."""
    return Timing(*(float(np.asarray(value).item()) for value in timing))


def _two_stages(
    name: str, comm: Num, compute: Num, pieces: Num, beside: Num, buffers: float, on: Conditions
) -> Overlap:
    """Pieces through communication and computation; ``beside`` needs no communication.

    Whichever comes first: read backwards, one order is the other.
    """
    if on.buffers <= 1:
        return Overlap(pieces * (comm + compute) + beside, pieces * compute + beside, pieces * comm)
    paths: Paths = on.run(
        f"{name}: paths", overlapping.two_stage_paths,
        comm=comm, compute=compute, pieces=pieces, head=beside, buffers=buffers,
        comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
    )  # fmt: skip
    sent = pieces * comm
    overlap: Overlap = on.run(
        f"{name}: makespan", overlapping.longest_path,
        **paths._asdict(), work=sent + pieces * compute + beside, comm=sent,
    )  # fmt: skip
    return overlap


def _only_launch(segment: Segment) -> Segment:
    return segment._replace(cost=segment.cost._replace(work=0.0, memory=0.0))


def _three_stages(
    dispatch: Num, experts: Num, combine: Num, pieces: Num, beside: Num, on: Conditions
) -> Overlap:
    """Pieces through dispatch, experts and combine; ``beside`` needs no communication."""
    depth = np.minimum(on.buffers, pieces)
    f, g = on.comm_slowdown, on.compute_slowdown
    paths: ThreeStagePaths = on.run(
        "experts: paths", three_stages.three_stage_paths,
        dispatch=dispatch, experts=experts, combine=combine, pieces=pieces, depth=depth, beside=beside,
        covered_comm=on.run("cost of covered transfers", three_stages.covering_cost,
                            slowdown=f, slowdown_of_critical=g),
        covered_compute=on.run("cost of covered computation", three_stages.covering_cost,
                               slowdown=g, slowdown_of_critical=f),
        pace=g / f,
    )  # fmt: skip
    sent = pieces * (dispatch + combine)
    overlap: Overlap = on.run(
        "experts: makespan", three_stages.three_stage_overlap,
        **paths._asdict(), pieces=pieces, depth=depth, work=sent + pieces * experts + beside, comm=sent,
    )  # fmt: skip
    return overlap


def _exact(timing: Timing) -> Timing:
    """Restore ``total = busy + exposed`` after sums that round."""
    return timing._replace(total=timing.busy + timing.exposed)


def pair_parts(pair: Pair, pieces: Num, on: Conditions) -> Timing:
    """CoC: the same pipeline of separate kernels, every piece launched by the host."""
    once, p = pair.build(1.0, False), pair.build(pieces, False)
    compute, comm = time_of(p.compute, "compute"), p.comm.cost.time
    overlap = _two_stages(pair.name, comm, compute, pieces, 0.0, on.buffers, on)
    fused = Timing(
        overlap.total,
        pieces * compute,
        pieces * comm,
        overlap.busy_compute,
        overlap.exposed_comm,
        pieces * _memory(p.compute),
        pieces * launches_of((*p.compute, p.comm)),
    )
    return _exact(serial(once.prefix) + fused + serial(once.after))


def experts_mc2(path: ExpertPath, on: Conditions) -> Timing:
    """Two fused halves, one piece per local expert: dispatch + FFN1, then FFN2 + combine."""
    whole, one = path.build(1.0, False), path.build(path.by_expert, True)
    shared = work_of(whole.beside)
    half = _half if np.ndim(path.by_expert) == 0 else _unequal_half
    first = half(whole.comm_in, one.comm_in, one.first, path.experts_per_rank, shared, on, 1)
    second = half(whole.comm_out, one.comm_out, one.second, path.experts_per_rank, 0.0, on, -1)
    rest = serial((*whole.before, *whole.middle, *whole.after, *whole.weight_grads))
    beside = Timing(
        *(launch_of(whole.beside),) * 2, 0.0, launch_of(whole.beside), 0.0, _memory(whole.beside), 0.0
    )
    return _exact(first + second + rest + beside)


def _half(
    whole: Segment, comm: Segment, matmul: Segment, pieces: int, head: Num, on: Conditions, order: int
) -> Timing:
    """One fused half of the expert path; read backwards (``order`` -1) it is the same."""
    # all exchanges of the local experts are issued up front: every piece has its buffer, so that no barrier
    # keeps the cube waiting, and what a round costs lies on the links
    sent = comm.cost.work + (on.round_cost if pieces > 1 else 0.0)
    compute = matmul.cost.work
    overlap = _two_stages(matmul.name, sent, compute, float(pieces), head, float(max(pieces, 2)), on)
    sums = pieces * compute + head, pieces * sent, pieces * matmul.cost.memory
    return _launched_half(overlap, *sums, matmul.cost.launch, whole.cost.launch)


def _unequal_half(
    whole: Segment, comm: Segment, matmul: Segment, pieces: int, head: Num, on: Conditions, order: int
) -> Timing:
    """A half whose experts differ in load: the pieces of each are its own, along the first axis."""
    # what a round costs lies on the links, as in `_half`
    sent = comm.cost.work + (on.round_cost if np.shape(matmul.cost.work)[0] > 1 else 0.0)
    sums = _unequal(matmul.name, sent, matmul.cost.work, matmul.cost.memory, head, on, order)
    return _launched_half(*sums, matmul.cost.launch, whole.cost.launch)


def _unequal(
    name: str, sent: Num, compute: Num, memory: Num, head: Num, on: Conditions, order: int
) -> tuple[Overlap, Num, Num, Num]:
    """Makespan of unequal pieces; sums of computation, transfers and memory-bound time.

    Every piece, along the first axis, has its buffer. ``order`` is -1 where transfers come last.
    """
    compute, sent, memory = np.broadcast_arrays(compute, sent, memory)
    sums = compute.sum(axis=0) + head, sent.sum(axis=0), memory.sum(axis=0)
    if on.buffers <= 1:
        return Overlap(sums[0] + sums[1], sums[0], sums[1]), *sums
    overlap: Overlap = on.run(
        f"{name}: makespan of unequal pieces", unequal_pieces,
        comm=sent[::order], compute=compute[::order], head=head,
        comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
    )  # fmt: skip
    return overlap, *sums


def _launched_half(overlap: Overlap, compute: Num, comm: Num, memory: Num, launch: Num, send: Num) -> Timing:
    """The host launches a fused half once, and the whole exchange once."""
    return Timing(
        overlap.total + launch + send,
        compute + launch,
        comm + send,
        overlap.busy_compute + launch,
        overlap.exposed_comm + send,
        memory,
        1.0,
    )


def experts_micro_batch(path: ExpertPath, pieces: Num, on: Conditions) -> Timing:
    """Micro-batches through dispatch, experts, combine; both communications share one engine.

    Weight gradients need nothing of the path's order: they are computed once, for the whole batch, after it.
    """
    whole, p = path.build(1.0, False), path.build(pieces, False)
    shared = time_of(whole.beside, "compute")
    inner = (*p.before, p.first, *p.middle, p.second, *p.after)
    dispatch = time_of((*p.before, p.comm_in), "comm")
    combine = p.comm_out.cost.time
    experts = time_of(inner, "compute") + np.where(np.greater(pieces, 1.0), on.round_cost, 0.0)
    overlap = _three_stages(dispatch, experts, combine, pieces, shared, on)
    count = launches_of((*inner, p.comm_in, p.comm_out))
    memory = pieces * _memory(inner) + _memory(whole.beside)
    timing = Timing(
        overlap.total, pieces * experts + shared, pieces * (dispatch + combine), overlap.busy_compute,
        overlap.exposed_comm, memory, pieces * count + launches_of(whole.beside),
        reads=pieces * reads_of(inner),
    )  # fmt: skip
    return _exact(timing + serial(whole.weight_grads))


def dual_batch(parts: Sequence[Part], share: float, on: Conditions, put_off: bool = False) -> Timing:
    """Two batches half a step apart through the parts of a layer, per one whole batch.

    ``share`` is 1 for two whole micro-batches (training), 2 for the two halves of one batch (prefill).
    Weight gradients that are ``put_off`` cover nothing.
    """
    every = tuple(s for part in parts for s in all_segments(part, share))
    segments = tuple(s for s in every if not (put_off and is_weight_gradient(s)))
    later = serial(tuple(s for s in every if put_off and is_weight_gradient(s)))
    compute, comm = (
        [sum((s.cost.time for s in turn), 0.0) for turn in turns] for turns in in_turns(segments)
    )
    overlap = overlapping.lockstep(compute, comm, on.comm_slowdown, on.compute_slowdown)
    per_batch = share / 2.0
    timing = Timing(
        overlap.total, 2.0 * sum(compute), 2.0 * sum(comm), overlap.busy_compute, overlap.exposed_comm,
        2.0 * _memory(segments), 2.0 * launches_of(segments), reads=2.0 * reads_of(segments),
    )  # fmt: skip
    return _exact(timing.times(per_batch) + later.times(share))
