"""A forward pass over a KV cache: a decode step, or the prefill of a prompt in one piece or in chunks.

``Layout`` says what is new: ``seq_len`` tokens of each sequence, 1 + drafts in decode. :class:`Cache` says
what was there before. The parts are those of a layer in training, so every schedule lies over them; what
differs is the attention, latent attention in its absorbed form, and the cache that is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mc2perf.costs import Cost, Costs
from mc2perf.equations import memory
from mc2perf.equations.matmul import matmul_flops
from mc2perf.model import Attention, Indexer, LayerGroup, Model
from mc2perf.operators import DTYPES
from mc2perf.units import Num
from mc2perf.workload.keys import STATE_SIZE, Widths, kept_keys, keys_read
from mc2perf.workload.layer import Builder, LayerParts
from mc2perf.workload.layout import Layout
from mc2perf.workload.mixers import NORM_BYTES
from mc2perf.workload.parts import Part, Plain, Segment, Segments
from mc2perf.workload.sparse import longer


@dataclass(frozen=True, kw_only=True)
class Cache:
    """What a pass finds in the cache, and how it uses it.

    Parameters
    ----------
    context : number or array
        Tokens of every sequence in the cache before the pass; 0 for a prompt from its beginning.
    decode : bool
        A step that yields tokens rather than a prompt that is read.
    kv_dtype : str
        Element type of the cache.
    drafts : float
        Speculative tokens of a decode step, each made by one more layer like the model's last one (MTP);
        0 where there are none or where they cost next to nothing.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3", 2024, section 2.2: multi-token prediction.
    """

    context: Num
    decode: bool
    kv_dtype: str = "bf16"
    drafts: float = 0.0


def cached_layers(costs: Costs, model: Model, layout: Layout, cache: Cache) -> list[LayerParts]:
    """Every group of equal layers of a pass over a cache, what drafts cost, then embedding and head.

    Parameters
    ----------
    costs : Costs
        Prices of the machine.
    model : Model
        What runs.
    layout : Layout
        New tokens: ``seq_len`` of each sequence, ``tokens`` of an NPU; ``logit_rows`` None in decode, where
        every token needs its logits.
    cache : Cache
        What was there before.

    Returns
    -------
    list of LayerParts
        Parts without a backward pass.
    """
    build = _CachedBuilder(costs, model, layout, cache)
    layers = [LayerParts(_name(g), float(g.count), tuple(build.layer(g)), ()) for g in model.layers]
    if cache.decode and cache.drafts:
        layers.append(LayerParts("draft", cache.drafts, tuple(build.draft()), ()))
    embedding = LayerParts("embedding", 1.0, build.embedding(), (), ends=True)
    return [*layers, embedding, LayerParts("head", 1.0, tuple(build.head()), (), ends=True)]


def _name(group: LayerGroup) -> str:
    return " + ".join(part for part in (group.mixer, group.ffn) if part)


@dataclass(frozen=True)
class _CachedBuilder(Builder):
    """Builds the parts of one layer over a cache; the feed-forward parts are those without one."""

    cache: Cache

    @property
    def sequences(self) -> Num:
        """Sequences of a tensor-parallel group: each of its ranks holds a share of their heads."""
        return self.layout.gathered / self.layout.seq_len

    @property
    def tokens_before(self) -> Num:
        """Tokens of every sequence in the cache."""
        return self.cache.context

    @property
    def kv_size(self) -> float:
        """Bytes of an element of the cache."""
        item = DTYPES[self.cache.kv_dtype]
        return item.size + (item.scale_size / item.scale_block if item.scale_block else 0.0)

    def layer(self, group: LayerGroup) -> list[Part]:
        """Mixer and feed-forward part of a layer."""
        parts = self.mixer(self.model.mixers[group.mixer]) if group.mixer else []
        if group.ffn == "dense":
            parts += self.dense(float(self.model.dense_width))
        return parts + self.moe() if group.ffn == "moe" else parts

    def draft(self) -> list[Part]:
        """One draft of every sequence: embedding, two hidden states joined, a layer, logits."""
        layout = replace(self.layout, tokens=self.layout.tokens / self.layout.seq_len, seq_len=1.0)
        one = replace(self, layout=layout)
        join = one.whole_matmul("draft in", self.hidden, 2.0 * self.hidden)
        return [*one.embedding(), join, *one.layer(self.model.layers[-1]), *one.head()]

    def head(self) -> list[Part]:
        """Logits, of the last token of a prompt or of every token of a decode step, and a pass over them."""
        if self.layout.logit_rows is not None:
            return super().head()
        vocab = self.model.vocab_size / self.layout.tp
        sampling = self._vector("sampling", self.layout.gathered * vocab * self.item)
        return [*self.unquantised.gather_matmul("head", vocab, self.hidden), sampling]

    # --- mixers ------------------------------------------------------------------------------------------

    def mixer(self, mixer: Attention) -> list[Part]:
        """Norms, projections, cache write, attention over the cache, output projection."""
        latent_step = mixer.kind == "mla" and self.cache.decode
        return self._absorbed(mixer) if latent_step else super().mixer(mixer)

    def _before_core(self, mixer: Attention) -> list[Part]:
        """The cache is written, latents in it become keys and values again, the indexer picks."""
        if mixer.kind == "linear":
            return []
        again = mixer.kind == "mla" and not self.cache.decode and np.any(self.cache.context)
        return [self._write(mixer), *([self._again(mixer)] if again else []), *self.indexer(mixer)]

    def _absorbed(self, mixer: Attention) -> list[Part]:
        """Latent attention whose up-projections of keys and values work on queries and results.

        Every rank of a tensor-parallel group projects to all latents and keeps a share of the heads.
        """
        heads, latent = mixer.heads / self.layout.tp, float(mixer.kv_lora_rank)
        nope = float(mixer.head_dim - mixer.rope_head_dim)
        queries, rank = heads * mixer.head_dim, float(mixer.q_lora_rank)
        down = latent + mixer.rope_head_dim + (rank or queries)
        _, out = self._mixer_sizes(mixer)
        return [
            self._vector("norms", NORM_BYTES * self.layout.between * self.hidden),
            *self.gather_matmul("attention in", down, self.hidden),
            *([self._by_head("queries", 1.0, queries, rank, self.layout.dtype)] if rank else []),
            self._by_head("absorbed keys", heads, latent, nope, self.kernel_dtype),
            *self._before_core(mixer),
            self._core(mixer, "attention", 1.0),
            self._by_head("absorbed values", heads, float(mixer.v_head_dim), latent, self.kernel_dtype),
            *self.matmul_scatter("attention out", self.hidden, out),
        ]

    def _by_head(self, name: str, heads: float, n: float, k: float, dtype: str) -> Plain:
        """A matmul k -> n of every row in each of so many heads, all in one kernel."""
        rows = self.layout.gathered * heads

        def build(pieces: Num) -> Segments:
            cost = self.costs.matmul(name, rows / pieces, n, k, dtype, heads)
            return (Segment(name, "compute", cost),)

        return Plain(name, build)

    def _write(self, mixer: Attention) -> Plain:
        """Keys and values of the new tokens: read as they were projected, written in the cache's type."""
        index = mixer.indexer.head_dim / mixer.compression if mixer.indexer else 0.0
        elements = self.layout.gathered * (self._token_bytes(mixer) / self.kv_size + index)
        return self._vector("cache write", elements * (self.item + self.kv_size))

    def _token_bytes(self, mixer: Attention) -> Num:
        """Cache of a token in one layer on one rank. [B]"""
        widths = Widths.of(mixer)
        size: Num = self.costs.ledger.run(
            "cache: bytes of a token", memory.kv_token_bytes,
            kv_heads=widths.kv_heads, key_dim=widths.cached, value_dim=0.0, item_size=self.kv_size,
            tp=self.layout.tp,
        )  # fmt: skip
        return size

    def _again(self, mixer: Attention) -> Plain:
        """Keys and values of cached latents: a prompt is attended to head by head, unless keys are picked."""
        found = np.greater(self.cache.context, 0.0) & ~self._core_of(mixer).picks
        rows = np.where(found, self.sequences * self.cache.context, 1.0)
        n, k = self._unfolded_columns(mixer) / self.layout.tp, float(mixer.kv_lora_rank)

        def build(pieces: Num) -> Segments:
            cost = self.costs.matmul("cached keys", rows / pieces, n, k, self.layout.dtype)
            return (Segment("cached keys", "compute", Cost(*(np.where(found, t, 0.0) for t in cost))),)

        return Plain("cached keys", build)

    def _unfolding(self, mixer: Attention) -> Num:
        if mixer.kind != "mla":
            return 0.0
        flops: Num = self.costs.ledger.run(
            "cached keys: FLOPs", matmul_flops, m=self.sequences * self.cache.context,
            n=self._unfolded_columns(mixer), k=float(mixer.kv_lora_rank),
        )  # fmt: skip
        return flops

    @staticmethod
    def _unfolded_columns(mixer: Attention) -> float:
        """Keys without their rotated part, and values, of all heads."""
        return float(mixer.heads * (mixer.head_dim - mixer.rope_head_dim + mixer.v_head_dim))

    def _core(self, mixer: Attention, name: str, times: float) -> Plain:
        if not self.cache.decode:
            return Plain(name, partial(self._over_prompt, mixer, name))
        if mixer.kind == "linear":
            return self._state(mixer, name)
        return Plain(name, partial(self._over_cache, mixer, name))

    def _over_cache(self, mixer: Attention, name: str, pieces: Num) -> Segments:
        """A decode step: the new tokens of a sequence read its cache once, as more heads would.

        The kernel's key heads are counted by the bytes that are there: a latent is keys and values in one,
        and a cache may have a type of its own.
        """
        widths, item = Widths.of(mixer), DTYPES[self.kernel_dtype].size
        context, own = self._context(mixer), None
        if mixer.top_keys:
            own = keys_read(mixer, self.cache.context, self.layout.seq_len) / context
        cost = self.costs.decode_attention(
            name, self.sequences / pieces, context,
            heads=mixer.heads / self.layout.tp * self.layout.seq_len,
            kv_heads=self._token_bytes(mixer) / ((widths.key + widths.value) * item),
            key_dim=widths.key, value_dim=widths.value, dtype=self.kernel_dtype,
            own_keys=own,
        )  # fmt: skip
        return (Segment(name, "compute", cost),)

    def _scores(self, mixer: Attention, index: Indexer, scored: Num, pieces: Num) -> Segments:
        """Keys of the indexer are read once for the new tokens of a sequence, or for a prompt."""
        size = self.kv_size * index.head_dim
        if not self.cache.decode:
            (segment,) = super()._scores(mixer, index, scored, pieces)
            kept = self.sequences / pieces * self.cache.context / mixer.compression
            read = self.costs.vector("index scores: cache", kept * size)
            return (segment._replace(cost=longer(segment.cost, read, np.array(True))),)
        cost = self.costs.decode_attention(
            "index scores", self.sequences / pieces, scored, heads=index.heads * self.layout.seq_len,
            kv_heads=size / (index.head_dim * DTYPES[self.kernel_dtype].size),
            key_dim=float(index.head_dim), value_dim=0.0, dtype=self.kernel_dtype,
        )  # fmt: skip
        return (Segment("index scores", "compute", cost),)

    def _over_prompt(self, mixer: Attention, name: str, pieces: Num) -> Segments:
        """A prompt: computing the pairs of queries and keys, or reading what was cached."""
        if mixer.kind == "linear":
            cost = self._attend(mixer, name, self._linear(mixer), 1.0, pieces)
            return (Segment(name, "compute", cost),)
        core = self._core_of(mixer)
        cost = self._attend(mixer, name, core, 1.0, pieces)
        kept = kept_keys(mixer, self.cache.context)
        # few queries that pick do not read all that is there
        kept = np.where(core.picks, np.minimum(kept, self.layout.seq_len * core.context), kept)
        read = self.costs.vector(f"{name}: cache", self.sequences / pieces * kept * self._token_bytes(mixer))
        return (Segment(name, "compute", longer(cost, read, np.array(True))),)

    def _state(self, mixer: Attention, name: str) -> Plain:
        """A linear mixer's step: its state is read and written once, whatever the context."""
        size = self.costs.ledger.run(
            "mixer: state", memory.linear_state_bytes, sequences=self.sequences, layers=1.0,
            heads=mixer.heads / self.layout.tp, key_dim=float(mixer.head_dim),
            value_dim=float(mixer.v_head_dim), item_size=STATE_SIZE,
        )  # fmt: skip
        return self._vector(name, 2.0 * size)
