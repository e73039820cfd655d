"""How unevenly experts are used, what copies and placement leave of it, and what that does to an exchange."""

from __future__ import annotations

from functools import lru_cache
from math import erf

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.units import Num

Loads = NDArray[np.float64]


def zipf_loads(experts: int, exponent: float) -> Loads:
    r"""Loads of experts that follow Zipf's law, the most popular first, with mean 1.

    .. math:: l_i = E \frac{i^{-a}}{\sum_j j^{-a}}, \quad i = 1 \ldots E

    Parameters
    ----------
    experts : int
        E.
    exponent : float
        a >= 0; 0 is even routing.

    Returns
    -------
    array, shape (experts,)
        Loads.

    Examples
    --------
    >>> zipf_loads(4, 1.0).round(2).tolist()
    [1.92, 0.96, 0.64, 0.48]
    """
    popularity = np.arange(1.0, experts + 1.0) ** -exponent
    loads: Loads = popularity / popularity.mean()
    return loads


def capped_loads(loads: Loads, most: float) -> Loads:
    """Loads that no token can exceed: a token goes to an expert once, so none gets more than every token.

    What is above the cap goes to the others in proportion to their loads.

    Parameters
    ----------
    loads : array, shape (experts,)
        Wanted loads with mean 1.
    most : float
        Experts over top-k: the load of an expert that every token goes to; at least 1.

    Returns
    -------
    array, shape (experts,)
        Loads with mean 1, none above ``most``.

    Examples
    --------
    >>> capped_loads(np.array([3.0, 0.6, 0.3, 0.1]), 2.0).round(2).tolist()
    [2.0, 1.2, 0.6, 0.2]
    """
    full = np.zeros(loads.shape, bool)
    kept = loads
    while np.any(kept[~full] > most):
        full |= kept > most
        left = loads.size - most * full.sum()
        kept = np.where(full, most, loads * left / loads[~full].sum())
    return kept


def busiest_rank_factor(loads: Loads, ranks: int) -> float:
    """Load of the busiest rank over the mean, with experts placed in order.

    Parameters
    ----------
    loads : array, shape (experts,)
        Tokens of every expert.
    ranks : int
        Expert-parallel ranks; divides the number of experts.

    Returns
    -------
    float
        Factor of at least 1.

    Examples
    --------
    >>> busiest_rank_factor(np.array([3.0, 1.0, 1.0, 1.0]), 2)
    1.3333333333333333
    """
    per_rank = loads.reshape(ranks, -1).sum(axis=1)
    return float(per_rank.max() / per_rank.mean())


def with_copies(loads: Loads, copies: int) -> Loads:
    """Loads of experts and their copies: each copy goes to the expert whose copies carry most.

    Parameters
    ----------
    loads : array, shape (experts,)
        Tokens of every expert.
    copies : int
        Redundant experts, R >= 0.

    Returns
    -------
    array, shape (experts + copies,)
        Load of every slot; the copies of an expert share its load evenly and lie side by side. No other
        choice of copies has a smaller largest load.

    References
    ----------
    DeepSeek-AI, EPLB (expert parallelism load balancer), 2025: ``replicate_experts``.

    Examples
    --------
    >>> with_copies(np.array([6.0, 1.0, 1.0]), 2).tolist()
    [2.0, 2.0, 2.0, 1.0, 1.0]
    """
    number = np.ones(loads.size)
    for _ in range(copies):
        number[np.argmax(loads / number)] += 1.0
    return np.repeat(loads / number, number.astype(int))


def placed_by_load(loads: Loads, ranks: int) -> Loads:
    """Slots placed one by one, the fullest first, each on the emptiest rank that has a slot left.

    Parameters
    ----------
    loads : array, shape (slots,)
        Load of every expert or copy.
    ranks : int
        Ranks with as many slots each; divides the number of slots.

    Returns
    -------
    array, shape (slots,)
        The same loads, those of one rank side by side, the largest of a rank first.

    References
    ----------
    Graham, "Bounds on multiprocessing timing anomalies", 1969 (longest processing time first); EPLB,
    ``balanced_packing``.

    Examples
    --------
    >>> placed_by_load(np.array([4.0, 3.0, 2.0, 1.0]), 2).tolist()
    [4.0, 1.0, 3.0, 2.0]
    """
    each = loads.size // ranks
    held: list[list[float]] = [[] for _ in range(ranks)]
    total = np.zeros(ranks)
    for load in np.sort(loads)[::-1]:
        emptiest = int(np.argmin(total))
        held[emptiest].append(float(load))
        total[emptiest] = total[emptiest] + load if len(held[emptiest]) < each else np.inf
    return np.array(held).ravel()


def slots_with_rows(chances: Loads, tokens: Num) -> Num:
    r"""Slots that at least one of the tokens goes to, expected.

    .. math:: \sum_i 1 - (1 - p_i)^B

    Parameters
    ----------
    chances : array, shape (slots,)
        Chance of a token to go to each slot.
    tokens : number or array
        B.

    Returns
    -------
    number or array
        Expected number; :func:`mc2perf.equations.routing.distinct_experts` where all chances are alike.

    Examples
    --------
    >>> float(slots_with_rows(np.array([1.0, 0.5]), 2.0))
    1.75
    """
    return sum((1.0 - (1.0 - chance) ** np.asarray(tokens) for chance in chances), 0.0)


@lru_cache
def normal_maximum(ranks: int) -> tuple[float, float]:
    """Mean of the largest of so many standard normal numbers, and of its square.

    Parameters
    ----------
    ranks : int
        p >= 1.

    Returns
    -------
    tuple of float
        Integrals over the density p phi(x) Phi(x)^(p-1).

    Examples
    --------
    >>> [round(normal_maximum(2)[0] * np.pi**0.5, 6), round(normal_maximum(1)[1], 4)]
    [1.0, 1.0]
    """
    x = np.linspace(-12.0, 12.0, 4801)
    below = np.array([0.5 * (1.0 + erf(value / 2.0**0.5)) for value in x]) ** ranks
    middle, share = (x[1:] + x[:-1]) / 2.0, np.diff(below)
    return float(np.sum(middle * share)), float(np.sum(middle**2 * share))


@formula(
    "min(most, 1 + largest * sqrt((experts - top_k) / ((experts - 1) * rows)) + (square - 1) / (6 * rows))"
)
def drawn_rank_factor(rows: Num, experts: Num, top_k: Num, largest: Num, square: Num, most: Num) -> Num:
    r"""Rows of the fullest rank over the mean where every expert is as likely as any other.

    Tokens draw k of E experts each; of p ranks with as many experts the fullest has more rows than the
    mean n by chance:

    .. math:: 1 + m_1 \sqrt{\frac{E - k}{(E - 1) n}} + \frac{m_2 - 1}{6 n}

    Parameters
    ----------
    rows : number or array
        n, rows of a rank on average; from about 2 on.
    experts, top_k : number or array
        E > 1 and k.
    largest, square : number or array
        Of :func:`normal_maximum` of the p ranks: counts of equal ranks are normal numbers less their mean.
    most : number or array
        What no rank can exceed.

    Returns
    -------
    number or array
        Expected factor, of at least 1.

    Notes
    -----
    The last term is the skewness of a Poisson count, to first order (Cornish and Fisher, 1938). The tests
    draw tokens: within 2 % from 8 rows on, 5 % with 2.

    Examples
    --------
    >>> largest, square = normal_maximum(8)
    >>> round(float(drawn_rank_factor(64.0, 256.0, 8.0, largest, square, 8.0)), 3)
    1.179
    """
    noise = largest * np.sqrt((experts - top_k) / ((experts - 1.0) * rows))
    return np.minimum(most, 1.0 + noise + (square - 1.0) / (6.0 * rows))


def pairwise_all_to_all_v_time(counts: Loads, latency: Num, time_per_row: Num) -> Num:
    r"""Time of an exchange of uneven counts in steps: in step k rank i sends to rank i + k.

    .. math:: (p - 1) \alpha + \beta \sum_{k=1}^{p-1} \max_i n_{i, (i + k) \bmod p}

    Parameters
    ----------
    counts : array, shape (ranks, ranks)
        Rows that rank i sends to rank j; what stays on a rank is not sent.
    latency : number or array
        Of one step. [s]
    time_per_row : number or array
        Of one row on the link of a rank. [s]

    Returns
    -------
    number or array
        Time until the last step ends: a step begins when all of the one before have ended. [s]

    Notes
    -----
    Where ranks send alike and one of them receives more, every step has a rank that sends to it: the sum
    is p - 1 times what each sends there, and the exchange takes as long as an even one of the busiest
    rank's rows.

    References
    ----------
    Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.

    Examples
    --------
    >>> pairwise_all_to_all_v_time(np.array([[9.0, 1.0], [2.0, 9.0]]), 10.0, 1.0)
    12.0
    """
    ranks = len(counts)
    sender = np.arange(ranks)
    longest = [counts[sender, (sender + step) % ranks].max() for step in range(1, ranks)]
    return (ranks - 1) * latency + time_per_row * float(sum(longest))
