r"""The best number of pieces by formula: piece times taken as affine, the valleys of their branches found.

Two prices fix a line :math:`\alpha + W/n`; with the head that computes beside the first transfers and the
mutual slow-down of the engines, a two-stage makespan stays a maximum of branches :math:`a n + b/n + c`
(:mod:`mc2perf.equations.optimum`). With affine costs the result equals trying every count; steps and
cliffs of real costs are what it does not see.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.optimum import Branches
from mc2perf.units import Num

Numbers = NDArray[np.floating[Any]]


class Affine(NamedTuple):
    """Time of one of n pieces, ``alpha + work / n``. [s]"""

    alpha: Num
    work: Num


def affine_through(first: Num, second: Num, time_first: Num, time_second: Num) -> Affine:
    r"""The line through the prices of one piece at two counts.

    .. math:: W = \frac{t_1 - t_2}{1/n_1 - 1/n_2}, \qquad \alpha = t_1 - W / n_1

    Parameters
    ----------
    first, second : number or array
        Counts, n1 < n2.
    time_first, time_second : number or array
        Times of one piece at each. [s]

    Returns
    -------
    Affine
        Neither part is negative: a piece that grows cheaper than in proportion costs no constant.

    Examples
    --------
    >>> affine_through(1.0, 4.0, 9.0, 3.0)
    Affine(alpha=np.float64(1.0), work=np.float64(8.0))
    """
    work = np.maximum((time_first - time_second) / (1.0 / first - 1.0 / second), 0.0)
    return Affine(np.maximum(time_first - work / first, 0.0), work)


def two_stage_branches(
    comm: Affine,
    compute: Affine,
    head: Num | None,
    buffers: Num,
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Branches:
    """Branches of a fused operator: transfers and computation, a head, a short ring, mutual slow-down.

    Parameters
    ----------
    comm, compute : Affine
        Time of one piece, a and b. [s]
    head : number or array
        Computation beside the first transfers (or the last), h; None if there never is any. [s]
    buffers : number or array
        Pieces in flight, B >= 2.
    comm_slowdown, compute_slowdown : number or array
        f and g, at least 1.

    Returns
    -------
    Branches
        The paths of :func:`mc2perf.equations.overlap.two_stage_paths`: first transfer, sending; with a head
        also head and ring, which without one are never longer.

    Notes
    -----
    Holds for n >= 2.

    Examples
    --------
    >>> two_stage_branches(Affine(1.0, 8.0), Affine(2.0, 16.0), None, 4.0, 1.0, 1.0).b.tolist()
    [8.0, 16.0]
    """
    (p, q), (r, s) = comm, compute
    c1 = comm_slowdown * (1.0 - 1.0 / compute_slowdown)
    c2 = compute_slowdown * (1.0 - 1.0 / comm_slowdown)
    beside = 0.0 if head is None else head
    # coefficients of n, of 1/n, and the constant; n a = p n + q, (n - 1) b = r n - s/n + s - r
    branches: list[tuple[Num, Num, Num]] = [
        (r + c1 * p, (1.0 - c1) * q, p + s + c2 * beside + c1 * (q - p)),
        (p + c2 * r, (1.0 - c2) * s, q + r + c2 * (beside + s - r)),
    ]
    if head is not None:
        branches.append((r + c1 * p, 0.0, head + s + c1 * q))
        late = c1 * buffers - buffers
        rest = head + 2.0 * r + q + late * p + c2 * (s - 2.0 * r)
        branches.append((p + c2 * r, 2.0 * s + late * q - 2.0 * c2 * s, rest))
    columns = np.broadcast_arrays(*(np.asarray(x, float) for branch in branches for x in branch))
    return Branches(*(np.stack(columns[k::3]) for k in range(3)))


def neighbours(best: Num, feasible: NDArray[np.bool_], counts: Numbers) -> Numbers:
    """The feasible counts on either side of the best one; a valley has no better ones further away.

    Parameters
    ----------
    best : number or array, shape (rows, 1)
        Best count, feasible or not.
    feasible : array of bool, shape (rows, counts)
        Which counts a row can have; at least one.
    counts : array, shape (1, counts)
        Counts, rising.

    Returns
    -------
    array, shape (2, rows)
        The next feasible count below or at the best one, and above or at it.

    Examples
    --------
    >>> counts = np.array([[1.0, 2.0, 4.0, 8.0]])
    >>> neighbours(np.array([[5.0]]), counts < 8.0, counts).tolist()
    [[4.0], [4.0]]
    """
    last = counts.shape[-1] - 1
    under, over = feasible & (counts <= best), feasible & (counts >= best)
    # the last feasible count under the best, the first one over it; argmax of truths is the first true
    low, high = last - np.argmax(under[:, ::-1], axis=-1), np.argmax(over, axis=-1)
    low = np.where(under.any(axis=-1), low, high)
    high = np.where(over.any(axis=-1), high, low)
    found: Numbers = counts[0][np.stack([low, high])]
    return found
