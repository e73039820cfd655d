r"""Time of a matrix multiplication on one rank: roofs over FLOPs and bytes, and utilisation rules.

``C (m x n) = A (m x k) B (k x n)``; a grouped matmul runs ``groups`` of them with m rows in all.

.. math:: t = \max\left(\frac{2 m n k}{P u}, \frac{\text{bytes}}{B_{mem}}\right) + \text{launch}

The utilisation u is what the rules below give; which one answers is data of the machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.units import MIB, Num


@formula("2 * m * n * k")
def matmul_flops(m: Num, n: Num, k: Num) -> Num:
    """Floating-point operations of a matmul.

    Parameters
    ----------
    m, n, k : number or array
        Rows, columns, contraction.

    Returns
    -------
    number or array
        FLOPs.

    Examples
    --------
    >>> matmul_flops(2.0, 3.0, 4.0)
    48.0
    """
    return 2.0 * m * n * k


@formula("m * k * a_size + weights * n * k * b_size + m * n * c_size")
def matmul_bytes(m: Num, n: Num, k: Num, weights: Num, a_size: Num, b_size: Num, c_size: Num) -> Num:
    """Bytes a matmul moves if each matrix passes memory once.

    Parameters
    ----------
    m, n, k : number or array
        Rows (of all groups together), columns, contraction.
    weights : number or array
        Weight matrices read: 1, the touched experts of a grouped matmul, or 0 if they stay in L2.
    a_size, b_size, c_size : number or array
        Bytes of an element of A, B, C. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> matmul_bytes(2.0, 3.0, 4.0, 1.0, 2.0, 2.0, 2.0)
    52.0
    """
    return m * k * a_size + weights * n * k * b_size + m * n * c_size


@formula("max(flops / (peak * utilisation), moved / memory_rate)")
def roofline_time(flops: Num, moved: Num, peak: Num, utilisation: Num, memory_rate: Num) -> Num:
    """The longer of computing and moving.

    Parameters
    ----------
    flops, moved : number or array
        Work [FLOP] and bytes [B].
    peak : number or array
        Cube peak of the element type. [FLOP/s]
    utilisation : number or array
        Share of the peak that is reached, in (0, 1].
    memory_rate : number or array
        Memory bandwidth that is reached. [B/s]

    Returns
    -------
    number or array
        Time. [s]

    References
    ----------
    Williams, Waterman, Patterson, "Roofline", CACM 2009.

    Examples
    --------
    >>> float(roofline_time(1e12, 1e9, 4e14, 0.5, 1e12))
    0.005
    """
    return np.maximum(flops / (peak * utilisation), moved / memory_rate)


@formula("largest * (rows * n / (rows + n)) / (rows * n / (rows + n) + reuse_half)")
def reuse_utilisation(rows: Num, n: Num, largest: Num, reuse_half: Num) -> Num:
    r"""Utilisation by operand reuse: half of the best is reached where mn/(m+n) equals ``reuse_half``.

    .. math:: u = u_{max} \frac{h}{h + h_{1/2}}, \quad h = \frac{m n}{m + n}

    A block of m x n results takes m + n operands per step of k, so h is the arithmetic intensity.

    Parameters
    ----------
    rows, n : number or array
        Rows of one group, columns.
    largest : number or array
        Utilisation of very large matmuls.
    reuse_half : number or array
        The h that reaches half of it.

    Returns
    -------
    number or array
        Utilisation in (0, 1).

    References
    ----------
    Fitted to 586 measured bf16 matmuls of one A3 die (median error 9 %, above 2048 rows 4 %); the same
    two constants give grouped matmuls of 52 measured MoE layers with a median error of 4 %.

    Examples
    --------
    >>> reuse_utilisation(400.0, 400.0, 0.9, 200.0)
    0.45
    """
    reuse = rows * n / (rows + n)
    return largest * reuse / (reuse + reuse_half)


@formula("blocks / (cores * ceil(blocks / cores))")
def round_occupancy(blocks: Num, cores: Num) -> Num:
    """Share of the cores that have a block to work on, over all rounds.

    Parameters
    ----------
    blocks, cores : number or array
        Base blocks of the result; cube cores.

    Returns
    -------
    number or array
        Occupancy in (0, 1].

    Examples
    --------
    >>> float(round_occupancy(30.0, 20.0))
    0.75
    """
    return blocks / (cores * np.ceil(blocks / cores))


@formula("min(blocks, cores) / cores")
def first_round_occupancy(blocks: Num, cores: Num) -> Num:
    """CANN's occupancy: full as soon as there are as many blocks as cores.

    Parameters
    ----------
    blocks, cores : number or array
        Base blocks of the result; cube cores.

    Returns
    -------
    number or array
        Occupancy in (0, 1].

    Examples
    --------
    >>> float(first_round_occupancy(10.0, 20.0))
    0.5
    """
    return np.minimum(blocks, cores) / cores


@formula("groups * ceil(rows / block_m) * ceil(n / block_n)")
def base_blocks(groups: Num, rows: Num, n: Num, block_m: Num, block_n: Num) -> Num:
    """Base blocks that the results of all groups are cut into.

    Parameters
    ----------
    groups, rows, n : number or array
        Groups, rows of each, columns.
    block_m, block_n : number or array
        Base block.

    Returns
    -------
    number or array
        Blocks.

    Examples
    --------
    >>> float(base_blocks(1.0, 300.0, 512.0, 128.0, 256.0))
    6.0
    """
    return groups * np.ceil(rows / block_m) * np.ceil(n / block_n)


def l2_footprint(rows: Num, n: Num, k: Num, cores: Num, block_m: Num, block_n: Num, item_size: Num) -> Num:
    """CANN's estimate of what one round of blocks needs from L2, in whole MiB.

    Parameters
    ----------
    rows, n, k : number or array
        Rows, columns, contraction.
    cores, block_m, block_n : number or array
        Cube cores and base block.
    item_size : number or array
        Bytes of an element. [B]

    Returns
    -------
    number or array
        Footprint. [B]

    References
    ----------
    ops-transformer ``matmul_performance.cpp`` (c29bc106), ``GetMatmulUtilisation``'s memory term.

    Examples
    --------
    >>> float(l2_footprint(4096.0, 8192.0, 4096.0, 24.0, 128.0, 256.0, 2.0)) / MIB
    72.0
    """
    block = np.minimum(block_m, rows)
    down, across = np.ceil(rows / block), np.ceil(n / block_n)
    operands = np.minimum(down, cores) * block + np.minimum(across, cores) * block_n
    return np.floor(operands * k * item_size / MIB) * MIB


def l2_steps_utilisation(
    footprint: Num, part_size: Num, full_size: Num, part: Num, full: Num, out: Num
) -> Num:
    """CANN's A2/A3 rule: a step per L2 footprint, before occupancy.

    Parameters
    ----------
    footprint, part_size, full_size : number or array
        Footprint and the two limits. [B]
    part, full, out : number or array
        Utilisation up to the first limit, up to the second, beyond.

    Returns
    -------
    number or array
        Utilisation.

    Examples
    --------
    >>> float(l2_steps_utilisation(100.0, 128.0, 192.0, 0.85, 0.75, 0.65))
    0.85
    """
    return np.where(footprint <= part_size, part, np.where(footprint <= full_size, full, out))


@formula(
    "min(cap, base * min(gain_cap, (k / k_half) ** exponent)"
    " * min(gain_cap, (m * n / (m + n) / mn_half) ** exponent))"
)
def power_utilisation(
    m: Num, n: Num, k: Num, base: Num, k_half: Num, mn_half: Num, exponent: Num, gain_cap: Num, cap: Num
) -> Num:
    """CANN's first 950 rule: a capped power law in k and in mn/(m+n).

    Parameters
    ----------
    m, n, k : number or array
        Rows, columns, contraction.
    base, k_half, mn_half, exponent, gain_cap, cap : number or array
        Its constants; ``base`` is reached at k = ``k_half`` and mn/(m+n) = ``mn_half``.

    Returns
    -------
    number or array
        Utilisation.

    References
    ----------
    ops-transformer ``matmul_performance.cpp`` (c29bc106), 132-154, 217-238.

    Examples
    --------
    >>> round(float(power_utilisation(1640.0, 1640.0, 1280.0, 0.75, 1280.0, 820.0, 0.7, 1.4, 0.95)), 12)
    0.75
    """
    deep = np.minimum(gain_cap, (k / k_half) ** exponent)
    wide = np.minimum(gain_cap, (m * n / (m + n) / mn_half) ** exponent)
    return np.minimum(cap, base * deep * wide)


def curve_utilisation(flops: Num, work: NDArray[np.float64], utilisation: NDArray[np.float64]) -> Num:
    """Utilisation interpolated over the logarithm of the work; constant beyond both ends.

    Parameters
    ----------
    flops : number or array
        Work. [FLOP]
    work, utilisation : array, shape (points,)
        The curve, work rising.

    Returns
    -------
    number or array
        Utilisation.

    Examples
    --------
    >>> round(float(curve_utilisation(1e10, np.array([1e9, 1e11]), np.array([0.2, 0.8]))), 12)
    0.5
    """
    return 1.0 * np.interp(np.log(flops), np.log(work), utilisation)


@formula("moved / (memory_rate)")
def vector_time(moved: Num, memory_rate: Num) -> Num:
    """Time of element-wise work: what it moves over memory.

    Parameters
    ----------
    moved : number or array
        Bytes read and written. [B]
    memory_rate : number or array
        Memory bandwidth that is reached. [B/s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> vector_time(2e9, 1e12)
    0.002
    """
    return moved / memory_rate
