"""``mc2perf estimate``: one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import stays
from mc2perf.problems import InputError, Problems

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

STRICT = (
    "strict: exit 1, for a fit is used outside what it was fitted to (warning EXTRAPOLATED names it); "
    "stay within, calibrate it there ('mc2perf calibrate'), or leave --strict out"
)


@asking(EXAMPLES)
def estimate(
    asked: Asked,
    problems: Problems,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 1 if a fit is used outside what it was fitted to")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="print every formula with its numbers")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="print what an NPU holds; exit 1 if that is more than its memory")
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="as --memory, with changes that would make it fit, fastest first")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="draw one layer of the best schedule, piece by piece")
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="write the whole timeline for Perfetto and MindStudio Insight (trace_view.json), or one "
            "layer as a drawing (.svg)",
        ),
    ] = None,
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
) -> None:
    """Estimate one configuration: a fused operator or the layers of a model."""
    from mc2perf.api import ask
    from mc2perf.readers.scenarios import scenario_tree
    from mc2perf.writers import files

    form = _format(output, format, problems)
    with problems:
        answer, scenario, overrides = ask(*asked, explain)
    problems += [
        *_same_files(asked.target, output=output, save_scenario=save_scenario, trace=trace),
        *_drawable(trace),
    ]
    problems.refuse()
    if save_scenario:
        files.write(_yaml(scenario_tree(scenario, overrides)), save_scenario, "save_scenario")
    text, fits = _text(answer, form, explain), True
    if memory or fit:
        held, fits = _memory(scenario, overrides, asked.own, form, fit)
        text += held
    rows = answer.rows[-1:] if scenario.schedule != "all" else answer.rows
    legal = any(row.legal for row in rows)
    if not stays(output, legal):
        files.write(text, output)
    if form in ("json", "csv"):
        for remark in answer.warnings:
            typer.echo(f"warning {remark.code}: {remark.text}", err=True)
    if timeline or trace:
        _draw(answer, scenario, overrides, asked.own, timeline and form in ("table", "markdown"), trace)
    outside = strict and any(remark.code == "EXTRAPOLATED" for remark in answer.warnings)
    if outside:
        typer.echo(STRICT, err=True)
    if outside or not fits or not legal:
        raise typer.Exit(1)


def _same_files(target: str, **written: str | None) -> Iterator[str]:
    """Files that would be written over what was asked, or over each other."""
    taken = [target]
    for name, file in written.items():
        if file and file != "-":
            if file in taken:
                yield f"{name}: '{file}' is written or read already; write another name"
            taken.append(file)


def _drawable(trace: str | None) -> Iterator[str]:
    if trace and Path(trace).suffix not in (".json", ".svg"):
        yield f"trace: '{trace}' is neither .json nor .svg; write trace_view.json"


def _draw(
    answer: Answer, scenario: Scenario, overrides: dict[str, str], own: list[Path], in_text: bool,
    trace: str | None,
) -> None:  # fmt: skip
    """The schedule asked for, else the best one, played: as text, and into a file."""
    row = answer.best if scenario.schedule == "all" else answer.rows[-1]
    if row is None or not row.legal:
        return
    from mc2perf.api import playback_of
    from mc2perf.writers import files
    from mc2perf.writers.gantt import to_gantt

    played = playback_of(scenario, overrides, row, own)
    if in_text:
        typer.echo(f"\n{to_gantt(played)}", nl=False)
    if trace and Path(trace).suffix == ".svg":
        from mc2perf.writers.timeline_svg import to_svg

        files.write(to_svg(played), trace, "trace")
    elif trace:
        from mc2perf.writers.trace import INSIGHT, to_trace

        title = f"{scenario.target} on {answer.inputs['hardware']}"
        files.write(to_trace(played, title), trace, "trace")
        if not INSIGHT.fullmatch(Path(trace).name):
            typer.echo(
                f"note: MindStudio Insight opens timelines named trace_view.json; not {trace}", err=True
            )


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
