"""``mc2perf compare``: prediction beside measurement, and what could explain the rest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import (
    GROUPS,
    Dispatcher,
    Overrides,
    ProfileFolders,
    Target,
    assignments,
    folders,
    with_inputs,
)
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import InputError

EXAMPLE = "mc2perf compare deepseek-v3 alltoall=before/ mc2=after/ --hardware atlas_800t_a3 --ep 16"


@with_inputs
def compare(
    target: Target = None,
    measurements: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEASUREMENT...",
            help="files or folders of a profiler, logs, tile scans; alltoall=FILE mc2=FILE tell runs apart",
            show_default=False,
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    format: Format = None,
    output: Output = None,
    **given: Any,
) -> None:
    """Lay a prediction beside measurements; rank what could explain each residual."""
    if target is None or not measurements:
        typer.echo(f"compare needs a target and measurements. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.cli.progress import reading
    from mc2perf.comparing import ask_compare
    from mc2perf.writers import compare as writer

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    form = "table"
    try:
        form = format_of(target, output, format)
    except InputError as error:
        problems += error.problems
    if output and any(output == text.partition("=")[2] or output == text for text in measurements):
        problems.append(f"output: '{output}' is read already; write another name")
    try:
        asked = {**given, "dispatcher": dispatcher}
        found = ask_compare(target, measurements, asked, overrides, folders(profiles), reading)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    report = Report(
        title=f"mc2perf compare {target}",
        target=target,
        columns=writer.COLUMNS,
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.document(found),
    )
    put(report, output, form)
