"""How tokens are spread over experts: what was asked, and what the busiest rank gets of it.

All ranks wait for the busiest one, so that its rows and bytes are what is priced. A skew is one of a few
kinds, each a class: it says what contradicts a group of ranks, and what that group's busiest rank holds.

Every question has a skew, so that the command line knows them: NumPy is loaded where rows are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from mc2perf.units import Num

if TYPE_CHECKING:
    from mc2perf.equations.skew import Loads

CLOSE = 1e-6
"""Loads this close are alike."""


class Group(NamedTuple):
    """What tokens are spread over: experts on ranks, so many of them for a token, and added copies.

    Without copies (None) experts lie as they are numbered, neighbours on one rank; with a number of them,
    even 0, a balancer places them by their load.
    """

    experts: int
    ranks: int
    top_k: int
    copies: int | None = None

    @property
    def slots(self) -> int:
        """Experts and copies of all ranks."""
        return self.experts + (self.copies or 0)

    @property
    def most(self) -> float:
        """What no rank exceeds, times the mean: it can hold no more than top-k experts of a token."""
        return self.ranks * min(1.0, self.slots / self.ranks / self.top_k)


@dataclass(frozen=True, kw_only=True)
class Busiest:
    """The busiest rank.

    ``imbalance`` is its load over that of the mean rank, ``hottest`` that of an expert over the mean
    expert; ``local`` the load of each of its slots in multiples of the mean slot, in the order in which
    they are computed, empty where they are alike.
    """

    imbalance: float = 1.0
    hottest: float = 1.0
    local: tuple[float, ...] = ()

    def factor(self, rows: Num) -> Num:
        """Rows of this rank over the mean of so many."""
        return self.imbalance


@dataclass(frozen=True, kw_only=True)
class Fullest(Busiest):
    """The rank that is fullest by chance: the fewer rows there are, the more."""

    group: Group

    def factor(self, rows: Num) -> Num:
        """Expected rows of the fullest rank over the mean of so many."""
        from mc2perf.equations import skew as equations

        g = self.group
        if g.ranks == 1:
            return 1.0
        largest, square = equations.normal_maximum(g.ranks)
        factor: Num = equations.drawn_rank_factor(
            rows, float(g.experts), float(g.top_k), largest, square, g.most
        )
        return factor


@dataclass(frozen=True)
class Skew:
    """Popularity of experts by Zipf's law; an exponent of 0 is even routing."""

    text: str = "even"
    exponent: float = 0.0

    def __str__(self) -> str:
        return self.text

    @property
    def even(self) -> bool:
        """Whether every rank gets the same."""
        return self.exponent == 0.0

    def problems(self, group: Group) -> Iterator[str]:
        """What contradicts a group of ranks."""
        yield from ()

    def busiest(self, group: Group) -> Busiest:
        """The busiest rank of a group."""
        if self.even and not group.copies:
            return Busiest()
        return _busiest(self, group)

    def slots(self, group: Group) -> Iterator[Loads]:
        """Loads of the slots of all ranks, rank by rank; of every layer that is known apart."""
        from mc2perf.equations import skew as equations

        loads = equations.zipf_loads(group.experts, self.exponent)
        yield placed(equations.capped_loads(loads, group.experts / group.top_k), group)

    def said(self, group: Group) -> str:
        """What is taken for granted, in words."""
        factor = self.busiest(group).imbalance
        return f"the busiest of {group.ranks} ranks carries {factor:.3g} x the mean ({self.placement(group)})"

    def placement(self, group: Group) -> str:
        """Where experts lie."""
        if group.copies is not None:
            return f"experts and {group.copies} copies placed by load"
        balanced = self.busiest(group._replace(copies=0)).imbalance
        return f"{self.order}; placed by load {balanced:.3g} x, see --redundant-experts"

    @property
    def order(self) -> str:
        """In which order experts lie on ranks."""
        return "the most popular experts on one rank"


@dataclass(frozen=True)
class Factor(Skew):
    """The busiest rank over the mean, as measured; its experts are taken alike."""

    factor: float = 1.0

    @classmethod
    def of(cls, factor: float) -> Factor:
        """The skew that a number says."""
        return cls(f"{factor:.15g}", factor=factor)

    @property
    def even(self) -> bool:
        """Whether every rank gets the same."""
        return self.factor == 1.0

    def problems(self, group: Group) -> Iterator[str]:
        """More than a rank can get; a balancer that has no loads to go by."""
        if self.factor > group.most * (1.0 + CLOSE):
            yield (
                f"skew: {self.factor:g} is more than the busiest of {group.ranks} ranks can carry; "
                f"write at most {group.most:g}"
            )
        if group.copies is not None and not self.even:
            yield _unbalanced(self)

    def busiest(self, group: Group) -> Busiest:
        """The busiest rank, of which nothing but its rows is known."""
        return super().busiest(group) if self.even else Busiest(imbalance=self.factor, hottest=self.factor)

    def said(self, group: Group) -> str:
        """What is taken for granted, in words."""
        return f"the busiest rank carries {self.factor:g} x the mean, its experts alike"


@dataclass(frozen=True)
class Drawn(Skew):
    """Every expert as likely as any other, and tokens drawn: the fullest rank gets more by chance."""

    @property
    def even(self) -> bool:
        """Whether every rank gets the same."""
        return False

    def problems(self, group: Group) -> Iterator[str]:
        """A balancer has nothing to go by."""
        if group.copies is not None:
            yield _unbalanced(self)

    def busiest(self, group: Group) -> Busiest:
        """The fullest rank."""
        return Fullest(group=group)

    def said(self, group: Group) -> str:
        """What is taken for granted, in words."""
        return f"experts drawn at random, all as likely; the fullest of {group.ranks} ranks sets the pace"


@dataclass(frozen=True)
class Counted(Skew):
    """Tokens of every expert as counted, layer by layer; of experts, or of the slots of a balancer."""

    layers: tuple[tuple[float, ...], ...] = ()

    @property
    def even(self) -> bool:
        """Whether every rank gets the same."""
        return False

    def problems(self, group: Group) -> Iterator[str]:
        """Counts of another number of experts, or more than a token can give one."""
        found = len(self.layers[0])
        if found not in (group.experts, group.slots):
            yield f"skew: {self.text} counts {found} experts and there are {group.experts}; count all of them"
            return
        hottest = max(max(layer) / sum(layer) for layer in self.layers)
        if hottest * group.top_k > 1.0 + CLOSE:
            yield (
                f"skew: {self.text} gives one expert {hottest:.0%} of all rows; "
                f"a token goes to {group.top_k}, so none has more than {1 / group.top_k:.0%}"
            )

    def slots(self, group: Group) -> Iterator[Loads]:
        """Loads of the slots of all ranks, rank by rank; of every layer that is known apart."""
        import numpy as np

        for layer in self.layers:
            loads = np.array(layer)
            yield placed(loads, group) if loads.size == group.experts else loads.reshape(group.ranks, -1)

    @property
    def order(self) -> str:
        """In which order experts lie on ranks."""
        count = len(self.layers)
        return "experts as numbered" + (f", mean of {count} layers" if count > 1 else "")


def _unbalanced(skew: Skew) -> str:
    return (
        f"redundant_experts: what a balancer leaves of skew {skew} is not known; "
        "write --skew zipf:EXPONENT or a file of counts"
    )


def placed(loads: Loads, group: Group) -> Loads:
    """Loads of slots by rank, shape (ranks, slots of a rank)."""
    from mc2perf.equations import skew as equations

    if group.copies is not None:
        loads = equations.placed_by_load(equations.with_copies(loads, group.copies), group.ranks)
    return loads.reshape(group.ranks, -1)


@lru_cache(maxsize=256)
def _busiest(skew: Skew, group: Group) -> Busiest:
    """The busiest rank of every layer; over several layers the mean of its slots, the fullest first."""
    import numpy as np

    found, hottest = [], 0.0
    layers = list(skew.slots(group))
    for slots in layers:
        loads = slots / slots.mean()
        found.append(loads[np.argmax(loads.sum(axis=1))])
        hottest += loads.max() / len(layers)
    rank = found[0] if len(found) == 1 else np.mean([np.sort(local)[::-1] for local in found], axis=0)
    alike = np.ptp(rank) <= CLOSE * rank.max()
    local = () if alike else tuple(float(load) for load in rank if load > 0.0)
    return Busiest(imbalance=float(rank.mean()), hottest=hottest, local=local)
