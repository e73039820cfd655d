"""Degrees of parallelism, stages and steps that a machine or a model cannot have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.pipelines import Pipeline, pipeline_of
from mc2perf.problems import did_you_mean
from mc2perf.reasons import Reason, fractional, said
from mc2perf.scenario import Scenario
from mc2perf.units import Num
from mc2perf.workload.layout import ORDER

RECOMPUTE = ("none", "activation", "selective", "full")
"""What the backward pass computes again; or ``block:N``, so many layers of every stage."""


def reach(machine: Machine) -> float:
    """Most ranks that the machine's links join."""
    return float(list(machine.tiers.values())[-1].ranks)


def ulysses_of(scenario: Scenario) -> float:
    """Context-parallel ranks that trade heads."""
    return {"ring": 1.0, "ulysses": scenario.cp}.get(scenario.cp_kind, scenario.ulysses or 1.0)


def samples_of(scenario: Scenario) -> Num:
    """Samples of one micro-batch of a replica: ``micro_batch_size`` says so in a whole step."""
    if scenario.global_batch_size is not None and scenario.micro_batch_size is not None:
        return scenario.micro_batch_size
    return np.ones((1, 1)) if scenario.batch_size is None else scenario.batch_size


def parallel_problems(
    scenario: Scenario, machine: Machine, model: Model, npus: float, ep: float
) -> Iterator[str]:
    """Degrees that do not fit the machine or the model."""
    count = float(model.experts.count) if model.experts else 1.0
    replica = scenario.tp * scenario.cp * scenario.pp
    degrees = (("tp", scenario.tp), ("ep", ep), ("cp", scenario.cp), ("pp", scenario.pp))
    for name, degree in degrees:
        if degree > npus:
            yield f"{name}: {degree:g} is more than {npus:g} NPUs; give more --nodes or a smaller {name}"
        elif npus % degree:
            yield f"{name}: {npus:g} NPUs do not divide by {degree:g}; write a divisor"
    if npus % replica:
        yield f"dp: {npus:g} NPUs do not divide by tp x cp x pp = {replica:g}; change one of them or nodes"
    elif scenario.pp > 1 and (npus / scenario.pp) % ep:
        yield f"ep: {npus / scenario.pp:g} NPUs of a pipeline stage do not divide by {ep:g}; write a divisor"
    if npus > reach(machine):
        yield f"nodes: links of {machine.name} join {reach(machine):g} ranks, not {said(npus)}"
    if not model.experts and scenario.ep and scenario.ep > 1:
        yield f"ep: {model.name} is dense and has no experts; leave ep out"
    elif not (scenario.redundant_experts or scenario.shared_expert_ranks) and count % ep:
        yield f"ep: {count:g} experts do not divide by {ep:g}; write a divisor of {count:g}"
    heads = {mixer.heads for mixer in model.mixers.values() if mixer.heads % scenario.tp}
    if heads:
        yield f"tp: {min(heads)} heads do not divide by {scenario.tp:g}; write a divisor"


def layout_problems(scenario: Scenario, model: Model, ep: float, etp: float, stage: float) -> Iterator[str]:
    """Slices of experts, traded heads and an order of ranks that cannot be."""
    if sorted(scenario.rank_order.split("-")) != sorted(ORDER):
        yield f"rank_order: '{scenario.rank_order}' is no order of {'-'.join(ORDER)}; write each once"
    if scenario.etp and stage % (ep * etp):
        yield f"etp: {stage:g} NPUs of a stage do not divide by ep x etp = {ep * etp:g}; write a divisor"
    if scenario.etp and scenario.etp > 1 and ep == 1 and scenario.etp != scenario.tp:
        yield f"etp: with ep 1 experts are cut like the rest; write {scenario.tp:g} or an ep above 1"
    hybrid = scenario.cp_kind == "hybrid"
    if scenario.ulysses and not hybrid:
        yield "ulysses: is of a hybrid cp; write --cp-kind hybrid as well"
    if hybrid and not scenario.ulysses:
        yield "cp_kind: a hybrid trades heads inside groups; write --ulysses NUMBER as well"
    trading = ulysses_of(scenario)
    if scenario.cp % trading:
        yield f"ulysses: {scenario.cp:g} context-parallel ranks do not divide by {trading:g}; write a divisor"
    softmax = (mixer for mixer in model.mixers.values() if mixer.kind != "linear")
    heads = {mixer.heads / scenario.tp for mixer in softmax if mixer.heads / scenario.tp % trading}
    if heads and trading > 1:
        yield f"cp: {min(heads):g} heads of a rank do not divide by {trading:g} to trade; write a divisor"
    if scenario.token_dispatcher == "all_gather" and scenario.capacity_factor is not None:
        yield "token_dispatcher: an all_gather drops nothing; leave out capacity_factor or write all_to_all"


def shared_rank_problems(scenario: Scenario, model: Model, ep: float, etp: float) -> Iterator[str]:
    """Ranks for shared experts alone that leave none for the routed ones, or that cannot be."""
    shared, name, e = scenario.shared_expert_ranks, "shared_expert_ranks", model.experts
    if not shared:
        return
    if scenario.phase == "train":
        yield f"{name}: is of prefill and decode; leave it out"
    if e is None or not e.shared_width:
        yield f"{name}: {model.name} has no shared experts; leave it out"
        return
    if e.payload_width != model.hidden_size:
        yield f"{name}: {model.name} sends tokens in another width than its shared experts read; leave it out"
    if etp > 1 or scenario.token_dispatcher == "all_gather":
        yield f"{name}: tokens are sent to whole experts by an all_to_all; leave out etp and token_dispatcher"
    if shared >= ep:
        yield f"{name}: {shared:g} of {ep:g} ranks leave none for routed experts; write fewer, or more --ep"
    elif not scenario.redundant_experts and e.count % (ep - shared):
        left = f"{ep:g} - {shared:g} = {ep - shared:g} ranks"
        yield f"{name}: {e.count:g} experts do not divide by {left}; change it, --ep or --redundant-experts"


def step_problems(scenario: Scenario, model: Model, dp: float) -> Iterator[str | Reason]:
    """What contradicts itself in a whole training step; and what only a step takes."""
    if scenario.global_batch_size is None:
        for name, idle in (("pp", 1.0), ("vpp", 1.0), ("pipeline", None), ("recompute", "none"),
                           ("grad_overlap", False), ("stage_layers", None)):  # fmt: skip
            if getattr(scenario, name) != idle:
                yield f"{name}: is part of a whole step; write --global-batch-size as well"
        return
    if scenario.phase != "train":
        yield "global_batch_size: is of a training step; leave it out"
    yield from _pipeline_problems(scenario, model, dp)
    yield from _recompute_problems(scenario, model)


def _pipeline_problems(scenario: Scenario, model: Model, dp: float) -> Iterator[str | Reason]:
    """Layers that do not fill the stages, samples that do not fill the micro-batches."""
    assert scenario.global_batch_size is not None
    pipeline = pipeline_of(scenario.pipeline, scenario.vpp)
    yield from _chunk_problems(scenario, pipeline)
    chunks = pipeline.stages(scenario.pp) * scenario.vpp
    if scenario.stage_layers is not None:
        yield from _stage_problems(scenario, scenario.stage_layers, model)
    elif model.num_layers % chunks:
        cut = "pp x vpp" if pipeline.chunks == 1 else f"the {pipeline.chunks:g} chunks of pp stages"
        instead = _instead(scenario, model, chunks)
        yield f"pp: {model.num_layers} layers do not divide by {cut} = {chunks:g}; {instead}"
    size = np.asarray(samples_of(scenario))
    if (
        scenario.vpp > 1
        and scenario.pp > 1
        and np.any(fractional(scenario.global_batch_size / (size * dp * scenario.pp)))
    ):
        yield f"vpp: needs micro-batches in multiples of pp = {scenario.pp:g}; change global_batch_size"
    if scenario.vpp > 1 and scenario.pp == 1:
        yield "vpp: interleaves pipeline stages and pp is 1; leave it out"
    if np.any(fractional(scenario.global_batch_size / (size * dp))):
        most = f"{said(size * dp)} samples of dp x batch_size"
        yield f"global_batch_size: {scenario.global_batch_size:g} does not divide by {most}"
    else:
        yield from _batch_problems(scenario, pipeline, size * dp)


def _instead(scenario: Scenario, model: Model, stages: float) -> str:
    """What to write where stages are uneven: interleaved ones cannot be."""
    if scenario.vpp > 1 or stages > model.num_layers:
        return "write divisors"
    return f"write divisors, or --stage-layers with {stages:g} numbers that add up to {model.num_layers}"


def _chunk_problems(scenario: Scenario, pipeline: Pipeline) -> Iterator[str]:
    """Stages that a pipeline cannot have."""
    name = scenario.pipeline
    if pipeline.interleaves and scenario.vpp == 1:
        yield f"vpp: {name} cuts a stage into model chunks; write --vpp 2 or more"
    if scenario.vpp > 1 and not pipeline.interleaves:
        yield f"vpp: {name} does not interleave; leave it out, or write --pipeline interleaved"
    if scenario.pp % pipeline.copies:
        near = " or ".join(f"{pp:g}" for pp in (scenario.pp - 1, scenario.pp + 1) if pp)
        yield f"pp: {name} feeds stages from both ends, {scenario.pp:g} do not halve; write {near}"


def _batch_problems(scenario: Scenario, pipeline: Pipeline, size: Num) -> Iterator[Reason]:
    """Micro-batches, each of so many samples of all replicas, that a pipeline cannot take."""
    assert scenario.global_batch_size is not None
    n_mb, least = scenario.global_batch_size / size, pipeline.least(scenario.pp)
    one, odd = np.size(n_mb) == 1, f"{scenario.pipeline} feeds half of the micro-batches at each end"
    few = f"{scenario.pipeline} needs at least 2 x pp = {least:g} micro-batches"
    more = f", not {said(n_mb)}; write {said(least * size)} or more" if one else "; write a larger one"
    yield Reason(f"global_batch_size: {few}{more}", n_mb < least)
    near = f"; write {said((n_mb - 1) * size)} or {said((n_mb + 1) * size)}" if one else ""
    yield Reason(
        f"global_batch_size: {odd}, {said(n_mb)} do not halve{near}",
        (n_mb >= least) & fractional(n_mb / pipeline.copies),
    )


def _recompute_problems(scenario: Scenario, model: Model) -> Iterator[str]:
    method, _, layers = scenario.recompute.partition(":")
    if method == "block" and layers.isdigit():
        return
    if scenario.recompute not in RECOMPUTE:
        known = did_you_mean(scenario.recompute, (*RECOMPUTE, "block:1"))
        yield f"recompute: '{scenario.recompute}' is not known{known}"


def _stage_problems(scenario: Scenario, given: str, model: Model) -> Iterator[str]:
    """A list of layers that is none, or not that of this model and pipeline."""
    if not all(part.isdigit() and int(part) for part in given.split("-")):
        yield f"stage_layers: '{given}' is no list of layers; write for example 1-2-2-1"
        return
    layers = layers_of_stages(given)
    if scenario.vpp > 1:
        yield "stage_layers: interleaved stages are even; leave it out or vpp"
    pipeline = pipeline_of(scenario.pipeline, scenario.vpp)
    stages = pipeline.stages(scenario.pp)
    if len(layers) != stages:
        which = (
            f"pp = {stages}" if pipeline.chunks == 1 else f"the {stages} half stages of {scenario.pipeline}"
        )
        yield f"stage_layers: {len(layers)} stages are not {which}"
    if sum(layers) != model.num_layers:
        yield f"stage_layers: {sum(layers):g} layers are not the model's {model.num_layers}"


def layers_of_stages(given: str) -> list[float]:
    """Layers of every stage.

    Examples
    --------
    >>> layers_of_stages("1-2-2-1")
    [1.0, 2.0, 2.0, 1.0]
    """
    return [float(part) for part in given.split("-")]
