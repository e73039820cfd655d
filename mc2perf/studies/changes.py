"""What differs between two questions: inputs, numbers of the profile, parts of a machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.quantity import Quantity, quantities
from mc2perf.scenario import Scenario, inputs
from mc2perf.study import study_of
from mc2perf.units import show
from mc2perf.variation import Parameter, Unlike, differences, is_structure, parameters

MOST_LEAVES = 12
"""More differing numbers of a profile than these are gathered by what they belong to."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two questions, with its machine and model; ``saved`` is the answer of a saved result."""

    name: str
    scenario: Scenario
    machine: Machine
    model: Model | None
    saved: Mapping[str, float] = field(default_factory=dict)

    def said(self, name: str) -> str:
        """An input as it was given; beside ``auto`` what it comes to."""
        value = getattr(self.scenario, name)
        if value is not None:
            return _plain(value)
        meant = study_of(self.scenario, self.machine, self.model).resolved.get(name)
        if meant is None:
            return "auto"
        return f"auto ({meant if isinstance(meant, str) else _plain(float(np.asarray(meant).item()))})"


@dataclass(frozen=True)
class Mover:
    """Inputs and places of the machine that change together, and whether they are numbers of a profile."""

    names: tuple[str, ...]
    fields: tuple[str, ...] = ()
    places: tuple[Unlike, ...] = ()
    columns: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        return " + ".join(self.names)

    def with_(self, other: Mover) -> Mover:
        """Both as one."""
        return Mover(
            tuple(sorted(self.names + other.names)),
            self.fields + other.fields,
            self.places + other.places,
            self.columns and other.columns,
        )

    def said(self, side: Side, other: bool) -> str:
        """What it is on one side."""
        if len(self.places) > 1 and not self.fields:
            return f"{len(self.places)} numbers"
        values = [side.said(name) for name in self.fields]
        return ", ".join([*values, *(_shown(place.other if other else place.one) for place in self.places)])

    def rests_on(self, used: set[int]) -> bool:
        """Whether an answer that used these numbers may depend on it; how a machine is built always does."""
        parts = [(p.path, part) for p in self.places for part in (p.one, p.other)]
        numbers = [
            (f"{path}.{below}".rstrip("."), q) for path, part in parts for below, q in quantities(part)
        ]
        built = self.fields or any(isinstance(part, str | bool) for _, part in parts)
        return bool(built) or any(id(q) in used or is_structure(path) for path, q in numbers)


def movers_of(one: Side, other: Side) -> Iterator[Mover]:
    """Inputs and parts of the machine that differ."""
    for name in ("target", *(spec.name for spec, _ in inputs() if spec.name != "hardware")):
        if getattr(one.scenario, name) != getattr(other.scenario, name):
            yield Mover((name,), fields=(name,))
    places = list(differences(one.machine, other.machine))
    few = len(places) <= MOST_LEAVES
    groups = {place.path: [place] for place in places} if few else _by_section(places)
    speeds = {p.path: p for side in (one, other) for p in parameters(side.machine)}
    for name, members in groups.items():
        yield Mover((name,), places=tuple(members), columns=all(_is_column(p, speeds) for p in members))


def _is_column(place: Unlike, speeds: Mapping[str, Parameter]) -> bool:
    """Whether two values may stand side by side: numbers that say how fast something is."""
    known = speeds.get(place.path)
    return place.numbers and known is not None and not known.whole and not known.fixed


def _by_section(places: Sequence[Unlike]) -> dict[str, list[Unlike]]:
    sections: defaultdict[str, list[Unlike]] = defaultdict(list)
    for place in places:
        sections[_section(place.path)].append(place)
    return {name if len(found) > 1 else found[0].path: found for name, found in sections.items()}


def _section(path: str) -> str:
    """What a number of a profile belongs to.

    Examples
    --------
    >>> _section("tiers.node.engines.measured.round_cost"), _section("tiers.node.link_rate")
    ('tiers.node.engines', 'tiers.node links')
    >>> _section("cube.rules.measured.knee"), _section("host.per_launch"), _section("family")
    ('cube.rules', 'host', 'family')
    """
    first, *rest = path.split(".")
    if first == "tiers" and len(rest) > 1:
        return f"tiers.{rest[0]}.engines" if rest[1] == "engines" else f"tiers.{rest[0]} links"
    if first in ("cube", "kernels") and rest:
        return f"{first}.{rest[0]}"
    return first


def _shown(value: Any) -> str:
    if isinstance(value, Quantity):
        return show(value, value.symbol)
    return _plain(value) if isinstance(value, str | float | bool) else "its own"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
