"""The expert path of an MoE layer: gate, counts, permute, dispatch, experts, combine, unpermute.

Forward, and its mirror image backward: dispatch and combine change places, every matmul has an input
gradient on the path and a weight gradient beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mc2perf.costs import Costs
from mc2perf.units import Num
from mc2perf.workload.dispatch import (
    after_combine,
    arrival,
    before_dispatch,
    departure,
    gate_backward,
    latent,
    reordered,
    slices_joined,
)
from mc2perf.workload.expert_kernels import (
    activation,
    expert_matmul,
    shared_experts,
    slower_kind,
    weight_grad,
)
from mc2perf.workload.parts import ExpertPath, ExpertPieces
from mc2perf.workload.routing import Routing


def expert_path(costs: Costs, r: Routing) -> ExpertPath:
    """The forward expert path."""
    return _path("experts", _forward, costs, r)


def expert_path_backward(costs: Costs, r: Routing) -> ExpertPath:
    """The backward expert path."""
    return _path("experts backward", _backward, costs, r)


def _path(name: str, build: Callable[..., ExpertPieces], costs: Costs, r: Routing) -> ExpertPath:
    local, pieces = int(r.local_experts), partial(build, costs, r)
    return ExpertPath(name, r.ep, local, r.tokens, pieces, r.by_expert, r.fusible)


def _forward(costs: Costs, r: Routing, pieces: Num, by_expert: bool) -> ExpertPieces:
    share = 1.0 if by_expert else pieces
    payload, up = r.experts.payload_width, (r.matrices - 1) * r.width
    first, between, second = slower_kind(
        costs, r, pieces,
        expert_matmul(costs, r, "ffn1", payload, up, pieces, by_expert),
        activation(costs, r, "activation", share, 1.0),
        expert_matmul(costs, r, "ffn2", r.width, payload, pieces, by_expert),
    )  # fmt: skip
    return ExpertPieces(
        before=before_dispatch(costs, r, share),
        comm_in=arrival(costs, r, "dispatch", r.dispatch_dtype, pieces, by_expert),
        first=first,
        middle=(between, *slices_joined(costs, r, "slices joined", share)),
        second=second,
        comm_out=departure(costs, r, "combine", r.combine_dtype, pieces, by_expert),
        after=after_combine(costs, r, share),
        beside=shared_experts(costs, r, 1.0, share),
    )


def _backward(costs: Costs, r: Routing, pieces: Num, by_expert: bool) -> ExpertPieces:
    share = 1.0 if by_expert else pieces
    inner, payload = (r.matrices - 1) * r.width, r.experts.payload_width
    return ExpertPieces(
        before=(
            *latent(costs, r, "latent up dgrad", r.tokens / share, payload, r.hidden_size),
            *reordered(costs, r, "unpermute backward", 2.0, share),
        ),
        comm_in=arrival(costs, r, "combine backward", r.combine_dtype, pieces, by_expert),
        first=expert_matmul(costs, r, "ffn2 dgrad", payload, r.width, pieces, by_expert),
        middle=(
            activation(costs, r, "activation backward", share, 2.0),
            *slices_joined(costs, r, "slices joined backward", share),
        ),
        second=expert_matmul(costs, r, "ffn1 dgrad", inner, payload, pieces, by_expert),
        comm_out=departure(costs, r, "dispatch backward", r.combine_dtype, pieces, by_expert),
        after=(
            *reordered(costs, r, "permute backward", 2.0, share),
            *latent(costs, r, "latent down dgrad", r.tokens / share, r.hidden_size, payload),
            *gate_backward(costs, r, share),
        ),
        weight_grads=(
            *latent(costs, r, "latent down wgrad", r.hidden_size, payload, r.tokens / share),
            *latent(costs, r, "latent up wgrad", payload, r.hidden_size, r.tokens / share),
            *weight_grad(costs, r, "ffn1 wgrad", payload, inner, share),
            *weight_grad(costs, r, "ffn2 wgrad", r.width, payload, share),
        ),
        beside=shared_experts(costs, r, 2.0, share),
    )
