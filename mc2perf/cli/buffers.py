"""``mc2perf buffers``: the HCCL_BUFFSIZE that operators need, the largest batch, the symmetric heap."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import Overrides, ProfileFolders, Target, assignments, folders, with_inputs
from mc2perf.problems import InputError, did_you_mean

EXAMPLE = "mc2perf buffers deepseek-v3 --hardware atlas_800t_a3 --phase decode --batch-size 27"
FORMATS = ("table", "json")


@with_inputs
def buffers(
    target: Target = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    format: Annotated[str, typer.Option(metavar="WORD", help="table or json")] = "table",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output"),
    ] = None,
    **given: Any,
) -> None:
    """Size communication buffers by every documented formula; exit 1 if what is there meets none."""
    if target is None:
        typer.echo(f"buffers needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.checking import ask_question, check_tree
    from mc2perf.studies.buffers import buffers_of, heaps_of, suggested_mb
    from mc2perf.writers import files
    from mc2perf.writers.buffers import to_buffers_json, to_buffers_text

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    if format not in FORMATS:
        problems.append(f"format: '{format}' is not known{did_you_mean(format, FORMATS)}")
    try:
        question = ask_question(target, given, overrides, folders(profiles))
        found, heaps = buffers_of(question), heaps_of(question)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    suggested = suggested_mb(question)
    as_json = format == "json"
    text = (
        to_buffers_json(check_tree(question, overrides), found, heaps, suggested)
        if as_json
        else to_buffers_text(question, found, heaps, suggested)
    )
    files.write(text, output)
    fits = [*(buffer.fits for buffer in found), *(heap.fits for heap in heaps)]
    if fits and not any(fits):
        raise typer.Exit(1)
