"""Wrong input, and how to say so: every problem at once, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

LONGEST = 4000
"""Longest line that a problem may take [characters]."""
MOST_NAMES = 10
"""A legal list of more names is not shown whole."""
NEAREST = 5
"""So many of its names are."""


Given = ParamSpec("Given")
Found = TypeVar("Found")


class InputError(ValueError):
    """Wrong input: one line per problem, each ``file: dotted.path: what is wrong; what to write``."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(dict.fromkeys(map(_one_line, problems)))
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[InputError], tuple[list[str]]]:
        return InputError, (self.problems,)


def _one_line(problem: str) -> str:
    """Quoted input may hold line ends, escape codes, or megabytes."""
    if len(problem) > LONGEST:
        problem = f"{problem[: LONGEST // 2]} ... {problem[-LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in problem)


def did_you_mean(word: object, known: Iterable[str], listing: str = "") -> str:
    """``; did you mean 'x'?`` or the legal list; of a long one the nearest names.

    Parameters
    ----------
    word : object
        What was written.
    known : iterable of str
        What may be written.
    listing : str
        The command that lists all of a long list.

    Examples
    --------
    >>> did_you_mean("bandwith", ["bandwidth", "latency"])
    "; did you mean 'bandwidth'?"
    >>> did_you_mean("x", map(str, range(100)), "seq 0 99")
    "; write one of 99, 98, 97, 96, 95, ... (all: 'seq 0 99')"
    """
    import difflib  # only a mistake needs it

    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    if len(names) <= MOST_NAMES:
        return f"; write one of {', '.join(names)}"
    said = f" (all: '{listing}')" if listing else ""
    near = difflib.get_close_matches(str(word)[:LONGEST], names, n=NEAREST, cutoff=0.0)
    return f"; write one of {', '.join(near)}, ...{said}"


class Problems(list[str]):
    """Every problem so far. ``with problems:`` keeps those that are raised; ``refuse`` ends with all.

    Examples
    --------
    >>> def read(text):
    ...     raise InputError([f"'{text}' is no number"])
    >>> problems = Problems()
    >>> with problems:
    ...     read("x")
    >>> problems.kept(read, "y"), problems
    (None, ["'x' is no number", "'y' is no number"])
    """

    def __enter__(self) -> Problems:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, InputError):
            self += error.problems
            return True
        return False

    def kept(self, read: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found | None:
        """What was read, or None and its problems noted."""
        with self:
            return read(*given, **named)
        return None

    def refuse(self) -> None:
        """Raise if there are any.

        Raises
        ------
        InputError
            Every problem, one line each.
        """
        if self:
            raise InputError(self)
