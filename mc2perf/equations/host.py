"""A host that issues kernels one after the other, and waits now and then for a result of the device."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


@formula(
    "max(device_time + reads * time_per_launch,"
    " launches * time_per_launch + reads * device_time / launches) + reads * time_per_read"
)
def launch_queue_time(
    device_time: Num, launches: Num, time_per_launch: Num, reads: Num, time_per_read: Num
) -> Num:
    r"""Time of kernels that a host issues ahead of the device, except across results that it reads.

    A read drains the queue: what follows starts with the issue of one kernel. With R reads, m = L / R kernels
    between two of them, t to issue one and d = D / L to run one, each stretch is a pipeline of two stages:

    .. math:: T = R \bigl(\max(t + m d,\; m t + d) + t_r\bigr)

    Parameters
    ----------
    device_time, launches : number or array
        Time of all kernels, D, and their number, L >= R. [s]
    time_per_launch : number or array
        Host time to issue one, t. [s]
    reads : number or array
        Times that the host waits for the device, R; without any the queue never drains, max(D, L t).
    time_per_read : number or array
        What each takes beyond the kernels before it: the copy, and waking up. [s]

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    Exact for equal kernels in equal stretches, where the first stretch starts with an empty queue. With
    unequal kernels a stretch of m takes at least the longer of t and all kernels, or m t and the last one,
    and at most both sums; where the host bounds some stretches and the device others, the sum over all is
    longer than this. A read after every launch is a blocking launch: ``D + L (t + t_r)``.

    References
    ----------
    PyTorch documentation, "CUDA semantics: asynchronous execution" (queues that run ahead, copies that
    wait); the law is :func:`mc2perf.equations.pipeline.two_stage_time` with host and device as stages. The
    tests play queues launch by launch.

    Examples
    --------
    >>> float(launch_queue_time(8.0, 4.0, 1.0, 0.0, 0.5)), float(launch_queue_time(8.0, 4.0, 1.0, 1.0, 0.5))
    (8.0, 9.5)
    >>> float(launch_queue_time(8.0, 4.0, 1.0, 4.0, 0.5))
    14.0
    """
    first = device_time / np.maximum(launches, 1.0)
    behind = device_time + reads * time_per_launch
    ahead = launches * time_per_launch + reads * first
    return np.maximum(behind, ahead) + reads * time_per_read
