"""FLOPs of token mixers."""

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
