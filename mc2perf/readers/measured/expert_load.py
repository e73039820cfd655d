"""Tokens by layer and expert slot, as profilers count them: no header, a row per layer."""

from __future__ import annotations

import csv
import re

from mc2perf.measured import ExpertLoad, Measured
from mc2perf.problems import InputError
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.units import WIDTH

LEAST_SLOTS = 4
"""Fewer columns of whole numbers may be anything."""

_ROW = re.compile(rf"\s*\d+(?:\.0*)?(?:\s*,\s*\d+(?:\.0*)?){{{LEAST_SLOTS - 1},}}\s*", re.ASCII)


def read(source: Source) -> Measured:
    """Read token counts.

    Returns
    -------
    Measured
        `ExpertLoad`; rows without any token, and rows of another length than the first, are set aside.

    Raises
    ------
    InputError
        No row that can be used, and what is no CSV.
    """
    tally = Tally(source)
    layers: list[tuple[float, ...]] = []
    reader = csv.reader(source.lines())
    try:
        for cells in filter(None, reader):
            _take(cells, layers, tally, f"line {reader.line_num}")
    except csv.Error as error:
        raise InputError([f"{source.name}: line {reader.line_num}: is not CSV ({error})"]) from None
    tally.read = len(layers)
    tally.note("no header: rows are taken as MoE layers, columns as expert slots, numbers as tokens")
    return tally.close("expert_load", "layers", ExpertLoad(tuple(layers)))


def _take(cells: list[str], layers: list[tuple[float, ...]], tally: Tally, where: str) -> None:
    try:
        row = tuple(_count(cell) for cell in cells)
        if layers and len(row) != len(layers[0]):
            raise ValueError("another number of slots than the first row")
        if not any(row):
            raise ValueError("no tokens at all")
    except ValueError as error:
        tally.aside(re.sub(r"^'.*' ", "a count ", str(error)), where)
        return
    layers.append(row)


def _count(cell: str) -> float:
    found = scaled(cell, WIDTH)
    if found is None:
        raise ValueError("a count is missing")
    return found


FORMAT = Format(
    "expert_load",
    f"a CSV without header of {LEAST_SLOTS} or more whole numbers in every row",
    lambda source: _ROW.fullmatch(next((x for x in source.head.splitlines() if x.strip()), "")) is not None,
    read,
)
