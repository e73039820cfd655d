"""``mc2perf validate``: how well the model meets published measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mc2perf.cli.options import ProfileFolders, folders
from mc2perf.problems import Problems, did_you_mean
from mc2perf.scenario import DEFAULT_HARDWARE

EXAMPLE = "mc2perf validate --family T1 --rows"

FORMATS = ("table", "json")


def validate(
    profiles: ProfileFolders = None,
    family: Annotated[str | None, typer.Option(metavar="WORD", help="one family, such as T1")] = None,
    values: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML with values of held-out rows, 'id: value'; scored apart"),
    ] = None,
    kernels: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="tables of measured kernels (.csv), scored as well"),
    ] = None,
    hardware: Annotated[
        str, typer.Option(metavar="WORD", help="the machine that --kernels was measured on")
    ] = DEFAULT_HARDWARE,
    format: Annotated[str, typer.Option(metavar="WORD", help="table or json")] = "table",
    summary: Annotated[bool, typer.Option("--summary", help="the scores alone")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="list every scored value in the table")] = False,
    neighbours: Annotated[
        bool,
        typer.Option("--neighbours", help="ratios to what other simulators say instead; in no score"),
    ] = False,
) -> None:
    """Score the model against published measurements, beside a naive one; nothing is tuned."""
    from mc2perf.readers.measurements import load_measurements, read_values
    from mc2perf.validating import kernels as kernel_scores
    from mc2perf.validating import validate as score
    from mc2perf.writers.scores import to_json, to_text

    problems = Problems()
    if format not in FORMATS:
        problems.append(f"--format: '{format}' is not known{did_you_mean(format, FORMATS)}")
    if neighbours:
        about = {"family": family, "values": values, "kernels": kernels, "summary": summary, "rows": rows}
        problems += [f"--{name}: is of measurements; leave it out" for name, word in about.items() if word]
        sys.stdout.write(_beside(format, profiles, problems))
        return
    own = folders(profiles)
    given = (problems.kept(read_values, Path(values)) if values else None) or {}
    tables = (problems.kept(kernel_scores, Path(kernels), hardware, own) if kernels else None) or []
    problems.kept(load_measurements, family, given)
    problems.refuse()  # before the long run
    found = score(family, given, own)
    parts = (found.cases, found.scored, found.scores, found.checks, tables)
    sys.stdout.write(to_json(*parts) if format == "json" else to_text(*parts, rows=rows, summary=summary))


def _beside(format: str, profiles: ProfileFolders, problems: Problems) -> str:
    """What --neighbours prints."""
    from mc2perf.validating import neighbours
    from mc2perf.writers.neighbours import to_json, to_text

    problems.refuse()
    found = neighbours(folders(profiles))
    return to_json(found) if format == "json" else to_text(found)
