"""Wrong input, and how to say so: every problem at once, one line each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input: one line per problem, each ``file: dotted.path: what is wrong; what to write``."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or the legal list.

    Examples
    --------
    >>> did_you_mean("bandwith", ["bandwidth", "latency"])
    "; did you mean 'bandwidth'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else f"; write one of {', '.join(names)}"
