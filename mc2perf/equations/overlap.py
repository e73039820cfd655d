"""Two engines that run at once: mutual slow-down, two batches in lockstep, the host beside the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


class Overlap(NamedTuple):
    """Makespan, how long computation was busy in it, and the rest: communication nobody covers. [s]"""

    total: Num
    busy_compute: Num
    exposed_comm: Num


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
    Exact for two stages without a head (checked against a fluid simulation); for three stages it takes
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


class Paths(NamedTuple):
    """The longest paths through pieces on two engines, and the communication that each leaves uncovered. [s]

    Who is critical: computation from its head on, the first transfer and then computation, communication,
    or a ring that is short beside a long head.
    """

    head: Num
    transfer: Num
    sending: Num
    ring: Num
    transfer_exposed: Num
    sending_exposed: Num
    ring_exposed: Num


@formula(
    "head + pieces * compute + pieces * comm * comm_slowdown * (1 - 1 / compute_slowdown)"
    " ; comm + pieces * compute + head * compute_slowdown * (1 - 1 / comm_slowdown)"
    " + (pieces - 1) * comm * comm_slowdown * (1 - 1 / compute_slowdown)"
    " ; pieces * comm + compute"
    " + (head + (pieces - 1) * compute) * compute_slowdown * (1 - 1 / comm_slowdown)"
    " ; (head + 2 * compute + (pieces - buffers) * comm"
    " + buffers * comm * comm_slowdown * (1 - 1 / compute_slowdown)"
    " + (pieces - 2) * compute * compute_slowdown * (1 - 1 / comm_slowdown)) if buffers < pieces else 0"
    " ; comm - head * compute_slowdown / comm_slowdown"
    " ; pieces * comm - (head + (pieces - 1) * compute) * compute_slowdown / comm_slowdown"
    " ; (pieces - buffers) * comm - (pieces - 2) * compute * compute_slowdown / comm_slowdown"
)
def two_stage_paths(
    comm: Num,
    compute: Num,
    pieces: Num,
    head: Num,
    buffers: Num,
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Paths:
    r"""Paths of n pieces that travel and are computed, while each engine slows the other down.

    While both run, communication goes at 1/f and computation at 1/g of its pace. Transfers that are covered
    while computation is critical cost it :math:`c_1 = f (1 - 1/g)` of their time, computation that is
    covered while communication is critical costs :math:`c_2 = g (1 - 1/f)`:

    .. math::
        \begin{aligned}
        T_h &= h + n b + c_1 n a & T_t &= a + n b + c_2 h + c_1 (n-1) a \\
        T_s &= n a + b + c_2 (h + (n-1) b) & T_r &= h + 2 b + (n-B) a + c_1 B a + c_2 (n-2) b
        \end{aligned}

    Parameters
    ----------
    comm, compute : number or array
        Stand-alone time of one piece, a and b. [s]
    pieces, buffers : number or array
        n >= 1 equal pieces, whole B >= 2 of them in flight.
    head : number or array
        Computation that needs no communication, h: first where transfers come first, last where they
        come after; 0 for none. [s]
    comm_slowdown, compute_slowdown : number or array
        f and g, at least 1, with 1/f + 1/g >= 1.

    Returns
    -------
    Paths
        The makespan is the longest of the first four; the ring only where B < n.

    Notes
    -----
    The order of the two stages does not matter: read backwards, one is the other. The tests play the
    pieces one by one.

    Examples
    --------
    >>> paths = two_stage_paths(2.0, 1.0, 4.0, 0.0, 4.0, 1.0, 1.0)
    >>> float(max(paths[:4]))
    9.0
    """
    c1 = comm_slowdown * (1.0 - 1.0 / compute_slowdown)
    c2 = compute_slowdown * (1.0 - 1.0 / comm_slowdown)
    pace = compute_slowdown / comm_slowdown
    sent, computed = pieces * comm, pieces * compute
    # what is computed before the last piece, and between the first and the last
    early, middle = computed + (head - compute), computed - 2.0 * compute
    late = sent - buffers * comm
    return Paths(
        early + compute + c1 * sent,
        computed + c2 * head + c1 * sent + (1.0 - c1) * comm,
        sent + compute + c2 * early,
        np.where(
            np.less(buffers, pieces), head + 2.0 * compute + late + c1 * (sent - late) + c2 * middle, 0.0
        ),
        comm - pace * head,
        sent - pace * early,
        late - pace * middle,
    )


@formula(
    "min(work, max(head, transfer, sending, ring))"
    " ; min(work, max(head, transfer, sending, ring)) - (comm if max(head, transfer, sending, ring) >= work"
    " else ring_exposed if ring > max(head, transfer, sending)"
    " else sending_exposed if sending > max(head, transfer)"
    " else transfer_exposed if transfer > head else 0)"
    " ; comm if max(head, transfer, sending, ring) >= work"
    " else ring_exposed if ring > max(head, transfer, sending)"
    " else sending_exposed if sending > max(head, transfer)"
    " else transfer_exposed if transfer > head else 0"
)
def longest_path(
    head: Num,
    transfer: Num,
    sending: Num,
    ring: Num,
    transfer_exposed: Num,
    sending_exposed: Num,
    ring_exposed: Num,
    work: Num,
    comm: Num,
) -> Overlap:
    """The makespan of two engines, and what of it communication takes alone.

    Parameters
    ----------
    head, transfer, sending, ring, transfer_exposed, sending_exposed, ring_exposed : number or array
        Fields of :class:`Paths`. [s]
    work, comm : number or array
        All work one after the other, and the communication in it. [s]

    Returns
    -------
    Overlap
        The longest path, at most ``work``: overlapping that loses is not overlapped.

    Examples
    --------
    >>> float(longest_path(8.0, 9.0, 6.0, 0.0, 1.0, 2.0, 0.0, 12.0, 4.0).exposed_comm)
    1.0
    """
    # ends that could not be longer: a tie leaves the least uncovered
    longest, exposed = head, np.zeros_like(head)
    for path, alone in ((transfer, transfer_exposed), (sending, sending_exposed), (ring, ring_exposed)):
        exposed = np.where(path > longest, alone, exposed)
        longest = np.maximum(longest, path)
    total = np.minimum(longest, work)
    exposed = np.where(longest >= work, comm, exposed)
    return Overlap(total, total - exposed, exposed)


def lockstep(
    compute: Sequence[Num],
    comm: Sequence[Num],
    comm_slowdown: Num,
    compute_slowdown: Num,
) -> Overlap:
    r"""Two batches half a step apart: every communication of one behind a computation of the other.

    Both walk through the same cycle of m computations, each followed by a communication. In turn, one
    batch computes while the other communicates; a turn lasts as long as the longer of the two:

    .. math:: T = \sum_j \max(C_j, K_{j-1}) + \max(C_j, K_j)

    Parameters
    ----------
    compute, comm : sequence of m numbers or arrays
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
    >>> float(lockstep([3.0, 1.0], [1.0, 2.0], 1.0, 1.0).total)
    9.0
    """
    total: Num = 0.0
    busy: Num = 0.0
    # A computes j while B communicates j - 1; then B computes j while A communicates j.
    for j, computing in enumerate(compute):
        for sending in (comm[j - 1], comm[j]):
            turn = stretched(computing, sending, computing, sending, comm_slowdown, compute_slowdown)
            total, busy = total + turn.total, busy + turn.busy_compute
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


@formula("busy_compute + exposed_comm + free")
def total_time(busy_compute: Num, exposed_comm: Num, free: Num) -> Num:
    """The whole time: computing, communication that nothing covers, and neither.

    Parameters
    ----------
    busy_compute, exposed_comm, free : number or array
        Times. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> total_time(3.0, 1.0, 0.5)
    4.5
    """
    return busy_compute + exposed_comm + free
