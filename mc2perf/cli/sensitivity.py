"""``mc2perf sensitivity``: what an answer hangs on, and how sure it is."""

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

EXAMPLE = "mc2perf sensitivity matmul_all_reduce -m 4096 -n 8192 -k 4096 --hardware atlas_800t_a2_b2"


@with_inputs
def sensitivity(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    by: Annotated[str, typer.Option(metavar="SHARE", help="less and more of every parameter")] = "10%",
    uncertainty: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=SHARE", help="how far numbers of a kind are off, such as assumed=50%,fitted=5%"
        ),
    ] = None,
    samples: Annotated[
        str, typer.Option(metavar="NUMBER", help="samples of the uncertain parameters")
    ] = "512",
    format: Format = None,
    output: Output = None,
    **given: Any,
) -> None:
    """Price every profile parameter that an answer rests on, and say how sure the answer is."""
    if target is None:
        typer.echo(f"sensitivity needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.sensing import ask_sensitivity

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    try:
        form = format_of(target, output, format)
    except InputError as error:
        problems += error.problems
    try:
        asked = {**given, "dispatcher": dispatcher}
        found = ask_sensitivity(target, asked, overrides, by, uncertainty or [], samples, folders(profiles))
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    from mc2perf.writers import sensitivity as writer

    report = Report(
        title=f"mc2perf sensitivity {target}",
        target=target,
        columns=writer.COLUMNS,
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.to_tree(found),
    )
    put(report, output, form)
