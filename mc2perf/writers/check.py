"""What a check found: a sentence, every version with its rules and the nearest legal change; text or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from mc2perf.studies.check import Check, Question, legal_ones
from mc2perf.version import VERSION

SCHEMA_VERSION = 1
WIDTH = 110
MOST_CHANGES = 4
"""More changes of one version than this are not listed for people."""

SIZES = {"m": 256, "n": 4096, "k": 7168}
"""Sizes of an example."""

EFFECTS = {
    "refused": "",
    "serial": "runs unfused: ",
    "slow": "may be slow: ",
    "note": "beyond the document: ",
}
"""What follows -> how it is said before the rule's words."""


def verdict(shown: Sequence[Check], every: Sequence[Check]) -> str:
    """What runs and what does not, in a sentence."""
    if not shown:
        return "Nothing to check: one rank in every group."
    runs = legal_ones(shown)
    statuses: dict[str, set[str]] = {}
    for check in (check for check in shown if check.decides):
        for name in check.operators:
            statuses.setdefault(name, set()).add(check.status)
    untold = [name for name, found in statuses.items() if name not in runs and "cannot tell" in found]
    refused = [name for name in statuses if name not in runs and name not in untold]
    parts = {"legal": runs, "refused": refused, "cannot tell": untold}
    said = [f"{word}: {', '.join(names)}" for word, names in parts.items() if names]
    said[:1] = [said[0][0].upper() + said[0][1:]] if said else []
    instead = [name for name in legal_ones(every) if name not in runs]
    if instead and not runs:
        said.append(f"legal here instead: {', '.join(instead)}")
    return "; ".join(said) + "." if said else "No operator is asked about, only switches of frameworks."


def to_check_text(question: Question, shown: Sequence[Check], every: Sequence[Check]) -> str:
    """Blocks of operators, a line per rule that is broken, sources below."""
    sources = {
        source: number
        for number, source in enumerate(
            dict.fromkeys(str(f.source) for check in shown for f in check.findings), start=1
        )
    }
    blocks = [textwrap.fill(verdict(shown, every), WIDTH), asked(question), not_given(question, shown)]
    for operators, versions in groupby(shown, key=lambda check: check.operators):
        blocks.append("\n".join(_block(operators, list(versions), sources)))
    blocks.append("\n".join(f"[{number}] {source}" for source, number in sources.items()))
    return "\n\n".join(block for block in blocks if block) + "\n"


def asked(question: Question) -> str:
    """What was asked, with what defaults stand for."""
    s = question.scenario
    names = (
        ("tokens", "batch_size", "ep", "tp") if question.model
        else ("m", "n", "k", "ranks", "experts_per_rank", "top_k")
    )  # fmt: skip
    numbers = [(name, getattr(s, name)) for name in (*names, "hccl_buffsize")]
    words = [f"{name} {value:g}" for name, value in numbers if value is not None]
    target = question.operator or s.target
    return f"{target} on {s.hardware}: {', '.join(words)}, dtype {s.dtype}, cann {s.cann}"


def not_given(question: Question, shown: Sequence[Check]) -> str:
    """Every size that some rule asks for and nobody gave, and a command that gives all of them."""
    missing = [name for name in SIZES if any(name in check.needs for check in shown)]
    if not missing:
        return ""
    s = question.scenario
    sizes = " ".join(f"-{name} {SIZES[name]}" for name in missing)
    example = f"mc2perf check {question.operator or s.target} {sizes} --hardware {s.hardware}"
    return f"not given: {', '.join(missing)}; an example with all that its rules ask for: {example}"


def _block(operators: Sequence[str], versions: Sequence[Check], sources: Mapping[str, int]) -> Iterator[str]:
    yield ", ".join(operators)
    wide = max(len(check.version) for check in versions)
    for check in versions:
        yield f"  {check.version:{wide}}  {check.status}"
        for finding in check.findings:
            yield f"      {EFFECTS[finding.effect]}{finding.text} [{sources[str(finding.source)]}]"
        if check.needs:
            yield f"      not given: {', '.join(check.needs)}"
        if check.status in ("refused", "legal but slow"):
            yield f"      {nearest(check)}"
    pieces = versions[0].pieces
    yield f"  pieces: {'a knob' if pieces.knob else 'an outcome, no knob'}: {pieces.words}"
    for mind in dict.fromkeys(mind for check in versions for mind in check.minds):
        yield f"  mind: {mind}"


def nearest(check: Check) -> str:
    """The nearest legal changes: of one input each, or of several together."""
    ways = [" with ".join(change.flag for change in mend) for mend in check.mends[:MOST_CHANGES]]
    return f"nearest legal: {' or '.join(ways)}" if ways else "no change that was tried makes it legal"


def check_document(
    inputs: Mapping[str, object], shown: Sequence[Check], every: Sequence[Check]
) -> dict[str, Any]:
    """The same as a tree."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "inputs": dict(inputs),
        "verdict": verdict(shown, every),
        "legal": list(legal_ones(every)),
        "checks": [_record(check) for check in shown],
    }


def _record(check: Check) -> dict[str, Any]:
    return {
        "operators": list(check.operators),
        "version": check.version,
        "status": check.status,
        "findings": [
            {"effect": f.effect, "text": f.text, "document": f.source.document, "release": f.source.version}
            for f in check.findings
        ],
        "needs": list(check.needs),
        "nearest": [{change.field: change.value for change in mend} for mend in check.mends],
        "pieces": {"knob": check.pieces.knob, "text": check.pieces.words},
        "minds": list(check.minds),
    }


def to_check_json(inputs: Mapping[str, object], shown: Sequence[Check], every: Sequence[Check]) -> str:
    """The tree as text."""
    tree = check_document(inputs, shown, every)
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
