"""Published measurements: the shipped files, and values of held-out rows that somebody else keeps."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mc2perf.measurement import STEP_INPUTS, UNITS, Family, Plain, Relation, Row, Value, evaluate
from mc2perf.readers.structure import InputError, Place, did_you_mean, parse_yaml, read_text, structure
from mc2perf.scenario import inputs

VERSION = 1
"""The ``measurements_version`` that this reader knows."""

ROWS = "mc2perf validate --rows"
"""What lists every measurement."""

_INPUTS = STEP_INPUTS | {spec.name for spec, _ in inputs()}
_SHARED = ("inputs", "assumed", "needs")
"""Mappings that a family states once for all its rows; a row's own entries win."""
_FIRST = ("quantity", "value", "unit", "upper", "uncertainty", "bound")
"""Keys of a row that make its first value."""


_DATA = Path(__file__).parent.parent / "data"


def _shipped() -> Path:
    return _DATA / "measurements"


def family_names() -> list[str]:
    """Every shipped family, sorted.

    Examples
    --------
    >>> "T1" in family_names()
    True
    """
    return sorted(file.stem for file in _shipped().glob("*.yaml"))


def load_measurements(
    family: str | None = None, values: Mapping[str, float] | None = None
) -> tuple[Family, ...]:
    """Load the shipped measurements.

    Parameters
    ----------
    family : str, optional
        Such as ``T1``; all families without it.
    values : mapping, optional
        Values of held-out rows, by ``row`` or ``row/name``, in the unit of the row; see `read_values`.

    Returns
    -------
    tuple of Family
        In the order of their names.

    Raises
    ------
    InputError
        An unknown family, unknown rows, or values for rows that are open, one line each.

    Examples
    --------
    >>> (tutel,) = load_measurements("N2")
    >>> tutel.rows[0].id, tutel.rows[0].value, tutel.rows[0].unit
    ('N2-16', 560.9, 'ms')
    """
    if family is not None and family not in family_names():
        known = did_you_mean(family, family_names(), "mc2perf validate --summary")
        raise InputError([f"measurements: family '{family}' is unknown{known}"])
    filled = _filled(_all(), values or {})
    return tuple(found for found in filled if family in (None, found.family))


def load_neighbours() -> tuple[Family, ...]:
    """What other simulators say, in the form of measurements and never among them.

    Examples
    --------
    >>> [simulator.family for simulator in load_neighbours()]
    ['msmodeling']
    """
    files = sorted((_DATA / "neighbours").glob("*.yaml"))
    return tuple(read_family(read_text(file), file.name) for file in files)


def read_values(path: Path) -> dict[str, float]:
    """Read values of held-out rows from a YAML file.

    Parameters
    ----------
    path : Path
        Lines ``id: value``, or a list of ``{id, value}``; an id is a row, or ``row/name`` for one of
        several values. Values are numbers in the unit of the row.

    Returns
    -------
    dict
        Value by id.

    Raises
    ------
    InputError
        Every unknown id, every id that stands twice and every value that is no number, one line each.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "values.yaml"
    >>> _ = file.write_text("- {id: N2-t128/linear_1, value: 0.5}")
    >>> read_values(file)
    {'N2-t128/linear_1': 0.5}
    """
    problems: list[str] = []
    entries = _entries(read_text(path), Place(str(path), problems))
    known = _addresses(_all())
    for name, count in Counter(name for name, _ in entries).items():
        if name not in known:
            problems.append(f"{path}: '{name}' is no measurement{did_you_mean(name, known, ROWS)}")
        if count > 1:
            problems.append(f"{path}: '{name}' stands {count} times; keep one")
    for name, value in entries:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            problems.append(f"{path}: {name}: {value!r} is not a number; write one in the unit of the row")
    if problems:
        raise InputError(problems)
    return {name: float(value) for name, value in entries}


def _entries(text: str, place: Place) -> list[tuple[str, Any]]:
    """Pairs of id and value, from lines or from a list, whose first line begins with a dash."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    if not next(lines, "").startswith("-"):
        return [(str(name), value) for name, value in parse_yaml(text, place.file).items()]
    rows = _parsed_list(text, place.file)
    pairs = []
    for index, row in enumerate(rows if isinstance(rows, list) else [rows]):
        if isinstance(row, dict) and row.keys() == {"id", "value"}:
            pairs.append((str(row["id"]), row["value"]))
        else:
            place.at(index).wrong("is no measurement; write {id: ..., value: ...}")
    return pairs


def _parsed_list(text: str, name: str) -> Any:
    """A list at the top of a file, read as the value of a key in a line before it."""
    try:
        return parse_yaml(f"rows:\n{text}", name)["rows"]
    except InputError as error:
        lines = (re.sub(r"(?<=: line )\d+", lambda n: str(int(n[0]) - 1), p) for p in error.problems)
        raise InputError(lines) from None


def _addresses(families: Iterable[Family]) -> dict[str, Row]:
    return {name: row for family in families for row in family.rows for name, _ in row.addresses()}


def _filled(families: tuple[Family, ...], values: Mapping[str, float]) -> tuple[Family, ...]:
    """The same families with the given values in their held-out rows."""
    known = _addresses(families)
    problems = [
        f"values: '{n}' is no measurement{did_you_mean(n, known, ROWS)}" for n in values if n not in known
    ]
    problems += [
        f"values: '{name}' is open; leave it out, its value is shipped"
        for name in values
        if name in known and known[name].open
    ]
    if problems:
        raise InputError(problems)
    return tuple(replace(f, rows=tuple(_with_values(r, values) for r in f.rows)) for f in families)


def _with_values(row: Row, values: Mapping[str, float]) -> Row:
    given = {id(value): values[name] for name, value in row.addresses() if name in values}
    made = (replace(value, value=given[id(value)]) if id(value) in given else value for value in row.values)
    return replace(row, values=tuple(made)) if given else row


@cache
def _all() -> tuple[Family, ...]:
    """Every shipped family, checked on its own and against the others, once."""
    files = [_shipped() / f"{name}.yaml" for name in family_names()]
    families = tuple(read_family(read_text(file), file.name) for file in files)
    ids = Counter(row.id for family in families for row in family.rows)
    ids.update(relation.id for family in families for relation in family.relations)
    problems = [f"measurements: id '{name}' stands {count} times" for name, count in ids.items() if count > 1]
    if problems:
        raise InputError(problems)
    return families


def read_family(text: str, name: str) -> Family:
    """Read one family from YAML text.

    Parameters
    ----------
    text, name : str
        The text, and the name of its file for messages.

    Returns
    -------
    Family
        Every row carries the inputs, assumptions and source that the family states once.

    Raises
    ------
    InputError
        Every problem, one line each; those of meaning after those of form.

    Examples
    --------
    >>> read_family("family: X1", "x.yaml")
    Traceback (most recent call last):
    mc2perf.problems.InputError: x.yaml: measurements_version: 'None' is not known; write 1
    x.yaml: title: is missing
    x.yaml: measured: is missing
    x.yaml: machine: is missing
    x.yaml: source: is missing
    x.yaml: rows: is missing
    """
    tree, problems = parse_yaml(text, name), list[str]()
    place = Place(name, problems)
    version = tree.pop("measurements_version", None)
    if version != VERSION or isinstance(version, bool):
        place.at("measurements_version").wrong(f"'{version}' is not known; write {VERSION}")
    shared = {key: _flat(tree.pop(key, {}), place.at(key)) for key in _SHARED}
    unstated = structure(tuple[str, ...], tree.pop("unstated", []), place.at("unstated")) or ()
    rows = _listed(tree.pop("rows", None), place.at("rows"))
    made = [_row(row, shared, unstated, at) for row, at in rows]
    family = structure(Family, {**tree, "rows": []} if made else tree, place)
    if not problems:
        family = replace(family, rows=tuple(replace(row, source=row.source or family.source) for row in made))
        problems += [f"{name}: {problem}" for problem in _contradictions(family)]
    if problems:
        raise InputError(problems)
    assert isinstance(family, Family)
    return family


def _listed(tree: object, place: Place) -> list[tuple[dict[str, Any], Place]]:
    """The mappings of a list with their places; what is none is noted, a missing list by its owner."""
    if not isinstance(tree, list):
        return [] if tree is None else place.wrong("expected a list") or []
    places = [place.at(index) for index in range(len(tree))]
    for item, at in zip(tree, places, strict=True):
        if not isinstance(item, dict):
            at.wrong("expected a mapping")
    return [(item, at) for item, at in zip(tree, places, strict=True) if isinstance(item, dict)]


def _flat(tree: object, place: Place) -> dict[str, Plain]:
    """A mapping of names to plain values."""
    if not isinstance(tree, dict):
        place.wrong("expected a mapping")
        return {}
    fits = {key: isinstance(key, str) and isinstance(value, Plain) for key, value in tree.items()}
    for key in (key for key, fit in fits.items() if not fit):
        place.at(key).wrong(f"'{tree[key]}' is not a number, a word, true or false")
    return {key: tree[key] for key, fit in fits.items() if fit}


def _row(tree: dict[str, Any], shared: dict[str, Any], unstated: tuple[str, ...], place: Place) -> Any:
    """One row with what its family states for it; inputs that it states are neither assumed nor unstated."""
    own = {key: _flat(tree.get(key, {}), place.at(key)) for key in _SHARED}
    first = {key: tree[key] for key in _FIRST if key in tree}
    listed = _listed(tree.get("values", []), place.at("values"))
    more = [_value(value, at) for value, at in listed]
    values = [_value(first, place), *more] if first else more
    rest = {key: value for key, value in tree.items() if key not in (*_SHARED, *_FIRST, "values")}
    row = structure(Row, rest, place)
    if row is None:
        return None
    merged = {key: {**shared[key], **own[key]} for key in _SHARED}
    merged["needs"] = _named(row, values, merged)
    stated = own["inputs"].keys() - own["assumed"].keys()
    merged["assumed"] = {key: value for key, value in merged["assumed"].items() if key not in stated}
    missing = [name for name in (*unstated, *row.unstated) if name not in own["inputs"]]
    return replace(row, values=tuple(values), unstated=tuple(dict.fromkeys(missing)), **merged)


def _named(row: Row, values: list[Any], merged: dict[str, dict[str, Plain]]) -> dict[str, Plain]:
    """The needs of the family that this row names as a target or an input."""
    names = {row.target, *merged["inputs"].values(), *merged["assumed"].values()}
    for value in filter(None, values):
        names |= {value.target, *value.at.values()}
    return {name: why for name, why in merged["needs"].items() if name in names}


def _value(tree: dict[str, Any], place: Place) -> Any:
    at = _flat(tree.get("at", {}), place.at("at"))
    made = structure(Value, {key: value for key, value in tree.items() if key != "at"}, place)
    return made and replace(made, at=at)


def _contradictions(family: Family) -> list[str]:
    """What each field allows but together makes no sense."""
    found = [f"{row.id}: {problem}" for row in family.rows for problem in _row_problems(row)]
    known = set(_addresses([family]))
    known |= {f"{row.id}:{key}" for row in family.rows for key in (*row.inputs, *row.assumed)}
    for relation in family.relations:
        found += [f"{relation.id}: {problem}" for problem in _relation_problems(relation, known)]
    return found


def _row_problems(row: Row) -> Iterable[str]:
    if not row.values:
        yield "has no quantity; write what was measured, without a value where it is held out"
    for key, count in Counter(value.key for value in row.values).items():
        if count > 1:
            yield f"{key}: stands {count} times; give each value a name"
    for value in row.values:
        if value.unit not in UNITS:
            yield f"{value.key}: unit '{value.unit}' is unknown{did_you_mean(value.unit, UNITS)}"
        if not row.open and (value.value, value.upper, value.uncertainty) != (None, None, None):
            yield f"{value.key}: is held out; take its value away"
        if row.open and value.value is None:
            yield f"{value.key}: is open; write its value"
    for name in sorted(row.assumed.keys() & row.inputs.keys()):
        yield f"{name}: is stated and assumed; keep one"
    used = {name for value in row.values for name in value.at} | row.inputs.keys() | row.assumed.keys()
    for name in sorted(used - _INPUTS):
        yield f"{name}: is no input{did_you_mean(name, _INPUTS)}"


def _relation_problems(relation: Relation, known: Iterable[str]) -> Iterable[str]:
    for name in sorted(relation.references() - set(known)):
        yield f"'[{name}]' is no value of this family{did_you_mean(name, known)}"
    for text in relation.of:
        try:
            evaluate(text, {name: 1 / (3 + i) for i, name in enumerate(relation.references())})
        except ValueError as error:
            yield str(error)
    if relation.kind != "sign" and len(relation.of) < 2:
        yield f"an {relation.kind} needs two formulas or more"
