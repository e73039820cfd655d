"""Output of CANN's ``hccl_test``: one line per size, or one per size and rank."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mc2perf.measured import CollectiveTime, CollectiveTimes, Measured
from mc2perf.problems import InputError
from mc2perf.readers.measured.cells import Column, microseconds, placed, plain
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.units import COUNT, TIME, Dim

COLUMNS = {
    "size": Column(("data_size(Bytes):", "data_size(Bytes)", "data_size"), COUNT),
    "time": microseconds("aveg_time(us):", "avg_time(us):", "aveg_time(us)", "avg_time(us)"),
    "rate": Column(("alg_bandwidth(GB/s):", "alg_bandwidth(GB/s)"), needed=False),
    "check": Column(("check_result:", "check_result"), needed=False),
}
NAMES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all_v", "alltoallvc": "all_to_all_v",
    "broadcast": "broadcast", "reduce": "reduce", "scatter": "scatter",
}  # fmt: skip
"""The binary's word -> the operation."""
EMULATED = 16
"""A table whose sizes span this factor at one and the same time comes from an emulator."""
DECIMAL, BINARY = 1e9, 2.0**30
RATE = Dim("1", "a rate", at_most=1e9, may_be_zero=True)

_HEADER = re.compile(r"^(?=.*\bdata_size\b)(?=.*\bave?g_time\b).*\|", re.IGNORECASE | re.MULTILINE)
_COMMAND = re.compile(r"\b([a-z_]+)_test\b")
_RANKS = re.compile(r"\bmpirun\b.*?\s-(?:n|np)\s+(\d+)\b")
_WARM_UP = re.compile(r"iters is (\d+), warmup_iters is (\d+)")

Found = dict[tuple[str | None, int | None, float], list[float]]


class _Table:
    """What the lines above a row said: command, ranks and header."""

    def __init__(self, source: Source, tally: Tally) -> None:
        self.source, self.tally = source, tally
        self.op: str | None = None
        self.ranks: int | None = None
        self.places: dict[str, int] = {}
        self.width = 0
        self.times: Found = {}
        self.units: set[float] = set()

    def line(self, text: str, number: int) -> None:
        """Take one line: header, command, settings, row, or anything else of a log."""
        if _HEADER.search(text):
            cells = tuple(plain(cell) for cell in text.strip().strip("|").split("|"))
            self.places, self.width = placed(cells, COLUMNS, self.source.name), len(cells)
            if self.times:
                self.tally.note("several tables; of one operation the slowest row of a size counts")
        elif (op := _operation(text)) is not None:
            ranks = _RANKS.search(text)
            self.op, self.ranks = op, int(ranks[1]) if ranks else None
        elif settings := _WARM_UP.search(text):
            self.tally.note(f"each time is a mean of {settings[1]} runs after {settings[2]} of warm-up")
        elif self.places and "|" in text:
            self._row([cell.strip() for cell in text.strip().strip("|").split("|")], f"line {number}")

    def _row(self, cells: list[str], where: str) -> None:
        if len(cells) != self.width:
            self.tally.aside("another number of fields than the header", where)
            return
        row = {key: cells[at] for key, at in self.places.items()}
        try:
            size, time = scaled(row["size"], COUNT), scaled(row["time"], TIME, 1e-6)
            if not size or not time:
                raise ValueError("size or time is missing or zero")
            self._check(row, size, time)
        except ValueError as error:
            self.tally.aside(str(error), where)
            return
        self.times.setdefault((self.op, self.ranks, size), []).append(time)

    def _check(self, row: dict[str, str], size: float, time: float) -> None:
        """Refuse failed rows, and rows whose bandwidth does not follow from size and time."""
        check = row.get("check", "NULL").lower()
        if check not in ("success", "null"):
            raise ValueError(
                "check_result: failed" if "fail" in check else "check_result: neither success nor NULL"
            )
        if check == "null" and "check" in row:
            self.tally.note("rows with check_result NULL are timed but not checked (overflow); taken")
        rate = scaled(row.get("rate"), RATE)
        if rate is not None:
            units = {unit for unit in (DECIMAL, BINARY) if _follows(rate, size / time / unit, time)}
            if not units:
                raise ValueError("alg_bandwidth: does not follow from size and time, in 1e9 or 2^30 bytes")
            self.units |= units if len(units) == 1 else set()


def _operation(text: str) -> str | None:
    """The operation of a command line; the folder ``hccl_test`` in its path is none."""
    words = (found[1] for found in _COMMAND.finditer(text))
    return next((NAMES[word] for word in words if word in NAMES), None)


def _follows(rate: float, expected: float, time: float) -> bool:
    """Whether a printed rate is the expected one: five decimals of the rate, two of the time in us."""
    return abs(rate - expected) <= 1e-5 + expected * (1e-3 + 0.005e-6 / time)


def read(source: Source) -> Measured:
    """Read ``hccl_test`` output.

    Parameters
    ----------
    source : Source
        Text with the header ``data_size(Bytes): | aveg_time(us): | ...`` (newer: ``avg_time``), in any order.

    Returns
    -------
    Measured
        `CollectiveTimes`: of several rows of one size, one per rank, the slowest. Operation and ranks
        come from the command line where the log holds it.

    Raises
    ------
    InputError
        No row that can be used; a table of one constant time, which an emulator prints.
    """
    tally = Tally(source)
    table = _Table(source, tally)
    for number, text in enumerate(source.lines(), 1):
        table.line(text, number)
    points = tuple(
        CollectiveTime(size, max(times), op, ranks, len(times))
        for (op, ranks, size), times in table.times.items()
    )
    tally.read = len(points)
    tally.insist("sizes")
    for text in _remarks(points, table.units):
        tally.note(text)
    return tally.close("hccl_test", "sizes", _plausible(points, source))


def _plausible(points: tuple[CollectiveTime, ...], source: Source) -> CollectiveTimes:
    sizes, times = [p.size for p in points], {p.time for p in points}
    if len(sizes) > 2 and len(times) == 1 and max(sizes) >= EMULATED * min(sizes):
        raise InputError([f"{source.name}: every size takes the same time; an emulator printed it"])
    return CollectiveTimes(points)


def _remarks(points: tuple[CollectiveTime, ...], units: set[float]) -> Iterator[str]:
    if units == {BINARY}:
        yield "alg_bandwidth is printed in 2^30 B/s; rates here are size over time"
    elif len(units) == 2:
        yield "alg_bandwidth is printed in 1e9 B/s in some rows and 2^30 in others; rates are size over time"
    doubled = sum(p.samples > 1 for p in points)
    if doubled:
        yield f"{doubled} sizes stand several times (one row per rank); the slowest counts"
    if any(p.op is None for p in points):
        yield "the operation is not in the file; alg_bandwidth is not the bus rate"


FORMAT = Format(
    "hccl_test",
    "a line 'data_size(Bytes): | avg_time(us): | ...'",
    lambda source: _HEADER.search(source.head) is not None,
    read,
)
