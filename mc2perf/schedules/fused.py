"""One fused kernel over a pair: tiles of which one may be shorter, or experts that differ in load."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mc2perf.equations import overlap as overlapping
from mc2perf.equations import three_stages
from mc2perf.equations.overlap import Overlap
from mc2perf.equations.unequal import Pieces, better_end, rest_at, rest_first, rest_last
from mc2perf.schedules.stages import Conditions, in_two_stages, in_unequal_pieces
from mc2perf.schedules.timing import Timing, exact, memory_of, serial
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, PairPieces, Segment, Tiles, inverse_shares, launch_of, work_of


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
        overlap = in_two_stages(pair.name, one.comm, one.compute, n, one.head, on.buffers, on)
        first: Num = 0.0
    else:
        one, rest = _full_and_rest(pair, once, tiles, on)
        sent, computed, memory = _sums(n, one, rest)
        overlap, first = _rest_at_an_end(pair, tiles, one, rest, on)
    memory = np.where(np.greater(n, 1.0), memory + one.head_memory, memory_of(once.compute))
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
    return _Piece(p.comm.cost.work, compute, memory_of(p.compute), head, memory_of(p.head))


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
    sums = in_unequal_pieces(pair.name, p.comm.cost.work, compute, memory_of(p.compute), 0.0, on, order)
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
    return exact(fixed._replace(launches=0.0) + fused + serial(once.after))


def _only_launch(segment: Segment) -> Segment:
    return segment._replace(cost=segment.cost._replace(work=0.0, memory=0.0))
