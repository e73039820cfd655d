"""Time of pieces that pass through communication and computation, in closed form.

Two engines run beside each other: one communicates, one computes. A pipeline of n equal pieces is bound
by one of them; each closed form below is the maximum of those *bounds*, and equals playing the pieces one
by one (:func:`play`), which the tests do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.units import Num


class Bounds(NamedTuple):
    """Makespan if computation never waits after the fill, and if communication never waits.

    The makespan is the larger one.
    """

    compute: Num
    comm: Num


class Overlap(NamedTuple):
    """Makespan, how long computation was busy in it, and the rest: communication nobody covers. [s]"""

    total: Num
    busy_compute: Num
    exposed_comm: Num


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


@formula("max(first + pieces * second, pieces * first + second)")
def two_stage_time(first: Num, second: Num, pieces: Num) -> Num:
    r"""Makespan of n equal pieces through two stages with at least two buffers.

    .. math:: T = \max(a + n b,\; n a + b)

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage, a and b. [s]
    pieces : number or array
        Number of equal pieces, n >= 1.

    Returns
    -------
    number or array
        Makespan. [s]

    Notes
    -----
    More than two buffers change nothing while piece times are constant.

    References
    ----------
    Johnson, "Optimal two- and three-stage production schedules", 1954 (equal jobs).

    Examples
    --------
    >>> float(two_stage_time(1.0, 2.0, 4.0))
    9.0
    """
    return np.maximum(first + pieces * second, pieces * first + second)


@formula("max(first + pieces * second, pieces * first + second, pieces * first + tail_first) + tail_second")
def two_stage_tail_time(first: Num, second: Num, pieces: Num, tail_first: Num, tail_second: Num) -> Num:
    """Makespan of n equal pieces and one shorter last piece, two buffers or more.

    Parameters
    ----------
    first, second : number or array
        Time of one piece in each stage. [s]
    pieces : number or array
        Number of equal pieces before the tail, n >= 1.
    tail_first, tail_second : number or array
        Times of the tail, at most those of a piece. [s]

    Returns
    -------
    number or array
        Makespan. [s]

    Examples
    --------
    >>> float(two_stage_tail_time(1.0, 2.0, 2.0, 0.5, 1.0))
    6.0
    """
    last = np.maximum(pieces * first + second, pieces * first + tail_first)
    return np.maximum(first + pieces * second, last) + tail_second


@formula("max(head, comm) + pieces * compute ; pieces * comm + compute")
def comm_first_bounds(comm: Num, compute: Num, pieces: Num, head: Num) -> Bounds:
    """Bounds when every piece travels before it is computed, and ``head`` is computed meanwhile.

    The head (a rank's own rows, a shared expert) needs no communication and runs first:
    ``t = h; for each piece: t = max(t, arrival) + b``.

    Parameters
    ----------
    comm, compute : number or array
        Time of one piece, a and b. [s]
    pieces : number or array
        n >= 1, two buffers or more.
    head : number or array
        Computation before the first piece, h; 0 for none. [s]

    Returns
    -------
    Bounds
        ``max(h, a) + n b`` and ``n a + b``. [s]

    References
    ----------
    ops-transformer, ``allto_allv_grouped_mat_mul`` kernel: one exchange per expert, shared expert first.

    Examples
    --------
    >>> comm_first_bounds(1.0, 2.0, 4.0, 0.0)
    Bounds(compute=np.float64(9.0), comm=6.0)
    """
    return Bounds(np.maximum(head, comm) + pieces * compute, pieces * comm + compute)


@formula("pieces * compute + max(tail, comm) ; compute + pieces * comm")
def compute_first_bounds(comm: Num, compute: Num, pieces: Num, tail: Num) -> Bounds:
    """Bounds when every piece is computed before it travels, and ``tail`` is computed at the end.

    Parameters
    ----------
    comm, compute : number or array
        Time of one piece, a and b. [s]
    pieces : number or array
        n >= 1, two buffers or more.
    tail : number or array
        Computation after the last piece, h (a shared expert); 0 for none. [s]

    Returns
    -------
    Bounds
        ``n b + max(h, a)`` and ``b + n a``. [s]

    Examples
    --------
    >>> compute_first_bounds(1.0, 2.0, 4.0, 0.0)
    Bounds(compute=np.float64(9.0), comm=6.0)
    """
    return Bounds(pieces * compute + np.maximum(tail, comm), compute + pieces * comm)


@formula(
    "dispatch + pieces * experts + combine"
    " ; pieces * (dispatch + combine) + (experts if pieces == 1 else"
    " max(0, experts - dispatch) + max(0, experts - combine) if buffers < pieces else"
    " max(0, experts - (pieces - 1) * min(dispatch, combine)))"
)
def three_stage_bounds(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Bounds:
    """Bounds of dispatch, experts, combine with one engine for both communications.

    A piece holds a buffer from the start of its dispatch to the end of its combine. The engine serves
    D1 .. DB C1 D(B+1) C2 ...: it dispatches ahead as far as buffers allow.

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Time of one piece in each stage: d, e, c. [s]
    pieces, buffers : number or array
        n >= 1 and B >= 2.

    Returns
    -------
    Bounds
        Computation never waits: ``d + n e + c``. Communication waits as little as it can: ``n (d + c)``
        plus ``max(0, e-d) + max(0, e-c)`` for B < n (exact for B = 2), plus
        ``max(0, e - (n-1) min(d, c))`` for B >= n, which no order can beat. [s]

    References
    ----------
    The micro-batch pipeline of ops-transformer's MC2; the closed forms are derived here and checked
    against every order of the engine for small n.

    Examples
    --------
    >>> three_stage_bounds(1.0, 4.0, 1.0, 4.0, 2.0)
    Bounds(compute=np.float64(18.0), comm=np.float64(14.0))
    """
    one = np.equal(pieces, 1)
    wait_two = np.maximum(0.0, experts - dispatch) + np.maximum(0.0, experts - combine)
    wait_deep = np.maximum(0.0, experts - (pieces - 1.0) * np.minimum(dispatch, combine))
    wait = np.where(one, experts, np.where(np.less(buffers, pieces), wait_two, wait_deep))
    return Bounds(np.add(dispatch + pieces * experts, combine), pieces * (dispatch + combine) + wait)


def three_stage_time(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Num:
    r"""Makespan of dispatch, experts, combine with one communication engine and B buffers.

    .. math::
        B = 1:\; n(d+e+c) \qquad
        B = 2:\; \max(d+ne+c,\; n(d+c) + (e-d)^+ + (e-c)^+) \qquad
        B \ge n:\; \max(d+ne+c,\; n(d+c) + (e-(n-1)\min(d,c))^+)

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Time of one piece in each stage: d, e, c. [s]
    pieces, buffers : number or array
        n >= 1 and B >= 1.

    Returns
    -------
    number or array
        Makespan; between B = 2 and B = n the pieces are played. [s]

    Examples
    --------
    >>> float(three_stage_time(1.0, 4.0, 1.0, 4.0, 4.0)), float(three_stage_time(1.0, 1.0, 1.0, 4.0, 1.0))
    (18.0, 12.0)
    """
    bounds = three_stage_bounds(dispatch, experts, combine, pieces, buffers)
    closed = np.maximum(bounds.compute, bounds.comm)
    between = np.greater(buffers, 2) & np.less(buffers, pieces)
    if np.any(between):
        played = three_stage_recurrence(dispatch, experts, combine, pieces, buffers)
        closed = np.where(between, played, closed)
    return np.where(np.equal(buffers, 1), pieces * (dispatch + experts + combine), closed)


def three_stage_recurrence(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Num:
    """The same makespan by playing the pieces: the max-plus recurrence over all rows at once.

    The engine keeps ``min(B, n)`` pieces in flight: D1 .. DB, then C1 D(B+1) C2 D(B+2) ...

    Parameters
    ----------
    dispatch, experts, combine, pieces, buffers : number or array
        As in :func:`three_stage_time`; broadcast together.

    Returns
    -------
    number or array
        Makespan. [s]

    Examples
    --------
    >>> float(three_stage_recurrence(1.0, 4.0, 1.0, 4.0, 2.0))
    18.0
    """
    d, e, c, n, depth = np.broadcast_arrays(dispatch, experts, combine, pieces, np.minimum(buffers, pieces))
    engine = np.zeros(d.shape)
    cube = np.zeros(d.shape)
    most = int(np.max(n))
    computed = np.zeros((most, *d.shape))
    # Steps of the engine: B dispatches, then combine i and dispatch i + B in turn.
    for dispatched in range(most):
        first_ones = dispatched < depth
        combined = np.maximum(dispatched - depth, 0).astype(int)
        done = np.take_along_axis(computed, combined[None], axis=0)[0]
        after_combine = np.maximum(engine, done) + c
        start = np.where(first_ones, engine, after_combine)
        active = dispatched < n
        engine = np.where(active, start + d, engine)
        cube = np.where(active, np.maximum(cube, engine) + e, cube)
        computed[dispatched] = cube
    for left in range(int(np.max(depth))):
        piece = np.clip(n - depth + left, 0, most - 1).astype(int)
        done = np.take_along_axis(computed, piece[None], axis=0)[0]
        engine = np.where(left < depth, np.maximum(engine, done) + c, engine)
    return engine


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


@formula(
    "min(compute + comm, max("
    "compute_bound + (compute + comm - compute_bound) * comm_slowdown * (1 - 1 / compute_slowdown), "
    "comm_bound + (compute + comm - comm_bound) * compute_slowdown * (1 - 1 / comm_slowdown)))"
)
def stretched(
    compute_bound: Num,
    comm_bound: Num,
    compute: Num,
    comm: Num,
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Overlap:
    r"""Makespan when each engine slows the other down while both run.

    While both run, communication goes at 1/f and computation at 1/g of its pace. If computation never
    waits, the communication it covers, x, runs for x f, and costs computation x f (1 - 1/g); likewise
    the other way round. The longer of both is the makespan:

    .. math::
        T = \max\bigl(T_1 + (W-T_1) f (1-1/g),\; T_2 + (W-T_2) g (1-1/f)\bigr)

    with W the sum of computation and communication.

    Parameters
    ----------
    compute_bound, comm_bound : number or array
        Makespans without slow-down: :math:`T_1` if computation never waits, :math:`T_2` if communication
        never does. [s]
    compute, comm : number or array
        Stand-alone sums of all pieces. [s]
    comm_slowdown, compute_slowdown : number or array
        f and g, at least 1; 1/f + 1/g >= 1, else overlapping would never pay.

    Returns
    -------
    Overlap
        Makespan (at most W: a schedule that loses is not overlapped), busy computation, exposed
        communication; their sum is exact by construction. [s]

    Notes
    -----
    Exact for equal pieces in two stages (checked against a fluid simulation); for three stages it takes
    the waits of the slow-down-free schedule.

    Examples
    --------
    >>> stretched(9.0, 6.0, 8.0, 4.0, 1.0, 1.0)
    Overlap(total=np.float64(9.0), busy_compute=np.float64(8.0), exposed_comm=np.float64(1.0))
    """
    work = compute + comm
    hidden_comm, hidden_compute = work - compute_bound, work - comm_bound
    from_compute = compute_bound + hidden_comm * comm_slowdown * (1.0 - 1.0 / compute_slowdown)
    from_comm = comm_bound + hidden_compute * compute_slowdown * (1.0 - 1.0 / comm_slowdown)
    total = np.minimum(np.maximum(from_compute, from_comm), work)
    covered = np.where(
        from_compute >= from_comm,
        hidden_comm * comm_slowdown * (1.0 - 1.0 / compute_slowdown),
        hidden_compute * (compute_slowdown - 1.0),
    )
    busy = np.minimum(np.where(total < work, compute + covered, compute), total)
    return Overlap(total, busy, total - busy)


def lockstep(
    compute: NDArray[np.float64],
    comm: NDArray[np.float64],
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Overlap:
    r"""Two batches half a step apart: every communication of one behind a computation of the other.

    Both walk through the same cycle of m computations, each followed by a communication. In turn, one
    batch computes while the other communicates; a turn lasts as long as the longer of the two:

    .. math:: T = \sum_j \max(C_j, K_{j-1}) + \max(C_j, K_j)

    Parameters
    ----------
    compute, comm : array, shape (m, ...)
        Computations and the communication after each, for one batch. [s]
    comm_slowdown, compute_slowdown : number or array
        As in :func:`stretched`.

    Returns
    -------
    Overlap
        One cycle of both batches, in a steady state. [s]

    References
    ----------
    Dual-batch overlap of vLLM and DualPipe: batches yield to each other at every communication.

    Examples
    --------
    >>> float(lockstep(np.array([3.0, 1.0]), np.array([1.0, 2.0]), 1.0, 1.0).total)
    9.0
    """
    # A computes j while B communicates j - 1; then B computes j while A communicates j.
    computing = np.concatenate([compute, compute])
    sending = np.concatenate([np.roll(comm, 1, axis=0), comm])
    turns = stretched(computing, sending, computing, sending, comm_slowdown, compute_slowdown)
    total, busy = np.sum(turns.total, axis=0), np.sum(turns.busy_compute, axis=0)
    return Overlap(total, busy, total - busy)


@formula("work + overhead")
def piece_time(work: Num, overhead: Num) -> Num:
    """Time of one piece: its work and what a piece costs whatever its size (launch, flag, barrier).

    Parameters
    ----------
    work, overhead : number or array
        Times. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> piece_time(2.0, 1.0)
    3.0
    """
    return work + overhead


@formula("max(device_time, launches * time_per_launch)")
def host_bound_time(device_time: Num, launches: Num, time_per_launch: Num) -> Num:
    """A layer cannot run faster than the host issues its kernels.

    Parameters
    ----------
    device_time : number or array
        What the device needs. [s]
    launches : number or array
        Kernels issued.
    time_per_launch : number or array
        Host time of each. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> float(host_bound_time(1e-3, 250.0, 8e-6))
    0.002
    """
    return np.maximum(device_time, launches * time_per_launch)
