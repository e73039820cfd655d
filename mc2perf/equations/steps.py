"""Time of whole training steps: pipeline-parallel stages, their bubble, gradients that hide, throughput.

A *stage time* is the forward and backward time of one micro-batch on one pipeline rank, with all its
model chunks. Sends between stages count as hidden; exposed ones belong into the stage times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.equations.pipeline import two_stage_time
from mc2perf.units import Num

Stages = NDArray[np.floating[Any]]
"""One number per pipeline stage on the last axis; leading axes are configurations."""


def pipeline_parallel_time(stage_times: Stages, n_mb: Num, vpp: Num) -> Num:
    r"""Time of forward and backward of all micro-batches through unequal pipeline stages (1F1B).

    .. math:: T = n \max_i s_i + \frac{\sum_i s_i - \max_i s_i}{v}

    Without interleaving, v = 1, that is :math:`(n-1) \max_i s_i + \sum_i s_i`.

    Parameters
    ----------
    stage_times : array, shape (..., stages)
        Forward and backward of one micro-batch on each stage, s. [s]
    n_mb : number or array
        Micro-batches of a data-parallel rank, n >= 1; a multiple of the stages where vpp > 1.
    vpp : number or array
        Equal model chunks of a stage, v >= 1.

    Returns
    -------
    number or array
        Time, of shape (...). [s]

    Notes
    -----
    * Backward is the same multiple of forward on every stage: exact where the last stage is a slowest one
      (equal stages, or the head on the last), an upper bound elsewhere. A slow *first* stage hides part of
      the fill, :func:`pipeline_parallel_bound`.
    * It differs between stages: for vpp = 1 still exact with the slowest stage last, and an upper bound
      where only the ends differ from equal inner stages. Otherwise, and for vpp > 1, no bound: stages wait
      for each other and the schedule may take longer.

    References
    ----------
    Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
    SC 2021, section 2.2 (equal stages); for unequal ones the tests play every step of the schedules.

    Examples
    --------
    >>> float(pipeline_parallel_time(np.array([3.0, 3.0, 3.0, 4.0]), 8.0, 1.0))
    41.0
    """
    longest = np.max(stage_times, axis=-1)
    rest = np.sum(stage_times, axis=-1) - longest
    time: Num = n_mb * longest + rest / vpp
    return time


def pipeline_parallel_bound(forward: Stages, backward: Stages, n_mb: Num) -> Num:
    r"""Time that 1F1B without interleaving takes at least, whichever stage is the slowest.

    .. math:: \max_i \Bigl[n s_i + \sum_{j<i} s_j + (S_i - w_i f_i)^+ + (S_i - w_i b_i)^+\Bigr]

    A stage waits for the stages before it once, to fill and to drain. Then :math:`w_i`, the stages
    after it, many forwards cover the round trip :math:`S_i = \sum_{j>i} s_j` of the first micro-batch,
    and as many backwards that of the last one.

    Parameters
    ----------
    forward, backward : array, shape (..., stages)
        Time of one micro-batch on each stage, f and b; s = f + b. [s]
    n_mb : number or array
        Micro-batches of a data-parallel rank, n >= 1.

    Returns
    -------
    number or array
        Lower bound, of shape (...). [s]

    Notes
    -----
    A lower bound for any stages. Exact where inner stages are equal, only the first and the last may be
    slower (embedding, head), and there are at least as many micro-batches as stages. Up to then the two
    round trips share their cover: the longer one counts.

    References
    ----------
    Derived here: the longest path through the order of one stage and two excursions from it. The tests
    play every step.

    Examples
    --------
    >>> first_slow = np.array([2.0, 1.0, 1.0, 1.0])
    >>> float(pipeline_parallel_bound(first_slow, 2.0 * first_slow, 8.0))
    51.0
    >>> float(pipeline_parallel_time(3.0 * first_slow, 8.0, 1.0))
    57.0
    """
    stages = forward + backward
    through = np.cumsum(stages, axis=-1)
    after = np.arange(stages.shape[-1])[::-1]
    n = np.asarray(n_mb, dtype=float)[..., None]
    covering, trip = np.minimum(after, n - 1.0), through[..., -1:] - through
    first = np.maximum(0.0, trip - covering * forward)
    last = np.maximum(0.0, trip - covering * backward)
    waits = np.where(n - 1.0 > after, first + last, np.maximum(first, last))
    bound: Num = np.max(through - stages + n * stages + waits, axis=-1)
    return bound


@formula("(pp - 1) / (vpp * n_mb + pp - 1)")
def bubble_share(pp: Num, n_mb: Num, vpp: Num) -> Num:
    """Share of a step in which a rank of equal stages has nothing to do.

    Parameters
    ----------
    pp, n_mb, vpp : number or array
        Stages, micro-batches of a data-parallel rank, model chunks of a stage; each >= 1.

    Returns
    -------
    number or array
        Share in [0, 1).

    Notes
    -----
    Papers divide by the ideal time instead: ``(pp - 1) / (vpp n_mb)``.

    References
    ----------
    Narayanan et al., SC 2021, section 2.2.2.

    Examples
    --------
    >>> bubble_share(4.0, 9.0, 1.0)
    0.25
    """
    return (pp - 1.0) / (vpp * n_mb + pp - 1.0)


def idle_share(stage_times: Stages, n_mb: Num, vpp: Num) -> Num:
    """Share of a step in which a stage, on average, has nothing to do: bubble and imbalance together.

    Parameters
    ----------
    stage_times, n_mb, vpp
        As in :func:`pipeline_parallel_time`.

    Returns
    -------
    number or array
        Share in [0, 1); :func:`bubble_share` for equal stages.

    Examples
    --------
    >>> float(idle_share(np.array([1.0, 3.0]), 5.0, 1.0))
    0.375
    """
    busy: Num = n_mb * np.mean(stage_times, axis=-1)
    return 1.0 - busy / pipeline_parallel_time(stage_times, n_mb, vpp)


@formula("max(0, comm - covered)")
def exposed_time(comm: Num, covered: Num) -> Num:
    """Communication that is left when computation covers what it can.

    Parameters
    ----------
    comm, covered : number or array
        Time of the communication, and of the computation that may run beside it. [s]

    Returns
    -------
    number or array
        Time; a lower bound where the communication waits for results of that computation. [s]

    Examples
    --------
    >>> float(exposed_time(3.0, 2.0)), float(exposed_time(1.0, 2.0))
    (1.0, 0.0)
    """
    return np.maximum(0.0, comm - covered)


@formula("max(comm / buckets + latency, comm + buckets * latency - backward * (buckets - 1) / buckets)")
def exposed_bucket_time(backward: Num, comm: Num, buckets: Num, latency: Num) -> Num:
    r"""Gradient communication left after the backward pass, with gradients sent in equal buckets.

    Bucket i is complete after i/n of the backward pass and travels behind the ones before it:

    .. math:: \max\bigl(c/n + \alpha,\; c + n \alpha - w (n-1)/n\bigr)

    Parameters
    ----------
    backward : number or array
        Computation beside which gradients travel, w: the backward pass of the *last* micro-batch, as
        gradients are summed over the others first. [s]
    comm, buckets : number or array
        Time of all gradients in one transfer without its latency, c; buckets n >= 1. [s]
    latency : number or array
        Start-up of every transfer, alpha. [s]

    Returns
    -------
    number or array
        Time: all of it for one bucket, at least one bucket's otherwise. [s]

    Notes
    -----
    Mirrored, it is the all-gather of weights before their layers' forward pass. The best number of
    buckets is that of a two-stage pipeline, :mod:`mc2perf.equations.optimum`.

    References
    ----------
    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
    section 3.2.3 (the mechanism); the law is the two-stage pipeline of w/n and c/n + alpha.

    Examples
    --------
    >>> [float(exposed_bucket_time(10.0, 4.0, n, 0.0)) for n in (1.0, 2.0, 8.0)]
    [4.0, 2.0, 0.5]
    """
    return two_stage_time(backward / buckets, comm / buckets + latency, buckets, 2.0) - backward


@formula("pipeline + exposed_gradients + optimizer + exposed_weights")
def training_step_time(pipeline: Num, exposed_gradients: Num, optimizer: Num, exposed_weights: Num) -> Num:
    """Time of one training step.

    Parameters
    ----------
    pipeline : number or array
        Forward and backward of all micro-batches, :func:`pipeline_parallel_time`. [s]
    exposed_gradients, exposed_weights : number or array
        What is left of the gradients' reduce-scatter, and of the updated weights' all-gather. [s]
    optimizer : number or array
        Update of the weights a rank owns, bound by memory: its traffic over the memory rate. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> training_step_time(10.0, 0.5, 0.25, 0.25)
    11.0
    """
    return pipeline + exposed_gradients + optimizer + exposed_weights


@formula("global_batch * seq_len / (step_time * npus)")
def train_throughput(global_batch: Num, seq_len: Num, step_time: Num, npus: Num) -> Num:
    """Tokens per second and NPU of a training step.

    Parameters
    ----------
    global_batch, seq_len : number or array
        Samples of a step and tokens of each.
    step_time, npus : number or array
        Time of a step [s] and NPUs that share it.

    Returns
    -------
    number or array
        Tokens per second and NPU. [1/s]

    Examples
    --------
    >>> train_throughput(128.0, 4096.0, 32.0, 16.0)
    1024.0
    """
    return global_batch * seq_len / (step_time * npus)
