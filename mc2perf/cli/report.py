"""``mc2perf report``: one page for people who would rather look."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import (
    Dispatcher,
    Overrides,
    ProfileFolders,
    Target,
    assignments,
    folders,
    with_inputs,
)
from mc2perf.cli.progress import steps
from mc2perf.problems import InputError

EXAMPLE = "mc2perf report deepseek-v3 --hardware atlas_800t_a3 -o report.html"


@with_inputs
def report(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help=".html, or -")] = None,
    **given: Any,
) -> None:
    """Write the answer as one page with pictures, sources and dials to turn (needs the extra [report])."""
    if target is None:
        typer.echo(f"report needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.reporting import STEPS, ask_report
    from mc2perf.writers import files
    from mc2perf.writers.report import to_html

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    if output is None or not output.endswith((".html", ".htm", "-")):
        problems.append("output: write -o FILE.html")
    asked = {**given, "dispatcher": dispatcher}
    try:
        with steps("report", len(STEPS)) as done:
            found = ask_report(target, asked, overrides, folders(profiles), done)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    files.write(to_html(found), output)
