"""Claims: shipped ones by name, YAML files, and text from the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mc2perf.claims import NUMBERS, Claim, Claims, Stated, stated
from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.kinds import CLAIMS, refuse_other
from mc2perf.readers.scenarios import read_inputs, unknown_target
from mc2perf.readers.structure import read_yaml

VERSION = 1
"""The ``claims_version`` that this reader knows."""

SHARES = ("comm_ratio", "overlappable_ratio")
"""Numbers that are parts of a whole."""

HEAD = ("claims_version", "title", "source", "target", "inputs", "notes", "claims")

_ASSIGNMENT = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*=\s*(.*?)\s*")


def _shipped() -> Path:
    return Path(__file__).parent.parent / "data" / "claims"


def claims_names() -> list[str]:
    """Every shipped set of claims, sorted.

    Examples
    --------
    >>> claims_names()
    ['mixtral-8x7b-mc2', 'moe-step-split']
    """
    return sorted(file.stem for file in _shipped().glob("*.yaml"))


def load_claims(name_or_path: str) -> Claims:
    """Load a set of claims.

    Parameters
    ----------
    name_or_path : str
        A shipped name, or a YAML file with ``claims_version``, optional ``title``, ``source``, ``target``,
        ``inputs`` and ``notes``, and ``claims``: name to numbers and inputs of each.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> load_claims("mixtral-8x7b-mc2").claims[0].tokens_per_second
    Stated(value=580.0, half=5.0)
    """
    shipped = name_or_path in claims_names()
    if not shipped and not name_or_path.endswith((".yaml", ".yml")):
        known = did_you_mean(name_or_path, claims_names())
        raise InputError([f"claims: '{name_or_path}' is no shipped set and no YAML file{known}"])
    path = _shipped() / f"{name_or_path}.yaml" if shipped else Path(name_or_path)
    return _read(read_yaml(path, name_or_path), Path(name_or_path).stem, name_or_path)


def _read(tree: Mapping[Any, Any], name: str, file: str) -> Claims:
    refuse_other(tree, file, CLAIMS)
    problems = [f"{file}: {key}: unknown key{did_you_mean(key, HEAD)}" for key in tree if key not in HEAD]
    if tree.get("claims_version") != VERSION or isinstance(tree.get("claims_version"), bool):
        problems.append(
            f"{file}: claims_version: '{tree.get('claims_version')}' is not known; write {VERSION}"
        )
    texts = {key: _text(tree, key, file, problems) for key in ("title", "source", "target")}
    if texts["target"]:
        problems += [f"{file}: {problem}" for problem in unknown_target(texts["target"])]
    notes = tree.get("notes") or []
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        problems.append(f"{file}: notes: expected a list of texts")
        notes = []
    shared = _inputs(_mapping(tree.get("inputs"), f"{file}: inputs", problems), f"{file}: inputs", problems)
    rows = _mapping(tree.get("claims"), f"{file}: claims", problems)
    claims = [
        _claim(str(key), _mapping(row, f"{file}: claims.{key}", problems), f"{file}: claims.{key}", problems)
        for key, row in rows.items()
    ]
    problems += _bases(claims, file)
    if problems:
        raise InputError(problems)
    return Claims(name=name, inputs=shared, notes=tuple(notes), claims=tuple(claims), **texts)


def _text(tree: Mapping[Any, Any], key: str, file: str, problems: list[str]) -> str:
    value = tree.get(key, "")
    if not isinstance(value, str):
        problems.append(f"{file}: {key}: '{value}' is not text")
        return ""
    return value


def _mapping(value: object, where: str, problems: list[str]) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if value is not None:
        problems.append(f"{where}: expected lines of 'key: value'")
    return {}


def parse_claims(texts: Sequence[str]) -> Claims:
    """Claims of a command line, each ``name:comm_ratio=47%,tokens_per_second=580,nodes=1``.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> before, after = parse_claims(["a:comm_ratio=50%", "b:comm_ratio=20%,speedup=1.5x,base=a"]).claims
    >>> after.base, after.speedup.value
    ('a', 1.5)
    """
    problems: list[str] = []
    claims = [_parsed(text, problems) for text in texts]
    names = [claim.name for claim in claims]
    problems += [f"--claim: '{name}' stands twice; keep one" for name in _twice(names)]
    problems += _bases(claims, "--claim")
    if problems:
        raise InputError(problems)
    return Claims(name="claims", claims=tuple(claims))


def _twice(names: Sequence[str]) -> Iterator[str]:
    yield from dict.fromkeys(name for name in names if names.count(name) > 1)


def _parsed(text: str, problems: list[str]) -> Claim:
    name, colon, rest = text.partition(":")
    found = [_ASSIGNMENT.fullmatch(part) for part in rest.split(",")]
    if not colon or not name.strip() or not all(found):
        problems.append(f"--claim: '{text}' is not NAME:KEY=VALUE,...; write a:comm_ratio=47%,speedup=2.4x")
        return Claim(name=name or text)
    pairs = [(match[1], match[2]) for match in found if match]
    where = f"--claim {name.strip()}"
    problems += [f"{where}: {key}: stands twice; keep one" for key in _twice([key for key, _ in pairs])]
    return _claim(name.strip(), {key: _plain(value) for key, value in pairs}, where, problems)


def _plain(text: str) -> object:
    """Switches are true or false; all else stays text."""
    return {"true": True, "false": False}.get(text.lower(), text)


def _claim(name: str, row: Mapping[Any, Any], where: str, problems: list[str]) -> Claim:
    numbers = {key: _number(key, row[key], where, problems) for key in NUMBERS if key in row}
    base = str(row.get("base", ""))
    others = {key: value for key, value in row.items() if key not in (*NUMBERS, "base")}
    if not numbers:
        problems.append(f"{where}: states no number; write one of {', '.join(NUMBERS)}")
    return Claim(name=name, base=base, inputs=_inputs(others, where, problems), **numbers)


def _number(key: str, value: object, where: str, problems: list[str]) -> Stated | None:
    """A printed number in its range."""
    try:
        if isinstance(value, bool):
            raise ValueError(f"'{value}' is no number; write for example 0.47")
        found = stated(str(value))
        if key in SHARES and found.value >= 1.0:
            raise ValueError(f"'{value}' is not below 1; write a share such as 47% or 0.47")
        if key not in SHARES and found.value <= 0.0:
            raise ValueError(f"'{value}' is not above 0")
        return found
    except ValueError as error:
        problems.append(f"{where}: {key}: {error}")
        return None


def _inputs(row: Mapping[Any, Any], where: str, problems: list[str]) -> dict[str, object]:
    """Inputs of a scenario, typed."""
    return read_inputs(
        row, dict.fromkeys(row, f"{where}: "), problems, (*NUMBERS, "base"), "mc2perf audit --help"
    )


def _bases(claims: Sequence[Claim], file: str) -> Iterator[str]:
    """Comparisons with claims that are not there, or lead back; a set without any claim."""
    names = [claim.name for claim in claims]
    if not claims:
        yield f"{file}: claims: is missing; write at least one"
    for claim in claims:
        if claim.base and claim.base not in names:
            yield f"{file}: {claim.name}: base: '{claim.base}' is no claim{did_you_mean(claim.base, names)}"
