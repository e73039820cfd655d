"""``mc2perf plot``: one chart as PNG or SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from mc2perf.plotting import Question
    from mc2perf.writers.charts import Chart

EXAMPLE = "mc2perf plot deepseek-v3 --kind ratio --hardware atlas_800t_a3,h800_sxm -o ratio.svg"


@with_inputs
def plot(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
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
    **given: Any,
) -> None:
    """Draw one chart (needs the extra [plot])."""
    if target is None:
        typer.echo(f"plot needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from dataclasses import replace

    from mc2perf.plotting import KINDS, Question
    from mc2perf.writers.charts.drawn import FORMATS, LANGUAGES, THEMES, draw, unreadable
    from mc2perf.writers.into_place import into_place

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
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
    chart = _chart(
        KINDS.get(kind),
        Question(target, {**given, "dispatcher": dispatcher}, overrides, tuple(folders(profiles)), over),
        problems,
    )
    if problems or chart is None:
        raise InputError(problems)
    chart = replace(chart, title=title or chart.title)
    if unreadable(chart, language):
        typer.echo("note: no font with these characters is installed; boxes stand for them", err=True)
    drawn = draw(chart, form, theme, language)
    with into_place(str(output)) as file:
        file.write(drawn)


def _chart(make: Callable[[Question], Chart] | None, question: Question, problems: list[str]) -> Chart | None:
    if make is None:
        return None
    try:
        return make(question)
    except InputError as error:
        problems += error.problems
        return None
