"""Where tokens go: what decides the traffic of an expert path, and the rows that its ranks get.

How tokens reach their experts is a row of ``DISPATCHERS``; experts may be cut over the ranks of a
tensor-parallel group besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mc2perf.equations import routing, skew
from mc2perf.equations.skew import Loads
from mc2perf.model import Experts
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.parts import inverse_shares


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
