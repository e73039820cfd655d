"""``mc2perf check``: may it run here, and what is the nearest question that may."""

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
from mc2perf.problems import InputError, did_you_mean

EXAMPLE = (
    "mc2perf check moe_distribute_dispatch -m 27 -k 7168 --ranks 16 --experts-per-rank 16 --top-k 8"
    " --hardware atlas_800t_a3"
)
FORMATS = ("table", "json")


@with_inputs
def check(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    operator: Annotated[
        str | None, typer.Option(metavar="NAMES", help="show these operators only, with commas between")
    ] = None,
    format: Annotated[str, typer.Option(metavar="WORD", help="table or json")] = "table",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output"),
    ] = None,
    **given: Any,
) -> None:
    """Check whether operators run here: every rule with its source; exit 1 if none of those asked does."""
    if target is None:
        typer.echo(f"check needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.checking import ask_check, check_tree
    from mc2perf.studies.check import legal_ones
    from mc2perf.writers import files
    from mc2perf.writers.check import to_check_json, to_check_text

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    if format not in FORMATS:
        problems.append(f"format: '{format}' is not known{did_you_mean(format, FORMATS)}")
    try:
        question, shown, every = ask_check(
            target, {**given, "dispatcher": dispatcher}, overrides, operator or "", folders(profiles)
        )
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    text = (
        to_check_json(check_tree(question, overrides), shown, every)
        if format == "json"
        else to_check_text(question, shown, every)
    )
    files.write(text, output)
    asked = legal_ones(shown) or any(c.runs for c in shown if not any(s.decides for s in shown))
    if shown and not asked:
        raise typer.Exit(1)
