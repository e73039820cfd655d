"""From the words of a difference to its answer: two questions, read from targets, files or saved results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.question import read_question
from mc2perf.readers.structure import read_text
from mc2perf.studies.changes import Side
from mc2perf.studies.diff import Difference, difference
from mc2perf.studies.side_by_side import READ

Changes = tuple[dict[str, object], dict[str, str]]
"""Inputs, and overrides of the profile."""


def ask_diff(
    one: str,
    other: str | None,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    to: Sequence[str] = (),
    of: str = "total_time",
    own: Sequence[Path] = (),
) -> Difference:
    """Attribute the difference between two answers to the inputs and profile values that differ.

    Parameters
    ----------
    one, other : str
        Targets, scenario files, or results saved as JSON; without another the same.
    given : mapping
        Inputs of both, as text or values; saved results stay as they were.
    overrides : mapping
        Overrides of the hardware profile of both.
    to : sequence of str
        ``NAME=VALUE``, inputs or dotted paths of the profile that change in the other.
    of : str
        The number that is compared.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> found = ask_diff("mixtral-8x7b", None, {"schedule": "serial"}, {}, ["memory.bandwidth=3.2 TB/s"])
    >>> [share.change for share in found.shares]
    ['memory.bandwidth']
    """
    problems: list[str] = []
    if of not in READ:
        problems.append(f"of: '{of}' is not known{did_you_mean(of, READ, 'mc2perf columns')}")
    inputs, paths = _changes(to, problems)
    if other is None and not to:
        problems.append("to: says what differs; write --to NAME=VALUE, or a second target")
    first = _side(one, (given, overrides), ({}, {}), own, problems)
    second = _side(other or one, (given, overrides), (inputs, paths), own, problems)
    if problems or first is None or second is None:
        raise InputError(problems)
    if to:
        second = replace(second, name=f"{second.name} with {', '.join(to)}", saved={})
    return difference(first, second, of)


def _changes(texts: Sequence[str], problems: list[str]) -> Changes:
    """What changes in the other question."""
    inputs: dict[str, object] = {}
    paths: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            problems.append(f"to: '{text}' is not NAME=VALUE; write for example hardware=atlas_800t_a3")
        elif "." in name:
            paths[name] = value
        else:
            inputs[name.replace("-", "_")] = {"true": True, "false": False}.get(value.lower(), value)
    return inputs, paths


def _side(
    asked: str,
    both: tuple[Mapping[str, object], Mapping[str, str]],
    changes: Changes,
    own: Sequence[Path],
    problems: list[str],
) -> Side | None:
    """One question with its machine and model; what was saved is changed by its own changes only."""
    saved = None
    try:
        saved = _saved_result(asked)
        given, overrides = ({}, {}) if saved else both
        kept = {**(saved["inputs"] if saved else {}), **_given(given), **changes[0]}
        target = str(kept.pop("target", asked))
        scenario, machine, model = read_question(target, kept, {**overrides, **changes[1]}, own)
    except InputError as error:
        problems += [f"{asked}: {problem}" if saved else problem for problem in error.problems]
        return None
    name = asked if asked != scenario.target else f"{asked} on {machine.name}"
    numbers = _numbers(saved) if saved else {}
    return Side(name=name, scenario=scenario, machine=machine, model=model, saved=numbers)


def _given(inputs: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in inputs.items() if value is not None}


def _saved_result(path: str) -> dict[str, Any] | None:
    """A result that ``estimate --format json`` wrote; a model's configuration is none."""
    if not path.endswith(".json") or not Path(path).is_file():
        return None
    with suppress(json.JSONDecodeError, RecursionError):
        tree = json.loads(read_text(Path(path)))
        if isinstance(tree, dict) and isinstance(tree.get("inputs"), dict) and "results" in tree:
            if "target" not in tree["inputs"]:
                raise InputError([f"{path}: inputs.target: is missing; write what was estimated"])
            return tree
    return None


def _numbers(tree: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the best row of a saved result."""
    rows = [row for row in tree["results"] if isinstance(row, dict) and row.get("legal")]
    timed = [row for row in rows if isinstance(row.get("total_time"), float)]
    if tree["inputs"].get("schedule", "all") != "all":
        timed = timed[-1:]
    best = min(timed, key=lambda row: float(row["total_time"]), default={})
    return {name: float(best[name]) for name in READ if isinstance(best.get(name), float)}
