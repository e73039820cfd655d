"""Keys that queries see, read and leave in a cache, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mc2perf.equations import attention, memory
from mc2perf.model import Attention
from mc2perf.units import Num

STATE_SIZE = 4.0
"""States of linear mixers are kept in float32. [B]"""


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
        return cls.unfolded(mixer)

    @classmethod
    def unfolded(cls, mixer: Attention) -> Widths:
        """Keys and values as they are projected; latents become those of every head."""
        key, value = float(mixer.head_dim), float(mixer.v_head_dim)
        return cls(float(mixer.kv_heads), key, value, key + value)


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
        Keys; an indexer scores those beyond the window beside, :func:`keys_scored`.

    Examples
    --------
    >>> wide = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, window=128)
    >>> float(keys_seen(wide, 4096.0, 1.0)), float(keys_seen(wide, 99.0, 1.0))
    (128.0, 100.0)
    """
    near: Num = run(
        "attention: context", mean_cached_context,
        context=context, new_tokens=new_tokens, window=float(mixer.window) or np.inf,
    )  # fmt: skip
    if mixer.compression == 1 and not mixer.top_keys:
        return near
    far = keys_picked(mixer, context, new_tokens)
    every = mean_cached_context(context, new_tokens, np.inf)
    return np.minimum(every, far + (near if mixer.window else 0.0))


def keys_scored(mixer: Attention, context: Num, new_tokens: Num) -> Num:
    """Keys that an indexer scores for a new token on average: one per group of tokens before it.

    Parameters
    ----------
    mixer : Attention
        Softmax or latent attention.
    context, new_tokens : number or array
        Tokens of a sequence in the cache, and new ones.

    Returns
    -------
    number or array
        Keys, however few are picked.

    Examples
    --------
    >>> thin = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, compression=4)
    >>> float(keys_scored(thin, 4095.0, 1.0))
    1024.0
    """
    return mean_cached_context(context, new_tokens, np.inf) / mixer.compression


def keys_picked(mixer: Attention, context: Num, new_tokens: Num) -> Num:
    """Keys beyond a window that a new token sees on average: the best ones, or all if none are picked.

    Parameters
    ----------
    mixer : Attention
        Softmax or latent attention.
    context, new_tokens : number or array
        Tokens of a sequence in the cache, and new ones.

    Returns
    -------
    number or array
        Keys; the first queries of a sequence see fewer than they may pick.

    Examples
    --------
    >>> picky = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, top_keys=3)
    >>> float(keys_picked(picky, 0.0, 4.0)), float(keys_picked(picky, 9.0, 4.0))
    (2.25, 3.0)
    """
    reach = float(mixer.top_keys * mixer.compression) or np.inf
    return mean_cached_context(context, new_tokens, reach) / mixer.compression


def keys_read(mixer: Attention, context: Num, new_tokens: Num) -> Num:
    """Keys of a sequence that its new tokens read together: those they all see, or what each of them picks.

    Parameters
    ----------
    mixer : Attention
        Softmax or latent attention.
    context, new_tokens : number or array
        Tokens of a sequence in the cache, and new ones.

    Returns
    -------
    number or array
        Keys; picks are taken to differ until all keys are read.

    Examples
    --------
    >>> picky = Attention(kind="softmax", heads=8, kv_heads=1, head_dim=64, v_head_dim=64, top_keys=100)
    >>> float(keys_read(picky, 4096.0, 2.0)), float(keys_read(picky, 119.0, 2.0))
    (200.0, 120.5)
    """
    seen = keys_seen(mixer, context, new_tokens)
    if not mixer.top_keys:
        return seen
    every = keys_seen(replace(mixer, top_keys=0), context, new_tokens)
    return np.minimum(new_tokens * seen, every)


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


def cache_of_layer(mixer: Attention, context: Num, kv_size: float, tp: float) -> Num:
    """Bytes that a sequence leaves in a layer of one rank: keys, values, keys of an indexer, or a state.

    Parameters
    ----------
    mixer : Attention
        Softmax or latent attention.
    context : number or array
        Tokens of the sequence.
    kv_size : float
        Bytes of an element of the cache. [B]
    tp : float
        Tensor-parallel ranks; a latent, keys of an indexer, and heads fewer than ranks are on all of them.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    DeepSeek-AI, "DeepSeek-V2", 2024, table 1: (512 + 64) elements of a token and layer; "DeepSeek-V3.2",
    2025, section 2.1, whose indexer adds 128.

    Examples
    --------
    >>> from mc2perf.model import Indexer
    >>> latent = Attention(
    ...     kind="mla", heads=128, kv_heads=128, head_dim=192, v_head_dim=128, kv_lora_rank=512,
    ...     rope_head_dim=64, top_keys=2048, indexer=Indexer(heads=64, head_dim=128),
    ... )
    >>> float(cache_of_layer(latent, 1.0, 1.0, 8.0))
    704.0
    """
    if mixer.kind == "linear":
        key, value = float(mixer.head_dim), float(mixer.v_head_dim)
        return memory.linear_state_bytes(1.0, 1.0, mixer.heads / tp, key, value, STATE_SIZE)
    token = key_bytes(mixer, kv_size, tp)
    index = mixer.indexer.head_dim * kv_size / mixer.compression if mixer.indexer else 0.0
    return kept_keys(mixer, context) * token + context * index


def key_bytes(mixer: Attention, kv_size: float, tp: float) -> Num:
    """Cache of a key and its value in one layer on one rank. [B]"""
    widths = Widths.of(mixer)
    return memory.kv_token_bytes(widths.kv_heads, widths.cached, 0.0, kv_size, tp)
