"""From a question to numbers: defaults filled in, contradictions found, all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.problems import InputError, did_you_mean
from mc2perf.scenario import COC_PARTS, Scenario, inputs, is_operator
from mc2perf.workload.fused import Sizes
from mc2perf.workload.layer import Layout

DEFAULT_SEQ_LEN = 4096.0
ONE_BYTE = ("int8", "fp8", "mxfp8", "mxfp4")


def refuse(problems: list[str]) -> None:
    """Raise every problem at once."""
    if problems:
        raise InputError(problems)


def machine_problems(scenario: Scenario, machine: Machine) -> Iterator[str]:
    """What a machine does not have: an element type, an engine, a rule."""
    if scenario.dtype not in machine.cube.peak:
        known = did_you_mean(scenario.dtype, machine.cube.peak)
        yield f"dtype: the cube of {machine.name} has no {scenario.dtype}{known}"
    engines = {name for tier in machine.tiers.values() for name in tier.engines}
    if scenario.engine and scenario.engine not in engines:
        yield f"engine: {machine.name} has no '{scenario.engine}'{did_you_mean(scenario.engine, engines)}"
    rules = machine.cube.rules
    if scenario.matmul_rule and scenario.matmul_rule not in rules:
        known = did_you_mean(scenario.matmul_rule, rules)
        yield f"matmul_rule: {machine.name} has no '{scenario.matmul_rule}'{known}"


def misplaced(scenario: Scenario) -> Iterator[str]:
    """Inputs given that the target does not take."""
    kind = "operator" if is_operator(scenario.target) else "model"
    defaults = {spec.name: spec.default for spec in fields(Scenario)}
    for spec, how in inputs():
        if how.only and how.only != kind and getattr(scenario, spec.name) != defaults[spec.name]:
            what = "an operator" if kind == "operator" else "a model"
            yield f"{spec.name}: is for {how.only}s; '{scenario.target}' is {what}; leave it out"


def dispatch_dtype(scenario: Scenario) -> str:
    """Element type of what is dispatched or gathered."""
    return scenario.dispatch_dtype or scenario.dtype


def combine_dtype(scenario: Scenario) -> str:
    """Element type of what is combined: results of 1-byte matmuls come back as bf16."""
    return scenario.combine_dtype or ("bf16" if scenario.dtype in ONE_BYTE else scenario.dtype)


def npus_of(scenario: Scenario, machine: Machine, needed: float) -> float:
    """NPUs = nodes x NPUs per server; by default as many servers as the groups need."""
    return (scenario.nodes or math.ceil(needed / machine.ranks_per_server)) * machine.ranks_per_server


def reach(machine: Machine) -> float:
    """Most ranks that the machine's links join."""
    return float(list(machine.tiers.values())[-1].ranks)


def operator_sizes(scenario: Scenario, machine: Machine) -> Sizes:
    """Numbers of an operator; raises every contradiction.

    Raises
    ------
    InputError
        One line per problem.
    """
    problems = [*misplaced(scenario), *machine_problems(scenario, machine)]
    problems += [
        f"{axis}: is missing; write -{axis} NUMBER" for axis in "mnk" if getattr(scenario, axis) is None
    ]
    ranks = scenario.ranks or npus_of(scenario, machine, machine.ranks_per_server)
    npus = npus_of(scenario, machine, ranks)
    if ranks > npus:
        problems.append(
            f"ranks: {ranks:g} is more than {scenario.nodes:g} nodes x {machine.ranks_per_server:g} NPUs"
        )
    if ranks > reach(machine):
        problems.append(f"ranks: links of {machine.name} join {reach(machine):g} ranks, not {ranks:g}")
    problems += _operator_problems(scenario, ranks)
    refuse(problems)
    assert scenario.m and scenario.n and scenario.k
    comm_first = scenario.target == MOE_LAYER or OPERATORS[scenario.target].order == "comm_first"
    return Sizes(
        m=scenario.m,
        n=scenario.n,
        k=scenario.k,
        ranks=ranks,
        experts=scenario.experts_per_rank,
        dtype=scenario.dtype,
        payload_dtype=dispatch_dtype(scenario) if comm_first else combine_dtype(scenario),
        split_axis=scenario.split_axis,
        imbalance=scenario.imbalance,
    )


def _operator_problems(scenario: Scenario, ranks: float) -> Iterator[str]:
    """Contradictions between the numbers of an operator."""
    operator = OPERATORS.get(scenario.target)
    grouped = operator is None or operator.grouped
    if not grouped and scenario.experts_per_rank != 1:
        yield f"experts_per_rank: {scenario.target} has no experts; leave it out"
    if grouped and scenario.split_axis != "m":
        yield f"split_axis: {scenario.target} is cut at experts; leave it out"
    if scenario.target == "matmul_reduce_scatter" and scenario.m and scenario.m % ranks:
        yield f"m: {scenario.m:g} rows do not divide by {ranks:g} ranks; write a multiple"
    if operator is None and scenario.top_k > scenario.experts_per_rank * ranks:
        yield f"top_k: {scenario.top_k:g} is more than the {scenario.experts_per_rank * ranks:g} experts"
    if operator is None and scenario.tile_cnt:
        yield "tile_cnt: moe_layer is cut into micro_batches; write --micro-batches"
    if operator is not None and scenario.micro_batches:
        yield f"micro_batches: {scenario.target} is cut into tiles; write --tile-cnt"
    yield from _tile_problems(scenario, grouped)


def _tile_problems(scenario: Scenario, grouped: bool) -> Iterator[str]:
    tiles = scenario.tile_cnt
    if not tiles:
        return
    whole = scenario.experts_per_rank if grouped else getattr(scenario, scenario.split_axis)
    word = "experts_per_rank" if grouped else scenario.split_axis
    if whole and whole % tiles:
        yield f"tile_cnt: {word} = {whole:g} does not divide into {tiles:g} tiles; write a divisor"
    if scenario.schedule == "coc" and tiles not in COC_PARTS:
        yield f"tile_cnt: CoC cuts into 1, 2, 4 or 8 parts, not {tiles:g}"


def default_ep(experts: float, npus: float) -> float:
    """Most expert-parallel ranks that divide the experts and the NPUs.

    Examples
    --------
    >>> default_ep(8.0, 8.0), default_ep(160.0, 64.0)
    (8.0, 32.0)
    """
    return (
        next(ep for ep in range(int(min(experts, npus)), 0, -1) if experts % ep == 0 and npus % ep == 0) * 1.0
    )


def model_layout(scenario: Scenario, machine: Machine, model: Model) -> tuple[Layout, float]:
    """Layout of a model and the NPUs it takes; raises every contradiction.

    Raises
    ------
    InputError
        One line per problem.
    """
    problems = [*misplaced(scenario), *machine_problems(scenario, machine)]
    npus = npus_of(scenario, machine, max(scenario.tp, scenario.ep or 1.0))
    count = float(model.experts.count) if model.experts else 1.0
    ep = scenario.ep or (1.0 if scenario.tp > 1 else default_ep(count, npus))
    problems += _parallel_problems(scenario, machine, model, npus, ep)
    samples, seq_len, more = _batch(scenario)
    problems += more
    refuse(problems)
    tokens = samples * seq_len / scenario.tp
    inside = min(ep, float(next(iter(machine.tiers.values())).ranks))
    layout = Layout(
        tokens=tokens,
        seq_len=seq_len,
        logit_rows=samples if scenario.phase == "prefill" else tokens * scenario.tp,
        tp=scenario.tp,
        ep=ep,
        servers=math.ceil(ep / inside),
        dtype=scenario.dtype,
        dispatch_dtype=dispatch_dtype(scenario),
        combine_dtype=combine_dtype(scenario),
        imbalance=scenario.imbalance,
        capacity_factor=scenario.capacity_factor,
    )
    return layout, npus


def _parallel_problems(
    scenario: Scenario, machine: Machine, model: Model, npus: float, ep: float
) -> Iterator[str]:
    """Degrees that do not fit the machine or the model."""
    count = float(model.experts.count) if model.experts else 1.0
    for name, degree in (("tp", scenario.tp), ("ep", ep)):
        if degree > npus:
            yield f"{name}: {degree:g} is more than {npus:g} NPUs; give more --nodes or a smaller {name}"
        elif npus % degree:
            yield f"{name}: {npus:g} NPUs do not divide by {degree:g}; write a divisor"
    if npus > reach(machine):
        yield f"nodes: links of {machine.name} join {reach(machine):g} ranks, not {npus:g}"
    if not model.experts and scenario.ep and scenario.ep > 1:
        yield f"ep: {model.name} is dense and has no experts; leave ep out"
    elif count % ep:
        yield f"ep: {count:g} experts do not divide by {ep:g}; write a divisor of {count:g}"
    heads = {mixer.heads for mixer in model.mixers.values() if mixer.heads % scenario.tp}
    if heads:
        yield f"tp: {min(heads)} heads do not divide by {scenario.tp:g}; write a divisor"


def _batch(scenario: Scenario) -> tuple[float, float, list[str]]:
    """Samples of a replica and their length, from batch_size and seq_len or from tokens."""
    problems = []
    if scenario.tokens and scenario.batch_size:
        problems.append("tokens: says the same as batch_size x seq_len / tp; give one of both")
    rows = (scenario.tokens or 0.0) * scenario.tp
    seq_len = scenario.seq_len or (min(DEFAULT_SEQ_LEN, rows) if rows else DEFAULT_SEQ_LEN)
    samples = rows / seq_len if rows else (scenario.batch_size or 1.0)
    if scenario.micro_batch_size:
        if scenario.micro_batches:
            problems.append("micro_batch_size: says the same as micro_batches; give one of both")
        if samples % scenario.micro_batch_size:
            size = f"{scenario.micro_batch_size:g}"
            problems.append(f"micro_batch_size: {samples:g} samples do not divide by {size}; write a divisor")
    if samples * seq_len % scenario.tp:
        problems.append(f"tp: {samples * seq_len:g} tokens do not divide by {scenario.tp:g}; change seq_len")
    tokens = samples * seq_len / scenario.tp
    if scenario.micro_batches and scenario.micro_batches > tokens:
        problems.append(f"micro_batches: {scenario.micro_batches:g} is more than {tokens:g} tokens of an NPU")
    return samples, seq_len, problems


def micro_batches_of(scenario: Scenario, samples: float) -> float | None:
    """The number of micro-batches asked for, or None for the best."""
    if scenario.micro_batch_size:
        return samples / scenario.micro_batch_size
    return scenario.micro_batches
