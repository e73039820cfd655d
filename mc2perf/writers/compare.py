"""Comparisons for people, as JSON, and as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mc2perf.studies.causes import Explanation
from mc2perf.studies.compare import Gain, Line
from mc2perf.studies.compared import Comparison, Run, Scan
from mc2perf.table import Block, Column, in_columns
from mc2perf.units import show
from mc2perf.version import VERSION

SCHEMA_VERSION = 1

COLUMNS = (
    Column("run", "", "label of the run, or the operator of a scan"),
    Column("schedule", "", "schedule that it is compared with"),
    Column("kind", "", "row, cause or tile_cnt"),
    Column("name", "", "row of the template, cause, or number of tiles"),
    Column("unit", "", "unit of measured, predicted and residual"),
    Column("measured", "1", "measured value"),
    Column("predicted", "1", "predicted value"),
    Column("ratio", "1", "measured over predicted"),
    Column("residual", "1", "measured less predicted"),
    Column("part", "", "part of the step that the cause acts on"),
    Column("explains", "s", "what the cause could explain"),
    Column("share", "1", "of the residual; shares of several causes do not add up"),
    Column("evidence", "", "supported, possible or contradicted by the files"),
    Column("why", "", "what the files say"),
    Column("how", "", "what would have to be true"),
    Column("confirm", "", "the observation that would confirm it"),
)
"""Columns of a file: every row of the template, then every cause, run by run."""

SAME = 0.05
"""A step this close to its prediction needs no cause in the first sentence."""


def to_text(found: Comparison) -> str:
    """Tables for a terminal."""
    from tabulate import tabulate  # costs 40 ms

    def table(rows: list[list[str]], headers: Sequence[str], align: Sequence[str]) -> str:
        return str(tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True))

    blocks = [verdict(found), _where(found)]
    if found.runs:
        blocks.append(table(*_beside(found.runs)))
    if found.gain:
        blocks.append(_gain(found.gain))
    for run in found.runs:
        if run.causes:
            left = f"{run.label}: parts above their prediction take {show(run.unexplained, 's')} more"
            blocks.append(f"{left}; what could explain it, most first")
            blocks.append(table(*_causes(run.causes)))
        blocks.append("\n".join(f"{run.label}: {note}" for note in run.notes))
    for scan in found.scans:
        blocks += [_scan_line(scan), table(*_tiles(scan))]
        if scan.causes:
            blocks.append(table(*_causes(scan.causes)))
        blocks.append("\n".join(scan.notes))
    causes = [c for run in found.runs for c in run.causes] + [c for scan in found.scans for c in scan.causes]
    blocks.append("\n".join(f"confirm {c.cause}: {c.confirm}" for c in _once(causes)))
    blocks.append("\n".join([*found.notes, *(_OVERLAPPING if causes else ())]))
    return "\n\n".join(block for block in blocks if block) + "\n"


_OVERLAPPING = ("causes are candidates and may be one another's reason: their shares do not add up",)


UNLIKE = (0.33, 3.0)
"""Outside these ratios a measurement is hardly one of what was predicted."""


def verdict(found: Comparison) -> str:
    """The first sentence: how far measured and predicted are apart, and where to look first."""
    return " ".join([*map(_run_verdict, found.runs), *map(_scan_verdict, found.scans)])


def _run_verdict(run: Run) -> str:
    seen, told = run.seen.step, run.told.row.total_time
    if math.isnan(seen):
        return f"{run.label}: no time of a step was measured; predicted {show(told, 's')}."
    text = f"{run.label}: measured {show(seen, 's')}, predicted {show(told, 's')}: {seen / told:.2f}x"
    if abs(seen / told - 1.0) <= SAME:
        return f"{text}, close."
    if not UNLIKE[0] < seen / told < UNLIKE[1]:
        return f"{text}; look first whether both are the same work: model, layers, tokens, layout."
    first = next((c for c in run.causes if c.evidence != "contradicted"), None)
    return (
        f"{text}; look first at {first.cause} ({first.share:.0%} of the residual)." if first else f"{text}."
    )


def _scan_verdict(scan: Scan) -> str:
    best = f"best measured at {scan.best_measured} tiles, predicted at {scan.best_predicted}"
    return f"{best}: {scan.regret:.1%} lost by the prediction."


def _where(found: Comparison) -> str:
    resolved = ", ".join(f"{name} {_plain(value)}" for name, value in found.resolved.items())
    return f"{found.target} on {found.hardware}{': ' if resolved else ''}{resolved}"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _beside(runs: Sequence[Run]) -> tuple[list[list[str]], list[str], list[str]]:
    """The template, run beside run."""
    names = dict.fromkeys(line.name for run in runs for line in run.lines)
    by_name = [{line.name: line for line in run.lines} for run in runs]
    rows = []
    for name in names:
        cells = [cell for lines in by_name for cell in _cells(lines.get(name))]
        meaning = next(lines[name].meaning for lines in by_name if name in lines)
        rows.append([name, *cells, meaning])
    headers = ["", *(word for run in runs for word in (run.label, f"{run.schedule} predicted", "ratio")), ""]
    return rows, headers, ["left", *["right"] * (3 * len(runs)), "left"]


def _cells(line: Line | None) -> list[str]:
    if line is None:
        return ["", "", ""]
    ratio = "" if math.isnan(line.ratio) else f"{line.ratio:.2f}x"
    return [_shown(line.measured, line.unit), _shown(line.predicted, line.unit), ratio]


def _shown(number: float, unit: str) -> str:
    if math.isnan(number):
        return ""
    return show(number, "s") if unit == "s" else f"{number:.1%}" if unit == "1" else f"{number:.0f}"


def _causes(causes: Sequence[Explanation]) -> tuple[list[list[str]], list[str], list[str]]:
    rows = [
        [c.cause, c.part, show(c.explains, "s", 3), f"{c.share:.0%}", _evidence(c), c.how] for c in causes
    ]
    headers = ["cause", "acts on", "could explain", "of it", "files say", "it would mean"]
    return rows, headers, ["left", "left", "right", "right", "left", "left"]


def _evidence(cause: Explanation) -> str:
    return f"{cause.evidence}: {cause.why}" if cause.why else cause.evidence


def _once(causes: Sequence[Explanation]) -> Iterator[Explanation]:
    yield from {cause.cause: cause for cause in causes if cause.evidence != "contradicted"}.values()


def _gain(gain: Gain) -> str:
    text = f"{gain.after} over {gain.before}: measured {gain.measured:.3f}x, predicted {gain.predicted:.3f}x"
    if math.isnan(gain.share_speedup):
        return text
    return (
        f"{text}; the measured communication shares give {gain.share_speedup:.3f}x, the ceiling of overlap "
        f"is {gain.ceiling:.3f}x, {gain.unexplained:.3f}x comes from other work"
    )


def _scan_line(scan: Scan) -> str:
    return f"tiles: {scan.whose}"


def _tiles(scan: Scan) -> tuple[list[list[str]], list[str], list[str]]:
    one = next(((m, p) for n, m, p in scan.points if n == 1), None)
    rows = [
        [str(n), show(m, "s"), show(p, "s"), f"{m / p:.2f}x", *_gains(one, m, p)] for n, m, p in scan.points
    ]
    headers = ["tile_cnt", "measured", "predicted", "ratio", "measured gain", "predicted gain"]
    return rows, headers, ["right"] * 6


def _gains(one: tuple[float, float] | None, measured: float, predicted: float) -> list[str]:
    return ["", ""] if one is None else [f"{one[0] / measured:.2f}x", f"{one[1] / predicted:.2f}x"]


# --- files ---------------------------------------------------------------------------------------------


def as_block(found: Comparison) -> Block:
    """Rows of the template and causes, run by run; then tile counts."""
    records = [record for run in found.runs for record in _run_records(run)]
    records += [record for scan in found.scans for record in _scan_records(scan)]
    return in_columns(COLUMNS, records)


def _run_records(run: Run) -> Iterator[dict[str, Any]]:
    front = {"run": run.label, "schedule": run.schedule}
    for line in run.lines:
        numbers = {"measured": line.measured, "predicted": line.predicted, "ratio": line.ratio}
        yield front | numbers | {
            "kind": "row", "name": line.name, "unit": line.unit, "residual": line.residual,
        }  # fmt: skip
    yield from (front | _cause_record(cause) for cause in run.causes)


def _cause_record(cause: Explanation) -> dict[str, Any]:
    named = asdict(cause)
    return {"kind": "cause", "name": named.pop("cause"), **named}


def _scan_records(scan: Scan) -> Iterator[dict[str, Any]]:
    front = {"run": scan.whose, "schedule": "mc2"}
    for n, measured, predicted in scan.points:
        yield front | {
            "kind": "tile_cnt", "name": str(n), "unit": "s", "measured": measured, "predicted": predicted,
            "ratio": measured / predicted, "residual": measured - predicted,
        }  # fmt: skip
    yield from (front | _cause_record(cause) for cause in scan.causes)


def document(found: Comparison) -> dict[str, Any]:
    """The comparison as a tree; ``data/compare.schema.json`` describes it."""
    tree: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "target": found.target,
        "hardware": found.hardware,
        "resolved": found.resolved,
        "verdict": verdict(found),
        "runs": [_run(run) for run in found.runs],
        "scans": [_scan(scan) for scan in found.scans],
        "notes": list(found.notes),
    }
    if found.gain:
        tree["gain"] = _known(asdict(found.gain))
    return tree


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: v for name, v in values.items() if not (isinstance(v, float) and not math.isfinite(v))}


def _run(run: Run) -> dict[str, Any]:
    return {
        "run": run.label,
        "schedule": run.schedule,
        "files": list(run.files),
        "rows": [
            _known({**asdict(line), "ratio": line.ratio, "residual": line.residual}) for line in run.lines
        ],
        "causes": [asdict(cause) for cause in run.causes],
        "notes": list(run.notes),
    } | _known({"unexplained": run.unexplained})


def _scan(scan: Scan) -> dict[str, Any]:
    return {
        "operator": scan.whose,
        "tile_counts": [
            {"tile_cnt": n, "measured": measured, "predicted": predicted}
            for n, measured, predicted in scan.points
        ],
        "best_measured": scan.best_measured,
        "best_predicted": scan.best_predicted,
        "regret": scan.regret,
        "causes": [asdict(cause) for cause in scan.causes],
        "notes": list(scan.notes),
    }
