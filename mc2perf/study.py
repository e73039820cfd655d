"""A scenario resolved against a machine: prices, layers, what an NPU works on, how its tiles may be cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import schedules
from mc2perf.costs import Costs, Ledger
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.resolve import micro_batches_of, model_layout, npus_of, operator_sizes, refuse
from mc2perf.scenario import Scenario, is_operator
from mc2perf.schedules import Conditions, Timing
from mc2perf.workload.experts import expert_path
from mc2perf.workload.fused import fused_pair, moe_layer_routing
from mc2perf.workload.layer import LayerParts, layers_of
from mc2perf.workload.parts import ExpertPath, Pair, Part, all_segments


@dataclass
class Study:
    """One scenario resolved against one machine: prices, layers, and what an NPU works on."""

    scenario: Scenario
    costs: Costs
    layers: list[LayerParts]
    tokens: float
    rows: float
    npus: float
    model: Model | None = None
    asked_micro_batches: float | None = None
    samples: float = 0.0
    resolved: dict[str, object] = field(default_factory=dict)
    refused_tiles: dict[int, str] = field(default_factory=dict)

    def parts(self) -> list[tuple[float, Part]]:
        """Every part with how often it runs."""
        return [(layer.count, part) for layer in self.layers for part in (*layer.forward, *layer.backward)]

    def of_kind(self, kind: type) -> list[Any]:
        """Parts of one kind that have something to communicate."""
        return [part for _, part in self.parts() if isinstance(part, kind) and getattr(part, "ranks", 0) > 1]

    def conditions(self, part: Pair | ExpertPath) -> Conditions:
        """Engines under a part."""
        engines = self.costs.engines_for(part.ranks)
        for name, tier in self.costs.tiers_for(part.ranks):
            engine_name, engine = self.costs.engine_of(tier)
            path = f"tiers.{name}.engines.{engine_name}"
            for what in ("round_cost", "comm_under_compute", "compute_under_comm"):
                self.costs.ledger.use(f"{path}.{what}", getattr(engine, what))
        return Conditions.of(engines, self.scenario.buffers, self.costs.ledger.run)

    def total(self, handle: Callable[[Part], Timing]) -> Timing:
        """All layers, every part priced by ``handle``."""
        timing = schedules.NOTHING
        for count, part in self.parts():
            timing = timing + handle(part).times(count)
        return timing

    @property
    def host_per_launch(self) -> float:
        """Host time of one launch; a replayed graph has none. [s]"""
        if self.scenario.host == "graph":
            return 0.0
        self.costs.ledger.use("host.per_launch", self.costs.machine.host.per_launch)
        return float(self.costs.machine.host.per_launch)


def study_of(scenario: Scenario, machine: Machine, model: Model | None) -> Study:
    """Resolve a scenario; raises every contradiction between scenario, machine and model."""
    costs = Costs(machine, Ledger(), scenario.engine, scenario.matmul_rule, warm_l2=scenario.l2 == "warm")
    if is_operator(scenario.target):
        return _operator_study(scenario, costs)
    assert model is not None
    layout, npus = model_layout(scenario, machine, model)
    samples = layout.tokens * layout.tp / layout.seq_len
    resolved: dict[str, object] = {
        "npus": npus, "nodes": npus / machine.ranks_per_server, "ep": layout.ep, "tp": layout.tp,
        "batch_size": samples, "seq_len": layout.seq_len, "tokens_per_npu": layout.tokens,
        "dispatch_dtype": layout.dispatch_dtype, "combine_dtype": layout.combine_dtype,
    }  # fmt: skip
    layers = layers_of(costs, model, layout)
    if scenario.phase == "prefill":
        layers = [replace(layer, backward=()) for layer in layers]
    asked = micro_batches_of(scenario, samples)
    return Study(scenario, costs, layers, layout.tokens, layout.tokens, npus, model, asked, samples, resolved)


def _operator_study(scenario: Scenario, costs: Costs) -> Study:
    machine = costs.machine
    sizes = operator_sizes(scenario, machine)
    refuse([f"dtype: {p}" for p in _missing_rates(costs, scenario)])
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
    layers = [LayerParts(scenario.target, 1.0, (part,), ())]
    return Study(scenario, costs, layers, tokens, sizes.m, npus, None, scenario.micro_batches, 0.0, resolved)


def _missing_rates(costs: Costs, scenario: Scenario) -> list[str]:
    rates = getattr(costs.rule, "rate_per_core", {scenario.dtype: 1.0})
    return [] if scenario.dtype in rates else [f"this matmul rule has no rate for {scenario.dtype}"]


def main_layer(study: Study) -> LayerParts:
    """The layer to show: the most frequent one with an expert path, else the most frequent."""
    ranked = sorted(
        study.layers, key=lambda layer: (any(isinstance(p, ExpertPath) for p in layer.forward), layer.count)
    )
    return ranked[-1]


def segments_of(study: Study, pieces: float) -> tuple[dict[str, float], dict[str, float]]:
    """Stand-alone time of every segment of the main layer, all pieces together."""
    layer = main_layer(study)

    def summed(parts: tuple[Part, ...]) -> dict[str, float]:
        times: defaultdict[str, float] = defaultdict(float)
        for part in parts:
            n = pieces if isinstance(part, ExpertPath) else 1.0
            for segment in all_segments(part, n):
                times[segment.name] += n * float(segment.cost.time)
        return dict(times)

    return summed(layer.forward), summed(layer.backward)


def tile_counts(study: Study, pair: Pair) -> NDArray[np.float64]:
    """Tile counts to try: what was asked, else divisors of the axis whose tiles fit base block and limits."""
    asked = study.scenario.tile_cnt
    if asked:
        return np.array([asked])
    if pair.experts:
        return np.array([float(pair.experts)])
    axis = study.scenario.split_axis if study.model is None else "m"
    whole = pair.rows if axis == "m" else float(getattr(study.scenario, axis))
    base = float(getattr(study.costs.machine.cube.base_block, axis))
    limit = int(min(study.costs.machine.limits.pieces, whole, 1024))
    study.costs.ledger.use("limits.pieces", study.costs.machine.limits.pieces)
    fitting = [1.0]
    for n in range(2, limit + 1):
        reason = _tile_problem(study, pair, whole / n, base, whole)
        if reason:
            study.refused_tiles[n] = reason
        else:
            fitting.append(float(n))
    return np.array(fitting)


def _tile_problem(study: Study, pair: Pair, rows: float, base: float, whole: float) -> str:
    """Why a tile of so many rows does not fit; empty if it does."""
    if rows != int(rows):
        return f"{whole:g} does not divide evenly"
    if rows < base or (whole % base == 0 and rows % base):
        return f"{rows:g} is not a multiple of the base block {base:g}"
    _, engine = study.costs.engine_of(next(iter(study.costs.machine.tiers.values())))
    if rows * pair.piece_bytes / pair.ranks > engine.put:
        return f"a put of {rows * pair.piece_bytes / pair.ranks / 1024:g} KiB is above the limit"
    if study.scenario.buffers * rows * pair.piece_bytes > engine.shmem:
        return "the buffers do not fit the symmetric heap"
    return ""
