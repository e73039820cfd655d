"""Relative errors of predictions and of a naive model, value by value and in groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from mc2perf.measurement import Value
from mc2perf.studies.validate.asked import GAINS, QUANTITIES, RATES, TIMES, TOKEN_TIMES, Case

NAIVE = (
    "FLOPs / (peak x efficiency) + weights of a rank / memory bandwidth, no communication, no overlap;"
    " an exchange alone: bytes / (rate of the links x efficiency);"
    " the efficiency is the median of those that fit each open value of the family exactly"
)
"""What the naive model of every family is."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A measured value beside two predictions [SI] and their signed relative errors.

    ``signed`` says that the quantity has a sign, ``wrong_sign`` that the prediction has the other one.
    """

    case: Case
    measured: float
    predicted: float
    error: float
    naive: float
    naive_error: float
    efficiency: float
    signed: bool
    wrong_sign: bool


@dataclass(frozen=True, kw_only=True)
class Score:
    """Relative errors over a group of values: median and worst of their size, median of the signed ones.

    ``efficiency`` is that of the naive model where the group is one family.
    """

    by: Literal["family", "level", "predictable", "all"]
    group: str
    held_out: bool
    values: int
    median: float
    worst: float
    worst_at: str
    bias: float
    signed: int
    sign_errors: int
    naive_median: float
    naive_worst: float
    efficiency: float | None = None


def relative_error(predicted: float, value: Value) -> float:
    """Signed error over the size of the measured value; none beyond a printed bound that is kept.

    Parameters
    ----------
    predicted : float
        In SI.
    value : Value
        With its measured number; a range counts as its middle.

    Returns
    -------
    float
        The difference itself where the measured number is 0.

    Examples
    --------
    >>> round(relative_error(1.1, Value(quantity="time", unit="s", value=1.0)), 6)
    0.1
    >>> relative_error(1.2, Value(quantity="speedup", unit="1", value=1.1, bound="at_least"))
    0.0
    """
    measured = value.si
    assert measured is not None
    kept = {"at_least": predicted >= measured, "at_most": predicted <= measured}
    if kept.get(value.bound, False):
        return 0.0
    return (predicted - measured) / (abs(measured) or 1.0)


def efficiency_of(cases: Iterable[Case]) -> float:
    """The efficiency of a family's naive model: the median of what fits each open value exactly.

    A value faster than its bytes alone needs an endless one; a family without times or rates of anything
    that computes gets 1.
    """
    fits = []
    for case in cases:
        time = _measured_time(case)
        if case.row.open and case.asked and case.asked.flops_time and time is not None:
            left = time - case.asked.bytes_time
            fits.append(case.asked.flops_time / left if left > 0.0 else math.inf)
    return median(fits) if fits else 1.0


def _measured_time(case: Case) -> float | None:
    """The time that a measured time or rate stands for, if it is one."""
    measured, predicted = case.value.si, case.predicted
    if not measured or not predicted or not case.asked:
        return None
    if case.value.quantity in TIMES:
        return measured
    if case.value.quantity in TOKEN_TIMES:
        return case.asked.result.total_time * measured / predicted
    return case.asked.result.total_time * predicted / measured if case.value.quantity in RATES else None


def scored(cases: Sequence[Case]) -> tuple[Scored, ...]:
    """Every value that was asked and has a measured number, with its errors."""
    fitted = {name: efficiency_of(c for c in cases if c.family == name) for name in _families(cases)}
    return tuple(
        _scored(case, fitted[case.family]) for case in cases if case.asked and case.value.si is not None
    )


def _families(cases: Iterable[Case]) -> list[str]:
    return list(dict.fromkeys(case.family for case in cases))


def _scored(case: Case, efficiency: float) -> Scored:
    measured, predicted = case.value.si, case.predicted
    assert measured is not None and predicted is not None and case.asked is not None
    naive = QUANTITIES[case.value.quantity](case.asked.naive(efficiency))
    signed = case.value.quantity in GAINS
    return Scored(
        case=case,
        measured=measured,
        predicted=predicted,
        error=relative_error(predicted, case.value),
        naive=naive,
        naive_error=relative_error(naive, case.value),
        efficiency=efficiency,
        signed=signed,
        # the naive model overlaps nothing: its gain is where the sign changes
        wrong_sign=signed and (measured - naive) * (predicted - naive) < 0.0,
    )


def scores(values: Sequence[Scored]) -> tuple[Score, ...]:
    """Scores by family, by level, by how predictable rows are, and of all; held-out values apart."""
    groups: dict[tuple[bool, Literal["family", "level", "predictable", "all"], str], list[Scored]] = {}
    for one in values:
        row, held = one.case.row, not one.case.row.open
        groups.setdefault((held, "family", one.case.family), []).append(one)
        groups.setdefault((held, "level", row.level), []).append(one)
        groups.setdefault((held, "predictable", row.predictable), []).append(one)
        groups.setdefault((held, "all", "all"), []).append(one)
    order = ("family", "level", "predictable", "all")
    keys = sorted(groups, key=lambda key: (key[0], order.index(key[1]), key[2]))
    return tuple(_score(*key, groups[key]) for key in keys)


def _score(
    held: bool, by: Literal["family", "level", "predictable", "all"], group: str, values: Sequence[Scored]
) -> Score:
    worst = max(values, key=lambda one: abs(one.error))
    return Score(
        by=by,
        group=group,
        held_out=held,
        values=len(values),
        median=median(abs(one.error) for one in values),
        worst=abs(worst.error),
        worst_at=worst.case.address,
        bias=median(one.error for one in values),
        signed=sum(one.signed for one in values),
        sign_errors=sum(one.wrong_sign for one in values),
        naive_median=median(abs(one.naive_error) for one in values),
        naive_worst=max(abs(one.naive_error) for one in values),
        efficiency=values[0].efficiency if by == "family" else None,
    )
