"""Time of pieces that pass through communication and computation, in closed form.

Two engines run beside each other: one communicates, one computes. A pipeline of n equal pieces is bound
by one of them; each closed form below is the maximum of those *bounds*, and equals playing the pieces one
by one (:func:`play`), which the tests do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


class StageBounds(NamedTuple):
    """Makespan if the second stage never waits after the fill, and if the first never waits. [s]"""

    second_bound: Num
    first_bound: Num


@formula("pieces * (first + second)")
def serial_time(first: Num, second: Num, pieces: Num) -> Num:
    """Time of pieces that never overlap, as with one buffer.

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage. [s]
    pieces : number or array
        Number of equal pieces, n >= 1.

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> serial_time(1.0, 2.0, 4.0)
    12.0
    """
    return pieces * (first + second)


@formula("first + pieces * second ; pieces * first + second")
def two_stage_bounds(first: Num, second: Num, pieces: Num) -> StageBounds:
    """Bounds of n equal pieces through two stages with at least two buffers.

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage, a and b. [s]
    pieces : number or array
        Number of equal pieces, n >= 1.

    Returns
    -------
    StageBounds
        ``a + n b`` (the second stage is critical) and ``n a + b`` (the first is). [s]

    Examples
    --------
    >>> two_stage_bounds(1.0, 2.0, 4.0)
    StageBounds(second_bound=9.0, first_bound=6.0)
    """
    return StageBounds(first + pieces * second, pieces * first + second)


@formula(
    "max(first + pieces * second, pieces * first + second)"
    " + max(0, 2 - buffers) * (pieces - 1) * min(first, second)"
)
def two_stage_time(first: Num, second: Num, pieces: Num, buffers: Num = 2.0) -> Num:
    r"""Makespan of n equal pieces through two stages with a ring of B buffers.

    .. math:: B = 1:\; n (a + b) \qquad B \ge 2:\; \max(a + n b,\; n a + b)

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage, a and b. [s]
    pieces, buffers : number or array
        n >= 1 equal pieces; whole B >= 1.

    Returns
    -------
    number or array
        Makespan. [s]

    Notes
    -----
    More than two buffers change nothing while piece times are constant.

    References
    ----------
    Johnson, "Optimal two- and three-stage production schedules", 1954 (equal jobs); Hwang et al.,
    "Tutel", MLSys 2023 (its limit for large n: the longer of computation and communication).

    Examples
    --------
    >>> float(two_stage_time(1.0, 2.0, 4.0)), float(two_stage_time(1.0, 2.0, 4.0, 1.0))
    (9.0, 12.0)
    """
    overlapped = np.maximum(first + pieces * second, pieces * first + second)
    return np.where(np.less(buffers, 2), serial_time(first, second, pieces), overlapped)


@formula("max(first + pieces * second, pieces * first + second, pieces * first + tail_first) + tail_second")
def two_stage_tail_time(first: Num, second: Num, pieces: Num, tail_first: Num, tail_second: Num) -> Num:
    r"""Makespan of n equal pieces and one other last piece, two buffers or more.

    .. math:: T = \max(a + n b,\; n a + b,\; n a + a') + b'

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage, a and b. [s]
    pieces : number or array
        Number of equal pieces before the tail, n >= 1.
    tail_first, tail_second : number or array
        Times of the tail, a' and b'. [s]

    Returns
    -------
    number or array
        Makespan. [s]

    Notes
    -----
    Exact for ``a' <= max(a, b)``, any b'; with a buffer for every piece, for any tail.

    Examples
    --------
    >>> float(two_stage_tail_time(1.0, 2.0, 2.0, 0.5, 1.0))
    6.0
    """
    last = np.maximum(pieces * first + second, pieces * first + tail_first)
    return np.maximum(first + pieces * second, last) + tail_second


@formula(
    "max(dispatch + pieces * experts + combine, pieces * (dispatch + combine)"
    " + max(0, experts - (min(buffers, pieces) - 1) * min(dispatch, combine))"
    " + min(1, max(0, pieces - buffers)) * max(0, experts - (buffers - 1) * max(dispatch, combine)),"
    " max(0, 2 - buffers) * pieces * (dispatch + experts + combine))"
)
def three_stage_time(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Num:
    r"""Makespan of dispatch, experts, combine with one communication engine and B buffers.

    .. math::
        B = 1 &:\; n (d+e+c) \\
        2 \le B < n &:\; \max(d+ne+c,\; n(d+c) + (e-(B-1)d)^+ + (e-(B-1)c)^+) \\
        B \ge n &:\; \max(d+ne+c,\; n(d+c) + (e-(n-1)\min(d,c))^+)

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Time of one piece in each stage: d, e, c. [s]
    pieces, buffers : number or array
        n >= 1 and whole B >= 1.

    Returns
    -------
    number or array
        Makespan; never more with more buffers. [s]

    Notes
    -----
    A piece holds a buffer from the start of its dispatch to the end of its combine. The engine serves
    D1 .. DB C1 D(B+1) C2 ... Cn: it dispatches ahead as far as buffers allow
    (:func:`mc2perf.equations.play.ring_order`). Either computation never waits after the fill, or
    communication waits as little as it can. :func:`mc2perf.equations.three_stages.three_stage_overlap`
    adds work beside the first dispatches and mutual slow-down.

    References
    ----------
    Derived here; the tests hold it against the recurrence and against every order of the engine.

    Examples
    --------
    >>> float(three_stage_time(1.0, 4.0, 1.0, 4.0, 4.0)), float(three_stage_time(1.0, 1.0, 1.0, 4.0, 1.0))
    (18.0, 12.0)
    """
    depth = np.minimum(buffers, pieces)
    at_start = np.maximum(0.0, experts - (depth - 1.0) * dispatch)
    at_end = np.maximum(0.0, experts - (depth - 1.0) * combine)
    wait = np.where(np.less(depth, pieces), at_start + at_end, np.maximum(at_start, at_end))
    serial = pieces * (dispatch + experts + combine)
    overlapped = np.maximum(dispatch + pieces * experts + combine, pieces * (dispatch + combine) + wait)
    return np.where(np.less(depth, 2), serial, overlapped)


@formula("dispatch + experts + combine + (pieces - 1) * max(dispatch, experts, combine)")
def three_stage_separate_time(dispatch: Num, experts: Num, combine: Num, pieces: Num) -> Num:
    """Makespan of three stages with an engine each and deep buffers.

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Time of one piece in each stage. [s]
    pieces : number or array
        n >= 1.

    Returns
    -------
    number or array
        Makespan. [s]

    Examples
    --------
    >>> float(three_stage_separate_time(1.0, 4.0, 1.0, 4.0))
    18.0
    """
    longest = np.maximum(np.maximum(dispatch, experts), combine)
    return dispatch + experts + combine + (pieces - 1.0) * longest
