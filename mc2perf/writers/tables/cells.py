"""Numbers and words of a block as the text of cells, many rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mc2perf.table import Block, Column, Values, Words
from mc2perf.writers.tables.about import Digits

CHUNK = 4096
"""Rows formatted by one template: measured, speed is flat from 1 000 to 8 000."""


def columns_of(block: Block, columns: Sequence[Column]) -> list[Values]:
    """The values of every column, in order."""
    return [block[column.name] for column in columns]


def chunks(values: Sequence[Values], rows: int = CHUNK) -> Iterator[list[Values]]:
    """The same columns, some rows at a time."""
    for first in range(0, len(values[0]), rows):
        yield [part(column, first, first + rows) for column in values]


def part(values: Values, first: int, last: int) -> Values:
    """Some rows of a column.

    Examples
    --------
    >>> list(part(Words(np.array([0, 1, 0]), ("mc2", "serial")), 1, 3))
    ['serial', 'mc2']
    """
    if isinstance(values, Words):
        return Words(values.codes[first:last], values.texts)
    return values[first:last]


def reworded(block: Block, to_cell: Callable[[str], str]) -> dict[str, Values]:
    """The block with every different text written as a cell, once.

    Examples
    --------
    >>> list(reworded({"bound": Words(np.array([0, 0]), ("links",))}, str.upper)["bound"])
    ['LINKS', 'LINKS']
    """
    return {
        name: Words(values.codes, tuple(map(to_cell, values.texts))) if isinstance(values, Words) else values
        for name, values in block.items()
    }


def unicode(text: str) -> str:
    r"""Text that UTF-8 can carry: halves of surrogate pairs are spelled out.

    Examples
    --------
    >>> unicode("专家\ud800")
    '专家\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def number_texts(values: NDArray[np.float64], digits: Digits) -> list[str]:
    """Numbers as text; not-a-number is empty.

    Parameters
    ----------
    values
        Any floats.
    digits
        ``9`` significant ones, or as many as give back the same float.

    Returns
    -------
    list[str]
        One text a number, whole numbers without a decimal point.

    Examples
    --------
    >>> number_texts(np.array([0.1 + 0.2, np.nan, np.inf, 3.0]), "full")
    ['0.30000000000000004', '', 'inf', '3']
    >>> number_texts(np.array([0.1 + 0.2, 1e-300]), "9")
    ['0.3', '1e-300']
    """
    spec = "%r\n" if digits == "full" else "%.9g\n"
    text = (spec * len(values) % tuple(values.tolist())).replace("nan", "")
    return (text.replace(".0\n", "\n") if digits == "full" else text).split("\n")[:-1]


def lines(
    values: Sequence[Values],
    digits: Digits,
    *,
    start: str = "",
    between: str = ",",
    end: str = "\r\n",
    empty: str = "",
) -> str:
    r"""Rows of text from columns whose words are already cells.

    Parameters
    ----------
    values
        Columns of one length, at least one of them and at least one row.
    digits
        How numbers are written.
    start, between, end
        What stands around the cells of a row.
    empty
        What stands for not-a-number.

    Returns
    -------
    str
        All rows.

    Notes
    -----
    One template for all rows is filled at once, which is all that a bare template would do; a column
    that is the same in every row is part of the template (where a zero may lose its sign).

    Examples
    --------
    >>> lines([np.array([1.0, 2.5]), Words(np.array([0, 0]), ("links",))], "9")
    '1,links\r\n2.5,links\r\n'
    """
    rows = len(values[0])
    specs, filled = [], []
    for column in values:
        spec, cells = _spec(column, digits, empty)
        specs.append(spec)
        if cells is not None:
            filled.append(cells)
    flat: list[object] = [None] * (rows * len(filled))
    for place, cells in enumerate(filled):
        flat[place :: len(filled)] = cells
    row = _literal(start) + _literal(between).join(specs) + _literal(end)
    return row * rows % tuple(flat)


def _spec(values: Values, digits: Digits, empty: str) -> tuple[str, Sequence[object] | None]:
    """What stands for the column in the template, and what fills it, if anything."""
    if isinstance(values, Words):
        if (values.codes == values.codes[0]).all():
            return _literal(values.texts[values.codes[0]]), None
        return "%s", _words(values)
    if (values == values[0]).all():
        return number_texts(values[:1], digits)[0], None
    absent = np.isnan(values)
    if absent.all():
        return _literal(empty), None
    if digits == "9" and not absent.any():
        return "%.9g", values.tolist()
    texts = number_texts(values, digits)
    return "%s", [text or empty for text in texts] if empty else texts


def _words(values: Words) -> list[object]:
    chosen: list[object] = np.array(values.texts, dtype=object)[values.codes].tolist()
    return chosen


def _literal(text: str) -> str:
    return text.replace("%", "%%")
