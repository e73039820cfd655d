"""Layers of a model on one NPU: parts with their FLOPs, bytes and collectives, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mc2perf.costs import Costs
from mc2perf.model import LayerGroup, Model
from mc2perf.units import Num
from mc2perf.workload.experts import expert_path, expert_path_backward
from mc2perf.workload.layout import Layout
from mc2perf.workload.mixers import Mixers
from mc2perf.workload.parts import ExpertPath, Part, Plain, Segment, Segments, Slices, all_segments
from mc2perf.workload.routing import Routing

LOSS_BYTES = {True: (12.0, 12.0), False: (38.0, 14.0)}
"""Bytes per token and vocabulary entry of a loss, forward and backward: fused, and pass by pass.

Fused, softmax in float32 is read, written and read. Megatron-LM's unfused loss casts (6), takes the maximum
(4), subtracts it (8), the exponential (8), its sum (4) and divides (8); backward it scales (8) and casts (6).
"""


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
        expert_dtype=layout.expert_dtype,
        dispatch_dtype=layout.dispatch_dtype,
        combine_dtype=layout.combine_dtype,
        busiest=layout.busiest,
        redundant=layout.redundant,
        shared_ranks=layout.shared_ranks,
        capacity_factor=layout.capacity_factor,
        expert_tp=layout.etp,
        sp=layout.sp or layout.etp == 1.0 or layout.ep > 1.0,
        dispatcher=layout.dispatcher,
        grouped=layout.grouped,
        fused_permute=layout.fused_permute,
        fused_gradients=layout.fused_gradients,
        pad=layout.pad,
        dynamic=layout.dynamic,
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
class Builder(Mixers):
    """Builds the parts of one layer, and the ends of a model."""

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
        """Expert-parallel path, or experts cut by tensor parallelism alone."""
        return [self._sliced(expert_path(self.costs, routing_of(self.model, self.layout)))]

    def moe_backward(self) -> list[Part]:
        """The same in reverse."""
        return [self._sliced(expert_path_backward(self.costs, routing_of(self.model, self.layout)))]

    def _sliced(self, path: ExpertPath) -> Part:
        """Without ranks of their own, nothing of the experts is exchanged that schedules could pipeline."""
        if path.ranks > 1 or self.layout.etp == 1:
            return path
        return Slices(path.name, partial(all_segments, path))

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
        moved, _ = LOSS_BYTES[self.layout.fused_loss]
        loss = self._vector("loss", moved * self.layout.gathered * vocab)
        return [*self.unquantised.gather_matmul("head", vocab, self.hidden), loss]

    def _last_logits(self, vocab: float, pieces: Num) -> Segments:
        assert self.layout.logit_rows is not None
        cost = self.costs.matmul(
            "head", self.layout.logit_rows, vocab, self.hidden, self.unquantised.layout.dtype
        )
        return (Segment("head", "compute", cost),)

    def head_backward(self) -> list[Part]:
        """The same in reverse."""
        vocab = self.model.vocab_size / self.layout.tp
        _, moved = LOSS_BYTES[self.layout.fused_loss]
        return [
            self._vector("loss backward", moved * self.layout.gathered * vocab),
            *self.unquantised.gather_matmul_backward("head", vocab, self.hidden),
        ]
