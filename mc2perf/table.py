"""Results by the column: numbers, words, and what every column means.

A table is a stream of blocks with the same columns, so that its length costs no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Column:
    """One column: its name, its SI unit (``1`` for ratios and counts, empty for words), its meaning."""

    name: str
    unit: str
    meaning: str

    @property
    def title(self) -> str:
        """Name and unit, as a spreadsheet's header shows them."""
        return f"{self.name}({self.unit})" if self.unit and self.unit != "1" else self.name


@dataclass(frozen=True)
class Words:
    """A column of few different texts: which one stands in each row, and the texts.

    Examples
    --------
    >>> list(Words(np.array([0, 1, 0]), ("mc2", "serial")))
    ['mc2', 'serial', 'mc2']
    """

    codes: NDArray[np.intp]
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return (self.texts[code] for code in self.codes.tolist())


Values = NDArray[np.float64] | Words
"""One column of a block; a number that does not apply is not-a-number, a word that does not is empty."""

Block = Mapping[str, Values]
"""Some rows of a table: column name -> values, all of one length."""


def length(block: Block) -> int:
    """Rows of a block."""
    return len(next(iter(block.values())))


def only(block: Block, rows: NDArray[Any]) -> Block:
    """Some rows of a block, by a mask or by their places."""
    return {name: _at(values, rows) for name, values in block.items()}


def _at(values: Values, rows: NDArray[Any]) -> Values:
    return Words(values.codes[rows], values.texts) if isinstance(values, Words) else values[rows]


def block_of(columns: Sequence[Column], rows: Sequence[object]) -> Block:
    """Objects whose fields bear the names of the columns, as rows of a table.

    Examples
    --------
    >>> from types import SimpleNamespace as Row
    >>> columns = [Column("schedule", "", ""), Column("pieces", "1", "")]
    >>> block = block_of(columns, [Row(schedule="mc2", pieces=4)])
    >>> list(block["schedule"]), block["pieces"].tolist()
    (['mc2'], [4.0])
    """
    return {column.name: _values(column, [getattr(row, column.name) for row in rows]) for column in columns}


def in_columns(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> Block:
    """Records as rows of a table; what a record does not have is not-a-number or empty.

    Examples
    --------
    >>> block = in_columns([Column("a", "1", ""), Column("b", "", "")], [{"a": 1.0}, {"b": "x"}])
    >>> block["a"].tolist(), list(block["b"])
    ([1.0, nan], ['', 'x'])
    """
    blank = {column.name: np.nan if column.unit else "" for column in columns}
    return block_of(columns, [SimpleNamespace(**{**blank, **record}) for record in records])


def _values(column: Column, values: Sequence[Any]) -> Values:
    if column.unit:
        return np.array(values, float)
    texts = tuple(dict.fromkeys(values))
    return Words(np.array([texts.index(value) for value in values], np.intp), texts)


def records(block: Block) -> list[dict[str, float | str | None]]:
    """The rows of a block as mappings, None where a number does not apply.

    Examples
    --------
    >>> records({"pieces": np.array([4.0, np.nan]), "schedule": Words(np.array([0, 0]), ("mc2",))})
    [{'pieces': 4.0, 'schedule': 'mc2'}, {'pieces': None, 'schedule': 'mc2'}]
    """
    columns = [list(v) if isinstance(v, Words) else _finite(v) for v in block.values()]
    return [dict(zip(block, row, strict=True)) for row in zip(*columns, strict=True)]


def _finite(values: NDArray[np.float64]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def joined(blocks: Sequence[Block]) -> Block:
    """Blocks of the same columns, one below the other."""
    return {name: _joined([block[name] for block in blocks]) for name in blocks[0]}


def _joined(parts: Sequence[Values]) -> Values:
    words = [part for part in parts if isinstance(part, Words)]
    if not words:
        return np.concatenate([part for part in parts if not isinstance(part, Words)])
    texts = tuple(dict.fromkeys(text for part in words for text in part.texts))
    return Words(np.concatenate([_recoded(part, texts) for part in words]), texts)


def _recoded(words: Words, texts: Sequence[str]) -> NDArray[np.intp]:
    """The codes of the same words among other texts."""
    number = {text: code for code, text in enumerate(texts)}
    return np.array([number[text] for text in words.texts], np.intp)[words.codes]


def merged(old: Block, new: Block, better: NDArray[np.bool_]) -> Block:
    """Rows of ``new`` where it is better, else of ``old``."""
    return {name: _either(old[name], new[name], better) for name in old}


def _either(old: Values, new: Values, better: NDArray[np.bool_]) -> Values:
    if isinstance(old, Words) and isinstance(new, Words):
        texts = tuple(dict.fromkeys((*old.texts, *new.texts)))
        return Words(np.where(better, _recoded(new, texts), _recoded(old, texts)), texts)
    assert not isinstance(old, Words) and not isinstance(new, Words)
    return np.where(better, new, old)
