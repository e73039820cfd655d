"""Work and traffic of a training step: FLOPs that count, gradients, optimizer, context-parallel sends."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num

# --- FLOPs ---------------------------------------------------------------------------------------------


@formula("6 * active_parameters + 6 * layers * context * heads * (key_dim + value_dim)")
def model_flops_per_token(
    active_parameters: Num, layers: Num, context: Num, heads: Num, key_dim: Num, value_dim: Num
) -> Num:
    r"""FLOPs that a training step needs per token, forward and backward, nothing computed twice.

    .. math:: 6 N + 6 L c H (d_{qk} + d_v)

    Parameters
    ----------
    active_parameters : number or array
        Weights a token is multiplied with, N: the head once, no embedding look-up, top-k experts only.
    layers : number or array
        Layers with softmax attention, L.
    context : number or array
        Keys a query is charged with, c; the conventions differ here.
    heads, key_dim, value_dim : number or array
        Query heads and the widths of keys and values.

    Returns
    -------
    number or array
        FLOPs per token.

    Notes
    -----
    * PaLM charges the whole sequence, c = s: ``6 N + 12 L H Q T``. Megatron's formula is the same with N
      spelled out (:func:`gpt_model_flops`).
    * Causal counts half, c = s/2, or exactly :func:`mc2perf.equations.attention.mean_causal_context`;
      that is what a causal kernel computes. It is lower by ``3 L s H (d_qk + d_v)``.

    Attention's backward counts twice its forward here; FlashAttention computes scores anew and takes
    2.5 times. Models that mix kinds of layers: sum the second term over kinds.

    References
    ----------
    Chowdhery et al., "PaLM", 2022, appendix B.

    Examples
    --------
    >>> model_flops_per_token(7.0e9, 32.0, 2048.0, 32.0, 128.0, 128.0) / 1e9
    45.221225472
    """
    return 6.0 * active_parameters + 6.0 * layers * context * heads * (key_dim + value_dim)


@formula(
    "72 * tokens * layers * hidden_size ** 2"
    " * (1 + seq_len / (6 * hidden_size) + vocab_size / (12 * layers * hidden_size))"
)
def gpt_model_flops(tokens: Num, seq_len: Num, layers: Num, hidden_size: Num, vocab_size: Num) -> Num:
    r"""Model FLOPs of a GPT step in Megatron's variant: plain FFN of 4 h, all heads full, no causal half.

    .. math:: 72 B s l h^2 \left(1 + \frac{s}{6h} + \frac{V}{12 l h}\right)

    Parameters
    ----------
    tokens, seq_len : number or array
        All tokens of a step, B s, and of a sample, s.
    layers, hidden_size, vocab_size : number or array
        l, h, V.

    Returns
    -------
    number or array
        FLOPs.

    Notes
    -----
    :func:`model_flops_per_token` with ``N = 12 l h^2 + V h`` and c = s.

    References
    ----------
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, eq. 7.

    Examples
    --------
    >>> gpt_model_flops(1.0, 6.0, 1.0, 1.0, 12.0)
    216.0
    """
    shape = 1.0 + seq_len / (6.0 * hidden_size) + vocab_size / (12.0 * layers * hidden_size)
    return 72.0 * tokens * layers * hidden_size**2 * shape


@formula("2 * parameters + 2 * layers * context * heads * (key_dim + value_dim)")
def recomputed_flops_per_token(
    parameters: Num, layers: Num, context: Num, heads: Num, key_dim: Num, value_dim: Num
) -> Num:
    """FLOPs per token of one more forward pass through what the backward pass computes again.

    Parameters
    ----------
    parameters : number or array
        Active weights of the layers computed again: without the head for full recompute, 0 for selective
        recompute of the core attention.
    layers, context, heads, key_dim, value_dim : number or array
        As in :func:`model_flops_per_token`, of the layers whose attention is computed again.

    Returns
    -------
    number or array
        FLOPs per token; hardware FLOPs are the model's and these.

    Notes
    -----
    What is computed: scores and weighted values once more, forward. The hardware FLOPs that Korthikanti et
    al. print for selective recompute (eq. 8, s/(3 h)) charge three times as much, the backward pass too.

    References
    ----------
    Narayanan et al., SC 2021, eq. 3 (full recompute: 96 B s l h^2 in all); Korthikanti et al., 2022,
    section 5 (selective).

    Examples
    --------
    >>> recomputed_flops_per_token(6.0, 1.0, 4.0, 1.0, 8.0, 8.0)
    140.0
    """
    return 2.0 * parameters + 2.0 * layers * context * heads * (key_dim + value_dim)


@formula("flops / (step_time * peak * npus)")
def flops_utilisation(flops: Num, step_time: Num, peak: Num, npus: Num) -> Num:
    """MFU or HFU of a step: model or hardware FLOPs over what the NPUs could do at their peak.

    Parameters
    ----------
    flops : number or array
        Model FLOPs of the whole step for MFU; with what is computed again for HFU.
    step_time, peak, npus : number or array
        Time [s], peak of one NPU [FLOP/s], NPUs.

    Returns
    -------
    number or array
        Share; at most 1 for hardware FLOPs that are really computed. Without the causal half a causal
        kernel may seem to exceed 1.

    References
    ----------
    Chowdhery et al., "PaLM", 2022, section 4.1.

    Examples
    --------
    >>> flops_utilisation(1.0e15, 2.0, 1.0e15, 1.0)
    0.5
    """
    return flops / (step_time * peak * npus)


# --- data parallel -------------------------------------------------------------------------------------


@formula("parameters * item_size * (dp - 1) / dp")
def shard_exchange_bytes(parameters: Num, item_size: Num, dp: Num) -> Num:
    """Bytes that a rank sends to reduce-scatter its gradients, or to all-gather its weights.

    Parameters
    ----------
    parameters, item_size : number or array
        Weights of a rank before sharding, and bytes of a gradient or of a weight. [B]
    dp : number or array
        Ranks that hold the same weights; for experts their own, smaller group.

    Returns
    -------
    number or array
        Bytes sent, and as many received; an all-reduce takes both exchanges. [B]

    References
    ----------
    Rajbhandari et al., "ZeRO", SC 2020, section 7.1.

    Examples
    --------
    >>> shard_exchange_bytes(8.0, 4.0, 4.0)
    24.0
    """
    return parameters * item_size * (dp - 1.0) / dp


@formula(
    "parameters / shards * (gradient_passes * gradient_size + 2 * state_size + weight_size)"
    " + parameters * gradient_size"
)
def adam_moved_bytes(
    parameters: Num, shards: Num, gradient_passes: Num, gradient_size: Num, state_size: Num, weight_size: Num
) -> Num:
    """Bytes that an Adam step moves: it does little arithmetic and is bound by memory.

    Parameters
    ----------
    parameters, shards : number or array
        Weights of a rank before sharding, and ranks that share their optimizer.
    gradient_passes : number or array
        Times the owned gradients are read or written: 1 for Adam's own read, 1 more for their norm, 2 more
        if clipping rescales them in place.
    gradient_size, state_size, weight_size : number or array
        Bytes of a gradient; of master weight and both moments together, read and written; of the copy for
        the forward pass, written. [B]

    Returns
    -------
    number or array
        Bytes, with one write of all gradients to clear them. [B]

    References
    ----------
    Kingma and Ba, "Adam", 2015, algorithm 1: what it reads and writes, array by array.

    Examples
    --------
    >>> adam_moved_bytes(1.0, 1.0, 1.0, 4.0, 12.0, 2.0)
    34.0
    """
    owned = gradient_passes * gradient_size + 2.0 * state_size + weight_size
    return parameters / shards * owned + parameters * gradient_size


# --- context parallel ----------------------------------------------------------------------------------


@formula("(cp - 1) * tokens * kv_heads * (key_dim + value_dim) * item_size")
def ring_attention_bytes(
    tokens: Num, kv_heads: Num, key_dim: Num, value_dim: Num, item_size: Num, cp: Num
) -> Num:
    """Bytes of keys and values that a rank sends around a context-parallel ring, per layer.

    Parameters
    ----------
    tokens : number or array
        Tokens of one rank.
    kv_heads, key_dim, value_dim : number or array
        Key-value heads of one rank and the widths of keys and values.
    item_size : number or array
        Bytes of an element; for the backward pass those of an element and of its gradient. [B]
    cp : number or array
        Ranks of the ring.

    Returns
    -------
    number or array
        Bytes sent. [B]

    Notes
    -----
    Backward passes keys and values around again, and their gradients with them: as many hops if the sum
    starts at the owner's neighbour, one more if it starts at the owner and has to come home. A causal mask
    halves the work, not the traffic.

    References
    ----------
    Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023.

    Examples
    --------
    >>> ring_attention_bytes(1024.0, 8.0, 128.0, 128.0, 2.0, 4.0) / 2**20
    12.0
    """
    return (cp - 1.0) * tokens * kv_heads * (key_dim + value_dim) * item_size


@formula("(2 * cp - 1) / cp")
def contiguous_ring_factor(cp: Num) -> Num:
    r"""Causal attention of the busiest rank over the mean, where every rank holds one stretch of a sequence.

    .. math:: \frac{(s/p)^2 (p - 1/2)}{s^2 / 2 p} = \frac{2 p - 1}{p}

    Parameters
    ----------
    cp : number or array
        Ranks of the ring, p >= 1.

    Returns
    -------
    number or array
        Factor in [1, 2): the last rank's queries see all keys, the first rank's only their own.

    Notes
    -----
    Dealt in 2 p stretches, the i-th first and the i-th last to rank i (zigzag), all ranks compute as much.

    References
    ----------
    Brandon et al., "Striped Attention: Faster Ring Attention for Causal Transformers", 2023, section 2.

    Examples
    --------
    >>> contiguous_ring_factor(1.0), contiguous_ring_factor(4.0)
    (1.0, 1.75)
    """
    return (2.0 * cp - 1.0) / cp


@formula("tokens * (heads + max(kv_heads, cp)) * (key_dim + value_dim) * item_size * (cp - 1) / cp")
def ulysses_bytes(
    tokens: Num, heads: Num, kv_heads: Num, key_dim: Num, value_dim: Num, item_size: Num, cp: Num
) -> Num:
    """Bytes that a rank sends in the four all-to-alls that trade sequence for heads, per layer.

    Parameters
    ----------
    tokens : number or array
        Tokens of one rank.
    heads, kv_heads : number or array
        Query heads (a multiple of cp) and key-value heads of one rank; fewer than cp are repeated.
    key_dim, value_dim, item_size, cp : number or array
        Widths of a head, bytes of an element [B], ranks of the group.

    Returns
    -------
    number or array
        Bytes sent for queries, keys, values and the output, forward; backward sends as many. [B]

    Notes
    -----
    Per rank it falls with 1/cp at a given sequence, where the ring's traffic stays.

    References
    ----------
    Jacobs et al., "DeepSpeed Ulysses", 2023, section 3.2: 4 N h / P for equal heads and large P.

    Examples
    --------
    >>> float(ulysses_bytes(1024.0, 32.0, 8.0, 128.0, 128.0, 2.0, 4.0)) / 2**20
    15.0
    """
    sent_heads = heads + np.maximum(kv_heads, cp)
    return tokens * sent_heads * (key_dim + value_dim) * item_size * (cp - 1.0) / cp
