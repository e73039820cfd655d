"""Rows of a sweep for people: human units, only the columns that say something."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mc2perf.table import Block, Column, Words, length
from mc2perf.units import show

SHOWN = (
    "pieces", "piece_rows", "rest_rows", "total_time", "speedup", "comm_ratio", "exposed_comm_time",
    "tokens_per_second", "flat_first", "flat_last", "npus_needed", "npus_needed_without_comm",
    "servers_needed",
    "cost_per_million_tokens", "cost_per_million_tokens_without_comm", "bound", "warnings", "reason",
)  # fmt: skip
"""Columns of the table in the terminal, after those that vary; empty ones are left out."""

PERCENT = ("comm_ratio", "hidden_ratio", "overlap_efficiency")


def to_text(block: Block, columns: Sequence[Column], *, whole: bool = False) -> str:
    """A plain table; a column without any value is left out unless the ``whole`` table is wanted."""
    from tabulate import tabulate  # costs 40 ms

    kept = [column for column in columns if whole or not _empty(block, column)]
    cells = [_cells(block, column) for column in kept]
    align = ["left" if isinstance(block[column.name], Words) else "right" for column in kept]
    headers = [column.name for column in kept]
    rows = list(zip(*cells, strict=True))
    return str(tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True)) + "\n"


def _empty(block: Block, column: Column) -> bool:
    values = block[column.name]
    if isinstance(values, Words):
        return not any(values)
    return length(block) > 0 and bool(np.isnan(values).all())


def _cells(block: Block, column: Column) -> list[str]:
    values = block[column.name]
    if isinstance(values, Words):
        shown = Words(values.codes, tuple(map(_printable, values.texts)))
        return list(shown)
    return [_cell(value, column) for value in values.tolist()]


def _cell(value: float, column: Column) -> str:
    if math.isnan(value):
        return ""
    if column.name in PERCENT:
        return f"{value:.1%}"
    if column.unit == "s":
        return show(value, "s")
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e12 else f"{value:.4g}"


def _printable(text: str) -> str:
    """Text without line ends and escape codes, such as the name of a file may have."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
