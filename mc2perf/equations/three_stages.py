"""Dispatch, experts, combine in pieces, beside other work, on two engines that slow each other down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.equations.overlap import Overlap
from mc2perf.units import Num


class ThreeStagePaths(NamedTuple):
    """Paths with either engine critical, what waits at both ends add to the second, and what is uncovered.

    All in seconds. Uncovered communication belongs to the path or the detour of the same name.
    """

    computing: Num
    sending: Num
    at_start: Num
    at_end: Num
    computing_exposed: Num
    sending_exposed: Num
    at_start_exposed: Num
    at_end_exposed: Num


@formula("slowdown * (1 - 1 / slowdown_of_critical)")
def covering_cost(slowdown: Num, slowdown_of_critical: Num) -> Num:
    r"""What covered work costs the engine that covers it, as a share of the work's stand-alone time.

    Work that takes x alone runs for x f while it is covered; meanwhile the critical engine goes at 1/g of
    its pace and loses :math:`x f (1 - 1/g)`.

    Parameters
    ----------
    slowdown, slowdown_of_critical : number or array
        f of the covered engine and g of the critical one, at least 1, with 1/f + 1/g >= 1.

    Returns
    -------
    number or array
        Between 0 (engines that do not disturb each other) and 1 (covering gains nothing).

    Examples
    --------
    >>> covering_cost(1.5, 2.0), covering_cost(2.0, 2.0)
    (0.75, 1.0)
    """
    return slowdown * (1.0 - 1.0 / slowdown_of_critical)


@formula(
    "pieces * experts + beside + combine + covered_comm * (pieces * (dispatch + combine) - combine)"
    " + max(0, (1 - covered_comm) * dispatch - (1 - covered_compute) * beside)"
    " ; pieces * (dispatch + combine) + covered_compute * (pieces * experts + beside)"
    " ; max(0, (1 - covered_compute) * experts - (depth - 1) * (1 - covered_comm) * dispatch,"
    " (1 - covered_compute) * (experts + beside) - depth * (1 - covered_comm) * dispatch)"
    " ; max(0, (1 - covered_compute) * experts - (depth - 1) * (1 - covered_comm) * combine)"
)
def three_stage_paths(
    dispatch: Num,
    experts: Num,
    combine: Num,
    pieces: Num,
    depth: Num,
    beside: Num,
    covered_comm: Num,
    covered_compute: Num,
    pace: Num,
) -> ThreeStagePaths:
    r"""Paths of n pieces through dispatch, experts, combine; one engine sends, one computes.

    Covered transfers cost critical computation :math:`c_1`, covered computation costs critical
    communication :math:`c_2` of their stand-alone time. A path that takes work in, instead of covering it,
    grows by :math:`\delta = (1 - c_1) d`, :math:`\gamma = (1 - c_1) c`, :math:`\varepsilon = (1 - c_2) e`,
    :math:`\eta = (1 - c_2) s`:

    .. math::
        \begin{aligned}
        T_1 &= s + n e + c + c_1 (n (d+c) - c) + (\delta - \eta)^+ &
        T_2 &= n (d+c) + c_2 (s + n e) \\
        W_1 &= \max(0, \varepsilon - (B-1) \delta, \varepsilon + \eta - B \delta) &
        W_n &= (\varepsilon - (B-1) \gamma)^+
        \end{aligned}

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Stand-alone time of one piece in each stage: d, e, c. [s]
    pieces, depth : number or array
        n >= 2 equal pieces, B of them in flight, 2 <= B <= n.
    beside : number or array
        Computation that needs no communication, s, done first (shared experts). [s]
    covered_comm, covered_compute : number or array
        :math:`c_1` and :math:`c_2` of :func:`covering_cost`.
    pace : number or array
        g/f: stand-alone communication done while a second of stand-alone computation is covered.

    Returns
    -------
    ThreeStagePaths
        :math:`T_1, T_2, W_1, W_n` and the communication that each leaves uncovered. [s]

    Notes
    -----
    A piece holds a buffer from the start of its dispatch to the end of its combine; the engine serves
    D1 .. DB C1 D(B+1) C2 ... Cn (:func:`mc2perf.equations.play.ring_order`). A path that leaves the
    engine's chain at D(i) and comes back at C(j) takes in the experts in between; only 1-1, 1 with the
    work beside, n-n and 1-n can be longest.

    References
    ----------
    Derived here; the tests play the pieces event by event (:func:`mc2perf.two_engines.three_stages`).

    Examples
    --------
    >>> paths = three_stage_paths(1.0, 4.0, 1.0, 4.0, 2.0, 3.0, 0.0, 0.0, 1.0)
    >>> float(paths.computing), float(paths.sending + paths.at_start + paths.at_end)
    (20.0, 16.0)
    """
    comm, compute = pieces * (dispatch + combine), pieces * experts + beside
    sent, received = (1.0 - covered_comm) * dispatch, (1.0 - covered_comm) * combine
    computed, aside = (1.0 - covered_compute) * experts, (1.0 - covered_compute) * beside
    fill, ahead = sent - aside, depth - 1.0
    waits, waits_beside = computed - ahead * sent, computed + aside - depth * sent
    late = computed - ahead * received
    at_start_exposed = np.where(
        waits_beside > np.maximum(waits, 0.0),
        pace * (experts + beside) - depth * dispatch,
        np.where(waits > 0.0, pace * experts - ahead * dispatch, 0.0),
    )
    return ThreeStagePaths(
        compute + combine + covered_comm * (comm - combine) + np.maximum(fill, 0.0),
        comm + covered_compute * compute,
        np.maximum(np.maximum(waits, waits_beside), 0.0),
        np.maximum(late, 0.0),
        combine + np.where(fill > 0.0, dispatch - pace * beside, 0.0),
        comm - pace * compute,
        at_start_exposed,
        np.where(late > 0.0, pace * experts - ahead * combine, 0.0),
    )


@formula(
    "min(work, max(computing, sending"
    " + (at_start + at_end if depth < pieces else max(at_start, at_end)))) if depth > 1 else work"
)
def three_stage_overlap(
    computing: Num,
    sending: Num,
    at_start: Num,
    at_end: Num,
    computing_exposed: Num,
    sending_exposed: Num,
    at_start_exposed: Num,
    at_end_exposed: Num,
    pieces: Num,
    depth: Num,
    work: Num,
    comm: Num,
) -> Overlap:
    """Longest of the paths; waits at both ends add up unless the ring holds every piece.

    Parameters
    ----------
    computing, sending, at_start, at_end : number or array
        Fields of :class:`ThreeStagePaths`, as all those named ``_exposed``. [s]
    computing_exposed, sending_exposed, at_start_exposed, at_end_exposed : number or array
        Communication that each leaves uncovered. [s]
    pieces, depth : number or array
        n >= 1 equal pieces, B of them in flight, 1 <= B <= n.
    work, comm : number or array
        All work one after the other, and the communication in it. [s]

    Returns
    -------
    Overlap
        At most ``work``: overlapping that loses is not overlapped, nor is a single piece. [s]

    Examples
    --------
    >>> paths = three_stage_paths(1.0, 4.0, 1.0, 4.0, 4.0, 0.0, 0.0, 0.0, 1.0)
    >>> found = three_stage_overlap(*paths, pieces=4.0, depth=4.0, work=24.0, comm=8.0)
    >>> [float(time) for time in found]
    [18.0, 16.0, 2.0]
    """
    later = np.greater(at_end, at_start)
    apart = np.less(depth, pieces)
    waits = np.where(apart, at_start + at_end, np.where(later, at_end, at_start))
    uncovered = np.where(
        apart, at_start_exposed + at_end_exposed, np.where(later, at_end_exposed, at_start_exposed)
    )
    comm_critical = np.greater(sending + waits, computing)
    longest = np.where(comm_critical, sending + waits, computing)
    exposed = np.where(comm_critical, sending_exposed + uncovered, computing_exposed)
    loses = np.less(depth, 2) | (longest >= work)
    total, exposed = np.where(loses, work, longest), np.where(loses, comm, exposed)
    return Overlap(total, total - exposed, exposed)
