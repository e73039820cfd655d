"""Mixers on one NPU: norms, projections, attention, and what context parallelism adds to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mc2perf.equations import attention
from mc2perf.model import Attention
from mc2perf.units import Num
from mc2perf.workload.context_parallel import Sequence
from mc2perf.workload.parts import Part, Plain, Ring, Segment, Segments
from mc2perf.workload.tensor_parallel import TensorParallel

NORM_BYTES = 20.0
"""Bytes per token and hidden element of two norms and two residual additions in bf16 (5 reads, 5 writes)."""

BACKWARD_ATTENTION = 2.5
"""FLOPs of attention backward over forward: five matmuls instead of two (FlashAttention-2)."""


@dataclass(frozen=True)
class Mixers(TensorParallel):
    """Builds the part of a layer that mixes tokens."""

    def _mixer_sizes(self, mixer: Attention) -> tuple[float, float]:
        """Columns of one matmul with the FLOPs of all input projections; inner width of the output one."""
        out = mixer.output_parameters(self.model.hidden_size)
        into = mixer.parameter_count(self.model.hidden_size) - out
        return into / self.hidden / self.layout.tp, out / self.hidden / self.layout.tp

    def mixer(self, mixer: Attention) -> list[Part]:
        """Norms, input projections, attention, output projection."""
        into, out = self._mixer_sizes(mixer)
        return [
            self._vector("norms", NORM_BYTES * self.layout.between * self.hidden),
            *self.gather_matmul("attention in", into, self.hidden),
            self._core(mixer, "attention", 1.0),
            *self.matmul_scatter("attention out", self.hidden, out),
        ]

    def mixer_backward(self, mixer: Attention) -> list[Part]:
        """The same in reverse."""
        into, out = self._mixer_sizes(mixer)
        return [
            *self.matmul_scatter_backward("attention out", self.hidden, out),
            self._core(mixer, "attention backward", BACKWARD_ATTENTION),
            *self.gather_matmul_backward("attention in", into, self.hidden),
            self._vector("norms backward", 2.0 * NORM_BYTES * self.layout.between * self.hidden),
        ]

    def _core(self, mixer: Attention, name: str, times: float) -> Plain:
        """Scores and values; with context parallelism between ranks that hold parts of a sequence."""
        context = np.inf if mixer.kind == "linear" else self._context(mixer)
        flops = times * self._core_flops(mixer, context) / self.layout.tp
        if self.layout.cp == 1 or mixer.kind == "linear":

            def build(pieces: Num) -> Segments:
                cost = self.costs.attention(name, flops / pieces, self.layout.attention_dtype, context)
                return (Segment(name, "compute", cost),)

            return Plain(name, build)
        cut = Sequence(self.costs, self.layout, mixer, name, flops, context, self.item, backward=times != 1.0)
        return Ring(name, cut.segments)

    def _core_flops(self, mixer: Attention, context: Num) -> Num:
        """FLOPs of scores and values (or of a linear state) for all tokens of a tensor-parallel group."""
        rows, run = self.layout.gathered, self.costs.ledger.run
        if mixer.kind == "linear":
            linear: Num = run(
                "mixer: FLOPs", attention.linear_mixer_flops,
                tokens=rows, heads=float(mixer.heads),
                key_dim=float(mixer.head_dim), value_dim=float(mixer.v_head_dim),
            )  # fmt: skip
            return linear
        flops: Num = run(
            "attention: FLOPs", attention.attention_flops,
            tokens=rows, context=context, heads=float(mixer.heads),
            key_dim=float(mixer.head_dim), value_dim=float(mixer.v_head_dim),
        )  # fmt: skip
        return flops

    def _context(self, mixer: Attention) -> Num:
        return mean_context(mixer, self.layout.seq_len, self.costs.ledger.run)


def mean_context(
    mixer: Attention, seq_len: Num, run: Callable[..., Any] = lambda label, equation, **n: equation(**n)
) -> Num:
    """Keys a query sees on average: a window, compressed or picked keys, or all before it."""
    near: Num = run(
        "attention: context", attention.mean_causal_context,
        seq_len=seq_len, window=float(mixer.window) or seq_len,
    )  # fmt: skip
    if mixer.compression == 1 and not mixer.top_keys:
        return near
    every = attention.mean_causal_context(seq_len, seq_len)
    # each query picks its keys: the first ones see fewer than they may pick, as with a window
    reach = float(mixer.top_keys * mixer.compression) or seq_len
    far = attention.mean_causal_context(seq_len, reach) / mixer.compression
    return np.minimum(every, far + (near if mixer.window else 0.0))
