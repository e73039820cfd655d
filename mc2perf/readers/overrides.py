"""Values of a profile replaced from outside: one, or all that a pattern names; by a value, or by a factor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from mc2perf.problems import did_you_mean

_FACTOR = re.compile(r"x([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)")
_NUMBER = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(.*)")


def override(tree: dict[Any, Any], dotted: str, text: str, problems: list[str]) -> None:
    """Replace values in the tree of a profile; numbers become ``assumed``, with ``--set`` as reference.

    Parameters
    ----------
    tree : dict
        Of a profile, with everything that it extends; changed in place.
    dotted : str
        Where the value stands; ``*`` stands for any one name on the way.
    text : str
        A value with its unit; ``x`` and a number is that many times what it was.
    problems : list of str
        Problems found are added.

    Examples
    --------
    >>> tree = {"node": {"rate": {"value": "28 GB/s", "kind": "datasheet", "ref": "a page"}}}
    >>> override(tree, "*.rate", "x0.5", problems := [])
    >>> tree["node"]["rate"]["value"], tree["node"]["rate"]["kind"], problems
    ('14.0 GB/s', 'assumed', [])
    """
    found = list(_matching(tree, dotted))
    if not found:
        known = (
            ""
            if "*" in dotted
            else did_you_mean(dotted, _paths(tree), "mc2perf profiles show NAME --resolved")
        )
        problems.append(f"--set {dotted}: is no value of this profile{known}")
    for path in found:
        _replace(tree, path, dotted, text, problems)


def _matching(tree: dict[Any, Any], dotted: str) -> Iterator[str]:
    """The path itself if something can be set there, or all that a pattern names."""
    names = dotted.split(".")
    if "*" not in dotted:
        if _settable(tree, names):
            yield dotted
        return
    for path in _paths(tree):
        parts = path.split(".")
        if len(parts) == len(names) and all(map(fnmatchcase, parts, names)):
            yield path


def _settable(tree: dict[Any, Any], names: list[str]) -> bool:
    *parents, last = names
    node: Any = tree
    for key in parents:
        node = _step(node, key)
    if not isinstance(node, dict) or _key(node, last) not in node or last in ("value", "kind", "ref"):
        return False
    old = node[_key(node, last)]
    return not isinstance(old, dict | list) or "value" in old


def _replace(tree: dict[Any, Any], path: str, asked: str, text: str, problems: list[str]) -> None:
    *parents, last = path.split(".")
    node: Any = tree
    for key in parents:
        node = _step(node, key)
    old = node[_key(node, last)]
    if isinstance(old, bool) or (isinstance(old, str) and old[:1] not in "+-.0123456789"):
        node[_key(node, last)] = {"true": True, "false": False}.get(text, text)
        return
    value, ref = text, "--set"
    if factor := _FACTOR.fullmatch(text):
        was = _NUMBER.fullmatch(str(old["value"] if isinstance(old, dict) else old))
        if was is None:
            problems.append(f"--set {asked}: '{text}' is a factor, but {path} is no number")
            return
        value = f"{float(was[1]) * float(factor[1])!r} {was[2]}".rstrip()
        ref = f"--set: {text} of {was[0].strip()}"
    node[_key(node, last)] = {"value": value, "kind": "assumed", "ref": ref}


def _key(node: dict[Any, Any], key: str) -> Any:
    return int(key) if _is_index(key) and int(key) in node else key


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10


def _step(node: Any, key: str) -> Any:
    if isinstance(node, list) and _is_index(key) and int(key) < len(node):
        return node[int(key)]
    return node.get(_key(node, key)) if isinstance(node, dict) else None


def _paths(tree: Any, prefix: str = "") -> list[str]:
    """Dotted paths of everything that can be set."""
    if isinstance(tree, dict) and "value" not in tree:
        skip = ("kind", "ref", "note", "notes", "name", "title", "profile_version", "form")
        return [p for k, v in tree.items() if k not in skip for p in _paths(v, f"{prefix}.{k}".lstrip("."))]
    if isinstance(tree, list):
        return [path for index, value in enumerate(tree) for path in _paths(value, f"{prefix}.{index}")]
    return [prefix]
