"""``mc2perf sensitivity``: what an answer hangs on, and how sure it is."""

from __future__ import annotations

from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import Format, Output, Report, format_of, put
from mc2perf.problems import Problems

EXAMPLE = "mc2perf sensitivity matmul_all_reduce -m 4096 -n 8192 -k 4096 --hardware atlas_800t_a2_b2"


@asking(EXAMPLE)
def sensitivity(
    asked: Asked,
    problems: Problems,
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
) -> None:
    """Price every profile parameter that an answer rests on, and say how sure the answer is."""
    from mc2perf.sensing import ask_sensitivity

    with problems:
        form = format_of(asked.target, output, format)
    with problems:
        found = ask_sensitivity(
            asked.target, asked.given, asked.overrides, by, uncertainty or [], samples, asked.own
        )
    problems.refuse()
    from mc2perf.writers import sensitivity as writer

    report = Report(
        title=f"mc2perf sensitivity {asked.target}",
        target=asked.target,
        columns=writer.COLUMNS,
        block=lambda: writer.as_block(found),
        text=lambda: writer.to_text(found),
        tree=lambda: writer.to_tree(found),
    )
    put(report, output, form)
