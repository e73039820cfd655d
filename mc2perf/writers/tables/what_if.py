"""A small calculation that a reader of the workbook can go on with: inputs to change, live formulas.

A formula is written over names of other cells, ``"MAX({compute}, {links})"``; the workbook gets it with
references to cells, and the number it has now comes from the same text.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

NAME = re.compile(r"\{(\w*)\}")
"""A name of another cell in a formula."""

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

FUNCTIONS: dict[str, Callable[..., float]] = {
    "MAX": lambda *numbers: max(numbers),
    "MIN": lambda *numbers: min(numbers),
    "SUM": lambda *numbers: math.fsum(numbers),
    "ABS": abs,
    "CEILING": lambda number, step: math.ceil(number / step) * step,
    "FLOOR": lambda number, step: math.floor(number / step) * step,
}
"""Functions that Excel and LibreOffice know by the same name and arguments."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number to change (``value``), or one that follows (``formula``), or neither: a heading."""

    name: str
    label: str
    unit: str
    value: float | None = None
    """The input; beside a formula the number that it has now, else the formula is evaluated."""
    formula: str | None = None
    note: str = ""


@dataclass(frozen=True)
class WhatIf:
    """Cells of a calculation, from top to bottom."""

    title: str
    cells: Sequence[Cell]

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"what-if: names stand twice: {', '.join(twice)}")


def referring(formula: str, places: Mapping[str, str]) -> str:
    """The formula with every name replaced by its cell.

    Raises
    ------
    ValueError
        A name has no cell.

    Examples
    --------
    >>> referring("MAX({a}, 2*{b})", {"a": "$B$3", "b": "$B$4"})
    'MAX($B$3, 2*$B$4)'
    """

    def place(found: re.Match[str]) -> str:
        if found[1] not in places:
            raise ValueError(f"what-if: {formula!r} names an unknown cell {found[1]!r}")
        return places[found[1]]

    return NAME.sub(place, formula)


def values(what_if: WhatIf) -> dict[str, float]:
    """The number of every cell that has one.

    Raises
    ------
    ValueError
        A formula names no cell or itself, or is more than a sum, product or one of the functions.
    ZeroDivisionError
        A formula divides by zero.

    Notes
    -----
    A spreadsheet takes a quotient within some units of the last place of a whole number for whole in
    ``CEILING`` and ``FLOOR``; floats here are taken as they are.

    Examples
    --------
    >>> values(
    ...     WhatIf(
    ...         "two engines",
    ...         [
    ...             Cell(name="n", label="pieces", unit="1", value=4.0),
    ...             Cell(name="a", label="a piece on the links", unit="s", value=1.0),
    ...             Cell(name="b", label="a piece on the cubes", unit="s", value=2.0),
    ...             Cell(name="t", label="time", unit="s", formula="MAX({a}+{n}*{b}, {n}*{a}+{b})"),
    ...         ],
    ...     )
    ... )["t"]
    9.0
    """
    known: dict[str, float] = {cell.name: cell.value for cell in what_if.cells if cell.value is not None}
    waiting = {cell.name: cell.formula for cell in what_if.cells if cell.formula and cell.name not in known}
    while waiting:
        ready = [name for name, formula in waiting.items() if not set(NAME.findall(formula)) & set(waiting)]
        if not ready:
            raise ValueError(f"what-if: formulas need one another: {', '.join(waiting)}")
        for name in ready:
            known[name] = evaluated(waiting.pop(name), known)
    return known


def evaluated(formula: str, numbers: Mapping[str, float]) -> float:
    """The number of a formula: plus, minus, times, divided by, and :data:`FUNCTIONS`, nothing else.

    Raises
    ------
    ValueError
        It is anything else, or names an unknown cell.

    Examples
    --------
    >>> evaluated("CEILING({rows}/128, 1)", {"rows": 300.0})
    3.0
    """
    text = referring(formula, {name: f"({number!r})" for name, number in numbers.items()})
    try:
        return float(_number(ast.parse(text, mode="eval").body))
    except (SyntaxError, KeyError, TypeError):
        raise ValueError(f"what-if: {formula!r} is no formula of {', '.join(FUNCTIONS)}, + - * /") from None


def _number(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_number(left), _number(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return FUNCTIONS[name](*map(_number, arguments))
    raise TypeError(type(node).__name__)
