"""Pipelines that put off weight gradients, of equal stages: closed forms of their time.

Forward F, input gradients B and weight gradients W of a micro-batch on one stage; the papers differ in what
they call B, here it is the input gradients alone.
"""

from __future__ import annotations

import numpy as np

from mc2perf.units import Num


def zb_h1_time(forward: Num, backward: Num, weights: Num, stages: Num, n_mb: Num) -> Num:
    r"""Time of all micro-batches under ZB-H1, of equal stages.

    .. math:: T = n (F + B + W) + (p - 1) (F + B) - \min(p - 1, n - 1) \min(F, W)

    With at least as many micro-batches as stages and W no longer than F, the bubble is the paper's
    :math:`(p - 1)(F + B - W)`; DeepSeek-V3's table 2 writes it (PP - 1)(F + B - 2 W), its B being B + W here.

    Parameters
    ----------
    forward, backward, weights : number or array
        F, B and W of a micro-batch on a stage. [s]
    stages, n_mb : number or array
        p and n, at least 1.

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    Exact for W <= B, a lower bound otherwise; the tests play every step.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", 2023, table 2.

    Examples
    --------
    >>> float(zb_h1_time(1.0, 1.0, 1.0, 4.0, 8.0)), float(zb_h1_time(1.0, 1.0, 0.0, 4.0, 8.0))
    (27.0, 22.0)
    """
    whole = n_mb * (forward + backward + weights)
    put_off: Num = np.minimum(stages, n_mb) - 1.0
    time: Num = whole + (stages - 1.0) * (forward + backward) - put_off * np.minimum(forward, weights)
    return time


def dualpipe_time(forward: Num, backward: Num, weights: Num, both: Num, stages: Num, n_mb: Num) -> Num:
    r"""Time of all micro-batches under DualPipe, of equal stages.

    .. math::
        T = n (F + B + W) - (n - p - 1)(F + B + W - F\&B) + (p / 2 - 1) (F\&B + F - 2 W)

    n - p - 1 pairs of a forward and a backward run beside each other on the device that waits most. The last
    term is its bubble; with F = B it is the report's :math:`(PP/2 - 1)(F\&B + B - 3 W)`, its B being B + W.

    Parameters
    ----------
    forward, backward, weights : number or array
        F, B and W of a micro-batch on a stage. [s]
    both : number or array
        F&B: a forward beside a whole backward of another micro-batch, at most F + B + W. [s]
    stages, n_mb : number or array
        Stages p, an even number, and micro-batches n from both ends together, even and at least 2 p.
        DualPipeV on p devices has twice as many stages, half as long, and 2 n half micro-batches.

    Returns
    -------
    number or array
        Time. [s]

    Notes
    -----
    Exact for W <= B <= F; otherwise a lower bound, as later steps wait for input gradients longer than the
    forwards that should cover them. The tests play every step.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, table 2; derived here from the steps of
    deepseek-ai/DualPipe.

    Examples
    --------
    >>> float(dualpipe_time(1.0, 1.0, 1.0, 3.0, 8.0, 20.0))
    66.0
    """
    whole = forward + backward + weights
    pairs, devices = n_mb - stages - 1.0, stages / 2.0
    bubble = (devices - 1.0) * (both + forward - 2.0 * weights)
    time: Num = n_mb * whole - pairs * (whole - both) + bubble
    return time
