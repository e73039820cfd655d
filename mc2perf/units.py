"""What a quantity is: dimensions, the spellings of their units, reading and printing them.

Text with units lives in YAML and on the command line; everything inside is SI (s, B, B/s, FLOP/s).
Spellings are an enumerated table: what is not listed is refused, with a hint where it is ambiguous
(``gb/s`` may mean bits or bytes).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Num = float | NDArray[np.floating[Any]]
else:
    Num = Any  # only annotations name it; --help then does without NumPy
"""A number or a column of numbers: every equation takes either and returns the same."""


@dataclass(frozen=True)
class Dim:
    """A dimension: its SI symbol, how it scales with the unit of time, and what values it may take.

    ``time_power`` is the exponent of seconds: a rate has -1, a time 1. Measuring everything with a clock
    that runs c times faster multiplies a quantity by c ** -time_power. What is neither 0 nor as large as
    ``tiny`` is a slip of the pen, whose reciprocal no float would hold.
    """

    symbol: str
    what: str
    time_power: int = 0
    at_most: float = math.inf
    at_least: float = 0.0
    tiny: float = 0.0
    may_be_zero: bool = False
    whole: bool = False
    signed: bool = False
    example: str = ""


TIME = Dim("s", "a time", 1, at_most=1e6, tiny=1e-15, may_be_zero=True)
SIZE = Dim("B", "a size", at_most=1e18, tiny=1.0, may_be_zero=True)
RATE = Dim("B/s", "a bandwidth", -1, at_most=1e18, tiny=1e3)
COMPUTE = Dim("FLOP/s", "a compute rate", -1, at_most=1e21, tiny=1e6)
SLOPE = Dim("s/B", "a time per size", 1, at_most=1.0, tiny=1e-18, may_be_zero=True)
CURVATURE = Dim("s/B^2", "a time per size squared", 1, at_most=1.0, tiny=1e-36, signed=True)
RATIO = Dim("1", "a ratio in (0, 1]", at_most=1.0, tiny=1e-6, example="0.8")
FACTOR = Dim("1", "a factor of at least 1", at_least=1.0, at_most=1e6, example="1.5")
NUMBER = Dim("1", "a positive number", at_most=1e18, tiny=1e-9, example="1.5")
EXPONENT = Dim("1", "an exponent from 0 to 10", at_most=10.0, tiny=1e-9, may_be_zero=True, example="1.0")
CAPACITY = Dim("1", "a capacity factor", at_least=0.01, at_most=1e3, example="1.25")
COUNT = Dim("1", "a whole number of at least 1", at_least=1.0, at_most=1e12, whole=True, example="8")
CHANCE = Dim("1", "a chance from 0 to 1", at_most=1.0, tiny=1e-9, may_be_zero=True, example="0.8")
WIDTH = Dim("1", "a whole number of at least 0", at_most=1e12, may_be_zero=True, whole=True, example="2048")

Seconds = Annotated[float, TIME]
Bytes = Annotated[float, SIZE]
BytesPerSecond = Annotated[float, RATE]
FlopsPerSecond = Annotated[float, COMPUTE]
SecondsPerByte = Annotated[float, SLOPE]
SecondsPerByte2 = Annotated[float, CURVATURE]
Ratio = Annotated[float, RATIO]
Factor = Annotated[float, FACTOR]
Number = Annotated[float, NUMBER]
Count = Annotated[float, COUNT]

MIB = 1024.0**2

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DECIMAL = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_BINARY = {"KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "TiB": 1024.0**4}
_BITS = {"kbit": 125.0, "Mbit": 1.25e5, "Gbit": 1.25e8, "Tbit": 1.25e11}
_SIZES = _DECIMAL | _BINARY

SPELLINGS: dict[str, dict[str, float]] = {
    "s": _TIMES,
    "B": _SIZES,
    "B/s": {f"{size}/s": value for size, value in (_SIZES | _BITS).items()}
    | {"kbps": 125.0, "Mbps": 1.25e5, "Gbps": 1.25e8, "Tbps": 1.25e11}
    | {"Kb/s": 125.0, "Mb/s": 1.25e5, "Gb/s": 1.25e8, "Tb/s": 1.25e11},
    "FLOP/s": {
        f"{prefix}{word}": value
        for prefix, value in {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15}.items()
        for word in ("FLOP/s", "FLOPS", "OP/s", "OPS")
    },
    "s/B": {f"{time}/{size}": t / s for time, t in _TIMES.items() for size, s in _SIZES.items()},
    "s/B^2": {f"{time}/{size}^2": t / s**2 for time, t in _TIMES.items() for size, s in _SIZES.items()},
    "1": {},
}
"""SI symbol of a dimension -> every accepted spelling of its unit -> that unit in SI."""

_OWNER = {spelling: symbol for symbol, units in SPELLINGS.items() for spelling in units}
_HINTS = {
    "gb/s": "write GB/s (bytes) or Gbit/s (bits)",
    "mb/s": "write MB/s (bytes) or Mbit/s (bits)",
    "tb/s": "write TB/s (bytes) or Tbit/s (bits)",
    "g": "write GB, GB/s or GFLOP/s",
    "m": "write MB, MB/s or ms",
    "t": "write TB/s or TFLOP/s",
    "k": "write KiB or kB",
}
_BARE = {
    RATIO: "write a ratio between 0 and 1, such as 0.8",
    FACTOR: "write a factor such as 1.5",
}
"""What to write instead of a number with a unit or a per cent sign, where no unit exists."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf|nan)(?![\d.])(.*)", re.IGNORECASE)
_EXAMPLES = {
    "s": "1.5 us",
    "B": "64 GiB",
    "B/s": "28 GB/s",
    "FLOP/s": "353.9 TFLOP/s",
    "s/B": "13.58 us/MiB",
    "s/B^2": "-0.97 us/MiB^2",
}


def parse(value: object, dim: Dim) -> float:
    """Read a quantity written as text with a unit (or a bare number where no unit exists).

    Parameters
    ----------
    value : object
        What YAML or the command line gave: ``"28 GB/s"``, ``0.85``, ``8``.
    dim : Dim
        The dimension it must have.

    Returns
    -------
    float
        The value in SI.

    Raises
    ------
    ValueError
        One line: what is wrong; what to write.

    Examples
    --------
    >>> parse("200 Gbit/s", RATE)
    25000000000.0
    >>> parse("80 %", RATIO)
    Traceback (most recent call last):
    ValueError: '80 %' is not a ratio in (0, 1]; write a ratio between 0 and 1, such as 0.8
    """
    text = str(value).strip()
    number, unit = _split(value, text, dim)
    if dim.symbol == "1":
        if unit:
            bare = _BARE.get(dim, f"write a bare number such as {dim.example}")
            raise ValueError(f"'{text}' is not {dim.what}; {bare}")
        scale = 1.0
    else:
        scale = _unit_scale(text, unit, dim)
    return _within(number * scale, text, dim)


def _split(value: object, text: str, dim: Dim) -> tuple[float, str]:
    """Cut ``"28 GB/s"`` into 28.0 and ``"GB/s"``."""
    found = _NUMBER.fullmatch(text)
    if isinstance(value, bool) or not isinstance(value, Real | str) or not found:
        raise ValueError(f"{value!r} is not {dim.what}; write for example {_example(dim)}")
    return float(found[1]), found[2].strip()


def _example(dim: Dim) -> str:
    return dim.example or _EXAMPLES[dim.symbol]


def _unit_scale(text: str, unit: str, dim: Dim) -> float:
    """Look a unit up; refuse what is missing, of another dimension, or ambiguous."""
    scale = SPELLINGS[dim.symbol].get(unit)
    if scale is not None:
        return scale
    if not unit:
        raise ValueError(f"'{text}' has no unit; write for example {_example(dim)}")
    if unit in _OWNER:
        raise ValueError(f"'{text}' is in {_OWNER[unit]}, expected {dim.symbol}")
    hint = _HINTS.get(unit.lower(), f"write for example {_example(dim)}")
    raise ValueError(f"'{text}': unit '{unit}' is unknown or ambiguous; {hint}")


def _within(number: float, text: str, dim: Dim) -> float:
    """Refuse what is not finite or outside the range of the dimension."""
    if not math.isfinite(number):
        raise ValueError(f"'{text}' is not a finite number")
    if dim.whole and number != int(number):
        raise ValueError(f"'{text}' is not {dim.what}")
    refused = not dim.signed and (number < dim.at_least or (number == 0 and not dim.may_be_zero))
    if refused or 0 < abs(number) < dim.tiny:
        raise ValueError(f"'{text}' is too small for {dim.what}{_bounds_hint(number, dim)}")
    if abs(number) > dim.at_most:
        raise ValueError(f"'{text}' is too large for {dim.what}{_bounds_hint(number, dim)}")
    return number


def _bounds_hint(number: float, dim: Dim) -> str:
    """What to write instead; a ratio may look like a percentage."""
    if dim is RATIO and 1 < number <= 100:
        return f"; write {number / 100:g}, not per cent"
    least, most = (show(bound, dim.symbol) for bound in (dim.tiny, dim.at_most))
    return f"; write {'0, or ' if dim.may_be_zero else ''}{least} to {most}" if dim.tiny else ""


_HUMAN = {
    "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)),
    "B": (("GiB", 1024.0**3), ("MiB", 1024.0**2), ("KiB", 1024.0), ("B", 1.0)),
    "B/s": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("B/s", 1.0)),
    "FLOP/s": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("FLOP/s", 1.0)),
    "s/B": (("us/MiB", 1e-6 / MIB),),
    "s/B^2": (("us/MiB^2", 1e-6 / MIB**2),),
    "1": (("", 1.0),),
}


def show(value: float, symbol: str, digits: int = 4) -> str:
    """Print an SI value in the unit a person would choose.

    Examples
    --------
    >>> show(0.00159, "s"), show(2.8e10, "B/s"), show(0.0, "s")
    ('1.59 ms', '28 GB/s', '0 s')
    """
    units = _HUMAN[symbol]
    unit, scale = next(((u, s) for u, s in units if abs(value) >= s), units[-1] if value else units[0])
    return f"{value / scale:.{digits}g} {unit}".rstrip()


def counted(number: float, noun: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(1, "size"), counted(3.0, "token")
    ('1 size', '3 tokens')
    """
    return f"{number:.15g} {noun}{'' if number == 1 else 's'}"
