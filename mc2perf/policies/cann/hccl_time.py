"""CANN's time of a collective: a piecewise fit over the size, scaled by ranks and inflated by overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mc2perf.policies.cann import constants as c
from mc2perf.policies.cann.case import Case
from mc2perf.policies.cann.constants import HcclFit


def fitted_time(fit: HcclFit, size: float) -> float:
    """Time of one collective of a size in MiB. [us]

    Examples
    --------
    >>> round(fitted_time(HcclFit(2.0, 3.0, b1=1.0, b2=2.0, a=0.0, b=1.0, c=4.0, floor=5.0), 1.5), 6)
    5.5
    """
    if size > fit.b2:
        return fit.slope * size + fit.offset
    if size > fit.b1:
        return fit.a * size**2 + fit.b * size + fit.c
    return fit.floor


def fitted_size(fit: HcclFit, time: float) -> float:
    """Size in MiB that one collective moves in a time [us], as the source inverts its fit.

    Examples
    --------
    >>> fitted_size(HcclFit(2.0, 3.0), 11.0)
    4.0
    """
    if time > fit.inverse_from:
        return max(fit.b1, (time - fit.offset) / fit.slope)
    if fit.inverse_vertex is None or time <= fit.floor:
        return fit.b1
    start, steep, top = fit.inverse_vertex
    return max(fit.b1, start - math.sqrt(max(0.0, steep * (top - time))))


@dataclass(frozen=True)
class CommTime:
    """Time over rows of one operator: MiB counted for a row, and a factor on the fitted time."""

    fit: HcclFit
    row: float
    factor: float

    def time(self, rows: float) -> float:
        """Time of a tile. [us]

        Examples
        --------
        >>> CommTime(HcclFit(2.0, 3.0), 0.5, 10.0).time(8.0)
        110.0
        """
        return fitted_time(self.fit, rows * self.row) * self.factor

    def rows(self, time: float) -> float:
        """Rows that travel in a time [us]; the inverse of :meth:`time`, in whole rows.

        Examples
        --------
        >>> CommTime(HcclFit(2.0, 3.0), 0.5, 10.0).rows(110.0)
        8.0
        """
        rows = fitted_size(self.fit, time / self.factor) / self.row
        return rows if math.isinf(rows) else float(math.floor(rows))


def counted_row(case: Case) -> float:
    """MiB that CANN counts for one row: of every rank in all-gather and reduce-scatter, and always on A3."""
    gathers = case.entry.collective in ("all_gather", "reduce_scatter")
    copies = case.ranks if gathers or case.family == "a3" else 1
    return case.sent_width * case.sent_size * copies / c.MIB


def rank_factor(case: Case) -> float:
    """Factor on a fit that was measured with 8 ranks (``mc2/common/src/hccl_performance.cpp``:61-102).

    Examples
    --------
    >>> case = Case(operator="all_gather_matmul", m=512, n=512, k=512, ranks=8, family="a2", cores=20)
    >>> rank_factor(case)
    0.5
    """
    gathers = case.entry.collective in ("all_gather", "reduce_scatter")
    if case.family == "a3":
        return ((case.ranks - 1) / case.ranks) / (2 * 7 / 8)
    return 4.0 / case.ranks if gathers else 1.0


FITS = {"a2": c.A2_MESH, "a3": c.A3_RING, "950": c.MESH_950}
"""Family -> fit of its formulaic policy."""


def comm_time(case: Case, factor: float = 1.0) -> CommTime:
    """Communication model of the formulaic policy, inflated by a factor."""
    determined = case.deterministic and case.operator == "matmul_reduce_scatter" and case.family == "a2"
    slower = 1 + 0.4 * case.ranks / 8 if determined else 1.0
    return CommTime(FITS[case.family], counted_row(case), rank_factor(case) * slower * factor)


def smallest_message(case: Case) -> float:
    """Rows that make a message of 64 KiB."""
    return math.ceil(c.LEAST_MESSAGE / (case.sent_width * case.sent_size))


def fit_balance_time(case: Case) -> CommTime | None:
    """Re-measured line of the 950 for these ranks; None if it has none."""
    fit = c.FIT_950.get((case.entry.collective, case.ranks))
    return fit and CommTime(fit, counted_row(case), 1.0)
