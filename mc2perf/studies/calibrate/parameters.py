"""Numbers of a machine fitted through whatever it predicts; what the data cannot tell stays as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import reduce
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from mc2perf.fitting.robust import Fit, Numbers, fit
from mc2perf.machine import Machine
from mc2perf.quantity import Quantity, found, replaced
from mc2perf.studies.calibrate.result import UNSURE, Edit, Path, Value
from mc2perf.units import FACTOR, RATIO, TIME, Dim, show

SCALE = 0.02
"""Residuals of this size are told apart when fits from several starts are compared."""
REJECTS = 6.63
"""A base value is rejected where its fit is worse by more: chi-square of one degree at 99 %, for it is
knowledge too, and the usual spread of few rows is known badly."""
LEAST_STEP = 0.01
"""Least share of its last start from which a parameter starts again."""
_TYPICAL = {TIME: 1e-6}
"""Where to start from a value of zero."""
_LEAST = {RATIO: 1e-3, FACTOR: 1.0, TIME: 0.0}
_MOST = {RATIO: 1.0, FACTOR: 10.0}

Change = Callable[[Machine, float], Machine]


@dataclass(frozen=True)
class Parameter:
    """A number that may be fitted: its name, how a machine takes it, its base value and bounds.

    ``edits`` turns the fitted value and its source into what is written.
    """

    name: str
    change: Change
    base: float
    least: float
    most: float
    symbol: str
    edits: Callable[[float, dict[str, str]], Iterable[Edit]]
    start: float


def leaf(machine: Machine, path: Path) -> Parameter:
    """A number that stands in the machine itself, bounded by what its dimension allows.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> machine = load_machine("atlas_800t_a2")
    >>> one = leaf(machine, ("memory", "efficiency"))
    >>> one.base, one.most, one.change(machine, 0.5).memory.efficiency
    (0.84, 1.0, 0.5)
    """
    base, dim = float(found(machine, path)), dimension(machine, path)
    symbol = getattr(found(machine, path), "symbol", dim.symbol)

    def edits(value: float, source: dict[str, str]) -> Iterable[Edit]:
        yield path, {"value": text_of(value, symbol), **source}

    return Parameter(
        ".".join(map(str, path)), lambda m, value: replaced(m, path, value), base,
        _LEAST.get(dim, 0.0), _MOST.get(dim, math.inf), symbol, edits, base or _TYPICAL.get(dim, 1.0),
    )  # fmt: skip


def dimension(part: Any, path: Path) -> Dim:
    """The dimension of a number of a machine, from the type hints along its path."""
    hint: Any = None
    for name in path:
        if is_dataclass(part):
            hint = get_type_hints(type(part), include_extras=True)[name]
        else:
            hint = get_args(hint)[1 if get_origin(hint) is dict else 0]
        part = found(part, (name,))
    assert get_origin(hint) is Annotated
    dim: Dim = get_args(hint)[1]
    return dim


def text_of(value: float, symbol: str) -> Any:
    """A fitted number as a profile writes it."""
    return float(f"{value:.6g}") if symbol == "1" else show(value, symbol, 6)


@dataclass(frozen=True)
class Fitted:
    """The parameters that the data tell, their fit, the machine with them, and what was left with why."""

    parameters: tuple[Parameter, ...]
    fit: Fit
    machine: Machine
    left: tuple[str, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        """Every fitted value with its interval."""
        numbers = zip(self.parameters, self.fit.values, self.fit.low, self.fit.high, strict=True)
        return tuple(
            Value(p.name, float(v), float(low), float(high), p.base, p.symbol) for p, v, low, high in numbers
        )


def fit_parameters(
    machine: Machine,
    parameters: Sequence[Parameter],
    predict: Callable[[Machine], Numbers],
    measured: Numbers,
    starts: Sequence[Mapping[str, float]] = (),
) -> Fitted:
    """Fit those parameters that the data tell; of several that only tell together, the first.

    Parameters
    ----------
    machine : Machine
        The base.
    parameters : sequence of Parameter
        The most wanted first.
    predict : callable
        A machine to times, shape (n,). [s]
    measured : array, shape (n,)
        [s]
    starts : sequence of mapping
        Other places to start from, as values by the last word of a name: where one start may lead astray.

    Notes
    -----
    Backward elimination: as long as an interval is wider than `UNSURE`, the least wanted parameter with such
    an interval goes back to its base value. Where that lies outside the interval, and a fit with it is worse
    by `REJECTS`, the data reject it: the fitted value stands, with its interval. The interval alone does not
    decide, for it is that of a plane, and of parameters that only tell together it is far off.
    """
    kept, left = list(parameters), list[str]()
    others = [[replace(p, start=at.get(p.name.split(".")[-1], p.start)) for p in kept] for at in starts]
    found = min((_fit(machine, some, predict, measured) for some in (kept, *others)), key=_loss)
    firm = set[str]()
    while (worst := _worst(kept, found, firm)) is not None:
        one, low, high = kept[worst], float(found.low[worst]), float(found.high[worst])
        # what shrank to nothing starts again from a size that can be felt
        others_kept = [
            replace(p, start=max(v, LEAST_STEP * p.start))
            for p, v in zip(kept, found.values.tolist(), strict=True)
            if p != one
        ]
        without = _fit(machine, others_kept, predict, measured)
        if not low <= one.base <= high and _worse(without, found) > REJECTS:
            firm.add(one.name)
            continue
        left.append(f"{one.name}: {_unsure(one, low, high)}")
        kept, found = others_kept, without
    return Fitted(tuple(kept), found, _with(machine, kept, found.values), tuple(left))


def _loss(found: Fit) -> float:
    """How far a fit is off, the few rows that are far off counting little."""
    return float(np.sum(np.sqrt(1.0 + (found.residuals / SCALE) ** 2)))


def _worse(without: Fit, found: Fit) -> float:
    """How much worse a fit is with one parameter at its base value: about chi-square of one degree.

    The test of a ratio of likelihoods for robust losses: Ronchetti, "Robust testing in linear models", 1982.
    """
    with_it, at_base = (
        float(np.sum(2.0 * (np.sqrt(1.0 + (fit.residuals / found.spread) ** 2) - 1.0)))
        for fit in (found, without)
    )
    return at_base - with_it


def _unsure(one: Parameter, low: float, high: float) -> str:
    if not math.isfinite(high - low) or high > 20.0 * max(abs(one.base), 1e-30):
        return "the data do not tell it"
    span = f"from {show(low, one.symbol)} to {show(high, one.symbol)}"
    if low <= one.base <= high:
        return f"anything {span} would do"
    return f"{span} alone, but the base's {show(one.base, one.symbol)} fits about as well beside the others"


def _fit(
    machine: Machine,
    parameters: Sequence[Parameter],
    predict: Callable[[Machine], Numbers],
    measured: Numbers,
) -> Fit:
    if not parameters:
        residuals = np.log(predict(machine) / measured)
        none = np.zeros(0)
        spread = max(1.4826 * float(np.median(np.abs(residuals))), 1e-3)
        return Fit(none, none, none, none, residuals, spread)
    start, least, most = (np.array([getattr(p, n) for p in parameters]) for n in ("start", "least", "most"))
    return fit(lambda x: predict(_with(machine, parameters, x)), measured, start, least, most)


def _with(machine: Machine, parameters: Sequence[Parameter], values: Numbers) -> Machine:
    pairs = zip(parameters, values.tolist(), strict=True)
    return reduce(lambda changed, pair: pair[0].change(changed, pair[1]), pairs, machine)


def _worst(parameters: Sequence[Parameter], found: Fit, firm: Collection[str]) -> int | None:
    """Which parameter to leave, if any but the firm ones tells too little."""
    stays = np.array([one.name in firm for one in parameters], dtype=bool)
    unsure = np.flatnonzero(~(found.width <= UNSURE) & ~stays)
    return int(unsure[-1]) if len(unsure) else None


def written(found: Fitted, source: dict[str, str]) -> Iterator[Edit]:
    """What fitted parameters write into a profile, each with its interval."""
    for p, value in zip(found.parameters, found.values, strict=True):
        interval = f"95 %: {show(value.low, p.symbol)} to {show(value.high, p.symbol)}"
        yield from p.edits(value.value, source | {"ref": f"{source['ref']}; {interval}"})


def numbers_of(machine: Machine, path: Path, dtype: str, but: Iterable[str] = ()) -> list[Path]:
    """Paths of all numbers of a rule; of those that depend on the element type, its own."""
    part, skip, paths = found(machine, path), set(but), list[Path]()
    for name, value in vars(part).items():
        if name in skip:
            continue
        if isinstance(value, Quantity):
            paths.append((*path, name))
        elif isinstance(value, dict) and dtype in value:
            paths.append((*path, name, dtype))
        elif isinstance(value, tuple):
            paths += [(*path, name, i, "utilisation") for i in range(len(value))]
    return paths
