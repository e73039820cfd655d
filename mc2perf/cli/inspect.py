"""What a file of measurements is, and what would be taken from it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mc2perf.problems import InputError

if TYPE_CHECKING:
    from mc2perf.measured import Measured

LARGE = 64 << 20
"""From this size on a terminal is told how far reading is [B]."""


def inspect(
    files: Annotated[list[Path], typer.Argument(help="Files of measurements; - for standard input.")],
) -> None:
    """Say what files of measurements are, and what would be taken from them."""
    from mc2perf.readers.measured import read_measured

    problems: list[str] = []
    for file in files:
        try:
            typer.echo("\n".join(described(read_measured(Path(file), _progress()))))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def described(found: Measured) -> Iterator[str]:
    """Lines about one file: kind and count, what may be used, what was set aside, remarks.

    What a file says of itself is printed without control codes.
    """
    for line in _lines(found):
        yield "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _lines(found: Measured) -> Iterator[str]:
    report = found.report
    yield f"{found.name}: {found.format}, {report.read} {report.what}"
    yield from (f"    {line}" for line in found.data.takes())
    for rows in report.set_aside:
        yield f"    set aside: {rows.count} x {rows.reason} (first: {rows.first})"
    yield from (f"    note: {note}" for note in report.notes)


def _progress() -> Callable[[int, int], None] | None:
    """Tell a person at a terminal how far a large file is; a pipe stays clean."""
    if not sys.stderr.isatty():
        return None

    def told(done: int, total: int) -> None:
        if total >= LARGE:
            typer.echo(f"\r{done / total:4.0%} read", err=True, nl=done == total)

    return told
