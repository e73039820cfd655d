"""Tables of results streamed into files: CSV, JSON Lines, Markdown, workbooks, Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mc2perf.problems import InputError
from mc2perf.table import Block, Column, length
from mc2perf.writers.into_place import into_place
from mc2perf.writers.tables.about import About, Style, Writer
from mc2perf.writers.tables.csv_table import to_csv
from mc2perf.writers.tables.jsonl_table import to_jsonl
from mc2perf.writers.tables.markdown_table import to_markdown
from mc2perf.writers.tables.parquet_table import to_parquet
from mc2perf.writers.tables.what_if import Cell, WhatIf
from mc2perf.writers.tables.xlsx_table import to_xlsx

__all__ = ["FORMATS", "About", "Cell", "Format", "Style", "Table", "WhatIf", "check_output", "open_table"]


@dataclass(frozen=True)
class Format:
    """A way to write a table, and the package that it needs beyond those of the tool."""

    writer: Writer
    package: str = ""


FORMATS = {
    ".csv": Format(to_csv),
    ".jsonl": Format(to_jsonl),
    ".md": Format(to_markdown),
    ".xlsx": Format(to_xlsx, "xlsxwriter"),
    ".parquet": Format(to_parquet, "pyarrow"),
}
"""File suffix -> how such a file is written; an extra of the same name brings a missing package."""


class Table:
    """A table being written.

    Attributes
    ----------
    rows
        How many were given so far.
    """

    def __init__(self, path: str) -> None:
        self.rows = 0
        self._path = path
        self._write: Callable[[Block], None] | None = None

    def add(self, block: Block) -> None:
        """Write some rows.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        assert self._write is not None, "the table is closed"
        try:
            self._write(block)
        except OSError as error:
            raise self.problem(error) from None
        self.rows += length(block)

    def problem(self, error: OSError) -> Exception:
        """What to say of an error of the system; a closed pipe behind standard output is the caller's."""
        if self._path == "-" and isinstance(error, BrokenPipeError):
            return error
        where = "standard output" if self._path == "-" else f"'{self._path}'"
        old = self._path != "-" and Path(self._path).is_file()
        kept = "; the old file is unchanged" if old else ""
        reason = error.strerror or error
        return InputError([f"output: {where} cannot be written ({reason}) after {self.rows} rows{kept}"])


def open_table(
    path: str, columns: Sequence[Column], about: About, style: Style | None = None, form: str | None = None
) -> AbstractContextManager[Table]:
    """Open a table for blocks of rows; a file takes its name at a clean exit, else the old one stays.

    Parameters
    ----------
    path
        A file, or ``-`` for standard output (without a byte-order mark).
    columns
        Columns in order; blocks hold each of them by its name.
    about
        What workbooks and Parquet files say beside the rows.
    style
        Byte-order mark and digits of text.
    form
        A key of :data:`FORMATS`, with or without its dot; else the suffix says, and standard output is CSV.

    Returns
    -------
    AbstractContextManager[Table]
        Gives a :class:`Table`.

    Raises
    ------
    InputError
        The format is unknown, its package is missing, or the file cannot be written.
    BrokenPipeError
        Nobody reads standard output any more.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> about = About(title="links", inputs={}, profiles=(), dictionary=())
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "links.md"
    ...     with open_table(str(file), [Column("time", "s", "of one layer")], about) as table:
    ...         table.add({"time": np.array([1e-3, 2e-3])})
    ...     print(file.read_text(), end="")
    | time(s) |
    | ---: |
    | 0.001 |
    | 0.002 |
    >>> table.rows
    2
    """
    writer = _writer(path, form)
    style = style or Style()
    return _opened(path, writer, columns, about, replace(style, bom=style.bom and path != "-"))


def check_output(path: str, form: str | None = None) -> None:
    """Refuse what cannot be written before anything is computed: its format, its package, its folder.

    Examples
    --------
    >>> check_output("no_such_folder/links.csv")
    Traceback (most recent call last):
    mc2perf.problems.InputError: output: there is no folder 'no_such_folder'; create it, or write elsewhere
    """
    if path == "-":
        _writer(path, form)
        return
    problems = list(_misplaced(path))
    if not problems:
        _writer(path, form)
    else:
        raise InputError(problems)


def _misplaced(path: str) -> Iterator[str]:
    """Why a file cannot stand there."""
    try:
        folder = Path(path).parent
        if not path or Path(path).is_dir():
            what = f"'{path}' is a folder" if path else "has no name"
            yield f"output: {what}; write a file, such as plan.csv"
        elif not folder.is_dir():
            what = f"'{folder}' is no folder" if folder.exists() else f"there is no folder '{folder}'"
            yield f"output: {what}; create it, or write elsewhere"
        elif not Path(path).exists() and not os.access(folder, os.W_OK | os.X_OK):
            yield f"output: nothing can be written to the folder '{folder}'; write elsewhere"
    except (OSError, ValueError) as error:  # a zero byte, a name too long
        yield f"output: '{path}' cannot be written ({getattr(error, 'strerror', None) or error})"


def _writer(path: str, form: str | None) -> Writer:
    """The writer of the format; its package is tried before anything is computed."""
    suffix = f".{form.removeprefix('.')}" if form else ".csv" if path == "-" else Path(path).suffix.lower()
    if suffix not in FORMATS:
        what = f"format '{form}' is unknown" if form else f"'{path}' ends in no known suffix"
        raise InputError([f"output: {what}; write one of {', '.join(FORMATS)}"])
    package = FORMATS[suffix].package
    try:
        if package:
            __import__(package)
    except ImportError:
        extra = suffix.removeprefix(".")
        said = f"output: {suffix} needs the package {package}; pip install 'mc2perf[{extra}]', or write .csv"
        raise InputError([said]) from None
    return FORMATS[suffix].writer


@contextmanager
def _opened(
    path: str, writer: Writer, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Table]:
    table = Table(path)
    of_body: BaseException | None = None
    try:
        with into_place(path) as file, writer(file, columns, about, style) as write:
            table._write = write
            try:
                yield table
            except BaseException as error:
                of_body = error
                raise
            finally:
                table._write = None
    except OSError as error:
        raise of_body or table.problem(error) from None  # what stopped the body goes before what followed
