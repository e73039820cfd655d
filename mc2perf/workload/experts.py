"""The expert path of an MoE layer: gate, counts, permute, dispatch, experts, combine, unpermute.

Forward, and its mirror image backward: dispatch and combine change places, every matmul has an input
gradient on the path and a weight gradient beside it. How tokens reach their experts is a row of
``DISPATCHERS``; experts may be cut over the ranks of a tensor-parallel group besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from mc2perf.costs import Copies, Cost, Costs
from mc2perf.equations import routing, skew
from mc2perf.equations.skew import Loads
from mc2perf.model import Experts
from mc2perf.operators import DTYPES, unquantised
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, ExpertPieces, Segment, Segments, inverse_shares

COUNT_BYTES = 8.0
"""One token count travels as a 64-bit integer. [B]"""

SCORE_BYTES = 8.0
"""A router score is written and read once as float32. [B]"""

FUSED_GRADIENT_BYTES = 8.0
"""A matmul that adds to a float32 gradient reads and writes it. [B]"""

APART_GRADIENT_BYTES = 10.0
"""A gradient of 16 bit is read again, one of float32 read and written (Megatron-LM, without fusion). [B]"""


class Dispatcher(NamedTuple):
    """How tokens reach their experts: collectives, kernels that re-order rows, reads of the host.

    ``reorders`` counts kernels that gather or scatter the rows of a rank by an index, on the way in and as
    many on the way out, ``by_expert`` those that only several local experts need. ``reads`` are results
    that the host waits for before it can issue the experts: their shapes depend on them.
    """

    into: str
    out: str
    reorders: float
    by_expert: float
    reads: float


DISPATCHERS = {
    # permute, then sort what has arrived by local expert; counts go to the host, which splits by them
    "all_to_all": Dispatcher("all_to_all", "all_to_all", 1.0, 1.0, 1.0),
    # select the rows of local experts among all tokens, then sort them; two masks, their places, counts
    "all_gather": Dispatcher("all_gather", "reduce_scatter", 2.0, 0.0, 4.0),
}
"""How tokens reach their experts (Megatron-LM core v0.7, transformer/moe/token_dispatcher.py)."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Everything that decides the traffic and the rows of an expert path.

    ``tokens`` are those of one rank; experts are cut over ``expert_tp`` ranks, which bring their tokens
    together first. Routed experts have weights of ``expert_dtype``, all others of ``dtype``.
    ``shared_ranks`` of the ep ranks hold the shared experts and nothing else: every token is sent to one of
    them besides, and the slower kind of rank sets the pace. ``dynamic``: shapes depend on the routing, and
    the host reads it before it goes on.

    References
    ----------
    CANN, aclnnMoeDistributeDispatch, sharedExpertRankNum; CloudMatrix384, arXiv 2506.12708.
    """

    experts: Experts
    hidden_size: float
    matrices: float
    tokens: Num
    ep: float
    servers: float
    dtype: str
    expert_dtype: str
    dispatch_dtype: str
    combine_dtype: str
    busiest: Busiest = Busiest()
    redundant: float = 0.0
    shared_ranks: float = 0.0
    capacity_factor: float | None = None
    expert_tp: float = 1.0
    sp: bool = True
    dispatcher: str = "all_to_all"
    grouped: bool = True
    fused_permute: bool = True
    fused_gradients: bool = True
    pad: bool = True
    dynamic: bool = False

    @property
    def by(self) -> Dispatcher:
        """How tokens reach their experts."""
        return DISPATCHERS[self.dispatcher]

    @property
    def fusible(self) -> bool:
        """CANN fuses all-to-alls with grouped matmuls of whole experts (aclnnAlltoAllvGroupedMatMul)."""
        alike = self.expert_tp == 1.0 and not self.shared_ranks
        return self.dispatcher == "all_to_all" and self.grouped and alike

    @property
    def group_tokens(self) -> Num:
        """Tokens of the ranks that hold slices of the same experts."""
        return self.tokens * self.expert_tp

    @property
    def routed_ranks(self) -> float:
        """Ranks that the routed experts are cut over."""
        return self.ep - self.shared_ranks

    @property
    def mean_rows(self) -> Num:
        """Rows that the routed experts of a rank get on average."""
        return self.group_tokens * self.experts.top_k * (self.ep / self.routed_ranks)

    @property
    def local_experts(self) -> float:
        """Experts on one rank, copies included."""
        return (self.experts.count + self.redundant) / self.routed_ranks

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
        """Rows of the busiest rank over the mean; by chance the more the fewer tokens a piece has."""
        if self.capacity_factor is not None and self.pad:
            return self.capacity_factor
        load = self.busiest.factor(self.mean_rows / pieces)
        return load if self.capacity_factor is None else np.minimum(load, self.capacity_factor)

    @property
    def width(self) -> float:
        """Inner width of an expert on one rank."""
        return self.experts.width / self.expert_tp

    def rows(self, pieces: Num) -> Num:
        """Rows that one rank's experts compute for one piece."""
        return self.mean_rows * self.load(pieces) / pieces

    @property
    def served(self) -> float:
        """Ranks whose tokens a rank of shared experts computes, the fullest one; 0 without such ranks."""
        return float(np.ceil(self.ep / self.shared_ranks)) if self.shared_ranks else 0.0

    def copies(self, load: Num) -> Num:
        """Rows over its tokens of the rank that sends or receives most."""
        routed = self.experts.top_k * (self.ep / self.routed_ranks) * load
        if not self.shared_ranks:
            return routed
        return np.maximum(routed, max(self.experts.top_k + 1.0, self.served))

    @property
    def chances(self) -> Loads:
        """Chance of a token to go to each of the busiest rank's experts, where they differ."""
        slots = self.experts.count + self.redundant
        return np.minimum(np.array(self.local) * self.experts.top_k / slots, 1.0)

    def touched(self, pieces: Num) -> Num:
        """Local experts of the busiest rank that get at least one row of a piece, expected."""
        slots, tokens = self.experts.count + self.redundant, self.group_tokens * self.ep / pieces
        if self.local:
            return skew.slots_with_rows(self.chances, tokens)
        return routing.distinct_experts(slots, self.experts.top_k, tokens) / self.routed_ranks

    def touched_each(self) -> Num:
        """The same of each local expert, the experts along the first axis where they differ."""
        if not self.local:
            return self.touched(1.0) / self.local_experts
        chances = self.chances[self.chances > 0.0].reshape(-1, 1, 1)
        each: Num = 1.0 - (1.0 - chances) ** (self.group_tokens * self.ep)
        return each

    def kept(self, places: float) -> float:
        """Share of a token's copies that is left where each of so many places gets only one."""
        e = self.experts
        if self.shared_ranks or e.count % places:
            return 1.0
        distinct = routing.distinct_servers(e.count, e.top_k, places, e.groups, e.top_groups)
        return min(distinct / e.top_k, 1.0)


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
    first, between, second = _slower_kind(
        costs, r, pieces,
        expert_matmul(costs, r, "ffn1", payload, up, pieces, by_expert),
        activation(costs, r, "activation", share, 1.0),
        expert_matmul(costs, r, "ffn2", r.width, payload, pieces, by_expert),
    )  # fmt: skip
    return ExpertPieces(
        before=before_dispatch(costs, r, share),
        comm_in=arrival(costs, r, "dispatch", r.dispatch_dtype, pieces, by_expert),
        first=first,
        middle=(between, *_slices_joined(costs, r, "slices joined", share)),
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
            *_latent(costs, r, "latent up dgrad", r.tokens / share, payload, r.hidden_size),
            *_reordered(costs, r, "unpermute backward", 2.0, share),
        ),
        comm_in=arrival(costs, r, "combine backward", r.combine_dtype, pieces, by_expert),
        first=expert_matmul(costs, r, "ffn2 dgrad", payload, r.width, pieces, by_expert),
        middle=(
            activation(costs, r, "activation backward", share, 2.0),
            *_slices_joined(costs, r, "slices joined backward", share),
        ),
        second=expert_matmul(costs, r, "ffn1 dgrad", inner, payload, pieces, by_expert),
        comm_out=departure(costs, r, "dispatch backward", r.combine_dtype, pieces, by_expert),
        after=(
            *_reordered(costs, r, "permute backward", 2.0, share),
            *_latent(costs, r, "latent down dgrad", r.tokens / share, r.hidden_size, payload),
            *_gate_backward(costs, r, share),
        ),
        weight_grads=(
            *_latent(costs, r, "latent down wgrad", r.hidden_size, payload, r.tokens / share),
            *_latent(costs, r, "latent up wgrad", payload, r.hidden_size, r.tokens / share),
            *weight_grad(costs, r, "ffn1 wgrad", payload, inner, share),
            *weight_grad(costs, r, "ffn2 wgrad", r.width, payload, share),
        ),
        beside=shared_experts(costs, r, 2.0, share),
    )


# --- around the experts ------------------------------------------------------------------------------------


def before_dispatch(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Gate, projection to a latent width; unless the dispatch does it, counts, permute (and quantise)."""
    tokens, e = r.tokens / pieces, r.experts
    gate = costs.matmul("gate", tokens, e.count, r.hidden_size, unquantised(r.dtype))
    scores = costs.vector("scores", tokens * e.count * SCORE_BYTES)
    first = (
        Segment("gate", "compute", joined(gate, scores)),
        *_latent(costs, r, "latent down", tokens, e.payload_width, r.hidden_size),
    )
    if _sorted_on_the_way(costs, r):
        return first
    permute = _reordered(costs, r, "permute", 2.0 + (r.dispatch_dtype != r.dtype), pieces)
    # the host waits for what it must know of the routing, then issues the rest
    permute = (permute[0]._replace(reads=r.by.reads * r.dynamic), *permute[1:])
    return (*first, *_counts(costs, r), *permute)


def _sorted_on_the_way(costs: Costs, r: Routing) -> bool:
    """Whether the kernels of the exchange count, permute and sum tokens themselves."""
    return r.dispatcher == "all_to_all" and costs.sorts_tokens(r.ep)


def _counts(costs: Costs, r: Routing) -> Segments:
    """Every rank learns how many rows each expert gets of each rank; an all-gather brings the indices."""
    if r.ep == 1 or r.dispatcher == "all_gather":
        return ()
    size = r.experts.count * r.ep * COUNT_BYTES
    counts = costs.collective("counts", "all_gather", size, r.ep, stride=r.expert_tp)
    return (Segment("counts", "comm", counts, "ep"),)


def after_combine(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Unless the combine does it, the weighted sum in token order; projection from a latent width."""
    tokens, e = r.tokens / pieces, r.experts
    sums = _sorted_on_the_way(costs, r)
    summed = () if sums else _reordered(costs, r, "unpermute", 1.0 + 1.0 / e.top_k, pieces)
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
    once = costs.matmul(
        "gate backward", 2.0 * r.tokens / pieces, r.experts.count, r.hidden_size, unquantised(r.dtype)
    )
    return (Segment("gate backward", "compute", once),)


def _reordered(costs: Costs, r: Routing, name: str, passes: float, pieces: Num) -> Segments:
    """Rows re-ordered: so many passes over them in one kernel, or a kernel for every gather and scatter.

    Before an all-to-all a rank re-orders the copies of its own tokens, after an all-gather those rows of
    all tokens that its experts compute.
    """
    item, width = max(DTYPES[r.dtype].size, 2.0), r.experts.payload_width
    own = r.tokens * r.experts.top_k / pieces
    moved = width * item * (own if r.dispatcher == "all_to_all" and r.sp else r.rows(pieces))
    if r.fused_permute:
        return (Segment(name, "compute", costs.vector(name, passes * moved)),)
    kernels = r.by.reorders + r.by.by_expert * (r.local_experts > 1)
    return (Segment(name, "compute", costs.reorder(name, 2.0 * moved, kernels), launches=kernels),)


# --- to the experts and back -------------------------------------------------------------------------------


def arrival(costs: Costs, r: Routing, name: str, dtype: str, pieces: Num, by_expert: bool = False) -> Segment:
    """What brings rows to the ranks of their experts, whole: over ep, then over the slices of an expert."""
    ways = _ways(costs, r, name, dtype, pieces, by_expert, r.by.into, "all_gather")
    return Segment(name, "comm", joined(*ways), "ep")


def departure(
    costs: Costs, r: Routing, name: str, dtype: str, pieces: Num, by_expert: bool = False
) -> Segment:
    """The way back: slices summed, then over ep."""
    ways = _ways(costs, r, name, dtype, pieces, by_expert, r.by.out, "reduce_scatter")
    return Segment(name, "comm", joined(*ways), "ep")


def _ways(
    costs: Costs, r: Routing, name: str, dtype: str, pieces: Num, by_expert: bool, exchange: str, slices: str
) -> tuple[Cost, ...]:
    """The collectives of one direction: of the busiest rank, or of each of its experts."""
    item, e = DTYPES[dtype], r.experts
    row = e.payload_width * item.size + item.scale_bytes_per_row(e.payload_width)
    load = r.load(1.0 if by_expert else pieces)
    if not r.sp:
        # every rank of a slice has all tokens; only the sums of the slices travel
        back = slices == "reduce_scatter"
        size = r.group_tokens / pieces * row
        return (costs.collective(name, "all_reduce", size, r.expert_tp if back else 1.0),)
    if exchange != "all_to_all":
        ranks = r.expert_tp * r.ep
        return (costs.collective(name, exchange, r.tokens * ranks / pieces * row, ranks),)
    size = costs.ledger.run(
        f"{name}: bytes", routing.dispatch_bytes,
        tokens=r.tokens / pieces, top_k=r.copies(load), payload_width=e.payload_width,
        item_size=item.size, scale_bytes=item.scale_bytes_per_row(e.payload_width),
    )  # fmt: skip
    copies = Copies(r.tokens / pieces * r.copies(load), r.kept(r.ep), r.kept(r.servers))
    across = costs.collective(name, "all_to_all", size, r.ep, copies, stride=r.expert_tp)
    if r.expert_tp == 1.0:
        return (across,)
    return (across, costs.collective(f"{name} slices", slices, size * r.expert_tp, r.expert_tp))


def _slices_joined(costs: Costs, r: Routing, name: str, pieces: Num) -> Segments:
    """Rows that travel cut over the slices of an expert are joined before it, and cut again after it.

    Megatron-LM core v0.7, tensor_parallel/mappings.py: gathers and scatters of the last dimension copy.
    """
    if r.expert_tp == 1 or r.dispatcher == "all_gather" or not r.sp:
        return ()
    moved = 4.0 * r.rows(pieces) * r.experts.payload_width * max(DTYPES[r.dtype].size, 2.0)
    return (Segment(name, "compute", costs.vector(name, moved), launches=2.0),)


# --- the experts -------------------------------------------------------------------------------------------


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


def summed_apart(costs: Costs, fused: bool, name: str, weights: Num) -> Segments:
    """A pass that adds a weight gradient to those of the micro-batches before."""
    if fused:
        return ()
    label = f"{name} added"
    return (Segment(label, "compute", costs.vector(label, weights * APART_GRADIENT_BYTES)),)


def _one_by_one(name: str, cost: Cost, times: float) -> Segment:
    """The same kernel so many times, each launched."""
    return Segment(name, "compute", Cost(*(times * part for part in cost)), launches=times)


def activation(costs: Costs, r: Routing, name: str, pieces: Num, times: float) -> Segment:
    """Element-wise activation: reads the first matmul's result, writes the second's input."""
    moved = times * r.rows(pieces) * r.matrices * r.width * max(DTYPES[r.dtype].size, 2.0)
    cost = costs.vector(name, moved)
    kernels = 1.0 if r.grouped else r.local_experts
    return Segment(name, "compute", cost._replace(launch=kernels * cost.launch), launches=kernels)


def _slower_kind(costs: Costs, r: Routing, pieces: Num, *routed: Segment) -> tuple[Segment, ...]:
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


def joined(*costs: Cost) -> Cost:
    """Several kernels in a row, as one segment."""
    return Cost(*(sum(parts, 0.0) for parts in zip(*costs, strict=True)))
