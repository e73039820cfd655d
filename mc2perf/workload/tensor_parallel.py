"""Matmuls with the collectives of tensor parallelism around them, forward and backward.

With sequence parallelism a tensor-parallel rank holds tokens / tp rows between the matmuls, gathers before a
column-cut one and scatters after a row-cut one; without it every rank holds all rows and results are
all-reduced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from mc2perf.costs import Cost, Costs
from mc2perf.model import Model
from mc2perf.operators import unquantised
from mc2perf.units import Num
from mc2perf.workload.gradients import FUSED_GRADIENT_BYTES, summed_apart
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import Pair, PairPieces, Part, Plain, Segment, Segments


@dataclass(frozen=True)
class TensorParallel:
    """Builds matmuls whose weights are cut over tensor-parallel ranks."""

    costs: Costs
    model: Model
    layout: Layout

    @property
    def hidden(self) -> float:
        """Hidden size."""
        return float(self.model.hidden_size)

    @property
    def item(self) -> float:
        """Bytes of an activation: 1-byte types are kept as 16 bit between the matmuls. [B]"""
        return self.layout.item

    @property
    def unquantised(self) -> Self:
        """The same where weights are not quantised."""
        return replace(self, layout=replace(self.layout, dtype=unquantised(self.layout.dtype)))

    def gather_matmul(self, name: str, n: float, k: float) -> list[Part]:
        """All-gather + column-cut matmul (k -> n); without tensor parallelism the matmul alone."""
        return self._pair(name, "comm_first", "all_gather", n, k, k, ())

    def matmul_scatter(self, name: str, n: float, k: float) -> list[Part]:
        """Row-cut matmul (k -> n) + reduce-scatter."""
        return self._pair(name, "compute_first", "reduce_scatter", n, k, n, ())

    def gather_matmul_backward(self, name: str, n: float, k: float) -> list[Part]:
        """Input gradient (n -> k) + reduce-scatter; the input is gathered again for the weight gradient."""
        after = self._regather(name, k) + self._wgrad(name, n, k)
        return self._pair(f"{name} dgrad", "compute_first", "reduce_scatter", k, n, k, after)

    def matmul_scatter_backward(self, name: str, n: float, k: float) -> list[Part]:
        """All-gather of the gradient + input gradient (n -> k), then the weight gradient."""
        return self._pair(f"{name} dgrad", "comm_first", "all_gather", k, n, n, self._wgrad(name, n, k))

    def whole_matmul(self, name: str, n: float, k: float) -> Plain:
        """A matmul (k -> n) of a rank's own tokens, whose weights are not cut."""
        rows = self.layout.tokens
        return Plain(
            name, lambda pieces: (Segment(name, "compute", self._matmul(name, rows / pieces, n, k)),)
        )

    def _pair(
        self,
        name: str,
        order: str,
        collective: str,
        n: float,
        k: float,
        width: float,
        after: Segments,
    ) -> list[Part]:
        whole = not self.layout.sp
        if self.layout.tp == 1 or (whole and order == "comm_first"):
            segments = partial(self._alone, name, n, k, after)
            return [Plain(name, segments)]
        collective = "all_reduce" if whole else collective
        build = partial(self._pieces, name, collective, n, k, width, after)
        return [
            Pair(
                name=name,
                order="comm_first" if order == "comm_first" else "compute_first",
                ranks=self.layout.tp,
                rows=self.layout.gathered,
                build=build,
                local_first=order == "comm_first",
                piece_bytes=width * self.item,
            )
        ]

    def _alone(self, name: str, n: float, k: float, after: Segments, pieces: Num) -> Segments:
        cost = self._matmul(name, self.layout.gathered / pieces, n, k)
        return (Segment(name, "compute", cost), *shared_out(after, pieces))

    def _pieces(
        self, name: str, collective: str, n: float, k: float, width: float, after: Segments,
        pieces: Num, local_first: bool,
    ) -> PairPieces:  # fmt: skip
        rows, tp = self.layout.gathered, self.layout.tp
        size = rows / pieces * width * self.item
        comm = Segment(
            f"{name} {collective}", "comm", self.costs.collective(name, collective, size, tp), "tp"
        )
        if not local_first:
            whole = self._matmul(name, rows / pieces, n, k)
            return PairPieces((), comm, (Segment(name, "compute", whole),), (), shared_out(after, pieces))
        own = self._matmul(name, rows / tp, n, k)
        rest = self._matmul(name, rows * (tp - 1.0) / tp / pieces, n, k)
        return PairPieces(
            (),
            comm,
            (Segment(name, "compute", rest),),
            (Segment(name, "compute", own),),
            shared_out(after, pieces),
        )

    def _matmul(self, name: str, rows: Num, n: float, k: float) -> Cost:
        return self.costs.matmul(name, rows, n, k, self.layout.dtype)

    def _regather(self, name: str, width: float) -> Segments:
        if self.layout.tp == 1 or not self.layout.sp:
            return ()
        size = self.layout.gathered * width * self.item
        cost = self.costs.collective(f"{name} regather", "all_gather", size, self.layout.tp)
        return (Segment(f"{name} regather", "comm", cost, "tp"),)

    def _wgrad(self, name: str, n: float, k: float) -> Segments:
        """Weight gradient: k x n results, contracted over the rows, added to those before."""
        name, fused = f"{name} wgrad", self.layout.fused_gradients
        cost = self.costs.matmul(
            name, k, n, self.layout.gathered, self.layout.dtype,
            out_size=FUSED_GRADIENT_BYTES if fused else None,
        )  # fmt: skip
        return (Segment(name, "compute", cost), *summed_apart(self.costs, fused, name, k * n))

    def _vector(self, name: str, moved: Num) -> Plain:
        return Plain(
            name, lambda pieces: (Segment(name, "compute", self.costs.vector(name, moved / pieces)),)
        )


def shared_out(after: Segments, pieces: Num) -> Segments:
    """Work that follows a pair, for one of n pieces; weight gradients are priced whole and shared out."""
    return tuple(
        s._replace(cost=Cost(s.cost.work / pieces, s.cost.launch, s.cost.memory / pieces)) for s in after
    )
