"""``mc2perf diff``: which input moved the answer."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.options import GROUPS
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import Problems

EXAMPLE = (
    "mc2perf diff deepseek-v3 --hardware atlas_800t_a3 --to dtype=int8 --to tiers.node.link_rate='56 GB/s'"
)


@asking(EXAMPLE)
def diff(
    asked: Asked,
    problems: Problems,
    other: Annotated[
        str | None,
        typer.Argument(
            help="the second question, or a result saved as JSON [default: the first]",
            show_default=False,
            metavar="OTHER",
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="an input or a path of the profile that the second changes"),
    ] = None,
    of: Annotated[
        str, typer.Option(metavar="WORD", help="what is compared, such as tokens_per_second or comm_ratio")
    ] = "total_time",
    format: Format = None,
    output: Output = None,
) -> None:
    """Attribute the difference of two answers to the inputs and profile values that differ."""
    from mc2perf.differing import ask_diff

    with problems:
        form = format_of(asked.target, output, format)
    with problems:
        found = ask_diff(asked.target, other, asked.given, asked.overrides, to or [], of, asked.own)
    problems.refuse()
    from mc2perf.writers import waterfall as writer

    report = Report(
        title=f"mc2perf diff {asked.target}",
        target=asked.target,
        columns=writer.columns_of(found),
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.to_tree(found),
    )
    put(report, output, form)
