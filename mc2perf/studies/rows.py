"""Rows of results as a table: the numbers of one scenario, whose sizes may be columns, under one schedule.

Everything has a shape that broadcasts to (rows, counts) and is laid out only where it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.bands import band_of
from mc2perf.columns import dictionary
from mc2perf.cutting import CUTS
from mc2perf.equations.optimum import flat_region
from mc2perf.footprint import footprint_of
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.outcomes.best import FLAT, at_count, best_count
from mc2perf.outcomes.outcome import Outcome
from mc2perf.problems import InputError
from mc2perf.remarks import warning_codes
from mc2perf.results import BOUNDS, Results
from mc2perf.scenario import Scenario, columns_of, inputs, is_operator
from mc2perf.skew import Skew
from mc2perf.step import base_line, laid
from mc2perf.study import Study, study_of
from mc2perf.table import Block, Values, Words, joined, length
from mc2perf.version import VERSION

Numbers = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]
Coded = tuple[Codes, tuple[str, ...]]
"""Words: a code per row, and the text of each code."""

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a planner adds: the rate to reach [tokens/s], the price of an NPU for an hour."""

    target_tokens_per_second: float = math.nan
    price_per_npu_hour: float = math.nan


@dataclass
class Rows:
    """Columns that broadcast to ``shape``; words are codes into a few texts.

    A column may be a function that works it out once it is asked for. ``refused`` rows have no results.
    """

    shape: tuple[int, int]
    numbers: dict[str, Numbers | Callable[[], Numbers]] = field(default_factory=dict)
    words: dict[str, Coded | Callable[[], Coded]] = field(default_factory=dict)
    refused: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((1, 1), bool))

    @classmethod
    def laid_out(cls, block: Block) -> Rows:
        """Rows that stand in a block already."""
        words = {n: (v.codes.reshape(-1, 1), v.texts) for n, v in block.items() if isinstance(v, Words)}
        numbers = {n: v.reshape(-1, 1) for n, v in block.items() if not isinstance(v, Words)}
        return cls((length(block), 1), dict(numbers), dict(words))

    def forget(self) -> None:
        """Let go of every column: those still to be worked out hold these rows, and memory with them."""
        self.numbers.clear()
        self.words.clear()

    def say(self, **texts: str) -> None:
        """Set words that are the same in every row."""
        for name, text in texts.items():
            self.words[name] = (np.zeros((1, 1), np.intp), (text,))

    def number(self, name: str) -> Numbers:
        """A column of numbers; not-a-number where a refused row would have a result."""
        values = self.numbers[name]
        if callable(values):
            values = np.where(self.refused, np.nan, values()) if self.refused.any() else values()
            self.numbers[name] = values
        return values

    def word(self, name: str) -> Coded:
        """A column of words."""
        values = self.words[name]
        if callable(values):
            values = self.words[name] = values()
        return values

    def flat(self, name: str, at: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """A column at flat positions, in row order; every position by default."""
        values = self.number(name) if name in self.numbers else self.word(name)[0]
        if values.size == 1:
            return np.broadcast_to(values.ravel(), (math.prod(self.shape) if at is None else len(at),))
        whole = np.broadcast_to(values, self.shape)
        if at is None:
            return whole.reshape(-1)
        return whole[np.divmod(at, self.shape[1])]

    def block(self, names: Iterable[str], at: NDArray[np.intp] | None = None) -> Block:
        """Columns as a block of a table; what a row does not have stays empty."""
        count = math.prod(self.shape) if at is None else len(at)
        block: dict[str, Values] = {}
        for name in names:
            if name in self.words:
                block[name] = Words(self.flat(name, at), self.word(name)[1])
            elif name in self.numbers:
                block[name] = self.flat(name, at)
            else:
                block[name] = np.broadcast_to(np.nan, (count,))
        return block


def rows_of(
    scenario: Scenario, machine: Machine, model: Model | None, shape: tuple[int, int], plan: Plan
) -> Rows:
    """Price a scenario under its schedule; a contradiction becomes the reason of all its rows.

    Parameters
    ----------
    scenario : Scenario
        Sizes may be columns of shape (rows, 1), one number of pieces a column of shape (1, counts).
    machine, model : Machine, Model or None
        Where it runs, and what unless it is an operator.
    shape : tuple of int
        Rows and counts; one count if the best is looked for.
    plan : Plan
        Rate and price of a capacity planner.
    """
    rows = Rows(shape)
    rows.say(**dict.fromkeys((column.name for column in dictionary() if not column.unit), ""))
    _inputs(rows, scenario)
    rows.say(
        target=scenario.target,
        profile_hash=machine.fingerprint,
        tool_version=VERSION,
        policy=_policy(scenario),
    )
    try:
        study = study_of(scenario, machine, model)
    except InputError as error:
        rows.say(legal="no", reason="; ".join(error.problems))
        return rows
    for name, value in study.resolved.items():
        _set(rows, name, value)
    if len(np.asarray(study.rows)) > 1 and scenario.policy in CUTS and _policy(scenario) != "asked":
        return _one_by_one(scenario, machine, model, shape, plan)
    serial = base_line(study)
    base = Results(study, serial, None)
    outcome = laid(study, scenario.schedule, serial)
    refused = outcome.refused_at
    if np.all(refused):
        rows.say(legal="no")
        rows.words["reason"] = _reasons(outcome, refused)
        return rows
    _results(rows, outcome, Results(study, outcome, base), plan)
    band = band_of(scenario, machine, model)
    errors = {"expected_error_median": band.median, "expected_error_worst": band.worst}
    for name, value in {**errors, "validated_rows": float(band.rows)}.items():
        _set(rows, name, value)
    return rows


def _one_by_one(
    scenario: Scenario, machine: Machine, model: Model | None, shape: tuple[int, int], plan: Plan
) -> Rows:
    """Unequal tiles are cut for one row at a time."""
    columns = {name: getattr(scenario, name) for name in columns_of(scenario.target)}
    many = {name: np.broadcast_to(c, shape) for name, c in columns.items() if np.ndim(c)}
    names = [column.name for column in dictionary()]
    parts = []
    for at in range(shape[0]):
        one = replace(scenario, **{name: column[at].item() for name, column in many.items()})
        parts.append(rows_of(one, machine, model, (1, 1), plan).block(names))
    return Rows.laid_out(joined(parts))


def _policy(scenario: Scenario) -> str:
    asked = (scenario.tile_cnt, scenario.micro_batches, scenario.micro_batch_size)
    return "asked" if any(value is not None for value in asked) else scenario.policy


def _inputs(rows: Rows, scenario: Scenario) -> None:
    """The question itself."""
    kind = "operator" if is_operator(scenario.target) else "model"
    for spec, how in inputs():
        value = getattr(scenario, spec.name)
        if value is not None and how.only in ("", kind):
            _set(rows, spec.name, value)


def _set(rows: Rows, name: str, value: object) -> None:
    name = {"tokens_per_npu": "tokens", "payload_dtype": ""}.get(name, name)
    if isinstance(value, bool):
        rows.say(**{name: "yes" if value else "no"})
    elif isinstance(value, str | Skew):
        value = str(value)
        rows.say(**{name: value} if name else {})
    else:
        column = np.asarray(value, float)
        rows.numbers[name] = column if column.ndim == 2 else column.reshape(1, 1)


def _reasons(outcome: Outcome, where: NDArray[np.bool_]) -> Coded:
    """The first reason that holds, else the note of a schedule with nothing to do."""
    codes: Codes = np.zeros(where.shape, np.intp)
    for code, reason in reversed(list(enumerate(outcome.refused, start=1))):
        codes = np.where(reason.where, code, codes)
    return codes, (outcome.note, *(reason.text for reason in outcome.refused))


def _results(rows: Rows, outcome: Outcome, results: Results, plan: Plan) -> None:
    """Numbers and words of a schedule; at the best count where none was asked for."""
    study, refused = results.study, outcome.refused_at
    best: NDArray[np.intp] | None = None
    if outcome.tried is not None and not outcome.tried.asked:
        times = np.where(refused, np.inf, results.total)
        best = best_count(times, refused)
        counts = np.broadcast_to(outcome.pieces, times.shape)
        for name, index in zip(("flat_first", "flat_last"), flat_region(times, FLAT), strict=True):
            rows.numbers[name] = at_count(counts, index[:, None])
    rows.refused = _at(refused, best)

    def chosen(name: str) -> Numbers:
        return results[name] if best is None else at_count(results[name], best)

    def bound() -> Coded:
        return np.where(rows.refused, len(BOUNDS), chosen("bound")).astype(np.intp), (*BOUNDS, "")

    def reason() -> Coded:
        codes, texts = _reasons(outcome, refused)
        return _at(codes, best), texts

    def warned() -> Coded:
        codes, texts = warning_codes(results)
        return np.where(rows.refused, len(texts), _at(codes, best)), (*texts, "")

    if study.model is not None:
        held = footprint_of(study)
        rows.numbers |= {
            "memory_bytes": np.asarray(held.total), "memory_capacity": np.full((1, 1), float(held.capacity))
        }  # fmt: skip
    timed = study.model is not None or np.any(study.tokens)
    names = [name for name in results if name != "bound" and (timed or name != "tokens_per_second")]
    rows.numbers |= {name: partial(chosen, name) for name in names}
    legal = (np.where(rows.refused, 1, 0), ("yes", "no"))
    rows.words |= {"bound": bound, "legal": legal, "reason": reason, "warnings": warned}
    _plan(rows, study, plan)


def _at(values: NDArray[Any], best: NDArray[np.intp] | None) -> NDArray[Any]:
    return values if best is None else at_count(values, best).astype(values.dtype)


def _plan(rows: Rows, study: Study, plan: Plan) -> None:
    """What a planner adds up, with communication and as if it were free."""
    npus, servers = study.npus, study.npus / study.costs.machine.ranks_per_server
    price = plan.price_per_npu_hour / SECONDS_PER_HOUR * 1e6

    def alone() -> Numbers:
        return np.asarray(rows.number("compute_time") + rows.number("free_time"))

    def layouts(suffix: str) -> Numbers:
        rate = rows.number(f"tokens_per_second{suffix}") * npus
        return np.asarray(np.ceil(plan.target_tokens_per_second / rate))

    rows.numbers |= {"npus": np.full((1, 1), npus), "total_time_without_comm": alone}
    if "tokens_per_second" not in rows.numbers:
        return
    rows.numbers["tokens_per_second_without_comm"] = lambda: np.asarray(study.tokens / alone())
    for suffix in ("", "_without_comm"):
        rate = partial(rows.number, f"tokens_per_second{suffix}")
        rows.numbers |= {
            f"npus_needed{suffix}": partial(_product, partial(layouts, suffix), npus),
            f"servers_needed{suffix}": partial(_product, partial(layouts, suffix), servers),
            f"cost_per_million_tokens{suffix}": partial(_quotient, price, rate),
        }


def _product(values: Callable[[], Numbers], by: float) -> Numbers:
    product: Numbers = values() * by
    return product


def _quotient(above: float, values: Callable[[], Numbers]) -> Numbers:
    quotient: Numbers = above / values()
    return quotient
