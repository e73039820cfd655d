"""Scores against published measurements, for people and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mc2perf.studies.kernels import Score as KernelScore
from mc2perf.studies.validate.asked import Case
from mc2perf.studies.validate.relations import Check
from mc2perf.studies.validate.scores import NAIVE, Score, Scored
from mc2perf.units import show
from mc2perf.version import VERSION

SCHEMA_VERSION = 1

HEADERS = (
    "values", "median", "worst", "worst at", "bias", "sign errors", "naive median", "naive worst",
    "naive efficiency",
)  # fmt: skip
"""Columns of a score."""

GROUPED_BY = {"family": "Families", "level": "Levels", "predictable": "Predictability", "all": "All"}
"""Kinds of groups, in the order they are shown."""


def to_text(
    cases: Sequence[Case],
    values: Sequence[Scored],
    scores: Sequence[Score],
    checks: Sequence[Check],
    kernels: Sequence[KernelScore] = (),
    *,
    rows: bool = False,
    summary: bool = False,
) -> str:
    """Tables for a terminal; ``rows`` adds one with every scored value, ``summary`` leaves lists out."""
    if summary:
        families = [score for score in scores if score.by in ("family", "level")]
        return "\n\n".join([_intro(cases, values), *_score_tables(families)]) + "\n"
    blocks = [
        _intro(cases, values),
        *_score_tables(scores),
        *([_values(values)] if rows else []),
        _relations(checks),
        _listed(cases),
        *([_kernels(kernels)] if kernels else []),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _intro(cases: Sequence[Case], values: Sequence[Scored]) -> str:
    given = [case for case in cases if case.value.si is not None]
    waiting = [case for case in cases if case.value.si is None]
    able = sum(case.asked is not None for case in waiting)
    lines = [
        f"{len(values)} of {len(given)} values scored, {len(given) - len(values)} listed below with the"
        f" reason; {len(waiting)} held out without a value, of which {able} can be asked (--values FILE)",
        "errors are relative to the measured value; bias is the median of signed errors",
        f"naive: {NAIVE};",
        "it is fitted to the open values it is scored on, so a family of one row is met exactly",
    ]
    return "\n".join(lines)


def _table(rows: Iterable[Sequence[object]], headers: Sequence[str], text: int = 1) -> str:
    """A plain table whose first ``text`` columns are words."""
    from tabulate import tabulate  # costs 40 ms

    align = ["left" if at < text else "right" for at in range(len(headers))]
    return str(tabulate(list(rows), list(headers), tablefmt="simple", colalign=align, disable_numparse=True))


def _score_tables(scores: Sequence[Score]) -> Iterator[str]:
    for held in (False, True):
        for by, title in GROUPED_BY.items():
            rows = [_score_row(score) for score in scores if score.held_out == held and score.by == by]
            if rows:
                kind = "held out" if held else "open values"
                yield f"{title}, {kind}\n" + _table(rows, (by, *HEADERS))


def _score_row(score: Score) -> list[object]:
    signs = f"{score.sign_errors} of {score.signed}" if score.signed else ""
    efficiency = "" if score.efficiency is None else f"{score.efficiency:.3f}"
    return [
        score.group, score.values, f"{score.median:.1%}", f"{score.worst:.1%}", score.worst_at,
        f"{score.bias:+.1%}", signs, f"{score.naive_median:.1%}", f"{score.naive_worst:.1%}", efficiency,
    ]  # fmt: skip


def _values(values: Sequence[Scored]) -> str:
    rows = [
        [
            one.case.address,
            one.case.value.quantity,
            ", ".join(one.case.unpriced),
            ", ".join(f"{name} {value}" for name, value in one.case.assumed.items()),
            _amount(one.measured, one.case),
            _amount(one.predicted, one.case),
            f"{one.error:+.1%}",
            f"{one.naive_error:+.1%}",
        ]
        for one in values
    ]
    headers = ("value", "quantity", "not priced", "assumed", "measured", "predicted", "error", "naive error")
    return "Values\n" + _table(rows, headers, text=4)


def _amount(number: float, case: Case) -> str:
    """Times in human units, everything else to four digits."""
    return show(number, "s") if case.value.quantity.endswith("time") else f"{number:.4g}"


def _relations(checks: Sequence[Check]) -> str:
    """How many relations hold by family, and which do not."""
    if not checks:
        return ""
    families = dict.fromkeys(check.family for check in checks)
    rows = [[name, *_counted([c for c in checks if c.family == name])] for name in families]
    headers = ("family", "relations", "measured: hold", "fail", "predicted: hold", "fail")
    lines = [
        f"{check.family}: {check.relation.id} ({check.relation.kind}) fails on {what}: {check.relation.says}"
        for check in checks
        for what, held in (("measured values", check.measured), ("predictions", check.predicted))
        if held is False
    ]
    text = "Relations: identities, orders and signs; predictions count where every value is predicted\n"
    return "\n".join([text + _table(rows, headers), *lines])


def _counted(checks: Sequence[Check]) -> list[int]:
    found = [len(checks)]
    for what in ("measured", "predicted"):
        found += [sum(getattr(check, what) is held for check in checks) for held in (True, False)]
    return found


def _listed(cases: Sequence[Case]) -> str:
    """Values that are known and not scored, by reason."""
    reasons: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        if case.value.si is not None and case.why_not:
            reasons.setdefault((case.family, case.why_not), []).append(case)
    lines = [
        f"{family}: {len(found)} of {', '.join(dict.fromkeys(case.row.id for case in found))}: {reason}"
        for (family, reason), found in reasons.items()
    ]
    return "\n".join(["Not scored, with the reason", *lines]) if lines else ""


def _kernels(kernels: Sequence[KernelScore]) -> str:
    rows = [
        [
            score.table, score.kind, score.dtype, score.size_class, score.count, f"{score.median:.1%}",
            f"{score.p90:.1%}", f"{score.worst:.1%}", f"{score.bias:+.1%}", f"{score.naive_median:.1%}",
            f"{score.naive_p90:.1%}",
        ]
        for score in kernels
    ]  # fmt: skip
    headers = (
        "table", "kind", "dtype", "sizes", "rows", "median", "p90", "worst", "bias", "naive median",
        "naive p90",
    )  # fmt: skip
    return "Kernels\n" + _table(rows, headers, text=4)


# --- JSON --------------------------------------------------------------------------------------------------


def document(
    cases: Sequence[Case],
    values: Sequence[Scored],
    scores: Sequence[Score],
    checks: Sequence[Check],
    kernels: Sequence[KernelScore] = (),
) -> dict[str, Any]:
    """Everything as a tree in SI: each value stands in ``values`` or in ``not_scored``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "naive": NAIVE,
        "scores": [{**vars(score), "efficiency": _finite(score.efficiency)} for score in scores],
        "values": [_value(one) for one in values],
        "not_scored": [{**_of(case), "reason": case.why_not} for case in cases if case.why_not],
        "relations": [
            {
                "family": check.family, "id": check.relation.id, "kind": check.relation.kind,
                "says": check.relation.says, "measured": check.measured, "predicted": check.predicted,
            }
            for check in checks
        ],
        "kernels": [vars(score) for score in kernels],
    }  # fmt: skip


def _of(case: Case) -> dict[str, Any]:
    """Where a value stands."""
    row, value = case.row, case.value
    return {
        "value": case.address, "family": case.family, "level": row.level, "predictable": row.predictable,
        "held_out": not row.open, "quantity": value.quantity,
    }  # fmt: skip


def _value(one: Scored) -> dict[str, Any]:
    return {
        **_of(one.case),
        "measured": one.measured, "predicted": one.predicted, "error": one.error,
        "naive": one.naive, "naive_error": one.naive_error,
        "wrong_sign": one.wrong_sign if one.signed else None,
        "assumed": dict(one.case.assumed), "unpriced": list(one.case.unpriced),
    }  # fmt: skip


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def to_json(*parts: Any) -> str:
    """The document as text, finite numbers only."""
    return json.dumps(document(*parts), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
