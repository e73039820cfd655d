"""A workbook for capacity planners: results, the question, the machines, the columns, a calculation.

Rows stream: the library keeps one row in memory and the sheets in a temporary folder until the end.
The same table gives the same bytes. Numbers have 16 digits, as the library writes them.
"""

from __future__ import annotations

import datetime
import importlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from mc2perf.table import Block, Column, Values
from mc2perf.version import VERSION
from mc2perf.writers.tables.about import About, Style
from mc2perf.writers.tables.cells import columns_of, reworded, unicode
from mc2perf.writers.tables.what_if import WhatIf, referring, values

SHEET_ROWS = 1_048_576
"""Rows that a sheet holds, its header among them (Excel specifications and limits)."""

CREATED = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
"""What every workbook says of its creation, so that equal tables are equal files."""

NUMBER_FORMATS = {
    "s": "##0.000E+0",
    "B": "#,##0",
    "B/s": "##0.000E+0",
    "FLOP/s": "##0.000E+0",
    "1/s": "#,##0.0",
}
"""How numbers of a unit look: times and rates with exponents in threes; others as they are."""

INPUT = "#FFF2CC"
"""Ground of a cell to change."""


@contextmanager
def to_xlsx(
    file: BinaryIO, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Callable[[Block], None]]:
    """Stream results to their sheets, then write the other sheets."""
    library: Any = importlib.import_module("xlsxwriter")
    with TemporaryDirectory(prefix="mc2perf-") as folder:
        path = Path(folder) / "book.xlsx"
        book = library.Workbook(str(path), {"constant_memory": True, "tmpdir": folder})
        book.use_zip64()
        book.set_properties(
            {"title": unicode(about.title), "comments": f"mc2perf {VERSION}", "created": CREATED}
        )
        try:
            results = _Results(book, columns)
            yield results.add
            results.finish()
            _write_about(book, about)
            _close(library, book)
        finally:
            for sheet in book.worksheets():
                if sheet.row_data_fh:
                    sheet.row_data_fh.close()
        with path.open("rb") as whole:
            shutil.copyfileobj(whole, file)


def _close(library: Any, book: Any) -> None:
    try:
        book.close()
    except library.exceptions.FileCreateError as error:
        raise error.args[0] from None  # the error of the system that it wraps


class _Results:
    """Rows of results, on as many sheets as they need."""

    def __init__(self, book: Any, columns: Sequence[Column]) -> None:
        self.book, self.columns = book, columns
        self.formats = [_format(book, column.unit) for column in columns]
        self.sheets = 0
        self._begin()

    def add(self, block: Block) -> None:
        for cells in zip(*_cells(block, self.columns), strict=True):
            if self.row == SHEET_ROWS:
                self.finish()
                self._begin()
            for place, (value, look) in enumerate(zip(cells, self.formats, strict=True)):
                _write(self.sheet, self.row, place, value, look)
            self.row += 1

    def finish(self) -> None:
        """Let the reader filter the rows of this sheet."""
        self.sheet.autofilter(0, 0, self.row - 1, len(self.columns) - 1)

    def _begin(self) -> None:
        self.sheets += 1
        self.sheet = self.book.add_worksheet("results" if self.sheets == 1 else f"results {self.sheets}")
        self.sheet.freeze_panes(1, 0)
        for place, column in enumerate(self.columns):
            self.sheet.set_column(place, place, max(12, len(column.title) + 4))
        _write_row(self.sheet, 0, [column.title for column in self.columns], _bold(self.book))
        self.row = 1


def _cells(block: Block, columns: Sequence[Column]) -> list[Sequence[float | str]]:
    def plain(column: Values) -> Sequence[float | str]:
        return list(column) if not hasattr(column, "tolist") else column.tolist()

    return [plain(column) for column in columns_of(reworded(block, unicode), columns)]


def _format(book: Any, unit: str, **look: object) -> Any:
    return book.add_format({"num_format": NUMBER_FORMATS.get(unit, "General"), **look})


def _bold(book: Any) -> Any:
    return book.add_format({"bold": True})


def _write(sheet: Any, row: int, place: int, value: float | str, look: Any = None) -> None:
    """A number, or text that stays text; an empty cell for what does not apply, and for infinity its name."""
    if isinstance(value, str):
        if value:
            sheet.write_string(row, place, value, look)
    elif math.isfinite(value):
        sheet.write_number(row, place, value, look)
    elif not math.isnan(value):
        sheet.write_string(row, place, str(value), look)


def _write_row(sheet: Any, row: int, cells: Sequence[object], look: Any = None) -> None:
    for place, value in enumerate(cells):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        _write(sheet, row, place, value if number else unicode(str(value)), look)  # type: ignore[arg-type]


def _write_about(book: Any, about: About) -> None:
    """The sheets beside the results."""
    question = [("mc2perf", VERSION), ("title", about.title), *about.inputs.items()]
    _write_sheet(book, "inputs", ("input", "value"), question)
    machines = [(m, path, _number(value), *rest) for m, path, value, *rest in about.profiles]
    _write_sheet(book, "profile", ("machine", "parameter", "value", "unit", "kind", "source"), machines)
    meanings = [(column.name, column.unit, column.meaning) for column in about.dictionary]
    _write_sheet(book, "dictionary", ("column", "unit", "meaning"), meanings)
    if about.what_if:
        _write_what_if(book, about.what_if)


def _write_sheet(book: Any, name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    sheet.set_column(0, len(header) - 1, 24)
    _write_row(sheet, 0, header, _bold(book))
    for number, cells in enumerate(rows, start=1):
        _write_row(sheet, number, cells)


def _number(text: str) -> float | str:
    """The number that a text is, so that it can be computed with."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _write_what_if(book: Any, what_if: WhatIf) -> None:
    """Inputs to change on a ground of their own, formulas that follow, each with its number of now."""
    sheet = book.add_worksheet("what-if")
    sheet.set_column(0, 0, 40)
    sheet.set_column(1, 3, 18)
    _write_row(sheet, 0, [what_if.title], _bold(book))
    _write_row(sheet, 1, ("quantity", "value", "unit", "note"), _bold(book))
    places = {cell.name: f"$B${row}" for row, cell in enumerate(what_if.cells, start=3)}
    now = values(what_if)
    for row, cell in enumerate(what_if.cells, start=2):
        _write(sheet, row, 0, unicode(cell.label))
        if cell.formula:
            formula = f"={referring(cell.formula, places)}"
            sheet.write_formula(row, 1, formula, _format(book, cell.unit), now[cell.name])
        elif cell.value is not None:
            _write(sheet, row, 1, cell.value, _format(book, cell.unit, bg_color=INPUT, border=1))
        _write(sheet, row, 2, unicode(cell.unit))
        _write(sheet, row, 3, unicode(cell.note))
