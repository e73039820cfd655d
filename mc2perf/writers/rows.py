"""Results as flat records: the keys of JSON, the columns of CSV and tables."""

from __future__ import annotations

from typing import Any

from mc2perf.answer import Answer, Row
from mc2perf.columns import OF_SCHEDULE


def record(row: Row) -> dict[str, Any]:
    """One row as plain values; a refused one has its reason and no numbers."""
    if not row.legal:
        return {"schedule": row.schedule, "legal": False, "reason": row.reason}
    values = {name: getattr(row, name) for name in OF_SCHEDULE if name != "reason"}
    if not row.tokens_per_second:
        del values["tokens_per_second"]
    optional = ("mfu", "bubble_share", "time_per_output_token", "time_to_first_token")
    absent = [name for name in optional if not values[name]]
    for name in (*absent, *(() if row.rest_rows else ("rest_rows", "rest_first"))):
        del values[name]
    values |= {"legal": True, "flat_region": list(row.flat_region)}
    values |= {"tiles": list(row.tiles)} if row.tiles else {}
    if row.reason:
        values["reason"] = row.reason
    if row.default_pieces:
        values |= {"default_pieces": row.default_pieces, "default_time": row.default_time}
    if row.curve:
        values["curve"] = {str(count): time for count, time in row.curve.items()}
    if row.traffic:
        values["traffic"] = {
            group: {"comm_time": comm, "exposed_comm_time": exposed}
            for group, (comm, exposed) in row.traffic.items()
        }
    values["segments"] = {"forward": row.segments, "backward": row.backward_segments}
    return values


def records(answer: Answer) -> list[dict[str, Any]]:
    """Every row."""
    return [record(row) for row in answer.rows]
