"""The report: one page that needs no network, from a template.

The page shows text that the other writers made, drawings, and rows that were answered beforehand; its
script only picks the row that the dials point at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mc2perf.answer import Answer, Row
from mc2perf.dials import Panel
from mc2perf.problems import InputError
from mc2perf.version import VERSION
from mc2perf.writers.table import schedule_headers, schedule_row, tables, where
from mc2perf.writers.verdict import verdict


class Figure(NamedTuple):
    """A drawing, as SVG for light and for dark paper, and what it shows."""

    caption: str
    light: str
    dark: str


class Source(NamedTuple):
    """A number that the answer rests on."""

    path: str
    value: str
    kind: str
    ref: str


@dataclass(frozen=True)
class Report:
    """Everything on the page; ``sure`` are sentences on how sure the answer is, ``effects`` their tables."""

    answer: Answer
    command: Sequence[str]
    panel: Panel
    figures: Sequence[Figure]
    timeline: str
    sources: Sequence[Source]
    effects: Sequence[tuple[list[str], list[list[str]]]]
    sure: Sequence[str]


def to_html(report: Report) -> str:
    """The page.

    Raises
    ------
    InputError
        Jinja is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise InputError(["report: needs Jinja and Matplotlib; pip install 'mc2perf[report]'"]) from None
    templates = Environment(
        loader=PackageLoader("mc2perf.writers", "report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    answer = report.answer
    return templates.get_template("page.html.j2").render(
        report=report, answer=answer, verdict=verdict(answer), where=where(answer).splitlines(),
        tables=list(tables(answer)), dials=_dials(report.panel), heads=schedule_headers(answer)[:-1],
        data=_data(report), version=VERSION,
    )  # fmt: skip


def _dials(panel: Panel) -> Iterator[dict[str, Any]]:
    for dial in panel.dials:
        yield {
            "name": dial.name, "label": dial.label, "last": len(dial.notches) - 1, "start": dial.start,
            "shown": dial.notches[dial.start].label,
        }  # fmt: skip


def _data(report: Report) -> dict[str, Any]:
    """What the script picks from: words of every notch, cells of every row, the command."""
    return {
        "command": list(report.command),
        "dials": [
            {"name": dial.name, "notches": [[notch.label, *notch.words] for notch in dial.notches]}
            for dial in report.panel.dials
        ],
        "rows": [row_cells(report.answer, row) for row in report.panel.rows],
    }


def row_cells(answer: Answer, row: Row) -> list[Any]:
    """The cells of a schedule without its note, or why it is refused; exposed share in thousandths.

    Examples
    --------
    >>> from mc2perf.api import estimate
    >>> answer = estimate("mixtral-8x7b", schedule="serial")
    >>> row_cells(answer, answer.rows[0])[:2]
    ['serial', '1']
    """
    if not row.legal:
        return [row.schedule, row.reason]
    *cells, _ = schedule_row(answer, row)
    return [*cells, round(1000.0 * row.comm_ratio)]
