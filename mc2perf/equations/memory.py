"""Bytes that a rank holds beside activations: weights, gradients, optimizer, KV cache, states."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num

# --- weights, gradients, optimizer ---------------------------------------------------------------------


@formula(
    "parameters * (weight_size / weight_shards + gradient_size / gradient_shards"
    " + optimizer_size / optimizer_shards)"
)
def model_state_bytes(
    parameters: Num,
    weight_size: Num,
    weight_shards: Num,
    gradient_size: Num,
    gradient_shards: Num,
    optimizer_size: Num,
    optimizer_shards: Num,
) -> Num:
    """Bytes of weights, gradients and optimizer state of a rank.

    Parameters
    ----------
    parameters : number or array
        Weights of a rank after tensor, pipeline and expert parallelism.
    weight_size, gradient_size, optimizer_size : number or array
        Bytes per weight: 2, 4 and 12 for bf16 with fp32 gradients and Adam (master weight, two moments). [B]
    weight_shards, gradient_shards, optimizer_shards : number or array
        Data-parallel ranks that share each. Plain data parallelism: 1, 1, 1; distributed optimizer and
        ZeRO-1: 1, 1, dp; ZeRO-2: 1, dp, dp; ZeRO-3: dp, dp, dp.

    Returns
    -------
    number or array
        Bytes; experts have their own data-parallel group and are a second call. [B]

    References
    ----------
    Rajbhandari et al., "ZeRO", SC 2020, section 3 and figure 1; Megatron-LM, ``docs`` on the distributed
    optimizer (6 + 12/d bytes per weight for bf16 with fp32 gradients).

    Examples
    --------
    >>> model_state_bytes(1.0, 2.0, 1.0, 4.0, 1.0, 12.0, 8.0)
    7.5
    """
    held = weight_size / weight_shards + gradient_size / gradient_shards + optimizer_size / optimizer_shards
    return parameters * held


# --- KV cache ------------------------------------------------------------------------------------------


@formula("max(1, kv_heads / tp) * (key_dim + value_dim) * item_size")
def kv_token_bytes(kv_heads: Num, key_dim: Num, value_dim: Num, item_size: Num, tp: Num) -> Num:
    """KV cache of one token in one layer on one rank.

    Parameters
    ----------
    kv_heads, key_dim, value_dim : number or array
        Key-value heads and widths. Latent attention (MLA) keeps one latent and one rotary key for all heads:
        1, kv_lora_rank, rope_head_dim.
    item_size, tp : number or array
        Bytes of an element [B] and tensor-parallel ranks; fewer heads than ranks, and a latent, are copied.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Ainslie et al., "GQA", 2023; DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1 and table 1.

    Examples
    --------
    >>> float(kv_token_bytes(8.0, 128.0, 128.0, 2.0, 1.0)), float(kv_token_bytes(1.0, 512.0, 64.0, 2.0, 8.0))
    (4096.0, 1152.0)
    """
    return np.maximum(1.0, kv_heads / tp) * (key_dim + value_dim) * item_size


@formula("sequences * layers * min(context, window) * token_bytes")
def kv_cache_bytes(sequences: Num, layers: Num, context: Num, window: Num, token_bytes: Num) -> Num:
    """KV cache of layers of one kind; a hybrid model is the sum over its kinds.

    Parameters
    ----------
    sequences, layers : number or array
        Sequences of a rank and layers of that kind on it.
    context, window : number or array
        Tokens of a sequence, and the sliding window; infinity for none.
    token_bytes : number or array
        Cache of a token in one layer, :func:`kv_token_bytes`. [B]

    Returns
    -------
    number or array
        Bytes, without a partly filled last block of a paged cache. [B]

    Examples
    --------
    >>> float(kv_cache_bytes(1.0, 2.0, 4096.0, np.inf, 4096.0)) / 2**20
    32.0
    """
    return sequences * layers * np.minimum(context, window) * token_bytes


@formula("sequences * layers * heads * key_dim * value_dim * item_size")
def linear_state_bytes(
    sequences: Num, layers: Num, heads: Num, key_dim: Num, value_dim: Num, item_size: Num
) -> Num:
    """State of linear mixers: one matrix per head, whatever the length of the context.

    Parameters
    ----------
    sequences, layers : number or array
        Sequences of a rank and its linear layers.
    heads, key_dim, value_dim, item_size : number or array
        Heads of a rank, sides of a head's state, bytes of an element. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Katharopoulos et al., "Transformers are RNNs", 2020, section 3.4.

    Examples
    --------
    >>> linear_state_bytes(1.0, 1.0, 32.0, 128.0, 128.0, 4.0) / 2**20
    2.0
    """
    return sequences * layers * heads * key_dim * value_dim * item_size
