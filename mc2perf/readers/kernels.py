"""Tables of measured kernels in CSV: the header says the kind, the file's name the element type."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mc2perf.equations.collectives import PASSES
from mc2perf.kernels import KINDS, KernelTable, Kind
from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.structure import read_text

ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": ("time_us", "time(us)", "latency_us"),
    "kv_heads": ("kv_heads", "kv_heads_0_means_heads", "num_kv_heads"),
    "width": ("width", "moe_intermediate_size"),
    "size": ("size_bytes_whole_array", "size"),
    "ranks": ("ranks", "num_gpus"),
}
"""Our name of a column -> its spellings in files; other columns bear our names."""

DTYPES = ("bf16", "w8a8", "fp16")
MICROSECOND = 1e-6


def read_kernels(path: Path) -> list[KernelTable]:
    r"""Read one table, or every CSV file of a folder.

    Parameters
    ----------
    path : Path
        Files such as ``matmul_bf16.csv``: times in microseconds, sizes as numbers. The two kinds of
        attention have the same header; the file's name says ``context`` or ``decode``. Tables of
        collectives may leave the element type out.

    Returns
    -------
    list of KernelTable
        In the order of the files' names.

    Raises
    ------
    InputError
        Every file and every row that cannot be read, one line each.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "matmul_bf16.csv"
    >>> _ = file.write_text("m,n,k,time_us\n1,512,1024,8.5\n")
    >>> (table,) = read_kernels(file)
    >>> table.kind.name, table.dtype, float(table.columns["k"][0]), float(table.time[0])
    ('matmul', 'bf16', 1024.0, 8.5e-06)
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise InputError([f"{path}: holds no .csv file; name a folder with tables of kernels"])
    problems: list[str] = []
    tables = [table for file in files if (table := _table(file, problems))]
    if problems:
        raise InputError(problems)
    return tables


def _table(file: Path, problems: list[str]) -> KernelTable | None:
    """One file; what is wrong with it goes to ``problems``."""
    before = len(problems)
    header, *rows = csv.reader(read_text(file).splitlines())
    columns = {_ours(name.strip()): index for index, name in enumerate(header)}
    kind = _kind(file, columns, problems)
    dtype = _dtype(file, kind, problems)
    if kind is None or dtype is None:
        return None
    names = (*kind.sizes, "time")
    numbers = {name: _numbers(file, rows, name, columns[name], problems) for name in names if name in columns}
    words = _collectives(file, rows, columns, problems) if kind.name == "collective" else ()
    if not rows:
        problems.append(f"{file.name}: has a header and no rows")
    if len(problems) > before:
        return None
    arrays = {name: np.array(values) for name, values in numbers.items()}
    time = arrays.pop("time") * MICROSECOND
    if "kv_heads" in arrays:
        # the vendor's tables write 0 for as many key heads as query heads
        arrays["kv_heads"] = np.where(arrays["kv_heads"] == 0.0, arrays["heads"], arrays["kv_heads"])
    return KernelTable(file.stem, kind, dtype, arrays, words, time)


def _ours(name: str) -> str:
    return next((ours for ours, spellings in ALIASES.items() if name in spellings), name)


def _kind(file: Path, columns: Mapping[str, int], problems: list[str]) -> Kind | None:
    """The kind whose sizes the header has; the file's name decides between the two of attention."""
    fitting = [kind for kind in KINDS.values() if {*kind.sizes, "time"} <= columns.keys()]
    named = [kind for kind in fitting if len(fitting) == 1 or kind.name.split("_")[0] in file.stem]
    if len(named) == 1:
        return named[0]
    if fitting:
        names = " or ".join(kind.name.split("_")[0] for kind in fitting)
        problems.append(f"{file.name}: may be several kinds of kernel; write {names} into the file's name")
        return None
    known = "; ".join(f"{kind.name}: {', '.join(kind.sizes)}" for kind in KINDS.values())
    problems.append(f"{file.name}: header fits no kind of kernel; write time_us and one of {known}")
    return None


def _dtype(file: Path, kind: Kind | None, problems: list[str]) -> str | None:
    """The element type in the file's name."""
    found = next((dtype for dtype in DTYPES if dtype in file.stem.split("_")), None)
    if kind and kind.name == "collective":
        return found or "any"
    if kind and not found:
        problems.append(f"{file.name}: has no element type; write one of {', '.join(DTYPES)} into its name")
    return found


def _numbers(
    file: Path, rows: Sequence[Sequence[str]], name: str, index: int, problems: list[str]
) -> list[float]:
    """A column of positive numbers; 0 key heads are explained in `_table`."""
    values = []
    for line, row in enumerate(rows, start=2):
        text = row[index].strip() if index < len(row) else ""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        least = 0.0 if name == "kv_heads" else math.ulp(0.0)
        if not (math.isfinite(number) and number >= least):
            problems.append(f"{file.name}: line {line}: {name} '{text}' is not a positive number")
        values.append(number)
    return values


def _collectives(
    file: Path, rows: Sequence[Sequence[str]], columns: Mapping[str, int], problems: list[str]
) -> tuple[str, ...]:
    """The collective of each row."""
    if "op" not in columns:
        problems.append(f"{file.name}: has no column 'op'; write the collective of each row there")
        return ()
    words = tuple(row[columns["op"]].strip() if columns["op"] < len(row) else "" for row in rows)
    for line, word in enumerate(words, start=2):
        if word not in PASSES:
            problems.append(f"{file.name}: line {line}: op '{word}' is unknown{did_you_mean(word, PASSES)}")
    return words
