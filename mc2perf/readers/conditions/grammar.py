"""From the tokens of a condition to its parts, by how tightly operators bind."""

from __future__ import annotations

from mc2perf.conditions import AND, COMPARE, COMPARISONS, OR, PRODUCT, SUM, Node
from mc2perf.problems import InputError
from mc2perf.readers.conditions.meaning import Meaning, Operand
from mc2perf.readers.conditions.tokens import Token, refusal, tokens_of

DEEPEST = 100
"""Most parentheses and signs inside each other."""

_MEMBER = ("in", "not in")
_RANKS = {"or": OR, "and": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}
_RANKS |= dict.fromkeys((*COMPARISONS, *_MEMBER), COMPARE)


class Climber:
    """Climbs by precedence over the tokens; a sum or an ``and`` of many is one part, so it never nests."""

    def __init__(self, text: str, meaning: Meaning) -> None:
        self.text, self.meaning = text, meaning
        self.tokens = tokens_of(text, meaning.columns)
        self.at = self.depth = 0

    def whole(self) -> Node:
        """The condition that all tokens make."""
        root = self._expression(OR)
        if self._token.kind != "end":
            raise self._unexpected("write and, or, or an operator there")
        return self.meaning.condition(root)

    # tokens

    @property
    def _token(self) -> Token:
        return self.tokens[self.at]

    def _take(self, symbol: str = "") -> Token:
        """The next token; the symbol where one must stand."""
        token = self._token
        if symbol and token.symbol != symbol:
            raise self._unexpected(f"write {symbol}")
        self.at += 1
        return token

    def _failed(self, what: str) -> InputError:
        return InputError([*self.meaning.problems, refusal(self.text, what)])

    def _unexpected(self, hint: str) -> InputError:
        """The next token cannot stand where it stands."""
        token = self._token
        if token.kind == "end":
            return self._failed(f"ends after '{self.text[self.tokens[self.at - 1].start :]}'; {hint}")
        return self._failed(f"has '{token.text}' at character {token.start + 1}; {hint}")

    # parts

    def _expression(self, loosest: int) -> Operand:
        operand = self._operand()
        while (rank := _RANKS.get(self._token.symbol, -1)) >= loosest:
            operand = self._member(operand) if self._token.symbol in _MEMBER else self._chain(operand, rank)
        return operand

    def _chain(self, first: Operand, rank: int) -> Node:
        operands, operators = [first], []
        while _RANKS.get(self._token.symbol) == rank and self._token.symbol not in _MEMBER:
            operators.append(self._take().symbol)
            operands.append(self._expression(rank + 1))
        return self.meaning.chain(operands, operators, rank)

    def _member(self, operand: Operand) -> Node:
        operator = self._take().symbol
        if self._token.symbol != "(":
            raise self._unexpected("write in (a, b)")
        items: list[Operand] = []
        while not items or self._token.symbol == ",":
            self._take()
            items.append(self._expression(SUM))
        self._take(")")
        return self.meaning.member(operand, items, operator)

    def _operand(self) -> Operand:
        token = self._token
        if token.symbol in ("(", "-", "not"):
            return self._nested(token.symbol)
        if token.kind in ("op", "end"):
            raise self._unexpected("write a number or a column")
        self._take()
        if token.kind == "number":
            return self.meaning.number(token.text, token.unit)
        return self.meaning.word(token.text) if token.kind == "text" else self.meaning.name(token.text)

    def _nested(self, symbol: str) -> Operand:
        if self.depth == DEEPEST:
            raise self._failed(f"nests deeper than {DEEPEST}; write fewer parentheses and signs")
        self.depth += 1
        self._take()
        if symbol == "(":
            operand = self._expression(OR)
            self._take(")")
        elif symbol == "-":
            operand = self.meaning.negative(self._operand())
        else:
            operand = self.meaning.negation(self._expression(COMPARE))
        self.depth -= 1
        return operand
