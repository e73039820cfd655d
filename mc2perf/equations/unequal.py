"""Pieces of unequal length on two engines that slow each other down, in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
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


Mask = NDArray[np.bool_]


def _makespan(first_comm: str, last_compute: str, turn: str, before_turn: str, ring: str, start: str) -> str:
    """The text of a makespan: the longest path, told by its transfers and by what it does not compute."""
    paths = (
        ("0", "0", ""),
        (first_comm, "head", ""),
        ("sent", f"head + computed - {last_compute}", ""),
        (turn, before_turn, ""),
        (ring, "computed - compute - rest_compute", "buffers < pieces"),
        (
            "(pieces - 1 - buffers) * comm",
            "computed - 2 * compute - rest_compute",
            "buffers < pieces - 1",
        ),
        ("sent - (buffers - 1) * comm", "head + computed - compute - rest_compute", "buffers < pieces"),
        ("comm + rest_comm", "head + (buffers - 1) * compute", "buffers < pieces"),
        (start, "(buffers - 1) * compute", "buffers < pieces"),
    )
    terms = []
    for taken, covered, when in paths:
        critical = f"{taken} + head + computed - ({covered})"
        term = f"{critical} + covered_comm * (sent - ({taken})) + covered_compute * ({covered})"
        terms.append(f"({term}) if {when} else 0" if when else term)
    return f"min(sent + computed + head, max({', '.join(terms)}))"


class Pieces(NamedTuple):
    """The numbers of :func:`rest_last`."""

    comm: Num
    compute: Num
    rest_comm: Num
    rest_compute: Num
    sent: Num
    computed: Num
    pieces: Num
    head: Num
    buffers: Num
    covered_comm: Num
    covered_compute: Num


class _End(NamedTuple):
    """What the place of the other piece decides."""

    first_comm: Num
    last_compute: Num
    turn: Num
    before_turn: Num
    ring: Num
    start: Num


def _last(p: Pieces) -> _End:
    between = p.computed - (p.compute + p.rest_compute)
    ring = p.sent - p.buffers * p.comm
    return _End(p.comm, p.rest_compute, p.sent - p.rest_comm, p.head + between, ring, p.rest_comm)


def _first(p: Pieces) -> _End:
    ring = p.sent - (p.buffers * p.comm + (p.rest_comm - p.comm))
    return _End(p.rest_comm, p.compute, p.rest_comm + p.comm, p.head + p.rest_compute, ring, p.comm)


@formula(
    _makespan(
        first_comm="comm",
        last_compute="rest_compute",
        turn="sent - rest_comm",
        before_turn="head + computed - compute - rest_compute",
        ring="sent - buffers * comm",
        start="rest_comm",
    )
)
def rest_last(
    comm: Num,
    compute: Num,
    rest_comm: Num,
    rest_compute: Num,
    sent: Num,
    computed: Num,
    pieces: Num,
    head: Num,
    buffers: Num,
    covered_comm: Num,
    covered_compute: Num,
    pace: Num,
) -> Overlap:
    r"""Equal pieces and a last one of another length, that travel and are then computed.

    A path of critical work takes in some transfers, A of all S, and leaves some computation covered, W of all
    :math:`h + C`:

    .. math:: T = A + (h + C - W) + c_1 (S - A) + c_2 W

    Beside the paths of equal pieces (:func:`mc2perf.equations.overlap.two_stage_paths`) the longest one may
    turn from transfers to computation before the other piece, or wait for a buffer on either side of it.

    Parameters
    ----------
    comm, compute : number or array
        Stand-alone time of each of n - 1 pieces, a and b. [s]
    rest_comm, rest_compute : number or array
        Those of the other piece, at most 2 a and 2 b. [s]
    sent, computed : number or array
        All transfers, S, and all computation but the head, C. [s]
    pieces, buffers : number or array
        n >= 1 pieces, whole B >= 2 of them in flight.
    head : number or array
        Computation that needs no communication, h, done first. [s]
    covered_comm, covered_compute : number or array
        :func:`mc2perf.equations.three_stages.covering_cost` of transfers and of computation, c.
    pace : number or array
        Slow-down of computation over that of transfers.

    Returns
    -------
    Overlap
        The longest path, at most all work one after the other; of a rest that is no other, what
        :func:`mc2perf.equations.overlap.longest_path` gives, to the last bit. [s]

    Notes
    -----
    Computation before transfers is the same read backwards, where the other piece is then the first one:
    :func:`rest_first`. The tests play the pieces.

    Examples
    --------
    >>> float(rest_last(2.0, 4.0, 1.0, 2.0, 5.0, 10.0, 3.0, 0.0, 4.0, 0.0, 0.0, 1.0).total)
    12.0
    """
    p = Pieces(
        comm, compute, rest_comm, rest_compute, sent, computed, pieces, head, buffers, covered_comm,
        covered_compute,
    )  # fmt: skip
    return _overlap(p, _last(p), pace)


@formula(
    _makespan(
        first_comm="rest_comm",
        last_compute="compute",
        turn="rest_comm + comm",
        before_turn="head + rest_compute",
        ring="(pieces - buffers) * comm",
        start="comm",
    )
)
def rest_first(
    comm: Num,
    compute: Num,
    rest_comm: Num,
    rest_compute: Num,
    sent: Num,
    computed: Num,
    pieces: Num,
    head: Num,
    buffers: Num,
    covered_comm: Num,
    covered_compute: Num,
    pace: Num,
) -> Overlap:
    """Equal pieces after one of another length, that travel and are then computed.

    Parameters
    ----------
    comm, compute, rest_comm, rest_compute, sent, computed, pieces, head, buffers
        As in :func:`rest_last`.
    covered_comm, covered_compute, pace
        As there.

    Returns
    -------
    Overlap
        The longest path, as there. [s]

    Examples
    --------
    >>> float(rest_first(2.0, 4.0, 1.0, 2.0, 5.0, 10.0, 3.0, 0.0, 4.0, 0.0, 0.0, 1.0).total)
    11.0
    """
    p = Pieces(
        comm, compute, rest_comm, rest_compute, sent, computed, pieces, head, buffers, covered_comm,
        covered_compute,
    )  # fmt: skip
    return _overlap(p, _first(p), pace)


def rest_at(p: Pieces, first: Num, pace: Num) -> Overlap:
    """The other piece first or last, configuration by configuration.

    Examples
    --------
    >>> p = Pieces(2.0, 4.0, 1.0, 2.0, 5.0, 10.0, 3.0, 0.0, 4.0, 0.0, 0.0)
    >>> rest_at(p, np.array([0.0, 1.0]), 1.0).total.tolist()
    [12.0, 11.0]
    """
    ends = zip(_first(p), _last(p), strict=True)
    return _overlap(p, _End(*(np.where(np.equal(first, 1.0), a, b) for a, b in ends)), pace)


def better_end(p: Pieces) -> tuple[Num, Num]:
    """The shorter makespan of the other piece last and first [s]; 1 where first is shorter, else 0.

    Examples
    --------
    >>> total, first = better_end(Pieces(2.0, 4.0, 1.0, 2.0, 5.0, 10.0, 3.0, 0.0, 4.0, 0.0, 0.0))
    >>> float(total), float(first)
    (11.0, 1.0)
    """
    last, first = (_longest(p, end) for end in (_last(p), _first(p)))
    work = p.sent + p.computed + p.head
    sooner = np.less(first, last) & np.less(first, work)
    return np.minimum(np.minimum(first, last), work), np.where(sooner, 1.0, 0.0)


def _longest(p: Pieces, end: _End) -> Num:
    """The longest path. [s]"""
    longest = np.zeros(np.broadcast_shapes(*map(np.shape, p)))
    for time, _, _, possible in _paths(p, end):
        np.maximum(longest, time if possible is None else np.where(possible, time, 0.0), out=longest)
    return longest


def _overlap(p: Pieces, end: _End, pace: Num) -> Overlap:
    """The longest path, and what of its transfers no computation covers."""
    longest: Num = 0.0
    exposed: Num = 0.0
    for time, taken, covered, possible in _paths(p, end):
        longer = np.greater(time, longest)
        longer = longer if possible is None else longer & possible
        longest, exposed = np.where(longer, time, longest), np.where(longer, taken - pace * covered, exposed)
    work = p.sent + p.computed + p.head
    exposed = np.where(longest >= work, p.sent, exposed)
    total = np.minimum(longest, work)
    return Overlap(total, total - exposed, exposed)


def _paths(p: Pieces, end: _End) -> Iterator[tuple[Num, Num, Num, Mask | None]]:
    """Every path: its time, its transfers, the computation that these cover, and where it is possible."""
    c1, c2 = p.covered_comm, p.covered_compute
    ends = p.compute + p.rest_compute
    # computed before the last piece, and between the first and the last
    early, middle = p.computed + (p.head - end.last_compute), p.computed - ends
    # those of equal pieces, in the order of their sums, so that a rest that is no other changes no bit
    yield early + end.last_compute + c1 * p.sent, 0.0, 0.0, None
    yield (
        p.computed + c2 * p.head + c1 * p.sent + (1.0 - c1) * end.first_comm, end.first_comm, p.head, None
    )  # fmt: skip
    yield p.sent + end.last_compute + c2 * early, p.sent, early, None
    short, other = np.less(p.buffers, p.pieces), _differs(p)
    always = p.head + p.computed + c1 * p.sent

    def path(taken: Num, covered: Num, possible: Mask) -> tuple[Num, Num, Num, Mask]:
        return always + (1.0 - c1) * taken - (1.0 - c2) * covered, taken, covered, possible

    yield path(end.turn, end.before_turn, other)
    if np.any(short):
        ring = p.head + ends + end.ring + c1 * (p.sent - end.ring) + c2 * middle
        yield ring, end.ring, middle, short
        other, held = other & short, (p.buffers - 1.0) * p.compute
        least = (p.pieces - 1.0 - p.buffers) * p.comm
        yield path(least, middle - p.compute, other & np.greater(least, 0.0))
        # only a longer piece makes its neighbours wait more than each other
        other = other & (np.greater(p.rest_comm, p.comm) | np.greater(p.rest_compute, p.compute))
        if not np.any(other):
            return
        yield path(p.sent - (p.buffers - 1.0) * p.comm, p.head + middle, other)
        yield path(p.comm + p.rest_comm, p.head + held, other)
        yield path(end.start, held, other)


def _differs(p: Pieces) -> Mask:
    """Where the other piece is another at all."""
    differs: Mask = np.not_equal(p.rest_comm, p.comm) | np.not_equal(p.rest_compute, p.compute)
    return differs
