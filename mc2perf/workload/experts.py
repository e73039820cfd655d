"""The expert path of an MoE layer: gate, counts, permute, dispatch, experts, combine, unpermute.

Forward, and its mirror image backward: dispatch and combine change places, every matmul has an input
gradient on the path and a weight gradient beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mc2perf.costs import Copies, Cost, Costs
from mc2perf.equations import routing, skew
from mc2perf.equations.skew import Loads
from mc2perf.model import Experts
from mc2perf.operators import DTYPES
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, ExpertPieces, Segment, Segments, inverse_shares

COUNT_BYTES = 8.0
"""One token count travels as a 64-bit integer. [B]"""

SCORE_BYTES = 8.0
"""A router score is written and read once as float32. [B]"""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Everything that decides the traffic and the rows of an expert path."""

    experts: Experts
    hidden_size: float
    matrices: float
    tokens: Num
    ep: float
    servers: float
    dtype: str
    dispatch_dtype: str
    combine_dtype: str
    busiest: Busiest = Busiest()
    redundant: float = 0.0
    capacity_factor: float | None = None
    expert_tp: float = 1.0

    @property
    def local_experts(self) -> float:
        """Experts on one rank, copies included."""
        return (self.experts.count + self.redundant) / self.ep

    @property
    def local(self) -> tuple[float, ...]:
        """Loads of the busiest rank's experts where they differ; a capacity makes all of them alike."""
        return self.busiest.local if self.capacity_factor is None else ()

    @property
    def by_expert(self) -> Num:
        """Pieces like a local expert in the rank's rows; where they differ, of each along the first axis."""
        if not self.local:
            return float(self.local_experts)
        return inverse_shares(self.local)

    def load(self, pieces: Num) -> Num:
        """Rows of the busiest rank over tokens x top_k; by chance the more the fewer tokens a piece has."""
        if self.capacity_factor is not None:
            return self.capacity_factor
        return self.busiest.factor(self.tokens * self.experts.top_k / pieces)

    @property
    def width(self) -> float:
        """Inner width of an expert on one rank."""
        return self.experts.width / self.expert_tp

    def rows(self, pieces: Num) -> Num:
        """Rows that one rank's experts compute for one piece."""
        return self.tokens * self.experts.top_k * self.load(pieces) / pieces

    @property
    def chances(self) -> Loads:
        """Chance of a token to go to each of the busiest rank's experts, where they differ."""
        slots = self.experts.count + self.redundant
        return np.minimum(np.array(self.local) * self.experts.top_k / slots, 1.0)

    def touched(self, pieces: Num) -> Num:
        """Local experts of the busiest rank that get at least one row of a piece, expected."""
        slots, tokens = self.experts.count + self.redundant, self.tokens * self.ep / pieces
        if self.local:
            return skew.slots_with_rows(self.chances, tokens)
        return routing.distinct_experts(slots, self.experts.top_k, tokens) / self.ep

    def touched_each(self) -> Num:
        """The same of each local expert, the experts along the first axis where they differ."""
        if not self.local:
            return self.touched(1.0) / self.local_experts
        chances = self.chances[self.chances > 0.0].reshape(-1, 1, 1)
        each: Num = 1.0 - (1.0 - chances) ** (self.tokens * self.ep)
        return each

    def kept(self, places: float) -> float:
        """Share of a token's copies that is left where each of so many places gets only one."""
        e = self.experts
        distinct = routing.distinct_servers(e.count, e.top_k, places, e.groups, e.top_groups)
        return min(distinct / e.top_k, 1.0)


def expert_path(costs: Costs, r: Routing) -> ExpertPath:
    """The forward expert path."""
    return _path("experts", _forward, costs, r)


def expert_path_backward(costs: Costs, r: Routing) -> ExpertPath:
    """The backward expert path."""
    return _path("experts backward", _backward, costs, r)


def _path(name: str, build: Callable[..., ExpertPieces], costs: Costs, r: Routing) -> ExpertPath:
    return ExpertPath(name, r.ep, int(r.local_experts), r.tokens, partial(build, costs, r), r.by_expert)


def _forward(costs: Costs, r: Routing, pieces: Num, by_expert: bool) -> ExpertPieces:
    share = 1.0 if by_expert else pieces
    return ExpertPieces(
        before=before_dispatch(costs, r, share),
        comm_in=exchange(costs, r, "dispatch", r.dispatch_dtype, pieces, by_expert),
        first=grouped(
            costs, r, "ffn1", r.experts.payload_width, (r.matrices - 1) * r.width, pieces, by_expert
        ),
        middle=(activation(costs, r, "activation", share, 1.0),),
        second=grouped(costs, r, "ffn2", r.width, r.experts.payload_width, pieces, by_expert),
        comm_out=exchange(costs, r, "combine", r.combine_dtype, pieces, by_expert),
        after=after_combine(costs, r, share),
        beside=shared_experts(costs, r, 1.0, share),
    )


def _backward(costs: Costs, r: Routing, pieces: Num, by_expert: bool) -> ExpertPieces:
    share = 1.0 if by_expert else pieces
    inner, payload = (r.matrices - 1) * r.width, r.experts.payload_width
    return ExpertPieces(
        before=(
            *_latent(costs, r, "latent up dgrad", r.tokens / share, payload, r.hidden_size),
            _moved(costs, r, "unpermute backward", 2.0, share),
        ),
        comm_in=exchange(costs, r, "combine backward", r.combine_dtype, pieces, by_expert),
        first=grouped(costs, r, "ffn2 dgrad", payload, r.width, pieces, by_expert),
        middle=(activation(costs, r, "activation backward", share, 2.0),),
        second=grouped(costs, r, "ffn1 dgrad", inner, payload, pieces, by_expert),
        comm_out=exchange(costs, r, "dispatch backward", r.combine_dtype, pieces, by_expert),
        after=(
            _moved(costs, r, "permute backward", 2.0, share),
            *_latent(costs, r, "latent down dgrad", r.tokens / share, r.hidden_size, payload),
            *_gate_backward(costs, r, share),
        ),
        weight_grads=(
            *_latent(costs, r, "latent down wgrad", r.hidden_size, payload, r.tokens / share),
            *_latent(costs, r, "latent up wgrad", payload, r.hidden_size, r.tokens / share),
            weight_grad(costs, r, "ffn1 wgrad", payload, inner, share),
            weight_grad(costs, r, "ffn2 wgrad", r.width, payload, share),
        ),
        beside=shared_experts(costs, r, 2.0, share),
    )


def before_dispatch(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Gate, projection to a latent width; unless the dispatch does it, counts, permute (and quantise)."""
    tokens, e = r.tokens / pieces, r.experts
    gate = costs.matmul("gate", tokens, e.count, r.hidden_size, r.dtype)
    scores = costs.vector("scores", tokens * e.count * SCORE_BYTES)
    first = (
        Segment("gate", "compute", joined(gate, scores)),
        *_latent(costs, r, "latent down", tokens, e.payload_width, r.hidden_size),
    )
    if costs.sorts_tokens(r.ep):
        return first
    counts = costs.collective("counts", "all_gather", e.count * r.ep * COUNT_BYTES, r.ep)
    return (
        *first,
        *((Segment("counts", "comm", counts, "ep"),) if r.ep > 1 else ()),
        _moved(costs, r, "permute", 2.0 + (r.dispatch_dtype != r.dtype), pieces),
    )


def after_combine(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Unless the combine does it, the weighted sum in token order; projection from a latent width."""
    tokens, e = r.tokens / pieces, r.experts
    summed = () if costs.sorts_tokens(r.ep) else (_moved(costs, r, "unpermute", 1.0 + 1.0 / e.top_k, pieces),)
    return (
        *summed,
        *_latent(costs, r, "latent up", tokens, r.hidden_size, e.payload_width),
    )


def _latent(costs: Costs, r: Routing, name: str, rows: Num, n: Num, k: Num) -> Segments:
    """A matmul of the projections to and from a latent width, where there are any."""
    if r.experts.payload_width == r.hidden_size:
        return ()
    return (Segment(name, "compute", costs.matmul(name, rows, n, k, r.dtype)),)


def _gate_backward(costs: Costs, r: Routing, pieces: Num) -> Segments:
    once = costs.matmul("gate backward", 2.0 * r.tokens / pieces, r.experts.count, r.hidden_size, r.dtype)
    return (Segment("gate backward", "compute", once),)


def _moved(costs: Costs, r: Routing, name: str, passes: float, pieces: Num) -> Segment:
    """Rows re-ordered: so many passes over tokens x top_k x width."""
    item = max(DTYPES[r.dtype].size, 2.0)
    moved = passes * r.tokens / pieces * r.experts.top_k * r.experts.payload_width * item
    return Segment(name, "compute", costs.vector(name, moved))


def exchange(
    costs: Costs, r: Routing, name: str, dtype: str, pieces: Num, by_expert: bool = False
) -> Segment:
    """The all-to-all of the busiest rank, or of each of its experts."""
    item, e = DTYPES[dtype], r.experts
    load = r.load(1.0 if by_expert else pieces)
    size = costs.ledger.run(
        f"{name}: bytes", routing.dispatch_bytes,
        tokens=r.tokens * load / pieces, top_k=e.top_k, payload_width=e.payload_width,
        item_size=item.size, scale_bytes=item.scale_bytes_per_row(e.payload_width),
    )  # fmt: skip
    copies = Copies(r.tokens * load / pieces * e.top_k, r.kept(r.ep), r.kept(r.servers))
    return Segment(name, "comm", costs.collective(name, "all_to_all", size, r.ep, copies), "ep")


def grouped(costs: Costs, r: Routing, name: str, k: float, n: float, pieces: Num, by_expert: bool) -> Segment:
    """A grouped matmul over the local experts, or over one of them."""
    rows = r.rows(1.0) / pieces if by_expert else r.rows(pieces)
    groups = 1.0 if by_expert else r.local_experts
    touched = r.touched_each() if by_expert else r.touched(pieces)
    sets = r.local_experts if by_expert else 1.0
    return Segment(name, "compute", costs.matmul(name, rows, n, k, r.dtype, groups, touched, sets))


def weight_grad(costs: Costs, r: Routing, name: str, k: float, n: float, pieces: Num) -> Segment:
    """Weight gradients of the local experts: k x n results, contracted over an expert's rows."""
    local = r.local_experts
    cost = costs.matmul(name, k * local, n, r.rows(pieces) / local, r.dtype, local)
    return Segment(name, "compute", cost)


def activation(costs: Costs, r: Routing, name: str, pieces: Num, times: float) -> Segment:
    """Element-wise activation: reads the first matmul's result, writes the second's input."""
    moved = times * r.rows(pieces) * r.matrices * r.width * max(DTYPES[r.dtype].size, 2.0)
    return Segment(name, "compute", costs.vector(name, moved))


def shared_experts(costs: Costs, r: Routing, times: float, pieces: Num) -> Segments:
    """Shared experts on the rank's own tokens."""
    width = r.experts.shared_width
    if not width:
        return ()
    tokens = times * r.tokens / pieces
    up = costs.matmul("shared ffn1", tokens, (r.matrices - 1) * width, r.hidden_size, r.dtype)
    act = costs.vector("shared activation", tokens * r.matrices * width * 2.0)
    down = costs.matmul("shared ffn2", tokens, r.hidden_size, width, r.dtype)
    return (Segment("shared experts", "compute", joined(up, act, down)),)


def joined(*costs: Cost) -> Cost:
    """Several kernels in a row, as one segment."""
    return Cost(*(sum(parts, 0.0) for parts in zip(*costs, strict=True)))
