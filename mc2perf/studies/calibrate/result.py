"""What a calibration finds: groups of rows with their fit, values with intervals, edits of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mc2perf.fitting.robust import Mask, Numbers, explained

UNSURE = 0.5
"""An interval of more than half the value either way tells too little: the base's value stays."""

POOR = 0.25
"""A fit with a larger median residual is none."""

Path = tuple[Any, ...]
Edit = tuple[Path, Any]
"""Where in the tree of a profile, and what to write there; ``None`` takes it away."""


class NotFittedError(ValueError):
    """Why rows are not fitted."""


@dataclass(frozen=True)
class Origin:
    """Where rows come from: the file, its date."""

    file: str
    date: str

    def words(self, rows: int) -> str:
        """Provenance as it is written beside a number."""
        return ", ".join(part for part in (self.file, f"{rows} rows", self.date) if part)


@dataclass(frozen=True)
class Value:
    """One fitted number: its path, interval, what the base says, all in SI with their symbol."""

    name: str
    value: float
    low: float
    high: float
    base: float | None
    symbol: str


@dataclass(frozen=True)
class Group:
    """Rows that were fitted together, and how well.

    ``median``, ``p90`` and ``worst`` are of the absolute relative residuals; ``outliers`` the rows that the
    fit does not explain, left out of ``r2``; ``left`` what the data cannot tell, with why.
    """

    what: str
    origin: Origin
    rows: int
    span: str
    form: str
    r2: float
    median: float
    p90: float
    worst: float
    values: tuple[Value, ...] = ()
    outliers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A group, and what it writes into the profile."""

    group: Group
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Quality:
    """How well predicted times meet measured ones."""

    r2: float
    median: float
    p90: float
    worst: float

    @classmethod
    def of(cls, measured: Numbers, residuals: Numbers, outliers: Mask) -> Quality:
        """From log(predicted / measured); outliers count in all but R2.

        Raises
        ------
        NotFittedError
            The model does not describe these rows.
        """
        errors = np.abs(np.expm1(residuals))
        usual = float(np.median(errors))
        if usual > POOR:
            raise NotFittedError(f"the model does not describe these rows: median residual {usual:.0%}")
        r2 = explained(measured[~outliers], residuals[~outliers]) if (~outliers).sum() > 1 else 0.0
        return cls(r2, usual, float(np.quantile(errors, 0.9)), float(errors.max()))


@dataclass
class Calibration:
    """Everything found: groups, what was refused or of no use, what to write."""

    groups: list[Group] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)

    def add(self, outcome: Outcome) -> Sequence[Edit]:
        """Keep an outcome; returns what it writes."""
        self.groups.append(outcome.group)
        self.edits += outcome.edits
        return outcome.edits


def sourced(origin: Origin, rows: int, more: str) -> dict[str, str]:
    """Kind and reference of fitted numbers."""
    return {"kind": "fitted", "ref": f"{origin.words(rows)}; {more}"}
