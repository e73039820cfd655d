"""``mc2perf estimate``: one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from mc2perf.problems import InputError

if TYPE_CHECKING:
    from mc2perf.answer import Answer
    from mc2perf.scenario import Scenario

EXAMPLES = """\
mc2perf estimate mixtral-8x7b
    a training step's layers on Atlas 800I A2, every schedule side by side
mc2perf estimate deepseek-v3 --hardware atlas_800t_a3 --ep 16 --phase prefill
    another model, machine and phase
mc2perf estimate all_to_all_matmul -m 8192 -n 4096 -k 7168 --ranks 8 --hardware ascend_950pr
    one fused operator: the best tile count"""


@with_inputs
def estimate(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    explain: Annotated[bool, typer.Option("--explain", help="print every formula with its numbers")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="print what an NPU holds; exit 1 if that is more than its memory")
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="as --memory, with changes that would make it fit, fastest first")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="table, json, csv or markdown [default: by suffix of -o, else table]"
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output"),
    ] = None,
    save_scenario: Annotated[
        str | None, typer.Option(metavar="FILE", help="write the question as a scenario file")
    ] = None,
    **given: Any,
) -> None:
    """Estimate one configuration: a fused operator or the layers of a model."""
    if target is None:
        typer.echo(f"estimate needs a target. Three examples:\n\n{EXAMPLES}", err=True)
        raise typer.Exit(2)
    from mc2perf.api import ask
    from mc2perf.readers.scenarios import scenario_tree
    from mc2perf.writers import files

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    form = _format(output, format, problems)
    try:
        asked_for = {**given, "dispatcher": dispatcher}
        answer, scenario, overrides = ask(target, asked_for, overrides, folders(profiles), explain)
    except InputError as error:
        problems += error.problems
    problems += _same_files(target, output, save_scenario)
    if problems:
        raise InputError(problems)
    if save_scenario:
        files.write(_yaml(scenario_tree(scenario, overrides)), save_scenario)
    text, fits = _text(answer, form, explain), True
    if memory or fit:
        held, fits = _memory(scenario, overrides, folders(profiles), form, fit)
        text += held
    files.write(text, output)
    if form in ("json", "csv"):
        for remark in answer.warnings:
            typer.echo(f"warning {remark.code}: {remark.text}", err=True)
    asked = answer.rows[-1:] if scenario.schedule != "all" else answer.rows
    if not fits or not any(row.legal for row in asked):
        raise typer.Exit(1)


def _same_files(target: str, output: str | None, save_scenario: str | None) -> Iterator[str]:
    """Files that would be written over what was asked, or over each other."""
    if save_scenario and save_scenario in (output, target):
        yield f"save_scenario: '{save_scenario}' is written or read already; write another name"
    if output and output == target:
        yield f"output: '{output}' is the question itself; write another name"


def _memory(
    scenario: Scenario, overrides: dict[str, str], own: list[Path], form: str, fit: bool
) -> tuple[str, bool]:
    """The memory table where people read, and whether it fits; JSON has it anyway."""
    from mc2perf.api import memory_of
    from mc2perf.writers.footprint import to_memory_table

    held, fits = memory_of(scenario, overrides, own, fit)
    style = {"table": "simple", "markdown": "github"}.get(form)
    return f"\n{to_memory_table(held, fits, style).rstrip()}\n" if style else "", bool(held.fits.all())


def _format(output: str | None, asked: str | None, problems: list[str]) -> str:
    from mc2perf.problems import did_you_mean
    from mc2perf.writers.files import format_of

    if asked and asked not in _FORMATS:
        problems.append(f"format: '{asked}' is not known{did_you_mean(asked, _FORMATS)}")
        return "table"
    try:
        return format_of(output, asked)
    except InputError as error:
        problems += error.problems
        return "table"


def _table(answer: Answer) -> str:
    from mc2perf.writers.table import to_table

    return to_table(answer)


def _markdown(answer: Answer) -> str:
    from mc2perf.writers.table import to_markdown

    return to_markdown(answer)


def _json(answer: Answer) -> str:
    from mc2perf.writers.json_format import to_json

    return to_json(answer)


def _csv(answer: Answer) -> str:
    from mc2perf.writers.csv_format import to_csv

    return to_csv(answer)


_FORMATS: dict[str, Callable[[Answer], str]] = {
    "table": _table,
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}
"""Format -> text of an answer."""


def _text(answer: Answer, form: str, explain: bool) -> str:
    text = _FORMATS[form](answer)
    if explain and form in ("table", "markdown"):
        from mc2perf.writers.explain import to_explanation

        text += "\n" + to_explanation(answer)
    return text


def _yaml(tree: dict[str, object]) -> str:
    import yaml

    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
