r"""The best number of pieces in closed form, where every piece costs a constant plus its share of the work.

With piece times :math:`\alpha + W/n` a makespan is a maximum of *branches* :math:`a n + b/n + c`. Each falls
up to :math:`\sqrt{b/a}` and rises after it (or only rises), so their maximum has one valley: its floor is a
branch's own minimum, a crossing of two branches, or an end of the range. The best whole number is beside it.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.units import Num

Columns = NDArray[np.floating[Any]]


class Branches(NamedTuple):
    """Coefficients of ``a n + b / n + c``, each of shape (branches, ...). [s]"""

    a: Columns
    b: Columns
    c: Columns


class Best(NamedTuple):
    """The best number of pieces and its makespan [s]; the smaller number where two tie."""

    pieces: Num
    time: Num


class Region(NamedTuple):
    """First and last index of a region, both inside it."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]


def two_stage_branches(alpha_first: Num, work_first: Num, alpha_second: Num, work_second: Num) -> Branches:
    r"""Branches of two stages with at least two buffers, one per stage that may be critical.

    .. math:: \max(a + n b,\; n a + b), \quad a = \alpha_1 + W_1/n,\; b = \alpha_2 + W_2/n

    Parameters
    ----------
    alpha_first, alpha_second : number or array
        What every piece costs however small, per stage. [s]
    work_first, work_second : number or array
        Time of the work that is divided, per stage. [s]

    Returns
    -------
    Branches
        Two: the second stage is critical, the first is.

    Notes
    -----
    Holds for every n >= 1.

    Examples
    --------
    >>> two_stage_branches(1.0, 8.0, 2.0, 16.0).c
    array([17., 10.])
    """
    return _stack(
        (alpha_second, work_first, alpha_first + work_second),
        (alpha_first, work_second, alpha_second + work_first),
    )


def three_stage_deep_branches(
    alpha_dispatch: Num,
    work_dispatch: Num,
    alpha_experts: Num,
    work_experts: Num,
    alpha_combine: Num,
    work_combine: Num,
) -> Branches:
    r"""Branches of dispatch, experts, combine on one communication engine, a buffer for every piece.

    .. math:: \max(d + n e + c,\; n (d + c),\; d + e + n c,\; n d + e + c)

    Parameters
    ----------
    alpha_dispatch, alpha_experts, alpha_combine : number or array
        What every piece costs however small, per stage. [s]
    work_dispatch, work_experts, work_combine : number or array
        Time of the work that is divided, per stage. [s]

    Returns
    -------
    Branches
        Four, in the order of the formula.

    Notes
    -----
    Holds for every n >= 1: the last two are ``n (d + c) + e - (n - 1) min(d, c)``.

    Examples
    --------
    >>> three_stage_deep_branches(1.0, 8.0, 2.0, 16.0, 1.0, 8.0).b
    array([16.,  0., 24., 24.])
    """
    d, e, c = (alpha_dispatch, work_dispatch), (alpha_experts, work_experts), (alpha_combine, work_combine)
    return _stack(
        (e[0], d[1] + c[1], d[0] + c[0] + e[1]),
        (d[0] + c[0], 0.0, d[1] + c[1]),
        (c[0], d[1] + e[1], d[0] + e[0] + c[1]),
        (d[0], e[1] + c[1], e[0] + c[0] + d[1]),
    )


def three_stage_two_buffer_branches(
    alpha_dispatch: Num,
    work_dispatch: Num,
    alpha_experts: Num,
    work_experts: Num,
    alpha_combine: Num,
    work_combine: Num,
) -> Branches:
    r"""Branches of dispatch, experts, combine on one communication engine with two buffers.

    .. math:: \max(d + n e + c,\; n (d + c) + \{0,\; e - d,\; e - c,\; 2 e - d - c\})

    Parameters
    ----------
    alpha_dispatch, alpha_experts, alpha_combine : number or array
        What every piece costs however small, per stage. [s]
    work_dispatch, work_experts, work_combine : number or array
        Time of the work that is divided, per stage. [s]

    Returns
    -------
    Branches
        Five, in the order of the formula. b may be negative; such a branch only rises.

    Notes
    -----
    Holds for n >= 2; one piece takes d + e + c.

    Examples
    --------
    >>> three_stage_two_buffer_branches(1.0, 8.0, 2.0, 16.0, 1.0, 8.0).b
    array([16.,  0.,  8.,  8., 16.])
    """
    alpha, work = alpha_dispatch + alpha_combine, work_dispatch + work_combine
    after_dispatch, after_combine = alpha_experts - alpha_dispatch, alpha_experts - alpha_combine
    left_dispatch, left_combine = work_experts - work_dispatch, work_experts - work_combine
    return _stack(
        (alpha_experts, work, alpha + work_experts),
        (alpha, 0.0, work),
        (alpha, left_dispatch, work + after_dispatch),
        (alpha, left_combine, work + after_combine),
        (alpha, left_dispatch + left_combine, work + after_dispatch + after_combine),
    )


def branches_time(a: Columns, b: Columns, c: Columns, pieces: Num) -> Num:
    """Makespan at n pieces: the largest branch.

    Parameters
    ----------
    a, b, c : array, shape (branches, ...)
        Coefficients of ``a n + b / n + c``. [s]
    pieces : number or array
        n >= 1, of the shape of the rows.

    Returns
    -------
    number or array
        Makespan. [s]

    Examples
    --------
    >>> float(branches_time(np.array([1.0, 0.0]), np.array([8.0, 0.0]), np.array([0.0, 5.0]), 2.0))
    6.0
    """
    longest: Num = np.max(a * pieces + b / pieces + c, axis=0)
    return longest


def best_piece_count(a: Columns, b: Columns, c: Columns, single: Num, largest: Num) -> Best:
    r"""Number of pieces with the smallest makespan, without trying them all.

    .. math:: n^* \in \Bigl\{1,\, 2,\, N,\, \sqrt{b_i/a_i},\,
        \text{roots of } (a_i-a_j) n^2 + (c_i-c_j) n + (b_i-b_j)\Bigr\}, \text{ rounded both ways}

    Parameters
    ----------
    a, b, c : array, shape (branches, ...)
        Coefficients of ``a n + b / n + c`` for n >= 2; a not negative. [s]
    single : number or array
        Makespan of one piece. [s]
    largest : number or array
        Largest number of pieces allowed, N >= 1.

    Returns
    -------
    Best
        Equal to trying 1 .. N.

    Notes
    -----
    Needs affine piece times; with steps (occupancy, L2, limits of a size) try every number instead.

    Examples
    --------
    >>> branches = two_stage_branches(1.0, 100.0, 1.0, 100.0)
    >>> tuple(map(float, best_piece_count(*branches, single=202.0, largest=64.0)))
    (10.0, 121.0)
    """
    rows = np.broadcast_shapes(a.shape[1:], np.shape(single), np.shape(largest))
    a, b, c = (np.broadcast_to(x.reshape(len(x), *(1,) * (1 + len(rows) - x.ndim), *x.shape[1:]),
                               (len(x), *rows)) for x in (a, b, c))  # fmt: skip
    valley = _lowest(a, b, c, _valleys(a, b, c, np.broadcast_to(largest, rows)))
    # one valley: the best whole number is beside its floor
    counts = np.stack([np.ones(rows), *(np.clip(r(valley), 2.0, None) for r in (np.floor, np.ceil))])
    counts = np.minimum(counts, largest)
    times = np.where(counts < 2.0, single, _longest(a, b, c, counts))
    time = np.min(times, axis=0)
    return Best(np.min(np.where(times == time, counts, np.inf), axis=0), time)


def _longest(a: Columns, b: Columns, c: Columns, counts: Columns) -> Columns:
    """The longest branch at every count, shape (counts, ...); branch by branch, rows side by side."""
    times = (p * counts + q / counts + r for p, q, r in zip(a, b, c, strict=True))
    longest: Columns = reduce(np.maximum, times)
    return longest


def _lowest(a: Columns, b: Columns, c: Columns, valleys: Columns) -> Columns:
    """The valley in which the makespan is lowest."""
    best = np.argmin(_longest(a, b, c, valleys), axis=0)
    lowest: Columns = np.take_along_axis(valleys, best[None], axis=0)[0]
    return lowest


def _valleys(a: Columns, b: Columns, c: Columns, largest: Columns) -> Columns:
    """Where the floor of the makespan may be, shape (valleys, ...): a minimum, a crossing, an end."""
    with np.errstate(over="ignore"):  # a valley beyond all numbers is infinitely far
        found = np.concatenate([_minima(a, b), *_crossings(a, b, c)])
    inside: Columns = np.minimum(np.maximum(found, 2.0), np.maximum(largest, 2.0))
    return inside


def _minima(a: Columns, b: Columns) -> Columns:
    """Where each branch is lowest; infinite if it only falls, 0 if it only rises."""
    falls = np.maximum(b, 0.0)
    squares = np.divide(falls, a, out=np.where(falls > 0.0, np.inf, 0.0), where=a > 0.0)
    return np.sqrt(squares)


def _crossings(a: Columns, b: Columns, c: Columns) -> tuple[Columns, Columns]:
    """Where two branches are equal, every pair, both roots; 0 where they never are."""
    left, right = np.triu_indices(len(a), k=1)
    square, linear, rest = (x[left] - x[right] for x in (a, c, b))
    root = np.sqrt(np.maximum(linear * linear - 4.0 * square * rest, 0.0))
    larger = -0.5 * (linear + np.copysign(root, linear))
    return _quotient(larger, square), _quotient(rest, larger)


def _quotient(above: Columns, below: Columns) -> Columns:
    """Divide, and give 0 where that is impossible."""
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0.0)


def _stack(*branches: tuple[Num, Num, Num]) -> Branches:
    """Coefficients of one branch each -> columns with the branches first."""
    flat = np.broadcast_arrays(*(np.asarray(x, float) for branch in branches for x in branch))
    return Branches(*(np.stack(flat[k::3]) for k in range(3)))


def flat_region(times: Columns, within: float) -> Region:
    """The contiguous region around the smallest time in which no time is much larger.

    Parameters
    ----------
    times : array, shape (..., counts)
        Makespans; infinite where a count is not allowed. [s]
    within : float
        Relative tolerance, such as 0.02.

    Returns
    -------
    Region
        First and last index of ``times <= (1 + within) min(times)`` around the first smallest.

    Examples
    --------
    >>> region = flat_region(np.array([9.0, 5.05, 5.0, 5.1, 6.0, 5.0]), 0.02)
    >>> int(region.first), int(region.last)
    (1, 3)
    """
    index = np.arange(times.shape[-1])
    lowest = np.argmin(times, axis=-1)[..., None]
    outside = times > (1.0 + within) * np.min(times, axis=-1)[..., None]
    first = np.max(np.where(outside & (index < lowest), index + 1, 0), axis=-1)
    last = np.min(np.where(outside & (index > lowest), index - 1, index[-1]), axis=-1)
    return Region(first, last)
