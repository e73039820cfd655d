"""Predictions beside those of another simulator: nothing is measured, so they are in no score and no band."""

from __future__ import annotations

from dataclasses import dataclass

from mc2perf.measurement import Family, Row
from mc2perf.studies.validate.asked import Case

FAR = 2.0
"""Beyond this factor, either way, a ratio wants a cause."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One quantity of one deployment by both [SI]; ``case`` says how it was asked, or why it was not."""

    case: Case

    @property
    def simulated(self) -> float:
        """What the other simulator says."""
        found = self.case.value.si
        assert found is not None
        return found

    @property
    def ratio(self) -> float | None:
        """Predicted over simulated.

        Examples
        --------
        >>> from mc2perf.validating import neighbours
        >>> one = neighbours()[0].ratios[0]
        >>> one.ratio == one.case.predicted / one.simulated
        True
        """
        return None if self.case.predicted is None else self.case.predicted / self.simulated

    @property
    def far(self) -> bool:
        """Whether both are further apart than a factor."""
        return self.ratio is not None and not 1.0 / FAR <= self.ratio <= FAR


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Another simulator and the deployments that it says something of."""

    simulator: Family
    ratios: tuple[Ratio, ...]

    def of(self, row: Row) -> tuple[Ratio, ...]:
        """Every quantity of one deployment as it was read."""
        return tuple(one for one in self.ratios if one.case.row is row)
