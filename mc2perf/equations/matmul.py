r"""Time of a matrix multiplication on one rank: roofs over FLOPs and bytes, and utilisation rules.

``C (m x n) = A (m x k) B (k x n)``; a grouped matmul runs ``groups`` of them with m rows in all.

.. math:: t = \max\left(\frac{2 m n k}{P u}, \frac{\text{bytes}}{B_{mem}}\right) + \text{launch}

The utilisation u is what the rules of :mod:`mc2perf.equations.utilisation` give; which one answers is data of
the machine.
"""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


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


@formula("weights * n * k * item_size")
def weight_bytes(weights: Num, n: Num, k: Num, item_size: Num) -> Num:
    """Bytes of the weights a matmul reads.

    Parameters
    ----------
    weights : number or array
        Weight matrices read: 1, the touched experts of a grouped matmul, or 0 if they stay in L2.
    n, k : number or array
        Columns, contraction.
    item_size : number or array
        Bytes of an element, scales included. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> weight_bytes(1.0, 3.0, 4.0, 2.0)
    24.0
    """
    return weights * n * k * item_size


@formula("m * (k * in_size + n * out_size)")
def activation_bytes(m: Num, n: Num, k: Num, in_size: Num, out_size: Num) -> Num:
    """Bytes of the rows a matmul reads and writes.

    Parameters
    ----------
    m, n, k : number or array
        Rows of all groups together, columns, contraction.
    in_size, out_size : number or array
        Bytes of an element read and written. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> activation_bytes(2.0, 3.0, 4.0, 2.0, 2.0)
    28.0
    """
    return m * (k * in_size + n * out_size)


@formula("rate * served")
def kept_up_rate(rate: Num, served: Num) -> Num:
    """What kernels reach of a rate inside a whole prefill, which issues them one by one.

    Parameters
    ----------
    rate : number or array
        Cube peak [FLOP/s] or memory bandwidth [B/s] of single kernels.
    served : number or array
        Share of it, in (0, 1]; `mc2perf.machine.cube.Cube` says where it is from.

    Returns
    -------
    number or array
        In the unit of the rate.

    Examples
    --------
    >>> kept_up_rate(1.5e12, 0.5)
    750000000000.0
    """
    return rate * served


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


@formula("max(compute, memory) * (1 + (min(compute, memory) / max(compute, memory)) ** knee) ** (1 / knee)")
def knee_time(compute: Num, memory: Num, knee: Num) -> Num:
    r"""Time where computing and moving overlap imperfectly: a rounded corner between two roofs.

    .. math:: t = (t_c^p + t_m^p)^{1/p}

    Parameters
    ----------
    compute, memory : number or array
        Time under each roof, compute > 0. [s]
    knee : number or array
        p >= 1: 1 adds the two, infinity takes the longer one.

    Returns
    -------
    number or array
        Time, at least the longer of both. [s]

    References
    ----------
    A p-norm, written on the ratio so that scaling both times scales the result exactly.

    Examples
    --------
    >>> round(float(knee_time(3.0, 4.0, 2.0)), 12)
    5.0
    """
    longer, shorter = np.maximum(compute, memory), np.minimum(compute, memory)
    # np.power, not **: the power of a single number would differ in its last bit from that of a column
    time: Num = longer * np.power(1.0 + np.power(shorter / longer, knee), 1.0 / knee)
    return time


@formula("time + contraction * k")
def contracted_time(time: Num, contraction: Num, k: Num) -> Num:
    """Time of a matmul with what one core needs for the contraction, however few results there are.

    Parameters
    ----------
    time : number or array
        Under the roofs. [s]
    contraction : number or array
        Time per element of the contraction. [s]
    k : number or array
        Contraction. [elements]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> contracted_time(3.0, 0.5, 2.0)
    4.0
    """
    return time + contraction * k


@formula(
    "(weight_bytes * (1 + reread / (1 + (block_rows / rows) ** 5)) * (1 + (narrow_columns / n) ** 4) ** 0.25"
    " / (1 + (resident / max(weight_bytes, 1)) ** 2) + other_bytes) / memory_rate"
)
def streaming_time(
    weight_bytes: Num,
    other_bytes: Num,
    rows: Num,
    n: Num,
    memory_rate: Num,
    reread: Num,
    block_rows: Num,
    narrow_columns: Num,
    resident: Num,
) -> Num:
    r"""Time to stream the operands of a matmul: what large, narrow and small weights cost.

    .. math::
        t_m = \frac{1}{B} \left(W (1 + \rho\, s)
              \frac{\sqrt[4]{1 + (n_0/n)^4}}{1 + (W_0/W)^2} + R\right),
        \qquad s = \frac{1}{1 + (m_0/m)^5}

    Parameters
    ----------
    weight_bytes, other_bytes : number or array
        Weights W, and activations in and out R. [B]
    rows, n : number or array
        Rows of one group, columns.
    memory_rate : number or array
        Memory bandwidth that is reached, B. [B/s]
    reread : number or array
        Share of the weights read again once there is more than one block of rows.
    block_rows : number or array
        Rows m0 around which a second block begins.
    narrow_columns : number or array
        Columns n0 below which the full rate is not reached.
    resident : number or array
        Weights W0 well below which they arrive faster than from memory. [B]

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    Fitted for 1 to 16384 rows and 256 to 16384 columns. Misses kernel switches at few rows, and the
    slow contraction of 16384 (10 to 25 %).

    References
    ----------
    586 bf16 matmuls of one A3 die (hudingyi688/aiconfigurator-npu), 9 constants of the whole rule: median
    error 6 %, 90 % within 24 %. Letting the rows arrive faster as well would fit a little better, but price
    large rows with small weights below the memory's bandwidth.

    Examples
    --------
    >>> float(streaming_time(2e9, 1e9, 1.0, 1e9, 1e12, 0.0, 180.0, 0.0, 0.0))
    0.003
    """
    again = reread / (1.0 + np.power(block_rows / rows, 5.0))
    narrow = np.power(1.0 + np.power(narrow_columns / n, 4.0), 0.25)
    warm = 1.0 + np.square(resident / np.maximum(weight_bytes, 1.0))
    time: Num = (weight_bytes * (1.0 + again) * narrow / warm + other_bytes) / memory_rate
    return time


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


@formula("ramp * rows / (rows + ramp_rows)")
def ramp_time(rows: Num, ramp: Num, ramp_rows: Num) -> Num:
    """Fixed cost that appears as rows fill the vector cores.

    Parameters
    ----------
    rows : number or array
        Rows.
    ramp : number or array
        What it comes to with many rows. [s]
    ramp_rows : number or array
        Rows at which half of it is there.

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> ramp_time(120.0, 1e-6, 120.0)
    5e-07
    """
    return ramp * rows / (rows + ramp_rows)


@formula("3 * m * k")
def quantise_bytes(m: Num, k: Num) -> Num:
    """Bytes that quantising rows of bf16 to int8 moves: 2 read, 1 written per element.

    Parameters
    ----------
    m, k : number or array
        Rows, width.

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> quantise_bytes(2.0, 4.0)
    24.0
    """
    return 3.0 * m * k


@formula("6 * m * n")
def dequantise_bytes(m: Num, n: Num) -> Num:
    """Bytes that scaling int32 results to bf16 moves: 4 read, 2 written per element.

    Parameters
    ----------
    m, n : number or array
        Rows, columns.

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> dequantise_bytes(2.0, 4.0)
    48.0
    """
    return 6.0 * m * n
