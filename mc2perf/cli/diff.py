"""``mc2perf diff``: which input moved the answer."""

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

EXAMPLE = (
    "mc2perf diff deepseek-v3 --hardware atlas_800t_a3 --to dtype=int8 --to tiers.node.link_rate='56 GB/s'"
)


@with_inputs
def diff(
    target: Target = None,
    other: Annotated[
        str | None,
        typer.Argument(
            help="the second question, or a result saved as JSON [default: the first]",
            show_default=False,
            metavar="OTHER",
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="an input or a path of the profile that the second changes"),
    ] = None,
    of: Annotated[
        str, typer.Option(metavar="WORD", help="what is compared, such as tokens_per_second or comm_ratio")
    ] = "total_time",
    format: Format = None,
    output: Output = None,
    **given: Any,
) -> None:
    """Attribute the difference of two answers to the inputs and profile values that differ."""
    if target is None:
        typer.echo(f"diff needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.differing import ask_diff

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    try:
        form = format_of(target, output, format)
    except InputError as error:
        problems += error.problems
    try:
        asked = {**given, "dispatcher": dispatcher}
        found = ask_diff(target, other, asked, overrides, to or [], of, folders(profiles))
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    from mc2perf.writers import waterfall as writer

    report = Report(
        title=f"mc2perf diff {target}",
        target=target,
        columns=writer.columns_of(found),
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.to_tree(found),
    )
    put(report, output, form)
