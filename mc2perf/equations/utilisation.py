"""Share of the cube's rate that a matmul reaches: blocks on cores, and CANN's and measured rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.units import MIB, Num


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


@formula("groups * rows * n / (blocks * block_m * block_n)")
def block_fill(groups: Num, rows: Num, n: Num, blocks: Num, block_m: Num, block_n: Num) -> Num:
    """Share of the base blocks that results fill: a block that is cut off takes as long as a whole one.

    Without it a few rows more would open a new block and seem to make the matmul faster.

    Parameters
    ----------
    groups, rows, n : number or array
        Groups, rows of each, columns.
    blocks, block_m, block_n : number or array
        Base blocks and the size of one.

    Returns
    -------
    number or array
        Fill in (0, 1].

    Examples
    --------
    >>> block_fill(1.0, 192.0, 256.0, 2.0, 128.0, 256.0)
    0.75
    """
    return groups * rows * n / (blocks * block_m * block_n)


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

    Notes
    -----
    A tiling rule, not a law: with fewer blocks than cores, rows that open one more block seem to make the
    matmul faster, as they do in CANN.

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
    deep: Num = np.minimum(gain_cap, (k / k_half) ** exponent)
    wide: Num = np.minimum(gain_cap, (m * n / (m + n) / mn_half) ** exponent)
    return np.minimum(cap, base * deep * wide)


def curve_utilisation(flops: Num, work: NDArray[np.float64], utilisation: NDArray[np.float64]) -> Num:
    """Utilisation interpolated over the logarithm of the work; constant beyond both ends.

    Parameters
    ----------
    flops : number or array
        Work. [FLOP]
    work, utilisation : array, shape (points,), or (points, rows, 1) for a curve of every row
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
    if work.ndim == 1:
        return np.maximum(np.interp(np.log(flops), np.log(work), utilisation), 0.0)
    x, rises = np.log(np.maximum.accumulate(work)), np.diff(utilisation, axis=0)
    reached = np.clip((np.log(flops) - x[:-1]) / np.maximum(np.diff(x, axis=0), 1e-12), 0.0, 1.0)
    summed: Num = utilisation[0] + np.sum(rises * reached, axis=0)
    return summed
