"""The text of an equation beside its code, so that ``--explain`` can print and a test can evaluate it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Equation = TypeVar("Equation", bound=Callable[..., Any])


def formula(text: str) -> Callable[[Equation], Equation]:
    """Attach an equation's text: an expression in the names of its parameters.

    Parameters
    ----------
    text : str
        Such as ``"launch + work / rate"``; functions are max, min, ceil, floor, sqrt and log2. An equation
        of several results has one expression for each of the first ones, with `` ; `` between.

    Examples
    --------
    >>> @formula("a + b")
    ... def total(a, b):
    ...     return a + b
    >>> total.formula
    'a + b'
    """

    def attach(equation: Equation) -> Equation:
        equation.formula = text  # type: ignore[attr-defined]
        return equation

    return attach
