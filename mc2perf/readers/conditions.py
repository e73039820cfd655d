"""Conditions on the rows of a table: a small grammar of comparisons, read once, held by the block.

::

    condition  = comparison | "not" condition | condition ("and" | "or") condition | "(" condition ")"
    comparison = sum (("<" | "<=" | ">" | ">=" | "=" | "==" | "!=") sum)+ | sum ["not"] "in" "(" sum, ... ")"
    sum        = numbers, columns and texts with + - * / and parentheses

``or`` binds loosest, then ``and``, ``not``, comparisons, ``+ -``, ``* /``. Nothing is ever run as code.

* A number is SI as it stands; with a unit (``2 ms``, ``28 GB/s``) or ``%`` it is checked against what it
  meets. ``K``, ``M``, ``G`` are powers of 1024 and meet only columns without a unit: ``m >= 4K``.
* A name is a column. A name that is none is text where it meets a column of words: ``schedule = mc2``.
  Text may stand in quotes, and must where it has blanks or starts with a digit.
* ``a-b`` is one word (``mixtral-8x7b``) unless ``a`` is a column.
* A comparison with not-a-number is false, ``!=`` and ``not in`` too. Division by 0 gives infinity, or
  not-a-number for 0 / 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mc2perf.conditions import (
    AND,
    ATOM,
    COMPARE,
    COMPARISONS,
    NOT,
    OR,
    PRODUCT,
    SIGN,
    SUM,
    Chain,
    Condition,
    Constant,
    Logic,
    Node,
    Powers,
    Reference,
    Unary,
)
from mc2perf.problems import InputError, did_you_mean
from mc2perf.table import Column
from mc2perf.units import SPELLINGS, Dim, parse

LONGEST = 10_000
"""Longest text of a condition [characters]."""
DEEPEST = 100
"""Most parentheses and signs inside each other."""

_MEMBER = ("in", "not in")
_RANKS = {"or": OR, "and": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}
_RANKS |= dict.fromkeys((*COMPARISONS, *_MEMBER), COMPARE)
_KEYWORDS = {"and", "or", "not", "in"}
_1024 = {"K": 1024.0, "M": 1024.0**2, "G": 1024.0**3}
_OWNER = {unit: symbol for symbol, units in SPELLINGS.items() for unit in units}
_UNIT = "|".join(map(re.escape, sorted(_OWNER, key=len, reverse=True)))
_TOKEN = re.compile(
    rf"""(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
         (?:\s*(?P<unit>%|(?:{_UNIT})(?![\w])|(?!(?i:and|or|not|in)\b)[^\W\d][\w/]*))?
      | (?P<op>(?i:not\s+in\b)|<=|>=|!=|==|[-+*/<>=(),])
      | (?P<name>[^\W\d][\w.]*(?:-[\w.]+)*)
      | (?P<text>'[^']*'|"[^"]*")""",
    re.VERBOSE,
)
_INSTEAD = {
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "'": "close the quotes",
    '"': "close the quotes",
}


def read_condition(text: str, columns: Sequence[Column]) -> Condition:
    """Read a condition on the columns of a table.

    Parameters
    ----------
    text : str
        Such as ``"comm_ratio < 20% and schedule in (mc2, coc)"``; the grammar stands at the top.
    columns : sequence of Column
        What may be named; a column without unit holds words.

    Raises
    ------
    InputError
        What is wrong and where; unknown names, mixed units and mixed kinds all at once.

    Examples
    --------
    >>> import numpy as np
    >>> from mc2perf.table import Words
    >>> columns = [Column("total_time", "s", "time"), Column("schedule", "", "schedule")]
    >>> condition = read_condition("total_time<2 ms and schedule == mc2", columns)
    >>> condition.text
    "total_time < 2 ms and schedule = 'mc2'"
    >>> words = Words(np.array([0, 0, 1]), ("mc2", "serial"))
    >>> condition.holds({"total_time": np.array([0.001, 0.003, 0.001]), "schedule": words}).tolist()
    [True, False, False]
    >>> read_condition("total_time <", columns)
    Traceback (most recent call last):
    mc2perf.problems.InputError: where: 'total_time <' ends after '<'; write a number or a column
    """
    if len(text) > LONGEST:
        raise InputError([f"where: has {len(text)} characters; write at most {LONGEST}"])
    if not text.strip():
        raise InputError(["where: is empty; write for example comm_ratio < 0.2"])
    reader = _Reader(text.strip(), columns)
    root = reader.whole()
    used = (token.text for token in reader.tokens if token.kind == "name")
    return Condition(root.text, tuple(dict.fromkeys(name for name in used if name in reader.powers)), root)


@dataclass(frozen=True)
class _Token:
    """A piece of the text; ``kind`` is number, name, text, op or end."""

    kind: str
    text: str
    start: int
    stop: int
    unit: str = ""

    @property
    def symbol(self) -> str:
        return self.text if self.kind == "op" else ""


_REFUSED = Constant("?", ATOM, "any")
"""Stands for a part that means something wrong."""


class _Reader:
    """Climbs by precedence over the tokens; a sum or an ``and`` of many is one node, so it never nests."""

    def __init__(self, text: str, columns: Sequence[Column]) -> None:
        self.text = text
        self.powers = {column.name: _powers(column.unit) if column.unit else None for column in columns}
        self.problems: list[str] = []
        self.tokens = self._tokens()
        self.at = self.depth = 0

    # tokens

    def _tokens(self) -> list[_Token]:
        tokens, at = [], 0
        while at < len(self.text):
            if self.text[at].isspace():
                at += 1
                continue
            tokens.append(self._token(at))
            at = tokens[-1].stop
        return [*tokens, _Token("end", "", at, at)]

    def _token(self, at: int) -> _Token:
        found = _TOKEN.match(self.text, at)
        if not found:
            sign = self.text[at]
            raise self.failed(
                f"has '{sign}' at character {at + 1}; {_INSTEAD.get(sign, 'put text in quotes')}"
            )
        kind, unit = ("number", found["unit"] or "") if found["number"] else (str(found.lastgroup), "")
        word = found[kind]
        if kind == "name":
            head = word.partition("-")[0]
            word = head if head in self.powers and word not in self.powers else word
            stop = at + len(word)
            if word.lower() in _KEYWORDS:
                return _Token("op", word.lower(), at, stop)
            return _Token(kind, word, at, stop)
        if kind == "op":
            word = {"==": "="}.get(word, " ".join(word.lower().split()))
        return _Token(kind, word, at, found.end(), unit)

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def take(self, symbol: str = "") -> _Token:
        """The next token; the symbol where one must stand."""
        token = self.token
        if symbol and token.symbol != symbol:
            raise self.unexpected(f"write {symbol}")
        self.at += 1
        return token

    # problems

    def failed(self, what: str) -> InputError:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:100]} ... {self.text[-100:]}"
        return InputError([*self.problems, f"where: '{shown}' {what}"])

    def unexpected(self, hint: str) -> InputError:
        """The next token cannot stand where it stands."""
        token = self.token
        if token.kind == "end":
            return self.failed(f"ends after '{self.text[self.tokens[self.at - 1].start :]}'; {hint}")
        return self.failed(f"has '{token.text}' at character {token.start + 1}; {hint}")

    def wrong(self, what: str) -> Node:
        """Note what a part means wrongly, and go on with a part that fits everywhere."""
        self.problems.append(f"where: {what}")
        return _REFUSED

    # grammar

    def whole(self) -> Node:
        root = self.expression(OR)
        if self.token.kind != "end":
            raise self.unexpected("write and, or, or an operator there")
        (root,) = self.wanted("truth", root)
        if self.problems:
            raise InputError(self.problems)
        return root

    def expression(self, loosest: int) -> Node:
        node = self.operand()
        while (rank := _RANKS.get(self.token.symbol, -1)) >= loosest:
            node = self.member(node) if self.token.symbol in _MEMBER else self.chain(node, rank)
        return node

    def chain(self, first: Node, rank: int) -> Node:
        operands, operators = [first], []
        while _RANKS.get(self.token.symbol) == rank and self.token.symbol not in _MEMBER:
            operators.append(self.take().symbol)
            operands.append(self.expression(rank + 1))
        if rank == COMPARE:
            return self.comparison(operands, operators)
        if rank in (OR, AND):
            nodes = self.wanted("truth", *operands)
            return Logic(_joined(nodes, operators, rank), rank, "truth", None, rank == AND, nodes)
        nodes = self.wanted("number", *operands)
        powers = self.one_unit(nodes) if rank == SUM else _product(nodes, operators)
        return Chain(
            _joined(nodes, operators, rank), rank, _number_of(nodes), powers, nodes, tuple(operators)
        )

    def comparison(self, operands: Sequence[Node], operators: Sequence[str]) -> Node:
        nodes = self.comparable(operands)
        if any(node.kind == "word" for node in nodes) and not {*operators} <= {"=", "!="}:
            return self.wrong(f"'{_joined(nodes, operators, COMPARE)}' orders text; write =, != or in")
        text = _joined(nodes, operators, COMPARE)
        for left, right in pairwise(nodes):
            if len(nodes) > 2 and _is_fixed(left) and _is_fixed(right):
                return self.wrong(f"'{text}' compares {left.text} with {right.text}; write a column in it")
        return Chain(text, COMPARE, "truth", None, nodes, tuple(operators))

    def member(self, node: Node) -> Node:
        operator = self.take().symbol
        if self.token.symbol != "(":
            raise self.unexpected("write in (a, b)")
        items: list[Node] = []
        while not items or self.token.symbol == ",":
            self.take()
            items.append(self.expression(SUM))
        self.take(")")
        first, *rest = self.comparable([node, *items])
        each = ("=" if operator == "in" else "!=",)
        pairs = tuple(Chain("", COMPARE, "truth", None, (first, item), each) for item in rest)
        text = f"{_inside(first, SUM)} {operator} ({', '.join(item.text for item in rest)})"
        return Logic(text, COMPARE, "truth", None, operator == "not in", pairs)

    def operand(self) -> Node:
        token = self.token
        if token.symbol in ("(", "-", "not"):
            return self.nested(token.symbol)
        if token.kind in ("op", "end"):
            raise self.unexpected("write a number or a column")
        self.take()
        if token.kind == "number":
            return self.number(token)
        if token.kind == "text":
            return Constant(token.text, ATOM, "word", None, token.text[1:-1])
        if token.text not in self.powers:
            return Node(token.text, ATOM, "name")
        powers = self.powers[token.text]
        return Reference(token.text, ATOM, "word" if powers is None else "number", powers)

    def nested(self, symbol: str) -> Node:
        if self.depth == DEEPEST:
            raise self.failed(f"nests deeper than {DEEPEST}; write fewer parentheses and signs")
        self.depth += 1
        self.take()
        if symbol == "(":
            node = self.expression(OR)
            self.take(")")
        elif symbol == "-":
            (inner,) = self.wanted("number", self.operand())
            node = Unary(f"-{_inside(inner, SIGN)}", SIGN, _number_of([inner]), inner.powers, inner)
        else:
            (inner,) = self.wanted("truth", self.expression(COMPARE))
            node = Unary(f"not {_inside(inner, NOT)}", NOT, "truth", None, inner)
        self.depth -= 1
        return node

    def number(self, token: _Token) -> Node:
        text, unit = f"{token.text} {token.unit}".strip(), token.unit
        symbol = _OWNER.get(unit) or ("B/s" if "/" in unit else "B" if "b" in unit.lower() else "s")
        scale = {"": 1.0, "%": 0.01, **_1024}.get(unit)
        try:
            if scale is None:
                value = parse(text, Dim(symbol, "a number", signed=True))
                return Constant(text, ATOM, "number", _powers(symbol), value)
            value = parse(token.text, Dim("1", "a number", signed=True))
        except ValueError as error:
            return self.wrong(f"{error}, or text in quotes" if scale is None else str(error))
        value = value / 100.0 if unit == "%" else value * scale
        return Constant(token.text + unit, ATOM, "number", () if unit else None, value)

    # meaning

    def known(self, node: Node) -> Node:
        if node.kind != "name":
            return node
        return self.wrong(f"'{node.text}' is no column{did_you_mean(node.text, self.powers)}")

    def all_known(self, operands: Sequence[Node]) -> tuple[Node, ...]:
        """Parts of a comparison; beside a part that is wrong, a name may well be meant as text."""
        nodes: list[Node] = []
        for node in operands:
            refused = any(other.kind == "any" for other in (*operands, *nodes))
            nodes.append(_REFUSED if refused and node.kind == "name" else self.known(node))
        return tuple(nodes)

    def wanted(self, kind: str, *nodes: Node) -> tuple[Node, ...]:
        """The parts, each of one kind."""
        return tuple(
            node
            if node.kind in (kind, "any")
            else self.wrong(f"'{node.text}' is {_WHAT[node.kind]}, expected {_WHAT[kind]}; {_HINTS[kind]}")
            for node in map(self.known, nodes)
        )

    def comparable(self, operands: Sequence[Node]) -> tuple[Node, ...]:
        """Parts that may be compared: names are text beside a column of words, units agree."""
        if any(node.kind == "word" and isinstance(node, Reference) for node in operands):
            operands = [_as_text(node) for node in operands]
        nodes = self.all_known(operands)
        kinds = {node.kind for node in nodes} - {"any"}
        if kinds == {"number", "word"}:
            word, number = (next(node for node in nodes if node.kind == kind) for kind in ("word", "number"))
            hint = f"write '{number.text}' in quotes if it is meant as text"
            self.wrong(f"'{word.text.strip(_QUOTES)}' is text and '{number.text}' a number; {hint}")
        elif "truth" in kinds:
            self.wanted("number", *nodes)
        else:
            self.one_unit(nodes)
        return nodes

    def one_unit(self, nodes: Sequence[Node]) -> Powers | None:
        """The dimension of parts that are added or compared; bare numbers take any."""
        known = [node for node in nodes if node.kind == "number" and node.powers is not None]
        for node in known[1:]:
            if node.powers != known[0].powers:
                first, second = (f"'{part.text}' is {_spelled(part.powers)}" for part in (known[0], node))
                self.wrong(f"{first} and {second}; write both in units of one kind")
        return known[0].powers if known else None


_QUOTES = "'\""
_WHAT = {"number": "a number", "word": "text", "truth": "a condition"}
_HINTS = {"number": "write a number or a column of numbers", "truth": "write for example comm_ratio < 0.2"}


def _number_of(nodes: Sequence[Node]) -> str:
    """The kind of what is calculated from numbers: a number, unless a part was refused."""
    return "any" if any(node.kind == "any" for node in nodes) else "number"


def _is_fixed(node: Node) -> bool:
    """Whether a part is the same in every row."""
    inner = (node.inner,) if isinstance(node, Unary) else node.operands if isinstance(node, Chain) else ()
    return all(map(_is_fixed, inner)) if inner else isinstance(node, Constant) and node is not _REFUSED


def _inside(node: Node, loosest: int) -> str:
    """The text of a part, in parentheses where it binds more loosely than its place."""
    return node.text if node.rank >= loosest else f"({node.text})"


def _joined(nodes: Sequence[Node], operators: Sequence[str], rank: int) -> str:
    first, *rest = (_inside(node, rank + 1) for node in nodes)
    return " ".join([first, *(f"{sign} {text}" for sign, text in zip(operators, rest, strict=True))])


def _as_text(node: Node) -> Node:
    """A name that is no column stands for its own letters."""
    return Constant(f"'{node.text}'", ATOM, "word", None, node.text) if node.kind == "name" else node


def _powers(symbol: str) -> Powers:
    """``B/s`` as powers of its units."""
    powers: Counter[str] = Counter()
    for place, part in enumerate(symbol.split("/")):
        unit, _, power = part.partition("^")
        powers[unit] += int(power or 1) * (-1 if place else 1)
    return _sorted(powers)


def _sorted(powers: Counter[str]) -> Powers:
    return tuple(sorted((unit, power) for unit, power in powers.items() if power and unit != "1"))


def _product(nodes: Sequence[Node], operators: Sequence[str]) -> Powers | None:
    """The dimension of a product; of bare numbers alone it stays open."""
    if all(node.powers is None for node in nodes):
        return None
    powers: Counter[str] = Counter()
    for sign, node in zip(("*", *operators), nodes, strict=True):
        for unit, power in node.powers or ():
            powers[unit] += power if sign == "*" else -power
    return _sorted(powers)


def _spelled(powers: Powers | None) -> str:
    """``in B/s``, or ``a plain number``."""
    if not powers:
        return "a plain number"
    up, down = ([f"{u}^{abs(p)}" if abs(p) > 1 else u for u, p in powers if p * s > 0] for s in (1, -1))
    return f"in {'/'.join(['*'.join(up) or '1', *down])}"
