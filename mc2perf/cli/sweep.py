"""``mc2perf sweep``: a grid of configurations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    from mc2perf.sweeping import Asked
    from mc2perf.table import Block

EXAMPLE = "mc2perf sweep all_gather_matmul -n 4096 -k 8192 --vary m=1K..64K:x2 --vary tile_cnt=1..16"
SWEPT = "What varies, what is kept"
FORMATS = ("table", "csv", "jsonl", "md", "xlsx", "parquet")

MOST_SHOWN = 200
"""A table for people ends after so many rows."""


def _option(help: str, metavar: str = "WORD", flag: str = "") -> Any:
    return typer.Option(*((flag,) if flag else ()), help=help, metavar=metavar, rich_help_panel=SWEPT)


@with_inputs
def sweep(
    target: Target = None,
    dispatcher: Dispatcher = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    vary: Annotated[
        list[str] | None,
        _option("an axis: a..b, a..b:step, a..b:xfactor or a list, such as m=1K..64K:x2", "NAME=VALUES"),
    ] = None,
    best_over: Annotated[
        list[str] | None,
        _option("keep the best row over these axes; 'pieces' is any number of pieces", "NAMES"),
    ] = None,
    by: Annotated[
        str | None,
        _option("what is best [default: total_time, or tokens_per_second where the work varies]", "COLUMN"),
    ] = None,
    top: Annotated[str | None, _option("keep the best rows only", "NUMBER")] = None,
    where: Annotated[
        list[str] | None, _option("keep rows for which this holds, such as 'comm_ratio < 20%'", "CONDITION")
    ] = None,
    columns: Annotated[
        str | None, _option("columns to write ('mc2perf columns') [default: all in files]", "NAMES")
    ] = None,
    target_tokens_per_second: Annotated[
        str | None, _option("add the NPUs and servers that reach this rate", "NUMBER")
    ] = None,
    price_per_npu_hour: Annotated[str | None, _option("add the cost of a million tokens", "NUMBER")] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="WORD", help=f"{', '.join(FORMATS)} [default: by suffix of -o, else table]"),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="file, or - for standard output")
    ] = None,
    digits: Annotated[str, typer.Option(metavar="WORD", help="9, or full: the very same number")] = "9",
    no_bom: Annotated[bool, typer.Option("--no-bom", help="CSV files without a byte-order mark")] = False,
    jobs: Annotated[str, typer.Option(metavar="NUMBER", help="processes; the result stays the same")] = "1",
    **given: Any,
) -> None:
    """Estimate a grid of configurations, and keep the best of each."""
    if target is None:
        typer.echo(f"sweep needs a target and what varies. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.sweeping import Ranking, ask_sweep

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    form, processes = _form(output, format, digits, problems), _jobs(jobs, problems)
    ranking = Ranking(
        best_over=best_over or (), by=by, top=top, where=where or (), columns=columns,
        target_tokens_per_second=target_tokens_per_second, price_per_npu_hour=price_per_npu_hour,
    )  # fmt: skip
    try:
        own = folders(profiles)
        asked = ask_sweep(target, {**given, "dispatcher": dispatcher}, overrides, vary or [], ranking, own)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    _echo(asked)
    if form == "table":
        found = _print_table(asked, processes, columns is not None)
    else:
        found = _write(asked, processes, output or "-", form, digits, bom=not no_bom)
    if not found:
        raise typer.Exit(1)


def _form(output: str | None, asked: str | None, digits: str, problems: list[str]) -> str:
    if asked and asked not in FORMATS:
        problems.append(f"format: '{asked}' is not known{did_you_mean(asked, FORMATS)}")
    if digits not in ("9", "full"):
        problems.append(f"digits: '{digits}' is not known; write 9 or full")
    if asked == "table" and output not in (None, "-"):
        problems.append("format: a table goes to the terminal; write csv, or a file that ends in .csv or .md")
    if asked:
        return asked
    if output is None:
        return "table"
    return "csv" if output == "-" else ""


def _jobs(text: str, problems: list[str]) -> int:
    from mc2perf.units import COUNT, parse

    try:
        return int(parse(text, COUNT))
    except ValueError as error:
        problems.append(f"jobs: {error}")
        return 1


def _echo(asked: Asked) -> None:
    """What is about to be done, on standard error."""
    sweep = asked.sweep
    axes = ", ".join(f"{name} ({len(values)})" for name, values in sweep.axes.items())
    said = [f"{sweep.rows_evaluated:,} rows over {axes}"]
    said += [f"where {condition.text}" for condition in sweep.where]
    if sweep.best_over:
        said.append(f"best over {', '.join(sweep.best_over)} by {sweep.metric}")
    if asked.top:
        said.append(f"top {asked.top} by {sweep.metric}")
    typer.echo("; ".join(said), err=True)


def _blocks(asked: Asked, names: list[str], jobs: int, done: Callable[[int], None]) -> Iterator[Block]:
    """The rows to show or write; of a ranking only the best."""
    from mc2perf.studies import run

    metric = asked.sweep.metric
    parts = run.blocks(asked.sweep, names, jobs=jobs, done=done)
    if asked.top is None:
        yield from parts
    else:
        ranked = list(dict.fromkeys((*names, metric)))
        parts = run.blocks(asked.sweep, ranked, jobs=jobs, done=done)
        best = run.best_rows(parts, asked.top, metric)
        if best is not None:
            yield {name: best[name] for name in names}


def _print_table(asked: Asked, jobs: int, chosen: bool) -> bool:
    import numpy as np

    from mc2perf.table import joined, length, only
    from mc2perf.writers.sweep_table import SHOWN, to_text

    wanted = asked.columns if chosen else [c for c in asked.columns if c.name in asked.sweep.axes]
    wanted = [*wanted, *(() if chosen else (c for c in asked.columns if c.name in SHOWN))]
    parts: list[Block] = []
    with _progress(asked) as done:
        for part in _blocks(asked, list(dict.fromkeys([*(c.name for c in wanted), "legal"])), jobs, done):
            parts.append(part)
            if sum(map(length, parts)) > MOST_SHOWN:
                break
    if not parts or not length(whole := joined(parts)):
        typer.echo("no row is left: every one was dropped by a condition", err=True)
        return False
    sys.stdout.write(to_text(only(whole, np.arange(min(length(whole), MOST_SHOWN))), wanted))
    if length(whole) > MOST_SHOWN:
        typer.echo(f"the first {MOST_SHOWN} rows; -o FILE writes all, --top ranks them", err=True)
    return "yes" in list(whole["legal"])


def _write(asked: Asked, jobs: int, output: str, form: str, digits: str, *, bom: bool) -> bool:
    """Stream the rows into a file; say how far an interrupted run came."""
    from mc2perf.sweeping import about
    from mc2perf.writers.tables import Style, open_table

    style = Style(bom=bom, digits="full" if digits == "full" else "9")
    table = open_table(output, asked.columns, about(asked), style, form or None)
    names = [column.name for column in asked.columns]
    rows = 0
    try:
        with table as opened, _progress(asked) as done:
            for block in _blocks(asked, names, jobs, done):
                opened.add(block)
                rows = opened.rows
    except KeyboardInterrupt:
        kept = "" if output == "-" else f"; '{output}' is as it was"
        typer.echo(f"interrupted after {rows:,} rows{kept}", err=True)
        raise
    if output != "-":
        typer.echo(f"{rows:,} rows in {output}", err=True)
    return rows > 0


@contextmanager
def _progress(asked: Asked) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left while a terminal looks on."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    import time

    begin, total = time.monotonic(), asked.sweep.rows_evaluated
    with typer.progressbar(length=total, file=sys.stderr, show_eta=True) as bar:
        seen = 0

        def done(rows: int) -> None:
            nonlocal seen
            seen += rows
            rate = seen / max(time.monotonic() - begin, 1e-9)
            bar.label = f"{rate:,.0f} rows/s"
            bar.update(rows)

        yield done
