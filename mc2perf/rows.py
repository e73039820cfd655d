"""A row per schedule: its timing at the best count, or the reason why it is refused or pointless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import legality, schedules
from mc2perf.answer import Row
from mc2perf.equations import overlap
from mc2perf.equations.optimum import flat_region
from mc2perf.legality import Verdict
from mc2perf.operators import OPERATORS
from mc2perf.scenario import COC_PARTS
from mc2perf.schedules import Timing
from mc2perf.study import Study, segments_of, tile_counts
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, Pair, Part, all_segments, time_of

MOST_MICRO_BATCHES = 64
"""More micro-batches than this are never tried on their own; any number may be asked for."""

ROUNDING = 1e-12
"""Sums of the same times in another order differ by less than this share."""

FLAT = 0.02
"""Counts whose time is within this share of the best are reported as equally good."""


def _row(study: Study, schedule: str, timing: Timing, serial: Row | None, **extra: Any) -> Row:
    """A row from scalar timings; host time runs beside the device."""
    device = float(timing.total)
    host = float(timing.launches) * study.host_per_launch
    total = float(overlap.host_bound_time(device, float(timing.launches), study.host_per_launch))
    free, busy, exposed = total - device, float(timing.busy), float(timing.exposed)
    compute = float(timing.compute)
    if abs(busy - compute) <= ROUNDING * busy:
        compute = busy  # the same sum in another order
    return Row(
        schedule=schedule,
        total_time=busy + exposed + free,
        serial_time=serial.total_time if serial else busy + exposed + free,
        ceiling=serial.ceiling if serial else _ceiling(timing, busy + exposed + free),
        compute_time=compute,
        comm_time=float(timing.comm),
        compute_stretch=busy - compute,
        exposed_comm_time=exposed,
        free_time=free,
        host_time=host,
        tokens_per_second=study.tokens / (busy + exposed + free) if study.tokens else 0.0,
        bound=_bound(study, timing, host, total),
        **extra,
    )


def _ceiling(timing: Timing, total: float) -> float:
    """Serial time over the longer engine's sum."""
    longer = max(float(timing.comm), float(timing.compute))
    return total / longer if longer else 1.0


def _bound(study: Study, timing: Timing, host: float, total: float) -> str:
    """What the answer hangs on: host, or the longer engine and what is slow in it."""
    if host >= total > 0.0:
        return "host"
    if timing.comm <= timing.compute:
        return "memory" if timing.memory > 0.5 * timing.compute else "compute"
    floor = sum(count * time_of(all_segments(part, 1e9), "comm") for count, part in study.parts())
    return "latency" if floor > 0.5 * timing.comm else "comm"


def _refused(schedule: str, reason: str) -> Row:
    return Row(schedule=schedule, legal=False, reason=reason)


def _equal_to_serial(serial: Row, schedule: str, reason: str) -> Row:
    return replace(serial, schedule=schedule, reason=reason)


def serial_row(study: Study) -> Row:
    """Everything one after the other: the base line."""
    timing = study.total(schedules.pair_serial)
    forward, backward = segments_of(study, 1.0)
    return _row(
        study, "serial", timing, None, piece_rows=study.rows, segments=forward, backward_segments=backward
    )


def _micro_batch(study: Study, serial: Row) -> Row:
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not paths:
        return _equal_or_refused(study, serial, "micro_batch", "no all-to-all between ranks to hide")
    largest = int(min(MOST_MICRO_BATCHES, study.tokens))
    asked = study.asked_micro_batches
    counts = np.array([asked]) if asked else np.arange(1.0, largest + 1.0)
    rest = study.total(
        lambda part: schedules.NOTHING if isinstance(part, ExpertPath) else schedules.pair_serial(part)
    )

    def at(n: Num) -> Timing:
        def price(part: Part) -> Timing:
            if isinstance(part, ExpertPath):
                return schedules.experts_micro_batch(part, n, study.conditions(part))
            return schedules.NOTHING

        return study.total(price) + rest

    experts = float(paths[0].experts_per_rank * paths[0].ranks)
    row = _best_of(study, serial, "micro_batch", counts, at)
    if experts > study.tokens:
        return row
    default = _row(study, "micro_batch", scalar(at(experts)), serial)
    return replace(row, default_pieces=int(experts), default_time=default.total_time)


def scalar(timing: Timing, index: int = 0) -> Timing:
    """One row of a timing."""
    return Timing(*(float(np.ravel(v)[index if np.size(v) > 1 else 0]) for v in timing))


def _best_of(
    study: Study, serial: Row, schedule: str, counts: NDArray[np.float64], at: Callable[[Num], Timing]
) -> Row:
    """The best count, the region as good as it, and the whole curve."""
    timing = at(counts)
    device = np.broadcast_to(timing.total, counts.shape)
    total = np.asarray(overlap.host_bound_time(device, timing.launches, study.host_per_launch))
    best = int(np.argmin(total))
    region = flat_region(total, FLAT)
    flat = (int(counts[int(region.first)]), int(counts[int(region.last)]))
    n = counts[best]
    forward, backward = segments_of(study, float(n))
    return _row(
        study, schedule, scalar(at(float(n))), serial,
        pieces=int(n), piece_rows=study.rows / n, flat_region=flat,
        curve={int(c): float(t) for c, t in zip(counts, total, strict=True)},
        segments=forward, backward_segments=backward,
    )  # fmt: skip


def _equal_or_refused(study: Study, serial: Row, schedule: str, reason: str) -> Row:
    """A schedule without work to do: equal to serial, or refused for an operator it is not made for."""
    operator = study.scenario.target in OPERATORS
    if operator and schedule in ("micro_batch", "dual_batch"):
        return _refused(schedule, f"{schedule} lays over whole MoE layers; ask for moe_layer or a model")
    return _equal_to_serial(serial, schedule, reason)


def _dual_batch(study: Study, serial: Row) -> Row:
    parts = [*study.of_kind(ExpertPath), *study.of_kind(Pair)]
    if not parts or study.scenario.target in OPERATORS:
        return _equal_or_refused(study, serial, "dual_batch", "no communication between ranks to hide")
    training = study.model is not None and study.scenario.phase == "train"
    if not training and study.model is not None and study.samples < 2:
        return _refused("dual_batch", "prefill needs two samples to overlap; raise batch_size to 2")
    worst = max(parts, key=lambda part: part.ranks)
    on, share = study.conditions(worst), 1.0 if training else 2.0
    timing = schedules.NOTHING
    for layer in study.layers:
        for parts_in_turn in (layer.forward, layer.backward):
            if layer is study.layers[-1] and study.model is not None:
                turn = sum((schedules.pair_serial(p) for p in parts_in_turn), schedules.NOTHING)
            else:
                turn = schedules.dual_batch(parts_in_turn, share, on) if parts_in_turn else schedules.NOTHING
            timing = timing + turn.times(layer.count)
    return _row(
        study, "dual_batch", timing, serial, pieces=2, piece_rows=study.rows / share,
        segments=serial.segments, backward_segments=serial.backward_segments,
    )  # fmt: skip


def _mc2(study: Study, serial: Row) -> Row:
    """Fused operators wherever they are legal; the tile count or the local experts decide the pieces."""
    pairs: list[Pair] = study.of_kind(Pair)
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not pairs and not paths:
        return _equal_to_serial(serial, "mc2", "nothing to communicate: one rank in every group")
    verdict = _fused_verdict(study, pairs, paths)
    if not verdict.legal:
        return _refused("mc2", verdict.reason)
    if verdict.serial:
        return _equal_to_serial(serial, "mc2", verdict.reason)
    if not pairs and all(path.experts_per_rank == 1 for path in paths) and not _shared(paths):
        return _equal_to_serial(serial, "mc2", "one local expert: one piece, equals serial")
    if study.scenario.target in OPERATORS:
        return _fused_operator(study, serial, pairs[0])
    return _fused_model(study, serial, pairs, paths)


def _fused_verdict(study: Study, pairs: list[Pair], paths: list[ExpertPath]) -> Verdict:
    """The verdict of the groups that communicate; an illegal one decides."""
    groups = fused_groups(pairs, paths)
    verdicts = [legality.fused(study.costs, study.scenario, name, ranks) for name, ranks in groups]
    return min(verdicts, key=lambda v: (v.legal, not v.serial))


def fused_groups(pairs: list[Pair], paths: list[ExpertPath]) -> list[tuple[str, float]]:
    """The fused operators that mc2 would use, with the ranks of each."""
    groups = [(p.name if p.name in legality.FAMILY else "all_gather_matmul", p.ranks) for p in pairs[:1]]
    return [*groups, *(("all_to_all_v_grouped_matmul", path.ranks) for path in paths[:1])]


def _shared(paths: list[ExpertPath]) -> bool:
    return any(path.build(1.0, False).beside for path in paths)


def _fused_operator(study: Study, serial: Row, pair: Pair) -> Row:
    counts = tile_counts(study, pair)
    on = study.conditions(pair)
    row = _best_of(study, serial, "mc2", counts, lambda n: schedules.pair_mc2(pair, n, on))
    return replace(row, piece_rows=pair.rows / row.pieces)


def _fused_model(study: Study, serial: Row, pairs: list[Pair], paths: list[ExpertPath]) -> Row:
    chosen: dict[str, int] = {}

    def price(part: Part) -> Timing:
        if isinstance(part, ExpertPath) and part.ranks > 1:
            return schedules.experts_mc2(part, study.conditions(part))
        if isinstance(part, Pair):
            timing, chosen[part.name] = best_tiles(study, part)
            return timing
        return schedules.pair_serial(part)

    timing = study.total(price)
    pieces = paths[0].experts_per_rank if paths else max(chosen.values())
    return _row(
        study, "mc2", timing, serial, pieces=pieces, piece_rows=study.rows / pieces,
        segments=serial.segments, backward_segments=serial.backward_segments,
    )  # fmt: skip


def best_tiles(study: Study, pair: Pair) -> tuple[Timing, int]:
    """A fused pair at its best tile count."""
    counts = tile_counts(study, pair)
    timing = schedules.pair_mc2(pair, counts, study.conditions(pair))
    best = int(np.argmin(timing.total))
    return scalar(timing, best), int(counts[best])


def _coc(study: Study, serial: Row) -> Row:
    pairs: list[Pair] = study.of_kind(Pair)
    if study.model is not None and not pairs:
        return _equal_to_serial(serial, "coc", "CoC cuts tensor-parallel matmuls; tp is 1")
    target = study.scenario.target
    name = target if study.model is None else "all_gather_matmul"
    verdict = legality.parts_allowed(study.scenario, name, pairs[0].rows if pairs else 0.0)
    if study.costs.machine.family in ("gpu", "950"):
        return _refused("coc", f"CoC is not offered on {study.costs.machine.family}")
    if not verdict.legal or not pairs:
        return _refused("coc", verdict.reason or "nothing to communicate: one rank")
    asked = study.scenario.tile_cnt if study.model is None else None
    if asked and asked not in COC_PARTS:
        return _refused("coc", f"CoC cuts into 1, 2, 4 or 8 parts, not {asked:g}")
    counts = np.array([asked] if asked else [float(p) for p in COC_PARTS if pairs[0].rows % p == 0])

    def at(n: Num) -> Timing:
        return study.total(
            lambda part: (
                schedules.pair_parts(part, n, study.conditions(part))
                if isinstance(part, Pair)
                else schedules.pair_serial(part)
            )
        )

    row = _best_of(study, serial, "coc", counts, at)
    return replace(row, piece_rows=pairs[0].rows / row.pieces)


ROWS: dict[str, Callable[[Study, Row], Row]] = {
    "mc2": _mc2,
    "micro_batch": _micro_batch,
    "coc": _coc,
    "dual_batch": _dual_batch,
}
"""Schedule -> how its row is made."""
