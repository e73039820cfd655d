"""Scenarios: text from flags, a YAML file or Python to one typed question, every problem at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mc2perf.operators import TARGETS
from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.kinds import MODEL, SCENARIO, refuse_other
from mc2perf.readers.models import model_aliases, model_names
from mc2perf.readers.skew import read_skew
from mc2perf.readers.structure import read_yaml
from mc2perf.rules.catalogue import OPERATORS
from mc2perf.scenario import Input, Scenario, inputs, is_operator
from mc2perf.skew import Skew
from mc2perf.units import NUMBER, WIDTH, Dim, parse

SCENARIO_VERSION = 1
DISPATCHERS = {"alltoall": "serial", "mc2": "mc2"}
"""MindSpeed's word for the choice -> the schedule it is."""

LISTINGS = "mc2perf operators' and 'mc2perf models list"
"""What lists every target."""

_POWERS = {"K": 1024.0, "M": 1024.0**2, "G": 1024.0**3}


def read_scenario(target: str, given: Mapping[str, object]) -> tuple[Scenario, dict[str, str]]:
    """Read a target with its inputs; a scenario file gives what was not given.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json``, or a scenario file (YAML with a key ``target``).
    given : mapping
        Field name to text or value; ``None`` counts as not given. ``set`` may hold overrides of the
        profile, ``dispatcher`` the alias of ``schedule``.

    Returns
    -------
    tuple of Scenario and dict
        The question, and the overrides of its profile.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> read_scenario("moe_layer", {"m": "4K"})[0].m
    4096.0
    """
    target, chosen, where = _asked(target, given)
    if "vary" in chosen:
        raise InputError([f"{where.get('vary', '')}vary: is for 'mc2perf sweep'; leave it out"])
    return _read(target, chosen, where)


def read_varied(target: str, given: Mapping[str, object]) -> tuple[Scenario, dict[str, str], object, str]:
    """As :func:`read_scenario`, for a file that may vary inputs.

    Returns
    -------
    tuple
        Question, overrides, the ``vary:`` block as it stands (or None), and what to put before its problems.
    """
    target, chosen, where = _asked(target, given)
    vary, at = chosen.pop("vary", None), where.get("vary", "")
    return (*_read(target, chosen, where), vary, at)


def _asked(target: str, given: Mapping[str, object]) -> tuple[str, dict[str, object], dict[str, str]]:
    """The target, what is asked of it, and which file asked."""
    chosen = {name: value for name, value in given.items() if value is not None}
    where: dict[str, str] = {}
    if target.endswith((".yaml", ".yml")) and _on_disk(target) and Path(target).is_file():
        tree = read_yaml(Path(target))
        refuse_other(tree, target, SCENARIO, MODEL)
        if "target" in tree:
            asked = {str(key): value for key, value in tree.items() if value is not None or key == "target"}
            where = dict.fromkeys(asked.keys() - chosen.keys(), f"{target}: ")
            chosen = {**asked, **chosen}
            target = str(chosen.pop("target"))
        elif "model_version" not in tree:
            raise InputError(
                [f"{target}: target: is missing; write what to estimate (model files have model_version)"]
            )
    return target, chosen, where


def _read(
    target: str, chosen: dict[str, object], where: Mapping[str, str]
) -> tuple[Scenario, dict[str, str]]:
    problems: list[str] = []
    _version(chosen, where, problems)
    overrides = _overrides(chosen.pop("set", {}), where.get("set", ""), problems)
    _dispatcher(chosen, where, problems)
    values = read_inputs(chosen, where, problems)
    problems += [f"{where.get('target', '')}{problem}" for problem in unknown_target(target)]
    if problems:
        raise InputError(problems)
    return Scenario(target=target, **values), overrides


def _on_disk(path: str) -> bool:
    """Whether there is something of this name; a name that no file can have is none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _version(chosen: dict[str, object], where: Mapping[str, str], problems: list[str]) -> None:
    version = chosen.pop("scenario_version", SCENARIO_VERSION)
    if version != SCENARIO_VERSION or isinstance(version, bool):
        at = where.get("scenario_version", "")
        problems.append(f"{at}scenario_version: '{version}' is not known; write {SCENARIO_VERSION}")


def _overrides(tree: object, where: str, problems: list[str]) -> dict[str, str]:
    if not isinstance(tree, Mapping):
        problems.append(f"{where}set: expected lines of 'path: value'")
        return {}
    return {
        str(path): str(value).lower() if isinstance(value, bool) else str(value)
        for path, value in tree.items()
    }


def _dispatcher(chosen: dict[str, object], where: Mapping[str, str], problems: list[str]) -> None:
    """``dispatcher`` is another word for ``schedule``."""
    if "dispatcher" not in chosen:
        return
    word, at = str(chosen.pop("dispatcher")), where.get("dispatcher", "")
    if word == "allgather":
        problems.append(f"{at}dispatcher: allgather is accepted by the framework but not implemented")
    elif word not in DISPATCHERS:
        problems.append(f"{at}dispatcher: '{word}' is not known{did_you_mean(word, DISPATCHERS)}")
    elif "schedule" in chosen and chosen["schedule"] != DISPATCHERS[word]:
        problems.append(f"{at}dispatcher: says something else than schedule; give one of both")
    else:
        chosen["schedule"] = DISPATCHERS[word]


def read_inputs(
    given: Mapping[str, object],
    where: Mapping[str, str],
    problems: list[str],
    others: Iterable[str] = (),
    listing: str = "mc2perf estimate --help",
) -> dict[str, Any]:
    """Every known input typed; unknown ones noted.

    Parameters
    ----------
    given : mapping
        Name to text or value.
    where : mapping
        What to put before the problems of a name.
    problems : list of str
        Where they are noted.
    others : iterable of str
        What may stand beside inputs, to guess what an unknown name meant.
    listing : str
        The command that lists all of them.

    Returns
    -------
    dict
        Name to typed value.
    """
    known = {spec.name: (spec, how) for spec, how in inputs()}
    values: dict[str, Any] = {}
    for name, value in given.items():
        at = where.get(name, "")
        if name not in known:
            problems.append(f"{at}{name}: unknown key{did_you_mean(name, (*others, *known), listing)}")
            continue
        spec, how = known[name]
        try:
            values[name] = typed(value, how, spec.default)
        except ValueError as error:
            problems.append(f"{at}{name}: {error}")
    return values


def typed(value: object, how: Input, default: object) -> object:
    """One field: a choice, a flag, ``auto``, a number with its dimension, or free text."""
    if how.auto and value == "auto":
        return None
    if how.choices:
        text = str(value)
        if text not in how.choices:
            raise ValueError(f"'{value}' is not known{did_you_mean(value, how.choices)}")
        return text
    if how.dim is not None or isinstance(default, float):
        return number(value, how.dim or WIDTH)
    if isinstance(default, Skew):
        return read_skew(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"'{value}' is not true or false")
        return value
    return str(value)


def number(value: object, dim: Dim) -> float:
    """A number; whole ones may end in K, M or G, powers of 1024."""
    if isinstance(value, str) and dim.whole and value[-1:] in _POWERS:
        with suppress(ValueError):
            value = str(parse(value[:-1], NUMBER) * _POWERS[value[-1]])
    return parse(value, dim)


def _written(value: object) -> object:
    """A value as a file holds it."""
    return str(value) if isinstance(value, Skew) else value


def unknown_target(target: str) -> list[str]:
    """A target that is no operator, no shipped model and no file."""
    if not target.strip():
        return ["target: is empty; write an operator, a model, a config.json or a scenario file"]
    names = (*TARGETS, *model_names())
    if target in names or target == "-" or _on_disk(target) or target.lower() in names:
        return []
    if "/" in target or target.endswith((".json", ".yaml", ".yml")) or target.lower() in model_aliases():
        return []
    if target in OPERATORS:
        return [f"target: '{target}' is judged, not priced; write 'mc2perf check {target}' or a model"]
    return [f"target: '{target}' is no operator, model or file{did_you_mean(target, names, LISTINGS)}"]


def scenario_tree(scenario: Scenario, overrides: Mapping[str, str], whole: bool = False) -> dict[str, object]:
    """The flat tree that reads back as the same question; ``whole`` writes defaults out as well."""
    tree: dict[str, object] = {"scenario_version": SCENARIO_VERSION, "target": scenario.target}
    for spec, how in inputs():
        value = getattr(scenario, spec.name)
        foreign = how.only and (how.only == "operator") != is_operator(scenario.target)
        if value is not None and not foreign and (whole or value != spec.default):
            tree[spec.name] = int(value) if how.dim and how.dim.whole else _written(value)
    return tree | ({"set": dict(overrides)} if overrides else {})
