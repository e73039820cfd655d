"""A whole training step: micro-batches through pipeline stages, then gradients, optimizer, weights.

Everything is per NPU of the slowest stage; what it waits for the others is idle time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.answer import ROUNDING
from mc2perf.equations import steps, training
from mc2perf.equations.stage_order import Work
from mc2perf.equations.stage_play import makespan
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.outcome import Outcome, Traffic, WholeStep, serial_outcome
from mc2perf.passes import Pass, Passes
from mc2perf.pipeline_steps import at_each, order_of, turns_of
from mc2perf.pipelines import Pipeline
from mc2perf.placement import data_groups, weights_of_a_rank
from mc2perf.schedules import Timing
from mc2perf.study import LaidLayer, Study
from mc2perf.units import Num

GRADIENT_BYTES = 4.0
"""Gradients are accumulated and exchanged in float32. [B]"""

STATE_BYTES = 12.0
"""Adam keeps master weights and both moments in float32. [B]"""

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
    return replace(outcome, step=whole_step(study, outcome.layers, outcome.schedule == "dual_batch"))


class Device(NamedTuple):
    """All micro-batches on a device, and the last pass that gradients may travel beside. [s]"""

    work: Pass
    covering: Num


def whole_step(study: Study, layers: tuple[LaidLayer, ...], paired: bool = False) -> WholeStep:
    """The step that these layers make.

    Parameters
    ----------
    study : Study
        Layout, batch and machine.
    layers : tuple of LaidLayer
        Every group of equal layers under a schedule, then embedding and head.
    paired : bool
        Whether a forward and a backward hide each other's communication, where the pipeline pairs them.
    """
    layout, s = study.layout, study.scenario
    assert layout is not None and s.global_batch_size is not None
    n_mb = s.global_batch_size / (layout.dp * study.samples)
    passes = Passes(study, layers, paired)
    in_formula = passes.pipeline.order is None
    devices, pipeline = _in_formula(passes, n_mb) if in_formula else _played(passes, n_mb)
    slowest = _slowest(devices)
    gradients, weights, optimizer = _after(study, slowest.covering)
    total = pipeline + gradients.exposed + optimizer + weights.exposed
    traffic = dict(slowest.work.traffic)
    traffic["dp"] = Traffic(gradients.comm + weights.comm, gradients.exposed + weights.exposed)
    t = slowest.work.timing
    busy, exposed = t.busy + optimizer, t.exposed + traffic["dp"].exposed
    idle = total - (busy + exposed)
    idle = np.where(idle > ROUNDING * total, idle, 0.0)
    timing = Timing(
        total=busy + exposed + idle,
        compute=t.compute + optimizer,
        comm=t.comm + traffic["dp"].comm,
        busy=busy,
        exposed=exposed,
        memory=t.memory + optimizer,
        launches=t.launches,
        idle=idle,
    )
    return WholeStep(timing, traffic)


# --- the pipeline ------------------------------------------------------------------------------------------


def _in_formula(passes: Passes, n_mb: Num) -> tuple[list[Device], Num]:
    """One forward, one backward: the stages that differ, and the time of the pipeline."""
    stages = range(len(passes.counts))
    time = passes.study.costs.ledger.run(
        "pipeline of stages", steps.pipeline_parallel_time,
        stage_times=np.stack(np.broadcast_arrays(*(passes.whole(i).issued for i in stages)), axis=-1),
        n_mb=n_mb, vpp=passes.study.scenario.vpp,
    )  # fmt: skip
    differ = {passes.key(i): i for i in stages}.values()
    return [Device(passes.whole(i).times(n_mb), passes.backward_time(i)) for i in differ], time


def _played(passes: Passes, n_mb: Num) -> tuple[list[Device], Num]:
    """Every step of the pipeline: its devices, and the time until the last one has ended."""
    pipeline, pp = passes.pipeline, passes.study.scenario.pp
    held = pipeline.held(pp)
    steps_of = [set(order) for order in order_of(pipeline, pp, pipeline.legal(pp, float(np.max(n_mb))))]
    one = [
        {work: _step_of(passes, of, work) for work in kinds} for of, kinds in zip(held, steps_of, strict=True)
    ]
    times = [{work: step.issued for work, step in each.items()} for each in one]
    time = at_each(n_mb, lambda n: makespan(turns_of(pipeline, pp, pipeline.legal(pp, n)), times))
    devices = []
    for i, (of, each) in enumerate(zip(held, one, strict=True)):
        counts = {work: at_each(n_mb, partial(_count, pipeline, pp, i, work)) for work in each}
        work = reduce(add, (step.times(counts[kind]) for kind, step in each.items()))
        devices.append(Device(work, sum(passes.parts(stage).weights.issued for stage in of)))
    return devices, time


def _step_of(passes: Passes, held: tuple[int, ...], work: Work) -> Pass:
    """What one step takes of a device that holds these stages."""
    if work.forward is not None and work.backward is not None:
        return passes.both(held[work.forward], held[work.backward])
    parts = [passes.parts(held[chunk])[kind] for kind, chunk in enumerate(work) if chunk is not None]
    return reduce(add, parts)


def _count(pipeline: Pipeline, pp: float, device: int, work: Work, n: float) -> float:
    """How often a device runs a step."""
    return float(order_of(pipeline, pp, pipeline.legal(pp, n))[device].count(work))


def _slowest(devices: list[Device]) -> Device:
    """The device that works longest, row by row."""
    times = np.stack(np.broadcast_arrays(*(device.work.issued for device in devices)), axis=-1)
    at = np.argmax(times, axis=-1)

    def pick(values: Iterable[Num]) -> Num:
        columns = np.stack([np.broadcast_to(v, at.shape) for v in values], axis=-1)
        picked: NDArray[np.float64] = np.take_along_axis(columns, at[..., None], axis=-1)[..., 0]
        return picked

    works = [device.work for device in devices]
    timing = Timing(*map(pick, zip(*(work.timing for work in works), strict=True)))
    names = dict.fromkeys(name for work in works for name in work.traffic)
    none = Traffic(0.0, 0.0)
    traffic = {
        name: Traffic(*map(pick, zip(*(work.traffic.get(name, none) for work in works), strict=True)))
        for name in names
    }
    slowest = Pass(timing, pick(work.issued for work in works), traffic)
    return Device(slowest, pick(device.covering for device in devices))


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
    return Traffic(gradients, _left(study, backward, gradients)), Traffic(weights, weights), optimizer


def _left(study: Study, covered: Num, gradients: Num) -> Num:
    """What of the gradients is left beside a pass, sent layer by layer; all of them without overlap."""
    if not study.scenario.grad_overlap:
        return gradients
    assert study.model is not None
    buckets = study.model.num_layers / study.scenario.pp
    return np.minimum(steps.exposed_bucket_time(covered, gradients, buckets, 0.0), gradients)
