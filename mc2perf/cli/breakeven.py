"""``mc2perf breakeven``: from which size on overlapping pays."""

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
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import InputError

EXAMPLE = (
    "mc2perf breakeven all_gather_matmul -n 4096 -k 8192 --ranks 8 --hardware atlas_800i_a2,atlas_800t_a3"
)


@with_inputs
def breakeven(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    over: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="the size that grows: m, tokens, batch_size or seq_len"),
    ] = None,
    to: Annotated[str, typer.Option(metavar="NUMBER", help="largest size to try")] = "64K",
    format: Format = None,
    output: Output = None,
    **given: Any,
) -> None:
    """Find the size from which overlapping pays; --hardware may list several machines."""
    if target is None:
        typer.echo(f"breakeven needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.breakingeven import ask_breakeven

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    try:
        form = format_of(target, output, format)
    except InputError as error:
        problems += error.problems
    try:
        answers = ask_breakeven(
            target, {**given, "dispatcher": dispatcher}, overrides, over, to, folders(profiles)
        )
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    from mc2perf.studies.breakeven import COLUMNS, as_block
    from mc2perf.writers.sweep_table import to_text

    block = as_block(answers)
    title = f"mc2perf breakeven {target}"
    put(Report(title, target, COLUMNS, lambda: block, lambda: to_text(block, COLUMNS)), output, form)
    if all(answer.reason for answer in answers):
        raise typer.Exit(1)
