"""Results as flat records: the keys of JSON, the columns of CSV and tables."""

from __future__ import annotations

from typing import Any

from mc2perf.answer import Answer, Row

UNITS = {
    "schedule": "",
    "pieces": "",
    "piece_rows": "",
    "total_time": "s",
    "serial_time": "s",
    "compute_time": "s",
    "comm_time": "s",
    "compute_stretch": "s",
    "exposed_comm_time": "s",
    "free_time": "s",
    "host_time": "s",
    "comm_ratio": "1",
    "hidden_ratio": "1",
    "overlap_efficiency": "1",
    "speedup": "1",
    "ceiling": "1",
    "tokens_per_second": "1/s",
    "bound": "",
    "reason": "",
    "mfu": "1",
    "bubble_share": "1",
    "time_per_output_token": "s",
}
"""Every column of a result, in order, with its SI unit; columns are only ever appended."""


def record(row: Row) -> dict[str, Any]:
    """One row as plain values; a refused one has its reason and no numbers."""
    if not row.legal:
        return {"schedule": row.schedule, "legal": False, "reason": row.reason}
    values = {name: getattr(row, name) for name in UNITS if name != "reason"}
    if not row.tokens_per_second:
        del values["tokens_per_second"]
    for name in ("mfu", "bubble_share", "time_per_output_token"):
        if not values[name]:
            del values[name]
    values |= {"legal": True, "flat_region": list(row.flat_region)}
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
