"""Time of a collective: fitted bands of one message-size curve, or latency and bandwidth by wiring.

``size`` is the bytes of the whole array, as in nccl-tests: the gathered total, the reduced total, or all
that one rank sends in an all-to-all. One rank costs exactly 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num

REFERENCE_RANKS = 8
"""CANN measured its fits with this many ranks."""


@dataclass(frozen=True)
class RankRule:
    """How a fit made with 8 ranks serves p ranks: the size is weighted, the time divided."""

    weight: Callable[[Num], Num]
    divisor: Callable[[Num], Num]


RANK_RULES = {
    # half of an all-reduce on a mesh: every peer sends 1/p over its own link
    "mesh_half": RankRule(lambda p: 1.0 + 0.0 * p, lambda p: p / 4.0),
    # all-reduce and all-to-all on a mesh: a link carries S/p per phase, so fewer ranks mean more per link.
    # CANN has no rank dependence here; that cannot be right below 8 ranks, at 8 both agree.
    "mesh_peers": RankRule(lambda p: REFERENCE_RANKS / p, lambda p: 1.0 + 0.0 * p),
    # ring: (p-1)/p of the array passes every link; one pass is half of an all-reduce
    "ring": RankRule(lambda p: 1.0 + 0.0 * p, lambda p: 0.875 * p / np.maximum(p - 1.0, 1.0)),
    "ring_half": RankRule(lambda p: 1.0 + 0.0 * p, lambda p: 1.75 * p / np.maximum(p - 1.0, 1.0)),
}

PASSES = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "all_reduce": 2.0}
"""How often the array passes the wires."""

STEPS: dict[tuple[str, str], Callable[[Num], Num]] = {
    ("full_mesh", "all_gather"): lambda p: 1.0 + 0.0 * p,
    ("full_mesh", "all_to_all"): lambda p: 1.0 + 0.0 * p,
    ("ring", "all_gather"): lambda p: p - 1.0,
    ("ring", "all_to_all"): lambda p: p - 1.0,
    # behind a switch: recursive doubling for the one-pass collectives, pairwise exchange for all-to-all
    ("switch", "all_gather"): lambda p: np.ceil(np.log2(p)),
    ("switch", "all_to_all"): lambda p: p - 1.0,
}
"""Latency steps of one pass by wiring and pattern; see ``pattern``."""

HOPS: dict[tuple[str, str], Callable[[Num], Num]] = {
    # a one-way ring carries every all-to-all message half way round on average
    ("ring", "all_to_all"): lambda p: p / 2.0,
}
"""Mean links a byte passes, where it is not 1."""


def one_hop(ranks: Num) -> Num:
    """Every byte passes one link."""
    return 1.0 + 0.0 * ranks


@formula("max(at_least, constant + slope * size + quadratic * size ** 2)")
def band_time(size: Num, constant: Num, slope: Num, quadratic: Num, at_least: Num) -> Num:
    r"""Time on one band of a message-size curve.

    .. math:: t(S) = \max(f,\; c + s S + q S^2)

    Parameters
    ----------
    size : number or array
        Whole array, S, inside the band. [B]
    constant, slope, quadratic : number or array
        c [s], s [s/B] and q [s/B^2] of the band.
    at_least : number or array
        What the bands before reach, so that time never falls with size. [s]

    Returns
    -------
    number or array
        Time. [s]

    References
    ----------
    The form of CANN's ``hccl_performance`` (ops-transformer, c29bc106): floor, quadratic ramp, line.

    Examples
    --------
    >>> float(band_time(3.0, 1.0, 2.0, 0.0, 5.0))
    7.0
    """
    return np.maximum(at_least, constant + slope * size + quadratic * size**2)


@formula("passes * (steps * latency + hops * (ranks - 1) / ranks * size / bandwidth)")
def latency_bandwidth_time(
    size: Num, ranks: Num, passes: Num, steps: Num, hops: Num, latency: Num, bandwidth: Num
) -> Num:
    r"""Time of a collective by Hockney's model.

    .. math:: t = r \left(s\,\alpha + h\,\frac{p-1}{p}\frac{S}{B}\right)

    Parameters
    ----------
    size : number or array
        Whole array, S. [B]
    ranks : number or array
        Participants, p >= 1; one rank costs 0 when ``steps`` is 0 for it.
    passes, steps, hops : number or array
        Passes over the wires (2 for all-reduce), latency steps of a pass, mean links per byte.
    latency : number or array
        Per step. [s]
    bandwidth : number or array
        Of one rank over all its links used, one direction, reached. [B/s]

    Returns
    -------
    number or array
        Time. [s]

    References
    ----------
    Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.

    Examples
    --------
    >>> latency_bandwidth_time(8e6, 8.0, 1.0, 1.0, 1.0, 1e-6, 1e9)
    0.007001
    """
    return passes * (steps * latency + hops * (ranks - 1.0) / ranks * size / bandwidth)


@formula("latency + (messages - 1) * per_peer + max((ranks - 1) / ranks * size / bandwidth, rows * per_row)")
def posted_exchange_time(
    size: Num,
    ranks: Num,
    messages: Num,
    rows: Num,
    latency: Num,
    per_peer: Num,
    per_row: Num,
    bandwidth: Num,
) -> Num:
    r"""Time of an all-to-all whose messages are posted without waiting for the one before.

    .. math:: t = \alpha + (m - 1) o + \max\left(\frac{p-1}{p} \frac{S}{B}, n g\right)

    Parameters
    ----------
    size : number or array
        All that one rank sends, its own share included, S. [B]
    ranks, messages : number or array
        Ranks, or servers, p, that the array is spread over, and peers that get a message, m.
    rows : number or array
        Rows of tokens, n, each sent on its own.
    latency, per_peer, per_row : number or array
        From start to the last flag, :math:`\alpha`; posting to one more peer, o; one more row, g. [s]
    bandwidth : number or array
        Of one rank, one direction, reached. [B/s]

    Returns
    -------
    number or array
        Time. [s]

    References
    ----------
    Alexandrov, Ionescu, Schauser, Scheiman, "LogGP", SPAA 1995: overhead and gap of a message, gap of a byte.

    Examples
    --------
    >>> float(posted_exchange_time(8e6, 8.0, 7.0, 1000.0, 1e-6, 0.5e-6, 1e-9, 1e9))
    0.007004
    >>> float(posted_exchange_time(8e6, 8.0, 7.0, 1000.0, 1e-6, 0.5e-6, 1e-5, 1e9))
    0.010004
    """
    return (
        latency
        + (messages - 1.0) * per_peer
        + np.maximum((ranks - 1.0) / ranks * size / bandwidth, rows * per_row)
    )


@formula("latency + size / bandwidth")
def send_time(size: Num, latency: Num, bandwidth: Num) -> Num:
    """Time of a message between two ranks.

    Parameters
    ----------
    size : number or array
        Message. [B]
    latency, bandwidth : number or array
        Of one link, reached. [s], [B/s]

    Returns
    -------
    number or array
        Time. [s]

    References
    ----------
    Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", 1994.

    Examples
    --------
    >>> send_time(1e9, 1e-3, 1e9)
    1.001
    """
    return latency + size / bandwidth


def pattern(collective: str) -> str:
    """Row of ``STEPS`` that a collective follows: everything but all-to-all moves like an all-gather."""
    return "all_to_all" if collective == "all_to_all" else "all_gather"


def interpolated_over_ranks(ranks: Num, low: Num, high: Num, time_low: Num, time_high: Num) -> Num:
    """Time between two fitted rank counts: log t is linear in log p.

    Parameters
    ----------
    ranks : number or array
        p, between ``low`` and ``high`` (outside it extrapolates along the same power law).
    low, high : number or array
        Rank counts with fits; equal where p is itself fitted.
    time_low, time_high : number or array
        Times there. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> round(float(interpolated_over_ranks(4.0, 2.0, 8.0, 1.0, 4.0)), 12)
    2.0
    """
    share = np.where(high > low, np.log2(ranks / low) / np.maximum(np.log2(high / low), 1e-300), 0.0)
    return time_low * (time_high / time_low) ** share


def more_traffic(ranks: float, fitted: float) -> float:
    """How much more of the same array passes the wires with more ranks than were fitted.

    Parameters
    ----------
    ranks, fitted : float
        Rank count p asked for, and of the fit, p0; both above 1.

    Returns
    -------
    float
        Factor on the slopes of a curve.

    References
    ----------
    Every rank misses (p - 1)/p of an array: Thakur, Rabenseifner, Gropp, 2005.

    Examples
    --------
    >>> more_traffic(4.0, 2.0)
    1.5
    """
    return ((ranks - 1.0) / ranks) / ((fitted - 1.0) / fitted)


def more_latency(ranks: float, fitted: float, growth: Num) -> Num:
    """How much longer the fixed part takes with more ranks than were fitted: ``(p / p0) ** growth``.

    Parameters
    ----------
    ranks, fitted : float
        Rank count p asked for, and of the fit, p0.
    growth : number or array
        Exponent: 0 for none, 1 for steps in a row.

    Returns
    -------
    number or array
        Factor on the constants of a curve.

    Examples
    --------
    >>> more_latency(16.0, 4.0, 0.5)
    2.0
    """
    return (ranks / fitted) ** growth
