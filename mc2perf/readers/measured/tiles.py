"""Measured time by number of tiles: a CSV with ``tile_cnt`` and a time, or YAML."""

from __future__ import annotations

import re
from typing import Any

from mc2perf.measured import Measured, TileTimes
from mc2perf.readers.measured.cells import Column, has, header, rows, time_column
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.readers.structure import parse_yaml
from mc2perf.units import COUNT, TIME, parse

NAMES = ("tile_cnt", "tileCnt", "tiles")

_YAML = re.compile(r"^\s*(?:-\s*)?[{]?\s*(?:tile_cnt|tileCnt|tiles)\s*:", re.MULTILINE)
Point = tuple[int, float]


def read_csv(source: Source) -> Measured:
    """Read ``tile_cnt,time_us``, or ``tile_cnt,time`` with a unit in each cell (``1.2 ms``).

    Raises
    ------
    InputError
        No tile count or time in the header, or no row that can be used.
    """
    tally, points = Tally(source), list[Point]()
    name, unit = time_column(header(source)) or ("time", None)
    columns = {"count": Column(NAMES, COUNT)}
    columns["time"] = Column((name,), TIME, unit) if unit else Column((name,))
    for line, row in rows(source, columns, tally):
        _take(row["count"], row["time"], unit is not None, points, tally, f"line {line}")
    return _close(points, tally, "tile_times")


def read_yaml(source: Source) -> Measured:
    """Read a list of ``{tile_cnt: 4, time: 1.2 ms}``, or below ``tile_cnt:`` lines ``4: 1.2 ms``.

    Raises
    ------
    InputError
        No YAML, or no entry that can be used.
    """
    tally, points = Tally(source), list[Point]()
    for where, count, time in _entries(source):
        try:
            _take(scaled(count, COUNT), time, False, points, tally, where)
        except ValueError as error:
            tally.aside(re.sub(r"^'.*' ", "tile_cnt ", str(error)), where)
    return _close(points, tally, "tile_times.yaml")


def _entries(source: Source) -> list[tuple[str, Any, Any]]:
    """Place, count and time of each entry."""
    text = source.text()
    if re.search(r"^\s*-", text, re.MULTILINE):
        text = text if re.match(r"\s*[A-Za-z_]\w*:", text) else f"points:\n{text}"
    tree = parse_yaml(text, source.name)
    below = next(iter(tree.values()), None)
    if isinstance(below, dict):
        return [(str(count), count, time) for count, time in below.items()]
    items = below if isinstance(below, list) else [tree]
    return [(f"entry {index + 1}", *_pair(item)) for index, item in enumerate(items)]


def _pair(item: Any) -> tuple[Any, Any]:
    """Count and time of a mapping; a name of the time may carry the unit."""
    if not isinstance(item, dict):
        return None, None
    count = next((item[name] for name in NAMES if name in item), None)
    found = time_column(map(str, item))
    if found is None:
        return count, None
    value = item[found[0]]
    return count, _seconds(value, found[1])


def _seconds(value: Any, unit: float | None) -> Any:
    return f"{value} {_SPELLED[unit]}" if unit and isinstance(value, int | float) else value


_SPELLED = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


def _take(
    count: float | None, time: Any, in_seconds: bool, points: list[Point], tally: Tally, where: str
) -> None:
    """Take one point; a time that is not in seconds yet must name its unit."""
    try:
        seconds = time if in_seconds else parse(time, TIME)
        if not seconds or not count:
            raise ValueError("is missing or zero")
    except ValueError as error:
        tally.aside(f"tile_cnt or time: {error}", where)
        return
    points.append((int(count), seconds))


def _close(points: list[Point], tally: Tally, form: str) -> Measured:
    tally.read = len(points)
    return tally.close(form, "times", TileTimes(tuple(points)))


FORMATS = (
    Format(
        "tile_times",
        "a CSV header with tile_cnt and time",
        lambda source: has(source, NAMES) and time_column(header(source)) is not None,
        read_csv,
    ),
    Format(
        "tile_times.yaml",
        "YAML with tile_cnt and time",
        lambda source: _YAML.search(source.head) is not None and "time" in source.head,
        read_yaml,
    ),
)
