"""Axes of a sweep: which inputs vary over which values, from ``--vary`` and from a scenario file.

An axis is ``NAME=ITEM,ITEM,...``. An item is a value, ``a..b`` (by 1), ``a..b:s`` (by s) or ``a..b:xF`` (by
a factor F); ``b`` belongs to the range where a step hits it. Every value is read as a scenario reads it, so
counts may end in K, M or G (powers of 1024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.scenarios import DISPATCHERS, number, typed, unknown_target
from mc2perf.scenario import SCHEDULES, Input, inputs
from mc2perf.skew import Skew
from mc2perf.units import COUNT, NUMBER, Dim

MOST_VALUES = 1_000_000
"""Most values of one axis."""

_DIGITS = 14
"""Significant digits kept of a * F**i: powers of a decimal factor are off in the 16th (1000 * 1.1**2)."""

_INPUTS = {spec.name: (how, spec.default) for spec, how in inputs()}
_NAMES = ("target", *_INPUTS)

Value = float | str | bool | Skew


@dataclass(frozen=True)
class Axis:
    """One input, or one dotted path of the profile, and the values it takes in turn."""

    name: str
    values: tuple[Value, ...]


def read_axes(texts: Sequence[str], tree: object = None, where: str = "") -> tuple[Axis, ...]:
    """Read the axes of a sweep; the command line replaces axes of the file.

    Parameters
    ----------
    texts : sequence of str
        ``NAME=SPEC`` from the command line.
    tree : mapping, optional
        The ``vary:`` block of a scenario file: name to text or to a list of values.
    where : str
        Put before problems of the file, such as ``"plan.yaml: "``.

    Returns
    -------
    tuple of Axis
        In the order given, those of the file first; the first varies slowest. A replaced axis keeps its
        place. A value is a number, a word (``auto`` too) or a flag; values of a profile path stay text.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> read_axes(["tile_cnt=1..4,8", "m=1K..4K:x2"])[1]
    Axis(name='m', values=(1024.0, 2048.0, 4096.0))
    >>> read_axes(["tile_cnt=1.."])
    Traceback (most recent call last):
    mc2perf.problems.InputError: vary: 'tile_cnt=1..' has no end; write for example tile_cnt=1..32
    """
    problems: list[str] = []
    given = _given(texts, problems)
    filed = _filed(tree, where, problems)
    axes = []
    for name, spec in {**filed, **given}.items():
        reader = _Reader(name, problems, "" if name in given else where)
        axes.append(Axis(name, reader.values(spec)))
    if problems:
        raise InputError(problems)
    return tuple(axes)


def rows_of(axes: Iterable[Axis]) -> int:
    """Rows of the product of all axes.

    Examples
    --------
    >>> rows_of(read_axes(["tile_cnt=1..4", "rdma=true,false"]))
    8
    """
    return math.prod(len(axis.values) for axis in axes)


def _given(texts: Sequence[str], problems: list[str]) -> dict[str, object]:
    """Axes of the command line: name -> what stands right of the equals sign."""
    found: dict[str, object] = {}
    for text in texts:
        name, equals, spec = (part.strip() for part in text.partition("="))
        if not equals or not name:
            example = f"{name or 'tile_cnt'}=1..32" if _numeric(name or "tile_cnt") else f"{name}=a,b"
            problems.append(f"vary: '{text}' is not NAME=VALUES; write for example {example}")
        elif name in found:
            problems.append(f"vary: '{name}' is given twice; write one list, {name}={found[name]},{spec}")
        else:
            found[name] = spec
    return found


def _filed(tree: object, where: str, problems: list[str]) -> dict[str, object]:
    """Axes of a file."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        problems.append(f"{where}vary: expected lines of 'name: values'; write for example tile_cnt: 1..32")
        return {}
    return {str(name): spec for name, spec in tree.items()}


def _numeric(name: str) -> bool:
    return name in _INPUTS and _INPUTS[name][0].dim is not None


@dataclass(frozen=True)
class _Reader:
    """Reads the values of one axis; notes what is wrong with each item."""

    name: str
    problems: list[str]
    where: str

    def wrong(self, what: str, item: object = None) -> None:
        shown = f"'{self.name}'" if item is None else f"'{self.name}={item}'"
        self.problems.append(f"{self.where}vary: {shown} {what}")

    def values(self, spec: object) -> tuple[Value, ...]:
        """All values in order, each once."""
        if not self._known():
            return ()
        values: list[Value] = []
        for item in _items(spec):
            try:
                values += self._item(item)
            except ValueError as error:
                self.wrong(str(error), item)
            if len(values) > MOST_VALUES:
                self.wrong(f"has more than {MOST_VALUES} values; write fewer")
                break
        return tuple(dict.fromkeys(values))

    def _known(self) -> bool:
        if self.name in _NAMES or ("." in self.name and all(self.name.split("."))):
            return True
        if self.name == "dispatcher":
            self.wrong(f"is another word for schedule; write schedule={','.join(DISPATCHERS.values())}")
        else:
            self.wrong(f"is no input to vary{did_you_mean(self.name, _NAMES, 'mc2perf sweep --help')}")
        return False

    def _item(self, item: object) -> list[Any]:
        """The values of one item; ``ValueError`` says what is wrong with it."""
        if not isinstance(item, str | int | float):
            raise ValueError("is no value; write text, a number, or a list of them")
        if item == "":
            raise ValueError(f"has an empty value; write for example {self._example()}")
        if isinstance(item, str) and ".." in item and self.name != "target":
            begin = self._beginning(item)
            return [self._value(item)] if begin is None else self._range(item, begin)
        return [self._value(item)]

    def _beginning(self, item: str) -> str | None:
        """What stands before the numbers of a range of text; None where text only looks like a range."""
        if self.name not in _INPUTS or not (begins := _INPUTS[self.name][0].numbers):
            return ""
        found = max((begin for begin in begins if item.startswith(begin)), key=len, default=None)
        return found if found is not None and item[len(found) :][:1].isdigit() else None

    def _value(self, item: object) -> Value:
        if self.name == "target":
            return _target(str(item))
        if self.name not in _INPUTS:  # a path of the profile, as --set takes it
            return str(item).lower() if isinstance(item, bool) else str(item)
        how, default = _INPUTS[self.name]
        if how.auto and item == "auto":
            return "auto"
        if self.name == "schedule" and item == "all":
            raise ValueError(f"is not one schedule; write schedule={','.join(SCHEDULES)}")
        return _plain(item, how, default)

    def _range(self, item: str, begin: str) -> list[Any]:
        how = _INPUTS[self.name][0] if self.name in _INPUTS else None
        dim = how and (how.dim or how.numbers.get(begin))
        if not dim:
            raise ValueError(f"is a range, but only numbers have ranges; write a list, {self.name}=a,b")
        numbers = self._stepped(item.removeprefix(begin), dim)
        return (
            [self._value(f"{begin}{number:.15g}") for number in numbers] if how and how.numbers else numbers
        )

    def _stepped(self, item: str, dim: Dim) -> list[float]:
        """Numbers from start to end."""
        start, _, rest = (part.strip() for part in item.partition(".."))
        stop, colon, step = (part.strip() for part in rest.partition(":"))
        for missing, what in ((not start, "start"), (not stop, "end"), (colon and not step, "step")):
            if missing:
                raise ValueError(f"has no {what}; write for example {self._example()}")
        first, last = _end(start, dim), _end(stop, dim)
        if first > last:
            raise ValueError(f"runs down; write {self.name}={stop}..{start}{colon}{step}")
        if step.startswith("x"):
            return _by_factor(first, last, step[1:], dim)
        return _by_step(first, last, step or "1", dim)

    def _example(self) -> str:
        if not _numeric(self.name):
            return f"{self.name}=a,b"
        whole = getattr(_INPUTS[self.name][0].dim, "whole", False)
        return f"{self.name}={'1..32' if whole else '1..2:0.25'}"


def _items(spec: object) -> list[object]:
    """Text is cut at commas, a list is taken as it is, anything else is one value."""
    if isinstance(spec, str):
        return [part.strip() for part in spec.split(",")]
    if isinstance(spec, list | tuple):
        return [part.strip() if isinstance(part, str) else part for part in spec] or [""]
    return [spec]


def _target(name: str) -> str:
    for problem in unknown_target(name):
        raise ValueError(f"is not known: {problem.removeprefix('target: ')}")
    return name


def _plain(item: object, how: Input, default: object) -> Value:
    """One value as a scenario reads it; the command line writes flags as true or yes, false or no."""
    if isinstance(default, bool):
        item = {"true": True, "false": False, "yes": True, "no": False}.get(str(item).lower(), item)
    try:
        value = typed(item, how, default)
    except ValueError as error:
        raise ValueError(f"is refused: {error}") from None
    return value if isinstance(value, float | bool | Skew) else str(value)


def _end(text: str, dim: Dim) -> float:
    try:
        return number(text, dim)
    except ValueError as error:
        raise ValueError(f"is refused: {error}") from None


def _by_step(first: float, last: float, text: str, dim: Dim) -> list[float]:
    """Steps in whole multiples of a common denominator, so that 1..2:0.1 has 1.3 as text reads it."""
    step = _end(text, COUNT if dim.whole else NUMBER)
    exact = [Fraction(repr(number)) for number in (first, last, step)]
    unit = math.lcm(*(number.denominator for number in exact))
    start, stop, by = (int(number * unit) for number in exact)
    _refuse_many((stop - start) // by + 1)
    return [number / unit for number in range(start, stop + 1, by)]


def _by_factor(first: float, last: float, text: str, dim: Dim) -> list[float]:
    factor = _end(text, NUMBER)
    if factor <= 1.0 or first == 0.0:
        what = "grows by a factor of at most 1" if factor <= 1.0 else "starts at 0, which no factor moves"
        raise ValueError(f"{what}; write a factor above 1, such as 1..32:x2")
    steps = math.log(last / first) / math.log(factor)
    _refuse_many(int(steps) + 1)
    grown = (float(f"{first * factor**i:.{_DIGITS}g}") for i in range(int(steps + 1e-9) + 1))
    values = [number for number in grown if number <= last]
    broken = next((number for number in values if dim.whole and number != int(number)), None)
    if broken is not None:
        raise ValueError(f"reaches {broken:g}, which is not {dim.what}; write a whole factor, or a list")
    return values


def _refuse_many(count: int) -> None:
    if count > MOST_VALUES:
        raise ValueError(f"has about {count:.3g} values; write at most {MOST_VALUES}")
