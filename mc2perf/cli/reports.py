"""Where an answer goes that is a table with a few lines around it: terminal, JSON, or a file of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mc2perf.problems import InputError, did_you_mean

if TYPE_CHECKING:
    from mc2perf.table import Block, Column

T = TypeVar("T")

FORMATS = ("table", "json", "csv", "jsonl", "md", "xlsx", "parquet")

Output = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help=".csv, .json, .jsonl, .md, .xlsx, .parquet, .txt or -"
    ),
]
Format = Annotated[
    str | None,
    typer.Option(metavar="WORD", help=f"{', '.join(FORMATS)} [default: by suffix of -o, else table]"),
]

TextOutput = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output")
]
TextFormat = Annotated[str, typer.Option(metavar="WORD", help="table or json")]
"""Of answers that are no table of rows."""


@dataclass(frozen=True)
class Report:
    """An answer in the three ways it may be written; only the one asked for is worked out.

    Without a ``tree`` JSON holds the rows.
    """

    title: str
    target: str
    columns: Sequence[Column]
    block: Callable[[], Block]
    text: Callable[[], str]
    tree: Callable[[], Any] | None = None


def format_of(target: str | None, output: str | None, asked: str | None) -> str:
    """The format asked for, else the one the suffix says, else a table.

    Raises
    ------
    InputError
        An unknown format, a file that cannot be written, or the question itself.
    """
    if output is not None and output == target:
        raise InputError([f"output: '{output}' is the question itself; write another name"])
    by_suffix = Path(output).suffix[1:].replace("txt", "table") if output not in (None, "-") else "table"
    form = asked or by_suffix
    if asked and form not in FORMATS:
        raise InputError([f"format: '{form}' is not known{did_you_mean(form, FORMATS)}"])
    if form not in ("table", "json"):
        from mc2perf.writers.tables import check_output

        check_output(output or "-", asked)
    return form


def stays(output: str | None, answered: bool) -> bool:
    """Whether an older file stays, for nothing was answered; says so.

    A negative answer is one: only where every row is refused there is none.
    """
    if answered or output in (None, "-") or not Path(str(output)).is_file():
        return False
    typer.echo(f"nothing is answered; '{output}' is as it was, another name would get the reasons", err=True)
    return True


def as_json(form: str) -> bool:
    """Whether an answer that is no table of rows is asked for as JSON.

    Raises
    ------
    InputError
        An unknown format.
    """
    known = ("table", "json")
    if form not in known:
        raise InputError([f"format: '{form}' is not known{did_you_mean(form, known)}"])
    return form == "json"


def put(report: Report, output: str | None, form: str) -> None:
    """Write an answer; a file takes its name when all of it is there."""
    from mc2perf.writers import files

    if form == "table":
        files.write(report.text(), output)
    elif form == "json":
        import json

        from mc2perf.table import records

        tree = report.tree() if report.tree else records(report.block())
        files.write(json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n", output)
    else:
        _put_rows(report, output or "-", form)


def _put_rows(report: Report, output: str, form: str) -> None:
    from mc2perf.writers.tables import About, open_table

    about = About(
        title=report.title, inputs={"target": report.target}, profiles=(), dictionary=report.columns
    )
    with open_table(output, report.columns, about, form=form) as table:
        table.add(report.block())
