"""Output of ``nccl-tests``: text of any generation, and the JSON of newer ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mc2perf.measured import CollectiveTime, CollectiveTimes, Measured
from mc2perf.problems import InputError
from mc2perf.readers.measured.source import Format, Source, Tally, number, scaled
from mc2perf.units import COUNT, TIME, Dim

NAMES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "scatter": "scatter",
    "gather": "gather",
}  # fmt: skip
RATE = Dim("1", "a rate", at_most=1e9, may_be_zero=True)
ERROR = 1e-1
"""Largest difference of results that an old table may print [1]; half precision differs by about 1e-2."""

END = "# Avg bus bandwidth"
"""The line after a test's last row."""

_HEADER = re.compile(
    r"^#\s+size\s+count\b.*\btime\b.*\balgbw\b|^#\s+size\s+count\b.*\bcputime\b", re.MULTILINE
)
_UNITS = re.compile(r"^#\s+\(B\)\s+\(elements\)\s+(.*)")
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\b")
_TEST = re.compile(r"\b([a-z_]+)_perf\b")
_STAMP = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?\b")
_BOUNDS = re.compile(r"^#\s+Out of bounds values\s*:\s*(\d+)\s+(\w+)")


class _Table:
    """What comment lines said, and the rows."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.op: str | None = None
        self.ranks: set[int] = set()
        self.columns: list[str] = []
        self.points: list[CollectiveTime] = []

    def line(self, text: str, where: str) -> None:
        """Take one line."""
        if (test := _TEST.search(text)) and "concluded" not in text:
            self.op = NAMES.get(test[1], self.op)
        if not text.startswith("#"):
            self._row(_STAMP.sub("", text).split(), where)
        elif _HEADER.match(text):
            self.columns = [word for word in text[1:].split() if word != "timestamp"]
        elif (units := _UNITS.match(text)) and set(re.findall(r"\(([munµ]?s)\)", units[1])) - {"us"}:
            raise InputError([f"{self.tally.source.name}: {where}: times are not in us; print them in us"])
        elif rank := _RANK.match(text):
            self.ranks.add(int(rank[1]))
        elif text.startswith(END):  # what follows is another test
            self.op, self.ranks, self.columns = None, set(), []
        elif (bounds := _BOUNDS.match(text)) and (int(bounds[1]) or bounds[2] != "OK"):
            self.tally.note(f"the test itself counts {bounds[1]} values out of bounds ({bounds[2]})")

    def _row(self, cells: list[str], where: str) -> None:
        if not self.columns or not cells or not cells[0].isdigit():
            return
        columns = _columns_of(cells, self.columns)
        if len(cells) != len(columns):
            self.tally.aside("another number of fields than the header", where)
            return
        end = _out_of_place(columns)
        self.take(dict(zip(columns[:end], cells[:end], strict=True)), where)

    def take(self, row: Mapping[str, Any], where: str) -> None:
        """Take one row of named values in us and GB/s."""
        try:
            if "time" not in row:
                raise ValueError("cputime (-C) is time of the host; run without -C")
            size, time = scaled(row.get("size"), COUNT), scaled(row["time"], TIME, 1e-6)
            if not size or not time:
                raise ValueError("size or time is missing or zero")
            _check(row, size, time)
        except ValueError as error:
            self.tally.aside(str(error), where)
            return
        self.points.append(CollectiveTime(size, time, self.op, len(self.ranks) or None))

    def close(self, form: str) -> Measured:
        """Every operation, group and size once, at its slowest."""
        self.tally.read = len(self.points)
        if any(p.op is None or p.ranks is None for p in self.points):
            self.tally.note("operation or ranks are not in the file; algbw is not the bus rate")
        slowest: dict[tuple[str | None, int | None, float], list[float]] = {}
        for p in self.points:
            slowest.setdefault((p.op, p.ranks, p.size), []).append(p.time)
        if len(slowest) < len(self.points):
            self.tally.note("sizes that stand several times: the slowest counts")
        found = (CollectiveTime(size, max(t), op, n, len(t)) for (op, n, size), t in slowest.items())
        return self.tally.close(form, "rows", CollectiveTimes(tuple(found)))


def _out_of_place(columns: list[str]) -> int:
    """Columns up to the second time, which belongs to the run in place."""
    times = [index for index, name in enumerate(columns) if name in ("time", "cputime")]
    return times[1] if len(times) > 1 else len(columns)


def _columns_of(cells: list[str], columns: list[str]) -> list[str]:
    """The header without the word that an old row leaves blank (redop of a gather)."""
    if len(cells) == len(columns) - 1 and "redop" in columns:
        at = columns.index("redop")
        return columns[:at] + columns[at + 1 :]
    return columns


def _check(row: Mapping[str, Any], size: float, time: float) -> None:
    """Refuse wrong results, and rates that do not follow from size and time."""
    wrong = number(row.get("#wrong"), RATE)
    error = number(row.get("error"), RATE)
    if wrong or (error or 0) > ERROR:
        raise ValueError("the result is wrong")
    rate = scaled(row.get("algbw"), RATE)
    if (
        rate is not None
        and abs(rate - size / time / 1e9) > 0.0051 + 0.01 * rate + size * 5e-9 / time**2 / 1e9
    ):
        raise ValueError("algbw: does not follow from size and time")


def read(source: Source) -> Measured:
    """Read the text of ``nccl-tests``; the columns out of place, by name.

    Raises
    ------
    InputError
        No row that can be used; times that are not in microseconds.
    """
    tally = Tally(source)
    table = _Table(tally)
    for index, text in enumerate(source.lines(), 1):
        table.line(text, f"line {index}")
    tally.note("out-of-place times; the columns in place and the average bus bandwidth are not used")
    return table.close("nccl-tests")


def read_json(source: Source) -> Measured:
    """Read what ``nccl-tests -J`` writes.

    Raises
    ------
    InputError
        No JSON, or no result that can be used.
    """
    tree, tally = source.tree(), Tally(source)
    table = _Table(tally)
    table.line(f"# {tree.get('args', '')} {tree.get('config', '')}", "args")
    devices = tree.get("devices")
    table.ranks = set(range(len(devices))) if isinstance(devices, list) else set()
    results = tree.get("results")
    for index, row in enumerate(results if isinstance(results, list) else []):
        where = f"results.{index}"
        place = row.get("out_of_place") if isinstance(row, dict) else None
        if not isinstance(place, dict):
            tally.aside("has no out_of_place", where)
            continue
        named = {"algbw": place.get("alg_bw"), "#wrong": place.get("nwrong"), "time": place.get("time")}
        table.take({"size": row.get("size"), **named}, where)
    return table.close("nccl-tests.json")


def _is_json(source: Source) -> bool:
    return source.head.lstrip().startswith("{") and '"out_of_place"' in source.head


FORMATS = (
    Format(
        "nccl-tests",
        "a line '# size count type ... time algbw busbw'",
        lambda source: _HEADER.search(source.head) is not None,
        read,
    ),
    Format("nccl-tests.json", "JSON with results[].out_of_place", _is_json, read_json),
)
