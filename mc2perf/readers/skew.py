"""How tokens are spread over experts, from one word: a factor, a law, or files of counts."""

from __future__ import annotations

import re
from pathlib import Path

from mc2perf.problems import InputError, did_you_mean
from mc2perf.skew import Counted, Drawn, Factor, Skew
from mc2perf.units import EXPONENT, FACTOR, parse

WORDS: dict[str, Skew] = {"even": Skew(), "random": Drawn("random")}
"""Skews that need no number."""

FORMS = ("even", "random", "zipf:1.0", "1.5", "counts.csv")
"""One of every kind, to be written instead of what is wrong."""

_NUMBER = re.compile(r"[-+.\d]|nan|inf", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"\d+")


def read_skew(value: object) -> Skew:
    """Read a skew.

    Parameters
    ----------
    value : object
        ``even``; ``random``; ``zipf:EXPONENT``; a number of at least 1, the load of the busiest rank over
        the mean; or a CSV file of tokens by expert. Of files of single ranks, as profilers write them, a
        pattern such as ``decode_*.csv`` puts the experts side by side, by the numbers in their names.

    Returns
    -------
    Skew
        Its text reads back as the same.

    Raises
    ------
    ValueError
        What is wrong, in one line.

    Examples
    --------
    >>> read_skew(1.5), read_skew("zipf:0.8").exponent
    (Factor(text='1.5', exponent=0.0, factor=1.5), 0.8)
    """
    if isinstance(value, Skew):
        return value
    text = str(value)
    law, colon, exponent = text.partition(":")
    if text in WORDS:
        return WORDS[text]
    if law == "zipf" and colon:
        number = parse(exponent, EXPONENT)
        return Skew(f"zipf:{number:g}", number)
    if isinstance(value, int | float) or (_NUMBER.match(text) and not text.endswith(".csv")):
        return Factor.of(parse(value, FACTOR))
    return _counted(text)


def _counted(text: str) -> Skew:
    """Counts of one file, or of the files of all ranks."""
    files = _files(text)
    if not files:
        raise ValueError(f"'{text}' is no skew and no file{did_you_mean(text, FORMS)}")
    try:
        found = [_layers(file) for file in files]
    except InputError as error:
        raise ValueError("; ".join(error.problems)) from None
    if len({len(layers) for layers in found}) > 1:
        raise ValueError(f"'{text}': the files have different numbers of layers; give those of one run")
    layers = (tuple(count for slots in parts for count in slots) for parts in zip(*found, strict=True))
    return Counted(text, layers=tuple(layers))


def _files(text: str) -> list[Path]:
    """The file of this name, or those that a pattern matches, by the numbers in their names."""
    path = Path(text)
    try:
        if "*" not in path.name:
            return [path] if path.is_file() else []
        return sorted(path.parent.glob(path.name), key=lambda p: [int(n) for n in _DIGITS.findall(p.name)])
    except (OSError, ValueError):
        return []


def _layers(file: Path) -> tuple[tuple[float, ...], ...]:
    """Tokens by layer and expert; a row that is set aside is no small thing here."""
    from mc2perf.measured import ExpertLoad  # costs 100 ms, and few skews are files
    from mc2perf.readers.measured import read_measured

    found = read_measured(file)
    if not isinstance(found.data, ExpertLoad):
        raise InputError([f"{file}: is {found.format}; write a CSV with columns expert, tokens (and layer)"])
    if found.report.set_aside:
        raise InputError([f"{file}: {aside.first}: {aside.reason}" for aside in found.report.set_aside])
    return found.data.tokens
