"""Passes of two micro-batches beside each other: a forward and a backward, as DualPipe pairs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.overlap import Overlap, stretched
from mc2perf.units import Num


def beside(
    one: tuple[Sequence[Num], Sequence[Num]],
    other: tuple[Sequence[Num], Sequence[Num]],
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Overlap:
    r"""Two passes side by side: the communication of one behind the computation of the other.

    Each is a sequence of turns, computation and the communication after it in alternation. A turn of one runs
    beside one of the other where one computes and the other communicates, and lasts as long as the longer;
    or it runs alone. Of all ways through both, in order, the one that takes least:

    .. math:: T_{ij} = \min(T_{i-1,j} + a_i,\; T_{i,j-1} + b_j,\; T_{i-1,j-1} + \max(a_i, b_j))

    the last one only where they are on different engines.

    Parameters
    ----------
    one, other : pair of sequences of numbers or arrays
        Computations, and the communication after each. [s]
    comm_slowdown, compute_slowdown : number or array
        As in :func:`mc2perf.equations.overlap.stretched`.

    Returns
    -------
    Overlap
        Both passes, from start to end.

    Notes
    -----
    Two equal passes, half a turn apart, take what :func:`mc2perf.equations.overlap.lockstep` says per cycle,
    or less where another pairing is better; here the first and the last turn have nothing beside them. A
    turn is not cut: kernels that start in the middle of one could hide more.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, figure 4: attention, dispatch, experts and combine of a
    forward between those of a backward. The recursion is that of Needleman and Wunsch, 1970.

    Examples
    --------
    >>> forward, backward = ([3.0, 2.0], [1.0, 2.0]), ([4.0, 6.0], [2.0, 3.0])
    >>> float(beside(forward, backward, 1.0, 1.0).total)
    18.0
    """
    a, b = _turns(one), _turns(other)
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
    a, b = (np.broadcast_to(turns, (len(turns), *shape)) for turns in (a, b))
    # time and busy computation along i + j = d, by i; cells outside are infinitely late
    before = last = np.full((2, len(a) + 1, *shape), np.inf)
    last = last.copy()
    last[:, 0] = 0.0
    for d in range(1, len(a) + len(b) + 1):
        i = np.arange(max(0, d - len(b)), min(d, len(a)) + 1)
        cell = np.full(last.shape, np.inf)
        cell[:, i] = _least(a, b, i, d - i, before, last, comm_slowdown, compute_slowdown)
        before, last = last, cell
    total, busy = last[:, len(a)]
    return Overlap(total, busy, total - busy)


def _turns(of: tuple[Sequence[Num], Sequence[Num]]) -> NDArray[Any]:
    """Computations and communications in alternation, along the first axis."""
    compute, comm = of
    return np.stack(np.broadcast_arrays(*(t for turn in zip(compute, comm, strict=True) for t in turn)))


def _least(
    a: NDArray[Any],
    b: NDArray[Any],
    i: NDArray[np.intp],
    j: NDArray[np.intp],
    before: NDArray[Any],
    last: NDArray[Any],
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> NDArray[Any]:
    """The least of the ways to cells (i, j): a turn of a alone, of b alone, or both at once."""
    of_a, of_b = a[i - 1], b[j - 1]
    even = (slice(None),) + (None,) * (a.ndim - 1)
    a_computes, b_computes = (i % 2 == 1)[even], (j % 2 == 1)[even]
    ways = [
        last[:, i - 1] + np.stack([of_a, of_a * a_computes]),
        last[:, i] + np.stack([of_b, of_b * b_computes]),
    ]
    ways[0][:, i == 0] = np.inf
    ways[1][:, j == 0] = np.inf
    if (i[0] + j[0]) % 2 == 1:
        compute, comm = np.where(a_computes, of_a, of_b), np.where(a_computes, of_b, of_a)
        both = stretched(compute, comm, compute, comm, comm_slowdown, compute_slowdown)
        ways.append(before[:, i - 1] + np.stack(np.broadcast_arrays(both.total, both.busy_compute)))
        ways[2][:, (i == 0) | (j == 0)] = np.inf
    least: NDArray[Any] = ways[0]
    for way in ways[1:]:
        least = np.where(way[0] < least[0], way, least)
    return least
