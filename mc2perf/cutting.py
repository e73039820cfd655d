"""How a fused operator is cut: every count and length, the best by formula, CANN's tiles, unequal ones.

Whoever chooses, one cost prices the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import schedules, two_engines
from mc2perf.equations.optimum import best_piece_count, branches_time
from mc2perf.equations.overlap import Overlap
from mc2perf.piece_counts import Counts, cut_into, limits_of, refused_at, tile_counts
from mc2perf.policies import uneven
from mc2perf.policies.cann import cann_tiling
from mc2perf.policies.closed_form import Affine, Numbers, affine_through, neighbours, two_stage_branches
from mc2perf.policies.scan import few_lengths, lengths_to_try
from mc2perf.problems import InputError
from mc2perf.reasons import Reason
from mc2perf.schedules import Conditions, Timing
from mc2perf.study import Study
from mc2perf.timeline import Timeline
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, launch_of, work_of


@dataclass(frozen=True)
class Cut:
    """Tiles in the order they run, rows each; why they are as they are."""

    tiles: tuple[float, ...]
    why: str = ""


# --- tiles of one length and a shorter one: a count for every row ------------------------------------------


def fused(study: Study, pair: Pair, tried: Counts) -> tuple[Timing, Counts]:
    """A fused pair at every count worth trying, and how its rows are cut then: as is fastest."""
    counts = counts_to_price(study, pair, tried)
    timing, first = schedules.pair_in_tiles(pair, counts.cut, study.conditions(pair))
    return timing, counts._replace(tiles=counts.cut._replace(rest_first=first))


def _best_lengths(study: Study, pair: Pair, cuts: Counts, ends: Sequence[int]) -> Counts:
    """Of counts in several lengths, each up to one of the ends, the fastest one each."""
    assert cuts.tiles is not None
    if len(ends) == cuts.pieces.shape[-1]:
        return cuts
    total, first = schedules.makespan_in_tiles(pair, cuts.tiles, study.conditions(pair))
    times = np.where(refused_at(cuts.refused), np.inf, total)
    pairs = zip((0, *ends[:-1]), ends, strict=True)
    best = np.stack([start + np.argmin(times[:, start:end], axis=-1) for start, end in pairs], axis=-1)

    def pick(values: Num) -> NDArray[Any]:
        return np.take_along_axis(np.broadcast_to(values, times.shape), best, axis=-1)

    picked = cuts._replace(tiles=cuts.tiles._replace(rest_first=first)).mapped(pick)
    counts = cuts.pieces[:, [end - 1 for end in ends]]
    return picked._replace(pieces=counts, tiles=picked.cut._replace(pieces=counts))


def counts_to_price(study: Study, pair: Pair, tried: Counts) -> Counts:
    """The cuts worth pricing: every feasible count in several lengths, or by formula a few counts per row."""
    if tried.asked or pair.experts or tried.pieces.size == 1:
        return tried.worth_trying()
    if study.scenario.policy != "closed_form":
        cuts = cut_into(study, pair, *lengths_to_try(tried.pieces)).worth_trying()
        ends = np.append(np.flatnonzero(np.diff(cuts.pieces[0])) + 1, cuts.pieces.shape[-1])
        return _best_lengths(study, pair, cuts, ends.tolist())
    feasible = ~np.broadcast_to(refused_at(tried.refused), (_rows(pair), tried.pieces.shape[-1]))
    most = tried.pieces[0][tried.pieces.shape[-1] - 1 - np.argmax(feasible[:, ::-1], axis=-1)]
    chosen = _by_formula(study, pair, feasible, tried.pieces, most)
    uncut, (counts, longer) = np.ones((len(chosen), 1)), few_lengths(chosen[:, None])
    both = (np.concatenate(columns, axis=-1) for columns in ((uncut, counts), (0.0 * uncut, longer)))
    return _best_lengths(study, pair, cut_into(study, pair, *both), (1, 1 + counts.shape[-1]))


def _rows(pair: Pair) -> int:
    return len(np.asarray(pair.rows)) if np.ndim(pair.rows) else 1


def _by_formula(
    study: Study, pair: Pair, feasible: NDArray[np.bool_], counts: Numbers, most: Numbers
) -> Numbers:
    """The feasible count beside the valley of the affine costs through two pieces and the most pieces."""
    on = study.conditions(pair)
    comm, compute, head = affine_costs(
        pair, on, np.minimum(2.0, most)[:, None], np.maximum(most, 3.0)[:, None]
    )
    branches = two_stage_branches(comm, compute, head, on.buffers, on.comm_slowdown, on.compute_slowdown)
    a, b, c = (x[..., 0] for x in branches)
    once = pair.build(1.0, False)
    single = np.asarray(once.comm.cost.work + work_of(once.compute))[..., 0]
    best = best_piece_count(a, b, c, single=single, largest=most)
    wanted = np.asarray(best.pieces)[:, None]
    # prices may differ row by row where rows to cut do not: those of machines side by side
    beside = neighbours(wanted, np.broadcast_to(feasible, (len(wanted), counts.shape[-1])), counts)
    low, high = (np.where(n < 2.0, single, branches_time(a, b, c, n)) for n in beside)
    return np.asarray(np.where(low <= high, beside[0], beside[1]))


def affine_costs(pair: Pair, on: Conditions, few: Num, many: Num) -> tuple[Affine, Affine, Num | None]:
    """Affine times of a transfer and of a computation through two counts; the head. [s]"""
    both = np.concatenate([np.atleast_2d(few), np.atleast_2d(many)], axis=-1)
    p = pair.build_inside(both, pair.local_first and on.buffers > 1)

    def through(times: Num) -> Affine:
        times = np.broadcast_to(times, np.broadcast_shapes(np.shape(times), both.shape))
        return affine_through(few, many, times[:, :1], times[:, 1:])

    comm, compute = through(p.comm.cost.work), through(work_of(p.compute) + on.round_cost)
    return comm, compute, work_of(p.head) if p.head else None


# --- tiles of any length, for a study of one row -----------------------------------------------------------


def cut_by_cann(study: Study, pair: Pair) -> Cut:
    """The tiles CANN would run.

    Raises
    ------
    InputError
        CANN has no policy for this operator here.
    """
    s, machine = study.scenario, study.costs.machine
    if machine.family == "gpu" or s.split_axis != "m":
        raise InputError([f"CANN cuts rows on Ascend; not {s.split_axis} on {machine.name}"])
    tiling = cann_tiling(
        s.target, _one(s.m), _one(s.n), _one(s.k), int(pair.ranks), family=machine.family,
        cores=int(machine.cube.cores), dtype=s.cube_dtype, experts=int(s.experts_per_rank),
    )  # fmt: skip
    # CANN counts the rows of a reduce-scatter per rank
    per_rank = pair.ranks if s.target == "matmul_reduce_scatter" else 1.0
    return Cut(tuple(per_rank * tile for tile in tiling.tiles), tiling.why)


def cut_unevenly(study: Study, pair: Pair) -> Cut:
    """Lengths that are best for the affine costs, rounded to base blocks."""
    if pair.experts or study.scenario.split_axis != "m":
        raise InputError(["unequal tiles are cut along rows of one matmul"])
    on, rows = study.conditions(pair), _one(pair.rows)
    base = float(study.costs.machine.cube.base_block.m)
    tried = tile_counts(study, pair)
    most = int(min(study.costs.machine.limits.pieces, max(rows // base, 1), tried.pieces.max(), MOST_UNEVEN))
    if most < 2:
        return Cut((rows,), "shorter than two base blocks")
    comm, compute, head = affine_costs(pair, on, 2.0, float(max(most, 3)))
    first, second = (comm, compute) if pair.order == "comm_first" else (compute, comm)
    lengths = uneven.best_uneven(
        rows, most, alpha_first=_one(first.alpha), per_row_first=_one(first.work) / rows,
        alpha_second=_one(second.alpha), per_row_second=_one(second.work) / rows,
        head=0.0 if head is None else _one(head), order=pair.order, least=base,
    )  # fmt: skip
    return Cut(uneven.aligned(lengths.rows, int(base)), "linear programme over affine costs")


MOST_UNEVEN = 64
"""More unequal tiles than this are not looked for."""

CUTS: dict[str, Callable[[Study, Pair], Cut]] = {"cann": cut_by_cann, "uneven": cut_unevenly}
"""Policies whose tiles may differ in length."""


def priced(study: Study, pair: Pair, tiles: Sequence[float]) -> tuple[Timing, Timeline]:
    """What a fused operator takes with these tiles, played piece by piece.

    Tiles that are equal but for a shorter one at an end give what :func:`mc2perf.schedules.pair_in_tiles`
    gives in closed form.
    """
    on = study.conditions(pair)
    cut = len(tiles) > 1
    pieces = sum(tiles) / np.array([tiles])
    p = pair.build_inside(pieces, cut and pair.local_first and on.buffers > 1)
    compute = np.broadcast_to(work_of(p.compute) + (on.round_cost if cut else 0.0), pieces.shape)
    comm = np.broadcast_to(p.comm.cost.work, pieces.shape)
    head = _one(work_of(p.head)) if cut else 0.0

    def play(buffers: int) -> Timeline:
        return two_engines.two_stages(
            pair.order, comm[0].tolist(), compute[0].tolist(), head=head, buffers=buffers,
            comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
        )  # fmt: skip

    played = two_engines.if_it_pays(play, int(on.buffers) if cut else 1)
    once = pair.build(1.0, False)
    memory = np.broadcast_to(sum((s.cost.memory for s in p.compute), 0.0), pieces.shape)
    overlap = Overlap(played.total, played.busy_compute, played.exposed_comm)
    timing = schedules.fused_timing(
        once,
        overlap,
        float(compute.sum()) + head,
        float(comm.sum()),
        float(memory.sum()),
        launch_of(once.compute),
    )
    return schedules.scalar(timing), played


def refused_tiles(study: Study, pair: Pair, tiles: Sequence[float]) -> Reason | None:
    """Why these tiles cannot run, if so: the longest one counts."""
    counts = np.array([[float(len(tiles))]])
    for reason in limits_of(study, pair, counts, max(tiles)):
        if np.all(reason.where):
            return reason
    return None


def _one(number: Num | None) -> float:
    return float(np.asarray(number, float).item())
