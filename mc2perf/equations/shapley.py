r"""Shares of several causes in one difference, whatever the order in which they are made.

Making changes one after the other, each gets what the answer moves by in its turn; who comes first gets
more, or less. The Shapley value is the average over all orders:

.. math::
    \phi_i = \sum_{S \not\ni i} \frac{|S|!\,(n - |S| - 1)!}{n!} \bigl(v(S \cup i) - v(S)\bigr)

Sets of changes are numbers here: bit i is set where change i is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def shapley_shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of n changes in the difference between none and all of them, from the value of every set.

    Parameters
    ----------
    values : array, shape (2 ** n,)
        The answer for every set of changes.

    Returns
    -------
    array, shape (n,)
        Shares; they add up to ``values[-1] - values[0]``, a change that never moves the answer gets 0.

    References
    ----------
    Shapley, "A value for n-person games", 1953.

    Examples
    --------
    >>> shapley_shares(np.array([0.0, 1.0, 2.0, 9.0])).tolist()
    [4.0, 5.0]
    """
    count = int(values.size).bit_length() - 1
    sets = np.arange(values.size)
    sizes = sum(((sets >> bit & 1 for bit in range(count))), np.zeros_like(sets))
    weights = np.array([1.0 / (count * math.comb(count - 1, size)) for size in range(count)])
    shares = np.zeros(count)
    for bit in range(count):
        without = sets[sets >> bit & 1 == 0]
        # summed without rounding: going back gives the same terms in another order, and exactly the opposite
        shares[bit] = math.fsum(weights[sizes[without]] * (values[without | 1 << bit] - values[without]))
    return shares


def orders_of(count: int, pairs: int) -> list[tuple[int, ...]]:
    """Orders to average over where there are too many sets: seeded, each with its reverse.

    Going back from all changes to none passes the same sets in reverse, so that shares change sign exactly.

    Parameters
    ----------
    count : int
        Changes.
    pairs : int
        Orders drawn, each used forwards and backwards.

    Returns
    -------
    list of tuple of int
        ``2 * pairs`` orders.

    Examples
    --------
    >>> forwards, backwards = orders_of(3, 1)
    >>> forwards == backwards[::-1]
    True
    """
    chance = np.random.default_rng(0)
    drawn = [tuple(chance.permutation(count).tolist()) for _ in range(pairs)]
    return [order for one in drawn for order in (one, one[::-1])]


def sets_on(orders: Sequence[Sequence[int]]) -> list[int]:
    """Every set of changes that the orders pass, once.

    Examples
    --------
    >>> sets_on([(0, 1), (1, 0)])
    [0, 1, 3, 2]
    """
    passed: dict[int, None] = {}
    for order in orders:
        passed |= dict.fromkeys(_sets_of(order))
    return list(passed)


def _sets_of(order: Sequence[int]) -> list[int]:
    sets = [0]
    for change in order:
        sets.append(sets[-1] | 1 << change)
    return sets


def average_shares(values: Mapping[int, float], orders: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Shares of changes, averaged over some orders.

    Parameters
    ----------
    values : mapping
        The answer for every set on the orders.
    orders : sequence of sequence of int
        Orders of all changes.

    Returns
    -------
    array, shape (n,)
        Shares; they add up to the difference between all changes and none.

    References
    ----------
    Castro, Gómez, Tejada, "Polynomial calculation of the Shapley value based on sampling", 2009.

    Examples
    --------
    >>> average_shares({0: 0.0, 1: 1.0, 2: 2.0, 3: 9.0}, [(0, 1), (1, 0)]).tolist()
    [4.0, 5.0]
    """
    moved: list[list[float]] = [[] for _ in orders[0]]
    for order in orders:
        sets = _sets_of(order)
        for change, before, after in zip(order, sets[:-1], sets[1:], strict=True):
            moved[change].append(values[after] - values[before])
    return np.array([math.fsum(steps) / len(orders) for steps in moved])
