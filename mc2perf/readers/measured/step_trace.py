"""``step_trace_time.csv`` of one rank and ``cluster_step_trace_time.csv`` of all, three generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mc2perf.measured import Measured, StepTime, StepTrace
from mc2perf.readers.measured.cells import Column, has, microseconds, rows
from mc2perf.readers.measured.source import Format, Source, Tally

COLUMNS = {
    "step": Column(("Step",), needed=False),
    "device": Column(("Device_id", "Device ID"), needed=False),
    "type": Column(("Type",), needed=False),
    "rank": Column(("Index",), needed=False),
    "computing": microseconds("Computing"),
    "exposed": microseconds("Communication(Not Overlapped)"),
    "overlapped": microseconds("Overlapped"),
    "communication": microseconds("Communication"),
    "free": microseconds("Free"),
    "stage": microseconds("Stage", needed=False),
    "bubble": microseconds("Bubble", needed=False),
    "exposed_without_receive": microseconds(
        "Communication(Not Overlapped and Exclude Receive)", needed=False
    ),
    "preparing": microseconds("Preparing", needed=False),
}
TOLERANCE = 1e-3
"""How far the sums of a step may be off [1]."""


def read(source: Source) -> Measured:
    """Read step times.

    Parameters
    ----------
    source : Source
        CSV in microseconds; ``Step`` may be blank (the whole capture), ``Preparing`` absent.

    Returns
    -------
    Measured
        `StepTrace`; rows of ``Type`` stage, which repeat the slowest rank, are set aside.

    Raises
    ------
    InputError
        Missing columns, or no row that can be used.
    """
    tally, steps = Tally(source), []
    for line, row in rows(source, COLUMNS, tally):
        if row["type"] not in (None, "", "rank"):
            tally.aside(f"Type '{row['type'][:20]}' rolls rows of ranks up", f"line {line}")
            continue
        step = _step(row)
        steps.append(step)
        for problem in broken(step):
            tally.note(f"line {line}: {problem}")
    tally.read = len(steps)
    tally.insist("steps")
    tally.note("Communication includes waiting for slower ranks; take transfer times from communication.json")
    return tally.close("step_trace_time", "steps", StepTrace(tuple(steps)))


def _step(row: dict[str, Any]) -> StepTime:
    times = {key: value for key, value in row.items() if key not in ("step", "device", "type", "rank")}
    return StepTime(step=row["step"] or "", rank=row["rank"] or row["device"] or "", **times)


def broken(step: StepTime) -> Iterator[str]:
    """Sums of a step that do not hold.

    Examples
    --------
    >>> step = StepTime(step="1", computing=5, exposed=2, overlapped=1, communication=4, free=1)
    >>> list(broken(step))
    ['Communication is not Not Overlapped + Overlapped (off by 33.3%)']
    """
    parts = step.exposed + step.overlapped
    if abs(step.communication - parts) > TOLERANCE * parts:
        yield f"Communication is not Not Overlapped + Overlapped{_off(step.communication, parts)}"
    if step.stage is not None and step.bubble is not None:
        whole = step.stage + step.bubble
        if abs(whole - step.busy) > TOLERANCE * step.busy:
            yield f"Stage + Bubble is not Computing + Not Overlapped + Free{_off(whole, step.busy)}"


def _off(found: float, expected: float) -> str:
    return f" (off by {abs(found / expected - 1):.1%})" if expected else ""


FORMAT = Format(
    "step_trace_time",
    "a CSV header with Computing and Communication(Not Overlapped)",
    lambda source: has(source, "Computing", "Communication(Not Overlapped)"),
    read,
)
