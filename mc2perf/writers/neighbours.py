"""The model beside other simulators, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mc2perf.measurement import Row
from mc2perf.studies.neighbours import FAR, Neighbour, Ratio
from mc2perf.units import show
from mc2perf.version import VERSION
from mc2perf.writers.scores import SCHEMA_VERSION


def to_text(neighbours: Sequence[Neighbour]) -> str:
    """A table for every simulator, and below it the cause of every ratio that is far from 1."""
    head = "Beside other simulators: both predict, neither measures; in no score and no error band"
    return "\n\n".join([head, *(_block(one) for one in neighbours)]) + "\n"


def _block(neighbour: Neighbour) -> str:
    from tabulate import tabulate  # costs 40 ms

    simulator = neighbour.simulator
    quantities = list(dict.fromkeys(one.case.value.quantity for one in neighbour.ratios))
    headers = [simulator.family, *(word for quantity in quantities for word in (quantity, "here", "ratio"))]
    rows = [
        [row.label, *(cell for one in neighbour.of(row) for cell in _cells(one))] for row in simulator.rows
    ]
    table = tabulate(
        rows, headers, tablefmt="simple", disable_numparse=True,
        colalign=["left", *["right"] * (len(headers) - 1)],
    )  # fmt: skip
    title = f"{simulator.family}: {simulator.title} ({simulator.source})"
    far = [line for row in simulator.rows for line in _causes(neighbour, row)]
    causes = [f"further apart than a factor of {FAR:g}, and why", *far] if far else []
    return "\n".join([title, *simulator.notes, "", str(table), *([""] if far else []), *causes])


def _cells(one: Ratio) -> list[str]:
    if one.case.predicted is None or one.ratio is None:
        return [show(one.simulated, "s"), "-", "-"]
    return [show(one.simulated, "s"), show(one.case.predicted, "s"), f"{one.ratio:.2f}x"]


def _causes(neighbour: Neighbour, row: Row) -> Iterator[str]:
    """Why a deployment is far off, or was not asked."""
    ratios = neighbour.of(row)
    far = ", ".join(f"{one.case.value.quantity} {one.ratio:.2f}x" for one in ratios if one.far)
    if far:
        yield f"{row.id}: {far}: {row.note}"
    for reason in dict.fromkeys(one.case.reason for one in ratios if one.case.reason):
        yield f"{row.id}: not asked: {reason}"


def document(neighbours: Sequence[Neighbour]) -> dict[str, Any]:
    """Everything as a tree in SI."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "neighbours": [_ratio(neighbour, one) for neighbour in neighbours for one in neighbour.ratios],
    }


def _ratio(neighbour: Neighbour, one: Ratio) -> dict[str, Any]:
    row = one.case.row
    return {
        "simulator": neighbour.simulator.family, "id": row.id, "deployment": row.label,
        "quantity": one.case.value.quantity, "simulated": one.simulated, "predicted": one.case.predicted,
        "ratio": one.ratio, "cause": row.note if one.far else one.case.reason,
        "assumed": dict(one.case.assumed), "inputs": dict(row.inputs),
    }  # fmt: skip


def to_json(neighbours: Sequence[Neighbour]) -> str:
    """The document as text, finite numbers only."""
    return json.dumps(document(neighbours), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
