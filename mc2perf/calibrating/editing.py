"""Edits of a profile's tree: where to write what, and what a tree is with them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from mc2perf.studies.calibrate.result import Edit, Path


def applied(tree: dict[Any, Any], edits: Iterable[Edit]) -> tuple[dict[Any, Any], list[Edit]]:
    """A tree with edits, and the edits as a profile can write them: a list is written whole.

    Examples
    --------
    >>> applied({"a": [{"b": 1}], "c": 2}, [(("a", 0, "b"), 3), (("c",), None)])
    ({'a': [{'b': 3}]}, [(('a',), [{'b': 3}]), (('c',), None)])
    """
    tree, written = copy.deepcopy(tree), dict[Path, Any]()
    for path, value in edits:
        whole = _set(tree, path, value)
        written.pop(whole, None)
        written[whole] = value if whole == path else copy.deepcopy(_at(tree, whole))
    return tree, list(written.items())


def _set(tree: Any, path: Path, value: Any) -> Path:
    """Write below a tree; returns the path up to the first list."""
    whole = path
    for depth, name in enumerate(path[:-1]):
        if isinstance(tree, dict) and not isinstance(tree.get(name), dict | list):
            tree[name] = {}
        tree = tree[name]
        if isinstance(tree, list) and whole == path:
            whole = path[: depth + 1]
    if value is None:
        tree.pop(path[-1], None)
    else:
        tree[path[-1]] = value
    return whole


def _at(tree: Any, path: Path) -> Any:
    for name in path:
        tree = tree[name]
    return tree
