"""What the parts of a condition mean: columns, numbers and texts, and which of them go together.

A part that means something wrong is noted and replaced by one that fits everywhere, so that all that is
wrong is said at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mc2perf.conditions import (
    AND,
    ATOM,
    COMPARE,
    NOT,
    OR,
    SIGN,
    SUM,
    Chain,
    Constant,
    Logic,
    Node,
    Powers,
    Reference,
    Unary,
)
from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.conditions.dimensions import SYMBOLS, powers_of, product, spelled
from mc2perf.units import Dim, parse

_1024 = {"K": 1024.0, "M": 1024.0**2, "G": 1024.0**3}
_QUOTES = "'\""
_WHAT = {"number": "a number", "word": "text", "truth": "a condition"}
_HINTS = {"number": "write a number or a column of numbers", "truth": "write for example comm_ratio < 0.2"}
_REFUSED = Constant("?", ATOM, "any", None, 0.0)
"""Stands for a part that means something wrong."""


@dataclass(frozen=True)
class Name:
    """A name that is no column: text where it meets a column of words, else wrong."""

    text: str


Operand = Node | Name


class Meaning:
    """Makes the parts of a condition, and collects what is wrong with them.

    Parameters
    ----------
    columns : mapping
        What may be named, and its dimension; ``None`` for a column of words.
    """

    def __init__(self, columns: Mapping[str, Powers | None]) -> None:
        self.columns = columns
        self.problems: list[str] = []

    def condition(self, root: Operand) -> Node:
        """The whole condition; raises InputError with everything that is wrong in it."""
        (node,) = self._wanted("truth", root)
        if self.problems:
            raise InputError(self.problems)
        return node

    # single parts

    def number(self, digits: str, unit: str) -> Node:
        """A number in SI; with a percent sign or a power of 1024 it is plain, without unit it fits any."""
        scale = {"": 1.0, "%": 0.01, **_1024}.get(unit)
        if scale is None:
            return self._quantity(f"{digits} {unit}", unit)
        try:
            value = parse(digits, Dim("1", "a number", signed=True))
        except ValueError as error:
            return self._wrong(str(error))
        value = value / 100.0 if unit == "%" else value * scale
        return Constant(digits + unit, ATOM, "number", () if unit else None, value)

    def _quantity(self, text: str, unit: str) -> Node:
        """A number with a unit; of an unknown one the refusal names those of its likely kind."""
        symbol = SYMBOLS.get(unit) or ("B/s" if "/" in unit else "B" if "b" in unit.lower() else "s")
        try:
            value = parse(text, Dim(symbol, "a number", signed=True))
        except ValueError as error:
            return self._wrong(f"{error}, or text in quotes")
        return Constant(text, ATOM, "number", powers_of(symbol), value)

    def word(self, quoted: str) -> Node:
        """A text in quotes."""
        return Constant(quoted, ATOM, "word", None, quoted[1:-1])

    def name(self, text: str) -> Operand:
        """A column, or a name that may be meant as text."""
        if text not in self.columns:
            return Name(text)
        powers = self.columns[text]
        return Reference(text, ATOM, "word" if powers is None else "number", powers)

    # parts made of parts

    def negative(self, operand: Operand) -> Node:
        """A number with its sign changed."""
        (inner,) = self._wanted("number", operand)
        return Unary(f"-{_inside(inner, SIGN)}", SIGN, _number_of([inner]), inner.powers, inner)

    def negation(self, operand: Operand) -> Node:
        """The opposite of a condition."""
        (inner,) = self._wanted("truth", operand)
        return Unary(f"not {_inside(inner, NOT)}", NOT, "truth", None, inner)

    def chain(self, operands: Sequence[Operand], operators: Sequence[str], rank: int) -> Node:
        """Operands with an operator of the same rank before each but the first."""
        if rank == COMPARE:
            return self._comparison(operands, operators)
        if rank in (OR, AND):
            nodes = self._wanted("truth", *operands)
            return Logic(_joined(nodes, operators, rank), rank, "truth", None, rank == AND, nodes)
        nodes = self._wanted("number", *operands)
        powers = self._one_unit(nodes) if rank == SUM else product(nodes, operators)
        text = _joined(nodes, operators, rank)
        return Chain(text, rank, _number_of(nodes), powers, nodes, tuple(operators))

    def _comparison(self, operands: Sequence[Operand], operators: Sequence[str]) -> Node:
        nodes = self._comparable(operands)
        text = _joined(nodes, operators, COMPARE)
        if any(node.kind == "word" for node in nodes) and not {*operators} <= {"=", "!="}:
            return self._wrong(f"'{text}' orders text; write =, != or in")
        for left, right in pairwise(nodes):
            if len(nodes) > 2 and _is_fixed(left) and _is_fixed(right):
                return self._wrong(f"'{text}' compares {left.text} with {right.text}; write a column in it")
        return Chain(text, COMPARE, "truth", None, nodes, tuple(operators))

    def member(self, operand: Operand, items: Sequence[Operand], operator: str) -> Node:
        """``in`` or ``not in`` a list."""
        first, *rest = self._comparable([operand, *items])
        each = ("=" if operator == "in" else "!=",)
        pairs = tuple(Chain("", COMPARE, "truth", None, (first, item), each) for item in rest)
        text = f"{_inside(first, SUM)} {operator} ({', '.join(item.text for item in rest)})"
        return Logic(text, COMPARE, "truth", None, operator == "not in", pairs)

    # what goes together

    def _wrong(self, what: str) -> Node:
        self.problems.append(f"where: {what}")
        return _REFUSED

    def _known(self, operand: Operand) -> Node:
        if not isinstance(operand, Name):
            return operand
        known = did_you_mean(operand.text, self.columns, "mc2perf columns")
        return self._wrong(f"'{operand.text}' is no column{known}")

    def _all_known(self, operands: Sequence[Operand]) -> tuple[Node, ...]:
        """Parts of a comparison; beside a part that is wrong, a name may well be meant as text."""
        refused = any(_is_refused(operand) for operand in operands)
        nodes: list[Node] = []
        for operand in operands:
            nodes.append(_REFUSED if refused and isinstance(operand, Name) else self._known(operand))
            refused = refused or _is_refused(nodes[-1])
        return tuple(nodes)

    def _wanted(self, kind: str, *operands: Operand) -> tuple[Node, ...]:
        """The parts, each of one kind."""
        return tuple(
            node
            if node.kind in (kind, "any")
            else self._wrong(f"'{node.text}' is {_WHAT[node.kind]}, expected {_WHAT[kind]}; {_HINTS[kind]}")
            for node in map(self._known, operands)
        )

    def _comparable(self, operands: Sequence[Operand]) -> tuple[Node, ...]:
        """Parts that may be compared: names are text beside a column of words, units agree."""
        if any(isinstance(operand, Reference) and operand.kind == "word" for operand in operands):
            operands = [_as_text(operand) for operand in operands]
        nodes = self._all_known(operands)
        kinds = {node.kind for node in nodes} - {"any"}
        if kinds == {"number", "word"}:
            word, number = (next(node for node in nodes if node.kind == kind) for kind in ("word", "number"))
            hint = f"write '{number.text}' in quotes if it is meant as text"
            self._wrong(f"'{word.text.strip(_QUOTES)}' is text and '{number.text}' a number; {hint}")
        elif "truth" in kinds:
            self._wanted("number", *nodes)
        else:
            self._one_unit(nodes)
        return nodes

    def _one_unit(self, nodes: Sequence[Node]) -> Powers | None:
        """The dimension of parts that are added or compared; bare numbers take any."""
        known = [node for node in nodes if node.kind == "number" and node.powers is not None]
        for node in known[1:]:
            if node.powers != known[0].powers:
                first, second = (f"'{part.text}' is {spelled(part.powers)}" for part in (known[0], node))
                self._wrong(f"{first} and {second}; write both in units of one kind")
        return known[0].powers if known else None


def _is_refused(operand: Operand) -> bool:
    return not isinstance(operand, Name) and operand.kind == "any"


def _number_of(nodes: Sequence[Node]) -> str:
    """The kind of what is calculated from numbers: a number, unless a part was refused."""
    return "any" if any(map(_is_refused, nodes)) else "number"


def _is_fixed(node: Node) -> bool:
    """Whether a part is the same in every row."""
    inner = (node.inner,) if isinstance(node, Unary) else node.operands if isinstance(node, Chain) else ()
    return all(map(_is_fixed, inner)) if inner else isinstance(node, Constant) and node is not _REFUSED


def _as_text(operand: Operand) -> Operand:
    """A name that is no column stands for its own letters."""
    if not isinstance(operand, Name):
        return operand
    return Constant(f"'{operand.text}'", ATOM, "word", None, operand.text)


def _inside(node: Node, loosest: int) -> str:
    """The text of a part, in parentheses where it binds more loosely than its place."""
    return node.text if node.rank >= loosest else f"({node.text})"


def _joined(nodes: Sequence[Node], operators: Sequence[str], rank: int) -> str:
    first, *rest = (_inside(node, rank + 1) for node in nodes)
    return " ".join([first, *(f"{sign} {text}" for sign, text in zip(operators, rest, strict=True))])
