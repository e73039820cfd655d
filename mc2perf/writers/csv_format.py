"""CSV for spreadsheets: RFC 4180, units in headers, plain numbers, text guarded against formulas."""

from __future__ import annotations

import csv
import io

from mc2perf.answer import Answer
from mc2perf.version import VERSION
from mc2perf.writers.rows import UNITS, records
from mc2perf.writers.tables import csv_table


def guarded(value: object) -> object:
    """Text that a spreadsheet would run as a formula gets an apostrophe; numbers keep 9 digits."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return csv_table.guarded(value) if isinstance(value, str) else value


def to_csv(answer: Answer) -> str:
    """One line per schedule, with target, hardware and version in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    errors = ["expected_error_median", "expected_error_worst", "validated_rows"]
    header = [f"{name}({unit})" if unit and unit != "1" else name for name, unit in UNITS.items()]
    writer.writerow(["target", "hardware", "tool_version", *header, *errors])
    front = [answer.inputs["target"], answer.inputs.get("hardware", "atlas_800i_a2"), VERSION]
    expect = answer.expect
    band = [expect.median, expect.worst, expect.rows] if expect and expect.rows else ["", "", 0]
    for values in records(answer):
        cells = (*front, *(values.get(name, "") for name in UNITS), *band)
        writer.writerow([guarded(cell) for cell in cells])
    return out.getvalue()
