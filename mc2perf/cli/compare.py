"""``mc2perf compare``: prediction beside measurement, and what could explain the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.options import GROUPS
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import Problems

EXAMPLE = "mc2perf compare deepseek-v3 alltoall=before/ mc2=after/ --hardware atlas_800t_a3 --ep 16"


@asking(EXAMPLE)
def compare(
    asked: Asked,
    problems: Problems,
    measurements: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEASUREMENT...",
            help="files or folders of a profiler, logs, tile scans; alltoall=FILE mc2=FILE tell runs apart",
            show_default=False,
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Lay a prediction beside measurements; rank what could explain each residual."""
    if not measurements:
        typer.echo(f"compare needs measurements. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.cli.progress import reading
    from mc2perf.comparing import ask_compare
    from mc2perf.writers import compare as writer

    with problems:
        form = format_of(asked.target, output, format)
    if output and any(output == text.partition("=")[2] or output == text for text in measurements):
        problems.append(f"output: '{output}' is read already; write another name")
    with problems:
        found = ask_compare(asked.target, measurements, asked.given, asked.overrides, asked.own, reading)
    problems.refuse()
    report = Report(
        title=f"mc2perf compare {asked.target}",
        target=asked.target,
        columns=writer.COLUMNS,
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.document(found),
    )
    put(report, output, form)
