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
