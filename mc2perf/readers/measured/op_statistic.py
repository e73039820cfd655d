"""``op_statistic.csv`` and ``communication_statistic.csv``: totals by kind of operator."""

from __future__ import annotations

from typing import Any

from mc2perf.measured import KernelTotal, KernelTotals, Measured
from mc2perf.readers.measured.cells import Column, has, microseconds, rows
from mc2perf.readers.measured.source import Format, Source, Tally
from mc2perf.units import COUNT

COLUMNS = {
    "type": Column(("OP Type",)),
    "core": Column(("Core Type",), needed=False),
    "count": Column(("Count",), COUNT),
    "total": microseconds("Total Time(us)"),
    "shortest": microseconds("Min Time(us)"),
    "mean": microseconds("Avg Time(us)"),
    "longest": microseconds("Max Time(us)"),
}
COMMUNICATION = ("hccl", "communication")
TOLERANCE = 1e-2
ROUNDING = 6e-10
"""Half of the last of three decimals of a microsecond, with some air [s]."""


def read(source: Source) -> Measured:
    """Read totals by operator.

    Returns
    -------
    Measured
        `KernelTotals`. Totals of communication include waiting.

    Raises
    ------
    InputError
        Missing columns, or no row that can be used.
    """
    tally = Tally(source)
    compute: list[KernelTotal] = []
    communication: list[KernelTotal] = []
    for line, row in rows(source, COLUMNS, tally):
        problem = _contradiction(row)
        if problem:
            tally.aside(problem, f"line {line}")
            continue
        total = KernelTotal(
            type=row["type"], core=row["core"] or "", count=int(row["count"]), total=row["total"],
            shortest=row["shortest"], longest=row["longest"],
        )  # fmt: skip
        (communication if _communicates(row) else compute).append(total)
    tally.read = len(compute) + len(communication)
    if communication:
        tally.note("times of communication are elapsed and include waiting; not used for rates")
    return tally.close("op_statistic", "operator types", KernelTotals(tuple(compute), tuple(communication)))


def _communicates(row: dict[str, Any]) -> bool:
    return (row["core"] or "").lower() in COMMUNICATION or row["type"].lower().startswith("hcom")


def _contradiction(row: dict[str, Any]) -> str:
    mean = row["total"] / row["count"]
    if not row["type"]:
        return "OP Type: is missing"
    if abs(mean - row["mean"]) > ROUNDING + TOLERANCE * mean:
        return "Total Time is not Count x Avg Time"
    slack = ROUNDING + 1e-9 * mean
    if row["shortest"] > mean + slack or row["longest"] < mean - slack:
        return "Avg Time is not between Min and Max Time"
    return ""


FORMAT = Format(
    "op_statistic",
    "a CSV header with OP Type, Count and Total Time(us)",
    lambda source: has(source, "OP Type", "Count", "Total Time(us)"),
    read,
)
