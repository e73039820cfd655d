"""May this schedule run here? Rules as data: who supports what, with the source of each rule."""

from __future__ import annotations

from dataclasses import dataclass

from mc2perf.costs import Costs
from mc2perf.scenario import Scenario


@dataclass(frozen=True)
class Verdict:
    """Legal, or why not; ``serial`` says that the software falls back to unfused execution."""

    legal: bool
    reason: str = ""
    serial: bool = False


LEGAL = Verdict(True)

RANKS: dict[tuple[str, str], tuple[int, ...]] = {
    # aclnnAllGatherMatmul(V2), aclnnMatmulReduceScatter(V2), ops-transformer docs 2025-11 and 2026
    ("dense", "a2"): (2, 4, 8),
    ("dense", "a3"): (2, 4, 8, 16, 32),
    ("dense", "950"): (2, 4, 8, 16, 32, 64),
    # aclnnMatmulAllReduce: A2 full mesh; the A3 is not listed
    ("matmul_all_reduce", "a2"): (2, 4, 8),
    ("matmul_all_reduce", "a3"): (),
    ("matmul_all_reduce", "950"): (2, 4, 8, 16, 32, 64),
    # aclnnAlltoAllMatmul and its mirror
    ("all_to_all", "a2"): (2, 4, 8),
    ("all_to_all", "a3"): (2, 4, 8, 16),
    ("all_to_all", "950"): (2, 4, 8, 16),
    # aclnnAlltoAllvGroupedMatMul V2 (2026): A2 in AIV mode, A3 2-128, 950DT 2-64
    ("grouped", "a2"): (2, 4, 8),
    ("grouped", "a3"): (2, 4, 8, 16, 32, 64, 128),
    ("grouped", "950"): (2, 4, 8, 16, 32, 64),
}
"""Operator family and machine family -> rank counts that CANN's fused operator accepts."""

FAMILY = {
    "all_gather_matmul": "dense",
    "matmul_reduce_scatter": "dense",
    "matmul_all_reduce": "matmul_all_reduce",
    "all_to_all_matmul": "all_to_all",
    "matmul_all_to_all": "all_to_all",
    "all_to_all_v_grouped_matmul": "grouped",
    "grouped_matmul_all_to_all_v": "grouped",
}
"""Operator -> row of ``RANKS``."""

COC_OPERATORS = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")
"""What MindSpeed's CoC cuts (its feature page: tensor-parallel matmuls, no MoE)."""


def fused(costs: Costs, scenario: Scenario, operator: str, ranks: float) -> Verdict:
    """Whether CANN's fused operator runs for this group.

    Parameters
    ----------
    costs : Costs
        Prices on the machine, for its family, tiers and engines.
    scenario : Scenario
        For the CANN version and RDMA.
    operator : str
        Name of the fused operator.
    ranks : float
        Ranks of the group.
    """
    machine = costs.machine
    if machine.family == "gpu":
        return Verdict(False, "MC2 is part of CANN; this machine is not an Ascend")
    spanned = costs.tiers_for(ranks)
    beyond = undocumented_ranks(costs, operator, ranks)
    if beyond and len(spanned) == 1:
        return Verdict(False, beyond)
    for name, tier in spanned:
        engine_name, engine = costs.engine_of(tier)
        if not engine.interleaves:
            return Verdict(False, f"engine {engine_name} ({name}) cannot be interleaved inside a kernel")
    return _across(scenario, [tier.needs_rdma for _, tier in spanned])


def one_handle_each(costs: Costs, experts: int) -> Verdict:
    """Grouped operators issue the exchange of every local expert up front, a handle each."""
    limits = costs.machine.limits
    costs.ledger.use("limits.handles", limits.handles)
    if experts <= limits.handles:
        return LEGAL
    return Verdict(False, f"{experts} local experts; HCCL has {limits.handles:g} handles, one for each")


def undocumented_ranks(costs: Costs, operator: str, ranks: float) -> str:
    """Say it when the operator's document does not list this many ranks on this family of machines."""
    family = costs.machine.family
    allowed = RANKS.get((FAMILY[operator], family), ())
    if ranks <= 1 or ranks in allowed:
        return ""
    return f"{operator} takes {', '.join(map(str, allowed)) or 'no'} ranks on {family}, not {ranks:g}"


def _across(scenario: Scenario, needs_rdma: list[bool]) -> Verdict:
    if len(needs_rdma) == 1:
        return LEGAL
    if scenario.cann == "8.0":
        return Verdict(True, "CANN 8.0 fuses inside one server only; across servers it stays serial", True)
    if any(needs_rdma) and not scenario.rdma:
        return Verdict(True, "without RDMA the fused operator falls back to serial across servers", True)
    return LEGAL


def parts_allowed(operator: str) -> Verdict:
    """Whether CoC may cut this operator."""
    if operator not in COC_OPERATORS:
        return Verdict(
            False, "CoC cuts tensor-parallel matmuls only; this is an exchange of experts or heads"
        )
    return LEGAL
