"""Workbooks: sheets, text that stays text, limits of a sheet, and a calculation with live formulas."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.table import Block, Column, Words
from mc2perf.writers.tables import About, Cell, WhatIf, open_table
from mc2perf.writers.tables.what_if import evaluated, values

TRAP = "=cmd|' /C calc'!A0"
COLUMNS = [Column("model", "", "name"), Column("time", "s", "of a layer"), Column("ratio", "1", "share")]
BLOCK: Block = {
    "model": Words(np.array([0, 1, 2, 0]), (TRAP, '专家, "8"\n2', "")),
    "time": np.array([0.1 + 0.2, math.nan, 1e-300, 2.0**60]),
    "ratio": np.array([math.inf, 0.0, -1.5, math.nan]),
}
PIPELINE = WhatIf(
    "two engines",
    [
        Cell(name="head", label="inputs", unit=""),
        Cell(name="bytes", label="bytes of a piece", unit="B", value=2e6),
        Cell(name="bandwidth", label="of the links", unit="B/s", value=1e9, note="change me"),
        Cell(name="t", label="time", unit="s", formula="MAX({a}+{n}*{b}, {n}*{a}+{b})"),
        Cell(name="a", label="a piece on the links", unit="s", formula="{bytes}/{bandwidth}"),
        Cell(name="b", label="a piece on the cubes", unit="s", value=1e-3),
        Cell(name="n", label="pieces", unit="1", value=4.0),
        Cell(name="stale", label="given beside the formula", unit="1", formula="{n}+1", value=0.0),
    ],
)
ABOUT = About(
    title="=sweep",
    inputs={"target": "http://example.org", "ep": 16, "layers": [1, 2], "fast": True},
    profiles=[("a2", "links.hccs.bandwidth", "2.8e10", "B/s", "measured", "@source")],
    dictionary=COLUMNS,
    what_if=PIPELINE,
)


def close(number: float) -> Any:
    """The library writes 16 digits."""
    return pytest.approx(number, rel=2e-16, abs=0)


def written(path: Path, *blocks: Block, about: About = ABOUT) -> Any:
    pytest.importorskip("xlsxwriter")
    with open_table(str(path), COLUMNS, about) as table:
        for block in blocks:
            table.add(block)
    return read(path)


def read(path: Path) -> Any:
    pytest.importorskip("openpyxl")
    return importlib.import_module("openpyxl").load_workbook(path)


def rows(sheet: Any) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def test_results_hold_numbers_and_text_as_they_are(tmp_path: Path) -> None:
    book = written(tmp_path / "x.xlsx", BLOCK)
    assert book.sheetnames == ["results", "inputs", "profile", "dictionary", "what-if"]
    sheet = book["results"]
    assert rows(sheet) == [
        ["model", "time(s)", "ratio"],
        [TRAP, close(0.1 + 0.2), "inf"],
        ['专家, "8"\n2', None, 0],
        [None, close(1e-300), -1.5],
        [TRAP, close(2.0**60), None],
    ]
    assert sheet["A2"].data_type in ("s", "inlineStr")
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:C5")
    assert sheet["B2"].number_format == "##0.000E+0"


def test_other_sheets_say_what_was_asked(tmp_path: Path) -> None:
    book = written(tmp_path / "x.xlsx")
    assert rows(book["results"]) == [["model", "time(s)", "ratio"]]
    assert rows(book["inputs"])[2:] == [
        ["title", "=sweep"],
        ["target", "http://example.org"],
        ["ep", 16],
        ["layers", "[1, 2]"],
        ["fast", "True"],
    ]
    assert rows(book["profile"])[1] == ["a2", "links.hccs.bandwidth", 2.8e10, "B/s", "measured", "@source"]
    assert rows(book["dictionary"])[1:] == [
        ["model", None, "name"],
        ["time", "s", "of a layer"],
        ["ratio", "1", "share"],
    ]
    texts = [cell for sheet in book for row in sheet.iter_rows() for cell in row if sheet.title != "what-if"]
    assert not any(cell.data_type == "f" or cell.hyperlink for cell in texts)


def test_rows_go_on_in_further_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mc2perf.writers.tables.xlsx_table.SHEET_ROWS", 4)
    book = written(tmp_path / "x.xlsx", BLOCK, BLOCK)
    assert book.sheetnames[:3] == ["results", "results 2", "results 3"]
    models = [row[0] for name in book.sheetnames[:3] for row in rows(book[name])[1:]]
    assert models == [TRAP, '专家, "8"\n2', None, TRAP] * 2
    assert [book[name].max_row for name in book.sheetnames[:3]] == [4, 4, 3]
    assert [book[name].auto_filter.ref for name in book.sheetnames[:3]] == ["A1:C4", "A1:C4", "A1:C3"]
    assert rows(book["results 3"])[0] == ["model", "time(s)", "ratio"]


def test_sheet_that_is_just_full_starts_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mc2perf.writers.tables.xlsx_table.SHEET_ROWS", 5)
    assert written(tmp_path / "x.xlsx", BLOCK).sheetnames[:2] == ["results", "inputs"]


def test_same_table_is_the_same_file(tmp_path: Path) -> None:
    for name in ("x.xlsx", "y.xlsx"):
        written(tmp_path / name, BLOCK)
    assert (tmp_path / "x.xlsx").read_bytes() == (tmp_path / "y.xlsx").read_bytes()


def test_what_if_has_live_formulas_with_their_numbers(tmp_path: Path) -> None:
    written(tmp_path / "x.xlsx")
    sheet = read(tmp_path / "x.xlsx")["what-if"]
    openpyxl = importlib.import_module("openpyxl")
    now = openpyxl.load_workbook(tmp_path / "x.xlsx", data_only=True)["what-if"]
    assert sheet["B6"].value == "=MAX($B$7+$B$9*$B$8, $B$9*$B$7+$B$8)"
    assert now["B6"].value == close(9e-3)  # four pieces of 2 ms on the links, the last one's 1 ms behind
    assert (sheet["B7"].value, now["B7"].value) == ("=$B$4/$B$5", 2e-3)
    assert (sheet["B10"].value, now["B10"].value) == ("=$B$9+1", 0)
    assert (sheet["A3"].value, sheet["B3"].value) == ("inputs", None)
    assert [sheet[f"B{row}"].fill.fgColor.rgb for row in (5, 6)] == ["FFFFF2CC", "00000000"]


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("{a} + {none}", "unknown cell 'none'"),
        ("{t}", "need one another"),
        ("a + 1", "no formula"),
        ("{a} ** 2", "no formula"),
        ("POWER({a}, 2)", "no formula"),
        ("__import__('os')", "no formula"),
        ("MAX({a}", "no formula"),
        ("CEILING({a})", "no formula"),
    ],
)
def test_formula_that_is_none_is_a_mistake_of_the_program(formula: str, said: str) -> None:
    cells = [
        Cell(name="a", label="", unit="1", value=2.0),
        Cell(name="t", label="", unit="1", formula=formula),
    ]
    with pytest.raises(ValueError, match=said):
        values(WhatIf("wrong", cells))


def test_names_stand_once() -> None:
    with pytest.raises(ValueError, match="twice: a"):
        WhatIf("wrong", [Cell(name="a", label="", unit="1", value=1.0)] * 2)


numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers, st.floats(0.5, 1e3))
def test_evaluator_agrees_with_python(a: float, b: float, step: float) -> None:
    given_numbers = {"a": a, "b": b, "s": step}
    assert evaluated("-{a} + 2*({b} - {a})/{s}", given_numbers) == -a + 2 * (b - a) / step
    assert evaluated("MAX({a}, {b}, 0) - MIN({a}, {b})", given_numbers) == max(a, b, 0) - min(a, b)
    assert evaluated("SUM({a}, {b}) + ABS({a})", given_numbers) == pytest.approx(a + b + abs(a), abs=1e-9)
    up, down = (evaluated(f"{name}({{a}}, {{s}})", given_numbers) for name in ("CEILING", "FLOOR"))
    assert down - 1e-9 <= a <= up + 1e-9
    assert up - down == pytest.approx(0, abs=1e-6) or up - down == pytest.approx(step)
