"""Kernels of a rank's experts: grouped or one after the other, forward and backward; shared ones beside."""

from __future__ import annotations

import numpy as np

from mc2perf.costs import Cost, Costs, joined
from mc2perf.operators import DTYPES
from mc2perf.units import Num
from mc2perf.workload.gradients import FUSED_GRADIENT_BYTES, summed_apart
from mc2perf.workload.parts import Segment, Segments
from mc2perf.workload.routing import Routing


def expert_matmul(
    costs: Costs, r: Routing, name: str, k: float, n: float, pieces: Num, by_expert: bool
) -> Segment:
    """A matmul over the local experts, or over one of them: grouped, or one after the other."""
    rows, local = (r.rows(1.0) / pieces if by_expert else r.rows(pieces)), r.local_experts
    if not r.grouped:
        each = 1.0 if by_expert else local
        return _one_by_one(name, costs.matmul(name, rows / each, n, k, r.expert_dtype), each)
    groups = 1.0 if by_expert else local
    touched = r.touched_each() if by_expert else r.touched(pieces)
    sets = local if by_expert else 1.0
    return Segment(name, "compute", costs.matmul(name, rows, n, k, r.expert_dtype, groups, touched, sets))


def weight_grad(costs: Costs, r: Routing, name: str, k: float, n: float, pieces: Num) -> Segments:
    """Weight gradients of the local experts: k x n results, contracted over an expert's rows."""
    local, rows = r.local_experts, r.rows(pieces)
    size = None if not r.fused_gradients else FUSED_GRADIENT_BYTES
    if r.grouped:
        cost = costs.matmul(name, k * local, n, rows / local, r.expert_dtype, local, out_size=size)
        gradient = Segment(name, "compute", cost)
    else:
        gradient = _one_by_one(
            name, costs.matmul(name, k, n, rows / local, r.expert_dtype, out_size=size), local
        )
    return (gradient, *summed_apart(costs, r.fused_gradients, name, local * k * n / pieces))


def _one_by_one(name: str, cost: Cost, times: float) -> Segment:
    """The same kernel so many times, each launched."""
    return Segment(name, "compute", Cost(*(times * part for part in cost)), launches=times)


def activation(costs: Costs, r: Routing, name: str, pieces: Num, times: float) -> Segment:
    """Element-wise activation: reads the first matmul's result, writes the second's input."""
    moved = times * r.rows(pieces) * r.matrices * r.width * max(DTYPES[r.dtype].size, 2.0)
    cost = costs.vector(name, moved)
    kernels = 1.0 if r.grouped else r.local_experts
    return Segment(name, "compute", cost._replace(launch=kernels * cost.launch), launches=kernels)


def slower_kind(costs: Costs, r: Routing, pieces: Num, *routed: Segment) -> tuple[Segment, ...]:
    """Matmul, activation, matmul of the kind of rank that takes longer: of routed or of shared experts."""
    if not r.shared_ranks:
        return routed
    shared = _shared_kernels(costs, r, r.tokens * r.served / pieces, r.experts.shared_width)
    slower = np.greater(sum(cost.time for cost in shared), sum(segment.cost.time for segment in routed))
    return tuple(
        segment._replace(
            cost=Cost(*(np.where(slower, *both) for both in zip(own, segment.cost, strict=True)))
        )
        for own, segment in zip(shared, routed, strict=True)
    )


def _shared_kernels(costs: Costs, r: Routing, rows: Num, width: float) -> tuple[Cost, Cost, Cost]:
    """Matmul, activation, matmul of the shared experts."""
    return (
        costs.matmul("shared ffn1", rows, (r.matrices - 1) * width, r.hidden_size, r.dtype),
        costs.vector("shared activation", rows * r.matrices * width * 2.0),
        costs.matmul("shared ffn2", rows, r.hidden_size, width, r.dtype),
    )


def shared_experts(costs: Costs, r: Routing, times: float, pieces: Num) -> Segments:
    """Shared experts on the rank's own tokens, or cut like routed ones that have no ranks of their own.

    Cut, they use the rows gathered for the routed ones, or gather and scatter them for themselves.
    """
    width = r.experts.shared_width / (r.expert_tp if r.ep == 1 else 1.0)
    if not width or r.shared_ranks:
        return ()
    tokens = times * (r.group_tokens if r.ep == 1 else r.tokens) / pieces
    kernels = _shared_kernels(costs, r, tokens, width)
    experts = Segment("shared experts", "compute", joined(*kernels), launches=3.0)
    return (experts, *_around_shared(costs, r, tokens))


def _around_shared(costs: Costs, r: Routing, tokens: Num) -> Segments:
    """All-gather and reduce-scatter of shared experts that are cut, where an all-to-all brings the rows."""
    if r.ep > 1 or r.expert_tp == 1 or not r.sp or r.dispatcher == "all_gather":
        return ()
    size = tokens * r.hidden_size * max(DTYPES[r.dtype].size, 2.0)
    names = ("all_gather", "reduce_scatter")
    ways = (costs.collective("shared experts", name, size, r.expert_tp) for name in names)
    return (Segment("shared experts slices", "comm", joined(*ways), "tp", launches=2.0),)
