"""Measured time by number of tiles: a CSV with ``tile_cnt`` and a time, or YAML; perhaps whose time it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mc2perf.measured import Measured, TileScan, TileTimes
from mc2perf.operators import DTYPES, OPERATORS
from mc2perf.problems import did_you_mean
from mc2perf.readers.measured.cells import Column, element_type, has, header, rows, time_column
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.readers.structure import parse_yaml
from mc2perf.units import COUNT, TIME, parse

NAMES = ("tile_cnt", "tileCnt", "tiles")
SIZES = {
    name: Column((name,), COUNT, needed=False)
    for name in ("m", "n", "k", "ranks", "experts_per_rank")
}  # fmt: skip
WORDS = {
    "target": Column(("operator", "target"), needed=False),
    "dtype": Column(("dtype",), needed=False),
    "split_axis": Column(("split_axis",), needed=False),
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "target": tuple(OPERATORS),
    "dtype": tuple(DTYPES),
    "split_axis": ("m", "n", "k"),
}
"""Inputs of a fused operator that a file may state, by our name; the words with what they may be."""

_YAML = re.compile(r"^\s*(?:-\s*)?(?:[{](?:[^{}\n]*,)?)?\s*(?:tile_cnt|tileCnt|tiles)\s*:", re.MULTILINE)
_COUNTS = re.compile(r"^(?:tile_cnt|tileCnt|tiles)\s*:[^\n]*\n\s+\d+\s*:", re.MULTILINE)
_SPELLED = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


class _Scans:
    """Points by the inputs they were measured with, in the order they came."""

    def __init__(self, source: Source) -> None:
        self.tally = Tally(source)
        self.found: dict[tuple[tuple[str, Any], ...], list[tuple[int, float]]] = {}

    def take(self, row: Mapping[str, Any], in_seconds: bool, where: str) -> None:
        """Take one point; a time that is not in seconds yet must name its unit."""
        try:
            time = row["time"] if in_seconds else parse(row["time"], TIME)
            if not time or not row["count"]:
                raise ValueError("is missing or zero")
            inputs = tuple(_inputs(row).items())
        except ValueError as error:
            self.tally.aside(f"tile_cnt or time: {error}", where)
            return
        except LookupError as error:
            self.tally.aside(str(error.args[0]), where)
            return
        self.found.setdefault(inputs, []).append((int(row["count"]), time))

    def close(self, form: str) -> Measured:
        """All scans; what is not stated has to be given where they are used."""
        self.tally.read = sum(map(len, self.found.values()))
        if any("target" not in dict(inputs) for inputs in self.found):
            self.tally.note("the operator and its sizes are not in the file; say so where it is used")
        scans = (TileScan(tuple(points), dict(inputs)) for inputs, points in self.found.items())
        return self.tally.close(form, "times", TileTimes(tuple(scans)))


def _inputs(row: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a row states; a word that is not known is a ``LookupError``."""
    sizes = {name: row[name] for name in SIZES if row.get(name)}
    words = {name: str(row[name]).strip() for name in WORDS if row.get(name)}
    if "dtype" in words:
        words["dtype"] = element_type(words["dtype"])
    for name, word in words.items():
        if word not in CHOICES[name]:
            raise LookupError(f"{name}: '{word[:40]}' is not known{did_you_mean(word, CHOICES[name])}")
    return {name: value for name in (*WORDS, *SIZES) if (value := words.get(name, sizes.get(name)))}


def read_csv(source: Source) -> Measured:
    """Read ``tile_cnt,time_us``, or ``tile_cnt,time`` with a unit in each cell (``1.2 ms``).

    Columns ``operator, m, n, k, ranks, dtype, split_axis, experts_per_rank`` say whose time it is; rows that
    agree in them are one scan.

    Raises
    ------
    InputError
        No tile count or time in the header, or no row that can be used.
    """
    scans = _Scans(source)
    name, unit = time_column(header(source)) or ("time", None)
    columns = {"count": Column(NAMES, COUNT), **SIZES, **WORDS}
    columns["time"] = Column((name,), TIME, unit) if unit else Column((name,))
    for line, row in rows(source, columns, scans.tally):
        scans.take(row, unit is not None, f"line {line}")
    return scans.close("tile_times")


def read_yaml(source: Source) -> Measured:
    """Read a list of ``{tile_cnt: 4, time: 1.2 ms}``, or below ``tile_cnt:`` lines ``4: 1.2 ms``.

    Keys ``operator, m, n, k, ranks, dtype, ...`` beside them say whose times they are.

    Raises
    ------
    InputError
        No YAML, or no entry that can be used.
    """
    scans = _Scans(source)
    common, entries = _entries(source)
    for where, entry in entries:
        row = {**common, **entry}
        try:
            sizes = {name: scaled(row.get(name), COUNT) for name in ("count", *SIZES)}
        except ValueError as error:
            scans.tally.aside(re.sub(r"^'.*' ", "tile_cnt or a size ", str(error)), where)
            continue
        scans.take({**row, **sizes}, False, where)
    return scans.close("tile_times.yaml")


def _entries(source: Source) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """What all entries share, and place, count and time of each."""
    text = source.text()
    if re.search(r"^\s*-", text, re.MULTILINE):
        text = text if re.match(r"\s*(#.*\s+)*[A-Za-z_]\w*:", text) else f"points:\n{text}"
    tree = parse_yaml(text, source.name)
    below = next((value for value in tree.values() if isinstance(value, dict | list)), None)
    if isinstance(below, dict):
        return _named(tree), [(str(n), {"count": n, "time": time}) for n, time in below.items()]
    items = below if isinstance(below, list) else [tree]
    common = _named(tree) if isinstance(below, list) else {}
    return common, [(f"entry {index + 1}", _entry(item)) for index, item in enumerate(items)]


def _named(item: Mapping[Any, Any]) -> dict[str, Any]:
    """Inputs by our names."""
    columns = {**SIZES, **WORDS}.items()
    return {key: item[name] for key, column in columns for name in column.names if name in item}


def _entry(item: Any) -> dict[str, Any]:
    """Count, time and inputs of a mapping; a name of the time may carry the unit."""
    if not isinstance(item, dict):
        return {"count": None, "time": None}
    count = next((item[name] for name in NAMES if name in item), None)
    found = time_column(map(str, item))
    time = None if found is None else _with_unit(item[found[0]], found[1])
    return {"count": count, "time": time, **_named(item)}


def _with_unit(value: Any, unit: float | None) -> Any:
    return f"{value} {_SPELLED[unit]}" if unit and isinstance(value, int | float) else value


FORMATS = (
    Format(
        "tile_times",
        "a CSV header with tile_cnt and time",
        lambda source: has(source, NAMES) and time_column(header(source)) is not None,
        read_csv,
    ),
    Format(
        "tile_times.yaml",
        "YAML with tile_cnt and time",
        lambda source: (
            _COUNTS.search(source.head) is not None
            or (_YAML.search(source.head) is not None and "time" in source.head)
        ),
        read_yaml,
    ),
)
