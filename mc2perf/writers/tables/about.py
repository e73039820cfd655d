"""What a table says beside its rows, how its numbers look, and what every writer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Literal

from mc2perf.table import Block, Column
from mc2perf.writers.tables.what_if import WhatIf

Digits = Literal["9", "full"]
"""``9`` significant digits for people and spreadsheets, ``full`` for the very same float."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a workbook says beside the results."""

    title: str
    inputs: Mapping[str, object]
    """The question: name -> value."""
    profiles: Sequence[tuple[str, str, str, str, str, str]]
    """Parameters of the machines: machine, path, value, unit, kind, source."""
    dictionary: Sequence[Column]
    """What every column means."""
    what_if: WhatIf | None = None


@dataclass(frozen=True, kw_only=True)
class Style:
    """Byte-order mark of a CSV file, digits of numbers in text."""

    bom: bool = True
    digits: Digits = "9"


Writer = Callable[[BinaryIO, Sequence[Column], About, Style], AbstractContextManager[Callable[[Block], None]]]
"""Opens a table in a binary file: what it gives takes blocks, a clean exit completes the file."""
