"""``mc2perf audit``: do claims of a gain hang together, and what could lie behind them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import (
    GROUPS,
    Dispatcher,
    Overrides,
    ProfileFolders,
    assignments,
    folders,
    with_inputs,
)
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import Problems

EXAMPLE = (
    "mc2perf audit --claim before:comm_ratio=47%,tokens_per_second=580 "
    "--claim after:comm_ratio=18%,tokens_per_second=1420"
)


@with_inputs
def audit(
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLAIMS]...",
            help="shipped claims or YAML files [default: every shipped set, unless --claim is given]",
            show_default=False,
        ),
    ] = None,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KEY=VALUE,...",
            help="comm_ratio, tokens_per_second (of an NPU), speedup, overlappable_ratio, base, any input;"
            " may be repeated",
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="the model that the claims are of", rich_help_panel=GROUPS["what"]),
    ] = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    format: Format = None,
    output: Output = None,
    **given: Any,
) -> None:
    """Check claims by arithmetic and beside the model; exit 1 unless all hold."""
    from mc2perf.auditing import ask_audit
    from mc2perf.writers import audit as writer

    problems = Problems()
    overrides = dict(assignments(set or [], problems))
    with problems:
        form = format_of(None, output, format)
    if output and output in (claims or ()):
        problems.append(f"output: '{output}' is read already; write another name")
    asked = {**given, "dispatcher": dispatcher, "target": target}
    with problems:
        audits = ask_audit(claims or [], claim or [], asked, overrides, folders(profiles))
    problems.refuse()
    report = Report(
        title="mc2perf audit",
        target=", ".join(found.claims.name for found in audits),
        columns=writer.COLUMNS,
        block=lambda: writer.as_block(audits),
        text=lambda: writer.to_text(audits),
        tree=lambda: writer.document(audits),
    )
    put(report, output, form)
    if not all(found.holds for found in audits):
        raise typer.Exit(1)
