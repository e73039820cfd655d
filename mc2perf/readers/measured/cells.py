"""CSV tables by the names of their columns: aliases, any order, unknown columns ignored."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mc2perf.problems import InputError
from mc2perf.readers.measured.source import MISSING, Source, Tally, scaled
from mc2perf.units import TIME, Dim

NO_ID = "4294967295"
"""What profilers write for no rank, device or step: -1 in 32 bits."""

Places = list[tuple[str, "Column", int]]
"""Our name of each column of a file, what it holds, and where it stands."""

_TIME = re.compile(r"(?:time|latency|duration)(?:[_ ]?[(\[]?(s|ms|us|ns)[)\]]?)?")
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Column:
    """What a column is called, what it holds (text without a dimension), and whether a row needs it."""

    names: tuple[str, ...]
    dim: Dim | None = None
    unit: float = 1.0
    needed: bool = True


def microseconds(*names: str, needed: bool = True) -> Column:
    """A column of times in microseconds."""
    return Column(names, TIME, 1e-6, needed)


def plain(name: str) -> str:
    r"""A name as it is compared: lower case, single spaces, none before a bracket.

    Examples
    --------
    >>> plain(" Start Time (us)\t")
    'start time(us)'
    """
    return re.sub(r"\s+\(", "(", " ".join(name.split())).casefold()


def header(source: Source) -> tuple[str, ...]:
    """Compared names of the first line that is not blank; empty cells where it is no table."""
    first = next((line for line in source.head.splitlines() if line.strip()), "")
    try:
        return tuple(plain(cell) for cell in next(csv.reader([first]), []))
    except csv.Error:
        return ()


def has(source: Source, *choices: str | Iterable[str]) -> bool:
    """Whether the header has, of each choice, one name."""
    found = set(header(source))
    return all(found & {plain(n) for n in ((c,) if isinstance(c, str) else c)} for c in choices)


def placed(found: Sequence[str], columns: Mapping[str, Column], name: str) -> dict[str, int]:
    """Where each column stands; missing and doubled ones are an `InputError` of one line each."""
    places: dict[str, int] = {}
    problems = []
    for key, column in columns.items():
        wanted = {plain(n) for n in column.names}
        at = [index for index, cell in enumerate(found) if cell in wanted]
        if len(at) > 1:
            problems.append(f"{name}: header: '{found[at[0]]}' stands {len(at)} times; keep one column")
        elif at:
            places[key] = at[0]
        elif column.needed:
            problems.append(f"{name}: header: has no column '{column.names[0]}'")
    if problems:
        raise InputError(problems)
    return places


def rows(
    source: Source, columns: Mapping[str, Column], tally: Tally, delimiter: str = ","
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a table as typed values in SI, one at a time; broken rows are set aside.

    Parameters
    ----------
    source, tally : Source, Tally
        The file, and what counts.
    columns : mapping
        Our name to what the column is called.
    delimiter : str
        Between cells.

    Yields
    ------
    tuple of int and dict
        The line, and a value (or ``None`` where it is missing) for every column.

    Raises
    ------
    InputError
        No header, missing columns, and what is no CSV.
    """
    reader = csv.reader(source.lines(), delimiter=delimiter, strict=False)
    found = tuple(map(plain, _next(reader, source) or []))
    places = [(key, columns[key], at) for key, at in placed(found, columns, source.name).items()]
    while (cells := _next(reader, source)) is not None:
        line = reader.line_num
        if not any(map(str.strip, cells)):
            continue
        if cells[0][:1].casefold() == found[0][:1] and tuple(map(plain, cells)) == found:
            tally.aside("the header again", f"line {line}")
        elif len(cells) < len(found) or any(map(str.strip, cells[len(found) :])):
            tally.aside(f"{len(found)} columns in the header, another number in the row", f"line {line}")
        else:
            values = _values(cells, columns, places, tally, line)
            if values is not None:
                yield line, values


def _next(reader: Any, source: Source) -> Any:
    """The next row; ``None`` at the end."""
    try:
        for cells in reader:
            if cells:
                return cells
        return None
    except csv.Error as error:
        raise InputError([f"{source.name}: line {reader.line_num}: is not CSV ({error})"]) from None


def _values(
    cells: list[str], columns: Mapping[str, Column], places: Places, tally: Tally, line: int
) -> dict[str, Any] | None:
    values: dict[str, Any] = dict.fromkeys(columns)
    for key, column, at in places:
        cell = cells[at].strip()
        if column.dim is None:
            values[key] = "" if cell == NO_ID or cell.lower() in MISSING else cell
            continue
        try:
            found = scaled(cell, column.dim, column.unit)
        except ValueError as error:
            tally.aside(f"{column.names[0]}: {_kind(error)}", f"line {line} ({error})")
            return None
        if found is None and column.needed:
            tally.aside(f"{column.names[0]}: is missing", f"line {line}")
            return None
        values[key] = found
    return values


def _kind(error: ValueError) -> str:
    """The reason without what was quoted."""
    return re.sub(r"^'.*' ", "", str(error), flags=re.DOTALL)


def time_column(names: Iterable[str]) -> tuple[str, float | None] | None:
    """The column that holds a time, and its unit in seconds (``None``: each cell says its own).

    Examples
    --------
    >>> time_column(["m", "time_us"]), time_column(["tile_cnt", "time (ms)"]), time_column(["m"])
    (('time_us', 1e-06), ('time (ms)', 0.001), None)
    """
    for name in names:
        found = _TIME.fullmatch(plain(name))
        if found:
            return name, _UNITS[found[1]] if found[1] else None
    return None


_SPELLINGS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "hifloat8": "fp8", "float8_e4m3fn": "fp8",
}  # fmt: skip


def element_type(text: str) -> str:
    """An element type as we call it, however torch, CANN or a benchmark spells it.

    Examples
    --------
    >>> element_type("torch.bfloat16"), element_type("DT_FLOAT16"), element_type("w8a8")
    ('bf16', 'fp16', 'w8a8')
    """
    name = text.strip().casefold().removeprefix("torch.").removeprefix("dt_")
    return _SPELLINGS.get(name, name)
