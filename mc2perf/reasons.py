"""Why a question, or some of its rows, has no answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.problems import InputError
from mc2perf.units import Num


class Reason(NamedTuple):
    """Why there is no answer, and where: a mask over rows and counts, or everywhere."""

    text: str
    where: bool | NDArray[np.bool_] = True


def refuse(problems: Iterable[str | Reason]) -> tuple[Reason, ...]:
    """Raise every problem that leaves no row; give back the reasons of rows without an answer."""
    reasons = [Reason(p) if isinstance(p, str) else p for p in problems]
    everywhere = [reason.text for reason in reasons if np.all(reason.where)]
    if everywhere:
        raise InputError(everywhere)
    return tuple(reason for reason in reasons if np.any(reason.where))


def said_once(problems: Iterable[str | Reason]) -> Iterator[str | Reason]:
    """Problems without what else is wrong with a degree that is wrong already.

    Examples
    --------
    >>> list(said_once(["tp: 8 NPUs do not divide by 3", "dp: nor by 3", "tp: nor 32 heads", "seq_len: x"]))
    ['tp: 8 NPUs do not divide by 3', 'seq_len: x']
    """
    wrong: set[str] = set()
    for problem in problems:
        name = (problem if isinstance(problem, str) else problem.text).partition(":")[0]
        if name not in wrong and not (name == "dp" and wrong):
            yield problem
        if isinstance(problem, str) and name in ("tp", "ep", "cp", "pp"):
            wrong.add(name)


def fractional(numbers: Num) -> NDArray[np.bool_]:
    """Where numbers are not whole; several times faster than a remainder."""
    return np.asarray(numbers != np.floor(numbers))


def said(column: Num) -> str:
    """A column of one row as its number, a whole one whole; many are 'these'.

    Examples
    --------
    >>> said(9999999.0), said(0.5), said(np.arange(3.0))
    ('9999999', '0.5', 'these')
    """
    return f"{np.asarray(column).item():.15g}" if np.size(column) == 1 else "these"
