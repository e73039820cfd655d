"""From a question to numbers: defaults filled in, contradictions found, all at once.

Numbers that may be columns have shape (rows, 1), piece counts (rows or 1, counts). A contradiction that
holds for every row is raised; one that holds for some is a reason why these have no answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from mc2perf.degrees import (
    layout_problems,
    parallel_problems,
    reach,
    samples_of,
    shared_rank_problems,
    step_problems,
    ulysses_of,
)
from mc2perf.expert_groups import busiest_of, model_group, operator_group, skew_problems
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import DTYPES, MOE_LAYER, OPERATORS, unquantised
from mc2perf.pipelines import pipeline_of
from mc2perf.policies import scan
from mc2perf.problems import did_you_mean
from mc2perf.reasons import Reason, fractional, refuse, said, said_once
from mc2perf.scenario import COC_PARTS, DRAFTS, Scenario, columns_of, inputs, is_operator
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.decode import Cache
from mc2perf.workload.fused import Sizes
from mc2perf.workload.layout import Layout

DEFAULT_SEQ_LEN = 4096.0


def as_columns(scenario: Scenario) -> Scenario:
    """The same scenario with every number that may be a column as a column, of one row if it is one."""
    given = {name: getattr(scenario, name) for name in columns_of(scenario.target)}
    columns: dict[str, Any] = {
        name: np.asarray(value, float).reshape(1, 1) if np.ndim(value) == 0 else value
        for name, value in given.items()
        if value is not None
    }
    return replace(scenario, **columns)


def machine_problems(scenario: Scenario, machine: Machine) -> Iterator[str]:
    """What a machine does not have: an element type, an engine, a rule."""
    yield from _missing_dtypes(scenario, machine.name, machine.cube.peak)
    engines = {name for tier in machine.tiers.values() for name in tier.engines}
    if scenario.engine and scenario.engine not in engines:
        yield f"engine: {machine.name} has no '{scenario.engine}'{did_you_mean(scenario.engine, engines)}"
    rules = machine.cube.rules
    if scenario.matmul_rule and scenario.matmul_rule not in rules:
        known = did_you_mean(scenario.matmul_rule, rules)
        yield f"matmul_rule: {machine.name} has no '{scenario.matmul_rule}'{known}"


def _missing_dtypes(scenario: Scenario, name: str, peak: Mapping[str, float]) -> Iterator[str]:
    """Element types that are computed in and that the cube does not have."""
    for field, dtype in (("dtype", scenario.cube_dtype), ("attention_dtype", scenario.attention_dtype)):
        if dtype and dtype not in peak:
            yield f"{field}: the cube of {name} has no {dtype}{did_you_mean(dtype, peak)}"
    wide = unquantised(scenario.dtype)
    if wide not in peak and wide != scenario.dtype and scenario.target not in OPERATORS:
        known = did_you_mean(wide, (dtype for dtype in peak if DTYPES[dtype].size >= 2.0))
        yield f"dtype: gate and head stay in {wide} in {scenario.dtype}; the cube of {name} has none{known}"


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
    return scenario.dispatch_dtype or scenario.cube_dtype


def attention_dtype(scenario: Scenario) -> str:
    """Element type of scores and weighted values."""
    return scenario.attention_dtype or unquantised(scenario.dtype)


def combine_dtype(scenario: Scenario) -> str:
    """Element type of what is combined: results of 1-byte matmuls come back as bf16."""
    return scenario.combine_dtype or unquantised(scenario.dtype)


def npus_of(scenario: Scenario, machine: Machine, needed: float) -> float:
    """NPUs = nodes x NPUs per server; by default as many servers as the groups need."""
    return (scenario.nodes or math.ceil(needed / machine.ranks_per_server)) * machine.ranks_per_server


def operator_sizes(scenario: Scenario, machine: Machine) -> tuple[Sizes, tuple[Reason, ...]]:
    """Numbers of an operator, and which rows contradict themselves; raises what leaves no row.

    Raises
    ------
    InputError
        One line per problem.
    """
    problems: list[str | Reason] = [*misplaced(scenario), *machine_problems(scenario, machine)]
    problems += [
        f"{axis}: is missing; write -{axis} NUMBER" for axis in "mnk" if getattr(scenario, axis) is None
    ]
    ranks = scenario.ranks or npus_of(scenario, machine, machine.ranks_per_server)
    npus = npus_of(scenario, machine, ranks)
    if ranks > npus:
        problems.append(
            f"ranks: {said(ranks)} is more than {scenario.nodes:g} nodes x {machine.ranks_per_server:g} NPUs"
        )
    if ranks > reach(machine):
        problems.append(f"ranks: links of {machine.name} join {reach(machine):g} ranks, not {said(ranks)}")
    problems += _operator_problems(scenario, ranks)
    reasons = refuse(problems)
    assert scenario.m is not None and scenario.n is not None and scenario.k is not None
    comm_first = scenario.target == MOE_LAYER or OPERATORS[scenario.target].order == "comm_first"
    sizes = Sizes(
        m=scenario.m,
        n=scenario.n,
        k=scenario.k,
        ranks=ranks,
        experts=scenario.experts_per_rank,
        dtype=scenario.dtype,
        payload_dtype=dispatch_dtype(scenario) if comm_first else combine_dtype(scenario),
        split_axis=scenario.split_axis,
        busiest=busiest_of(scenario, operator_group(scenario, ranks)),
        redundant=scenario.redundant_experts or 0.0,
    )
    return sizes, reasons


def _operator_problems(scenario: Scenario, ranks: float) -> Iterator[str | Reason]:
    """Contradictions between the numbers of an operator."""
    operator = OPERATORS.get(scenario.target)
    grouped = operator is None or operator.grouped
    yield from skew_problems(scenario, operator_group(scenario, ranks))
    if operator is not None and grouped and scenario.redundant_experts:
        yield "redundant_experts: copies are experts of a rank here; write --experts-per-rank"
    if not grouped and scenario.experts_per_rank != 1:
        yield f"experts_per_rank: {scenario.target} has no experts; leave it out"
    if grouped and scenario.split_axis != "m":
        yield f"split_axis: {scenario.target} is cut at experts; leave it out"
    if scenario.target == "matmul_reduce_scatter" and scenario.m is not None:
        yield Reason(
            f"m: {said(scenario.m)} rows do not divide by {ranks:g} ranks; write a multiple",
            fractional(scenario.m / ranks),
        )
    if operator is None and scenario.top_k > scenario.experts_per_rank * ranks:
        yield f"top_k: {scenario.top_k:g} is more than the {scenario.experts_per_rank * ranks:g} experts"
    if operator is None and scenario.tile_cnt is not None:
        yield "tile_cnt: moe_layer is cut into micro_batches; write --micro-batches"
    if operator is not None and scenario.micro_batches is not None:
        yield f"micro_batches: {scenario.target} is cut into tiles; write --tile-cnt"
    if operator is not None and scenario.tile_cnt is not None:
        yield from _tile_problems(scenario, scenario.tile_cnt, grouped)


def _tile_problems(scenario: Scenario, tiles: Num, grouped: bool) -> Iterator[Reason]:
    word = "experts_per_rank" if grouped else scenario.split_axis
    whole = getattr(scenario, word)
    if whole is not None:
        one = np.size(whole) == np.size(tiles) == 1
        cut = f"{said(tiles) if one else 'tile_cnt'} tiles"
        size = f"{word} = {said(whole)}" if one else word
        if grouped:
            why, where = f"{size} does not divide into {cut}; write a divisor", fractional(whole / tiles)
        else:
            where = scan.cut(whole, np.asarray(tiles), 1.0).none_left
            why = f"{size} leaves nothing for the last of {cut}; write fewer"
        yield Reason(f"tile_cnt: {why}", where)
    if scenario.schedule == "coc":
        yield Reason(
            f"tile_cnt: CoC cuts into 1, 2, 4 or 8 parts, not {said(tiles)}", ~np.isin(tiles, COC_PARTS)
        )


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


def model_layout(
    scenario: Scenario, machine: Machine, model: Model
) -> tuple[Layout, float, tuple[Reason, ...]]:
    """Layout of a model, the NPUs it takes, and which rows contradict themselves.

    Raises
    ------
    InputError
        What leaves no row, one line per problem.
    """
    degrees = _degrees(scenario, machine, model)
    problems = list(_model_problems(scenario, machine, model, degrees))
    group = model_group(scenario, model, degrees.ep - min(scenario.shared_expert_ranks, degrees.ep - 1.0))
    reasons = refuse(said_once([*problems, *skew_problems(scenario, group)]))
    layout = _laid_out(scenario, model, degrees, busiest_of(scenario, group))
    near = float(next(iter(machine.tiers.values())).ranks)
    inside = min(layout.ep, max(near // layout.expert_stride("ep"), 1.0))
    return replace(layout, servers=float(math.ceil(layout.ep / inside))), degrees.npus, reasons


class _Degrees(NamedTuple):
    """NPUs that a model takes, in all and of a stage, and how its experts and copies lie on them."""

    npus: float
    stage: float
    dp: float
    ep: float
    etp: float


def _degrees(scenario: Scenario, machine: Machine, model: Model) -> _Degrees:
    """What was asked for, and what defaults stand for."""
    replica = scenario.tp * scenario.cp * scenario.pp
    experts = (scenario.ep or 1.0) * (scenario.etp or 1.0) * scenario.pp
    npus = npus_of(scenario, machine, max(replica * (scenario.dp or 1.0), experts))
    if scenario.dp:
        npus = replica * scenario.dp
    count = float(model.experts.count) if model.experts else 1.0
    stage = npus // scenario.pp
    ep = scenario.ep or (1.0 if scenario.tp > 1 else default_ep(count, max(stage, 1.0)))
    etp = scenario.etp or (scenario.tp if ep == 1.0 else 1.0)
    return _Degrees(npus, stage, npus / replica, ep, etp)


def _model_problems(
    scenario: Scenario, machine: Machine, model: Model, degrees: _Degrees
) -> Iterator[str | Reason]:
    """What a model, its layout and its batch contradict."""
    yield from misplaced(scenario)
    yield from machine_problems(scenario, machine)
    yield from parallel_problems(scenario, machine, model, degrees.npus, degrees.ep)
    yield from layout_problems(scenario, model, degrees.ep, degrees.etp, degrees.stage)
    yield from _batch_problems(scenario, *_batch(scenario))
    yield from step_problems(scenario, model, degrees.dp)
    yield from serving_problems(scenario)
    yield from shared_rank_problems(scenario, model, degrees.ep, degrees.etp)


def _laid_out(scenario: Scenario, model: Model, degrees: _Degrees, busiest: Busiest) -> Layout:
    """The layout as if experts never left a server."""
    samples, seq_len = _batch(scenario)
    return Layout(
        tokens=samples * seq_len / (scenario.tp * scenario.cp),
        seq_len=seq_len,
        logit_rows=samples if scenario.phase == "prefill" else None,
        tp=scenario.tp,
        sp=scenario.sp,
        cp=scenario.cp,
        pp=scenario.pp,
        dp=degrees.dp,
        copies=float(pipeline_of(scenario.pipeline, scenario.vpp).copies),
        ep=degrees.ep,
        servers=1.0,
        dtype=scenario.cube_dtype if model.experts else scenario.dtype,
        expert_dtype=scenario.dtype,
        dispatch_dtype=dispatch_dtype(scenario),
        combine_dtype=combine_dtype(scenario),
        attention_dtype=attention_dtype(scenario),
        busiest=busiest,
        redundant=scenario.redundant_experts or 0.0,
        shared_ranks=scenario.shared_expert_ranks,
        capacity_factor=scenario.capacity_factor,
        etp=degrees.etp,
        order=tuple(scenario.rank_order.split("-")),
        ulysses=ulysses_of(scenario),
        balanced=scenario.cp_balanced,
        dispatcher=dispatcher_of(scenario, degrees.ep, degrees.etp),
        grouped=scenario.grouped_matmul,
        fused_permute=scenario.fused_permute,
        fused_gradients=scenario.gradient_accumulation_fusion,
        fused_loss=scenario.fused_cross_entropy,
        pad=scenario.pad_to_capacity,
        dynamic=scenario.phase == "train" and not (scenario.capacity_factor and scenario.pad_to_capacity),
    )


def dispatcher_of(scenario: Scenario, ep: float, etp: float) -> str:
    """How tokens reach their experts: a capacity needs the all-to-all (Megatron-LM, arguments.py)."""
    alone = ep == 1.0 and etp > 1.0 and scenario.capacity_factor is None
    return scenario.token_dispatcher or ("all_gather" if alone else "all_to_all")


def cache_of(scenario: Scenario) -> Cache | None:
    """The cache of a pass of a served model: a decode step, or a prompt of which some may be there."""
    if scenario.phase == "train":
        return None
    decode = scenario.phase == "decode"
    before = np.full((1, 1), DEFAULT_SEQ_LEN if decode else 0.0)
    return Cache(
        context=before if scenario.context_len is None else scenario.context_len,
        decode=decode,
        kv_dtype=scenario.kv_dtype or "bf16",
        drafts=scenario.speculative_tokens * DRAFTS[scenario.speculative_method],
    )


OF_DRAFTS = ("speculative_method", "acceptance")
"""Inputs that mean nothing without drafts."""

OF_DECODE = ("speculative_tokens", *OF_DRAFTS)
OF_SERVING = ("context_len", "kv_dtype", *OF_DECODE)
"""Inputs that training does not take; of these, those that prefill does not take either."""


def serving_problems(scenario: Scenario) -> Iterator[str]:
    """What only a serving phase takes, and what decode does not."""
    given = _chosen(scenario, OF_SERVING)
    if scenario.phase == "train":
        yield from (f"{name}: is of prefill and decode; write --phase decode as well" for name in given)
        if scenario.cube_dtype != scenario.dtype:
            yield f"dtype: weights in {scenario.dtype} are served, not trained; write --phase decode as well"
    elif scenario.phase == "prefill":
        yield from (f"{name}: is of decode; leave it out" for name in given if name in OF_DECODE)
    if not scenario.speculative_tokens:
        words = (name for name in given if name in OF_DRAFTS)
        yield from (f"{name}: is of drafts; write --speculative-tokens as well" for name in words)
    if scenario.phase == "decode" and scenario.cp > 1:
        yield "cp: cuts the sequences of training and prefill; leave it out in decode"
    if scenario.phase == "decode":
        for name in ("seq_len", "tokens"):
            if getattr(scenario, name) is not None:
                yield f"{name}: a decode step takes one token of each sequence; write context_len, batch_size"


def _chosen(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """Those of some inputs that are not left at their defaults."""
    defaults = {spec.name: spec.default for spec in fields(Scenario)}
    return [name for name in names if np.any(getattr(scenario, name) != defaults[name])]


def _batch(scenario: Scenario) -> tuple[Num, Num]:
    """Samples of a replica and their length, from batch_size and seq_len or from tokens."""
    if scenario.phase == "decode":
        return samples_of(scenario), np.full((1, 1), 1.0 + scenario.speculative_tokens)
    default, given = np.full((1, 1), DEFAULT_SEQ_LEN), scenario.seq_len
    if scenario.tokens is None:
        return samples_of(scenario), default if given is None else given
    rows = scenario.tokens * scenario.tp * scenario.cp
    seq_len = np.minimum(default, rows) if given is None else given
    return rows / seq_len, seq_len


def _batch_problems(scenario: Scenario, samples: Num, seq_len: Num) -> Iterator[str | Reason]:
    """Numbers of a batch that contradict each other."""
    tokens = samples * seq_len / (scenario.tp * scenario.cp)
    size = scenario.micro_batch_size if scenario.global_batch_size is None else None
    count = scenario.micro_batches
    if scenario.tokens is not None and scenario.batch_size is not None:
        yield "tokens: says the same as batch_size x seq_len / tp; give one of both"
    if size is not None:
        if count is not None:
            yield "micro_batch_size: says the same as micro_batches; give one of both"
        yield Reason(
            f"micro_batch_size: {said(samples)} samples do not divide by {said(size)}; write a divisor",
            fractional(samples / size),
        )
    yield Reason(
        f"tp: {said(samples * seq_len)} tokens do not divide by {scenario.tp * scenario.cp:g};"
        " change seq_len",
        fractional(tokens) & (scenario.phase != "decode"),
    )
    if count is not None:
        yield Reason(
            f"micro_batches: {said(count)} is more than {said(tokens)} tokens of an NPU", count > tokens
        )


def micro_batches_of(scenario: Scenario, samples: Num) -> Num | None:
    """The number of micro-batches asked for, or None for the best."""
    if scenario.micro_batch_size is not None and scenario.global_batch_size is None:
        return samples / scenario.micro_batch_size
    return scenario.micro_batches
