"""Results by the column: numbers, words, and what every column means.

A table is a stream of blocks with the same columns, so that its length costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
