"""Time of pieces that pass through communication and computation, in closed form.

Two engines run beside each other: one communicates, one computes. A pipeline of n equal pieces is bound
by one of them; each closed form below is the maximum of those *bounds*, and equals playing the pieces one
by one (:func:`play`), which the tests do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

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


class StageBounds(NamedTuple):
    """Makespan if the second stage never waits after the fill, and if the first never waits. [s]"""

    second_bound: Num
    first_bound: Num


class Played(NamedTuple):
    """When every stage of every piece starts and ends, shape (..., pieces, stages). [s]"""

    starts: NDArray[np.floating[Any]]
    ends: NDArray[np.floating[Any]]


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
        n >= 1.
    head : number or array
        Computation before the first piece, h; 0 for none. [s]

    Returns
    -------
    Bounds
        ``max(h, a) + n b`` and ``n a + b``. [s]

    Notes
    -----
    With a head every piece needs a buffer (all exchanges issued up front), else :func:`full_ring_bound`;
    without one, two buffers do.

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
        n >= 1.
    tail : number or array
        Computation after the last piece, h (a shared expert); 0 for none. [s]

    Returns
    -------
    Bounds
        ``n b + max(h, a)`` and ``b + n a``. [s]

    Notes
    -----
    The mirror image of :func:`comm_first_bounds`, buffers included.

    References
    ----------
    ops-transformer, ``grouped_mat_mul_allto_allv`` kernel: one exchange per expert, shared expert last.

    Examples
    --------
    >>> compute_first_bounds(1.0, 2.0, 4.0, 0.0)
    Bounds(compute=np.float64(9.0), comm=6.0)
    """
    return Bounds(pieces * compute + np.maximum(tail, comm), compute + pieces * comm)


@formula("extra + 2 * compute + (pieces - buffers) * comm if buffers < pieces else 0")
def full_ring_bound(comm: Num, compute: Num, pieces: Num, extra: Num, buffers: Num) -> Num:
    """Third bound of a pipeline with a head or tail job whose ring is shorter than its pieces.

    Behind a head, piece B + 1 cannot leave before the head and one piece are computed; before a tail job,
    the last piece cannot be computed before piece n - B has left.

    Parameters
    ----------
    comm, compute : number or array
        Time of one piece, a and b. [s]
    pieces, buffers : number or array
        n >= 1 and whole B >= 2.
    extra : number or array
        The head or tail job, h. [s]

    Returns
    -------
    number or array
        ``h + 2 b + (n - B) a`` where B < n, else 0. [s]

    Examples
    --------
    >>> float(full_ring_bound(2.0, 1.0, 10.0, 10.0, 2.0)), max(comm_first_bounds(2.0, 1.0, 10.0, 10.0))
    (28.0, 21.0)
    """
    held = extra + 2.0 * compute + (pieces - np.minimum(buffers, pieces)) * comm
    return np.where(np.less(buffers, pieces), held, 0.0)


@formula(
    "pieces * (dispatch + experts + combine) if min(buffers, pieces) < 2 else"
    " dispatch + pieces * experts + combine"
    " ; pieces * (dispatch + experts + combine) if min(buffers, pieces) < 2 else"
    " pieces * (dispatch + combine) + (max(0, experts - (buffers - 1) * dispatch)"
    " + max(0, experts - (buffers - 1) * combine) if buffers < pieces else"
    " max(0, experts - (pieces - 1) * min(dispatch, combine)))"
)
def three_stage_bounds(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Bounds:
    """Bounds of dispatch, experts, combine with one engine for both communications.

    A piece holds a buffer from the start of its dispatch to the end of its combine. The engine serves
    D1 .. DB C1 D(B+1) C2 ... Cn: it dispatches ahead as far as buffers allow (:func:`ring_order`).

    Parameters
    ----------
    dispatch, experts, combine : number or array
        Time of one piece in each stage: d, e, c. [s]
    pieces, buffers : number or array
        n >= 1 and whole B >= 1.

    Returns
    -------
    Bounds
        Computation never waits: ``d + n e + c``. Communication waits as little as it can: ``n (d + c)``
        plus ``max(0, e - (B-1) d) + max(0, e - (B-1) c)`` for 2 <= B < n, plus
        ``max(0, e - (n-1) min(d, c))`` for B >= n. Both ``n (d + e + c)`` for B = 1 or n = 1. [s]

    Notes
    -----
    Their maximum is the longest path through that order: leaving the engine's chain at D(i) and coming
    back at C(j) pays (j-i+1) e for the transfers in between. Where e < d + c only the excursions 1-1 and
    n-n can pay, else only 1-n; a deeper ring puts more transfers in between, so more buffers never hurt.

    References
    ----------
    Derived here; the tests hold it against the recurrence and against every order of the engine.

    Examples
    --------
    >>> three_stage_bounds(1.0, 4.0, 1.0, 4.0, 2.0)
    Bounds(compute=array(18.), comm=array(14.))
    """
    depth = np.minimum(buffers, pieces)
    at_start = np.maximum(0.0, experts - (depth - 1.0) * dispatch)
    at_end = np.maximum(0.0, experts - (depth - 1.0) * combine)
    wait = np.where(np.less(depth, pieces), at_start + at_end, np.maximum(at_start, at_end))
    alone, serial = np.less(depth, 2), pieces * (dispatch + experts + combine)
    compute = np.where(alone, serial, dispatch + pieces * experts + combine)
    return Bounds(compute, np.where(alone, serial, pieces * (dispatch + combine) + wait))


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
        Makespan, of the order in :func:`three_stage_bounds`; never more with more buffers. [s]

    Examples
    --------
    >>> float(three_stage_time(1.0, 4.0, 1.0, 4.0, 4.0)), float(three_stage_time(1.0, 1.0, 1.0, 4.0, 1.0))
    (18.0, 12.0)
    """
    bounds = three_stage_bounds(dispatch, experts, combine, pieces, buffers)
    return np.maximum(bounds.compute, bounds.comm)


def three_stage_recurrence(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Num:
    """The same makespan by playing the pieces: the max-plus recurrence over all rows at once.

    The engine keeps ``min(B, n)`` pieces in flight: D1 .. DB, then C1 D(B+1) C2 D(B+2) ... Checks
    :func:`three_stage_time`, which is equal and has no loop.

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
        Makespan (at most W: a schedule that loses is not overlapped), busy computation, and exposed
        communication, exactly the difference of the two. [s]

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


def ring_order(pieces: int, stages: int, buffers: int) -> list[tuple[int, int]]:
    """Steps in the order of a ring: start a piece as soon as the piece B before it has left.

    Parameters
    ----------
    pieces, stages, buffers : int
        At least 1, 2 and 1.

    Returns
    -------
    list of (piece, stage)
        The last stage of piece i - B, then all but the last stage of piece i.

    Examples
    --------
    >>> [f"{'DEC'[stage]}{piece + 1}" for piece, stage in ring_order(3, 3, 2)]
    ['D1', 'E1', 'D2', 'E2', 'C1', 'D3', 'E3', 'C2', 'C3']
    """
    last, steps = stages - 1, []
    for piece in range(pieces + buffers):
        steps += [(piece - buffers, last)] if 0 <= piece - buffers < pieces else []
        steps += [(piece, stage) for stage in range(last)] if piece < pieces else []
    return steps


def play(
    durations: NDArray[np.floating[Any]],
    engine_of_stage: Sequence[Hashable],
    order: Sequence[tuple[int, int]],
    buffers: int,
) -> Played:
    """Play pieces through stages one by one: the max-plus recurrence behind every closed form.

    A step starts when its engine is free, the piece's stage before has ended and, for a first stage,
    the piece B before has left its last: ``start = max(...)``, ``end = start + duration``.

    Parameters
    ----------
    durations : array, shape (..., pieces, stages)
        Time of every step; leading axes are configurations. A piece that a configuration lacks is 0
        at the end. [s]
    engine_of_stage : sequence
        The engine of each stage; stages that name the same one share it.
    order : sequence of (piece, stage)
        Every step once, after those it waits for (else NaN); each engine serves its steps in it.
    buffers : int
        Ring of B: held from the start of a piece's first stage to the end of its last.

    Returns
    -------
    Played
        Starts and ends; the makespan is the largest end. [s]

    References
    ----------
    Baccelli, Cohen, Olsder, Quadrat, "Synchronization and Linearity", 1992.

    Examples
    --------
    >>> times = np.tile([1.0, 4.0, 1.0], (4, 1))
    >>> float(play(times, ["comm", "cube", "comm"], ring_order(4, 3, 2), 2).ends.max())
    18.0
    """
    ends, starts = np.full(np.shape(durations), np.nan), np.full(np.shape(durations), np.nan)
    free: dict[Hashable, Any] = dict.fromkeys(engine_of_stage, np.zeros(ends.shape[:-2]))
    for piece, stage in order:
        ready = free[engine_of_stage[stage]]
        if stage or piece >= buffers:
            ready = np.maximum(
                ready, ends[..., piece, stage - 1] if stage else ends[..., piece - buffers, -1]
            )
        starts[..., piece, stage] = ready
        free[engine_of_stage[stage]] = ends[..., piece, stage] = ready + durations[..., piece, stage]
    return Played(starts, ends)


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
