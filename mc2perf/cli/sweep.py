"""``mc2perf sweep``: a grid of configurations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from mc2perf.cli.reports import stays
from mc2perf.problems import InputError, Problems, did_you_mean

if TYPE_CHECKING:
    from mc2perf.sweeping import Asked
    from mc2perf.table import Block

EXAMPLE = "mc2perf sweep all_gather_matmul -n 4096 -k 8192 --vary m=1K..64K:x2 --vary tile_cnt=1..16"
SWEPT = "What varies, what is kept"
FORMATS = ("table", "csv", "jsonl", "md", "xlsx", "parquet")
BINARY = ("xlsx", "parquet")

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
    top: Annotated[str | None, _option("keep so many rows, the best by --by", "NUMBER")] = None,
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
    jobs: Annotated[
        str, typer.Option(metavar="NUMBER", help="processes, one a core at most; the result stays the same")
    ] = "1",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Dask scheduler; its workers write parts into the folder of -o"),
    ] = None,
    **given: Any,
) -> None:
    """Estimate a grid of configurations, and keep the best of each."""
    target = target or _varied_target(vary or [])
    if target is None:
        typer.echo(f"sweep needs a target and what varies. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from concurrent.futures import BrokenExecutor

    from mc2perf.sweeping import Ranking, ask_sweep

    problems = Problems()
    overrides = dict(assignments(set or [], problems))
    parts = cluster is not None and top is None
    form = _form_of_parts(format, problems) if parts else _form(output, format, digits, problems)
    processes = _jobs(jobs, problems) if cluster is None else cluster
    problems += _idle(target, output, by, bool(best_over), top)
    ranking = Ranking(
        best_over=best_over or (), by=by, top=top, where=where or (), columns=columns,
        target_tokens_per_second=target_tokens_per_second, price_per_npu_hour=price_per_npu_hour,
    )  # fmt: skip
    with problems:
        own = folders(profiles)
        asked = ask_sweep(target, {**given, "dispatcher": dispatcher}, overrides, vary or [], ranking, own)
    problems.refuse()
    _echo(asked)
    try:
        if parts:
            found = _write_parts(asked, str(cluster), output or "-")
        elif form == "table":
            found = _print_table(asked, processes, columns is not None)
        else:
            found = _write(asked, processes, output or "-", form, digits, bom=not no_bom)
    except MemoryError:
        said = "vary: memory does not hold the rows compared at once; vary less at once"
        raise InputError([said]) from None
    except BrokenExecutor:
        said = "jobs: a process was ended from outside, as for want of memory; write a smaller --jobs"
        raise InputError([said]) from None
    if not found:
        raise typer.Exit(1)


def _idle(target: str, output: str | None, by: str | None, best: bool, top: str | None) -> Iterator[str]:
    """Options that would destroy the question, or do nothing."""
    if output is not None and output == target:
        yield f"output: '{output}' is the question itself; write another name"
    if by is not None and not best and top is None:
        yield f"by: nothing is ranked by {by}; add --best-over or --top"


def _form(output: str | None, asked: str | None, digits: str, problems: list[str]) -> str:
    if asked and asked not in FORMATS:
        problems.append(f"format: '{asked}' is not known{did_you_mean(asked, FORMATS)}")
    if digits not in ("9", "full"):
        problems.append(f"digits: '{digits}' is not known; write 9 or full")
    if asked == "table" and output not in (None, "-"):
        problems.append("format: a table goes to the terminal; write csv, or a file that ends in .csv or .md")
    form = asked or ("table" if output is None else "csv" if output == "-" else "")
    if form != "table" and (not form or form in FORMATS):
        problems += _unwritable("-" if output is None else output, form)
    return form


def _form_of_parts(asked: str | None, problems: list[str]) -> str:
    if asked not in (None, "parquet"):
        problems.append(f"format: a cluster writes parquet, not {asked}; leave out --format, or add --top")
    return "parquet"


def _unwritable(output: str, form: str) -> list[str]:
    """Why the output cannot be written."""
    from mc2perf.writers.tables import check_output

    if output == "-" and form in BINARY and sys.stdout.isatty():
        return [f"output: {form} is nothing to read on a terminal; write -o plan.{form}"]
    try:
        check_output(output, form or None)
    except InputError as error:
        return error.problems
    return []


def _varied_target(vary: list[str]) -> str | None:
    """The first of the targets that vary, where none is named."""
    lists = [text.partition("=")[2] for text in vary if text.partition("=")[0].strip() == "target"]
    return lists[0].split(",")[0].strip() or None if lists else None


def _jobs(text: str, problems: list[str]) -> int:
    """Processes: as many as asked for, but no more than there are cores."""
    import os

    from mc2perf.units import COUNT, parse

    try:
        return min(int(parse(text, COUNT)), os.cpu_count() or 1)
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


@dataclass
class _Progress:
    """How many rows of the grid were evaluated, and a bar that shows it while a terminal looks on."""

    total: int
    rows: int = 0
    begin: float = 0.0
    bar: Any = None

    def __call__(self, rows: int) -> None:
        """Take more rows."""
        self.rows += rows
        if self.bar is not None:
            from time import monotonic

            self.bar.label = f"{self.rows / max(monotonic() - self.begin, 1e-9):,.0f} rows/s"
            self.bar.update(rows)


@contextmanager
def _progress(asked: Asked, output: str = "-") -> Iterator[_Progress]:
    """Show rate and time left on a terminal; say how far an interrupted run came."""
    from time import monotonic

    done = _Progress(asked.sweep.rows_evaluated, begin=monotonic())
    try:
        if sys.stderr.isatty():
            with typer.progressbar(length=done.total, file=sys.stderr, show_eta=True) as done.bar:
                yield done
        else:
            yield done
    except KeyboardInterrupt:
        typer.echo(f"interrupted after {done.rows:,} of {done.total:,} rows{_left(output)}", err=True)
        raise


def _left(output: str) -> str:
    """What became of the file."""
    if output == "-" or (Path(output).exists() and not Path(output).is_file()):
        return ""
    return f"; '{output}' is as it was" if Path(output).exists() else f"; '{output}' was not written"


def _blocks(asked: Asked, names: list[str], jobs: int | str, done: _Progress) -> Iterator[Block]:
    """The rows to show or write; of a ranking only the best, of a cluster where ``jobs`` is its address."""
    from mc2perf.studies import run

    metric = asked.sweep.metric
    if isinstance(jobs, str):
        from mc2perf.cluster import best_on_cluster

        best = best_on_cluster(asked.sweep, names, asked.top or 0, jobs, done=done)
    elif asked.top is None:
        yield from run.blocks(asked.sweep, names, jobs=jobs, done=done)
        return
    else:
        ranked = list(dict.fromkeys((*names, metric)))
        best = run.best_rows(run.blocks(asked.sweep, ranked, jobs=jobs, done=done), asked.top, metric)
    if best is not None:
        yield {name: best[name] for name in names}


def _print_table(asked: Asked, jobs: int | str, chosen: bool) -> bool:
    import numpy as np

    from mc2perf.table import joined, length, only
    from mc2perf.writers.sweep_table import SHOWN, to_text

    wanted = asked.columns if chosen else [c for c in asked.columns if c.name in asked.sweep.axes]
    shown = () if chosen else (c for c in asked.columns if c.name in SHOWN and c not in wanted)
    wanted = [*wanted, *shown]
    parts: list[Block] = []
    with _progress(asked) as done:
        for part in _blocks(asked, list(dict.fromkeys([*(c.name for c in wanted), "legal"])), jobs, done):
            parts.append(part)
            if sum(map(length, parts)) > MOST_SHOWN:
                break
    if not parts or not length(whole := joined(parts)):
        typer.echo("no row is left: every one was dropped by a condition", err=True)
        return False
    first = only(whole, np.arange(min(length(whole), MOST_SHOWN)))
    sys.stdout.write(to_text(first, wanted, whole=chosen))
    if length(whole) > MOST_SHOWN:
        typer.echo(f"the first {MOST_SHOWN} rows; -o FILE writes all, --top ranks them", err=True)
    return "yes" in whole["legal"]


class _UnansweredError(Exception):
    """Leaves a file unwritten."""


def _write(asked: Asked, jobs: int | str, output: str, form: str, digits: str, *, bom: bool) -> bool:
    """Stream the rows into a file; whether there is an answer among them."""
    from mc2perf.sweeping import about
    from mc2perf.writers.tables import Style, open_table

    style = Style(bom=bom, digits="full" if digits == "full" else "9")
    table = open_table(output, asked.columns, about(asked), style, form or None)
    names = list(dict.fromkeys([*(column.name for column in asked.columns), "legal"]))
    found, older = False, Path(output).is_file()
    with suppress(_UnansweredError), _progress(asked, output) as done, table as opened:
        for block in _blocks(asked, names, jobs, done):
            opened.add(block)
            found = found or "yes" in block["legal"]
        if older and not found:
            raise _UnansweredError
    kept = older and stays(output, found)
    where = "" if output == "-" or kept else f" in {output}"
    said = f"{opened.rows:,} rows{where}" if where or not found else ""
    if not opened.rows:
        said += ": every one was dropped by a condition"
    elif not found:
        said += ", none with an answer" + ("" if kept else "; column 'reason' says why")
    if said:
        typer.echo(said, err=True)
    return found


def _write_parts(asked: Asked, address: str, folder: str) -> bool:
    """Let the workers of a cluster write the rows; whether there are any."""
    from mc2perf.cluster import run_on_cluster
    from mc2perf.sweeping import about

    with _progress(asked, folder) as done:
        rows = run_on_cluster(asked.sweep, asked.columns, about(asked), folder, address, done=done)
    typer.echo(f"{rows:,} rows in {folder}", err=True)
    return rows > 0
