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
    folders,
    with_inputs,
)
from mc2perf.cli.reports import Format, Output, Report, asked, needed, put

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
    target = needed(target, "diff", EXAMPLE)
    from mc2perf.differing import ask_diff

    inputs, own = {**given, "dispatcher": dispatcher}, folders(profiles)
    found, form = asked(
        lambda overrides: ask_diff(target, other, inputs, overrides, to or [], of, own),
        set, target, output, format,
    )  # fmt: skip
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
