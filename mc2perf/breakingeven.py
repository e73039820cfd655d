"""From the words of a break-even to its answers: machines, schedules, sizes, every problem at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import OPERATORS
from mc2perf.problems import InputError, Problems, did_you_mean
from mc2perf.readers.models import model_of
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import number, read_scenario
from mc2perf.scenario import DEFAULT_HARDWARE, PIECES, Scenario
from mc2perf.studies.breakeven import BreakEven, breakeven, grows, sizes_to_try
from mc2perf.study import study_of
from mc2perf.units import COUNT

MOST_SIZE = 2**24
"""The largest size that may be tried: memory holds the sizes below it."""

OVERLAPPING = {True: ("mc2",), False: ("mc2", "micro_batch", "dual_batch")}
"""Schedules to judge: of an operator, of layers."""


def ask_breakeven(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    over: str | None = None,
    to: str = "64K",
    own: Sequence[Path] = (),
) -> list[BreakEven]:
    """Where overlapping pays, on every machine and schedule asked for.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    given : mapping
        Inputs; ``hardware`` may list several profiles.
    overrides : mapping
        Overrides of the hardware profile.
    over : str, optional
        The size that grows: ``m``; ``tokens``, ``batch_size`` or ``seq_len`` of a model.
    to : str
        Largest size to try.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> answer, = ask_breakeven("all_gather_matmul", {"n": 4096, "k": 8192, "ranks": 8}, {}, to="8K")
    >>> answer.dead_zone_to < answer.pays_from
    True
    """
    problems = Problems()
    names = str(given.get("hardware") or DEFAULT_HARDWARE).split(",")
    scenario, from_file = read_scenario(target, {**given, "hardware": names[0].strip()})
    size = over or grows(scenario.target)[0]
    if size not in grows(scenario.target):
        problems.append(f"over: '{size}' does not grow here{did_you_mean(size, grows(scenario.target))}")
    problems += [
        f"{name}: is what breakeven looks for; leave it out"
        for name in (size, *PIECES)
        if getattr(scenario, name, None) is not None
    ]
    if scenario.schedule == "serial":
        problems.append(
            "schedule: serial is what the others are compared with; write another or leave it out"
        )
    if scenario.phase == "decode" and size in ("tokens", "seq_len"):
        problems.append("over: a decode step grows with its sequences; write --over batch_size")
    largest = _largest(to, problems)
    machines = []
    for name in names:
        with problems:
            machines.append(load_machine(name.strip(), own, {**from_file, **overrides}))
    problems.refuse()
    model = model_of(scenario.target)
    _refuse_contradictions(scenario, machines, model, size, largest)
    return [
        breakeven(
            replace(scenario, hardware=machine.name, schedule=schedule), machine, model, size,
            sizes_to_try(scenario, machine, size, largest),
        )
        for machine in machines
        for schedule in _schedules(scenario)
    ]  # fmt: skip


def _refuse_contradictions(
    scenario: Scenario, machines: Sequence[Machine], model: Model | None, size: str, largest: float
) -> None:
    """Raise what contradicts itself on every machine, at every size."""
    common: list[str] | None = None
    for machine in machines:
        try:
            column: dict[str, Any] = {size: sizes_to_try(scenario, machine, size, largest).reshape(-1, 1)}
            study_of(replace(scenario, hardware=machine.name, **column), machine, model)
            return
        except InputError as error:
            found = error.problems
            common = found if common is None else [problem for problem in common if problem in found]
    if common:
        raise InputError(common)


def _schedules(scenario: Scenario) -> tuple[str, ...]:
    if scenario.schedule != "all":
        return (scenario.schedule,)
    return OVERLAPPING[scenario.target in OPERATORS]


def _largest(to: str, problems: list[str]) -> float:
    try:
        largest = number(to, COUNT)
        if largest <= MOST_SIZE:
            return largest
        problems.append(f"to: '{to}' is above {MOST_SIZE}; what pays there pays from smaller sizes on")
        return 1.0
    except ValueError as error:
        problems.append(f"to: {error}")
        return 1.0
