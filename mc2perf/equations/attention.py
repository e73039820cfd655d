"""FLOPs of token mixers, and the time of attention kernels over a sequence and over a cache."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


@formula("min(seq_len, window) - min(seq_len, window) * (min(seq_len, window) - 1) / (2 * seq_len)")
def mean_causal_context(seq_len: Num, window: Num) -> Num:
    r"""Keys a query sees on average under a causal mask, with a sliding window.

    .. math:: \bar c = w - \frac{w (w - 1)}{2 s}, \quad w = \min(s, \text{window})

    Parameters
    ----------
    seq_len : number or array
        Tokens of a sample, s.
    window : number or array
        Sliding window; infinity for none.

    Returns
    -------
    number or array
        Mean context, (s + 1) / 2 without a window.

    Examples
    --------
    >>> float(mean_causal_context(4.0, np.inf))
    2.5
    """
    seen = np.minimum(seq_len, window)
    return seen - seen * (seen - 1.0) / (2.0 * seq_len)


@formula("2 * tokens * context * heads * (key_dim + value_dim)")
def attention_flops(tokens: Num, context: Num, heads: Num, key_dim: Num, value_dim: Num) -> Num:
    """FLOPs of scores and weighted values, forward.

    Parameters
    ----------
    tokens : number or array
        Queries.
    context : number or array
        Keys each sees on average.
    heads, key_dim, value_dim : number or array
        Query heads, width of keys, width of values.

    Returns
    -------
    number or array
        FLOPs; the backward pass takes 2.5 times as many.

    References
    ----------
    Dao, "FlashAttention-2", 2023, section 4.1.

    Examples
    --------
    >>> attention_flops(4.0, 2.5, 1.0, 8.0, 8.0)
    320.0
    """
    return 2.0 * tokens * context * heads * (key_dim + value_dim)


@formula("4 * tokens * heads * key_dim * value_dim")
def linear_mixer_flops(tokens: Num, heads: Num, key_dim: Num, value_dim: Num) -> Num:
    """FLOPs of a linear mixer: one update and one read of the state per token, forward.

    Parameters
    ----------
    tokens : number or array
        Tokens.
    heads, key_dim, value_dim : number or array
        Heads and the two widths of a head's state.

    Returns
    -------
    number or array
        FLOPs.

    References
    ----------
    Katharopoulos et al., "Transformers are RNNs", 2020.

    Examples
    --------
    >>> linear_mixer_flops(2.0, 1.0, 8.0, 8.0)
    512.0
    """
    return 4.0 * tokens * heads * key_dim * value_dim


@formula("flops * (1 + extra_keys / context)")
def attention_work(flops: Num, context: Num, extra_keys: Num) -> Num:
    r"""FLOPs of an attention kernel with what it does beside the two matmuls counted as more keys.

    .. math:: F' = F \left(1 + \frac{c_0}{c}\right)

    Parameters
    ----------
    flops : number or array
        Scores and weighted values, F, which grow in proportion to the context. [FLOP]
    context : number or array
        Keys a query sees on average, c.
    extra_keys : number or array
        Keys that softmax, masks and tiles that are not full are worth, c0.

    Returns
    -------
    number or array
        FLOPs to divide by the rate of long sequences. [FLOP]

    Notes
    -----
    Fitted for contexts of 128 to 8192, heads of 128, batches of 1 to 128. Misses 64 key heads over more
    than L2 holds (up to 48 % slower than priced).

    References
    ----------
    305 prefill kernels of one A3 die (hudingyi688/aiconfigurator-npu), 3 constants, all pairs of queries
    and keys counted: median error 5 %, 90 % within 17 %.

    Examples
    --------
    >>> attention_work(1e9, 1000.0, 1000.0)
    2000000000.0
    """
    return flops * (1.0 + extra_keys / context)


@formula("sequences * context * kv_heads * (key_dim + value_dim) * item_size")
def cache_bytes(
    sequences: Num, context: Num, kv_heads: Num, key_dim: Num, value_dim: Num, item_size: Num
) -> Num:
    """Bytes of keys and values that one new token per sequence reads.

    Parameters
    ----------
    sequences, context : number or array
        Sequences of the batch, keys in the cache of each.
    kv_heads, key_dim, value_dim : number or array
        Key heads and the two widths.
    item_size : number or array
        Bytes of an element. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> cache_bytes(2.0, 10.0, 8.0, 128.0, 128.0, 2.0)
    81920.0
    """
    return sequences * context * kv_heads * (key_dim + value_dim) * item_size


@formula("moved / memory_rate * (1 - (1 - 1 / l2_gain) / (1 + (moved / resident) ** 8))")
def cache_time(moved: Num, memory_rate: Num, l2_gain: Num, resident: Num) -> Num:
    r"""Time to read a cache that was read before: from L2 as long as it fits, else from memory.

    .. math:: t = \frac{M}{B} \left(1 - \frac{1 - 1/g}{1 + (M/M_0)^8}\right)

    Parameters
    ----------
    moved : number or array
        Bytes of the cache, M. [B]
    memory_rate : number or array
        Memory bandwidth that is reached, B. [B/s]
    l2_gain : number or array
        Rate of L2 over that of memory, g.
    resident : number or array
        Size up to which a cache stays in L2, M0; next to 0 if something else was there meanwhile. [B]

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    A cache that is read in turns leaves L2 nearly all at once when it grows beyond it, hence the power.

    References
    ----------
    604 decode kernels of one A3 die (hudingyi688/aiconfigurator-npu): 134 MB at 2.4, 268 MB at 1.1 TB/s.

    Examples
    --------
    >>> round(float(cache_time(1e9, 1e12, 2.0, 1e12)), 9), round(float(cache_time(1e9, 1e12, 2.0, 1e3)), 9)
    (0.0005, 0.001)
    """
    from_l2 = 1.0 / (1.0 + np.power(moved / resident, 8.0))
    time: Num = moved / memory_rate * (1.0 - (1.0 - 1.0 / l2_gain) * from_l2)
    return time


@formula(
    "max(compute, memory, sequences * kv_heads * key_head_time / cores)"
    " + sequences * heads * query_head_time / cores"
)
def decode_attention_time(
    compute: Num,
    memory: Num,
    sequences: Num,
    heads: Num,
    kv_heads: Num,
    cores: Num,
    key_head_time: Num,
    query_head_time: Num,
) -> Num:
    r"""Time of attention over caches: the longest of computing, reading and handling heads, plus merging.

    .. math:: t = \max\left(t_c, t_m, \frac{b h_{kv} \tau_{kv}}{C}\right) + \frac{b h\, \tau_q}{C}

    Parameters
    ----------
    compute, memory : number or array
        Time under the cube's roof and the memory's. [s]
    sequences, heads, kv_heads : number or array
        Batch b, query heads h, key heads.
    cores : number or array
        Cube cores, C; long caches are cut so that all of them work.
    key_head_time, query_head_time : number or array
        Least time of a core for a key head of a sequence, and for a query head beside it. [s]

    Returns
    -------
    number or array
        Time without the launch. [s]

    Notes
    -----
    Fitted for 1 to 128 sequences with caches of 128 to 16384 keys, heads of 128. Below about 60 us the
    measured times scatter between 33 and 69 us without order; no rule follows that.

    References
    ----------
    604 decode kernels of one A3 die (hudingyi688/aiconfigurator-npu), 5 constants: median error 9 %,
    90 % within 22 %.

    Examples
    --------
    >>> float(decode_attention_time(1.0, 2.0, 4.0, 8.0, 2.0, 4.0, 0.5, 0.25))
    4.0
    """
    handled = sequences * kv_heads * key_head_time / cores
    merged = sequences * heads * query_head_time / cores
    return np.maximum(np.maximum(compute, memory), handled) + merged
