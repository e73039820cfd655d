"""From which size on does overlapping pay? Where is the dead zone, where is communication hidden?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.problems import InputError
from mc2perf.results import Results
from mc2perf.scenario import Scenario, is_operator
from mc2perf.study import study_of
from mc2perf.table import Block, Column, block_of

PAYS = 1.01
"""Speed-up from which overlapping is worth the switch."""

HIDDEN = 0.95
"""Share of the communication from which it counts as hidden."""

PER_OCTAVE = 16
"""Sizes tried between a size and its double."""

COLUMNS = (
    Column("hardware", "", "hardware profile"),
    Column("schedule", "", "how communication is overlapped"),
    Column("over", "", "the size that grows"),
    Column("pays_from", "1", "smallest size from which every larger one gains at least 1 %"),
    Column("first_gain", "1", "smallest size that gains at least 1 % at all"),
    Column("dead_zone_from", "1", "smallest size tried at which cutting gains less than 1 %"),
    Column("dead_zone_to", "1", "largest such size: from here on cutting pays"),
    Column("worst_speedup", "1", "speed-up of the best cut where cutting is worst"),
    Column("worst_size", "1", "where that is"),
    Column("hidden_from", "1", "smallest size from which 95 % of the communication is hidden"),
    Column("best_speedup", "1", "largest speed-up of all sizes"),
    Column("best_size", "1", "smallest size that reaches it"),
    Column("largest_size", "1", "largest size tried"),
    Column("reason", "", "why there is no answer"),
)
"""What a break-even says."""


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """The answer for one machine and one schedule; not-a-number where no size tried does it."""

    hardware: str
    schedule: str
    over: str
    pays_from: float = math.nan
    first_gain: float = math.nan
    dead_zone_from: float = math.nan
    dead_zone_to: float = math.nan
    worst_speedup: float = math.nan
    worst_size: float = math.nan
    hidden_from: float = math.nan
    best_speedup: float = math.nan
    best_size: float = math.nan
    largest_size: float = math.nan
    reason: str = ""


def grows(target: str) -> tuple[str, ...]:
    """Sizes that may grow, the usual one first."""
    return ("m",) if is_operator(target) else ("tokens", "batch_size", "seq_len")


def sizes_to_try(scenario: Scenario, machine: Machine, over: str, to: float) -> NDArray[np.float64]:
    """Sizes from one row up; of operators powers of two below a base block of every rank, then blocks."""
    if over != "m" or scenario.target == MOE_LAYER:
        return _octaves(to)
    scatter = scenario.target == "matmul_reduce_scatter"
    ranks = (scenario.ranks or float(machine.ranks_per_server)) if scatter else 1.0
    step = float(machine.cube.base_block.m) * ranks
    small = ranks * 2.0 ** np.arange(0, math.log2(step / ranks))
    sizes: NDArray[np.float64] = np.concatenate([small, step * _octaves(max(to / step, 1.0))])
    return sizes[sizes <= to]


def _octaves(to: float) -> NDArray[np.float64]:
    """Whole numbers from 1 up, so many to an octave."""
    steps = np.arange(0, math.floor(math.log2(to) * PER_OCTAVE) + 1)
    return np.unique(np.round(2.0 ** (steps / PER_OCTAVE)))


def breakeven(
    scenario: Scenario, machine: Machine, model: Model | None, over: str, sizes: NDArray[np.float64]
) -> BreakEven:
    """Where overlapping pays as a size grows.

    Parameters
    ----------
    scenario : Scenario
        Everything but the size; its schedule is the one to judge.
    machine, model : Machine, Model or None
        Where, and what unless it is an operator.
    over : str
        The size that grows.
    sizes : array, shape (sizes,)
        Sizes to try, rising.

    Returns
    -------
    BreakEven
        A cut has at least two pieces where their number can be chosen: one piece is serial.
    """
    blank = BreakEven(hardware=scenario.hardware, schedule=scenario.schedule, over=over)
    column: dict[str, Any] = {over: sizes.reshape(-1, 1)}
    try:
        study = study_of(replace(scenario, **column), machine, model)
        serial = serial_outcome(study)
        outcome = OUTCOMES[scenario.schedule](study, serial)
    except InputError as error:
        return replace(blank, reason="; ".join(error.problems))
    if outcome.note or np.all(outcome.refused_at):
        why = next((reason.text for reason in outcome.refused if np.any(reason.where)), "")
        return replace(blank, reason=outcome.note or why)
    results = Results(study, outcome, Results(study, serial, None))
    refused = outcome.refused_at | np.less(outcome.pieces, 2.0) if outcome.tried else outcome.refused_at
    times = np.where(refused, np.inf, results.total)
    best = best_count(times, refused)
    speedup = np.broadcast_to(results.serial, times.shape)[:, :1] / np.min(times, axis=-1, keepdims=True)
    hidden = np.where(speedup > 0.0, at_count(results["hidden_ratio"], best), 0.0)
    rows = np.stack([sizes, speedup[:, 0], np.broadcast_to(hidden, speedup.shape)[:, 0]])
    return replace(blank, **_read_off(*rows))


def _read_off(
    sizes: NDArray[np.float64], speedup: NDArray[np.float64], hidden: NDArray[np.float64]
) -> dict[str, Any]:
    """The sizes at which something begins or ends; a size that cannot be cut gains nothing."""
    pays = speedup >= PAYS
    cuttable = np.flatnonzero(speedup > 0.0)
    dead = np.flatnonzero(~pays)
    best = int(np.argmax(speedup))
    said: dict[str, Any] = {
        "pays_from": _from(sizes, pays),
        "first_gain": _first(sizes, pays),
        "dead_zone_from": _first(sizes, ~pays),
        "dead_zone_to": float(sizes[dead[-1]]) if len(dead) else math.nan,
        "hidden_from": _from(sizes, hidden >= HIDDEN),
        "best_speedup": float(speedup[best]),
        "best_size": float(sizes[best]),
        "largest_size": float(sizes[-1]),
    }
    if len(cuttable):
        worst = cuttable[int(np.argmin(speedup[cuttable]))]
        said |= {"worst_speedup": float(speedup[worst]), "worst_size": float(sizes[worst])}
    return said


def _from(sizes: NDArray[np.float64], holds: NDArray[np.bool_]) -> float:
    """The smallest size from which it holds for all that follow."""
    broken = np.flatnonzero(~holds)
    first = broken[-1] + 1 if len(broken) else 0
    return float(sizes[first]) if first < len(sizes) else math.nan


def _first(sizes: NDArray[np.float64], holds: NDArray[np.bool_]) -> float:
    return float(sizes[int(np.argmax(holds))]) if holds.any() else math.nan


def as_block(answers: Sequence[BreakEven]) -> Block:
    """The answers as rows of a table."""
    return block_of(COLUMNS, answers)
