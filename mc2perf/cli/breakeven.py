"""``mc2perf breakeven``: from which size on overlapping pays."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import Format, Output, Report, format_of, put, stays
from mc2perf.problems import Problems

EXAMPLE = (
    "mc2perf breakeven all_gather_matmul -n 4096 -k 8192 --ranks 8 --hardware atlas_800i_a2,atlas_800t_a3"
)


@asking(EXAMPLE)
def breakeven(
    asked: Asked,
    problems: Problems,
    over: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="the size that grows: m, tokens, batch_size or seq_len"),
    ] = None,
    to: Annotated[str, typer.Option(metavar="NUMBER", help="largest size to try")] = "64K",
    format: Format = None,
    output: Output = None,
) -> None:
    """Find the size from which overlapping pays; --hardware may list several machines."""
    from mc2perf.breakingeven import ask_breakeven

    with problems:
        form = format_of(asked.target, output, format)
    with problems:
        answers = ask_breakeven(asked.target, asked.given, asked.overrides, over, to, asked.own)
    problems.refuse()
    from mc2perf.studies.breakeven import COLUMNS, as_block
    from mc2perf.writers.sweep_table import to_text

    block = as_block(answers)
    title = f"mc2perf breakeven {asked.target}"
    answered = not all(answer.reason for answer in answers)
    report = Report(title, asked.target, COLUMNS, lambda: block, lambda: to_text(block, COLUMNS))
    if not stays(output, answered):
        put(report, output, form)
    if not answered:
        raise typer.Exit(1)
