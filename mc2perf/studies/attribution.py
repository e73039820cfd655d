"""Shares of changes in a difference: sets of changes priced, those joined that are legal only together."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.shapley import average_shares, orders_of, sets_on, shapley_shares
from mc2perf.model import Model
from mc2perf.problems import InputError
from mc2perf.scenario import is_operator
from mc2perf.studies.changes import Mover, Side
from mc2perf.studies.side_by_side import side_by_side
from mc2perf.variation import varied

MOST_CALLS = 256
"""All sets are priced up to this many calls; sets that differ in numbers of a profile share a call."""

MOST_SETS = 16384
"""All sets of changes are priced up to this many."""

MOST_EXAMINED = 8
"""Refused sets that are examined for what is at odds in them."""

ORDER_PAIRS = 8
"""Orders drawn where there are more sets, each forwards and backwards."""


@dataclass
class Answers:
    """Answers by the names of what has changed, each priced once; ``used`` are the numbers they rest on."""

    one: Side
    other: Side
    of: str
    known: dict[frozenset[str], float] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)

    def check(self, movers: Sequence[Mover]) -> None:
        """Refuse questions without an answer; note the numbers that both rest on."""
        movers = [replace(mover, columns=False) for mover in movers]  # columns forget where they come from
        for side, made in ((self.one, 0), (self.other, (1 << len(movers)) - 1)):
            try:
                self._priced(movers, [made])
            except InputError as error:
                raise InputError(f"{side.name}: {problem}" for problem in error.problems) from None

    def of_sets(self, movers: Sequence[Mover], sets: Sequence[int]) -> dict[int, float]:
        """Answers of sets of changes: bit i says whether mover i has changed. Refused ones are nan."""
        named = sum(1 << i for i, mover in enumerate(movers) if not mover.columns)
        keys = {made: _key(movers, made) for made in sets}
        calls: defaultdict[int, list[int]] = defaultdict(list)
        for made, key in keys.items():
            if key not in self.known:
                calls[made & named].append(made)
        for together in calls.values():
            try:
                found = self._priced(movers, together)
            except (InputError, LookupError):  # a rule or an engine that only the other machine has
                found = [math.nan] * len(together)
            self.known |= {keys[made]: answer for made, answer in zip(together, found, strict=True)}
        return {made: self.known[key] for made, key in keys.items()}

    def _priced(self, movers: Sequence[Mover], sets: Sequence[int]) -> list[float]:
        """Answers of sets that differ in numbers of a profile only, in one call."""
        changed = [mover for i, mover in enumerate(movers) if sets[0] >> i & 1]
        names = [name for mover in changed for name in mover.fields]
        chosen: dict[str, Any] = {name: getattr(self.other.scenario, name) for name in names}
        scenario = replace(self.one.scenario, **chosen)
        parts = {p.path: p.other for mover in changed if not mover.columns for p in mover.places}
        columns = {
            place.path: np.array([float(place.other if made >> i & 1 else place.one) for made in sets])
            for i, mover in enumerate(movers)
            if mover.columns
            for place in mover.places
        }
        model = None if is_operator(scenario.target) else self._model(scenario.target)
        found = side_by_side(scenario, varied(self.one.machine, parts), model, columns, len(sets))
        self.used |= {id(quantity) for quantity in found.used.values()}
        possible = np.isfinite(found.times).any(axis=1)
        if not possible.any():
            raise InputError(dict.fromkeys(found.laid[i].reason for i in found.asked))
        return [float(answer) for answer in np.where(possible, found.best(self.of), np.nan)]

    def _model(self, target: str) -> Model | None:
        return self.one.model if target == self.one.scenario.target else self.other.model


def _key(movers: Sequence[Mover], made: int) -> frozenset[str]:
    """The names of what has changed, whatever moves together."""
    return frozenset(name for i, mover in enumerate(movers) if made >> i & 1 for name in mover.names)


@dataclass(frozen=True)
class Shared:
    """Shares of movers that can each move alone, and how many sets and orders they took."""

    movers: list[Mover]
    shares: NDArray[np.float64]
    sets: int
    orders: int


def shared(answers: Answers, movers: list[Mover]) -> Shared:
    """Shares of changes; those that are legal only together are joined first."""
    if not movers:
        return Shared([], np.zeros(0), 1, 0)
    everything = (1 << len(movers)) - 1
    named = sum(not mover.columns for mover in movers)
    many = 1 << named > MOST_CALLS or everything >= MOST_SETS
    orders = orders_of(len(movers), ORDER_PAIRS) if many else []
    sets = sets_on(orders) if many else list(range(everything + 1))
    # what cannot change, or stay, on its own shows before all of the sets are priced
    probes = [made for i in range(len(movers)) for made in (1 << i, everything ^ 1 << i)]
    for some in (probes, sets):
        values = answers.of_sets(movers, some)
        refused = [made for made, value in values.items() if not math.isfinite(value)]
        if refused:
            return shared(answers, _joined(answers, movers, refused))
    shares = average_shares(values, orders) if many else shapley_shares(np.array([values[s] for s in sets]))
    return Shared(movers, shares, len(sets), len(orders))


def _joined(answers: Answers, movers: list[Mover], refused: Sequence[int]) -> list[Mover]:
    """The movers with the two joined that most often are at odds, which does not depend on the direction.

    Two are at odds in a refused set if only one of them changed, and either alone would make it legal by
    changing, or by not changing.
    """
    votes: Counter[tuple[int, int]] = Counter()
    for made in _some(refused, (1 << len(movers)) - 1):
        cures = [i for i in range(len(movers)) if _legal(answers, movers, made ^ 1 << i)]
        votes.update(pair for pair in itertools.combinations(cures, 2) if _splits(pair, made))
    pairs = itertools.combinations(range(len(movers)), 2)
    # where no single change helps, any that leaves few of the refused sets
    first, second = (
        max(votes, key=lambda pair: (votes[pair], [-i for i in pair]))
        if votes
        else min(pairs, key=lambda pair: sum(not _splits(pair, made) for made in refused))
    )
    rest = [mover for i, mover in enumerate(movers) if i not in (first, second)]
    return sorted([*rest, movers[first].with_(movers[second])], key=lambda mover: mover.name)


def _some(refused: Sequence[int], everything: int) -> list[int]:
    """A few refused sets, each with its opposite if that is refused as well."""
    kept = sorted({min(made, everything ^ made) for made in refused})[:MOST_EXAMINED]
    return [made for made in refused if min(made, everything ^ made) in kept]


def _splits(pair: tuple[int, int], made: int) -> bool:
    """Whether a set changes one without the other."""
    return (made >> pair[0] & 1) != (made >> pair[1] & 1)


def _legal(answers: Answers, movers: list[Mover], made: int) -> bool:
    return math.isfinite(answers.of_sets(movers, [made])[made])
