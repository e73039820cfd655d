"""From which bandwidth on communication is hidden."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mc2perf.studies.breakeven import HIDDEN
from mc2perf.studies.side_by_side import SideBySide

Numbers = NDArray[np.float64]
Price = Callable[[Mapping[str, Numbers], int], SideBySide]
"""Prices a question on machines that differ in numbers: columns by path, and how many."""

DECADES = 3.0
"""Rates are tried from a thousandth to a thousand times the profile's."""

GRID = 121
"""Rates tried over all decades."""

FINER, REFINED = 11, 7
"""Rates tried between two of them, and how often an interval is divided again."""

LITTLE = 0.05
"""Share of the time below which exposed communication hardly matters."""


@dataclass(frozen=True)
class Sign:
    """When communication counts as hidden: what is said of it, a number, and the least or most it may be."""

    text: str
    number: Callable[[SideBySide], Numbers]
    least: float = -math.inf
    most: float = math.inf

    def holds(self, found: SideBySide) -> NDArray[np.bool_]:
        """On which machines."""
        number = self.number(found)
        return np.asarray((number >= self.least) & (number <= self.most))


def _comm_over_compute(found: SideBySide) -> Numbers:
    serial = found.laid[0].numbers
    return np.asarray(serial["comm_time"] / serial["compute_time"])[:, 0]


SIGNS = {
    "balanced": Sign("communication over computation, one after the other", _comm_over_compute, most=1.0),
    "covered": Sign("covered share of the communication", lambda found: found.best("hidden_ratio"), HIDDEN),
    "small": Sign("exposed share of the time", lambda found: found.best("comm_ratio"), most=LITTLE),
}
"""What 'hidden' may mean."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The link rate of a tier from which every faster one hides communication. [B/s]

    0 if the slowest rate tried does, infinite if the fastest does not; ``number`` is what the sign looks at
    now, ``nearest`` the value nearest to holding at all rates tried.
    """

    tier: str
    sign: str
    rate: float
    now: float
    number: float
    nearest: float


def hiding_rates(price: Price, rates: Mapping[str, float]) -> list[Reach]:
    """The break-even rate of every tier by every sign, the others as they are.

    Parameters
    ----------
    price : callable
        Prices machines.
    rates : mapping
        Path of a link rate to its value. [B/s]
    """
    found = []
    for path, now in rates.items():
        coarse = np.linspace(-DECADES, DECADES, GRID)
        first = price({path: now * 10.0**coarse}, GRID)
        for name, sign in SIGNS.items():
            at = _from(price, path, now, sign, coarse, sign.holds(first))
            number = sign.number(first)
            nearest = np.max(number) if math.isfinite(sign.least) else np.min(number)
            numbers = {"number": float(number[GRID // 2]), "nearest": float(nearest)}
            tier = path.split(".")[1]
            found.append(Reach(tier=tier, sign=name, rate=now * 10.0**at, now=now, **numbers))
    return found


def _from(price: Price, path: str, now: float, sign: Sign, tried: Numbers, holds: NDArray[np.bool_]) -> float:
    """The exponent from which a sign holds for all rates tried; refined between the last that does not."""
    if holds.all():
        return -math.inf
    if not holds[-1]:
        return math.inf
    for _ in range(REFINED):
        broken = np.flatnonzero(~holds)
        last = int(broken[-1]) if broken.size else 0
        tried = np.linspace(tried[last], tried[min(last + 1, len(tried) - 1)], FINER)
        holds = sign.holds(price({path: now * 10.0**tried}, FINER))
    return float(tried[-1])
