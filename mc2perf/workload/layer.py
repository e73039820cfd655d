"""Layers of a model on one NPU: parts with their FLOPs, bytes and collectives, forward and backward.

With sequence parallelism a tensor-parallel rank holds tokens / tp rows between the matmuls, gathers before a
column-cut one and scatters after a row-cut one; without it every rank holds all rows and results are
all-reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mc2perf.costs import Cost, Costs
from mc2perf.equations import attention, steps, training
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.operators import DTYPES
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.experts import Routing, expert_path, expert_path_backward, joined
from mc2perf.workload.parts import Pair, PairPieces, Part, Plain, Ring, Segment, Segments

NORM_BYTES = 20.0
"""Bytes per token and hidden element of two norms and two residual additions in bf16 (5 reads, 5 writes)."""

LOSS_BYTES = 12.0
"""Bytes per token and vocabulary entry of a softmax in float32 (read, write, read)."""

BACKWARD_ATTENTION = 2.5
"""FLOPs of attention backward over forward: five matmuls instead of two (FlashAttention-2)."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model lies on the machine: tokens of one NPU, parallel degrees, types, routing."""

    tokens: Num
    seq_len: Num
    logit_rows: Num | None
    tp: float
    ep: float
    servers: float
    dtype: str
    dispatch_dtype: str
    combine_dtype: str
    capacity_factor: float | None
    busiest: Busiest = Busiest()
    redundant: float = 0.0
    sp: bool = True
    cp: float = 1.0
    pp: float = 1.0
    dp: float = 1.0

    @property
    def gathered(self) -> Num:
        """Rows that a tensor-parallel group sees together."""
        return self.tokens * self.tp

    @property
    def between(self) -> Num:
        """Rows of a rank between the matmuls: its share, or without sequence parallelism all."""
        return self.tokens if self.sp else self.gathered


@dataclass(frozen=True)
class LayerParts:
    """A group of equal layers: parts in order, forward and backward; or the ends of the model."""

    name: str
    count: float
    forward: tuple[Part, ...]
    backward: tuple[Part, ...]
    ends: bool = False


def layers_of(costs: Costs, model: Model, layout: Layout) -> list[LayerParts]:
    """Every group of equal layers, then embedding and head.

    Training needs the logits of every token, prefill of the last one.
    """
    build = Builder(costs, model, layout)
    groups = [_layer(costs, model, layout, group) for group in model.layers]
    embedding = LayerParts("embedding", 1.0, build.embedding(), build.embedding_backward(), ends=True)
    head = LayerParts("head", 1.0, tuple(build.head()), tuple(build.head_backward()), ends=True)
    return [*groups, embedding, head]


def routing_of(model: Model, layout: Layout) -> Routing:
    """The expert path of a model under a layout."""
    assert model.experts is not None
    return Routing(
        experts=model.experts,
        hidden_size=float(model.hidden_size),
        matrices=float(model.matrices),
        tokens=layout.tokens,
        ep=layout.ep,
        servers=layout.servers,
        dtype=layout.dtype,
        dispatch_dtype=layout.dispatch_dtype,
        combine_dtype=layout.combine_dtype,
        busiest=layout.busiest,
        redundant=layout.redundant,
        capacity_factor=layout.capacity_factor,
    )


def _layer(costs: Costs, model: Model, layout: Layout, group: LayerGroup) -> LayerParts:
    mixer = model.mixers[group.mixer] if group.mixer else None
    build = Builder(costs, model, layout)
    forward: list[Part] = []
    backward: list[Part] = []
    if mixer:
        forward += build.mixer(mixer)
        backward = build.mixer_backward(mixer) + backward
    if group.ffn == "dense":
        forward += build.dense(float(model.dense_width))
        backward = build.dense_backward(float(model.dense_width)) + backward
    if group.ffn == "moe":
        forward += build.moe()
        backward = build.moe_backward() + backward
    name = " + ".join(part for part in (group.mixer, group.ffn) if part)
    return LayerParts(name, float(group.count), tuple(forward), tuple(backward))


@dataclass(frozen=True)
class Builder:
    """Builds the parts of one layer."""

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
        return max(DTYPES[self.layout.dtype].size, 2.0)

    # --- a matmul with its tensor-parallel collective -------------------------------------------------

    def gather_matmul(self, name: str, n: float, k: float, experts: bool = False) -> list[Part]:
        """All-gather + column-cut matmul (k -> n); without tensor parallelism the matmul alone."""
        return self._pair(name, "comm_first", "all_gather", n, k, k, experts, ())

    def matmul_scatter(self, name: str, n: float, k: float, experts: bool = False) -> list[Part]:
        """Row-cut matmul (k -> n) + reduce-scatter."""
        return self._pair(name, "compute_first", "reduce_scatter", n, k, n, experts, ())

    def gather_matmul_backward(self, name: str, n: float, k: float, experts: bool = False) -> list[Part]:
        """Input gradient (n -> k) + reduce-scatter; the input is gathered again for the weight gradient."""
        after = self._regather(name, k) + self._wgrad(name, n, k, experts)
        return self._pair(f"{name} dgrad", "compute_first", "reduce_scatter", k, n, k, experts, after)

    def matmul_scatter_backward(self, name: str, n: float, k: float, experts: bool = False) -> list[Part]:
        """All-gather of the gradient + input gradient (n -> k), then the weight gradient."""
        return self._pair(
            f"{name} dgrad", "comm_first", "all_gather", k, n, n, experts, self._wgrad(name, n, k, experts)
        )

    def _pair(
        self,
        name: str,
        order: str,
        collective: str,
        n: float,
        k: float,
        width: float,
        experts: bool,
        after: Segments,
    ) -> list[Part]:
        whole = not self.layout.sp
        if self.layout.tp == 1 or (whole and order == "comm_first"):
            segments = partial(self._alone, name, n, k, experts, after)
            return [Plain(name, segments)]
        collective = "all_reduce" if whole else collective
        build = partial(self._pieces, name, collective, n, k, width, experts, after)
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

    def _alone(self, name: str, n: float, k: float, experts: bool, after: Segments, pieces: Num) -> Segments:
        cost = self._matmul(name, self.layout.gathered / pieces, n, k, experts, pieces)
        return (Segment(name, "compute", cost), *_shared_out(after, pieces))

    def _pieces(
        self, name: str, collective: str, n: float, k: float, width: float, experts: bool, after: Segments,
        pieces: Num, local_first: bool,
    ) -> PairPieces:  # fmt: skip
        rows, tp = self.layout.gathered, self.layout.tp
        size = rows / pieces * width * self.item
        comm = Segment(
            f"{name} {collective}", "comm", self.costs.collective(name, collective, size, tp), "tp"
        )
        if not local_first:
            whole = self._matmul(name, rows / pieces, n, k, experts, pieces)
            return PairPieces((), comm, (Segment(name, "compute", whole),), (), _shared_out(after, pieces))
        own = self._matmul(name, rows / tp, n, k, experts, 1.0)
        rest = self._matmul(name, rows * (tp - 1.0) / tp / pieces, n, k, experts, pieces)
        return PairPieces(
            (),
            comm,
            (Segment(name, "compute", rest),),
            (Segment(name, "compute", own),),
            _shared_out(after, pieces),
        )

    def _matmul(self, name: str, rows: Num, n: float, k: float, experts: bool, pieces: Num) -> Cost:
        """A dense matmul, or with ``experts`` one that every row passes top_k times in its experts."""
        e = self.model.experts
        if not experts or e is None:
            return self.costs.matmul(name, rows, n, k, self.layout.dtype)
        routing = routing_of(self.model, self.layout)
        touched = routing.touched(pieces)
        return self.costs.matmul(name, rows * e.top_k, n, k, self.layout.dtype, float(e.count), touched)

    def _regather(self, name: str, width: float) -> Segments:
        if self.layout.tp == 1 or not self.layout.sp:
            return ()
        size = self.layout.gathered * width * self.item
        cost = self.costs.collective(f"{name} regather", "all_gather", size, self.layout.tp)
        return (Segment(f"{name} regather", "comm", cost, "tp"),)

    def _wgrad(self, name: str, n: float, k: float, experts: bool) -> Segments:
        """Weight gradient: k x n results, contracted over the rows (of every expert)."""
        e = self.model.experts
        groups, rows = (
            (float(e.count), self.layout.gathered * e.top_k) if experts and e else (1.0, self.layout.gathered)
        )
        cost = self.costs.matmul(f"{name} wgrad", k * groups, n, rows / groups, self.layout.dtype, groups)
        return (Segment(f"{name} wgrad", "compute", cost),)

    def _vector(self, name: str, moved: Num) -> Plain:
        return Plain(
            name, lambda pieces: (Segment(name, "compute", self.costs.vector(name, moved / pieces)),)
        )

    # --- mixers ------------------------------------------------------------------------------------------

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
        context = np.inf if mixer.kind == "linear" else self._context(mixer)
        flops = times * self._core_flops(mixer, context) / self.layout.tp

        def build(pieces: Num) -> Segments:
            cost = self.costs.attention(name, flops / pieces, self.layout.dtype, context)
            return (Segment(name, "compute", cost),)

        if self.layout.cp == 1 or mixer.kind == "linear":
            return Plain(name, build)
        return Ring(name, lambda pieces: self._around(mixer, name, times, pieces, *build(pieces)))

    def _around(self, mixer: Attention, name: str, times: float, pieces: Num, core: Segment) -> Segments:
        """Attention block by block, the next keys and values on their way; in backward, gradients too."""
        cp, tp = self.layout.cp, self.layout.tp
        kv_heads = float(mixer.heads if mixer.kind == "mla" else mixer.kv_heads)
        size = training.ring_attention_bytes(
            self.layout.gathered / pieces, max(kv_heads / tp, 1.0), float(mixer.head_dim),
            float(mixer.v_head_dim), self.item * (1.0 if times == 1.0 else 2.0), cp,
        )  # fmt: skip
        hop = self.costs.send(f"{name} ring", size / (cp - 1.0), tp)
        # the first block is there; every other one travels while the one before is computed
        covered = core.cost.time * (cp - 1.0) / cp
        exposed = steps.exposed_time(hop.time * (cp - 1.0), covered)
        return (core, Segment(f"{name} ring", "comm", Cost(exposed, 0.0), "cp"))

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

    # --- feed-forward ------------------------------------------------------------------------------------

    def dense(self, width: float) -> list[Part]:
        """Dense FFN of one rank's share of the width."""
        inner = width / self.layout.tp
        wide = (self.model.matrices - 1) * inner
        act = self.layout.gathered * self.model.matrices * inner * self.item
        return [
            *self.gather_matmul("ffn1", wide, self.hidden),
            self._vector("activation", act),
            *self.matmul_scatter("ffn2", self.hidden, inner),
        ]

    def dense_backward(self, width: float) -> list[Part]:
        """The same in reverse."""
        inner = width / self.layout.tp
        wide = (self.model.matrices - 1) * inner
        act = 2.0 * self.layout.gathered * self.model.matrices * inner * self.item
        return [
            *self.matmul_scatter_backward("ffn2", self.hidden, inner),
            self._vector("activation backward", act),
            *self.gather_matmul_backward("ffn1", wide, self.hidden),
        ]

    def moe(self) -> list[Part]:
        """Expert-parallel path, or experts cut by tensor parallelism."""
        if self.layout.tp == 1 or self.layout.ep > 1:
            return [expert_path(self.costs, routing_of(self.model, self.layout))]
        return self._moe_under_tp(self.gather_matmul, self.matmul_scatter, 1.0, "")

    def moe_backward(self) -> list[Part]:
        """The same in reverse."""
        if self.layout.tp == 1 or self.layout.ep > 1:
            return [expert_path_backward(self.costs, routing_of(self.model, self.layout))]
        forward = self._moe_under_tp(
            self.gather_matmul_backward, self.matmul_scatter_backward, 2.0, " backward"
        )
        return forward[::-1]

    def _moe_under_tp(
        self, gather: Callable[..., list[Part]], scatter: Callable[..., list[Part]], times: float, word: str
    ) -> list[Part]:
        """Every rank holds a slice of every expert and sees the rows of its whole group."""
        e = self.model.experts
        assert e is not None
        inner, rows, tp = e.width / self.layout.tp, self.layout.gathered, self.layout.tp
        wide = (self.model.matrices - 1) * inner
        routed = rows * e.top_k
        parts: list[Part] = [
            self._gate(f"gate{word}", times),
            *gather("ffn1", wide, float(e.payload_width), True),
            self._vector(f"permute{word}", 2.0 * routed * e.payload_width * self.item),
            self._vector(f"activation{word}", times * routed * self.model.matrices * inner * self.item),
            self._vector(f"unpermute{word}", 2.0 * routed * e.payload_width * self.item),
            *scatter("ffn2", float(e.payload_width), inner, True),
        ]
        if e.shared_width:
            parts.insert(1, self._shared(f"shared experts{word}", e.shared_width / tp, times))
        if e.payload_width != self.hidden:
            parts.insert(1, self._latent(f"latent down{word}", e.payload_width, self.hidden, times))
            parts.append(self._latent(f"latent up{word}", self.hidden, e.payload_width, times))
        return parts

    def _latent(self, name: str, n: float, k: float, times: float) -> Plain:
        """Projection of a rank's own tokens to or from the latent width."""
        rows = times * self.layout.tokens
        return Plain(
            name,
            lambda pieces: (
                Segment(name, "compute", self.costs.matmul(name, rows / pieces, n, k, self.layout.dtype)),
            ),
        )

    def _gate(self, name: str, times: float) -> Plain:
        e = self.model.experts
        assert e is not None
        rows = times * self.layout.tokens
        return Plain(
            name,
            lambda pieces: (
                Segment(
                    name,
                    "compute",
                    self.costs.matmul(name, rows / pieces, float(e.count), self.hidden, self.layout.dtype),
                ),
            ),
        )

    def _shared(self, name: str, width: float, times: float) -> Plain:
        """Shared experts cut like a dense FFN; they use the rows gathered for the routed ones."""
        rows, wide = times * self.layout.gathered, (self.model.matrices - 1) * width

        def build(pieces: Num) -> Segments:
            up = self.costs.matmul(f"{name} 1", rows / pieces, wide, self.hidden, self.layout.dtype)
            act = self.costs.vector(
                f"{name} activation", rows / pieces * self.model.matrices * width * self.item
            )
            down = self.costs.matmul(f"{name} 2", rows / pieces, self.hidden, width, self.layout.dtype)
            return (Segment(name, "compute", joined(up, act, down)),)

        return Plain(name, build)

    # --- embedding and head ------------------------------------------------------------------------------

    def embedding(self) -> tuple[Part, ...]:
        """Look-up of every token."""
        return (self._vector("embedding", 2.0 * self.layout.between * self.hidden * self.item),)

    def embedding_backward(self) -> tuple[Part, ...]:
        """Gradients of the look-up, accumulated in float32."""
        return (self._vector("embedding backward", 4.0 * self.layout.between * self.hidden * self.item),)

    def head(self) -> list[Part]:
        """Logits and loss; prefill needs the logits of the last token of a sample only."""
        vocab = self.model.vocab_size / self.layout.tp
        if self.layout.logit_rows is not None:
            return [Plain("head", partial(self._last_logits, vocab))]
        loss = self._vector("loss", LOSS_BYTES * self.layout.gathered * vocab)
        return [*self.gather_matmul("head", vocab, self.hidden), loss]

    def _last_logits(self, vocab: float, pieces: Num) -> Segments:
        assert self.layout.logit_rows is not None
        cost = self.costs.matmul("head", self.layout.logit_rows, vocab, self.hidden, self.layout.dtype)
        return (Segment("head", "compute", cost),)

    def head_backward(self) -> list[Part]:
        """The same in reverse."""
        vocab = self.model.vocab_size / self.layout.tp
        return [
            self._vector("loss backward", LOSS_BYTES * self.layout.gathered * vocab),
            *self.gather_matmul_backward("head", vocab, self.hidden),
        ]


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


def _shared_out(after: Segments, pieces: Num) -> Segments:
    """Work that follows a pair, for one of n pieces; weight gradients are priced whole and shared out."""
    return tuple(
        s._replace(cost=Cost(s.cost.work / pieces, s.cost.launch, s.cost.memory / pieces)) for s in after
    )
