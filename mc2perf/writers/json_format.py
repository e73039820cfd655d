"""JSON: SI values under the words of the README, with inputs that can be run again."""

from __future__ import annotations

import json
import math
from typing import Any

from mc2perf.answer import Answer, Step
from mc2perf.version import VERSION
from mc2perf.writers.rows import records
from mc2perf.writers.verdict import verdict

SCHEMA_VERSION = 1


def document(answer: Answer) -> dict[str, Any]:
    """The answer as a tree; ``data/result.schema.json`` describes it."""
    tree: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "inputs": answer.inputs,
        "resolved": answer.resolved,
        "verdict": verdict(answer),
        "results": records(answer),
        "warnings": [{"code": remark.code, "text": remark.text} for remark in answer.warnings],
        "assumptions": list(answer.assumptions),
        "sources": answer.sources,
        "facts": answer.facts,
    }
    if answer.expect:
        tree["expect"] = vars(answer.expect) | {"families": list(answer.expect.families)}
    if answer.meaning:
        tree["meaning"] = answer.meaning
    if answer.memory:
        tree["memory"] = vars(answer.memory) | {"assumptions": list(answer.memory.assumptions)}
    if answer.policies:
        tree["policies"] = [vars(cut) for cut in answer.policies]
    if answer.steps:
        tree["steps"] = [_explained(step) for step in answer.steps]
    return tree


def _explained(step: Step) -> dict[str, Any]:
    """An equation as used; a number that is infinite, as the window of full attention, is null."""
    finite = {name: None if number == math.inf else number for name, number in step.numbers.items()}
    return vars(step) | {"numbers": finite}


def to_json(answer: Answer) -> str:
    """The document as text, finite numbers only."""
    return json.dumps(document(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
