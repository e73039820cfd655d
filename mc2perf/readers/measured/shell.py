"""The words of a shell script as far as they can be known without running it."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator

from mc2perf.problems import InputError

LONGEST_QUOTE = 400
"""Most lines of one quoted text or one array."""
LONGEST_VALUE = 1 << 16
"""Longest value of a variable [characters]; repeated doubling stops here."""

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?-(?P<default>[^{}]*))?\}"
    r"|\$(?P<bare>[A-Za-z_]\w*)"
)
_OPEN = {"if", "case", "for", "while", "until", "select", "{"}
_CLOSE = {"fi", "esac", "done", "}"}
_AND_OR = {"&&", "||"}
_BETWEEN = _OPEN | _CLOSE | _AND_OR | {"then", "else", "elif", "do"}
_STRONGER = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def commands(text: str, name: str) -> Iterator[list[str]]:
    """Logical lines as words: comments gone, continuations and quotes joined.

    Raises
    ------
    InputError
        A quote or an array that never closes.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        for end in range(at + 1, min(at + LONGEST_QUOTE, len(lines)) + 1):
            joined = "\n".join(lines[at:end])
            if joined.endswith("\\") and end < len(lines):
                continue
            words = _words(joined.replace("\\\n", " ").rstrip("\\"))
            if words is not None:
                yield words
                break
        else:
            raise InputError([f"{name}: line {at + 1}: a quote or bracket opens here and never closes"])
        at = end


def _words(line: str) -> list[str] | None:
    """The words; ``None`` where a quote or an array is still open."""
    try:
        words = shlex.split(_spaced(line), comments=True)
    except ValueError:
        return None
    if words and re.fullmatch(r"[A-Za-z_]\w*\+?=\(.*", words[0], re.DOTALL):
        return _array(words)
    return words


def _spaced(line: str) -> str:
    """Arithmetic without spaces, so that it stays one word."""
    return re.sub(r"\$\(\([^\n]*?\)\)", lambda found: found[0].replace(" ", ""), line)


def _array(words: list[str]) -> list[str] | None:
    """``NAME=(a b c)`` as one assignment of a text; ``$((...))`` is no array."""
    if not words[-1].endswith(")"):
        return None
    head, _, first = words[0].partition("=(")
    inside = " ".join([first, *words[1:]]).strip()
    return [f"{head}={inside.removesuffix(')').strip()}"]


class Shell:
    """Variables of a script, resolved in the order in which they are set."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}
        self.unresolved: dict[str, None] = {}
        self.used: set[str] = set()
        self._depth = 0

    def run(self, words: list[str]) -> list[str]:
        """Take one line: set what it sets, and return the words of its commands, resolved."""
        made: list[str] = []
        command: list[str] = []
        branches = 0
        for word in (*words, ";"):
            bare = word.rstrip(";")
            self._depth = max(0, self._depth + (bare in _OPEN) - (bare in _CLOSE))
            if bare and bare not in _BETWEEN:
                command.append(bare)
            if bare != word or bare in _BETWEEN:
                made += self._command(command, self._depth + branches)
                command = []
            branches = (branches or bare in _AND_OR) and word == bare
        return made

    def _command(self, words: list[str], depth: int) -> list[str]:
        """One simple command: assignments first, then words."""
        if depth and words and re.fullmatch(r"[^=()]*\)", words[0]):  # the pattern of a case
            words = words[1:]
        if words[:1] in (["source"], ["."]):  # may set anything
            self.unresolved[" ".join(words)] = None
        for name in _set_elsewhere(words):
            self.values[name] = None
        while words and words[0] in ("export", "local", "readonly", "declare"):
            words = words[1:]
        while words and (found := _ASSIGNED.fullmatch(words[0])):
            self._assign(found[1], found[3], bool(found[2]), depth)
            words = words[1:]
        return [part for word in words for part in self._split(word)]

    def _assign(self, name: str, text: str, more: bool, depth: int) -> None:
        """Set a variable; what a branch sets to another value is not known any more."""
        value = self.resolve(text)
        if more and value is not None:
            before = self.values.get(name, "")
            value = None if before is None else f"{before} {value}".strip()
        if depth and self.values.get(name, value) != value:
            value = None
        self.values[name] = value if value is None or len(value) <= LONGEST_VALUE else None

    def _split(self, word: str) -> list[str]:
        """A word with its variables in place, split at their spaces; unresolved ones stay as written."""
        if "$" not in word and "`" not in word:
            return [word]
        value = self.resolve(word)
        if value is None:
            self.unresolved[word] = None
            return [word]
        return value.split()

    def resolve(self, text: str) -> str | None:
        """The text with its variables in place; ``None`` where one is not known.

        Examples
        --------
        >>> shell = Shell()
        >>> _ = shell.run(["NODES=4"])
        >>> shell.resolve("$((NODES * 8))"), shell.resolve("${RANK}"), shell.resolve("${TP:-2}")
        ('32', None, '2')
        """
        missing: list[str] = []

        def put(found: re.Match[str]) -> str:
            value = self._value(found)
            if value is None:
                missing.append(found[0])
            return value or ""

        made = _VARIABLE.sub(put, text)
        return None if missing or "$" in made or "`" in made else made

    def _value(self, found: re.Match[str]) -> str | None:
        if found["sum"] is not None:
            return self._sum(found["sum"])
        name = found["name"] or found["bare"]
        self.used.add(name)
        if name in self.values and (self.values[name] or found["default"] is None):
            return self.values[name]
        return None if name in self.values else found["default"]

    def _sum(self, text: str) -> str | None:
        """Whole-number arithmetic; anything else is not known."""
        inner = self.resolve(re.sub(r"(?<![\w${])([A-Za-z_]\w*)", r"$\1", text))
        if inner is None or len(inner) > 200:
            return None
        try:
            return str(_whole(ast.parse(re.sub(r"(?<!/)/(?!/)", "//", inner).strip(), mode="eval").body))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
            return None


def _set_elsewhere(words: list[str]) -> list[str]:
    """Variables that a loop or the user sets: ``for NAME in``, ``read NAME``."""
    if words[1:2] == ["in"]:
        return words[:1]
    return [word for word in words[1:] if not word.startswith("-")] if words[:1] == ["read"] else []


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        how: Callable[[int, int], int] = {**_STRONGER, ast.FloorDiv: operator.floordiv}[type(node.op)]
        return how(_whole(node.left), _whole(node.right))
    raise ValueError("not whole-number arithmetic")
