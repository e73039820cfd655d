"""Communication windows: the HCCL_BUFFSIZE that an operator needs, and the symmetric heap of kernels.

Windows are in bytes; HCCL_BUFFSIZE counts MB of 2^20 bytes. All grow with the tokens of a rank, so that the
largest batch under a given window is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import MIB, Num


def aligned(size: Num, to: float) -> Num:
    """Smallest multiple of ``to`` that holds ``size``. [B]

    Examples
    --------
    >>> float(aligned(14400.0, 512.0))
    14848.0
    """
    return np.ceil(size / to) * to


# --- MoeDistributeDispatch and Combine -----------------------------------------------------------------


@formula("2 * (tokens * ep * min(local_experts, top_k) * hidden_size * 2 + 2 * 2**20)")
def a2_mesh_window(tokens: Num, ep: Num, local_experts: Num, top_k: Num, hidden_size: Num) -> Num:
    """Window of dispatch and combine over the full mesh of A2.

    Parameters
    ----------
    tokens : number or array
        Tokens of a rank (Bs), at most 256.
    ep, local_experts, top_k, hidden_size : number or array
        Ranks, experts on each, experts of a token, row width (16-bit elements).

    Returns
    -------
    number or array
        Bytes: rows arrive from every rank, twice for both directions. [B]

    References
    ----------
    ops-transformer, aclnnMoeDistributeDispatchV3.md, c29bc106, 424-460.

    Examples
    --------
    >>> float(a2_mesh_window(16.0, 16.0, 16.0, 8.0, 7168.0)) / MIB
    60.0
    """
    return 2.0 * (tokens * ep * np.minimum(local_experts, top_k) * hidden_size * 2.0 + 2.0 * MIB)


@formula("experts * tokens * (hidden_size * item_size + 16 * 8 * ceil(top_k / 8)) + 104 * 2**20")
def a2_hierarchy_window(tokens: Num, experts: Num, top_k: Num, hidden_size: Num, item_size: Num) -> Num:
    """Window of dispatch and combine on A2 in two levels, between servers and inside them (V3).

    Parameters
    ----------
    tokens, experts, top_k, hidden_size : number or array
        Tokens of a rank, experts of the layer, experts of a token, row width.
    item_size : number or array
        Bytes of an element. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    ops-transformer, aclnnMoeDistributeDispatchV3.md, c29bc106, 424-460.

    Examples
    --------
    >>> float(a2_hierarchy_window(16.0, 256.0, 8.0, 7168.0, 2.0)) / MIB
    160.5
    """
    return experts * tokens * (hidden_size * item_size + 16.0 * aligned(top_k, 8.0)) + 104.0 * MIB


@formula(
    "(experts + ep / 4) * 512 * ceil(tokens * (2 * hidden_size + 16 * 8 * ceil(top_k / 8)) / 512) + 8 * 2**20"
)
def a2_hierarchy_window_v4(tokens: Num, ep: Num, experts: Num, top_k: Num, hidden_size: Num) -> Num:
    """Window of dispatch and combine on A2 in two levels (V4); parameters as in the other windows. [B]

    References
    ----------
    ops-transformer 2026, aclnnMoeDistributeDispatchV4.md, read once.

    Examples
    --------
    >>> float(a2_hierarchy_window_v4(16.0, 16.0, 256.0, 8.0, 7168.0)) / MIB
    65.3828125
    """
    rows = aligned(tokens * (2.0 * hidden_size + 16.0 * aligned(top_k, 8.0)), 512.0)
    return (experts + ep / 4.0) * rows + 8.0 * MIB


@formula("2 * tokens * 2 * (hidden_size + 128) * (ep * local_experts + top_k + 1) + 2 * 2**20")
def a3_window_v1(tokens: Num, ep: Num, local_experts: Num, top_k: Num, hidden_size: Num) -> Num:
    """Window of the first version of dispatch and combine on A3.

    Parameters
    ----------
    tokens, ep, local_experts, top_k, hidden_size : number or array
        Tokens of a rank, ranks, experts on each, experts of a token, row width.

    Returns
    -------
    number or array
        Bytes, solved from (MB - 2) / 2 x 2^20 >= BS x 2 (H + 128) (EP e + K + 1). [B]

    References
    ----------
    ops-transformer, moe_distribute_dispatch, README and aclnnMoeDistributeDispatch.md, c29bc106.

    Examples
    --------
    >>> [round(float(a3_window_v1(t, 16.0, 16.0, 8.0, 7168.0)) / MIB, 1) for t in (26.0, 27.0, 512.0)]
    [193.8, 201.1, 3778.2]
    """
    return 2.0 * tokens * 2.0 * (hidden_size + 128.0) * (ep * local_experts + top_k + 1.0) + 2.0 * MIB


def _a3_row(hidden_size: Num) -> Num:
    """A dispatched row with its 64 bytes of flags. [B]"""
    return aligned(2.0 * hidden_size, 32.0) + 64.0


def _a3_window_v3(received: Num, tokens: Num, ep: Num, local_experts: Num, top_k: Num, shared: Num,
                  hidden_size: Num) -> Num:  # fmt: skip
    sent_back = (top_k + shared) * tokens * aligned(2.0 * hidden_size, 512.0)
    return 2.0 * (local_experts * tokens * ep * received + sent_back)


@formula(
    "2 * (local_experts * tokens * ep * 512 * ceil((32 * ceil(hidden_size / 16) + 64) / 512)"
    " + (top_k + shared) * tokens * 512 * ceil(hidden_size / 256))"
)
def a3_window_v3(tokens: Num, ep: Num, local_experts: Num, top_k: Num, shared: Num, hidden_size: Num) -> Num:
    """Window of V3 of dispatch and combine on A3, comm_alg fullmesh_v1.

    Parameters
    ----------
    tokens, ep, local_experts, top_k, hidden_size : number or array
        As in :func:`a3_window_v1`.
    shared : number or array
        Shared experts that lie on ranks of their own; usually none.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    ops-transformer, aclnnMoeDistributeDispatchV3.md, c29bc106, 424-460.

    Examples
    --------
    >>> [round(float(a3_window_v3(t, 16.0, 16.0, 8.0, 0.0, 7168.0)) / MIB, 1) for t in (26.0, 27.0, 512.0)]
    [194.2, 201.7, 3824.0]
    """
    received = aligned(_a3_row(hidden_size), 512.0)
    return _a3_window_v3(received, tokens, ep, local_experts, top_k, shared, hidden_size)


@formula(
    "2 * (local_experts * tokens * ep * 512 * ceil((32 * ceil(hidden_size / 16) + 64) / 480)"
    " + (top_k + shared) * tokens * 512 * ceil(hidden_size / 256))"
)
def a3_window_v3_split(
    tokens: Num, ep: Num, local_experts: Num, top_k: Num, shared: Num, hidden_size: Num
) -> Num:
    """Window of V3 on A3, comm_alg fullmesh_v2: every 512-byte line carries 480 bytes of a row.

    Parameters and result as in :func:`a3_window_v3`. [B]

    References
    ----------
    ops-transformer, aclnnMoeDistributeDispatchV3.md, c29bc106, 424-460.

    Examples
    --------
    >>> round(float(a3_window_v3_split(26.0, 16.0, 16.0, 8.0, 0.0, 7168.0)) / MIB, 1)
    200.7
    """
    received = np.ceil(_a3_row(hidden_size) / 480.0) * 512.0
    return _a3_window_v3(received, tokens, ep, local_experts, top_k, shared, hidden_size)


# --- other operators -----------------------------------------------------------------------------------


@formula("tokens * top_k * hidden_size * 3 + 3 * 2**20")
def ffn_combine_window(tokens: Num, top_k: Num, hidden_size: Num) -> Num:
    """Window of dispatch_ffn_combine, which sends int8 rows and takes 16-bit ones back.

    Parameters
    ----------
    tokens, top_k, hidden_size : number or array
        Tokens of a rank, experts of each, row width.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    ops-transformer, mc2/dispatch_ffn_combine README, 2025-11.

    Examples
    --------
    >>> ffn_combine_window(512.0, 8.0, 7168.0) / MIB
    87.0
    """
    return tokens * top_k * hidden_size * 3.0 + 3.0 * MIB


@formula("2 * (tokens * top_k * token_bytes + 207 * 2**20)")
def combine_normal_window(tokens: Num, top_k: Num, token_bytes: Num) -> Num:
    """Window of the combine of long prompts (combine-normal).

    Parameters
    ----------
    tokens, top_k : number or array
        Tokens of a rank, experts of each.
    token_bytes : number or array
        Bytes of a row. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    ops-transformer, mc2 READMEs, 2025-11.

    Examples
    --------
    >>> combine_normal_window(4096.0, 8.0, 14336.0) / MIB
    1310.0
    """
    return 2.0 * (tokens * top_k * token_bytes + 207.0 * MIB)


@formula("2 * buffsize - 2**20")
def data_window_950(buffsize: Num) -> Num:
    """What a 950 has for data: two buffers, of which the first MB is a state zone. [B]

    References
    ----------
    ops-transformer, mc2_tiling_utils.h, 2026.

    Examples
    --------
    >>> data_window_950(200.0 * MIB) / MIB
    399.0
    """
    return 2.0 * buffsize - MIB


@formula("buffers * ranks * rows * row_bytes")
def ring_bytes(buffers: Num, ranks: Num, rows: Num, row_bytes: Num) -> Num:
    """Ring of pieces in the symmetric heap, between the cores that send and the cube.

    Parameters
    ----------
    buffers, ranks : number or array
        Pieces in flight; ranks that send to each.
    rows : number or array
        Rows of a piece (commM, headMSize).
    row_bytes : number or array
        Bytes of a row that one rank sends. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    cannbot-skills, ascendc-mc2-best-practice, pipeline_tuning.md, aa55f948: 4 buffers in 1 GB.

    Examples
    --------
    >>> ring_bytes(4.0, 4.0, 512.0, 7168.0) / MIB
    56.0
    """
    return buffers * ranks * rows * row_bytes


@formula("ranks * rows * scale_row_bytes")
def scales_bytes(ranks: Num, rows: Num, scale_row_bytes: Num) -> Num:
    """Scales of all rows: sent once before the first piece, they stay in the heap.

    Parameters
    ----------
    ranks, rows : number or array
        Ranks, and all rows of one.
    scale_row_bytes : number or array
        Bytes of the scales of a row that one rank sends: 2 ceil(K / 64) for MX. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    cannbot-skills, ascendc-mc2-best-practice, comm_shmem.md, aa55f948.

    Examples
    --------
    >>> scales_bytes(4.0, 8192.0, 224.0) / MIB
    7.0
    """
    return ranks * rows * scale_row_bytes


def largest(holds: Callable[[float], bool], most: float) -> float:
    """Largest whole number from 1 to ``most`` for which something holds that ends once; 0 for none.

    Parameters
    ----------
    holds : callable
        True up to some number, false from there on.
    most : float
        Largest number to look at.

    Examples
    --------
    >>> largest(lambda tokens: a3_window_v1(tokens, 16.0, 16.0, 8.0, 7168.0) <= 200.0 * MIB, 512.0)
    26.0
    """
    fits, fails = 0.0, most + 1.0
    while fails - fits > 1.0:
        middle = float((fits + fails) // 2.0)
        fits, fails = (middle, fails) if holds(middle) else (fits, middle)
    return fits
