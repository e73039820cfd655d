"""Schedules that lay whole MoE layers over one another: micro-batches, and two batches in turn."""

from __future__ import annotations

import numpy as np

from mc2perf import schedules
from mc2perf.operators import OPERATORS
from mc2perf.outcomes.best import Numbers
from mc2perf.outcomes.outcome import ONE, Outcome, equal_to_serial, refused_outcome
from mc2perf.piece_counts import Counts
from mc2perf.pipelines import pipeline_of
from mc2perf.reasons import Reason
from mc2perf.schedules import Conditions, Timing
from mc2perf.study import GROUPS, LaidLayer, Study, by_group
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, Pair, Part

MOST_MICRO_BATCHES = 64
"""More micro-batches than this are never tried on their own; any number may be asked for."""


def micro_batch(study: Study, serial: Outcome) -> Outcome:
    """Every expert path cut by tokens: one piece travels while another is computed."""
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not paths:
        return _equal_or_refused(study, serial, "micro_batch", "no all-to-all between ranks to hide")
    counts = micro_batch_counts(study)
    return Outcome(
        schedule="micro_batch",
        layers=in_micro_batches(study, counts.pieces),
        pieces=counts.pieces,
        piece_rows=study.rows / counts.pieces,
        refused=(*study.reasons, *counts.refused),
        tried=counts,
    )


def micro_batch_counts(study: Study) -> Counts:
    """Numbers of micro-batches: what was asked, else 1, 2, ... as long as there are tokens."""
    if study.asked_micro_batches is not None:
        asked = np.asarray(study.asked_micro_batches)
        return Counts(asked, _whole_tokens(study, asked), asked=True)
    most = min(MOST_MICRO_BATCHES, float(np.max(study.tokens)))
    counts = np.arange(1.0, most + 1.0).reshape(1, -1)
    return Counts(counts, _whole_tokens(study, counts))


def _whole_tokens(study: Study, counts: Numbers) -> tuple[Reason, ...]:
    return (Reason("more micro-batches than tokens", counts > study.tokens),)


def in_micro_batches(study: Study, counts: Num) -> tuple[LaidLayer, ...]:
    """All layers with their expert paths cut into micro-batches, everything else serial."""

    def price(part: Part) -> Timing:
        if isinstance(part, ExpertPath):
            return schedules.experts_micro_batch(part, counts, study.conditions(part))
        return schedules.pair_serial(part)

    return study.laid(price)


def dual_batch(study: Study, serial: Outcome) -> Outcome:
    """Two batches half a step apart: one computes while the other communicates, except at the ends."""
    parts = [*study.of_kind(ExpertPath), *study.of_kind(Pair)]
    if not parts or study.scenario.target in OPERATORS:
        return _equal_or_refused(study, serial, "dual_batch", "no communication between ranks to hide")
    training = study.model is not None and study.scenario.phase == "train"
    reasons = study.reasons
    if not training and study.model is not None:
        alone = "needs two samples to overlap; raise batch_size to 2"
        reasons = (*reasons, Reason(alone, np.less(study.samples, 2.0)))
    share = 1.0 if training else 2.0
    pipeline = pipeline_of(study.scenario.pipeline, study.scenario.vpp)
    return Outcome(
        schedule="dual_batch",
        # where a pipeline pairs forwards with backwards, a pass of its own has nobody beside it
        layers=serial.layers if pipeline.pairs else _in_lockstep(study, share, pipeline.order is not None),
        pieces=2.0 * ONE,
        piece_rows=study.rows / share,
        refused=reasons,
    )


def _in_lockstep(study: Study, share: float, put_off: bool) -> tuple[LaidLayer, ...]:
    """All layers as two batches walk through them, all but the ends of the model."""
    group, on = GROUPS[type(_widest(study))], batches_meet(study)

    def turn(parts: tuple[Part, ...], ends: bool) -> dict[str, Timing]:
        if ends or not parts:
            return by_group(parts, schedules.pair_serial)
        return {group: schedules.dual_batch(parts, share, on, put_off)}

    return tuple(
        LaidLayer(layer.count, turn(layer.forward, layer.ends), turn(layer.backward, layer.ends))
        for layer in study.layers
    )


def _widest(study: Study) -> ExpertPath | Pair:
    """The part that communicates between most ranks."""
    parts: list[ExpertPath | Pair] = [*study.of_kind(ExpertPath), *study.of_kind(Pair)]
    return max(parts, key=lambda part: part.ranks)


def batches_meet(study: Study) -> Conditions:
    """Engines under two batches, one of which communicates while the other computes."""
    return study.conditions(_widest(study))


def _equal_or_refused(study: Study, serial: Outcome, schedule: str, reason: str) -> Outcome:
    """A schedule without work to do: equal to serial, or refused for an operator."""
    if study.scenario.target in OPERATORS:
        meant = f"{schedule} lays over whole MoE layers; ask for moe_layer or a model"
        return refused_outcome(schedule, meant)
    return equal_to_serial(serial, schedule, reason)
