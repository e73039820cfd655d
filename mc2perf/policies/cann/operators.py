"""The rules of each operator around the common cut: inflation, smallest tile, when not to cut at all."""

from __future__ import annotations

from dataclasses import dataclass

from mc2perf.policies.cann import constants as c
from mc2perf.policies.cann.case import Bound, CannTiling, Case
from mc2perf.policies.cann.formulaic import Job, Tiles, cut_continuous, cut_discrete, rounds, up
from mc2perf.policies.cann.hccl_time import CommTime, comm_time, rank_factor, smallest_message
from mc2perf.policies.cann.matmul_time import (
    MatmulTime,
    aligned_k,
    front_use,
    longest_tile,
    matmul_time,
    smallest_tile,
    use,
)


@dataclass(frozen=True)
class Totals:
    """Time of the whole problem in each engine. [us]"""

    matmul: float
    comm: float

    @property
    def compute_bound(self) -> bool:
        """Computation takes at least as long."""
        return self.matmul >= self.comm

    @property
    def ratio(self) -> float:
        """The longer over the shorter."""
        return max(self.matmul, self.comm) / min(self.matmul, self.comm)

    def tiling(self, tiles: Tiles, context: str = "") -> CannTiling:
        """Answer in SI units; ``context`` is what changed the cut before its own rule."""
        bound: Bound = "compute" if self.compute_bound else "comm"
        why = f"{tiles.rule}; {context}" if context else tiles.rule
        return CannTiling(tiles.rows, self.matmul * c.US, self.comm * c.US, bound, why)

    def whole(self, case: Case, reason: str) -> CannTiling:
        """One tile."""
        return self.tiling(Tiles((float(case.rows),), f"no cut: {reason}"))


def balanced(totals: Totals, matmul: MatmulTime, comm: CommTime, short: float, copies: float) -> float:
    """Long tile that takes the bounding engine as long as the short one takes the other."""
    if totals.compute_bound:
        return comm.rows(matmul.time(short, copies))
    return matmul.rows(comm.time(short), copies)


def least_tile(case: Case, copies: float) -> float:
    """Smallest tile that keeps both engines efficient."""
    return max(case.soc.align, smallest_message(case), smallest_tile(case, copies))


def overlap_factor(case: Case, used: float) -> tuple[float, bool]:
    """Inflation of all-gather or reduce-scatter, and whether a busy L2 or a large problem raised it."""
    inflation = c.INFLATION[case.entry.collective]
    factor = inflation.always * (inflation.a3 if case.family == "a3" else 1.0)
    if case.ranks > 3 and used < c.USE_PART:
        return factor * inflation.overflow, True
    if case.ranks > 3 and case.k >= c.LARGE_K and case.n > c.LARGE_N:
        return factor * inflation.large, True
    return factor, False


def gathered_totals(case: Case, matmul: MatmulTime, comm: CommTime) -> Totals:
    """Totals of all-gather and reduce-scatter.

    On A3 with more than two ranks the source multiplies rows and size by the ranks once more (l.335-353),
    so only the ratio of these totals means anything there.
    """
    again = case.ranks if case.family == "a3" and case.ranks > 2 else 1
    remote = again - 1 if case.entry.local_first and again > 1 else again
    return Totals(matmul.time(case.rows * remote, case.ranks), comm.time(case.rows * again))


OWN_ROWS = "long tile arrives while the rank's own rows are computed"


def all_gather_matmul(case: Case) -> CannTiling:
    """All-gather then matmul, the rank's own rows first (``all_gather_formulaic_tiling.cpp``)."""
    copies = case.ranks if case.family == "a2" else case.ranks - 1
    least = least_tile(case, copies)
    used = use(case, least, copies)
    factor, raised = (c.ALL_GATHER_950, False) if case.family == "950" else overlap_factor(case, used)
    few = raised and not c.SMALL_SHAPE < case.rows <= 2 * c.SMALL_SHAPE
    matmul, comm = matmul_time(case, used), comm_time(case, factor)
    totals = gathered_totals(case, matmul, comm)
    front = matmul.time(case.rows) * used / front_use(case)
    longest = case.rows if case.family == "950" else longest_tile(case, least, copies)
    if totals.comm < front and case.rows <= longest and case.k <= 32768:
        return totals.whole(case, "communication fits in the rank's own rows")
    strong = case.family == "a2" and totals.comm > 2 * totals.matmul and case.k >= c.LARGE_K
    short, align = _strong_short(case) if strong else (least, case.soc.align)
    own_rows = totals.compute_bound and case.ranks > 2
    long = comm.rows(front) if own_rows else balanced(totals, matmul, comm, short, case.ranks - 1)
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=align,
        cap=c.FEW_TILES if few else c.MAX_TILES,
        longest=longest,
        linear=is_linear(case, totals, short),
        local_first=True,
        align_up=_small(case, totals),
    )
    if strong:
        return totals.tiling(cut_discrete(job, short), "more cuts: strongly comm-bound")
    cut = cut_discrete(job, long)
    return totals.tiling(cut, OWN_ROWS if own_rows and len(cut.rows) > 1 else "")


def _strong_short(case: Case) -> tuple[float, float]:
    """Shortest tile, and its alignment, where communication is more than twice the matmul."""
    half = case.n > c.SMALL_SHAPE and case.rows <= 512
    short = case.soc.align / 2 if half else case.soc.align
    return short, short


def _small(case: Case, totals: Totals) -> bool:
    return case.ranks == 2 and totals.compute_bound and min(case.n, case.k) < c.SMALL_SHAPE


def is_linear(case: Case, totals: Totals, short: float) -> bool:
    """Whether matmul time follows the tile's rows, so that equal tiles cost nothing."""
    large = case.k * case.n >= c.LARGE_NK and short >= case.soc.align
    return large or not totals.compute_bound


def matmul_reduce_scatter(case: Case) -> CannTiling:
    """Matmul then reduce-scatter; rows of one rank are cut (``reduce_scatter_formulaic_tiling.cpp``)."""
    least = least_tile(case, case.ranks)
    used = use(case, least, case.ranks)
    factor = 1.0 if case.family == "950" else overlap_factor(case, used)[0]
    matmul, comm = matmul_time(case, used), comm_time(case, factor)
    totals = gathered_totals(case, matmul, comm)
    short, why = _scatter_short(case, totals, least)
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=case.soc.align,
        longest=case.rows if case.family == "950" else longest_tile(case, least, case.ranks),
        linear=is_linear(case, totals, short),
        align_up=_small(case, totals),
    )
    long = balanced(totals, matmul, comm, short, case.ranks)
    return totals.tiling(cut_discrete(job, long), why)


def _scatter_short(case: Case, totals: Totals, least: float) -> tuple[float, str]:
    """Short tile of reduce-scatter: lowered for more cuts, or raised for fewer."""
    align, over = case.soc.align, totals.matmul / totals.comm
    if totals.comm > 1.5 * totals.matmul and case.n >= 4096 and case.k >= 1024:
        return align, "more cuts: comm-bound"
    if _fewer_cuts(case, totals):
        return max(least, 2 * align), "fewer cuts: deterministic"
    if 2 <= over < 3:
        return max(least, float(c.LEAST_OUTPUT // (case.n * case.ranks))), "fewer cuts: output of 4 Mi"
    return least, ""


def _fewer_cuts(case: Case, totals: Totals) -> bool:
    enough = totals.matmul > 1.5 * totals.comm and case.rows >= 4 * case.soc.align
    return case.deterministic and case.n <= 4096 and (totals.ratio < 1.15 or enough)


def matmul_all_reduce(case: Case) -> CannTiling:
    """Matmul then all-reduce (``all_reduce_formulaic_tiling.cpp``)."""
    least = least_tile(case, 1.0)
    used = use(case, least, 1.0)
    newest = case.family == "950"
    factor = c.ALL_REDUCE_950 * 8 / case.ranks if newest else c.ALL_REDUCE_A2
    matmul, comm = matmul_time(case, used, 1 / aligned_k(case)), comm_time(case, factor)
    totals = Totals(matmul.time(case.rows), comm.time(case.rows))
    short, why = least, ""
    if totals.ratio < 2 and case.rows < 2 * least and case.n * case.k >= c.LARGE_NK:
        short, why = least // 2, "smallest tile halved so that a cut is possible"
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=case.soc.align,
        longest=case.rows if newest else longest_tile(case, least, 1.0),
        deep=case.k > case.n,
    )
    return totals.tiling(cut_continuous(job, balanced(totals, matmul, comm, short, 1.0)), why)


def all_to_all(case: Case) -> CannTiling:
    """Either order of all-to-all and matmul (``allto_all_formulaic_tiling.cpp``, commit 0892d120).

    Read so: matmul time in total carries the factor ranks of the shared estimator; a tile's is balanced
    with as many copies as communication counts (all ranks on A3, one on the 950).
    """
    if case.family == "a2":
        return _looked_up(case)
    least = least_tile(case, case.ranks)
    used = use(case, least, case.ranks)
    matmul, comm, copies = _exchange_models(case, used)
    totals = Totals(matmul.time(case.rows, case.ranks), comm.time(case.rows))
    short, why = _exchange_short(case, totals, least)
    # mxfp8 by the 950's fallback: the AI CPU takes three rounds at most, aligned again
    serviced = case.dtype == "mxfp8" and case.engine == "aicpu" and case.entry.order == "comm_first"
    job = Job(
        rows=case.rows,
        short=short,
        compute_bound=totals.compute_bound,
        align=case.soc.align,
        cap=3 if serviced else c.FEW_TILES if case.family == "a3" else c.MAX_TILES,
        linear=is_linear(case, totals, short),
    )
    tiles = cut_discrete(job, balanced(totals, matmul, comm, short, copies))
    if serviced and len(tiles.rows) > 1:
        tiles = tiles._replace(rows=rounds(case.rows, up(max(tiles.rows), case.soc.align)))
    return totals.tiling(tiles, why)


def _exchange_models(case: Case, used: float) -> tuple[MatmulTime, CommTime, int]:
    """Matmul, communication, and the copies of a tile that the latter counts."""
    if case.family == "950":
        return matmul_time(case, used, c.ALL_TO_ALL_950_MATMUL), comm_time(case, c.ALL_TO_ALL_950), 1
    # on A3 the source multiplies the ring's rank scaling away again
    return matmul_time(case, used), comm_time(case, c.ALL_TO_ALL_A3 / rank_factor(case)), case.ranks


def _exchange_short(case: Case, totals: Totals, least: float) -> tuple[float, str]:
    if totals.comm > 2 * totals.matmul and case.k >= c.LARGE_K:
        return case.soc.align, "more cuts: comm-bound"
    if 2 <= totals.matmul / totals.comm < 3:
        return max(least, float(c.LEAST_OUTPUT // case.n)), "fewer cuts: output of 4 Mi"
    return least, ""


def _looked_up(case: Case) -> CannTiling:
    """A2 in AIV mode: rounds of a table by shape, of which only the defaults are known."""
    tiles = rounds(case.rows, c.A2_ROUND_BLOCK * c.A2_ROUND_BLOCKS[case.ranks])
    return CannTiling(tiles, None, None, None, "look-up table's default for these ranks; no cost model")


def per_expert(case: Case) -> CannTiling:
    """Grouped matmul and all-to-all-v: one exchange per local expert, no cost model.

    ``allto_allv_grouped_mat_mul_coarse_grained.h``:122-254, ``grouped_mat_mul_allto_allv.h``:160-249.
    """
    tiles = (case.rows / case.experts,) * case.experts
    return CannTiling(tiles, None, None, None, "one tile per local expert; no cost model")
