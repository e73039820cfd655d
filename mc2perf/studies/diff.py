"""Which input moved the answer: the difference of two questions, attributed to what differs in them.

Changes made one after the other get what they move in their turn, which depends on the order. Every change
here gets its Shapley value, the average over all orders: shares add up to the difference, are the opposite
when the questions change places, and are zero for what never moves the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mc2perf.studies.attribution import Answers, shared
from mc2perf.studies.changes import Side, movers_of


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a change moves the answer by; ``before`` and ``after`` what it is on each side."""

    change: str
    before: str
    after: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two answers, the shares of what differs (the largest first), and how they were found.

    ``together`` are changes that are legal only together, ``orders`` the number of orders averaged over, 0
    for all of them.
    """

    of: str
    names: tuple[str, str]
    before: float
    after: float
    shares: tuple[Share, ...]
    together: tuple[str, ...]
    sets: int
    orders: int


def difference(one: Side, other: Side, of: str = "total_time") -> Difference:
    """Attribute the difference between two answers.

    Parameters
    ----------
    one, other : Side
        Two questions.
    of : str
        A number of the best schedule, such as ``total_time`` or ``tokens_per_second``.

    Returns
    -------
    Difference
        Shares that add up to ``after - before``.

    Raises
    ------
    InputError
        One of the questions has no answer.
    """
    movers = sorted(movers_of(one, other), key=lambda mover: mover.name)
    answers = Answers(one, other, of)
    answers.check(movers)
    idle = [mover for mover in movers if not mover.rests_on(answers.used)]
    found = shared(answers, [mover for mover in movers if mover not in idle])
    if any(mover.rests_on(answers.used) for mover in idle):  # with half of the changes something else counts
        found, idle = shared(answers, movers), []
    ends = answers.of_sets(found.movers, [0, (1 << len(found.movers)) - 1])
    before, after = min(ends.items())[1], max(ends.items())[1]
    moved = [*zip(found.movers, found.shares.tolist(), strict=True), *((mover, 0.0) for mover in idle)]
    shares = [
        Share(change=m.name, before=m.said(one, False), after=m.said(other, True), share=share)
        for m, share in moved
    ]
    shares += _since_saved(one, other, of, before, after)
    return Difference(
        of=of,
        names=(one.name, other.name),
        before=one.saved.get(of, before),
        after=other.saved.get(of, after),
        shares=tuple(sorted(shares, key=lambda share: (-abs(share.share), share.change))),
        together=tuple(m.name for m in found.movers if len(m.names) > 1),
        sets=found.sets,
        orders=found.orders,
    )


def _since_saved(one: Side, other: Side, of: str, before: float, after: float) -> Iterator[Share]:
    """What changed since a result was saved: the tool, or its profiles."""
    for side, now, sign in ((one, before, 1.0), (other, after, -1.0)):
        saved = side.saved.get(of, now)
        if not math.isclose(saved, now, rel_tol=1e-9):
            yield Share(
                change=f"tool or profile since {side.name} was saved",
                before="",
                after="",
                share=sign * (now - saved),
            )
