"""A whole training step: micro-batches through pipeline stages, then gradients, optimizer, weights.

Everything is per NPU of the slowest stage; what it waits for the others is idle time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mc2perf import schedules
from mc2perf.answer import ROUNDING
from mc2perf.costs import Cost
from mc2perf.equations import steps, training
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.outcome import Outcome, Traffic, WholeStep, serial_outcome
from mc2perf.placement import data_groups, stage_counts, weights_of_a_rank
from mc2perf.schedules import Timing
from mc2perf.study import LaidLayer, Study
from mc2perf.units import Num
from mc2perf.workload.parts import Part, all_segments

GRADIENT_BYTES = 4.0
"""Gradients are accumulated and exchanged in float32. [B]"""

STATE_BYTES = 12.0
"""Adam keeps master weights and both moments in float32. [B]"""

AGAIN = {"selective": "attention", "activation": "activation"}
"""Recompute of single kernels -> theirs: the core of the attention, or the activation function."""

GRADIENT_PASSES = 2.0
"""Owned gradients are read for their norm, and by Adam."""


def laid(study: Study, schedule: str, serial: Outcome) -> Outcome:
    """A schedule laid over a study: its layers, or the whole step if one is asked for."""
    outcome = serial if schedule == "serial" else OUTCOMES[schedule](study, serial)
    return as_step(study, outcome)


def base_line(study: Study) -> Outcome:
    """Everything one after the other."""
    return as_step(study, serial_outcome(study))


def as_step(study: Study, outcome: Outcome) -> Outcome:
    """The same outcome with its whole step, where a global batch makes one."""
    if study.scenario.global_batch_size is None or not outcome.layers or outcome.step is not None:
        return outcome
    return replace(outcome, step=whole_step(study, outcome.layers))


@dataclass(frozen=True)
class Stage:
    """One micro-batch on one pipeline stage: what the device takes, and with the host; its traffic. [s]"""

    timing: Timing
    issued: Num
    backward: Num
    traffic: dict[str, Traffic]


def whole_step(study: Study, layers: tuple[LaidLayer, ...]) -> WholeStep:
    """The step that these layers make.

    Parameters
    ----------
    study : Study
        Layout, batch and machine.
    layers : tuple of LaidLayer
        Every group of equal layers under a schedule, then embedding and head.
    """
    layout, s = study.layout, study.scenario
    assert layout is not None and s.global_batch_size is not None
    n_mb = s.global_batch_size / (layout.dp * study.samples)
    again = study.laid(partial(_named_only, AGAIN[s.recompute])) if s.recompute in AGAIN else ()
    stages = [
        _stage(study, layers, again, first, last, counts) for counts, first, last in _distinct_stages(study)
    ]
    times = [stage.issued for stage, _ in _paired(study, stages)]
    pipeline = study.costs.ledger.run(
        "pipeline of stages", steps.pipeline_parallel_time,
        stage_times=np.stack(np.broadcast_arrays(*times), axis=-1), n_mb=n_mb, vpp=s.vpp,
    )  # fmt: skip
    slowest = _slowest(study, stages)
    gradients, weights, optimizer = _after(study, slowest.backward)
    total = pipeline + gradients.exposed + optimizer + weights.exposed
    traffic = {name: Traffic(n_mb * t.comm, n_mb * t.exposed) for name, t in slowest.traffic.items()}
    traffic["dp"] = Traffic(gradients.comm + weights.comm, gradients.exposed + weights.exposed)
    t = slowest.timing
    busy, exposed = n_mb * t.busy + optimizer, n_mb * t.exposed + traffic["dp"].exposed
    idle = total - (busy + exposed)
    idle = np.where(idle > ROUNDING * total, idle, 0.0)
    timing = Timing(
        total=busy + exposed + idle,
        compute=n_mb * t.compute + optimizer,
        comm=n_mb * t.comm + traffic["dp"].comm,
        busy=busy,
        exposed=exposed,
        memory=n_mb * t.memory + optimizer,
        launches=n_mb * t.launches,
        idle=idle,
    )
    return WholeStep(timing, traffic)


# --- stages ------------------------------------------------------------------------------------------------


def _distinct_stages(study: Study) -> Iterator[tuple[tuple[float, ...], bool, bool]]:
    """Stages that differ: their layers, whether they hold the embedding, whether the head."""
    counts = stage_counts(study)
    last = len(counts) - 1
    yield from dict.fromkeys((tuple(c), i == 0, i == last) for i, c in enumerate(counts))


def _paired(study: Study, stages: list[Stage]) -> Iterator[tuple[Stage, int]]:
    """Every stage of the pipeline, in order."""
    counts = stage_counts(study)
    last = len(counts) - 1
    keys = list(_distinct_stages(study))
    for i, c in enumerate(counts):
        yield stages[keys.index((tuple(c), i == 0, i == last))], i


def _named_only(name: str, part: Part) -> Timing:
    """The kernels of a part that bear a name: what selective recompute runs again."""
    return schedules.serial(tuple(s for s in all_segments(part) if s.name == name))


def _stage(
    study: Study,
    layers: tuple[LaidLayer, ...],
    again: tuple[LaidLayer, ...],
    first: bool,
    last: bool,
    counts: tuple[float, ...],
) -> Stage:
    """Forward, backward, recompute and sends of one micro-batch."""
    *groups, embedding, head = layers
    ends = [embedding] * first + [head] * last
    forward = _sum_of([(n, g.forward) for n, g in zip(counts, groups, strict=True)])
    backward = _sum_of([(n, g.backward) for n, g in zip(counts, groups, strict=True)])
    outer_forward, outer_backward = (
        _sum_of([(1.0, getattr(end, which)) for end in ends]) for which in ("forward", "backward")
    )
    repeated = _recomputed(study, forward, again, counts)
    sends = _sends(study, first, last)
    passes = (forward, outer_forward, backward, outer_backward, repeated)
    traffic = {
        group: Traffic(
            sum((p[group].comm for p in passes if group in p), 0.0),
            sum((p[group].exposed for p in passes if group in p), 0.0),
        )
        for group in ("tp", "ep", "cp")
        if any(group in p for p in passes)
    }
    # what is computed again runs between the layers of the backward pass
    there, back = (
        _sustained(study, sum((t for p in kind for t in p.values()), schedules.NOTHING))
        for kind in ((forward, outer_forward), (backward, outer_backward, repeated))
    )
    everything, issued = there + back, study.issued(there, back)
    if study.scenario.pp > 1:
        traffic["pp"] = Traffic(sends.time, sends.time)
        everything = everything + Timing(sends.time, 0.0, sends.time, 0.0, sends.time, 0.0, 0.0)
        issued = issued + sends.time
    return Stage(everything, issued, back.total, traffic)


def _sustained(study: Study, timing: Timing) -> Timing:
    """Whole steps compute slower than single kernels: clocks under load, gaps between kernels."""
    sustained = study.costs.machine.cube.sustained
    study.costs.ledger.use("cube.sustained", sustained)
    more = (1.0 / sustained - 1.0) * timing.compute
    return timing._replace(total=timing.total + more, compute=timing.compute + more, busy=timing.busy + more)


def _sum_of(parts: list[tuple[float, dict[str, Timing]]]) -> dict[str, Timing]:
    """Layers added up, apart by group."""
    found: dict[str, Timing] = {}
    for count, timings in parts:
        for group, timing in timings.items():
            if count:
                found[group] = found.get(group, schedules.NOTHING) + timing.times(count)
    return found


def _recomputed(
    study: Study, forward: dict[str, Timing], again: tuple[LaidLayer, ...], counts: tuple[float, ...]
) -> dict[str, Timing]:
    """What the backward pass computes once more."""
    method, _, number = study.scenario.recompute.partition(":")
    if again:
        return _sum_of([(n, g.forward) for n, g in zip(counts, again, strict=False)])
    if method == "none":
        return {}
    here = sum(counts)
    share = min(float(number) / here, 1.0) if method == "block" else 1.0
    return {group: timing.times(share) for group, timing in forward.items()}


def _sends(study: Study, first: bool, last: bool) -> Cost:
    """Activations to the next stage and gradients to the one before, for every chunk of the stage."""
    layout, s = study.layout, study.scenario
    assert layout is not None and study.model is not None
    if s.pp == 1:
        return Cost(0.0, 0.0)
    size = layout.between * float(study.model.hidden_size) * 2.0
    one = study.costs.send("pipeline send", size, layout.stride("pp"))
    # every chunk hands on its activations and returns its gradients; the very first and last only one of both
    times = 2.0 * s.vpp - float(first) - float(last)
    return Cost(times * one.work, times * one.launch)


def _slowest(study: Study, stages: list[Stage]) -> Stage:
    """The stage that takes longest, row by row."""
    times = np.stack(np.broadcast_arrays(*(stage.issued for stage in stages)), axis=-1)
    at = np.argmax(times, axis=-1)

    def pick(values: list[Num]) -> Num:
        columns = np.stack([np.broadcast_to(v, at.shape) for v in values], axis=-1)
        picked: NDArray[np.float64] = np.take_along_axis(columns, at[..., None], axis=-1)[..., 0]
        return picked

    timing = Timing(*(pick(list(column)) for column in zip(*(stage.timing for stage in stages), strict=True)))
    names = dict.fromkeys(name for stage in stages for name in stage.traffic)
    none = Traffic(0.0, 0.0)
    traffic = {
        name: Traffic(
            pick([stage.traffic.get(name, none).comm for stage in stages]),
            pick([stage.traffic.get(name, none).exposed for stage in stages]),
        )
        for name in names
    }
    issued, backward = (pick([getattr(stage, name) for stage in stages]) for name in ("issued", "backward"))
    return Stage(timing, issued, backward, traffic)


# --- after the pipeline ------------------------------------------------------------------------------------


def _after(study: Study, backward: Num) -> tuple[Traffic, Traffic, Num]:
    """Gradients and weights over the data-parallel ranks, and the optimizer between them."""
    layout, s = study.layout, study.scenario
    assert layout is not None
    gradients: Num = 0.0
    weights: Num = 0.0
    moved: Num = 0.0
    for name, parameters, (ranks, stride) in zip(
        ("dense", "expert"), weights_of_a_rank(study), data_groups(layout), strict=True
    ):
        if not parameters:
            continue
        collective = "reduce_scatter" if s.distributed_optimizer else "all_reduce"
        size = parameters * GRADIENT_BYTES
        gradients += study.costs.collective(f"{name} gradients", collective, size, ranks, stride=stride).time
        if s.distributed_optimizer:
            gather = study.costs.collective(
                f"{name} weights", "all_gather", parameters * 2.0, ranks, stride=stride
            )
            weights += gather.time
        moved += training.adam_moved_bytes(
            parameters, ranks if s.distributed_optimizer else 1.0, GRADIENT_PASSES, GRADIENT_BYTES,
            STATE_BYTES, 2.0,
        )  # fmt: skip
    optimizer = study.costs.vector("optimizer", moved).time
    left = _left(study, backward)
    return Traffic(gradients, left(gradients)), Traffic(weights, left(weights)), optimizer


def _left(study: Study, covered: Num) -> Callable[[Num], Num]:
    """What of a transfer is left beside a pass, sent layer by layer; all of it without overlap."""
    if not study.scenario.grad_overlap:
        return lambda comm: comm
    assert study.model is not None
    buckets = study.model.num_layers / study.scenario.pp
    return lambda comm: np.minimum(steps.exposed_bucket_time(covered, comm, buckets, 0.0), comm)
