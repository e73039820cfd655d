"""``mc2perf report``: one page for people who would rather look."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.progress import steps
from mc2perf.problems import Problems

EXAMPLE = "mc2perf report deepseek-v3 --hardware atlas_800t_a3 -o report.html"


@asking(EXAMPLE)
def report(
    asked: Asked,
    problems: Problems,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help=".html, or -")] = None,
) -> None:
    """Write the answer as one page with pictures, sources and dials to turn (needs the extra [report])."""
    from mc2perf.reporting import STEPS, ask_report
    from mc2perf.writers import files
    from mc2perf.writers.report import to_html

    if output is None or not output.endswith((".html", ".htm", "-")):
        problems.append("output: write -o FILE.html")
    with problems, steps("report", len(STEPS)) as done:
        found = ask_report(*asked, done)
    problems.refuse()
    files.write(to_html(found), output)
