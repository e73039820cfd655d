"""Who plays the parts of a layer under each schedule, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mc2perf import cutting, two_engines
from mc2perf.answer import Row
from mc2perf.outcomes.mc2 import best_tiles
from mc2perf.schedules import Conditions, pieces_of_experts
from mc2perf.study import Study
from mc2perf.timeline import Engine, Timeline, apart, in_turn, joined
from mc2perf.two_engines import Job, side_by_side
from mc2perf.units import Num
from mc2perf.workload.parts import (
    ExpertPath,
    Pair,
    PairPieces,
    Part,
    Segment,
    Segments,
    all_segments,
    in_turns,
    launch_of,
    time_of,
    work_of,
)

Player = Callable[[Part], Timeline]

Passes = Callable[[tuple[Part, ...], bool], Timeline]
"""What parts of a layer take together; the flag says whether they are ends of the model."""


def whole_batches(study: Study) -> bool:
    """Whether two batches half a step apart are whole micro-batches, not the halves of one batch."""
    return study.model is not None and study.scenario.phase == "train"


def _part_by_part(player: Player) -> Passes:
    return lambda parts, ends: joined(apart(player(part) for part in parts))


def _serial_passes(study: Study, row: Row) -> Passes:
    return _part_by_part(_serial)


def _serial(part: Part) -> Timeline:
    return _segments(all_segments(part))


def _segments(segments: Segments) -> Timeline:
    return in_turn((s.engine, s.name, one(s.cost.time)) for s in segments)


def one(number: Num) -> float:
    """The number of a study of one row."""
    return float(np.asarray(number).item())


def _launch(engine: Engine, name: str, time: Num) -> Timeline:
    return in_turn([(engine, f"{name} launch", one(time))])


def _mc2_passes(study: Study, row: Row) -> Passes:
    def play(part: Part) -> Timeline:
        if isinstance(part, ExpertPath) and part.fuses:
            return _experts_mc2(part, study.conditions(part))
        if isinstance(part, Pair) and part.ranks > 1:
            return _pair_mc2(study, part, _tiles(study, part, row))
        return _serial(part)

    return _part_by_part(play)


def _tiles(study: Study, pair: Pair, row: Row) -> tuple[float, ...]:
    """Rows of every tile of a fused pair."""
    if row.tiles:
        return row.tiles
    if study.model is None:
        return (one(pair.rows) / row.pieces,) * row.pieces
    return best_tiles(study, pair)[1].in_order()


def _pair_mc2(study: Study, pair: Pair, tiles: Sequence[float]) -> Timeline:
    """A fused kernel: what is sent once, its launches, the pieces, what follows."""
    once = pair.build(1.0, False)
    pieces = _by_expert(study, pair, len(tiles)) if pair.loads else cutting.priced(study, pair, tiles)[1]
    return joined(
        [
            _segments(once.prefix),
            _launch("comm", once.comm.name, once.comm.cost.launch),
            _launch("compute", pair.name, launch_of(once.compute)),
            _named(pieces, _tile_names(once, "local expert" if pair.experts else "tile")),
            _segments(once.after),
        ]
    )


def _by_expert(study: Study, pair: Pair, count: int) -> Timeline:
    """Pieces of local experts that differ in load."""
    on, p = study.conditions(pair), pieces_of_experts(pair, count)
    round_cost = on.round_cost if count > 1 else 0.0
    comm, compute = each(p.comm.cost.work), each(work_of(p.compute) + round_cost)
    return _pieces(pair.order, comm, compute, 0.0, on)


def each(numbers: Num) -> list[float]:
    """The number of every piece, along the first axis."""
    found: list[float] = np.ravel(numbers).tolist()
    return found


def _pieces(
    order: two_engines.Order, comm: list[float], compute: list[float], head: float, on: Conditions
) -> Timeline:
    """Pieces whose exchanges are issued up front: each has a buffer."""
    n = len(comm)
    return two_engines.if_it_pays(
        lambda buffers: two_engines.two_stages(
            order, comm, compute, head=head, buffers=buffers,
            comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
            head_name="shared experts",
        ),
        max(n, 2) if on.buffers > 1 else 1,
    )  # fmt: skip


def _experts_mc2(path: ExpertPath, on: Conditions) -> Timeline:
    """Dispatch with the first matmul, the second matmul with combine: a piece for every local expert."""
    whole, expert = path.build(1.0, False), path.build(path.by_expert, True)
    shared, shared_launch = work_of(whole.beside), launch_of(whole.beside)
    return joined(
        [
            _launch("compute", "shared experts", shared_launch),
            _segments(whole.before),
            *_half(path, "comm_first", whole.comm_in, expert.comm_in, expert.first, one(shared), on),
            _segments(whole.middle),
            *_half(path, "compute_first", whole.comm_out, expert.comm_out, expert.second, 0.0, on),
            _segments((*whole.after, *whole.weight_grads)),
        ]
    )


def _half(
    path: ExpertPath, order: two_engines.Order, whole: Segment, comm: Segment, matmul: Segment, head: float,
    on: Conditions,
) -> Iterator[Timeline]:  # fmt: skip
    """One fused half of the expert path."""
    yield _launch("comm", comm.name, whole.cost.launch)
    yield _launch("compute", matmul.name, matmul.cost.launch)
    n = path.experts_per_rank if np.ndim(path.by_expert) == 0 else np.size(path.by_expert)
    # transfers may be alike where there are none: one rank
    sent, computed = each(comm.cost.work + (on.round_cost if n > 1 else 0.0)), each(matmul.cost.work)
    sent, computed = sent * (n // len(sent)), computed * (n // len(computed))
    yield _named(
        _pieces(order, sent, computed, head, on),
        {"comm": f"{comm.name}, local expert", "compute": f"{matmul.name}, local expert"},
    )


def _named(played: Timeline, names: dict[str, str]) -> Timeline:
    """The same with other names for the pieces."""
    return Timeline(
        tuple(s._replace(name=f"{names[s.engine]} {s.piece}") if s.piece else s for s in played.spans)
    )


def _coc_passes(study: Study, row: Row) -> Passes:
    def play(part: Part) -> Timeline:
        return (
            _pair_parts(part, row.pieces, study.conditions(part)) if isinstance(part, Pair) else _serial(part)
        )

    return _part_by_part(play)


def _pair_parts(pair: Pair, n: int, on: Conditions) -> Timeline:
    """CoC: separate kernels, every piece launched by the host."""
    once, piece = pair.build(1.0, False), pair.build(float(n), False)
    comm, compute = one(piece.comm.cost.time), one(time_of(piece.compute, "compute"))
    pieces = two_engines.if_it_pays(
        lambda buffers: two_engines.two_stages(
            pair.order, [comm] * n, [compute] * n, buffers=buffers, comm_slowdown=on.comm_slowdown,
            compute_slowdown=on.compute_slowdown,
        ),
        int(on.buffers),
    )  # fmt: skip
    pieces = _named(pieces, _tile_names(once, "part"))
    return joined([_segments(once.prefix), pieces, _segments(once.after)])


def _tile_names(once: PairPieces, unit: str) -> dict[str, str]:
    """What the pieces of a pair are called on each engine."""
    return {"comm": f"{once.comm.name}, {unit}", "compute": f"{once.compute[0].name}, {unit}"}


def _micro_batch_passes(study: Study, row: Row) -> Passes:
    def play(part: Part) -> Timeline:
        if isinstance(part, ExpertPath):
            return _experts_micro_batch(part, row.pieces, study.conditions(part))
        return _serial(part)

    return _part_by_part(play)


def _experts_micro_batch(path: ExpertPath, n: int, on: Conditions) -> Timeline:
    whole, p = path.build(1.0, False), path.build(float(n), False)
    inner = (*p.before, p.first, *p.middle, p.second, *p.after)
    experts = one(time_of(inner, "compute")) + (on.round_cost if n > 1 else 0.0)
    dispatch, combine = one(time_of((*p.before, p.comm_in), "comm")), one(p.comm_out.cost.time)
    pieces = two_engines.if_it_pays(
        lambda buffers: two_engines.three_stages(
            [dispatch] * n, [experts] * n, [combine] * n, buffers=buffers, comm_slowdown=on.comm_slowdown,
            compute_slowdown=on.compute_slowdown, beside=one(time_of(whole.beside, "compute")),
        ),
        int(on.buffers) if n > 1 else 1,
    )  # fmt: skip
    return joined([pieces, _segments(whole.weight_grads)])


def _dual_batch_passes(study: Study, row: Row) -> Passes:
    worst = max([*study.of_kind(ExpertPath), *study.of_kind(Pair)], key=lambda part: part.ranks)
    on, share = study.conditions(worst), 1.0 if whole_batches(study) else 2.0

    def play(parts: tuple[Part, ...], ends: bool) -> Timeline:
        if ends or not parts:
            return joined(map(_serial, parts))
        return joined(_turns([s for part in parts for s in all_segments(part, share)], on))

    return play


def _turns(segments: Sequence[Segment], on: Conditions) -> Iterator[Timeline]:
    """In turn, one batch computes while the other communicates."""
    compute, comm = in_turns(segments)
    for j, computing in enumerate(compute):
        for batch, other, sending in (("A", "B", comm[j - 1]), ("B", "A", comm[j])):
            yield side_by_side(
                _job(sending, other), _job(computing, batch), on.comm_slowdown, on.compute_slowdown
            )


def _job(segments: Sequence[Segment], batch: str) -> Job:
    names = list(dict.fromkeys(s.name for s in segments))
    name = " .. ".join((names[:1] + names[1:][-1:]) or ["nothing"])
    return Job(f"{batch}: {name}", 0, sum(one(s.cost.time) for s in segments), 0)


PASSES: dict[str, Callable[[Study, Row], Passes]] = {
    "serial": _serial_passes,
    "mc2": _mc2_passes,
    "coc": _coc_passes,
    "micro_batch": _micro_batch_passes,
    "dual_batch": _dual_batch_passes,
}
"""Schedule -> what plays the parts of a layer."""
