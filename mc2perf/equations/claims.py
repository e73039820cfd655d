"""What a claimed gain of overlap can and cannot be: ceilings, what stated shares imply, what is left over."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


@formula("1 / (1 - min(comm_ratio, overlappable))")
def overlap_ceiling(comm_ratio: Num, overlappable: Num) -> Num:
    r"""Most that overlap alone can gain: the shorter of communication and what may cover it vanishes.

    .. math:: S_{max} = \frac{1}{1 - \min(c, o)}

    Parameters
    ----------
    comm_ratio : number or array
        Communication that nothing covers, over the step, c in [0, 1).
    overlappable : number or array
        Share of the step that may run beside it, o in [0, 1 - c]; all other work is o = 1 - c, and then
        the ceiling is 1 / (1 - c) up to c = 1/2, 1 / c above.

    Returns
    -------
    number or array
        Speed-up, at least 1. [1]

    Notes
    -----
    Amdahl's law: other work is unchanged, and neither engine slows the other down.

    References
    ----------
    Amdahl, "Validity of the single processor approach", 1967; Tutel (MLSys 2023), overlap potential
    total / max(compute, all-to-all).

    Examples
    --------
    >>> float(overlap_ceiling(0.5, 0.5)), float(overlap_ceiling(0.8, 0.2)), float(overlap_ceiling(0.0, 1.0))
    (2.0, 1.25, 1.0)
    """
    return 1.0 / (1.0 - np.minimum(comm_ratio, overlappable))


@formula("(comm_ratio - min(comm_ratio, overlappable)) / (1 - min(comm_ratio, overlappable))")
def least_comm_ratio(comm_ratio: Num, overlappable: Num) -> Num:
    """Exposed share that stays however well a step is overlapped: what there is nothing left to cover.

    Parameters
    ----------
    comm_ratio, overlappable : number or array
        As in :func:`overlap_ceiling`.

    Returns
    -------
    number or array
        Communication over the new step, at most ``comm_ratio``. [1]

    Examples
    --------
    >>> float(least_comm_ratio(0.75, 0.25)), float(least_comm_ratio(0.25, 0.75))
    (0.6666666666666666, 0.0)
    """
    covered = np.minimum(comm_ratio, overlappable)
    return (comm_ratio - covered) / (1.0 - covered)


@formula("(1 - after) / (1 - before)")
def share_speedup(before: Num, after: Num) -> Num:
    r"""Speed-up that two communication shares imply if everything else takes as long as before.

    .. math:: \frac{1 - c_1}{1 - c_0}

    Parameters
    ----------
    before, after : number or array
        Exposed communication over the step, in [0, 1). [1]

    Returns
    -------
    number or array
        Speed-up; 1 if nothing changed, at most :math:`1/(1 - c_0)`. [1]

    References
    ----------
    The step is :math:`T_i = W + c_i T_i` with the same other work W.

    Examples
    --------
    >>> share_speedup(0.5, 0.5), share_speedup(0.5, 0.25), share_speedup(0.5, 0.0)
    (1.0, 1.5, 2.0)
    """
    return (1.0 - after) / (1.0 - before)


@formula("speedup * (1 - before) / (1 - after)")
def unexplained_speedup(speedup: Num, before: Num, after: Num) -> Num:
    """By how much the work beside communication must have become faster as well.

    Parameters
    ----------
    speedup : number or array
        Claimed speed-up. [1]
    before, after : number or array
        Communication shares of it. [1]

    Returns
    -------
    number or array
        Claimed speed-up over :func:`share_speedup`; below 1 if other work became slower. [1]

    Examples
    --------
    >>> unexplained_speedup(4.0, 0.5, 0.0), unexplained_speedup(2.0, 0.5, 0.0)
    (2.0, 1.0)
    """
    return speedup * (1.0 - before) / (1.0 - after)


@formula("1 - after * (1 - before) / ((1 - after) * before)")
def hidden_share(before: Num, after: Num) -> Num:
    """Share of the communication that overlap must hide to get from one communication share to another.

    Parameters
    ----------
    before, after : number or array
        Exposed communication over the step, ``before`` above 0; other work is unchanged. [1]

    Returns
    -------
    number or array
        1 if all is hidden, 0 if nothing changed, below 0 if communication grew. [1]

    Examples
    --------
    >>> hidden_share(0.5, 0.0), hidden_share(0.5, 0.5), hidden_share(0.5, 0.2)
    (1.0, 0.0, 0.75)
    """
    return 1.0 - after * (1.0 - before) / ((1.0 - after) * before)


@formula("share / tokens_per_second")
def time_per_token(share: Num, tokens_per_second: Num) -> Num:
    """Time that a share of the step takes per token of an NPU.

    Parameters
    ----------
    share : number or array
        Communication, or everything else, over the step. [1]
    tokens_per_second : number or array
        Tokens of one NPU. [1/s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> time_per_token(0.5, 1000.0)
    0.0005
    """
    return share / tokens_per_second


@formula("comm_ratio * speedup")
def unhidden_share(comm_ratio: Num, speedup: Num) -> Num:
    """Communication of the old step over the whole new step: above 1 it does not fit, hidden or not.

    Parameters
    ----------
    comm_ratio, speedup : number or array
        Share of the old step, and how much shorter the new one is. [1]

    Returns
    -------
    number or array
        Share of the new step. [1]

    Examples
    --------
    >>> unhidden_share(0.5, 2.0)
    1.0
    """
    return comm_ratio * speedup


@formula("bytes_per_token * tokens_per_second / comm_ratio")
def implied_bandwidth(bytes_per_token: Num, tokens_per_second: Num, comm_ratio: Num) -> Num:
    """Bandwidth of an NPU's links that a rate and a share imply, if that share is all its traffic.

    Parameters
    ----------
    bytes_per_token : number or array
        Bytes that an NPU sends per token of its own. [B]
    tokens_per_second, comm_ratio : number or array
        Tokens of one NPU [1/s], and communication over the step [1]; with ``comm_ratio`` 1 the least
        bandwidth that carries the traffic in the whole step, hidden or not.

    Returns
    -------
    number or array
        Bytes over time. [B/s]

    Examples
    --------
    >>> implied_bandwidth(2.0e6, 1000.0, 0.5)
    4000000000.0
    """
    return bytes_per_token * tokens_per_second / comm_ratio


@formula("passes * 2 * layers * top_k * payload_width * item_size * (ep - 1) / ep")
def expert_exchange_bytes(
    passes: Num, layers: Num, top_k: Num, payload_width: Num, item_size: Num, ep: Num
) -> Num:
    """Bytes that an NPU sends per token of its own for its experts: there and back, in every MoE layer.

    Parameters
    ----------
    passes : number or array
        2 for forward and backward, 1 for forward alone.
    layers, top_k, payload_width, item_size : number or array
        MoE layers, experts per token, elements of a token, bytes of an element.
    ep : number or array
        Expert-parallel ranks; even routing keeps 1/ep of the tokens at home.

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> expert_exchange_bytes(2.0, 1.0, 2.0, 4096.0, 2.0, 8.0)
    57344.0
    """
    return passes * 2.0 * layers * top_k * payload_width * item_size * (ep - 1.0) / ep


@formula("collectives * layers * hidden_size * item_size * (tp - 1)")
def tensor_parallel_bytes(collectives: Num, layers: Num, hidden_size: Num, item_size: Num, tp: Num) -> Num:
    """Bytes that an NPU sends per token of its own for tensor parallelism with sequence parallelism.

    Parameters
    ----------
    collectives : number or array
        All-gathers and reduce-scatters of a layer: 4 forward; 10 with the backward pass, of which two
        gather again what the forward pass has not kept.
    layers, hidden_size, item_size : number or array
        Layers, elements of a token, bytes of an element.
    tp : number or array
        Tensor-parallel ranks; each holds 1/tp of the tokens and needs all.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.

    Examples
    --------
    >>> tensor_parallel_bytes(10.0, 1.0, 4096.0, 2.0, 8.0)
    573440.0
    """
    return collectives * layers * hidden_size * item_size * (tp - 1.0)
