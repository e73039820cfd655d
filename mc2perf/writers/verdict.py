"""The first sentence of an answer."""

from __future__ import annotations

import math

from mc2perf.answer import Answer, Row
from mc2perf.operators import OPERATORS
from mc2perf.units import show

NO_GAIN = 1.01
"""Below this speed-up overlapping is not worth the switch."""

UNIT = {"mc2": "tiles", "coc": "parts", "micro_batch": "micro-batches", "dual_batch": "batches"}
"""What the pieces of a schedule are called."""


def verdict(answer: Answer) -> str:
    """Say what is best, by how much, and what limits it.

    Examples
    --------
    >>> from mc2perf.api import estimate
    >>> verdict(estimate("mixtral-8x7b", schedule="mc2"))
    'No gain: mc2 is not faster than serial (one local expert: one piece, equals serial); ...'
    """
    best, serial = answer.best, answer.rows[0]
    if best is None:
        return "Refused: " + "; ".join(f"{row.schedule}: {row.reason}" for row in answer.rows)
    refused = [row for row in answer.rows[1:] if not row.legal]
    if len(answer.rows) > 1 and len(refused) == len(answer.rows) - 1:
        why = f"{refused[0].schedule}: {refused[0].reason}"
        return f"Refused: {why}. Serial takes {show(serial.total_time, 's')}."
    limits = f"ceiling {serial.ceiling:.2f}x; bound: {best.bound}{_too_large(answer)}"
    if len(answer.rows) == 1:
        return f"Serial: {show(serial.total_time, 's')}, communication {serial.comm_ratio:.0%}; {limits}."
    if best.speedup < NO_GAIN:
        return f"No gain: {_no_gain(answer, best)}; communication {serial.comm_ratio:.0%}; {limits}."
    share = f"communication {serial.comm_ratio:.0%} -> {best.comm_ratio:.0%}"
    first, last = best.flat_region
    flat = f"within 2 %: {first}..{last}; " if last > first else ""
    return f"Best: {best.schedule}, {pieces(answer, best)}: {best.speedup:.2f}x, {share}; {flat}{limits}."


def _too_large(answer: Answer) -> str:
    """Say at once what cannot run as it is: every schedule holds the same."""
    held = answer.memory
    if held is None or held.fits:
        return ""
    return f"; does not fit: {held.total / 1e9:.4g} of {held.capacity / 1e9:.4g} GB"


def _no_gain(answer: Answer, best: Row) -> str:
    others = [row for row in answer.rows[1:] if row.legal]
    closest = min(others, key=lambda row: row.total_time)
    reason = f" ({closest.reason})" if closest.reason else ""
    if closest.speedup < 1:
        return f"{closest.schedule} takes {1 / closest.speedup:.2f}x the time of serial{reason}"
    return f"{closest.schedule} is not faster than serial{reason}"


def pieces(answer: Answer, row: Row) -> str:
    """The count in words: pieces and what one of them holds."""
    if row.schedule == "dual_batch":
        return "two batches half a step apart"
    per_expert = row.schedule == "mc2" and "experts" in _path_kind(answer)
    unit = "local experts" if per_expert else UNIT.get(row.schedule, "pieces")
    rows = "tokens" if answer.kind == "model" or answer.inputs["target"] == "moe_layer" else "rows"
    head = f"{row.pieces} {unit}" if row.pieces > 1 else f"1 {unit.rstrip('s')}"
    seq_len = answer.resolved.get("seq_len")
    tp = answer.resolved.get("tp")
    samples = ""
    if row.schedule == "micro_batch" and isinstance(seq_len, float) and isinstance(tp, float):
        samples = f" ({row.piece_rows * tp / seq_len:.3g} samples)"
    if per_expert and answer.inputs["target"] not in OPERATORS:
        return head
    tile = " (headMSize)" if row.schedule == "mc2" and not per_expert and answer.kind == "operator" else ""
    if row.rest_rows:
        rest = f"the {'first' if row.rest_first else 'last'} {row.rest_rows:g}"
        return f"{head} of {row.piece_rows:g} {rows}, {rest}"
    return f"{head} of {math.ceil(row.piece_rows)} {rows}{tile}{samples}"


def _path_kind(answer: Answer) -> str:
    """``experts`` if pieces of mc2 are local experts."""
    target = str(answer.inputs["target"])
    grouped = "grouped" in target or target == "moe_layer"
    return (
        "experts"
        if grouped or (answer.kind == "model" and answer.resolved.get("ep", 1.0) != 1.0)
        else "tiles"
    )
