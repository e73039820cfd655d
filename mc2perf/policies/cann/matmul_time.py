"""CANN's matmul time: peak rate times a utilisation that depends on blocks, L2 footprint or shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mc2perf.policies.cann import constants as c
from mc2perf.policies.cann.case import Case


@dataclass(frozen=True)
class MatmulTime:
    """Time over rows at one utilisation: ``row`` us per row of one rank's copy, at least ``base`` rows."""

    row: float
    base: float

    def time(self, rows: float, copies: float = 1.0) -> float:
        """Time of a tile that computes ``rows`` of each of ``copies`` ranks. [us]

        Examples
        --------
        >>> MatmulTime(0.5, 128.0).time(256.0, 2.0)
        256.0
        """
        return max(self.base, rows) * copies * self.row

    def rows(self, time: float, copies: float = 1.0) -> float:
        """Rows computed in a time [us]; the inverse of :meth:`time`, in whole rows.

        Examples
        --------
        >>> MatmulTime(0.5, 128.0).rows(256.0, 2.0)
        256.0
        """
        return max(self.base, float(math.floor(time / (copies * self.row))))


def matmul_time(case: Case, use: float, factor: float = 1.0) -> MatmulTime:
    """Matmul model of a case at a utilisation.

    Parameters
    ----------
    case : Case
        Shape, cores and family.
    use : float
        Share of the peak rate.
    factor : float
        On the time, for work folded into it.

    Returns
    -------
    MatmulTime
        Time per row and its inverse.

    References
    ----------
    hicann/ops-transformer c29bc106, ``mc2/common/src/matmul_performance.cpp``:251-272.
    """
    soc = case.soc
    work = max(soc.base_n, case.n) * max(soc.base_k, case.k)
    rate = soc.mac_rate[case.dtype] * soc.clock * case.cores * use
    return MatmulTime(factor * work / rate, soc.base_m)


@dataclass(frozen=True)
class Footprint:
    """Blocks of a tile in rows and columns, and the MiB of inputs the running ones hold (whole MiB)."""

    block_rows: float
    block_columns: float
    held: float


def footprint(case: Case, rows: float, copies: float) -> Footprint:
    """Blocks and L2 footprint of a tile of ``rows`` of each of ``copies`` ranks (cpp:99-131).

    Examples
    --------
    >>> case = Case(operator="matmul_all_reduce", m=512, n=8192, k=8192, ranks=8, family="a2", cores=24)
    >>> footprint(case, 512.0, 1.0)
    Footprint(block_rows=4.0, block_columns=32, held=104)
    """
    high = min(128.0, rows)
    down, across = math.ceil(rows / high) * copies, math.ceil(case.n / 256)
    lines = min(down, case.cores) * high + min(across, case.cores) * 256
    return Footprint(down, across, math.floor(lines * case.k * case.size / c.MIB))


def stepped_use(case: Case, rows: float, copies: float) -> float:
    """Utilisation on A2 and A3: a step by L2 footprint, times the share of busy cores (cpp:133-169).

    Examples
    --------
    >>> case = Case(operator="matmul_all_reduce", m=512, n=8192, k=8192, ranks=8, family="a2", cores=24)
    >>> stepped_use(case, 512.0, 1.0), stepped_use(case, 4096.0, 1.0)
    (0.85, 0.75)
    """
    held = footprint(case, rows, copies)
    blocks = held.block_rows * held.block_columns
    return _step(held.held) * min(blocks, case.cores) / case.cores


def _step(held: float) -> float:
    if held <= c.L2_PART:
        return c.USE_PART
    return c.USE_FULL if held <= c.L2_FULL else c.USE_OUT


def longest_tile(case: Case, rows: float, copies: float) -> float:
    """Longest tile worth taking: ``rows``, rounded up, if one more row of blocks leaves its L2 step.

    Read so: "the remaining L2" is what is left of the step that the footprint is in (cpp:156-167); with
    all cores on different rows of blocks already, or beyond the last step, nothing more can be lost.
    """
    held = footprint(case, rows, copies)
    limit = c.L2_PART if held.held <= c.L2_PART else c.L2_FULL
    more = held.held + 128 * case.k * case.size / c.MIB
    grows = held.block_rows < case.cores < held.block_columns and held.held <= c.L2_FULL
    return 128.0 * math.ceil(rows / 128) if grows and more > limit else case.rows


def power_use(case: Case, copies: float, power: float = c.POWER_WHOLE) -> float:
    """Utilisation on the 950: a power law of K and of the harmonic mean of rows and columns.

    Parameters
    ----------
    case : Case
        Shape; all its rows count.
    copies : float
        Ranks whose rows are computed.
    power : float
        Exponent of the harmonic mean: 0.7 of a whole problem, 0.6 of a rank's own rows.

    Returns
    -------
    float
        Share of the peak rate, at most 0.95.

    References
    ----------
    hicann/ops-transformer c29bc106, ``mc2/common/src/matmul_performance.cpp``:132-154, 217-238.
    """
    rows = case.rows * copies
    mean = rows * case.n / (rows + case.n)
    deep = min(c.POWER_TOP, math.pow(case.k / c.POWER_K, 0.7))
    wide = min(c.POWER_TOP, math.pow(mean / c.POWER_H, power))
    return min(c.POWER_CAP, c.POWER_SCALE * deep * wide)


def use(case: Case, rows: float, copies: float) -> float:
    """Utilisation by family: of a tile on A2 and A3, of the whole problem on the 950."""
    return power_use(case, copies) if case.family == "950" else stepped_use(case, rows, copies)


def front_use(case: Case) -> float:
    """Utilisation of a rank's own rows, computed first."""
    if case.family == "950":
        return power_use(case, 1.0, c.POWER_FRONT)
    return stepped_use(case, case.rows, 1.0)


def smallest_tile(case: Case, copies: float) -> float:
    """Smallest tile that keeps the cube efficient, in whole rows (cpp:50-91).

    Parameters
    ----------
    case : Case
        Shape, cores and family.
    copies : float
        Ranks whose rows a tile computes.

    Returns
    -------
    float
        Rows of one rank.

    Examples
    --------
    >>> case = Case(operator="matmul_all_reduce", m=5416, n=1408, k=6144, ranks=8, family="a2", cores=24)
    >>> smallest_tile(case, 1.0)
    766.0
    """
    base = case.soc.base_m
    n, k = max(base, case.n), max(base, case.k)
    if copies > 2:
        return max(base, float(math.floor(case.soc.many_ranks_work / (n * k * copies))))
    cores = case.cores / c.FEW_RANKS_CORES
    rows = cores * max(c.FEW_RANKS_WORK / (n * k), c.FEW_RANKS_TRAFFIC / (n * k / 1024 + n))
    return max(3 * base, float(math.floor(rows / copies)))


def aligned_k(case: Case) -> float:
    """Share of the rate left with an unaligned K; all-reduce only (cpp:186-200, 240-248).

    Examples
    --------
    >>> aligned_k(Case(operator="matmul_all_reduce", m=1, n=1, k=100, ranks=8, family="a2", cores=24))
    0.7
    """
    if case.size >= 2:
        return 1.0 if case.k % 128 == 0 else 0.7
    row = case.k * case.size
    if row % 256:
        return 0.5
    return 0.7 if row % 512 else 1.0
