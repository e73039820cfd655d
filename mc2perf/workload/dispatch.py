"""Tokens to the ranks of their experts and back: gate, counts, permute, exchange, unpermute."""

from __future__ import annotations

from mc2perf.costs import Copies, Cost, Costs, joined
from mc2perf.equations import routing
from mc2perf.operators import DTYPES, unquantised
from mc2perf.units import Num
from mc2perf.workload.parts import Segment, Segments
from mc2perf.workload.routing import Routing

COUNT_BYTES = 8.0
"""One token count travels as a 64-bit integer. [B]"""


SCORE_BYTES = 8.0
"""A router score is written and read once as float32. [B]"""


def before_dispatch(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Gate, projection to a latent width; unless the dispatch does it, counts, permute (and quantise)."""
    tokens, e = r.tokens / pieces, r.experts
    gate = costs.matmul("gate", tokens, e.count, r.hidden_size, unquantised(r.dtype))
    scores = costs.vector("scores", tokens * e.count * SCORE_BYTES)
    first = (
        Segment("gate", "compute", joined(gate, scores)),
        *latent(costs, r, "latent down", tokens, e.payload_width, r.hidden_size),
    )
    if _sorted_on_the_way(costs, r):
        return first
    permute = reordered(costs, r, "permute", 2.0 + (r.dispatch_dtype != r.dtype), pieces)
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
    summed = () if sums else reordered(costs, r, "unpermute", 1.0 + 1.0 / e.top_k, pieces)
    return (
        *summed,
        *latent(costs, r, "latent up", tokens, r.hidden_size, e.payload_width),
    )


def latent(costs: Costs, r: Routing, name: str, rows: Num, n: Num, k: Num) -> Segments:
    """A matmul of the projections to and from a latent width, where there are any."""
    if r.experts.payload_width == r.hidden_size:
        return ()
    return (Segment(name, "compute", costs.matmul(name, rows, n, k, r.dtype)),)


def gate_backward(costs: Costs, r: Routing, pieces: Num) -> Segments:
    """Both gradients of the gate, as one matmul of twice the rows."""
    once = costs.matmul(
        "gate backward", 2.0 * r.tokens / pieces, r.experts.count, r.hidden_size, unquantised(r.dtype)
    )
    return (Segment("gate backward", "compute", once),)


def reordered(costs: Costs, r: Routing, name: str, passes: float, pieces: Num) -> Segments:
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


def slices_joined(costs: Costs, r: Routing, name: str, pieces: Num) -> Segments:
    """Rows that travel cut over the slices of an expert are joined before it, and cut again after it.

    Megatron-LM core v0.7, tensor_parallel/mappings.py: gathers and scatters of the last dimension copy.
    """
    if r.expert_tp == 1 or r.dispatcher == "all_gather" or not r.sp:
        return ()
    moved = 4.0 * r.rows(pieces) * r.experts.payload_width * max(DTYPES[r.dtype].size, 2.0)
    return (Segment(name, "compute", costs.vector(name, moved), launches=2.0),)
