"""A forward pass over a KV cache: a decode step, or the prefill of a prompt in one piece or in chunks.

``Layout`` says what is new: ``seq_len`` tokens of each sequence, 1 + drafts in decode. :class:`Cache` says
what was there before. The parts are those of a layer in training, so every schedule lies over them; what
differs is the attention, latent attention in its absorbed form, and the cache that is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mc2perf.costs import Cost, Costs
from mc2perf.equations import attention, memory
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.operators import DTYPES
from mc2perf.units import Num
from mc2perf.workload.layer import Builder, LayerParts
from mc2perf.workload.layout import Layout
from mc2perf.workload.mixers import NORM_BYTES
from mc2perf.workload.parts import Part, Plain, Segment, Segments

STATE_SIZE = 4.0
"""States of linear mixers are kept in float32. [B]"""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """What a pass finds in the cache, and how it uses it.

    Parameters
    ----------
    context : number or array
        Tokens of every sequence in the cache before the pass; 0 for a prompt from its beginning.
    decode : bool
        A step that yields tokens rather than a prompt that is read.
    kv_dtype, attention_dtype : str
        Element type of the cache, and of the attention kernel: 8-bit models often keep 16 bits there.
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
    attention_dtype: str = "bf16"
    drafts: float = 0.0


class Widths(NamedTuple):
    """Key heads and widths of a mixer as its decode kernel sees them, and elements cached per key head."""

    kv_heads: float
    key: float
    value: float
    cached: float

    @classmethod
    def of(cls, mixer: Attention) -> Widths:
        """Absorbed latent attention multiplies every head with the one latent that all of them share."""
        if mixer.kind == "mla":
            latent = float(mixer.kv_lora_rank)
            return cls(1.0, latent + mixer.rope_head_dim, latent, latent + mixer.rope_head_dim)
        key, value = float(mixer.head_dim), float(mixer.v_head_dim)
        return cls(float(mixer.kv_heads), key, value, key + value)


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
        if mixer.kind == "mla" and self.cache.decode:
            return self._absorbed(mixer)
        norms, into, core, out = super().mixer(mixer)
        if mixer.kind == "linear":
            return [norms, into, core, out]
        again = [] if mixer.kind == "softmax" or not np.any(self.cache.context) else [self._again(mixer)]
        return [norms, into, self._write(mixer), *again, core, out]

    def _absorbed(self, mixer: Attention) -> list[Part]:
        """Latent attention whose up-projections of keys and values work on queries and results.

        Every rank of a tensor-parallel group projects to all latents and keeps a share of the heads.
        """
        heads, latent = mixer.heads / self.layout.tp, float(mixer.kv_lora_rank)
        nope = float(mixer.head_dim - mixer.rope_head_dim)
        queries, rank = heads * mixer.head_dim, float(mixer.q_lora_rank)
        down = latent + mixer.rope_head_dim + (rank or queries)
        _, out = self._mixer_sizes(mixer)
        kernel = self.cache.attention_dtype
        return [
            self._vector("norms", NORM_BYTES * self.layout.between * self.hidden),
            *self.gather_matmul("attention in", down, self.hidden),
            *([self._by_head("queries", 1.0, queries, rank, self.layout.dtype)] if rank else []),
            self._by_head("absorbed keys", heads, latent, nope, kernel),
            self._write(mixer),
            self._core(mixer, "attention", 1.0),
            self._by_head("absorbed values", heads, float(mixer.v_head_dim), latent, kernel),
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
        elements = self.layout.gathered * self._token_bytes(mixer) / self.kv_size
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
        """Keys and values of cached latents: a prompt is attended to head by head."""
        heads, latent = mixer.heads / self.layout.tp, float(mixer.kv_lora_rank)
        n = heads * (mixer.head_dim - mixer.rope_head_dim + mixer.v_head_dim)
        found = np.greater(self.cache.context, 0.0)
        rows = np.where(found, self.sequences * self.cache.context, 1.0)

        def build(pieces: Num) -> Segments:
            cost = self.costs.matmul("cached keys", rows / pieces, n, latent, self.layout.dtype)
            return (Segment("cached keys", "compute", Cost(*(np.where(found, t, 0.0) for t in cost))),)

        return Plain("cached keys", build)

    def _context(self, mixer: Attention) -> Num:
        return keys_seen(mixer, self.cache.context, self.layout.seq_len, self.costs.ledger.run)

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
        widths, item = Widths.of(mixer), DTYPES[self.cache.attention_dtype].size
        cost = self.costs.decode_attention(
            name, self.sequences / pieces, self._context(mixer),
            heads=mixer.heads / self.layout.tp * self.layout.seq_len,
            kv_heads=self._token_bytes(mixer) / ((widths.key + widths.value) * item),
            key_dim=widths.key, value_dim=widths.value, dtype=self.cache.attention_dtype,
        )  # fmt: skip
        return (Segment(name, "compute", cost),)

    def _over_prompt(self, mixer: Attention, name: str, pieces: Num) -> Segments:
        """A prompt: computing the pairs of queries and keys, or reading what was cached."""
        context = np.inf if mixer.kind == "linear" else self._context(mixer)
        flops = self._core_flops(mixer, context) / self.layout.tp / pieces
        cost = self.costs.attention(name, flops, self.cache.attention_dtype, context)
        if mixer.kind == "linear":
            return (Segment(name, "compute", cost),)
        kept = kept_keys(mixer, self.cache.context)
        read = self.costs.vector(f"{name}: cache", self.sequences / pieces * kept * self._token_bytes(mixer))
        work = np.maximum(cost.work, read.work)
        return (Segment(name, "compute", Cost(work, cost.launch, np.where(read.work >= work, work, 0.0))),)

    def _state(self, mixer: Attention, name: str) -> Plain:
        """A linear mixer's step: its state is read and written once, whatever the context."""
        size = self.costs.ledger.run(
            "mixer: state", memory.linear_state_bytes, sequences=self.sequences, layers=1.0,
            heads=mixer.heads / self.layout.tp, key_dim=float(mixer.head_dim),
            value_dim=float(mixer.v_head_dim), item_size=STATE_SIZE,
        )  # fmt: skip
        return self._vector(name, 2.0 * size)


def mean_cached_context(context: Num, new_tokens: Num, window: Num) -> Num:
    r"""Keys that the queries of new tokens see on average after a context, under a causal mask.

    .. math:: \bar c = \frac{P(c + s) - P(c)}{s}, \quad P(n) = n \bar c_w(n)

    Parameters
    ----------
    context, new_tokens : number or array
        Tokens before, c, and new ones, s.
    window : number or array
        Sliding window, w; infinity for none.

    Returns
    -------
    number or array
        Mean context; c + 1 for one token without a window,
        :func:`mc2perf.equations.attention.mean_causal_context` without a context.

    Notes
    -----
    P(n) are the pairs of queries and keys among the first n tokens.

    Examples
    --------
    >>> float(mean_cached_context(10.0, 1.0, np.inf)), float(mean_cached_context(2.0, 4.0, np.inf))
    (11.0, 4.5)
    """
    whole = context + new_tokens
    before = context * attention.mean_causal_context(np.maximum(context, 1.0), window)
    return (whole * attention.mean_causal_context(whole, window) - before) / new_tokens


def keys_seen(
    mixer: Attention,
    context: Num,
    new_tokens: Num,
    run: Callable[..., Any] = lambda label, equation, **n: equation(**n),
) -> Num:
    """Keys that a new token sees on average: a window, compressed or picked keys, or all before it.

    Parameters
    ----------
    mixer : Attention
        Softmax or latent attention.
    context, new_tokens : number or array
        Tokens of a sequence in the cache, and new ones.
    run : callable
        Where equations are written down.

    Returns
    -------
    number or array
        Keys. The indexer that picks keys reads all of them beside, which is not counted.

    Examples
    --------
    >>> wide = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, window=128)
    >>> float(keys_seen(wide, 4096.0, 1.0)), float(keys_seen(wide, 99.0, 1.0))
    (128.0, 100.0)
    """
    mean = partial(mean_cached_context, context, new_tokens)
    near: Num = run(
        "attention: context", mean_cached_context,
        context=context, new_tokens=new_tokens, window=float(mixer.window) or np.inf,
    )  # fmt: skip
    if mixer.compression == 1 and not mixer.top_keys:
        return near
    far = mean(float(mixer.top_keys * mixer.compression) or np.inf) / mixer.compression
    return np.minimum(mean(np.inf), far + (near if mixer.window else 0.0))


def kept_keys(mixer: Attention, context: Num) -> Num:
    """Keys of so many tokens that stay in the cache: those of the window, compressed ones, or all.

    Examples
    --------
    >>> wide = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, window=128)
    >>> float(kept_keys(wide, 4096.0)), float(kept_keys(wide, 100.0))
    (128.0, 100.0)
    """
    near = np.minimum(context, float(mixer.window)) if mixer.window else 0.0 * context
    if mixer.window and mixer.compression == 1 and not mixer.top_keys:
        return near
    return np.minimum(context, near + context / mixer.compression)


def cache_of_sequence(model: Model, context: Num, kv_size: float, tp: float) -> Num:
    """Bytes that the cache of one sequence takes on one rank, all layers: what moves to a decode NPU.

    Parameters
    ----------
    model : Model
        Whose layers.
    context : number or array
        Tokens of the sequence.
    kv_size : float
        Bytes of an element of the cache. [B]
    tp : float
        Tensor-parallel ranks; a latent, and heads fewer than ranks, are on all of them.

    Returns
    -------
    number or array
        Bytes, with the float32 states of linear mixers. [B]

    References
    ----------
    DeepSeek-AI, "DeepSeek-V2", 2024, table 1: (512 + 64) elements of a token and layer.
    """
    size: Num = 0.0
    for group in model.layers:
        if group.mixer:
            size = size + group.count * _cache_of_layer(model.mixers[group.mixer], context, kv_size, tp)
    return size


def _cache_of_layer(mixer: Attention, context: Num, kv_size: float, tp: float) -> Num:
    if mixer.kind == "linear":
        key, value = float(mixer.head_dim), float(mixer.v_head_dim)
        return memory.linear_state_bytes(1.0, 1.0, mixer.heads / tp, key, value, STATE_SIZE)
    widths = Widths.of(mixer)
    token = memory.kv_token_bytes(widths.kv_heads, widths.cached, 0.0, kv_size, tp)
    return kept_keys(mixer, context) * token
