"""CSV of one answer: a line per schedule, written as every other table."""

from __future__ import annotations

import io
from typing import Any

from mc2perf.answer import Answer
from mc2perf.columns import answer_columns
from mc2perf.scenario import DEFAULT_HARDWARE
from mc2perf.table import in_columns
from mc2perf.version import VERSION
from mc2perf.writers.rows import records
from mc2perf.writers.tables import csv_table
from mc2perf.writers.tables.about import About, Style


def to_csv(answer: Answer) -> str:
    """One line per schedule, with target, hardware and version in front, and the expected error behind."""
    about = About(title=str(answer.inputs["target"]), inputs=answer.inputs, profiles=(), dictionary=())
    of_all = _of_all(answer)
    file = io.BytesIO()
    with csv_table.to_csv(file, answer_columns(), about, Style(bom=False)) as add:
        add(in_columns(answer_columns(), [record | of_all for record in records(answer)]))
    return file.getvalue().decode()


def _of_all(answer: Answer) -> dict[str, Any]:
    """What every line says alike."""
    found: dict[str, Any] = {
        "target": answer.inputs["target"],
        "hardware": answer.inputs.get("hardware", DEFAULT_HARDWARE),
        "tool_version": VERSION,
        "validated_rows": answer.expect.rows if answer.expect else 0,
    }
    if answer.expect and answer.expect.rows:
        found |= {
            "expected_error_median": answer.expect.median,
            "expected_error_worst": answer.expect.worst,
        }
    return found
