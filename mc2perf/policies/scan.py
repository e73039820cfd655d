r"""Every cut into whole blocks that a scan tries: n - 1 equal tiles, and one that holds what is left.

A count n leaves a choice of lengths: from an even cut, :math:`\lceil M/n \rceil` of M whole blocks, where
rows beyond the last block may make one tile longer by less than a block, up to tiles so long that next to
nothing is left. A long tile with a short one in front or behind fills the pipeline sooner, or empties it
sooner, than tiles that are all alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.units import Num

Numbers = NDArray[np.floating[Any]]

SPREAD = 30
"""Up to so many blocks every length is tried; of longer operators so many lengths of each count's range."""

FEW = (0.0, 0.25, 0.5, 0.75)
"""Where a count was found by formula, how much longer than even its tiles are tried."""


class Lengths(NamedTuple):
    """Rows of n - 1 tiles and of the one that holds the rest; where a count leaves nothing for it."""

    each: Numbers
    rest: Numbers
    none_left: NDArray[np.bool_]

    @property
    def longest(self) -> Numbers:
        """Rows of the longest tile."""
        return np.maximum(self.each, self.rest)

    def where(self, here: NDArray[np.bool_], other: Lengths) -> Lengths:
        """These in some cuts, others elsewhere."""
        return Lengths(*(np.where(here, a, b) for a, b in zip(self, other, strict=True)))


def cut(whole: Num, counts: Numbers, block: float, longer: Num = 0.0) -> Lengths:
    r"""Tiles of whole blocks, and what is left of the rows.

    .. math::
        t = b \left\lceil (1 - \lambda) \frac1n \left\lfloor \frac mb \right\rfloor
        + \lambda \frac1{n-1} \left\lceil \frac mb \right\rceil \right\rceil,
        \qquad r = m - (n-1) t, \quad 0 < r < t + b

    Parameters
    ----------
    whole : number or array, shape (rows, 1)
        What is cut, m > 0. [rows]
    counts : array, shape (rows or 1, cuts)
        Tiles, n >= 1.
    block : float
        Rows of a block, b.
    longer : number or array
        :math:`\lambda`, at least 0 and below 1: from an even cut up to the longest tiles of which n fit.

    Returns
    -------
    Lengths
        Of shape (rows, cuts), exact for whole rows and binary fractions; equal tiles where nothing would
        be left.

    Examples
    --------
    >>> each, rest, _ = cut(4100.0, np.array([[2.0, 4.0, 5.0]]), 128.0)
    >>> each.tolist(), rest.tolist()
    ([[2048.0, 1024.0, 896.0]], [[2052.0, 1028.0, 516.0]])
    """
    before = np.maximum(counts - 1.0, 1.0)
    even, most = before * np.floor(whole / block), counts * np.ceil(whole / block)
    # one quotient of whole numbers: nothing is rounded before the ceiling is taken
    each = block * np.ceil((even + longer * (most - even)) / (counts * before))
    each = np.where(counts > 1.0, each, whole)
    rest = whole - (counts - 1.0) * each
    none_left = (rest <= 0.0) | (each <= 0.0)
    equal = whole / counts
    return Lengths(np.where(none_left, equal, each), np.where(none_left, equal, rest), none_left)


def even_cut(whole: Num, counts: Numbers, block: float) -> Lengths:
    """The most even cut of whole blocks; of whole rows, where there are too few blocks for the count.

    Examples
    --------
    >>> each, rest, _ = even_cut(1000.0, np.array([[3.0, 16.0]]), 128.0)
    >>> each.tolist(), rest.tolist()
    ([[384.0, 63.0]], [[232.0, 55.0]])
    """
    blocks, rows = cut(whole, counts, block), cut(whole, counts, 1.0)
    each, rest = (np.where(blocks.none_left, b, a) for a, b in zip(blocks[:2], rows[:2], strict=True))
    return Lengths(each, rest, rows.none_left & blocks.none_left)


def lengths_of(counts: Numbers) -> Numbers:
    """How many lengths of each count are tried: a power of two.

    Examples
    --------
    >>> lengths_of(np.array([1.0, 2.0, 4.0, 8.0])).tolist()
    [1.0, 16.0, 4.0, 1.0]
    """
    blocks = (SPREAD + 1.0) / np.maximum(counts - 1.0, 1.0) - SPREAD / counts
    return np.where(counts > 1.0, 2.0 ** np.ceil(np.log2(np.maximum(blocks, 1.0))), 1.0)


def few_lengths(counts: Numbers) -> tuple[Numbers, Numbers]:
    r"""Of every row's own count the even cut and at most three of the longer ones, side by side.

    Parameters
    ----------
    counts : array, shape (rows, 1)
        Tiles.

    Returns
    -------
    tuple of array, shape (rows, 4)
        Counts, and :math:`\lambda` of :func:`cut`, as in :func:`lengths_to_try`; the same may come twice.

    Examples
    --------
    >>> few_lengths(np.array([[4.0], [8.0]]))[1].tolist()
    [[0.0, 0.25, 0.5, 0.75], [0.0, 0.0, 0.0, 0.0]]
    """
    steps = lengths_of(counts)
    return np.repeat(counts, len(FEW), axis=-1), np.floor(np.array([FEW]) * steps) / steps


def lengths_to_try(counts: Numbers) -> tuple[Numbers, Numbers]:
    r"""Every count as often as lengths of it are tried, and how much longer than even each of them is.

    Parameters
    ----------
    counts : array, shape (1, counts)
        Tiles, rising.

    Returns
    -------
    tuple of array, shape (1, cuts)
        Counts, the even cut of each first; :math:`\lambda` of :func:`cut`, a binary fraction. Lengths
        are at most a block apart where there are at most ``SPREAD`` blocks.

    Examples
    --------
    >>> counts, longer = lengths_to_try(np.array([[1.0, 4.0, 8.0]]))
    >>> counts.tolist()
    [[1.0, 4.0, 4.0, 4.0, 4.0, 8.0]]
    """
    n = counts[0]
    steps = lengths_of(n).astype(int)
    at = np.concatenate([np.arange(count) / count for count in steps.tolist()])
    return np.repeat(n, steps)[None], at[None]
