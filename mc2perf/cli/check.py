"""``mc2perf check``: may it run here, and what is the nearest question that may."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import TextFormat, TextOutput, as_json
from mc2perf.problems import Problems

EXAMPLE = (
    "mc2perf check moe_distribute_dispatch -m 27 -k 7168 --ranks 16 --experts-per-rank 16 --top-k 8"
    " --hardware atlas_800t_a3"
)


@asking(EXAMPLE)
def check(
    asked: Asked,
    problems: Problems,
    operator: Annotated[
        str | None, typer.Option(metavar="NAMES", help="show these operators only, with commas between")
    ] = None,
    format: TextFormat = "table",
    output: TextOutput = None,
) -> None:
    """Check whether operators run here: every rule with its source; exit 1 if none of those asked does."""
    from mc2perf.checking import ask_check, check_tree
    from mc2perf.studies.check import legal_ones
    from mc2perf.writers import files
    from mc2perf.writers.check import to_check_json, to_check_text

    with problems:
        to_json = as_json(format)
    with problems:
        question, shown, every = ask_check(
            asked.target, asked.given, asked.overrides, operator or "", asked.own
        )
    problems.refuse()
    text = (
        to_check_json(check_tree(question, asked.overrides), shown, every)
        if to_json
        else to_check_text(question, shown, every)
    )
    files.write(text, output)
    runs = legal_ones(shown) or any(c.runs for c in shown if not any(s.decides for s in shown))
    if shown and not runs:
        raise typer.Exit(1)
