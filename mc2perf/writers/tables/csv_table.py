"""CSV for spreadsheets: RFC 4180, units in the header, text that no spreadsheet runs.

References
----------
RFC 4180, Common Format and MIME Type for Comma-Separated Values (CSV) Files;
OWASP, CSV Injection (CWE-1236).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from mc2perf.table import Block, Column
from mc2perf.writers.tables.about import About, Style
from mc2perf.writers.tables.cells import chunks, columns_of, lines, reworded, unicode

BOM = b"\xef\xbb\xbf"
"""Chinese Excel takes a CSV file for UTF-8 only with this in front."""

FORMULA = re.compile("[\\s\u200b\ufeff]*[=+\\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20]")
"""What a spreadsheet may run: a sign, a full-width sign, also behind blanks; or a stray tab or line end."""

QUOTED = re.compile('[,;"\t\r\n]')
"""What a cell holds only in quotes; a semicolon and a tab separate cells in some countries' spreadsheets."""


def guarded(text: str) -> str:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front.

    Examples
    --------
    >>> guarded("=1+1"), guarded("  @SUM(A1)"), guarded("\uff1d1"), guarded("mc2-fused")
    ("'=1+1", "'  @SUM(A1)", "'＝1", 'mc2-fused')
    """
    return f"'{text}" if FORMULA.match(text) else text


def cell(text: str, empty: str = "") -> str:
    """One text as a cell: guarded, quoted where it must be.

    Examples
    --------
    >>> cell('8 "fast" links, 2 slow'), cell("=A1"), cell("")
    ('"8 ""fast"" links, 2 slow"', "'=A1", '')
    """
    safe = unicode(guarded(text))
    if not safe:
        return empty
    return '"' + safe.replace('"', '""') + '"' if QUOTED.search(safe) else safe


@contextmanager
def to_csv(
    file: BinaryIO, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Callable[[Block], None]]:
    """Write the header, then rows as they come."""
    empty = '""' if len(columns) == 1 else ""  # a line with nothing on it is no row for most readers
    to_cell = partial(cell, empty=empty)

    def add(block: Block) -> None:
        for values in chunks(columns_of(reworded(block, to_cell), columns)):
            file.write(lines(values, style.digits, empty=empty).encode())

    header = ",".join(to_cell(column.title) for column in columns)
    file.write((BOM if style.bom else b"") + f"{header}\r\n".encode())
    yield add
