"""What one layer of a model holds on an NPU: weights, what its backward pass reads again, cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mc2perf.equations import activations
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.operators import DTYPES, unquantised
from mc2perf.placement import weights_of_a_layer, with_copies
from mc2perf.resolve import cache_of
from mc2perf.study import Study
from mc2perf.units import Num
from mc2perf.workload.keys import cache_of_layer
from mc2perf.workload.layer import routing_of
from mc2perf.workload.layout import Layout

STATISTIC_BYTES = {"gpu": 4.0}
"""What flash attention keeps per query and head: one float32 log-sum-exp on GPUs (FlashAttention-2). [B]"""

CANN_STATISTIC_BYTES = 64.0
"""CANN keeps maximum and sum, each eight float32 wide (aclnnFlashAttentionScore, softmaxMaxOut). [B]"""

LOGIT_BYTES = 4.0
"""Logits reach the loss, and the router's scores its softmax, in float32. [B]"""

ROUTED_TENSORS = 2.0
"""Rows that the experts keep: their input, and their output, which routing weights multiply afterwards."""


class Layer(NamedTuple):
    """What one layer of a group holds on an NPU: weights, activations of a micro-batch, cache."""

    dense: float
    routed: float
    kept: Num
    statistics: Num
    boundary: Num
    cache: Num
    wider: float


@dataclass(frozen=True)
class LayerBytes:
    """Counts the bytes of one layer of every kind, and of the head."""

    study: Study
    model: Model
    layout: Layout

    @property
    def hidden(self) -> float:
        """Width of a token between the layers."""
        return float(self.model.hidden_size)

    @property
    def item(self) -> float:
        """Activations and caches are kept in 16 bit where matmuls run in fewer. [B]"""
        return self.layout.item

    @property
    def split(self) -> float:
        """Ranks over which tensors between the matmuls are cut."""
        return self.layout.tp if self.layout.sp else 1.0

    @property
    def train(self) -> bool:
        """Whether a backward pass reads again what the forward pass kept."""
        return self.study.scenario.phase == "train"

    def of(self, group: LayerGroup) -> Layer:
        """What one layer of a group holds."""
        mixer = self.model.mixers[group.mixer] if group.mixer else None
        dense, routed = weights_of_a_layer(self.model, self.layout, group)
        rows = self.layout.gathered
        between = activations.residual_activation_bytes(rows, self.hidden, self.item, 0.0, self.split)
        statistics = self._statistics(mixer) if mixer else 0.0
        # the residual path has a norm and a matmul's input for the mixer, and as much for the feed-forward
        kept = between * (bool(group.mixer) + bool(group.ffn)) / 2.0 + statistics
        kept = kept + (self._mixer(mixer) if mixer else 0.0) + self._feed_forward(group)
        return Layer(
            dense=dense,
            routed=routed * with_copies(self.model, self.layout),
            kept=kept,
            statistics=statistics,
            boundary=activations.boundary_bytes(rows, self.hidden, self.item, self.split),
            cache=self._cache(mixer) if mixer and not self.train else 0.0,
            wider=self._wider(group.ffn == "moe", mixer),
        )

    def _wider(self, routes: bool, mixer: Attention | None) -> float:
        """What served weights that are computed in a wider type take beyond other ones. [B]

        The router; in decode, what absorbs keys and values, which attention's type multiplies.
        """
        dtype, e = self.layout.dtype, self.model.experts
        router = self.hidden * e.count if routes and e else 0.0
        absorbs = mixer and mixer.kind == "mla" and self.study.scenario.phase == "decode"
        absorbed = float(mixer.absorbed_parameters) / self.layout.tp if mixer and absorbs else 0.0
        kept = ((router, unquantised(dtype)), (absorbed, self.layout.attention_dtype))
        return sum(n * max(DTYPES[wide].size - DTYPES[dtype].stored_size, 0.0) for n, wide in kept)

    def _wide(self, rows: Num, tensors: float, width: float, ranks: float, item: float | None = None) -> Num:
        """Tensors of one width, cut over ranks. [B]"""
        return activations.ffn_activation_bytes(rows, tensors, width, item or self.item, ranks)

    def _statistics(self, mixer: Attention) -> Num:
        if mixer.kind == "linear":
            return 0.0
        size = STATISTIC_BYTES.get(self.study.costs.machine.family, CANN_STATISTIC_BYTES)
        return activations.statistic_bytes(self.layout.gathered, float(mixer.heads), size, self.layout.tp)

    def _mixer(self, m: Attention) -> Num:
        """Queries, keys, values, output; gates, latents before and after their norms; an indexer's own."""
        rows, tp, heads, value = self.layout.gathered, self.layout.tp, float(m.heads), float(m.v_head_dim)
        held = activations.attention_activation_bytes
        gate = self._wide(rows, 2.0 * m.gated, heads * value, tp)
        latents = self._wide(rows, 2.0, float(m.q_lora_rank + m.kv_lora_rank), self.split)
        output = self._wide(rows, 1.0, float(m.o_groups * m.o_lora_rank), tp)
        index = m.indexer.heads * m.indexer.head_dim + m.index_columns if m.indexer else 0
        around = gate + latents + output + self._wide(rows, 1.0, float(index), 1.0)
        if m.kind == "linear":
            keys = held(rows, m.kv_heads, m.kv_heads, float(m.head_dim), 0.0, self.item, tp)
            return keys + held(rows, heads, heads, 0.0, value, self.item, tp) + around
        unfolded = m.heads if m.kind == "mla" else m.kv_heads
        return held(rows, heads, float(unfolded), float(m.head_dim), value, self.item, tp) + around

    def _feed_forward(self, group: LayerGroup) -> Num:
        """A dense feed-forward part, or router, routed and shared experts."""
        rows, tp, tensors = self.layout.gathered, self.layout.tp, float(self.model.matrices)
        if group.ffn == "dense":
            return self._wide(rows, tensors, float(self.model.dense_width), tp)
        e = self.model.experts if group.ffn == "moe" else None
        if e is None:
            return 0.0
        own, payload = self.layout.tokens, float(e.payload_width)
        routing, held = routing_of(self.model, self.layout), activations.expert_activation_bytes
        width = float(e.width)
        routed = held(routing.rows(1.0), ROUTED_TENSORS, payload, tensors, width, self.layout.etp, self.item)
        router = self._wide(own, 1.0, float(e.count), 1.0, LOGIT_BYTES)
        latent = self._wide(own, float(payload != self.hidden), payload, 1.0)
        shared = float(e.shared_width)
        if self.layout.shared_ranks:
            alone = held(own * routing.served, ROUTED_TENSORS, payload, tensors, shared, 1.0, self.item)
            return np.maximum(routed, alone) + router
        return routed + router + latent + self._wide(rows, tensors, shared, tp)

    def head(self) -> Num:
        """Inputs of the last norm and of the head, logits of all tokens, or in prefill of the last ones."""
        rows = self.layout.gathered if self.layout.logit_rows is None else self.layout.logit_rows
        return activations.head_activation_bytes(
            rows, self.hidden, float(self.model.vocab_size), self.item, LOGIT_BYTES, self.layout.tp,
            self.split,
        )  # fmt: skip

    def _cache(self, m: Attention) -> Num:
        """Keys and values of a layer for the whole batch, or the states of a linear mixer."""
        cache = cache_of(self.study.scenario)
        context = (self.layout.seq_len + (cache.context if cache else 0.0)) / self.layout.cp
        item = DTYPES[cache.kv_dtype].size if cache else self.item
        return self.study.samples * cache_of_layer(m, context, item, self.layout.tp)
