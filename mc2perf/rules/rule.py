"""What a rule is: a product of facts, a test, what follows where it fails, and who says so.

Facts are numbers, columns of numbers, words or yes and no; a rule holds row by row.
"""

from __future__ import annotations

import functools
import math
import operator as arithmetic
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mc2perf.rules.facts import Facts, UnknownError
from mc2perf.units import Num

Mask = NDArray[np.bool_]

Effect = Literal["refused", "serial", "slow", "note"]
"""What follows: it does not run, runs unfused, runs slowly, or runs beyond what the document lists."""


class Test(Protocol):
    """What a rule asks of its product of facts."""

    def holds(self, value: Any, facts: Facts) -> Any:
        """Where it is met."""

    def words(self, facts: Facts) -> str:
        """What to write, after 'must be'."""

    def edges(self, facts: Facts) -> tuple[float, ...]:
        """Numbers at which it begins or ends to hold."""


@dataclass(frozen=True)
class OneOf:
    """Numbers of a list; a number that spans a range is written as its ends."""

    numbers: tuple[float, ...]

    def holds(self, value: Any, facts: Facts) -> Any:
        """Where it is met."""
        return np.isin(value, self.numbers)

    def words(self, facts: Facts) -> str:
        """What to write."""
        return " or ".join(part for part in (", ".join(f"{n:g}" for n in self.numbers[:-1]),
                                             f"{self.numbers[-1]:g}") if part)  # fmt: skip

    def edges(self, facts: Facts) -> tuple[float, ...]:
        """Every number."""
        return self.numbers


@dataclass(frozen=True)
class Within:
    """From ``least`` to ``most``, both included; either may be the name of a fact."""

    least: float | str = -math.inf
    most: float | str = math.inf

    def ends(self, facts: Facts) -> tuple[Num, Num]:
        """Both ends as numbers."""
        low, high = (facts[end] if isinstance(end, str) else end for end in (self.least, self.most))
        return low, high

    def holds(self, value: Any, facts: Facts) -> Any:
        """Where it is met."""
        low, high = self.ends(facts)
        return np.greater_equal(value, low) & np.less_equal(value, high)

    def words(self, facts: Facts) -> str:
        """What to write."""
        low, high = (_shown(end) for end in self.ends(facts))
        if self.least == -math.inf:
            return f"at most {high}"
        return f"at least {low}" if self.most == math.inf else f"{low} to {high}"

    def edges(self, facts: Facts) -> tuple[float, ...]:
        """Both ends."""
        return tuple(float(np.max(end)) for end in self.ends(facts) if np.all(np.isfinite(end)))


@dataclass(frozen=True)
class MultipleOf:
    """Whole multiples of a number or of a fact."""

    step: float | str

    def _step(self, facts: Facts) -> Num:
        step: Num = facts[self.step] if isinstance(self.step, str) else self.step
        return step

    def holds(self, value: Any, facts: Facts) -> Any:
        """Where it is met."""
        return np.equal(np.mod(value, self._step(facts)), 0.0)

    def words(self, facts: Facts) -> str:
        """What to write."""
        of = f" {self.step} =" if isinstance(self.step, str) else ""
        return f"a multiple of{of} {_shown(self._step(facts))}"

    def edges(self, facts: Facts) -> tuple[float, ...]:
        """The step itself."""
        return (float(np.max(self._step(facts))),)


@dataclass(frozen=True)
class Word:
    """Words of a list, or yes."""

    words_allowed: tuple[object, ...]

    def holds(self, value: Any, facts: Facts) -> Any:
        """Where it is met."""
        return value in self.words_allowed

    def words(self, facts: Facts) -> str:
        """What to write."""
        return " or ".join(map(_shown, self.words_allowed))

    def edges(self, facts: Facts) -> tuple[float, ...]:
        """No numbers."""
        return ()


@dataclass(frozen=True)
class Source:
    """The document or file that says so, and of which release."""

    document: str
    version: str

    def __str__(self) -> str:
        return f"{self.document} ({self.version})"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """``of`` multiplied must pass ``test`` wherever ``when`` holds.

    ``says`` replaces the words made of the test and may name facts in braces; ``code`` is the stable code
    under which an estimate warns.
    """

    of: tuple[str, ...]
    test: Test
    source: Source
    effect: Effect = "refused"
    when: tuple[tuple[str, object], ...] = ()
    says: str = ""
    code: str = ""

    def value(self, facts: Facts) -> Any:
        """The product."""
        return functools.reduce(arithmetic.mul, (facts[name] for name in self.of))

    def broken(self, facts: Facts) -> Any:
        """Where it fails.

        Raises
        ------
        UnknownError
            A fact that it needs was not given.
        """
        applies: Any = True
        for name, wanted in self.when:
            applies = applies & np.asarray(facts[name] == wanted)
        if applies is not True and not np.any(applies):
            return False
        return applies & ~np.asarray(self.test.holds(self.value(facts), facts))

    def words(self, facts: Facts, names: Mapping[str, str]) -> str:
        """What is wrong, for facts of one row."""
        if self.says:
            return self.says.format_map(facts)
        what = " x ".join(names.get(name, name.replace("_", " ")) for name in self.of)
        factors = " x ".join(_shown(facts[name]) for name in self.of) if len(self.of) > 1 else ""
        value = _shown(self.value(facts))
        said = f"{factors} = {value}" if factors else value
        return f"{what} must be {self.test.words(facts)}, not {said}"


def _shown(value: object) -> str:
    """A fact in a message: whole numbers whole, sizes above a million short, yes and no as such."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    number = np.asarray(value, float)
    if number.size != 1:
        return "these"
    one = float(number.item())
    return f"{one:.0f}" if np.isfinite(one) and one == round(one) else f"{one:.4g}"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One version of an operator on one family of machines: its rules, and what no input says.

    ``minds`` are conditions that nothing in a question shows, such as a communicator of its own.
    """

    operator: str
    version: str
    family: str
    rules: tuple[Rule, ...]
    minds: tuple[str, ...] = ()

    def needs(self, facts: Facts) -> tuple[str, ...]:
        """Facts that its rules ask for and that were not given."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in _missing(rule, facts)))

    def failing(self, facts: Facts) -> tuple[Rule, ...]:
        """Rules that fail somewhere; what cannot be judged is left out."""
        return tuple(rule for rule in self.rules if not _missing(rule, facts) and np.any(rule.broken(facts)))

    def refused(self, facts: Facts) -> Mask:
        """Where a rule that refuses fails."""
        masks = [rule.broken(facts) for rule in self.failing(facts) if rule.effect == "refused"]
        none: Mask = np.zeros((), bool)
        return functools.reduce(np.logical_or, masks, none)


def _missing(rule: Rule, facts: Facts) -> tuple[str, ...]:
    """All that a rule asks for and nobody gave: each found by standing in for those before it."""
    try:
        rule.broken(facts)
    except UnknownError as unknown:
        name = str(unknown)
        return (name, *_missing(rule, Facts({**facts.given, name: 1.0})))
    return ()
