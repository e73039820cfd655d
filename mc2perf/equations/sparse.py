"""Sparse attention: what picking keys moves, and the time to gather those that were picked."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


@formula("queries * keys * picks / block * score_size * passes")
def top_k_bytes(queries: Num, keys: Num, picks: Num, block: Num, score_size: Num, passes: Num) -> Num:
    """Bytes of picking the best keys of every query: scores are written, then read to find the best.

    Parameters
    ----------
    queries, keys : number or array
        Queries, and keys that each is scored against on average.
    picks, block : number or array
        Scores of a key that are picked from, and neighbouring keys that share their best score.
    score_size : number or array
        Bytes of a score. [B]
    passes : number or array
        How often a score is written or read: radix selection writes once and reads twice, for a histogram
        and for those above its edge.

    Returns
    -------
    number or array
        Bytes; the indices that come out are few beside them. [B]

    References
    ----------
    GLM-5's ``fast_topk_transform_fused`` on an H200 (SGLang, in aiconfigurator-core 0.12.0), 1024 and 16384
    queries over 131072 keys: 9 bytes per score at the peak of the memory for the two reads, 18 where many
    scores are equal.

    Examples
    --------
    >>> top_k_bytes(2.0, 4096.0, 1.0, 1.0, 4.0, 3.0)
    98304.0
    """
    return queries * keys * picks / block * score_size * passes


@formula("moved / memory_rate * (1 - (1 - 1 / l2_gain) / (1 + (held / resident) ** 8))")
def gather_time(moved: Num, held: Num, memory_rate: Num, l2_gain: Num, resident: Num) -> Num:
    r"""Time in which the queries of a prompt gather the keys that each of them picked.

    .. math:: t = \frac{M}{B} \left(1 - \frac{1 - 1/g}{1 + (H/M_0)^8}\right)

    Parameters
    ----------
    moved : number or array
        Bytes of all picks, M. [B]
    held : number or array
        Bytes of the keys that are picked from, H. [B]
    memory_rate : number or array
        Memory bandwidth that gathering reaches, B. [B/s]
    l2_gain : number or array
        Rate of L2 over that of memory, g.
    resident : number or array
        Size up to which keys that are read again and again stay in L2, M0. [B]

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    :func:`mc2perf.equations.attention.cache_time` where every key is picked once, M = H.

    Examples
    --------
    >>> round(float(gather_time(1e9, 1e6, 1e12, 2.0, 1e8)), 9)
    0.0005
    >>> round(float(gather_time(1e9, 1e9, 1e12, 2.0, 1e8)), 9)
    0.001
    """
    from_l2 = 1.0 / (1.0 + np.power(held / resident, 8.0))
    time: Num = moved / memory_rate * (1.0 - (1.0 - 1.0 / l2_gain) * from_l2)
    return time
