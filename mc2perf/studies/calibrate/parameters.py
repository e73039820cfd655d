"""Numbers of a machine fitted through whatever it predicts; what the data cannot tell stays as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    an interval goes back to its base value.
    """
    kept, left = list(parameters), list[str]()
    others = [[replace(p, start=at.get(p.name.split(".")[-1], p.start)) for p in kept] for at in starts]
    found = min((_fit(machine, some, predict, measured) for some in (kept, *others)), key=_loss)
    while (worst := _worst(found)) is not None:
        one, low, high = kept[worst], float(found.low[worst]), float(found.high[worst])
        left.append(f"{one.name}: {_unsure(one, low, high)}")
        # what shrank to nothing starts again from a size that can be felt
        kept = [
            replace(p, start=max(v, LEAST_STEP * p.start))
            for p, v in zip(kept, found.values.tolist(), strict=True)
            if p != one
        ]
        found = _fit(machine, kept, predict, measured)
    return Fitted(tuple(kept), found, _with(machine, kept, found.values), tuple(left))


def _loss(found: Fit) -> float:
    """How far a fit is off, the few rows that are far off counting little."""
    return float(np.sum(np.sqrt(1.0 + (found.residuals / SCALE) ** 2)))


def _unsure(one: Parameter, low: float, high: float) -> str:
    if not math.isfinite(high - low) or high > 20.0 * max(abs(one.base), 1e-30):
        return "the data do not tell it"
    return f"anything from {show(low, one.symbol)} to {show(high, one.symbol)} would do"


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


def _worst(found: Fit) -> int | None:
    """Which parameter to leave, if any tells too little."""
    unsure = np.flatnonzero(~(found.width <= UNSURE))
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
