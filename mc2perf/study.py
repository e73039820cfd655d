"""A scenario resolved against a machine: prices, layers, and what an NPU works on.

A study holds one row or many: numbers that may be columns have shape (rows, 1); counts of pieces lie
across, so that whatever depends on rows only is priced once for all counts.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mc2perf import cases, legality, schedules
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.host import launch_queue_time
from mc2perf.equations.serving import tokens_per_step
from mc2perf.expert_groups import model_group, operator_group
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.reasons import Reason, refuse
from mc2perf.resolve import as_columns, cache_of, micro_batches_of, model_layout, npus_of, operator_sizes
from mc2perf.scenario import Scenario, is_operator
from mc2perf.schedules import Conditions, Timing
from mc2perf.skew import Busiest, Group, Skew
from mc2perf.units import Num
from mc2perf.workload.decode import cached_layers
from mc2perf.workload.experts import expert_path
from mc2perf.workload.fused import fused_pair, moe_layer_routing
from mc2perf.workload.keys import keys_picked, keys_scored, keys_seen
from mc2perf.workload.layer import LayerParts, layers_of
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import ExpertPath, Pair, Part, Plain, Ring, Slices, all_segments, time_of


@dataclass(frozen=True)
class LaidLayer:
    """A group of equal layers under a schedule: how many, and what one takes by communication group."""

    count: float
    forward: dict[str, Timing]
    backward: dict[str, Timing]

    @property
    def timing(self) -> Timing:
        """All of them, forward and backward."""
        return self.there + self.back

    @property
    def there(self) -> Timing:
        """All of them forward."""
        return sum(self.forward.values(), schedules.NOTHING).times(self.count)

    @property
    def back(self) -> Timing:
        """All of them backward."""
        return sum(self.backward.values(), schedules.NOTHING).times(self.count)


def by_group(parts: tuple[Part, ...], handle: Callable[[Part], Timing]) -> dict[str, Timing]:
    """What parts take together: tensor-parallel pairs, expert paths, and what communicates with nobody."""
    groups: dict[str, Timing] = {}
    for part in parts:
        name = GROUPS[type(part)]
        groups[name] = groups.get(name, schedules.NOTHING) + handle(part)
    return groups


GROUPS: dict[type, str] = {Plain: "", Ring: "cp", Pair: "tp", Slices: "tp", ExpertPath: "ep"}
"""Kind of a part -> the parallel group it communicates in."""


def collective_of(part: Pair | ExpertPath) -> str:
    """What a part communicates by: an operator says it, pairs of layers gather or scatter."""
    if isinstance(part, ExpertPath):
        return "all_to_all"
    return OPERATORS[part.name].collective if part.name in OPERATORS else "all_gather"


@dataclass
class Study:
    """One scenario resolved against one machine: prices, layers, and what an NPU works on."""

    scenario: Scenario
    costs: Costs
    layers: list[LayerParts]
    tokens: Num
    rows: Num
    npus: float
    model: Model | None = None
    asked_micro_batches: Num | None = None
    samples: Num = 0.0
    resolved: dict[str, object] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    layout: Layout | None = None
    group: Group | None = None
    imbalance: Num = 1.0
    hottest_expert: float = 1.0

    def parts(self) -> list[tuple[float, Part]]:
        """Every part with how often it runs."""
        return [(layer.count, part) for layer in self.layers for part in (*layer.forward, *layer.backward)]

    def of_kind(self, kind: type) -> list[Any]:
        """Parts of one kind that have something to communicate."""
        return [part for _, part in self.parts() if isinstance(part, kind) and getattr(part, "ranks", 0) > 1]

    def conditions(self, part: Pair | ExpertPath) -> Conditions:
        """Engines under a part."""
        engines = self.costs.engines_for(part.ranks, collective_of(part))
        for path, engine in engines:
            for what in ("round_cost", "comm_under_compute", "compute_under_comm"):
                self.costs.ledger.use(f"{path}.{what}", getattr(engine, what))
        return Conditions.of([e for _, e in engines], self.scenario.buffers, self.costs.ledger.run)

    def laid(self, handle: Callable[[Part], Timing]) -> tuple[LaidLayer, ...]:
        """Every layer with its parts priced by ``handle``, apart by what they communicate for."""
        return tuple(
            LaidLayer(layer.count, by_group(layer.forward, handle), by_group(layer.backward, handle))
            for layer in self.layers
        )

    @property
    def counted_tokens(self) -> Num:
        """Tokens per NPU of the time that is estimated: of a micro-batch, or of a whole step."""
        if self.layout is not None and self.scenario.phase == "decode":
            return self.tokens / self.layout.seq_len * self.step_tokens
        if self.layout is None or self.scenario.global_batch_size is None:
            return self.tokens
        return self.scenario.global_batch_size * self.layout.seq_len / self.npus

    @property
    def step_tokens(self) -> Num:
        """Tokens that a decode step yields per sequence: one, and the drafts that are accepted."""
        return tokens_per_step(self.scenario.acceptance, self.scenario.speculative_tokens)

    @functools.cached_property
    def model_flops(self) -> Num:
        """FLOPs a token needs, nothing computed twice: forward, in training forward and backward.

        Gradients of an indexer are those of the keys that it picked.
        """
        assert self.model is not None and self.layout is not None
        forward: Num = 2.0 * self.model.active_parameters
        without_gradient: Num = 0.0
        cache = cache_of(self.scenario)
        sight = (cache.context if cache else 0.0, self.layout.seq_len)
        for group in self.model.layers:
            mixer = self.model.mixers[group.mixer] if group.mixer else None
            if mixer is None or mixer.kind == "linear":
                continue
            width, seen = mixer.heads * (mixer.head_dim + mixer.v_head_dim), keys_seen(mixer, *sight)
            forward = forward + 2.0 * group.count * seen * width
            if mixer.indexer:
                width, scored = mixer.indexer.heads * mixer.indexer.head_dim, keys_scored(mixer, *sight)
                passed_by = scored - keys_picked(mixer, *sight)
                forward = forward + 2.0 * group.count * scored * width
                without_gradient = without_gradient + 4.0 * group.count * passed_by * width
        return 3.0 * forward - without_gradient if self.scenario.phase == "train" else forward

    @functools.cached_property
    def cases(self) -> tuple[cases.Case, ...]:
        """The fused operators that mc2 uses, wherever there is somebody to communicate with."""
        if self.model is not None:
            assert self.layout is not None
            return tuple(cases.model_cases(self.costs, self.scenario, self.model, self.layout))
        return tuple(cases.target_cases(self.costs, self.scenario, float(str(self.resolved["ranks"]))))

    @functools.cached_property
    def verdict(self) -> legality.Verdict:
        """What the rules say of them: an illegal one decides."""
        if any(OPERATORS[case.operator].grouped for case in self.cases):
            for name in ("handles", "peer_window_min", "peer_window_max"):
                self.costs.ledger.use(f"limits.{name}", getattr(self.costs.machine.limits, name))
        return legality.together([legality.judged(case) for case in self.cases])

    @functools.cached_property
    def latency(self) -> Num:
        """What communication takes when there is next to nothing to send. [s]"""
        return sum((count * time_of(all_segments(part, 1e9), "comm") for count, part in self.parts()), 0.0)

    def issued(self, *passes: Timing) -> Num:
        """Time of passes one after the other, with what the device waits for the host. [s]

        Passes without reads share one queue: the host runs ahead from one into the next.
        """
        queues = [t for t in passes if np.any(self.waits(t))]
        rest = sum((t for t in passes if not np.any(self.waits(t))), schedules.NOTHING)
        return sum((self._queue(t) for t in (*queues, rest)), 0.0)

    def waits(self, t: Timing) -> Num:
        """How often the host waits for the device: for results, for every kernel, or in a graph never."""
        return {"blocking": t.launches, "graph": 0.0}.get(self.scenario.host, t.reads)

    def _queue(self, t: Timing) -> Num:
        reads = self.waits(t)
        per_read = self.host_per_read if np.any(reads) else 0.0
        return launch_queue_time(t.total, t.launches, self.host_per_launch, reads, per_read)

    @property
    def host_per_read(self) -> float:
        """Host time of one result that it waits for; a replayed graph has none. [s]"""
        if self.scenario.host == "graph":
            return 0.0
        per_read = self.costs.machine.host.per_read
        self.costs.ledger.use("host.per_read", per_read)
        return per_read if np.ndim(per_read) else float(per_read)

    @property
    def host_per_launch(self) -> float:
        """Host time of one launch; a replayed graph has none. [s]"""
        if self.scenario.host == "graph":
            return 0.0
        name, per_launch = self.costs.machine.host.launch(self.scenario.phase)
        self.costs.ledger.use(f"host.{name}", per_launch)
        return per_launch if np.ndim(per_launch) else float(per_launch)


def study_of(scenario: Scenario, machine: Machine, model: Model | None) -> Study:
    """Resolve a scenario; raises every contradiction between scenario, machine and model."""
    warm = scenario.l2 == "warm"
    costs = Costs(
        machine, Ledger(), scenario.engine, scenario.matmul_rule, warm, cuts_messages=True,
        decode=scenario.phase == "decode", prefill=scenario.phase == "prefill",
    )  # fmt: skip
    scenario = as_columns(scenario)
    if is_operator(scenario.target):
        return _operator_study(scenario, costs)
    assert model is not None
    layout, npus, reasons = model_layout(scenario, machine, model)
    cache = cache_of(scenario)
    samples = layout.tokens * layout.tp * layout.cp / layout.seq_len
    resolved: dict[str, object] = {
        "npus": npus, "nodes": npus / machine.ranks_per_server, "ep": layout.ep, "tp": layout.tp,
        **_step_layout(scenario, layout, samples), **({"context_len": cache.context} if cache else {}),
        "batch_size": samples, "seq_len": layout.seq_len, "tokens_per_npu": layout.tokens,
        "dispatch_dtype": layout.dispatch_dtype, "combine_dtype": layout.combine_dtype,
    }  # fmt: skip
    group = model_group(scenario, model, layout.routed_ranks)
    imbalance = _imbalance(scenario, group, layout.busiest, layout.tokens, resolved)
    layers = cached_layers(costs, model, layout, cache) if cache else layers_of(costs, model, layout)
    if scenario.phase == "prefill":
        layers = [replace(layer, backward=()) for layer in layers]
    return Study(
        scenario, costs, layers, layout.tokens, layout.tokens, npus, model,
        micro_batches_of(scenario, samples), samples, resolved, reasons, layout, group, imbalance,
        layout.busiest.hottest,
    )  # fmt: skip


def _step_layout(scenario: Scenario, layout: Layout, samples: Num) -> dict[str, object]:
    """What a whole step resolves to beside its layers."""
    if scenario.global_batch_size is None:
        return {}
    n_mb = scenario.global_batch_size / (layout.dp * samples)
    asked = {"pipeline": scenario.pipeline} if scenario.pipeline else {}
    layers = {"pp": layout.pp, **asked, "dp": layout.dp, "cp": layout.cp}
    return {**layers, "micro_batches_of_a_step": n_mb}


def _imbalance(
    scenario: Scenario, group: Group | None, busiest: Busiest, tokens: Num, resolved: dict[str, object]
) -> Num:
    """Rows of the busiest rank over the mean; said where it was asked for."""
    if group is None or (scenario.skew == Skew() and scenario.redundant_experts is None):
        return 1.0
    imbalance = busiest.factor(tokens * group.top_k)
    resolved |= {"imbalance": imbalance, "hottest_expert": busiest.hottest}
    return imbalance


def _operator_study(scenario: Scenario, costs: Costs) -> Study:
    machine = costs.machine
    sizes, reasons = operator_sizes(scenario, machine)
    refuse(f"dtype: {p}" for p in _missing_rates(costs, scenario))
    npus = npus_of(scenario, machine, sizes.ranks)
    resolved: dict[str, object] = {
        "ranks": sizes.ranks, "npus": npus, "nodes": npus / machine.ranks_per_server,
        "payload_dtype": sizes.payload_dtype,
    }  # fmt: skip
    if scenario.target == MOE_LAYER:
        combine = scenario.combine_dtype or "bf16"
        servers = np.ceil(sizes.ranks / min(sizes.ranks, next(iter(machine.tiers.values())).ranks))
        r = moe_layer_routing(
            sizes, scenario.top_k, scenario.shared_width, combine, float(servers), scenario.capacity_factor
        )
        part: Part = expert_path(costs, r)
        tokens = sizes.m
    else:
        part, tokens = fused_pair(costs, OPERATORS[scenario.target], sizes), 0.0
    group = operator_group(scenario, sizes.ranks)
    imbalance = _imbalance(scenario, group, sizes.busiest, sizes.m, resolved)
    layers = [LayerParts(scenario.target, 1.0, (part,), ())]
    asked = scenario.micro_batches
    return Study(
        scenario, costs, layers, tokens, sizes.m, npus, None, asked, 0.0, resolved, reasons, None, group,
        imbalance, sizes.busiest.hottest,
    )  # fmt: skip


def _missing_rates(costs: Costs, scenario: Scenario) -> list[str]:
    dtype = scenario.cube_dtype
    rates = getattr(costs.rule, "rate_per_core", {dtype: 1.0})
    return [] if dtype in rates else [f"this matmul rule has no rate for {dtype}"]


def main_layer(study: Study) -> LayerParts:
    """The layer to show: the most frequent one with an expert path, else the most frequent."""
    ranked = sorted(
        study.layers, key=lambda layer: (any(isinstance(p, ExpertPath) for p in layer.forward), layer.count)
    )
    return ranked[-1]


def segments_of(study: Study, pieces: float) -> tuple[dict[str, float], dict[str, float]]:
    """Stand-alone time of every segment of the main layer, all pieces together; for a study of one row."""
    layer = main_layer(study)

    def summed(parts: tuple[Part, ...]) -> dict[str, float]:
        times: defaultdict[str, float] = defaultdict(float)
        for part in parts:
            n = pieces if isinstance(part, ExpertPath) else 1.0
            for segment in all_segments(part, n):
                times[segment.name] += n * np.asarray(segment.cost.time).item()
        return dict(times)

    return summed(layer.forward), summed(layer.backward)
