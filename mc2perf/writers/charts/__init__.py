"""Charts: what is drawn, apart from how. Lines, bars and bands over two axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "log", "log2"]


@dataclass(frozen=True)
class Axis:
    """What an axis shows, its unit (``s``, ``1`` for shares, ``FLOP/s``, ``FLOP/B`` or empty), its scale."""

    label: str
    unit: str = ""
    scale: Scale = "linear"


@dataclass(frozen=True)
class Line:
    """Values over values: ``joined``, with or without marks, or marks alone.

    ``of`` names another line, whose look this one shares, dashed.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    joined: bool = True
    marked: bool = True
    of: str = ""


@dataclass(frozen=True)
class Band:
    """A region of the horizontal axis."""

    label: str
    first: float
    last: float


@dataclass(frozen=True)
class Bars:
    """Stacked bars: for each category the height of every part."""

    categories: tuple[str, ...]
    parts: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Chart:
    """One chart; ``note`` stands below it."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()
    bars: Bars | None = None
    note: str = ""

    @property
    def words(self) -> Iterator[str]:
        """Every text that is drawn."""
        yield from (self.title, self.x.label, self.y.label, self.note)
        yield from (line.label for line in self.lines)
        yield from (band.label for band in self.bands)
        if self.bars:
            yield from (*self.bars.categories, *self.bars.parts)
