"""The text of a condition in pieces: numbers with their units, names, quoted texts, operators."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from mc2perf.problems import InputError
from mc2perf.readers.conditions.dimensions import SYMBOLS

KEYWORDS = {"and", "or", "not", "in"}
_UNIT = "|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True)))
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


@dataclass(frozen=True)
class Token:
    """A piece of the text; ``kind`` is number, name, text, op or end."""

    kind: str
    text: str
    start: int
    stop: int
    unit: str = ""

    @property
    def symbol(self) -> str:
        """The operator; empty for anything else."""
        return self.text if self.kind == "op" else ""


def tokens_of(text: str, columns: Container[str]) -> list[Token]:
    """Every token and the end; raises InputError at what can be none."""
    tokens, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        tokens.append(_token(text, at, columns))
        at = tokens[-1].stop
    return [*tokens, Token("end", "", at, at)]


def _token(text: str, at: int, columns: Container[str]) -> Token:
    found = _TOKEN.match(text, at)
    if not found:
        instead = _INSTEAD.get(text[at], "put text in quotes")
        raise InputError([refusal(text, f"has '{text[at]}' at character {at + 1}; {instead}")])
    if found["number"]:
        return Token("number", found["number"], at, found.end(), found["unit"] or "")
    if found["name"]:
        return _name(found["name"], at, columns)
    if found["op"]:
        symbol = " ".join(found["op"].lower().split())
        return Token("op", {"==": "="}.get(symbol, symbol), at, found.end())
    return Token("text", found["text"], at, found.end())


def _name(word: str, at: int, columns: Container[str]) -> Token:
    """A name or a keyword; ``a-b`` is a difference if ``a`` is a column, and one word if not."""
    head = word.partition("-")[0]
    word = head if head in columns and word not in columns else word
    keyword = word.lower() in KEYWORDS
    return Token("op" if keyword else "name", word.lower() if keyword else word, at, at + len(word))


def refusal(text: str, what: str) -> str:
    """A line that says what is wrong with the text."""
    shown = text if len(text) <= 200 else f"{text[:100]} ... {text[-100:]}"
    return f"where: '{shown}' {what}"
