"""Buffers as tables: what every formula needs, what is there, the largest batch; the heap by tile count."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mc2perf.equations.windows import data_window_950
from mc2perf.studies.buffers import Buffer, Heap
from mc2perf.studies.check import Question
from mc2perf.units import MIB
from mc2perf.version import VERSION
from mc2perf.writers.check import asked

SCHEMA_VERSION = 1


def sentence(found: Sequence[Buffer], heaps: Sequence[Heap]) -> str:
    """How many formulas are met, and the largest one."""
    if not found and not heaps:
        return "No documented buffer: none of these operators has a formula on this machine."
    said = []
    if found:
        fits = [buffer for buffer in found if buffer.fits]
        most = max(found, key=lambda buffer: buffer.needed)
        said.append(
            f"{len(fits)} of {len(found)} formulas are met; the largest need is {most.needed:.1f} MB "
            f"({most.operators[0]} {most.version})"
        )
    if heaps:
        fitting = [heap.tiles for heap in heaps if heap.fits]
        least = f"from {min(fitting):g} tiles on" if fitting else "at no tile count tried"
        said.append(f"the symmetric heap holds the ring and the scales {least}")
    return "; ".join(said) + "."


def to_buffers_text(
    question: Question, found: Sequence[Buffer], heaps: Sequence[Heap], suggested: float
) -> str:
    """A sentence, the question, the tables, where the formulas stand."""
    from tabulate import tabulate  # costs 40 ms

    blocks = [sentence(found, heaps), asked(question)]
    if found:
        headers = ["operators", "version", "formula", "needs MB", "has MB", "", "largest m", "cap"]
        rows = [_row(buffer) for buffer in found]
        blocks.append(tabulate(rows, headers, tablefmt="simple", disable_numparse=True, colalign=_ALIGN))
    if heaps:
        headers = ["tiles", "rows of a piece", "data MB", "scales MB", "total MB", "heap MB", ""]
        numbers = [_heap_row(heap) for heap in heaps]
        align = (*("right",) * 6, "left")
        blocks.append(tabulate(numbers, headers, tablefmt="simple", disable_numparse=True, colalign=align))
    blocks.append("\n".join(_notes(question, found, suggested)))
    return "\n\n".join(blocks) + "\n"


_ALIGN = ("left", "left", "left", "right", "right", "left", "right", "right")


def _row(buffer: Buffer) -> list[str]:
    cap = f"{buffer.cap:.0f}" if math.isfinite(buffer.cap) else "-"
    verdict = "fits" if buffer.fits else "too small"
    return [
        "\n".join(buffer.operators), buffer.version, buffer.title, f"{buffer.needed:.1f}", f"{buffer.has:g}",
        verdict, f"{buffer.largest:.0f}", cap,
    ]  # fmt: skip


def _heap_row(heap: Heap) -> list[str]:
    sizes = (heap.data, heap.scales, heap.total, heap.size)
    shown = [f"{size / MIB:.1f}" for size in sizes]
    return [f"{heap.tiles:g}", f"{heap.rows:g}", *shown, "fits" if heap.fits else "too small"]


def _notes(question: Question, found: Sequence[Buffer], suggested: float) -> list[str]:
    has = question.scenario.hccl_buffsize
    notes = [
        "m: tokens (rows) of a rank; largest by the formula, cap by the document; MB = 2^20 bytes",
        f"each communicator holds 2 x HCCL_BUFFSIZE = {2 * has:g} MB; all ranks agree on one value",
    ]
    if question.machine.family == "950":
        data = data_window_950(has * MIB) / MIB
        notes.append(f"a 950 keeps {data:g} MB for data after 1 MB of state; what dispatch needs is unknown")
    if suggested:
        word = "is below" if has < suggested else "reaches"
        notes.append(f"HCCL suggests {suggested:g} MB for collectives of this size; {has:g} {word} that")
    return notes + [f"source: {text}" for text in dict.fromkeys(str(buffer.source) for buffer in found)]


def to_buffers_json(
    inputs: Mapping[str, object], found: Sequence[Buffer], heaps: Sequence[Heap], suggested: float
) -> str:
    """The same as a tree."""
    tree: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "inputs": dict(inputs),
        "buffers": [
            vars(b) | {"operators": list(b.operators), "cap": b.cap if math.isfinite(b.cap) else None,
                       "source": str(b.source), "fits": b.fits}
            for b in found
        ],
        "heaps": [vars(heap) | {"total": heap.total, "fits": heap.fits} for heap in heaps],
        "suggested_mb": suggested,
    }  # fmt: skip
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
