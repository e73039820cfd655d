"""``mc2perf buffers``: the HCCL_BUFFSIZE that operators need, the largest batch, the symmetric heap."""

from __future__ import annotations

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import TextFormat, TextOutput, as_json
from mc2perf.problems import Problems

EXAMPLE = "mc2perf buffers deepseek-v3 --hardware atlas_800t_a3 --phase decode --batch-size 27"


@asking(EXAMPLE)
def buffers(
    asked: Asked,
    problems: Problems,
    format: TextFormat = "table",
    output: TextOutput = None,
) -> None:
    """Size communication buffers by every documented formula; exit 1 if what is there meets none."""
    from mc2perf.checking import ask_question, check_tree
    from mc2perf.studies.buffers import buffers_of, heaps_of, suggested_mb
    from mc2perf.writers import files
    from mc2perf.writers.buffers import to_buffers_json, to_buffers_text

    with problems:
        to_json = as_json(format)
    with problems:
        question = ask_question(asked.target, asked.given, asked.overrides, asked.own)
        found, heaps = buffers_of(question), heaps_of(question)
    problems.refuse()
    suggested = suggested_mb(question)
    text = (
        to_buffers_json(check_tree(question, asked.overrides), found, heaps, suggested)
        if to_json
        else to_buffers_text(question, found, heaps, suggested)
    )
    files.write(text, output)
    fits = [*(buffer.fits for buffer in found), *(heap.fits for heap in heaps)]
    if fits and not any(fits):
        raise typer.Exit(1)
