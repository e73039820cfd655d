"""The nearest change of one input that makes an operator legal: searched among all values, checked again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.cases import Case
from mc2perf.operators import DTYPES
from mc2perf.problems import InputError
from mc2perf.rules.catalogue import VARIANTS
from mc2perf.rules.facts import Facts, UnknownError
from mc2perf.rules.rule import Mask, Rule, Variant
from mc2perf.scenario import Scenario, inputs, is_operator

LEAST_COUNTED, MOST_COUNTED = 2.0**16, 2.0**17
"""Up to the first, and to the double of what is there, every whole number is tried; where the double is above
the second, so many numbers in even steps; and the edges of the rules."""

MOST_RANKS = 1024
"""More ranks, experts of a rank or experts of a token than this are not looked at."""

MOST_RECHECKED = 16
"""So many of the nearest values that hold as a column are asked again alone."""

MOST_TOGETHER = 3
"""More inputs than this are not changed together."""

HUGE = 1e12
"""No number of a question is this large."""


class Change(NamedTuple):
    """One input and its new value."""

    field: str
    value: Any

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        if isinstance(self.value, bool):
            return f"--{'' if self.value else 'no-'}{self.field.replace('_', '-')}"
        short = {spec.name: how.short for spec, how in inputs()}.get(self.field)
        value = f"{self.value:.0f}" if isinstance(self.value, float) else self.value
        return f"{short or '--' + self.field.replace('_', '-')} {value}"


COUNTED = {"operator": ("m", "n", "k", "hccl_buffsize"), "model": ("tokens", "hccl_buffsize"),
           "decode": ("batch_size", "hccl_buffsize")}  # fmt: skip
"""Numbers tried as columns, all values at once."""

STEPPED = {"operator": ("ranks", "experts_per_rank", "top_k", "tp"), "model": ("ep", "tp"),
           "decode": ("ep", "tp")}  # fmt: skip
"""Numbers tried one by one: each changes where the links lead."""

WORDS: dict[str, tuple[Any, ...]] = {
    "dtype": tuple(DTYPES),
    "cann": ("8.0", "8.5"),
    "rdma": (True, False),
    "sp": (True, False),
}
"""Choices, one by one."""


class Asked:
    """Cases of questions, each asked once; a question that contradicts itself has none.

    Parameters
    ----------
    ask : callable
        Cases of a scenario; raises what contradicts itself.
    """

    def __init__(self, ask: Callable[[Scenario], tuple[Case, ...]]) -> None:
        self._ask = ask
        self._known: dict[object, tuple[Case, ...]] = {}

    def __call__(self, scenario: Scenario, key: object = None) -> tuple[Case, ...]:
        """Cases of a scenario; one with columns needs a key that tells it from others."""
        key = scenario if key is None else key
        if key not in self._known:
            try:
                self._known[key] = self._ask(scenario)
            except InputError:
                self._known[key] = ()
        return self._known[key]


@dataclass(frozen=True)
class Changes:
    """A question that may be changed.

    Parameters
    ----------
    scenario : Scenario
        The question with the numbers it resolves to.
    ask : Asked
        Its cases, and those of changed ones.
    divided : mapping
        Input to a number that it has to divide: the model's experts, its heads.
    """

    scenario: Scenario
    ask: Asked
    divided: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Which inputs may change."""
        if is_operator(self.scenario.target):
            return "operator"
        return "decode" if self.scenario.phase == "decode" else "model"

    def changed(self, name: str, value: Any) -> Changes:
        """The question with another value; tokens replace the batch."""
        batch: dict[str, Any] = {"batch_size": None, "seq_len": None, "micro_batch_size": None}
        also = batch if name == "tokens" else {}
        return replace(self, scenario=replace(self.scenario, **{name: value}, **also))

    def of(self, version: Variant) -> tuple[Case, ...]:
        """Cases of a version's operator."""
        return tuple(case for case in self.ask(self.scenario) if case.operator == version.operator)

    def touches(self, name: str) -> frozenset[str]:
        """Facts that change with an input; tp is no layout where an operator is the target."""
        return frozenset({"tp"}) if name == "tp" and self.kind == "operator" else TOUCHES[name]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Every number to try for an input."""
        if name in COUNTED[self.kind]:
            return whole_numbers(float(np.asarray(getattr(self.scenario, name)).item()))
        every = np.arange(1.0, MOST_RANKS + 1.0)
        whole = self.divided.get(name)
        return every if whole is None else every[np.mod(whole, every) == 0.0]

    def fits(self, version: Variant, name: str, tolerated: frozenset[Rule]) -> NDArray[np.float64]:
        """Numbers with which nothing but what is tolerated is broken, judged as a column."""
        numbers = self.numbers(name)
        column = self.changed(name, numbers.reshape(-1, 1)).scenario
        cases = [c for c in self.ask(column, (self.scenario, name)) if c.operator == version.operator]
        whole = np.full((len(numbers), 1), bool(cases))
        for case in cases:
            whole = whole & fine(version, case, tolerated)
        fitting: NDArray[np.float64] = numbers[whole.ravel()]
        return fitting

    def mended(self, version: Variant, tolerated: frozenset[Rule]) -> bool:
        """Whether nothing but what is tolerated is broken."""
        cases = self.of(version)
        return bool(cases) and all(bool(fine(version, case, tolerated).all()) for case in cases)

    def broken(self, version: Variant) -> dict[Rule, frozenset[str]]:
        """Rules that are broken, notes aside, with the facts that they look at."""
        return {
            rule: facts_behind(rule, case.facts)
            for case in self.of(version)
            for rule in version.failing(case.facts)
            if rule.effect != "note"
        }


def fine(version: Variant, case: Case, tolerated: frozenset[Rule] = frozenset()) -> Mask:
    """Where a version is legal and not slow but for tolerated rules; nowhere if it cannot be told."""
    whole: Mask = np.ones((), bool)
    try:
        for rule in version.rules:
            if rule.effect != "note" and rule not in tolerated:
                whole = whole & ~np.asarray(rule.broken(case.facts))
                if not whole.any():
                    break
    except UnknownError:
        return np.zeros((), bool)
    return whole


_LINKS = frozenset({"ranks", "tiers", "needs_rdma", "interleaves", "engine", "tp"})
TOUCHES: dict[str, frozenset[str]] = {
    "m": frozenset({"m"}),
    "n": frozenset({"n", "payload_width"}),
    "k": frozenset({"k", "payload_width"}),
    "tokens": frozenset({"m"}),
    "batch_size": frozenset({"m"}),
    "ranks": _LINKS,
    "ep": _LINKS,
    "tp": _LINKS | {"m", "k", "n"},
    "experts_per_rank": frozenset({"experts_per_rank"}),
    "top_k": frozenset({"top_k", "m"}),
    **{name: frozenset({name}) for name in ("hccl_buffsize", "dtype", "cann", "rdma", "sp")},
}
"""Input -> the facts that change with it."""


class _Noting(dict[str, Any]):
    """Facts that note which of them were looked at."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.seen: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)


def facts_behind(rule: Rule, facts: Facts) -> frozenset[str]:
    """Given facts that a rule looks at."""
    noting = _Noting(facts.given)
    rule.broken(Facts(noting))
    return frozenset(noting.seen & facts.given.keys())


Mend = tuple[Change, ...]
"""Inputs that together make a version legal."""


class Step(NamedTuple):
    """A change, how many rules it leaves broken, how far it goes; steps sort in this order."""

    left: int
    length: float
    change: Change


def nearest_mends(changes: Changes, version: Variant) -> tuple[Mend, ...]:
    """For each input that alone makes a version legal its nearest value, the smallest change first.

    Where no input does alone, the first few that do together: each mends something and breaks nothing.

    Parameters
    ----------
    changes : Changes
        The question and how to ask it again.
    version : Variant
        A version of the operator that some rule of it refuses or calls slow.
    """
    broken = changes.broken(version)
    names = [
        name for name in _inputs(changes) if all(changes.touches(name) & behind for behind in broken.values())
    ]
    steps = sorted(step for name in names if (step := _step(changes, version, name, frozenset())))
    if steps:
        return tuple((step.change,) for step in steps)
    together = _together(changes, version, ())
    return (together,) if together else ()


def _together(changes: Changes, version: Variant, done: Mend) -> Mend:
    """Mend after mend until nothing is left, whatever mends most first; nothing if none ends well."""
    broken = changes.broken(version)
    if not broken or len(done) == MOST_TOGETHER:
        return () if broken else done
    names = [name for name in _inputs(changes) if name not in {change.field for change in done}]
    tries = [
        _step(changes, version, name, frozenset(broken.keys() - {rule}))
        for name in names
        for rule, behind in broken.items()
        if changes.touches(name) & behind
    ]
    for step in sorted({step for step in tries if step}):
        name, value = step.change
        if ends := _together(changes.changed(name, value), version, (*done, step.change)):
            return ends
    return ()


def _inputs(changes: Changes) -> tuple[str, ...]:
    return (*COUNTED[changes.kind], *STEPPED[changes.kind], *WORDS)


def _step(changes: Changes, version: Variant, name: str, tolerated: frozenset[Rule]) -> Step | None:
    """The smallest change of an input after which only what is tolerated is broken."""
    now = getattr(changes.scenario, name)
    if now is None:
        return None
    values = _others(name, now) if name in WORDS else _numbers(changes, version, name, now, tolerated)
    for value in values:
        after = changes.changed(name, value)
        if after.mended(version, tolerated):
            length = 1.0 if name in WORDS else abs(math.log(value / now))
            return Step(len(after.broken(version)) if tolerated else 0, length, Change(name, value))
    return None


def _others(name: str, now: Any) -> Iterator[Any]:
    return (value for value in WORDS[name] if value != now)


def _numbers(
    changes: Changes, version: Variant, name: str, now: float, tolerated: frozenset[Rule]
) -> Iterator[float]:
    """Numbers worth asking alone, the nearest first; of columns only those that hold as a column."""
    counted = name in COUNTED[changes.kind]
    values = changes.fits(version, name, tolerated) if counted else changes.numbers(name)
    nearest = values[np.argsort(np.abs(np.log(values / now)), kind="stable")]
    near: list[float] = nearest[:MOST_RECHECKED].tolist() if counted else nearest.tolist()
    return (value for value in near if value != now)


def whole_numbers(now: float) -> NDArray[np.float64]:
    """Numbers to try: all up to the double of what is there, or as many in even steps; edges of rules.

    Examples
    --------
    >>> whole_numbers(27.0)[:3].tolist(), bool(whole_numbers(1e9).max() >= 2e9)
    ([1.0, 2.0, 3.0], True)
    """
    most = max(2.0 * now, LEAST_COUNTED)
    near = np.arange(1.0, most + 1.0) if most <= MOST_COUNTED else np.linspace(1.0, most, int(MOST_COUNTED))
    edges = [edge for variant in VARIANTS for rule in variant.rules for edge in _ends(rule)]
    whole: NDArray[np.float64] = np.unique(np.floor(np.concatenate([near, edges])))
    return whole[whole >= 1.0]


def _ends(rule: Rule) -> tuple[float, ...]:
    """Numbers that a rule on one fact names."""
    return tuple(end for end in vars(rule.test).values() if isinstance(end, float) and abs(end) < HUGE)
