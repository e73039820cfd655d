"""Measure how fast tables of results are written: CSV against a bare template, Parquet in rows a second.

Run with the Python of the environment that mc2perf is installed in: ``python scripts/bench_tables.py``.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from mc2perf.table import Block, Column
from mc2perf.writers.tables import About, open_table

COLUMNS = [Column(f"time_{i}", "s", "a number") for i in range(12)]
ABOUT = About(title="bench", inputs={}, profiles=(), dictionary=COLUMNS)
RUNS = 9


def sample(rows: int, nan: bool = False) -> dict[str, NDArray[np.float64]]:
    """Twelve columns of numbers over twelve decades, in the last two some that do not apply."""
    rng = np.random.default_rng(0)
    block = {column.name: 10.0 ** rng.uniform(-6, 6, rows) for column in COLUMNS}
    for column in COLUMNS[-2:] if nan else ():
        block[column.name][rng.random(rows) < 0.3] = np.nan
    return block


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Of one call."""
    begin = clock()
    call()
    return clock() - begin


def write(path: Path, blocks: Sequence[Block]) -> None:
    """A whole file."""
    with open_table(str(path), COLUMNS, ABOUT) as table:
        for block in blocks:
            table.add(block)


def csv_ratio(rows: int = 48_000, nan: bool = False) -> float:
    """Speed of a CSV file over that of filling one bare template with the same numbers.

    Median over pairs of runs, in seconds of the processor, which others on the machine do not lengthen;
    1 means that all but the formatting of numbers is free.
    """
    block = sample(rows, nan)
    flat = np.column_stack(list(block.values())).ravel().tolist()

    def bare() -> str:
        return (",".join(["%.9g"] * 12) + "\r\n") * rows % tuple(flat)

    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        return statistics.median(
            seconds(bare, time.process_time) / seconds(lambda: write(path, [block]), time.process_time)
            for _ in range(RUNS)
        )


def rows_per_second(suffix: str, rows: int = 65_536, blocks: int = 8) -> float:
    """Rows of twelve numbers that a second writes, median of several files."""
    given = [sample(rows)] * blocks
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write(path, given)  # the first one loads the library
        took = statistics.median(seconds(lambda: write(path, given)) for _ in range(5))
    return rows * blocks / took


def main() -> None:
    """Print all of it."""
    print(f"CSV, 12 columns, speed over a bare template: {csv_ratio():.2f}")
    print(f"CSV, 12 columns, two of them with gaps:      {csv_ratio(nan=True):.2f}")
    print(f"JSON Lines: {rows_per_second('.jsonl', 20_000, 1):12,.0f} rows/s")
    for suffix, package, rows, blocks in (
        (".xlsx", "xlsxwriter", 4_000, 1),
        (".parquet", "pyarrow", 65_536, 8),
    ):
        if importlib.util.find_spec(package):
            print(f"{suffix}: {rows_per_second(suffix, rows, blocks):12,.0f} rows/s")


if __name__ == "__main__":
    main()
