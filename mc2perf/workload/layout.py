"""How a model lies on a machine: tokens of one NPU, parallel degrees and their order, element types."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mc2perf.operators import DTYPES
from mc2perf.skew import Busiest
from mc2perf.units import Num

ORDER = ("tp", "cp", "ep", "dp", "pp")
"""Parallel groups from neighbours to the most distant ranks, as Megatron-LM lays them by default."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model lies on the machine: tokens of one NPU, parallel degrees, types, routing, software.

    ``copies`` of every pipeline stage are on NPUs of one pipeline. ``dtype`` is the type of all weights but
    those of routed experts, which have ``expert_dtype``; ``attention_dtype`` is that of attention kernels:
    8-bit models often keep 16 bits there.
    """

    tokens: Num
    seq_len: Num
    logit_rows: Num | None
    tp: float
    ep: float
    servers: float
    dtype: str
    expert_dtype: str
    dispatch_dtype: str
    combine_dtype: str
    attention_dtype: str
    capacity_factor: float | None
    busiest: Busiest = Busiest()
    redundant: float = 0.0
    shared_ranks: float = 0.0
    sp: bool = True
    cp: float = 1.0
    pp: float = 1.0
    dp: float = 1.0
    copies: float = 1.0
    etp: float = 1.0
    order: tuple[str, ...] = ORDER
    ulysses: float = 1.0
    balanced: bool = True
    dispatcher: str = "all_to_all"
    grouped: bool = True
    fused_permute: bool = True
    fused_gradients: bool = True
    fused_loss: bool = True
    pad: bool = True
    dynamic: bool = False

    @property
    def gathered(self) -> Num:
        """Rows that a tensor-parallel group sees together."""
        return self.tokens * self.tp

    @property
    def between(self) -> Num:
        """Rows of a rank between the matmuls: its share, or without sequence parallelism all."""
        return self.tokens if self.sp else self.gathered

    @property
    def item(self) -> float:
        """Bytes of an activation: 1-byte types are kept as 16 bit between the matmuls. [B]"""
        return max(DTYPES[self.dtype].size, 2.0)

    @property
    def routed_ranks(self) -> float:
        """Ranks that the routed experts are cut over."""
        return self.ep - self.shared_ranks

    @property
    def ring(self) -> float:
        """Context-parallel ranks that pass keys around, outside those that trade heads."""
        return self.cp / self.ulysses

    def stride(self, group: str) -> float:
        """Distance between neighbours of a group outside the experts: degrees of the groups inside it.

        Examples
        --------
        >>> layout = Layout(
        ...     tokens=1.0, seq_len=1.0, logit_rows=None, tp=8.0, cp=2.0, dp=4.0, pp=2.0, ep=4.0, etp=2.0,
        ...     servers=1.0, capacity_factor=None, expert_dtype="bf16",
        ...     dtype="bf16", dispatch_dtype="bf16", combine_dtype="bf16", attention_dtype="bf16",
        ... )
        >>> layout.stride("dp"), layout.stride("pp"), layout.expert_stride("ep"), layout.expert_ranks
        (16.0, 64.0, 2.0, 8.0)
        """
        return self._inside(group, {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp})

    def expert_stride(self, group: str) -> float:
        """The same of the experts, over whose groups the ranks of tp and cp are dealt anew."""
        return self._inside(group, {"tp": self.etp, "ep": self.ep, "dp": self.expert_ranks, "pp": self.pp})

    def _inside(self, group: str, degrees: dict[str, float]) -> float:
        return math.prod(degrees.get(name, 1.0) for name in self.order[: self.order.index(group)])

    @property
    def expert_ranks(self) -> float:
        """Ranks that hold the same routed experts."""
        return self.tp * self.cp * self.dp / (self.etp * self.ep)
