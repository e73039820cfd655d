"""What an answer hangs on: what every parameter is worth, how sure the answer and its choice are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mc2perf.answer import ROUNDING
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.outcomes.best import FLAT
from mc2perf.problems import InputError
from mc2perf.quantity import Quantity
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.bandwidth import Price, Reach, hiding_rates
from mc2perf.studies.side_by_side import Laid, SideBySide, side_by_side
from mc2perf.studies.uncertainty import Spread, Uncertainty, sampled
from mc2perf.variation import Parameter, parameters

Numbers = NDArray[np.float64]

OFF = 0.2
"""How far rates are off when the price of the choice is asked."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the profile as it is makes one choose. [s], [tokens/s]"""

    schedule: str
    pieces: float
    choosable: bool
    total_time: float
    tokens_per_second: float
    comm_ratio: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """The answer with one value changed: by how much it changes, relative; the best count and schedule."""

    value: float
    change: float
    pieces: float
    schedule: str
    total_time: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One parameter: the answer with less and with more of it.

    ``elasticity`` is the change of log time per change of the parameter's logarithm, not-a-number where it
    cannot change; ``share`` what the parameter's uncertainty contributes to the variance of the time, to
    first order.
    """

    path: str
    quantity: Quantity
    by: float
    time_power: int
    less: Change
    more: Change
    elasticity: float
    uncertainty: float
    share: float = 0.0

    @property
    def size(self) -> float:
        """The larger change of both; of a count that cannot change by so little, in proportion."""
        sides = [abs(side.change) * self._in_proportion(side) for side in (self.less, self.more)]
        return float(np.nanmax([*sides, 0.0]))

    def _in_proportion(self, side: Change) -> float:
        step = abs(side.value / self.quantity - 1.0)
        return min(self.by / step, 1.0) if step else 0.0


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """What uncertain parameters make of the answer and of the choice, over all samples.

    ``schedule_best``, ``count_best`` and ``count_within`` are shares of the samples in which the chosen
    schedule is the fastest, the chosen count the best of its schedule, and within 2 % of it; ``regret``
    is what the choice costs over the best one, relative. Without counts to choose they are None.
    """

    samples: int
    total_time: Spread
    tokens_per_second: Spread
    comm_ratio: Spread
    schedule_best: float
    count_best: float | None
    count_within: float | None
    counts: Mapping[int, float]
    regret: Spread


@dataclass(frozen=True, kw_only=True)
class Off:
    """Rates that are off by a factor: what is best then, and what the choice costs over it, relative."""

    comm: float
    compute: float
    schedule: str
    pieces: float
    regret: float


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The whole answer; ``fixed`` are parameters that say how a machine is built and stay as they are."""

    scenario: Scenario
    by: float
    choice: Choice
    effects: tuple[Effect, ...]
    fixed: tuple[str, ...]
    confidence: Confidence
    reaches: tuple[Reach, ...]
    off: tuple[Off, ...]
    kinds: Mapping[str, float]


def sensitivity(
    scenario: Scenario,
    machine: Machine,
    model: Model | None,
    by: float,
    uncertainty: Uncertainty,
    samples: int,
) -> Sensitivity:
    """Price every parameter that an answer rests on.

    Parameters
    ----------
    scenario : Scenario
        The question.
    machine, model : Machine, Model or None
        Where, and what unless it is an operator.
    by : float
        How much less and more of every parameter, relative.
    uncertainty : Uncertainty
        How far numbers are off.
    samples : int
        Samples of the uncertain parameters.

    Returns
    -------
    Sensitivity
        Parameters by the size of their effect; intervals; break-even rates; the price of the choice.

    Raises
    ------
    InputError
        The question contradicts itself, or nothing that was asked for can run.
    """
    price = partial(side_by_side, scenario, machine, model)
    base = price({}, 1)
    if np.isinf(base.times).all():
        raise InputError(dict.fromkeys(base.laid[i].reason for i in base.asked))
    used = {id(quantity) for quantity in base.used.values()}
    found = [p for p in parameters(machine) if id(p.quantity) in used]
    vary = [p for p in found if not p.fixed]
    choice = _choice(base)
    # of operators the time is the answer, of models the tokens per second
    power = 1.0 if is_operator(scenario.target) else -1.0
    effects = [*_columns(price, vary, choice, by, power), *_one_by_one(price, vary, choice, by, power)]
    effects = _with_shares(
        [replace(e, uncertainty=_uncertainty(e, vary, uncertainty)) for e in effects if e.quantity != 0.0]
    )
    rates = {p.path: float(p.quantity) for p in found if p.path.endswith(".link_rate")}
    return Sensitivity(
        scenario=scenario,
        by=by,
        choice=choice,
        effects=tuple(sorted(effects, key=lambda e: (-e.size, e.path))),
        fixed=tuple(p.path for p in found if p.fixed),
        confidence=_confidence(price(sampled(vary, uncertainty, samples), samples), base, samples),
        reaches=tuple(hiding_rates(price, rates)),
        off=tuple(_rates_off(price, parameters(machine), base)),
        kinds=uncertainty.kinds,
    )


def _choice(base: SideBySide) -> Choice:
    names = ("pieces", "total_time", "tokens_per_second", "comm_ratio")
    numbers = {name: float(base.best(name)[0]) for name in names}
    chosen = base.laid[base.fastest[0]]
    return Choice(schedule=chosen.schedule, choosable=chosen.choosable, **numbers)


# --- every parameter on its own ----------------------------------------------------------------------------


def _two_values(p: Parameter, by: float) -> tuple[float, float]:
    """Less and more of a parameter; a count by one at least."""
    value, step = float(p.quantity), by * p.quantity
    if p.dim.whole:
        step = max(round(step), 1.0)
    return float(p.within(value - step)), float(p.within(value + step))


def _columns(
    price: Price, vary: Sequence[Parameter], choice: Choice, by: float, power: float
) -> Iterator[Effect]:
    """Parameters that may be columns: all of them in one call."""
    some = [p for p in vary if not p.whole]
    if not some:
        return
    values = [_two_values(p, by) for p in some]
    columns = {p.path: np.full(2 * len(some), float(p.quantity)) for p in some}
    for row, (p, pair) in enumerate(zip(some, values, strict=True)):
        columns[p.path][2 * row : 2 * row + 2] = pair
    found = price(columns, 2 * len(some))
    for row, (p, pair) in enumerate(zip(some, values, strict=True)):
        changes = [_change(found, 2 * row + i, pair[i], choice, power) for i in (0, 1)]
        yield _effect(p, by, changes[0], changes[1])


def _one_by_one(
    price: Price, vary: Sequence[Parameter], choice: Choice, by: float, power: float
) -> Iterator[Effect]:
    """Counts and limits decide what may run: a machine each."""
    for p in (p for p in vary if p.whole):
        changes = []
        for value in _two_values(p, by):
            found = price({p.path: np.array([value])}, 1)
            changes.append(_change(found, 0, value, choice, power))
        yield _effect(p, by, changes[0], changes[1])


def _change(found: SideBySide, row: int, value: float, choice: Choice, power: float) -> Change:
    time = float(found.best("total_time")[row])
    return Change(
        value=value,
        change=float((time / choice.total_time) ** power - 1.0) if np.isfinite(time) else np.nan,
        pieces=float(found.best("pieces")[row]),
        schedule=found.laid[found.fastest[row]].schedule,
        total_time=time,
    )


def _effect(p: Parameter, by: float, less: Change, more: Change) -> Effect:
    slope = np.nan
    if 0.0 < less.value < more.value:
        slope = np.log(more.total_time / less.total_time) / np.log(more.value / less.value)
    return Effect(
        path=p.path,
        quantity=p.quantity,
        by=by,
        time_power=p.dim.time_power,
        less=less,
        more=more,
        elasticity=float(slope),
        uncertainty=0.0,
    )


def _uncertainty(effect: Effect, vary: Sequence[Parameter], uncertainty: Uncertainty) -> float:
    exact = {p.path for p in vary if p.exact}
    return 0.0 if effect.path in exact else uncertainty.of(effect.quantity)


def _with_shares(effects: Sequence[Effect]) -> list[Effect]:
    """What the uncertainty of each contributes to the variance of the time, to first order."""
    variances = np.array([(e.elasticity * np.log1p(e.uncertainty)) ** 2 for e in effects])
    variances = np.where(np.isfinite(variances), variances, 0.0)
    whole = variances.sum() or 1.0
    return [replace(e, share=float(v / whole)) for e, v in zip(effects, variances, strict=True)]


# --- all uncertain parameters at once ----------------------------------------------------------------------


def _chosen(found: SideBySide, base: SideBySide, rows: int) -> Laid:
    """The choice made on the base machine, on every machine: its schedule at its count."""
    place = int(base.fastest[0])
    before, here = base.laid[place], found.laid[place]
    if not before.choosable:
        return here.at_best
    at = int(np.argmin(before.times[0]))
    return here.at(np.full((rows, 1), at, np.intp))


def _confidence(found: SideBySide, base: SideBySide, samples: int) -> Confidence:
    place = int(base.fastest[0])
    here, chosen = found.laid[place], _chosen(found, base, samples)
    best_of_schedule, best = here.at_best, found.times.min(axis=1)
    choosable = base.laid[place].choosable
    mine, its_best = chosen.times[:, 0], best_of_schedule.times[:, 0]
    counts: dict[int, float] = {}
    if choosable:
        numbers, often = np.unique(best_of_schedule.pieces, return_counts=True)
        counts = {int(n): float(k) / samples for n, k in zip(numbers, often, strict=True)}
    return Confidence(
        samples=samples,
        total_time=Spread.of(mine),
        tokens_per_second=Spread.of(chosen.numbers["tokens_per_second"][:, 0]),
        comm_ratio=Spread.of(chosen.numbers["comm_ratio"][:, 0]),
        schedule_best=_share(its_best, best, ROUNDING),
        count_best=_share(mine, its_best, ROUNDING) if choosable else None,
        count_within=_share(mine, its_best, FLAT) if choosable else None,
        counts=counts,
        regret=Spread.of(mine / best - 1.0),
    )


def _share(times: Numbers, best: Numbers, within: float) -> float:
    return float(np.mean(times <= best * (1.0 + within)))


def _rates_off(price: Price, found: Sequence[Parameter], base: SideBySide) -> Iterator[Off]:
    """What the choice costs if links, cube and memory are slower or faster than the profile says."""
    factors = [pair for pair in product((1.0 - OFF, 1.0, 1.0 + OFF), repeat=2) if pair != (1.0, 1.0)]
    comm, compute = np.array(factors).T
    columns = {p.path: p.quantity * factor for p in found for factor in _rate(p, comm, compute)}
    there = price(columns, len(factors))
    mine, best = _chosen(there, base, len(factors)).times[:, 0], there.times.min(axis=1)
    pieces = there.best("pieces")
    for row, (links, cube) in enumerate(factors):
        yield Off(
            comm=links,
            compute=cube,
            schedule=there.laid[there.fastest[row]].schedule,
            pieces=float(pieces[row]),
            regret=float(mine[row] / best[row] - 1.0),
        )


def _rate(p: Parameter, comm: Numbers, compute: Numbers) -> Iterator[Numbers]:
    """What a parameter is multiplied by, if it is a rate of the machine."""
    if p.path.endswith(".link_rate"):
        yield comm
    elif p.quantity.symbol == "FLOP/s" or p.path == "memory.bandwidth":
        yield compute
