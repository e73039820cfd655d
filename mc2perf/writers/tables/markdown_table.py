"""Markdown as GitHub and Gitee show it: a header, rows, numbers to the right; widths are not padded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from mc2perf.table import Block, Column
from mc2perf.writers.tables.about import About, Style
from mc2perf.writers.tables.cells import chunks, columns_of, lines, reworded, unicode

FRAME = {"start": "| ", "between": " | ", "end": " |\n"}


def escaped(text: str) -> str:
    r"""One line of text without a cell's end or a tag in it.

    Examples
    --------
    >>> print(escaped("a|b <i>"), escaped("two\nlines"))
    a\|b \<i> two lines
    """
    return re.sub(r"([\\|<])", r"\\\1", " ".join(unicode(text).splitlines()))


@contextmanager
def to_markdown(
    file: BinaryIO, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Callable[[Block], None]]:
    """Write header and rule, then rows as they come."""

    def add(block: Block) -> None:
        for values in chunks(columns_of(reworded(block, escaped), columns)):
            file.write(lines(values, style.digits, **FRAME).encode())

    rule = ["---:" if column.unit else "---" for column in columns]  # words have no unit
    for row in ([escaped(column.title) for column in columns], rule):
        file.write(f"| {' | '.join(row)} |\n".encode())
    yield add
