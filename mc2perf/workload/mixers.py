"""Mixers on one NPU: norms, projections, attention, and what context parallelism adds to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mc2perf.equations import attention
from mc2perf.model import Attention
from mc2perf.units import Num
from mc2perf.workload.context_parallel import Sequence
from mc2perf.workload.parts import Part, Plain, Ring, Segment, Segments
from mc2perf.workload.sparse import Core, Sparse

NORM_BYTES = 20.0
"""Bytes per token and hidden element of two norms and two residual additions in bf16 (5 reads, 5 writes)."""

BACKWARD_ATTENTION = 2.5
"""FLOPs of attention backward over forward: five matmuls instead of two (FlashAttention-2)."""


@dataclass(frozen=True)
class Mixers(Sparse):
    """Builds the part of a layer that mixes tokens."""

    def _mixer_sizes(self, mixer: Attention) -> tuple[float, float]:
        """Columns of one matmul with the FLOPs of all input projections; inner width of the output one."""
        hidden = self.model.hidden_size
        out = mixer.output_parameters(hidden)
        into = mixer.parameter_count(hidden) - mixer.indexer_parameters(hidden) - out
        return into / self.hidden / self.layout.tp, out / self.hidden / self.layout.tp

    def mixer(self, mixer: Attention) -> list[Part]:
        """Norms, input projections, what picks keys, attention, output projection."""
        into, out = self._mixer_sizes(mixer)
        return [
            self._vector("norms", NORM_BYTES * self.layout.between * self.hidden),
            *self.gather_matmul("attention in", into, self.hidden),
            *self._before_core(mixer),
            self._core(mixer, "attention", 1.0),
            *self.matmul_scatter("attention out", self.hidden, out),
        ]

    def mixer_backward(self, mixer: Attention) -> list[Part]:
        """The same in reverse."""
        into, out = self._mixer_sizes(mixer)
        return [
            *self.matmul_scatter_backward("attention out", self.hidden, out),
            self._core(mixer, "attention backward", BACKWARD_ATTENTION),
            *self.indexer_backward(mixer),
            *self.gather_matmul_backward("attention in", into, self.hidden),
            self._vector("norms backward", 2.0 * NORM_BYTES * self.layout.between * self.hidden),
        ]

    def _before_core(self, mixer: Attention) -> list[Part]:
        """What attention waits for beside its projections."""
        return self.indexer(mixer)

    def _core(self, mixer: Attention, name: str, times: float) -> Plain:
        """Scores and values; with context parallelism between ranks that hold parts of a sequence."""
        core = self._linear(mixer) if mixer.kind == "linear" else self._core_of(mixer)
        if self.layout.cp == 1 or mixer.kind == "linear":

            def build(pieces: Num) -> Segments:
                return (Segment(name, "compute", self._attend(mixer, name, core, times, pieces)),)

            return Plain(name, build)
        cut = Sequence(
            self.costs, self.layout, mixer, name, times * core.flops / self.layout.tp, core.context,
            self.item, backward=times != 1.0,
        )  # fmt: skip
        return Ring(name, cut.segments)

    def _linear(self, mixer: Attention) -> Core:
        """A linear state for all tokens of a tensor-parallel group."""
        flops = self.costs.ledger.run(
            "mixer: FLOPs", attention.linear_mixer_flops,
            tokens=self.layout.gathered, heads=float(mixer.heads),
            key_dim=float(mixer.head_dim), value_dim=float(mixer.v_head_dim),
        )  # fmt: skip
        return Core(flops, np.inf, np.array(False))
