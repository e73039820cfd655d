"""What a question asks of the rules: every operator it may use, as a case with its facts.

A case is one operator as a question uses it, on a machine, with the software around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mc2perf.costs import Costs
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.rules.facts import Facts
from mc2perf.scenario import Scenario
from mc2perf.units import MIB, Num
from mc2perf.workload.layer import routing_of
from mc2perf.workload.layout import Layout


@dataclass(frozen=True)
class Case:
    """An operator as a question uses it; ``role`` says for what, where a model uses it more than once."""

    operator: str
    facts: Facts
    role: str = ""


# --- what estimates lay mc2 over ----------------------------------------------------------------------


def place(costs: Costs, scenario: Scenario, ranks: float, collective: str) -> dict[str, Any]:
    """Facts of the machine and the software around a group of ranks that communicate by a collective."""
    machine, limits = costs.machine, costs.machine.limits
    spanned = costs.tiers_for(ranks)
    engines = [
        (f"{name} ({at})", engine)
        for at, (name, engine) in ((at, costs.engine_of(tier, collective)) for at, tier in spanned)
    ]
    silent = [name for name, engine in engines if not engine.interleaves]
    return {
        "family": machine.family,
        "ranks": ranks,
        "tiers": float(len(spanned)),
        "wiring": spanned[0][1].wiring,
        "needs_rdma": any(tier.needs_rdma for _, tier in spanned),
        "interleaves": not silent,
        "engine": (silent or [engines[0][0]])[0],
        "cann": scenario.cann,
        "rdma": scenario.rdma,
        "hccl_buffsize": scenario.hccl_buffsize,
        "handles": float(limits.handles),
        "peer_window_min_mb": limits.peer_window_min / MIB,
        "peer_window_max_mb": limits.peer_window_max / MIB,
        "dtype": scenario.dtype,
        "decode": scenario.phase == "decode",
        "train": scenario.phase == "train",
        "schedule": scenario.schedule,
        "sp": scenario.sp,
        "tp": scenario.tp,
        "shared_ranks": scenario.shared_expert_ranks,
        "mega_moe_max_tokens": 4096.0,
    }


def operator_case(costs: Costs, scenario: Scenario, operator: str, ranks: float) -> Case:
    """A fused operator with the numbers that were given."""
    row = OPERATORS.get(operator)
    width = scenario.n if row is not None and row.payload == "output" else scenario.k
    return Case(
        operator,
        Facts(
            place(costs, scenario, ranks, row.collective if row is not None else "all_to_all")
            | {
                "m": scenario.m,
                "n": scenario.n,
                "k": scenario.k,
                "payload_width": width,
                "experts_per_rank": scenario.experts_per_rank,
                "top_k": scenario.top_k,
                "shared_hidden": 0.0,
            }
        ),
    )


def expert_cases(costs: Costs, scenario: Scenario, path: ExpertSizes) -> Iterator[Case]:
    """The two grouped operators of an expert path."""
    known = place(costs, scenario, path.ep, "all_to_all") | {
        "m": path.rows,
        "experts": path.experts,
        "top_k": path.top_k,
        "payload_width": path.hidden,
    }
    inner = {"shared_hidden": path.hidden if path.shared else 0.0}
    yield Case(
        "all_to_all_v_grouped_matmul", Facts(known | inner | {"k": path.hidden, "n": path.up}), "dispatch"
    )
    yield Case(
        "grouped_matmul_all_to_all_v",
        Facts(known | {"k": path.width, "n": path.hidden, "shared_hidden": path.shared}),
        "combine",
    )


class ExpertSizes(NamedTuple):
    """What the rules ask of an expert path: rows of a rank, ranks, experts, widths."""

    rows: Num
    ep: float
    experts: float
    top_k: float
    hidden: Num
    width: Num
    up: Num
    shared: float

    @classmethod
    def of_model(cls, model: Model, layout: Layout) -> ExpertSizes:
        """The experts of a model under a layout."""
        e = model.experts
        assert e is not None
        return cls(
            rows=layout.tokens * float(e.top_k), ep=layout.ep, experts=float(e.count) + layout.redundant,
            top_k=float(e.top_k),
            hidden=float(e.payload_width), width=float(e.width), up=(model.matrices - 1.0) * e.width,
            shared=float(e.shared_width),
        )  # fmt: skip

    @classmethod
    def of_layer(cls, scenario: Scenario, ranks: float) -> ExpertSizes:
        """The experts of ``moe_layer``."""
        assert scenario.m is not None and scenario.n is not None and scenario.k is not None
        hidden, width = scenario.k, scenario.n
        return cls(
            rows=scenario.m * scenario.top_k, ep=ranks, experts=scenario.experts_per_rank * ranks,
            top_k=scenario.top_k, hidden=hidden, width=width, up=2.0 * width, shared=scenario.shared_width,
        )  # fmt: skip


def tensor_parallel_cases(costs: Costs, scenario: Scenario, model: Model, layout: Layout) -> Iterator[Case]:
    """The dense operators of a model: gather and scatter, or without sequence parallelism all-reduce."""
    hidden = float(model.hidden_size)
    known = place(costs, scenario, layout.tp, "all_gather") | {"n": hidden}
    if layout.sp:
        yield Case("all_gather_matmul", Facts(known | {"m": layout.tokens, "k": hidden, "n": None}), "in")
    after = "matmul_reduce_scatter" if layout.sp else "matmul_all_reduce"
    for role, inner in _inner_widths(model).items():
        yield Case(after, Facts(known | {"m": layout.gathered, "k": inner / layout.tp}), role)


def _inner_widths(model: Model) -> dict[str, float]:
    """Contractions of the matmuls that end an attention or a dense FFN, whole."""
    attention = {
        f"{name} out": float(mixer.heads * mixer.v_head_dim)
        for name, mixer in model.mixers.items()
        if not mixer.o_lora_rank
    }
    dense = any(group.ffn == "dense" for group in model.layers)
    return attention | ({"ffn2": float(model.dense_width)} if dense else {})


def model_cases(costs: Costs, scenario: Scenario, model: Model, layout: Layout) -> Iterator[Case]:
    """Every fused operator that a model uses under a layout."""
    if layout.tp > 1:
        yield from tensor_parallel_cases(costs, scenario, model, layout)
    if layout.ep > 1 and model.experts and routing_of(model, layout).fusible:
        yield from expert_cases(costs, scenario, ExpertSizes.of_model(model, layout))


def target_cases(costs: Costs, scenario: Scenario, ranks: float) -> Iterator[Case]:
    """The fused operators of a target that is an operator, or the expert path alone."""
    if ranks > 1 and scenario.target == MOE_LAYER:
        yield from expert_cases(costs, scenario, ExpertSizes.of_layer(scenario, ranks))
    elif ranks > 1:
        yield operator_case(costs, scenario, scenario.target, ranks)


# --- what serving stacks and frameworks use beside ------------------------------------------------------

DISPATCH = (
    "moe_distribute_dispatch",
    "moe_distribute_combine",
    "moe_combine_normal",
    "dispatch_ffn_combine",
    "mega_moe",
)
BATCHED = ("all_to_all_all_gather_batch_matmul", "batch_matmul_reduce_scatter_all_to_all")


def serving_cases(costs: Costs, scenario: Scenario, path: ExpertSizes) -> Iterator[Case]:
    """Dispatch and combine as operators of their own, and kernels that hold the whole expert path."""
    known = place(costs, scenario, path.ep, "all_to_all") | {
        "m": np.ceil(path.rows / path.top_k),
        "k": path.hidden,
        "n": path.width / scenario.tp,
        "experts": path.experts,
        "top_k": path.top_k,
        "payload_width": path.hidden,
    }
    for operator in (*DISPATCH, *(BATCHED if scenario.tp > 1 else ())):
        yield Case(operator, Facts(known))


def framework_cases(
    costs: Costs, scenario: Scenario, rows: Num, tp: float, path: ExpertSizes | None
) -> Iterator[Case]:
    """MindSpeed's switches: for tensor-parallel matmuls, and for the expert-parallel path."""
    known = {"m": rows, "tp": tp}
    if tp > 1:
        for operator in ("mindspeed_mc2", "coc"):
            yield Case(operator, Facts(place(costs, scenario, tp, "all_gather") | known))
    if path is not None and path.ep > 1:
        yield Case(
            "mindspeed_mm_dispatcher",
            Facts(place(costs, scenario, path.ep, "all_to_all") | {"experts": path.experts}),
        )
