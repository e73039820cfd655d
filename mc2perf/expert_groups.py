"""Which experts on which ranks a scenario spreads its tokens over, and what contradicts that."""

from __future__ import annotations

from collections.abc import Iterator

from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.scenario import Scenario
from mc2perf.skew import Busiest, Group


def operator_group(scenario: Scenario, ranks: float) -> Group | None:
    """What the tokens of an operator are spread over; a grouped matmul does not say how many one goes to."""
    operator = OPERATORS.get(scenario.target)
    if operator is not None and not operator.grouped:
        return None
    top_k = scenario.top_k if scenario.target == MOE_LAYER else 1.0
    return _group(scenario, scenario.experts_per_rank * ranks, ranks, top_k)


def model_group(scenario: Scenario, model: Model, ep: float) -> Group | None:
    """What the tokens of a model are spread over; nothing in a dense one."""
    if model.experts is None:
        return None
    return _group(scenario, model.experts.count, ep, model.experts.top_k)


def _group(scenario: Scenario, experts: float, ranks: float, top_k: float) -> Group:
    copies = scenario.redundant_experts
    return Group(int(experts), int(ranks), int(top_k), None if copies is None else int(copies))


def busiest_of(scenario: Scenario, group: Group | None) -> Busiest:
    """The rank that all others wait for."""
    return scenario.skew.busiest(group) if group else Busiest()


def skew_problems(scenario: Scenario, group: Group | None) -> Iterator[str]:
    """A skew that this group of ranks cannot have, copies that do not spread over it."""
    if group is None:
        given = {"skew": not scenario.skew.even, "redundant_experts": scenario.redundant_experts is not None}
        named = (name for name, is_given in given.items() if is_given)
        yield from (f"{name}: {scenario.target} has no experts; leave it out" for name in named)
        return
    if (group.experts % group.ranks and not group.copies) or group.top_k > group.experts:
        return  # said already
    if group.slots % group.ranks:
        most = f"{group.slots} experts with their copies do not divide by {group.ranks} ranks"
        yield f"redundant_experts: {most}; write {-group.experts % group.ranks or group.ranks}"
        return
    if group.copies and (group.ranks == 1 or (scenario.phase == "train" and scenario.target != MOE_LAYER)):
        only = "one rank holds every expert" if group.ranks == 1 else "is of prefill and decode"
        yield f"redundant_experts: {only}; leave it out"
    if scenario.capacity_factor is not None and not scenario.skew.even:
        yield "skew: a capacity_factor gives every expert as many rows; leave one of both out"
    yield from scenario.skew.problems(group)
