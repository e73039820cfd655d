"""Open what mc2perf writes in LibreOffice, save it again, and compare every cell with what was written.

Run with the Python of the development environment: ``python scripts/spreadsheet_roundtrip.py``. Tables go
from CSV through XLSX to CSV, and from XLSX to CSV; the calculation of the what-if sheet is written with
stale numbers and a bandwidth of its own, and LibreOffice must come to the numbers that Python comes to.
The sheet of a real sweep with another bandwidth must come to what mc2perf says of that bandwidth.
"""

from __future__ import annotations

import csv
import importlib
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mc2perf.api import estimate
from mc2perf.sweeping import about as about_sweep
from mc2perf.sweeping import ask_sweep
from mc2perf.table import Block, Column, Words
from mc2perf.writers.tables import About, Cell, Style, WhatIf, open_table
from mc2perf.writers.tables.csv_table import guarded
from mc2perf.writers.tables.what_if import values

CLOSE = 1e-14
"""LibreOffice saves numbers with 15 to 17 digits."""

COLUMNS = [
    Column("model", "", "name of the model"),
    Column("time", "s", "of one layer"),
    Column("tokens", "1", "of a step"),
]
TEXTS = [
    "=cmd|' /C calc'!A0",
    "通义千问, 专家",
    'say "hi", twice',
    "two\nlines",
    "",
    "@SUM(A1:A9)",
    "  +1+1",
    "＝1+1",
    "\t=1+1",
    "http://example.org/?a=1&b=<2>",
    "mixtral-8x7b; 100 %",
]
LOOKALIKES = ["007", "1e5", "2026-01-02", "TRUE", "1/2"]
"""Text that only a workbook can keep: spreadsheets read the same in a CSV file as numbers and dates."""

NUMBERS = [1e-300, 0.1 + 0.2, math.nan, 2.0**53 - 1, -3.2, 1e300, 1.0, 123456789012.0, 1 / 3, math.inf, 0.0]

FORMULAS = WhatIf(
    "two engines",
    [
        Cell(name="bytes", label="bytes of a piece", unit="B", value=3e6),
        Cell(name="bandwidth", label="bandwidth of the links", unit="B/s", value=28e9),
        Cell(name="b", label="a piece on the cubes", unit="s", value=1e-4),
        Cell(name="n", label="pieces", unit="1", value=4.0),
        Cell(name="a", label="a piece on the links", unit="s", formula="{bytes} / {bandwidth}"),
        Cell(name="t", label="time", unit="s", formula="MAX({a}+{n}*{b}, {n}*{a}+{b})"),
        Cell(name="serial", label="serial time", unit="s", formula="{n}*SUM({a}, {b})"),
        Cell(name="gain", label="speed-up", unit="1", formula="{serial}/{t}"),
        Cell(name="short", label="the shorter", unit="s", formula="MIN({a}, {b}) - ABS(-{b})"),
        Cell(name="packets", label="packets", unit="1", formula="CEILING({bytes}/4096, 1)"),
        Cell(name="whole", label="whole packets", unit="1", formula="FLOOR({bytes}/4096, 8)"),
    ],
)

RECALCULATE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item>
</oor:items>
"""
"""Settings that let LibreOffice compute every formula of a workbook as it opens it."""

# separator, quote, UTF-8, first line, columns, language, quote all, special numbers, ..., run formulas
READ_CSV = "Text - txt - csv (StarCalc):44,34,76,1,,1033,false,true,false,false,false,0,true"
# ..., as shown: no, formulas: no, remove spaces: no, every sheet to a file of its own
WRITE_CSV = "csv:Text - txt - csv (StarCalc):44,34,76,1,,1033,false,false,false,false,false,-1"


def about(what_if: WhatIf) -> About:
    """What the workbook says beside the results."""
    return About(
        title="round trip", inputs={"target": TEXTS[0]}, profiles=(), dictionary=COLUMNS, what_if=what_if
    )


def sample(texts: Sequence[str]) -> Block:
    """A row for every text, with numbers in turn."""
    numbers = np.array([NUMBERS[i % len(NUMBERS)] for i in range(len(texts))])
    return {"model": Words(np.arange(len(texts)), tuple(texts)), "time": numbers, "tokens": numbers[::-1]}


def write(path: Path, block: Block, what_if: WhatIf = FORMULAS) -> None:
    """One file."""
    with open_table(str(path), COLUMNS, about(what_if), Style(digits="full")) as table:
        table.add(block)


def convert(soffice: str, file: Path, to: str, folder: str, infilter: str = "") -> Path:
    """Open a file in LibreOffice and save it in another format; the folder that it went to."""
    settings = file.parent / "profile" / "user" / "registrymodifications.xcu"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(RECALCULATE, encoding="utf-8")
    out = file.parent / folder
    command = [
        soffice,
        f"-env:UserInstallation={settings.parent.parent.as_uri()}",
        "--headless",
        *([f"--infilter={infilter}"] if infilter else []),
        *("--convert-to", to, "--outdir", str(out), str(file)),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    return out


def read_csv(path: Path) -> list[list[str]]:
    """All cells."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def expected(block: Block, guard: bool) -> list[list[float | str]]:
    """The rows that must come back, header first."""
    header: list[float | str] = [column.title for column in COLUMNS]
    texts = [guarded(text) if guard else text for text in block["model"]]
    numbers = [block[column.name].tolist() for column in COLUMNS[1:]]  # type: ignore[union-attr]
    return [header, *([*row] for row in zip(texts, *numbers, strict=True))]


def same(wanted: float | str | None, found: Any) -> bool:
    """Whether a cell came back: text as it was, numbers close, nothing for not-a-number."""
    if wanted is None or isinstance(wanted, str):
        return (wanted or "") == ("" if found is None else found)
    if math.isnan(wanted):
        return found in (None, "")
    if math.isinf(wanted):
        return bool(found == str(wanted))
    return math.isclose(float(found), wanted, rel_tol=CLOSE)


def differences(
    what: str, wanted: Sequence[Sequence[float | str]], found: Sequence[Sequence[Any]]
) -> Iterator[str]:
    """A line for every cell that is not what was written; says how many were compared."""
    if len(wanted) != len(found):
        yield f"{what}: {len(found)} rows instead of {len(wanted)}"
    pairs = [
        (row, column, cell, other)
        for row, (ours, theirs) in enumerate(zip(wanted, found, strict=False))
        for column, (cell, other) in enumerate(zip(ours, theirs, strict=True))
    ]
    print(f"{what}: {len(pairs)} cells compared")
    for row, column, cell, other in pairs:
        if not same(cell, other):
            yield f"{what}: row {row}, column {column}: wrote {cell!r}, came back {other!r}"


def check_csv(soffice: str, folder: Path) -> Iterator[str]:
    """CSV -> XLSX -> CSV."""
    block = sample(TEXTS)
    wanted = expected(block, guard=True)
    write(folder / "table.csv", block)
    workbook = convert(soffice, folder / "table.csv", "xlsx", "from_csv", READ_CSV) / "table.xlsx"
    sheet = importlib.import_module("openpyxl").load_workbook(workbook).active
    cells = [[cell.value for cell in row] for row in sheet.iter_rows()]
    yield from differences("csv -> xlsx", wanted, cells)
    live = [cell.coordinate for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    yield from (f"csv -> xlsx: {cell} became a formula" for cell in live)
    yield from (
        f"csv -> xlsx: {number!r} of row {row} is no number"
        for row, line in enumerate(wanted)
        for number, cell in zip(line, cells[row], strict=True)
        if isinstance(number, float) and math.isfinite(number) and not isinstance(cell, int | float)
    )
    (workbook.parent / "profile").symlink_to(folder / "profile")
    back = convert(soffice, workbook, WRITE_CSV, "back")
    yield from differences("csv -> xlsx -> csv", wanted, read_csv(next(back.glob("*.csv"))))


def check_xlsx(soffice: str, folder: Path) -> Iterator[str]:
    """XLSX -> CSV, with formulas whose numbers are stale and a bandwidth of its own."""
    stale = WhatIf(FORMULAS.title, [replace(c, value=0.0) if c.formula else c for c in changed().cells])
    block = sample([*TEXTS, *LOOKALIKES])
    write(folder / "book.xlsx", block, stale)
    out = convert(soffice, folder / "book.xlsx", WRITE_CSV, "from_xlsx")
    wanted = expected(block, guard=False)
    yield from differences("xlsx -> csv, results", wanted, read_csv(out / "book-results.csv"))
    numbers = values(changed())
    calculation: list[list[float | str]] = [
        [cell.label, numbers[cell.name], cell.unit] for cell in FORMULAS.cells
    ]
    found = [row[:3] for row in read_csv(out / "book-what-if.csv")[2:]]
    yield from differences("xlsx -> csv, what-if recalculated", calculation, found)


def changed() -> WhatIf:
    """The calculation with links of another bandwidth."""
    cells = [replace(c, value=56e9) if c.name == "bandwidth" else c for c in FORMULAS.cells]
    return WhatIf(FORMULAS.title, cells)


SWEPT: dict[str, Any] = {"n": "4K", "k": "8K", "ranks": 8, "schedule": "mc2"}
LINK, RATE = "tiers.node.link_rate", 20.0


def check_sweep(soffice: str, folder: Path) -> Iterator[str]:
    """The what-if sheet of a sweep, its bandwidth changed as a reader would, against the tool itself."""
    asked = ask_sweep("all_gather_matmul", SWEPT, {}, ["m=4K,8K"])
    said = about_sweep(asked)
    assert said.what_if is not None
    pieces = int(said.what_if.title.partition("pieces: ")[2].split()[0])
    path = folder / "sweep.xlsx"
    with open_table(str(path), asked.columns, said, Style(digits="full")) as table:
        table.add(asked.sweep.evaluate(next(asked.sweep.tasks()), [c.name for c in asked.columns]))
    workbook = importlib.import_module("openpyxl").load_workbook(path)
    (cell,) = (
        row[1] for row in workbook["what-if"].iter_rows() if row[0].value == "bandwidth of a link, node"
    )
    cell.value = RATE
    workbook.save(folder / "changed.xlsx")
    out = convert(soffice, folder / "changed.xlsx", WRITE_CSV, "from_sweep")
    found = {row[0]: row[1] for row in read_csv(out / "changed-what-if.csv")}
    answer = estimate("all_gather_matmul", set={LINK: f"{RATE}GB/s"}, m=4096, tile_cnt=pieces, **SWEPT).best
    assert answer is not None
    wanted = {
        "time": answer.total_time,
        "serial time": answer.serial_time,
        "speed-up over serial": answer.speedup,
        "uncovered communication of the time": answer.comm_ratio,
    }
    print(f"what-if of a sweep: {len(wanted)} numbers compared at {RATE:g} GB/s")
    for name, number in wanted.items():
        if not math.isclose(float(found[name]), number, rel_tol=1e-9):
            yield f"what-if of a sweep: {name} is {found[name]}, mc2perf says {number!r}"


def main() -> int:
    """Check both ways; 1 if a cell differs."""
    soffice = shutil.which("soffice")
    if soffice is None:
        print("soffice is missing: install LibreOffice Calc, on Debian 'apt-get install libreoffice-calc'")
        return 1
    with TemporaryDirectory() as name:
        checks = (check_csv, check_xlsx, check_sweep)
        found = [line for check in checks for line in check(soffice, Path(name))]
    print("\n".join(found) or "every cell came back")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
