"""One configuration as CANN's tiling sees it, and the cut it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from mc2perf.operators import DTYPES, OPERATORS, Operator
from mc2perf.policies.cann.constants import SOCS, Soc

Family = Literal["a2", "a3", "950"]
Engine = Literal["ccu", "aicpu"]
Bound = Literal["compute", "comm"]
WIDE_OUTPUT = 2.0
"""Quantised matmuls write bf16. [B]"""


class CannTiling(NamedTuple):
    """The cut CANN would make.

    ``tiles`` are rows in the order of execution, per rank for all-gather and reduce-scatter. The times
    [s] are totals as CANN computes them, inflation for overlap included; they and ``bound`` are None
    where it has no cost model. ``why`` names the rule that decided.
    """

    tiles: tuple[float, ...]
    matmul_time: float | None
    comm_time: float | None
    bound: Bound | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fused operator on one machine; m, n, k as in the catalogue of operators."""

    operator: str
    m: float
    n: float
    k: float
    ranks: int
    family: Family
    cores: int
    dtype: str = "bf16"
    deterministic: bool = False
    engine: Engine = "ccu"
    experts: int = 1
    keep_exchanged: bool = False

    @property
    def entry(self) -> Operator:
        """The operator's row of the catalogue."""
        return OPERATORS[self.operator]

    @property
    def soc(self) -> Soc:
        """What CANN's matmul model knows of the family."""
        return SOCS[self.family]

    @property
    def rows(self) -> float:
        """Rows that CANN cuts: of one rank where the collective gathers or scatters rows."""
        return self.m / self.ranks if self.operator == "matmul_reduce_scatter" else self.m

    @property
    def size(self) -> float:
        """Bytes of an element of the matmul's inputs."""
        return DTYPES[self.dtype].size

    @property
    def sent_size(self) -> float:
        """Bytes of an element that travels: of the input, or of the output."""
        return self.size if self.entry.order == "comm_first" else max(self.size, WIDE_OUTPUT)

    @property
    def sent_width(self) -> float:
        """Elements of a row that travels."""
        return self.k if self.entry.payload == "input" else self.n

    @property
    def operands(self) -> float:
        """Both matmul inputs together. [MiB]"""
        return (self.rows + self.n) * self.k * self.size / 2.0**20
