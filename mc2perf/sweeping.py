"""From the words of a sweep to its question: axes, machines, models, conditions, every problem at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import OPERATORS
from mc2perf.problems import InputError, Problems, did_you_mean
from mc2perf.quantity import quantities
from mc2perf.readers.axes import Value, read_axes
from mc2perf.readers.conditions import read_condition
from mc2perf.readers.contradictions import (
    fixed_values,
    named,
    plain,
    still_varied,
    twice,
    unfit,
    unplanned,
    unranked,
)
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_varied
from mc2perf.scenario import PIECES, POLICIES, SCHEDULES, Scenario, inputs, is_operator, pieces_that_vary
from mc2perf.studies.rows import Plan
from mc2perf.studies.sweep import USUALLY_TRIED, Key, Sweep, columns_for
from mc2perf.table import Column
from mc2perf.units import COUNT, NUMBER, Dim, parse, show
from mc2perf.what_if import what_if_of
from mc2perf.writers.tables.about import About
from mc2perf.writers.tables.what_if import Cell, WhatIf

OPERATOR_SCHEDULES = ("serial", "mc2", "coc")
"""Schedules that are laid over single operators."""

MOST_COMPARED = 4_000_000
"""Most rows of which one is kept, with the counts of pieces tried in each: they lie in memory together."""

MOST_LISTED = 100
"""A workbook and a Parquet file name so many values of an axis; a cell takes 32 767 characters."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What of the rows is kept, as text."""

    best_over: Sequence[str] = ()
    by: str | None = None
    top: str | None = None
    where: Sequence[str] = ()
    columns: str | None = None
    target_tokens_per_second: str | None = None
    price_per_npu_hour: str | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A sweep that was read: the question, the columns wanted, how many rows at most."""

    sweep: Sweep
    columns: tuple[Column, ...]
    top: int | None


def ask_sweep(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    vary: Sequence[str] = (),
    ranking: Ranking | None = None,
    own: Sequence[Path] = (),
) -> Asked:
    """Read the question of a sweep.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file, which may have a ``vary:`` block.
    given : mapping
        Inputs that do not vary, as text or values.
    overrides : mapping
        Overrides of the hardware profile.
    vary : sequence of str
        Axes, ``NAME=VALUES``.
    ranking : Ranking
        Best over which axes, by which number, conditions, columns, what a planner needs.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> asked = ask_sweep("moe_layer", {"n": "2K", "k": "4K", "ranks": 8}, {}, ["m=1K..8K:x2"])
    >>> asked.sweep.rows_evaluated, asked.sweep.named
    (20, ['schedule'])
    """
    ranking = ranking or Ranking()
    problems = Problems()
    read = problems.kept(read_varied, target, given)
    scenario, from_file, block, at = read or (Scenario(target=target), {}, None, "")
    fixed = fixed_values(given, overrides)
    axes = problems.kept(read_axes, vary, still_varied(block, fixed), at)
    values: dict[str, tuple[Value, ...]] = {axis.name: axis.values for axis in axes or ()}
    sweep = Sweep(scenario=scenario, axes=values, machines={}, models={}, plan=_plan(ranking, problems))
    if read and axes is not None:  # what is missing would only seem wrong in the light of a mistake
        problems += twice(target, scenario, named(vary), values, fixed, from_file, at)
        problems += unfit(scenario, values)
        values = _with_policies(scenario, _with_schedules(scenario, values))
        sweep = replace(
            sweep,
            axes=values,
            machines=_machines(scenario, values, {**from_file, **overrides}, own, problems),
            models=_models(scenario, values, problems),
            best_over=_best_over(ranking.best_over, values, problems),
        )
    problems += _too_many(sweep)
    problems += unplanned(sweep.targets, vars(ranking))
    if ranking.by is not None:
        problems += unranked(ranking.by, sweep.targets, vars(ranking))
        sweep = replace(sweep, by=ranking.by)
    elif ranking.top is not None:  # rows of the whole grid are compared
        sweep = replace(sweep, by=replace(sweep, best_over=tuple(sweep.axes)).metric)
    columns = _different(columns_for(sweep))
    wanted = _columns(ranking.columns, columns, problems)
    top = _number("top", ranking.top, COUNT, problems)
    where = [problems.kept(read_condition, text, columns) for text in ranking.where]
    problems.refuse()
    Problems(sweep.contradictions()).refuse()
    conditions = tuple(condition for condition in where if condition is not None)
    return Asked(sweep=replace(sweep, where=conditions), columns=wanted, top=int(top) if top else None)


def _too_many(sweep: Sweep) -> list[str]:
    """Whether memory would not hold the rows of which the best is kept."""
    cut = sweep.pieces or any(getattr(sweep.scenario, name) is not None for name in PIECES)
    compared = sweep.inner * sweep.across * (1 if cut else USUALLY_TRIED)
    if compared <= MOST_COMPARED:
        return []
    each = " for each number of pieces" if cut and sweep.across > 1 else ""
    most = MOST_COMPARED * sweep.inner // compared
    return [
        f"best_over: compares {sweep.inner} sizes at once{each}; vary sizes so that there are {most} at most"
    ]


def _different(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns of different names: a table has none twice."""
    return tuple({column.name: column for column in columns}.values())


def _with_schedules(scenario: Scenario, axes: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """Every schedule that makes sense, as the last axis, where none was chosen."""
    if scenario.schedule != "all" or "schedule" in axes:
        return axes
    given = {name: True for name in PIECES if getattr(scenario, name) is not None}
    if pieces_that_vary(scenario, {**given, **axes}):
        # a number of pieces was asked for: the schedule that takes it, serial beside it in every row
        cut = "mc2" if "tile_cnt" in axes or scenario.tile_cnt is not None else "micro_batch"
        return axes | {"schedule": (cut,)}
    targets = [str(target) for target in axes.get("target", (scenario.target,))]
    single = all(target in OPERATORS for target in targets)
    return axes | {"schedule": OPERATOR_SCHEDULES if single else SCHEDULES}


def _with_policies(scenario: Scenario, axes: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """Every policy, as the last axis, where all were asked for."""
    return axes | {"policy": POLICIES} if scenario.policy == "all" and "policy" not in axes else axes


def _machines(
    scenario: Scenario,
    axes: Mapping[str, tuple[Value, ...]],
    overrides: Mapping[str, str],
    own: Sequence[Path],
    problems: list[str],
) -> dict[Key, Machine]:
    """Every machine that the axes name, by profile and what they override in it."""
    paths = {name: values for name, values in axes.items() if "." in name}
    machines: dict[Key, Machine] = {}
    found = Problems()
    for hardware in axes.get("hardware", (scenario.hardware,)):
        for combination in itertools.product(*paths.values()):
            varied = {path: str(value) for path, value in zip(paths, combination, strict=True)}
            with found:
                machine = load_machine(str(hardware), own, {**overrides, **varied})
                machines[(str(hardware), tuple(varied.items()))] = machine
    problems += [_of_axis(problem, paths) for problem in found]
    return machines


def _of_axis(problem: str, paths: Iterable[str]) -> str:
    """A problem of an override, told of the axis that it comes from."""
    for path in paths:
        problem = problem.replace(f"--set {path}:", f"vary: '{path}'")
    return problem


def _models(
    scenario: Scenario, axes: Mapping[str, tuple[Value, ...]], problems: Problems
) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for target in map(str, axes.get("target", (scenario.target,))):
        with problems:
            models |= {} if is_operator(target) else {target: load_model(target)}
    return models


def _best_over(
    names: Sequence[str], axes: Mapping[str, tuple[Value, ...]], problems: list[str]
) -> tuple[str, ...]:
    """Axes of which the best is kept; ``pieces`` is whatever number of pieces varies."""
    spelled = [part.strip().replace("-", "_") for name in names for part in name.split(",")]
    chosen: dict[str, None] = {}
    for name in spelled:
        if name == "pieces":
            chosen |= dict.fromkeys(axis for axis in PIECES if axis in axes)
        elif name in axes:
            chosen[name] = None
        elif name not in PIECES:  # pieces that do not vary are always the best ones
            known = did_you_mean(name, (*axes, "pieces"))
            problems.append(f"best_over: '{name}' does not vary{known}")
    return tuple(chosen)


def _plan(ranking: Ranking, problems: list[str]) -> Plan:
    given = {
        name: _number(name, getattr(ranking, name), NUMBER, problems)
        for name in ("target_tokens_per_second", "price_per_npu_hour")
    }
    return Plan(**{name: value for name, value in given.items() if value is not None})


def _number(name: str, text: str | None, dim: Dim, problems: list[str]) -> float | None:
    if text is None:
        return None
    try:
        return parse(text, dim)
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return None


def _columns(text: str | None, columns: Sequence[Column], problems: list[str]) -> tuple[Column, ...]:
    """The columns wanted, in their order; all by default."""
    if text is None:
        return tuple(columns)
    known = {column.name: column for column in columns}
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        problems.append("columns: has an empty name; write for example m,tile_cnt,total_time")
        names = [name for name in names if name]
    problems += [
        f"columns: '{name}' is no column{did_you_mean(name, known, 'mc2perf columns')}"
        for name in names
        if name not in known
    ]
    return tuple(known[name] for name in dict.fromkeys(names) if name in known)


def about(asked: Asked) -> About:
    """What a workbook says beside the rows: the question, the machines, the columns."""
    sweep = asked.sweep
    varied = {name: _listed(values) for name, values in sweep.axes.items()}
    fixed = {
        spec.name: getattr(sweep.scenario, spec.name)
        for spec, _ in inputs()
        if spec.name not in varied and getattr(sweep.scenario, spec.name) is not None
    }
    ranked = {
        "where": " and ".join(condition.text for condition in sweep.where),
        "best_over": ", ".join(sweep.best_over),
        "by": sweep.metric if sweep.best_over or asked.top else "",
        "top": asked.top or "",
    }
    numbers = [
        (_label(key), path, show(quantity, quantity.symbol, 9), "", quantity.kind, quantity.ref)
        for key, machine in sweep.machines.items()
        for path, quantity in quantities(machine)
    ]
    return About(
        title=f"mc2perf sweep {sweep.scenario.target}",
        inputs={"target": sweep.scenario.target, **fixed, **varied, **{k: v for k, v in ranked.items() if v}},
        profiles=numbers,
        dictionary=asked.columns,
        what_if=_what_if(sweep),
    )


def _what_if(sweep: Sweep) -> WhatIf:
    """The first value of every axis as a calculation, under its fastest schedule and pieces."""
    free = {"schedule": "all", "policy": "scan", **dict.fromkeys(PIECES)}
    first = {name: free.get(name, values[0]) for name, values in sweep.axes.items()}
    paths = tuple((name, str(value)) for name, value in first.items() if "." in name)
    given: dict[str, Any] = {n: None if v == "auto" else v for n, v in first.items() if "." not in n}
    scenario = replace(sweep.scenario, **given)
    machine, model = sweep.machines[(scenario.hardware, paths)], sweep.models.get(scenario.target)
    schedules = [str(name) for name in sweep.axes.get("schedule", SCHEDULES)]
    try:
        what_if = what_if_of(scenario, machine, model, sweep.plan, schedules)
    except InputError as error:
        return WhatIf(scenario.target, [Cell(name="note", label="; ".join(error.problems), unit="")])
    return replace(what_if, title=f"{what_if.title} (fastest of these; the first value of every other axis)")


def _label(key: Key) -> str:
    """A machine with what an axis overrides in it."""
    name, overridden = key
    return ", ".join([name, *(f"{path}={value}" for path, value in overridden)])


def _listed(values: Sequence[Value]) -> str:
    """All values, or the first and last of many."""
    if len(values) <= MOST_LISTED:
        return ", ".join(map(plain, values))
    first, second, *_, last = values
    return f"{plain(first)}, {plain(second)}, ..., {plain(last)} ({len(values)} values)"
