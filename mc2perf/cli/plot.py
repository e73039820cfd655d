"""``mc2perf plot``: one chart as PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.problems import Problems, did_you_mean

EXAMPLE = "mc2perf plot deepseek-v3 --kind ratio --hardware atlas_800t_a3,h800_sxm -o ratio.svg"


@asking(EXAMPLE)
def plot(
    asked: Asked,
    problems: Problems,
    kind: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="pieces (time against their number), breakdown (schedules side by side), ratio "
            "(communication against size, several machines) or roofline",
        ),
    ] = "pieces",
    over: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="for ratio, the size that grows: m, tokens, batch_size or seq_len"),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help=".png or .svg")] = None,
    theme: Annotated[str, typer.Option(metavar="WORD", help="light or dark")] = "light",
    language: Annotated[str, typer.Option(metavar="WORD", help="of the labels: en or zh")] = "en",
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="a title of your own")] = None,
) -> None:
    """Draw one chart (needs the extra [plot])."""
    from dataclasses import replace

    from mc2perf.plotting import KINDS, Question
    from mc2perf.writers import files
    from mc2perf.writers.charts.drawn import FORMATS, LANGUAGES, THEMES, draw, unreadable

    form = Path(output or "").suffix[1:]
    if form not in FORMATS:
        problems.append("output: write -o FILE.png or -o FILE.svg")
    for name, word, known in (
        ("kind", kind, KINDS),
        ("theme", theme, THEMES),
        ("language", language, LANGUAGES),
    ):
        if word not in known:
            problems.append(f"{name}: '{word}' is not known{did_you_mean(word, known)}")
    with problems:
        make = KINDS.get(kind, KINDS["pieces"])
        chart = make(Question(asked.target, asked.given, asked.overrides, tuple(asked.own), over))
    problems.refuse()
    chart = replace(chart, title=title or chart.title)
    if unreadable(chart, language):
        typer.echo("note: no font with these characters is installed; boxes stand for them", err=True)
    files.write_bytes(draw(chart, form, theme, language), str(output))
