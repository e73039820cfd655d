"""Conditions on the rows of a table, as trees that hold or do not, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.table import Block, Words, length

Powers = tuple[tuple[str, int], ...]
"""A dimension as powers of its units: B/s is (("B", 1), ("s", -1))."""

OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, ATOM = range(8)
"""How tightly a part of a condition binds, loosest first."""

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": lambda left, right: (left != right) & (left == left) & (right == right),
}
OPERATIONS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}


@dataclass(frozen=True)
class Part:
    """What every part of a condition says of itself: text, how tightly it binds, what it gives, of what unit.

    ``kind`` is ``number``, ``word``, ``truth`` or ``any`` (already refused); ``powers`` is ``None`` for a
    bare number, which meets every dimension, and for what is no number.
    """

    text: str
    rank: int
    kind: str
    powers: Powers | None


@dataclass(frozen=True)
class Constant(Part):
    """A number or a text."""

    value: float | str

    def values(self, block: Block) -> Any:
        """One value for all rows."""
        if isinstance(self.value, str):
            return Words(np.array(0, np.intp), (self.value,))
        return np.float64(self.value)


@dataclass(frozen=True)
class Reference(Part):
    """A column."""

    def values(self, block: Block) -> Any:
        """The column as it stands."""
        return block[self.text]


@dataclass(frozen=True)
class Unary(Part):
    """``-`` of a number or ``not`` of a truth."""

    inner: Node

    def values(self, block: Block) -> Any:
        """Turned round, row by row."""
        return (np.logical_not if self.kind == "truth" else np.negative)(self.inner.values(block))


@dataclass(frozen=True)
class Chain(Part):
    """Operands with an operator before each but the first; comparisons hold pair by pair."""

    operands: tuple[Node, ...]
    operators: tuple[str, ...]

    def values(self, block: Block) -> Any:
        """From left to right."""
        first, *rest = (operand.values(block) for operand in self.operands)
        if self.rank != COMPARE:
            for operator, value in zip(self.operators, rest, strict=True):
                first = OPERATIONS[operator](first, value)
            return first
        pairs = zip(self.operators, [first, *rest], rest, strict=False)
        return reduce(np.logical_and, (_compared(*pair) for pair in pairs))


@dataclass(frozen=True)
class Logic(Part):
    """Truths that must all hold, or of which one must."""

    every: bool
    operands: tuple[Node, ...]

    def values(self, block: Block) -> Any:
        """Row by row."""
        combined = np.logical_and if self.every else np.logical_or
        return reduce(combined, (operand.values(block) for operand in self.operands))


Node = Constant | Reference | Unary | Chain | Logic
"""A part that is known: it has one value per row of a block, or one for all."""


def _compared(operator: str, left: Any, right: Any) -> Any:
    """Numbers by value; words by numbering every distinct text once."""
    if isinstance(left, Words):
        number = {text: i for i, text in enumerate(left.texts + right.texts)}
        left, right = (
            np.array([number[text] for text in words.texts], np.intp)[words.codes] for words in (left, right)
        )
    return COMPARISONS[operator](left, right)


@dataclass(frozen=True)
class Condition:
    """A condition that was read: its normalised text, the columns it names, and its tree."""

    text: str
    columns: tuple[str, ...]
    root: Node

    def holds(self, block: Block) -> NDArray[np.bool_]:
        """Whether it holds, for every row of a block."""
        with np.errstate(all="ignore"):
            truth = self.root.values(block)
        return np.array(np.broadcast_to(truth, length(block)), np.bool_)
