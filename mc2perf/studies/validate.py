"""How well the model meets published measurements, next to a naive model, and what it cannot be asked.

A value is either scored or has a reason why not. Nothing here is fitted to the model's advantage: the only
constant that is fitted, per family, belongs to the naive model it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from mc2perf.answer import Row as Result
from mc2perf.bands import Like
from mc2perf.measurement import Family, Plain, Relation, Row, Value, numbers

NAIVE = (
    "FLOPs / (peak x efficiency) + weights of a rank / memory bandwidth, no communication, no overlap;"
    " an exchange alone: bytes / (rate of the links x efficiency);"
    " the efficiency is the median of those that fit each open value of the family exactly"
)
"""What the naive model of every family is."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was predicted for one value, and what turns it into the words of its source.

    ``flops_time`` is FLOPs over the machine's peak and ``bytes_time`` weights over its memory bandwidth,
    the two terms of the naive model; of an exchange, its bytes over the rate of the links. ``peak`` is what
    the source divides by for its MFU where it says so, ``exchanged`` the bytes that a printed rate counts.
    ``like`` says of what the answer is one.
    """

    result: Result
    ranks: float
    npus: float
    cards: float
    ranks_per_server: float
    machine_peak: float
    flops_time: float
    bytes_time: float
    peak: float | None = None
    baseline: float = 100.0
    exchanged: float = 0.0
    like: Like | None = None

    def naive(self, efficiency: float) -> Asked:
        """The same question to the naive model: one time, nothing sent, nothing overlapped."""
        time = self.flops_time / efficiency + self.bytes_time
        faster = self.result.total_time / time if time else math.inf
        result = replace(
            self.result, total_time=time, serial_time=time, compute_time=time, comm_time=0.0,
            exposed_comm_time=0.0, comm_ratio=0.0, hidden_ratio=0.0, speedup=1.0, ceiling=1.0, pieces=1,
            tokens_per_second=self.result.tokens_per_second * faster, mfu=self.result.mfu * faster,
            time_per_output_token=self.result.time_per_output_token / faster,
        )  # fmt: skip
        return replace(self, result=result)


def _gain(asked: Asked) -> float:
    return asked.result.speedup - 1.0


def _change(asked: Asked) -> float:
    return 1.0 / asked.result.speedup - 1.0


TIMES: dict[str, Callable[[Asked], float]] = {
    "time": lambda a: a.result.total_time,
    "step_time": lambda a: a.result.total_time,
    "serial_time": lambda a: a.result.serial_time,
    "matmul_time": lambda a: a.result.compute_time,
    "compute_time": lambda a: a.result.compute_time,
    "ttft": lambda a: a.result.total_time,
}
"""Quantities that are a time of the whole, or of its computation. [s]"""

TOKEN_TIMES: dict[str, Callable[[Asked], float]] = {
    "tpot": lambda a: a.result.time_per_output_token,
}
"""Quantities that go with the time of the whole: a step over the tokens it yields. [s]"""

RATES: dict[str, Callable[[Asked], float]] = {
    "tokens_per_second": lambda a: a.result.tokens_per_second * a.ranks,
    "tokens_per_second_per_npu": lambda a: a.result.tokens_per_second * a.ranks / a.npus,
    "tokens_per_second_per_card": lambda a: a.result.tokens_per_second * a.ranks / a.cards,
    "tokens_per_second_per_node": lambda a: a.result.tokens_per_second * a.ranks_per_server,
    "mfu": lambda a: a.result.mfu * a.machine_peak / (a.peak or a.machine_peak),
    "flops_per_npu": lambda a: a.result.mfu * a.machine_peak,
    "rate": lambda a: a.exchanged / a.result.total_time,
}
"""Quantities that go with one over the time of the whole."""

GAINS: dict[str, Callable[[Asked], float]] = {
    "speedup": lambda a: a.result.speedup,
    "gain": _gain,
    "throughput_gain": _gain,
    "time_saving": lambda a: -_change(a),
    "time_change": _change,
    "ttft_change": _change,
    "relative_throughput": lambda a: a.baseline * a.result.speedup,
}
"""Quantities that say whether and how much a schedule gains over serial: they have a sign."""

PARTS: dict[str, Callable[[Asked], float]] = {
    "comm_time": lambda a: a.result.comm_time,
    "exposed_time": lambda a: a.result.exposed_comm_time,
    "comm_ratio": lambda a: a.result.comm_ratio,
    "hidden_share": lambda a: a.result.hidden_ratio,
    "max_saving": lambda a: 1.0 - 1.0 / a.result.ceiling,
    "micro_batches": lambda a: float(a.result.pieces),
}
"""Quantities of communication and cutting."""

QUANTITIES = {**TIMES, **TOKEN_TIMES, **RATES, **GAINS, **PARTS}
"""Everything that is predicted: quantity -> its value [SI] of a question."""

PHASES = {"tpot": "decode", "ttft": "prefill"}
"""Quantities of one phase only."""

YIELDS = TOKEN_TIMES.keys() | RATES.keys() - {"rate"}
"""Quantities that depend on how many drafts of a decode step are accepted."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One value of one row: asked, or the ``reason`` why not.

    ``assumed`` are inputs that the source does not state, ``unpriced`` those it states and the model does
    not know how to price.
    """

    family: str
    row: Row
    value: Value
    asked: Asked | None = None
    reason: str = ""
    assumed: Mapping[str, Plain] = field(default_factory=dict)
    unpriced: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its name among all values."""
        return f"{self.row.id}/{self.value.key}"

    @property
    def predicted(self) -> float | None:
        """What the model says, in SI."""
        return QUANTITIES[self.value.quantity](self.asked) if self.asked else None

    @property
    def why_not(self) -> str:
        """Why it has no score; empty where it has one."""
        held = "" if self.value.si is not None else "held out: no value given"
        return self.reason or held


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


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a relation holds on measured values and on predictions; None where some are missing."""

    family: str
    relation: Relation
    measured: bool | None
    predicted: bool | None


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


# --- relations ---------------------------------------------------------------------------------------------


def checks(families: Iterable[Family], cases: Sequence[Case]) -> tuple[Check, ...]:
    """Every relation of these families, on measured values and on predictions."""
    families = tuple(families)
    known, said = numbers(families), _predictions(families, cases)
    return tuple(
        Check(
            family=family.family,
            relation=relation,
            measured=_holds(relation, known),
            predicted=_holds(relation, said) if _of_values(relation) else None,
        )
        for family in families
        for relation in family.relations
    )


def _predictions(families: Iterable[Family], cases: Iterable[Case]) -> dict[str, float]:
    """Inputs as they are, and predictions in the place of values."""
    found = {case.address: case.predicted for case in cases if case.predicted is not None}
    for row in (row for family in families for row in family.rows):
        first = f"{row.id}/{row.values[0].key}"
        if first in found:
            found[row.id] = found[first]
    inputs = {name: number for name, number in numbers(families).items() if ":" in name}
    return {**inputs, **found}


def _of_values(relation: Relation) -> bool:
    """Whether it says anything of values; those of inputs alone predict nothing."""
    return any(":" not in name for name in relation.references())


def _holds(relation: Relation, known: Mapping[str, float]) -> bool | None:
    """Whether it holds; one that divides by a predicted 0 does not."""
    try:
        return relation.holds(known)
    except ValueError:
        return False
