"""``mc2perf breakeven``: from which size on overlapping pays."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import (
    Dispatcher,
    Overrides,
    ProfileFolders,
    Target,
    folders,
    with_inputs,
)
from mc2perf.cli.reports import Format, Output, Report, asked, needed, put

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
    target = needed(target, "breakeven", EXAMPLE)
    from mc2perf.breakingeven import ask_breakeven

    inputs, own = {**given, "dispatcher": dispatcher}, folders(profiles)
    answers, form = asked(
        lambda overrides: ask_breakeven(target, inputs, overrides, over, to, own),
        set, target, output, format,
    )  # fmt: skip
    from mc2perf.studies.breakeven import COLUMNS, as_block
    from mc2perf.writers.sweep_table import to_text

    block = as_block(answers)
    title = f"mc2perf breakeven {target}"
    put(Report(title, target, COLUMNS, lambda: block, lambda: to_text(block, COLUMNS)), output, form)
    if all(answer.reason for answer in answers):
        raise typer.Exit(1)
