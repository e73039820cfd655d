"""Pieces of unequal length on two engines that slow each other down, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.overlap import Overlap
from mc2perf.units import Num


def unequal_pieces(
    comm: NDArray[np.float64],
    compute: NDArray[np.float64],
    head: Num,
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Overlap:
    r"""Pieces that travel and are then computed in their order, each with a buffer of its own.

    Whatever the lengths, the longest path follows the transfers up to some piece j and the computation
    from there on. With :math:`c_1 = f (1 - 1/g)` and :math:`c_2 = g (1 - 1/f)`, what the covered work of
    one engine costs the critical other one:

    .. math:: T_j = \sum_{i \le j} a_i + \sum_{i \ge j} b_i + c_1 \sum_{i > j} a_i
                    + c_2 \Bigl(h + \sum_{i < j} b_i\Bigr)

    and :math:`T_0 = h + \sum b_i + c_1 \sum a_i` where computation never waits.

    Parameters
    ----------
    comm, compute : array, shape (pieces, ...)
        Stand-alone time of every piece, a and b; further axes are configurations. [s]
    head : number or array
        Computation that needs no communication, h, done first. [s]
    comm_slowdown, compute_slowdown : number or array
        f and g, at least 1, with 1/f + 1/g >= 1.

    Returns
    -------
    Overlap
        The longest path, at most all work one after the other. [s]

    Notes
    -----
    Computation before transfers is the same read backwards: reverse both. Equal to
    :func:`mc2perf.equations.overlap.two_stage_paths` for equal pieces; the tests play the pieces.

    References
    ----------
    Johnson, "Optimal two- and three-stage production schedules", 1954.

    Examples
    --------
    >>> float(unequal_pieces(np.array([1.0, 2.0]), np.array([2.0, 4.0]), 0.0, 1.0, 1.0).total)
    7.0
    """
    c1 = comm_slowdown * (1.0 - 1.0 / compute_slowdown)
    c2 = compute_slowdown * (1.0 - 1.0 / comm_slowdown)
    sent, computed = np.cumsum(comm, axis=0), np.cumsum(compute, axis=0)
    early = head + computed - compute
    paths = sent + (computed[-1] - computed + compute) + c1 * (sent[-1] - sent) + c2 * early
    alone = sent - compute_slowdown / comm_slowdown * early
    never_waits = head + computed[-1] + c1 * sent[-1]
    at = np.argmax(paths, axis=0)[None]
    longest = np.take_along_axis(paths, at, axis=0)[0]
    exposed = np.where(longest > never_waits, np.take_along_axis(alone, at, axis=0)[0], 0.0)
    longest = np.maximum(longest, never_waits)
    work = sent[-1] + computed[-1] + head
    exposed = np.where(longest >= work, sent[-1], exposed)
    total = np.minimum(longest, work)
    return Overlap(total, total - exposed, exposed)
