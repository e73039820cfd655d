"""The 950's policy for 4 and 8 ranks: the common cut with re-measured lines.

References
----------
hicann/ops-transformer, the ``arch35`` files named at each function.
"""

from __future__ import annotations

import math

from mc2perf.policies.cann import constants as c
from mc2perf.policies.cann.case import CannTiling, Case
from mc2perf.policies.cann.formulaic import NO_CUT, Job, Tiles, cut_continuous, cut_discrete, down, up
from mc2perf.policies.cann.hccl_time import CommTime
from mc2perf.policies.cann.matmul_time import MatmulTime, front_use, matmul_time, power_use
from mc2perf.policies.cann.operators import OWN_ROWS, Totals, balanced, is_linear

LEAST = 256.0
"""Smallest tile and alignment. [rows]"""


def all_gather_matmul(case: Case, comm: CommTime) -> CannTiling:
    """All-gather then matmul (``all_gather_fit_balance_tiling.cpp``, commit eacf1d3)."""
    used = power_use(case, case.ranks - 1)
    matmul = matmul_time(case, used)
    totals = Totals(matmul.time(case.rows, case.ranks), comm.time(case.rows))
    # half tiles where both engines are still busy for 40 us
    half = totals.ratio < 2 and min(_plain(matmul, 128.0, case.ranks), comm.time(128.0)) > 40
    short = LEAST / 2 if half else LEAST
    front = matmul.time(case.rows) * used / front_use(case)
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=short,
        linear=is_linear(case, totals, LEAST),
        local_first=True,
        short_last=True,
    )
    cut = cut_discrete(job, comm.rows(front))
    return totals.tiling(cut, OWN_ROWS if len(cut.rows) > 1 else "")


def _plain(matmul: MatmulTime, rows: float, copies: float) -> float:
    return rows * copies * matmul.row


def _small_output(case: Case) -> bool:
    """Output of at most two blocks for each core."""
    return case.rows * case.n <= 2 * case.cores * case.soc.base_m * case.soc.base_n


SMALL_OUTPUT = "at most two output blocks per core"


def matmul_reduce_scatter(case: Case, comm: CommTime) -> CannTiling:
    """Matmul then reduce-scatter (``reduce_scatter_fit_balance_tiling.cpp``)."""
    matmul = matmul_time(case, power_use(case, case.ranks))
    totals = Totals(matmul.time(case.rows, case.ranks), comm.time(case.rows))
    if _small_output(case):
        return totals.whole(case, SMALL_OUTPUT)
    large = case.operands > c.LARGE_OPERANDS
    short = 2 * LEAST if large and case.rows > 4 * LEAST else LEAST
    long = balanced(totals, matmul, comm, short, case.ranks)
    wide = large and case.n >= 2 * case.rows * case.ranks
    shallow = case.size < 2 and totals.ratio > 2 and case.k < 2048
    if (wide or shallow) and case.rows % short == 0:
        long = short
    job = _job(case, totals, short)
    return totals.tiling(cut_discrete(job, long))


def _job(case: Case, totals: Totals, short: float, cap: int = c.MAX_TILES) -> Job:
    return Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=LEAST,
        cap=cap,
        linear=is_linear(case, totals, short),
    )


def matmul_all_reduce(case: Case, comm: CommTime) -> CannTiling:
    """Matmul then two-shot all-reduce (arch35, commit 0892d120)."""
    matmul = matmul_time(case, power_use(case, 1.0))
    totals = Totals(matmul.time(case.rows), comm.time(case.rows))
    short = max(LEAST, comm.rows(100.0), matmul.rows(60.0))
    short *= 2 if case.operands > c.LARGE_OPERANDS else 1
    if case.rows < 2 * short:
        return totals.tiling(Tiles((float(case.rows),), NO_CUT))
    if not totals.compute_bound and totals.ratio >= 4 and case.rows > 1024 and totals.matmul >= 60:
        first = up((case.rows + 1) / 3, LEAST)
        return totals.tiling(Tiles((first, float(case.rows - first)), "two tiles: strongly comm-bound"))
    long = max(short, balanced(totals, matmul, comm, short, 1.0))
    if (case.rows - short) / long >= 4:
        short, long = 2 * short, 2 * long
    return totals.tiling(cut_continuous(_job(case, totals, short), long))


def matmul_all_to_all(case: Case, comm: CommTime) -> CannTiling:
    """Matmul then all-to-all (``matmul_allto_all_fit_balance_tiling.cpp``, commit 4ae8092)."""
    quantised = case.dtype in ("int8", "fp8")
    matmul = matmul_time(case, power_use(case, 1.0), 1.43 if quantised else 1.0)
    totals = Totals(matmul.time(case.rows), comm.time(case.rows))
    if case.engine == "aicpu" and min(totals.matmul, totals.comm) < 80:
        return totals.whole(case, "an engine is busy for less than 80 us")
    if _small_output(case):
        return totals.whole(case, SMALL_OUTPUT)
    short = LEAST * (2 if case.operands > c.LARGE_OPERANDS else 1)
    if case.rows <= 4096:
        short = max(short, math.ceil(case.rows / 3))
    long = balanced(totals, matmul, comm, short, 1.0)
    if totals.ratio > 1.5:
        long = down(long, LEAST)
    cap = 3 if case.rows > 10 * case.n else c.FEW_TILES
    return totals.tiling(cut_discrete(_job(case, totals, short, cap), long))


class _Lines:
    """Lines of all-to-all then matmul: us and us per row of each stage (plain numbers, no blocks)."""

    def __init__(self, case: Case) -> None:
        fit, comm = c.EXCHANGE_950[case.dtype], c.FIT_950["all_to_all", case.ranks]
        row = case.k * fit.size / c.MIB
        self.matmul = (fit.slope * case.k * case.n / (case.cores * c.MI), fit.offset)
        self.comm = (comm.slope * row, comm.offset)
        self.unshared_permute = c.PERMUTE_SLOPE * row
        self.permute = (self.unshared_permute / (2 * case.cores), c.PERMUTE_OFFSET)
        slope, offset = c.QUANTISE[case.ranks] if case.dtype in ("int8", "fp8") else (0.0, 0.0)
        self.quantise = (slope * case.k / (2 * case.cores * c.MI), offset)

    def totals(self, rows: float) -> Totals:
        """Time of both engines; the per-token quantisation counts as matmul."""
        return Totals(_at(self.matmul, rows) + _at(self.quantise, rows), _at(self.comm, rows))

    def crossing(self) -> float:
        """Rows at which matmul and communication take as long; 0 if they never do."""
        slope = self.comm[0] - self.matmul[0]
        return max(0.0, (self.matmul[1] - self.comm[1]) / slope) if slope else 0.0

    def long(self, short: float, short_last: bool) -> float:
        """Long tile that the short one is balanced with.

        Read so: the quantisation stays out of the inverted matmul line (gives 5 x 768 + 256 of int8
        4096 x 512 x 8192); the source's undivided permute slope of the long tile is kept.
        """
        if short_last:
            return (_at(self.comm, short) - self.matmul[1]) / self.matmul[0]
        covered = _at(self.matmul, short) + _at(self.permute, short) - self.comm[1] - self.permute[1]
        return covered / (self.comm[0] + self.unshared_permute)


def _at(line: tuple[float, float], rows: float) -> float:
    return line[0] * rows + line[1]


def all_to_all_matmul(case: Case) -> CannTiling:
    """All-to-all then matmul (``allto_all_matmul_fit_balance_tiling.cpp``; round cap of commit 0f8615d)."""
    lines = _Lines(case)
    totals = lines.totals(case.rows)
    short_last = not totals.compute_bound
    short = LEAST
    if totals.ratio < 2:
        short = max(LEAST, down(lines.crossing(), LEAST) + (LEAST if short_last else 0.0))
    if totals.matmul + totals.comm < 100:
        return totals.whole(case, "less than 100 us of work")
    factor, cost = c.ROUND_COST[case.engine]
    cap = min(c.MAX_TILES, max(3, math.floor(factor * totals.comm / cost)))
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=LEAST,
        cap=cap,
        linear=is_linear(case, totals, short),
        short_last=short_last,
    )
    return totals.tiling(cut_discrete(job, max(LEAST, lines.long(short, short_last))))
