"""A calibration as people read it: groups and their fit, values beside the base, what was left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from mc2perf.studies.calibrate.result import Group, Value
from mc2perf.units import show

MOST_NAMED = 5
"""Outliers that are named; the rest are counted."""


def to_text(
    groups: Sequence[Group], refused: Sequence[str], notes: Sequence[str], base: str, residuals: bool = False
) -> str:
    """Text of a calibration.

    Parameters
    ----------
    groups : sequence of Group
        What was fitted.
    refused, notes : sequence of str
        What was not fitted, and remarks about files.
    base : str
        The base profile's name.
    residuals : bool
        Name every outlier.
    """
    lines = [line for group in groups for line in (*_lines(group, base, residuals), "")]
    lines += [f"not fitted: {one}" for one in refused]
    lines += [f"note: {one}" for one in notes]
    return "\n".join(_printable(line) for line in lines).rstrip() + "\n"


def _printable(text: str) -> str:
    """What a file says of itself is printed without control codes; line ends of tables stay."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _lines(group: Group, base: str, every: bool) -> Iterator[str]:
    yield f"{group.what}: {group.origin.words(group.rows)}; {group.span}"
    yield (
        f"    {group.form}; R2 {group.r2:.4f}; residuals: median {group.median:.1%}, "
        f"90 % within {group.p90:.1%}, worst {group.worst:.1%}"
    )
    if group.values:
        rows = [[v.name, _one(v.value, v), _interval(v), _base(v)] for v in group.values]
        table = tabulate(rows, ("", "fitted", "95 % interval", base), disable_numparse=True, stralign="left")
        yield from (f"    {line}".rstrip() for line in table.splitlines())
    yield from (f"    left at the base's value: {one}" for one in group.left)
    named = group.outliers if every else group.outliers[:MOST_NAMED]
    yield from (f"    outlier, not in R2: {one}" for one in named)
    if len(named) < len(group.outliers):
        yield f"    ... and {len(group.outliers) - len(named)} more outliers (--residuals names them)"
    yield from (f"    note: {one}" for one in group.notes)


def _one(number: float, value: Value) -> str:
    return show(number, value.symbol)


def _interval(value: Value) -> str:
    if value.low == value.high:
        return "held"
    return " to ".join(_one(n, value) if math.isfinite(n) else "any" for n in (value.low, value.high))


def _base(value: Value) -> str:
    return "" if value.base is None else _one(value.base, value)


def to_json(groups: Sequence[Group], refused: Sequence[str], notes: Sequence[str], base: str) -> str:
    """The same as JSON, numbers in SI; an unbounded end of an interval is null."""
    tree = {"base": base, "groups": [_tree(g) for g in groups], "not_fitted": [*refused], "notes": [*notes]}
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _tree(group: Group) -> dict[str, Any]:
    tree = asdict(group)
    for value in tree["values"]:
        value |= {n: x if math.isfinite(x) else None for n in ("low", "high") if (x := value[n]) is not None}
    return tree
