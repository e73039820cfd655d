"""Parquet for analysis: row groups of about 128k rows, words as dictionaries, units in the metadata."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from mc2perf.table import Block, Column, Values, Words
from mc2perf.version import VERSION
from mc2perf.writers.tables.about import About, Style
from mc2perf.writers.tables.cells import columns_of, reworded, unicode

ROWS = 128 * 1024
"""Rows of a row group: readers skip and share work by the group, and one is held in memory."""


@contextmanager
def to_parquet(
    file: BinaryIO, columns: Sequence[Column], about: About, style: Style
) -> Iterator[Callable[[Block], None]]:
    """Gather blocks to row groups, write each as it is full; what does not apply is null.

    Notes
    -----
    A column of words is known by its empty unit.
    """
    pyarrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    schema = _schema(pyarrow, columns, about)
    waiting: list[Any] = []

    def flush(rows: int) -> None:
        # one dictionary a group, or the rest of the group falls back to plain text
        table = pyarrow.Table.from_batches(waiting, schema).unify_dictionaries()
        waiting[:] = table.slice(rows).to_batches()
        writer.write_table(table.slice(0, rows), row_group_size=ROWS)

    def add(block: Block) -> None:
        arrays = [_array(pyarrow, values) for values in columns_of(reworded(block, unicode), columns)]
        waiting.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
        rows = sum(batch.num_rows for batch in waiting)
        if rows >= ROWS:
            flush(rows - rows % ROWS)

    words = [column.name for column in columns if not column.unit]  # numbers seldom repeat: 5x the time
    look = {"compression": "zstd", "compression_level": 1, "use_dictionary": words}
    with parquet.ParquetWriter(file, schema, **look) as writer:
        yield add
        if waiting:
            flush(ROWS)


def _schema(pyarrow: Any, columns: Sequence[Column], about: About) -> Any:
    """Types of the columns, with unit and meaning; title and question of the whole."""
    words = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    fields = [
        pyarrow.field(
            column.name,
            pyarrow.float64() if column.unit else words,
            metadata={"unit": column.unit, "meaning": column.meaning},
        )
        for column in columns
    ]
    inputs = json.dumps(dict(about.inputs), ensure_ascii=False, default=str)
    whole = {"tool": f"mc2perf {VERSION}", "title": unicode(about.title), "inputs": unicode(inputs)}
    return pyarrow.schema(fields, metadata=whole)


def _array(pyarrow: Any, values: Values) -> Any:
    if not isinstance(values, Words):
        return pyarrow.array(values, from_pandas=True)  # not-a-number is null
    empty = np.array([not text for text in values.texts], dtype=bool)
    codes = pyarrow.array(values.codes.astype(np.int32), mask=empty[values.codes] if empty.any() else None)
    return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(values.texts, pyarrow.string()))
