"""JSON Lines: one object a row, all digits.

What does not apply (not-a-number, an empty word) is left out of its object. JSON has no infinity: one is
the text ``"inf"`` or ``"-inf"``, which ``float()`` of most languages takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from mc2perf.table import Block, Column, Values, Words
from mc2perf.writers.tables.about import About, Style
from mc2perf.writers.tables.cells import chunks, columns_of, number_texts, reworded, unicode


@contextmanager
def to_jsonl(
    file: BinaryIO, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Callable[[Block], None]]:
    """Write rows as they come; an empty table is an empty file."""
    keys = [f"{_quoted(column.name)}: " for column in columns]

    def add(block: Block) -> None:
        for values in chunks(columns_of(reworded(block, _value), columns)):
            members = [_members(key, column) for key, column in zip(keys, values, strict=True)]
            rows = (", ".join(filter(None, row)) for row in zip(*members, strict=True))
            file.write("".join(f"{{{row}}}\n" for row in rows).encode())

    yield add


def _members(key: str, values: Values) -> list[str]:
    """``"name": value`` of every row, empty where there is none."""
    texts = values if isinstance(values, Words) else map(_finite, number_texts(values, "full"))
    return [key + text if text else "" for text in texts]


def _finite(number: str) -> str:
    return f'"{number}"' if number.endswith("inf") else number


def _value(text: str) -> str:
    return _quoted(text) if text else ""


def _quoted(text: str) -> str:
    return json.dumps(unicode(text), ensure_ascii=False)
