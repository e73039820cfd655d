"""One question asked of many machines that differ in numbers: every schedule, all machines at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.cutting import CUTS
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.outcome import Outcome
from mc2perf.results import Results
from mc2perf.scenario import SCHEDULES, Scenario
from mc2perf.step import base_line, laid
from mc2perf.study import Study, study_of
from mc2perf.variation import varied

Numbers = NDArray[np.float64]

AT_ONCE = 2048
"""Machines priced in one call: enough that overhead vanishes, few enough that they fit into memory."""

READ = ("total_time", "comm_ratio", "hidden_ratio", "tokens_per_second", "comm_time", "compute_time")
"""What is read of every schedule."""


@dataclass(frozen=True)
class Laid:
    """A schedule on every machine.

    ``pieces`` and all ``numbers`` have shape (machines, counts), times infinite where a count is refused;
    ``choosable`` says that the same counts were priced on every machine. ``reason`` is why it cannot run.
    """

    schedule: str
    pieces: Numbers
    numbers: dict[str, Numbers]
    choosable: bool = False
    reason: str = ""

    @property
    def times(self) -> Numbers:
        """Total time. [s]"""
        return self.numbers["total_time"]

    @property
    def at_best(self) -> Laid:
        """At the fastest count of every machine."""
        return self.at(best_count(self.times, np.isinf(self.times)))

    def at(self, count: NDArray[np.intp]) -> Laid:
        """At one count of every machine, given by its place, shape (machines, 1)."""
        numbers = {name: np.asarray(at_count(values, count), float) for name, values in self.numbers.items()}
        pieces = np.asarray(at_count(self.pieces, count), float)
        return Laid(self.schedule, pieces, numbers, reason=self.reason)


@dataclass(frozen=True)
class SideBySide:
    """Every schedule on every machine; serial comes first, whether it was asked for or not."""

    laid: tuple[Laid, ...]
    asked: tuple[int, ...]
    used: Mapping[str, Any]

    @property
    def times(self) -> Numbers:
        """Best time of the schedules asked for, shape (machines, schedules asked). [s]"""
        return np.concatenate([self.laid[i].at_best.times for i in self.asked], axis=1)

    @property
    def fastest(self) -> NDArray[np.intp]:
        """The fastest schedule asked for on every machine, as a place in ``laid``."""
        places: NDArray[np.intp] = np.array(self.asked, np.intp)[np.argmin(self.times, axis=1)]
        return places

    def best(self, name: str) -> Numbers:
        """A number (or ``pieces``) of the fastest schedule at its fastest count, shape (machines,)."""
        columns = []
        for schedule in self.laid:
            at = schedule.at_best
            columns.append(at.pieces if name == "pieces" else at.numbers[name])
        picked: Numbers = np.take_along_axis(np.concatenate(columns, axis=1), self.fastest[:, None], axis=1)
        return picked[:, 0]


def side_by_side(
    scenario: Scenario, machine: Machine, model: Model | None, columns: Mapping[str, Numbers], count: int
) -> SideBySide:
    """Price a question on machines that differ in numbers.

    Parameters
    ----------
    scenario : Scenario
        One question.
    machine, model : Machine, Model or None
        Where, and what unless it is an operator.
    columns : mapping
        Path of the machine to its values, shape (count,).
    count : int
        Machines.

    Raises
    ------
    InputError
        Contradictions between scenario, machine and model.

    Notes
    -----
    Tiles that may differ in length are cut for one machine at a time.
    """
    step = 1 if scenario.policy in CUTS else AT_ONCE
    parts = []
    for first in range(0, count, step):
        rows = min(step, count - first)
        here = {path: values[first : first + rows].reshape(-1, 1) for path, values in columns.items()}
        # a single machine has numbers, not columns: whatever needs numbers works with it
        plain: dict[str, Any] = {path: column.item() for path, column in here.items()} if rows == 1 else here
        parts.append(_priced(scenario, varied(machine, plain), model, rows))
    return joined(parts)


def joined(parts: Sequence[SideBySide]) -> SideBySide:
    """Machines of several calls below each other; where their counts differ, at the best of each."""
    if len(parts) == 1:
        return parts[0]
    schedules = [_below([part.laid[i] for part in parts]) for i in range(len(parts[0].laid))]
    return SideBySide(tuple(schedules), parts[0].asked, parts[0].used)


def _below(parts: Sequence[Laid]) -> Laid:
    if not all(part.choosable and part.pieces.shape[1] == parts[0].pieces.shape[1] for part in parts):
        parts = [part.at_best for part in parts]
    return Laid(
        parts[0].schedule,
        np.concatenate([part.pieces for part in parts]),
        {name: np.concatenate([part.numbers[name] for part in parts]) for name in READ},
        parts[0].choosable,
        parts[0].reason,
    )


def _priced(scenario: Scenario, machine: Machine, model: Model | None, rows: int) -> SideBySide:
    study = study_of(scenario, machine, model)
    serial = base_line(study)
    base = Results(study, serial, None)
    names = SCHEDULES if scenario.schedule == "all" else tuple(dict.fromkeys(("serial", scenario.schedule)))
    schedules = tuple(_laid(study, laid(study, name, serial), base, rows) for name in names)
    asked = tuple(range(len(names))) if scenario.schedule == "all" else (len(names) - 1,)
    return SideBySide(schedules, asked, study.costs.ledger.used)


def _laid(study: Study, outcome: Outcome, base: Results, rows: int) -> Laid:
    """A schedule with what is read of it, laid out over machines and counts."""
    refused = outcome.refused_at
    if refused.all():
        reason = next(reason.text for reason in outcome.refused if np.any(reason.where))
        never = np.full((rows, 1), np.inf)
        numbers = dict.fromkeys(READ, np.full((rows, 1), np.nan)) | {"total_time": never}
        return Laid(outcome.schedule, np.full((rows, 1), np.nan), numbers, reason=reason)
    results = Results(study, outcome, base)
    read = {name: results[name] for name in READ} | {"pieces": outcome.pieces, "refused": refused}
    shape = np.broadcast_shapes((rows, 1), *(np.shape(values) for values in read.values()))
    wide = {name: np.broadcast_to(values, shape) for name, values in read.items()}
    gone, pieces = wide.pop("refused"), wide.pop("pieces")
    wide["total_time"] = np.where(gone, np.inf, wide["total_time"])
    choosable = outcome.tried is not None and study.scenario.policy in ("scan", "all")
    return Laid(outcome.schedule, pieces, wide, choosable)
