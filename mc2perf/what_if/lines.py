"""Transfers as straight lines over the time per byte, by pricing on machines with other links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.machine import Machine
from mc2perf.machine.links import Tier
from mc2perf.what_if.laying import Layout, one, transfers

SLOWER = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Links are priced at so many times the time per byte, to see where a straight line holds."""

STRAIGHT = 1e-10
"""Times off a straight line by a larger share are not on it."""

GIGA = 1e9

Numbers = NDArray[np.float64]


class Line(NamedTuple):
    """Time of a transfer: fixed, and gigabytes that go over one link of each tier. [s], [GB]

    ``across`` runs at the same time, where inside and between servers run together.
    """

    fixed: float
    sent: dict[str, float]
    across: Line | None = None


@dataclass(frozen=True)
class Links:
    """Transfers of a configuration as lines, by the segment that they price; where the lines hold.

    ``ranges`` are factors on the time per byte, none where a tier does not follow a line.
    """

    lines: dict[int, Line]
    ranges: dict[str, tuple[float, float] | None]


def _works(laid: Layout) -> Numbers:
    return np.array([one(segment.cost.work) for segment in transfers(laid)])


def _slower(machine: Machine, name: str, factor: float) -> Machine:
    """A machine with other links on one tier; tiers in turn, so that their times add up."""
    tier = machine.tiers[name]
    tiers = {**machine.tiers, name: replace(tier, link_rate=tier.link_rate / factor)}
    return replace(machine, tiers_run="in_turn", tiers=tiers)


def _only_inside(machine: Machine) -> Machine:
    """A machine whose outer tiers take no time."""
    (name, inner), *outer = machine.tiers.items()
    return replace(machine, tiers_run="in_turn", tiers={name: inner, **{n: _ideal(t) for n, t in outer}})


def _ideal(tier: Tier) -> Tier:
    engines = {
        name: replace(engine, wires=replace(engine.wires, latency=0.0)) if engine.wires else engine
        for name, engine in tier.engines.items()
    }
    return replace(tier, link_rate=1e30, engines=engines)


def links_of(machine: Machine, base: Layout, lay: Callable[[Machine], Layout]) -> Links:
    """Lines through what the transfers of a layout take on slower and faster links.

    Parameters
    ----------
    machine : Machine
        Where the configuration runs.
    base : list
        The parts laid out on it.
    lay : callable
        The same parts on another machine.

    Notes
    -----
    Bandwidth stands below a size that does not change, so that a line is exact until a message falls below
    what smaller ones take: that is what the range is for.
    """
    now = _works(lay(replace(machine, tiers_run="in_turn")))
    fixed, slopes, ranges = now.copy(), {}, {}
    for name in machine.tiers:
        slope, ranges[name] = _slope(now, {x: _works(lay(_slower(machine, name, x))) for x in SLOWER})
        if not np.any(slope):
            del ranges[name]
        elif ranges[name]:
            slopes[name], fixed = slope, fixed - slope
    lines = _lines(fixed, {n: s * machine.tiers[n].link_rate / GIGA for n, s in slopes.items()})
    if machine.tiers_run == "together":
        first = next(iter(machine.tiers))
        inside = _works(lay(_only_inside(machine))) - slopes.get(first, np.zeros_like(now))
        lines = [_together(line, float(near), first) for line, near in zip(lines, inside, strict=True)]
    return Links({id(s): line for s, line in zip(transfers(base), lines, strict=True)}, ranges)


def _lines(fixed: Numbers, sent: Mapping[str, Numbers]) -> list[Line]:
    """A line for every transfer, with the tiers that it uses."""
    return [
        Line(float(rest), {name: float(gb[at]) for name, gb in sent.items() if gb[at]})
        for at, rest in enumerate(fixed)
    ]


def _slope(now: Numbers, times: Mapping[float, Numbers]) -> tuple[Numbers, tuple[float, float] | None]:
    """What transfers take more per factor on the time per byte, and between which factors that holds."""
    slope = (times[1.4] - times[0.7]) / (1.4 - 0.7)
    # what does not go over these links differs by rounding alone
    slope = np.where(np.abs(slope) > 1e-14 * now, slope, 0.0)
    return slope, _range(np.array([times[x] for x in SLOWER]), now, slope)


def _range(times: Numbers, now: Numbers, slope: Numbers) -> tuple[float, float] | None:
    """The factors around 1 where the line holds for every transfer."""
    line = now + (np.array(SLOWER)[:, None] - 1.0) * slope
    holds = np.all(np.abs(times - line) <= STRAIGHT * line, axis=1)
    low = high = SLOWER.index(1.0)
    while low > 0 and holds[low - 1]:
        low -= 1
    while high + 1 < len(SLOWER) and holds[high + 1]:
        high += 1
    return (SLOWER[low], SLOWER[high]) if low < high else None


def _together(line: Line, near: float, first: str) -> Line:
    """Inside and between servers at once, where a transfer does both."""
    outside = {name: gb for name, gb in line.sent.items() if name != first}
    if not outside or near <= 0.0:
        return line
    inside = {name: gb for name, gb in line.sent.items() if name == first}
    return Line(near, inside, Line(line.fixed - near, outside))
