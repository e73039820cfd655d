"""CoC: tensor-parallel matmuls and their collectives in a few equal parts, launched one by one."""

from __future__ import annotations

import numpy as np

from mc2perf import legality, schedules
from mc2perf.outcomes.outcome import Outcome, equal_to_serial, refused_outcome
from mc2perf.piece_counts import Counts
from mc2perf.reasons import Reason, said
from mc2perf.scenario import COC_PARTS
from mc2perf.schedules import Timing
from mc2perf.study import Study
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, Part


def coc(study: Study, serial: Outcome) -> Outcome:
    """Every pair of a matmul and its collective in 1, 2, 4 or 8 parts."""
    pairs: list[Pair] = study.of_kind(Pair)
    if study.model is not None and not pairs:
        return equal_to_serial(serial, "coc", "CoC cuts tensor-parallel matmuls; tp is 1")
    target = study.scenario.target
    name = target if study.model is None else "all_gather_matmul"
    if study.costs.machine.family in ("gpu", "950"):
        return refused_outcome("coc", f"CoC is not offered on {study.costs.machine.family}")
    refusal = legality.coc_refusal(name)
    if refusal or not pairs:
        return refused_outcome("coc", refusal or "nothing to communicate: one rank")
    counts = _coc_counts(study, pairs[0].rows)

    def price(part: Part) -> Timing:
        if isinstance(part, Pair):
            return schedules.pair_parts(part, counts.pieces, study.conditions(part))
        return schedules.pair_serial(part)

    return Outcome(
        schedule="coc",
        layers=study.laid(price),
        pieces=counts.pieces,
        piece_rows=pairs[0].rows / counts.pieces,
        refused=(*study.reasons, *counts.refused),
        tried=counts,
    )


def _coc_counts(study: Study, rows: Num) -> Counts:
    """1, 2, 4 or 8 parts of equal rows, or the number asked for."""
    asked = study.scenario.tile_cnt if study.model is None else None
    odd = Reason(f"CoC needs rows divisible by 2, 4 or 8; m is {said(rows)}", np.asarray(rows) % 2 != 0)
    parts = np.array([COC_PARTS], float) if asked is None else np.asarray(asked)
    wrong = Reason(f"CoC cuts into 1, 2, 4 or 8 parts, not {said(parts)}", ~np.isin(parts, COC_PARTS))
    uneven = Reason("rows do not divide evenly", np.asarray(rows) % parts != 0)
    return Counts(parts, (odd, wrong, uneven), asked=asked is not None)
