"""Tables streamed into files: what they hold, what spreadsheets run of it, and what a failure leaves."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.problems import InputError
from mc2perf.table import Block, Column, Words
from mc2perf.writers.tables import FORMATS, About, Style, open_table
from mc2perf.writers.tables.cells import CHUNK
from mc2perf.writers.tables.csv_table import guarded

COLUMNS = [
    Column("model", "", "name of the model"),
    Column("time", "s", "of one layer"),
    Column("pieces", "1", "of the best schedule"),
]
ABOUT = About(title="a sweep", inputs={"target": "moe_layer", "ep": [8, 16]}, profiles=(), dictionary=COLUMNS)
FULL = Style(bom=False, digits="full")


def block(names: list[str], times: list[float], pieces: list[float]) -> Block:
    texts = tuple(dict.fromkeys(names))
    codes = np.array([texts.index(name) for name in names], dtype=np.intp)
    return {"model": Words(codes, texts), "time": np.array(times), "pieces": np.array(pieces)}


SAMPLE = block(["mixtral", "专家, 8", "mixtral"], [0.1 + 0.2, math.nan, 1e-300], [4.0, math.inf, 2.0**60])
needs_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


def written(path: Path, *blocks: Block, columns: list[Column] = COLUMNS, style: Style | None = None) -> bytes:
    with open_table(str(path), columns, ABOUT, style) as table:
        for each in blocks:
            table.add(each)
    assert table.rows == sum(len(each[columns[0].name]) for each in blocks)
    assert list(path.parent.iterdir()) == [path]
    return path.read_bytes()


def cells(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))


def test_csv_has_crlf_units_and_nine_digits(tmp_path: Path) -> None:
    lines = written(tmp_path / "x.csv", SAMPLE).decode("utf-8-sig").split("\r\n")
    assert lines == [
        "model,time(s),pieces",
        "mixtral,0.3,4",
        '"专家, 8",,inf',
        "mixtral,1e-300,1.1529215e+18",
        "",
    ]


def test_csv_in_full_gives_back_the_same_floats(tmp_path: Path) -> None:
    lines = written(tmp_path / "x.csv", SAMPLE, style=FULL).decode().split("\r\n")
    assert lines[1:] == [
        "mixtral,0.30000000000000004,4",
        '"专家, 8",,inf',
        "mixtral,1e-300,1.152921504606847e+18",
        "",
    ]


@pytest.mark.parametrize("bom", [True, False])
def test_byte_order_mark(tmp_path: Path, bom: bool) -> None:
    assert written(tmp_path / "x.csv", style=Style(bom=bom)).startswith(b"\xef\xbb\xbf") is bom


def test_table_without_rows_is_a_header(tmp_path: Path) -> None:
    none = block([], [], [])
    assert cells(written(tmp_path / "x.csv", none)) == [["model", "time(s)", "pieces"]]
    (tmp_path / "x.csv").unlink()
    assert written(tmp_path / "x.md", none).decode().splitlines()[1:] == ["| --- | ---: | ---: |"]
    (tmp_path / "x.md").unlink()
    assert written(tmp_path / "x.jsonl", none) == b""


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t", "\r", "\n", "\0", "  =", "\u3000+", "\ufeff=", "＝", "＋", "－", "＠"]
)
def test_text_is_never_a_formula(tmp_path: Path, start: str) -> None:
    text = f"{start}cmd|' /C calc'!A0"
    rows = cells(written(tmp_path / "x.csv", block([text], [-3.2], [1.0])))
    assert rows[1] == ["'" + text, "-3.2", "1"]


def test_names_of_columns_are_text_too(tmp_path: Path) -> None:
    columns = [Column("=1+1", "", "a trap"), Column('a "b", c', "s", "quotes")]
    assert cells(written(tmp_path / "x.csv", columns=columns)) == [["'=1+1", 'a "b", c(s)']]


def test_column_on_its_own_keeps_empty_rows(tmp_path: Path) -> None:
    for values in (np.array([math.nan, 1.0, math.nan]), Words(np.array([0, 1, 0]), ("", "1"))):
        content = written(tmp_path / "x.csv", {"time": values}, columns=COLUMNS[1:2])
        assert cells(content)[1:] == [[""], ["1"], [""]]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "%s", "100 %", "a|b", 'say "hi"', "one,\r\ntwo", "=1+1", "专家", "nan", "inf", "{}"]
)
rows = st.lists(
    st.tuples(texts, st.floats(), st.floats() | st.integers(-(2**53), 2**53).map(float)), max_size=12
)


def same(text: str, number: float) -> bool:
    return text == "" if math.isnan(number) else float(text) == number


@settings(max_examples=200)
@given(rows, rows)
def test_csv_module_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, first: list[Any], second: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.csv"
    blocks = [block(*(list(c) for c in zip(*part, strict=True))) for part in (first, second) if part]
    read = cells(written(path, *blocks, style=FULL))[1:]
    assert len(read) == len(first) + len(second)
    for (name, time, pieces), (text, *numbers) in zip(read, first + second, strict=True):
        assert name == guarded(text)
        assert same(time, numbers[0])
        assert same(pieces, numbers[1])


@given(rows)
def test_json_lines_give_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.jsonl"
    blocks = [block(*(list(c) for c in zip(*given_rows, strict=True)))] if given_rows else []
    lines = written(path, *blocks).decode().split("\n")[:-1]
    assert len(lines) == len(given_rows)
    for line, (text, time, pieces) in zip(lines, given_rows, strict=True):
        read = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        expected = {"model": text or None, "time": time, "pieces": pieces}
        absent = {name for name, value in expected.items() if value is None or value != value}
        assert read.keys() == expected.keys() - absent
        assert all(type(expected[name])(read[name]) == expected[name] for name in read)


def test_rows_keep_their_order_over_chunks_and_kinds_of_columns(tmp_path: Path) -> None:
    count = 2 * CHUNK + 7
    numbers = np.arange(count, dtype=float)
    names = Words(np.arange(count) % 3, ("a", "b,c", ""))
    sometimes = np.where(numbers % 5 == 0, np.nan, -numbers)  # NaN here and there
    at_last = np.where(numbers < CHUNK, np.nan, 7.5)  # NaN throughout a chunk, then constant
    content = written(tmp_path / "x.csv", {"model": names, "time": sometimes, "pieces": at_last})
    expected = [
        [names.texts[i % 3], "" if i % 5 == 0 else str(-i), "" if i < CHUNK else "7.5"] for i in range(count)
    ]
    assert cells(content)[1:] == expected


def test_markdown_shows_text_as_it_is(tmp_path: Path) -> None:
    names = ["a|b", "c\\|d", "two\nlines", "<b>"]
    lines = written(tmp_path / "x.md", block(names, [1.0] * 4, [math.nan] * 4)).decode().split("\n")
    assert lines == [
        "| model | time(s) | pieces |",
        "| --- | ---: | ---: |",
        "| a\\|b | 1 |  |",
        "| c\\\\\\|d | 1 |  |",
        "| two lines | 1 |  |",
        "| \\<b> | 1 |  |",
        "",
    ]


def test_half_a_character_is_spelled_out(tmp_path: Path) -> None:
    content = written(tmp_path / "x.csv", block(["\ud800"], [1.0], [1.0]))
    assert cells(content)[1][0] == "\\ud800"


def test_standard_output_is_csv_without_a_mark(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with open_table("-", COLUMNS, ABOUT) as table:
        table.add(SAMPLE)
    assert capfdbinary.readouterr().out.startswith(b"model,time(s)")
    with open_table("-", COLUMNS, ABOUT, form="jsonl") as table:
        table.add(SAMPLE)
    assert json.loads(capfdbinary.readouterr().out.splitlines()[1]) == {"model": "专家, 8", "pieces": "inf"}


def test_format_may_be_asked_for(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "sweep.txt"), COLUMNS, ABOUT, form=".md"):
        pass
    assert (tmp_path / "sweep.txt").read_text().startswith("| model |")


@pytest.mark.parametrize(("path", "form"), [("x.txt", None), ("x", None), ("-", "yaml")])
def test_unknown_format_says_what_to_write(path: str, form: str | None) -> None:
    with pytest.raises(InputError, match=r"write one of \.csv, \.jsonl, \.md, \.xlsx, \.parquet"):
        open_table(path, COLUMNS, ABOUT, form=form)


@pytest.mark.parametrize(("suffix", "package"), [("xlsx", "xlsxwriter"), ("parquet", "pyarrow")])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, suffix: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"pip install 'mc2perf\[{suffix}\]'"):
        open_table(f"x.{suffix}", COLUMNS, ABOUT)


@pytest.fixture(params=FORMATS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file that is there already, which must be there, alone and unchanged, afterwards."""
    if FORMATS[request.param].package:
        pytest.importorskip(FORMATS[request.param].package)
    path = tmp_path / f"x{request.param}"
    path.write_bytes(b"old")
    yield path
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), OSError("of another file")])
def test_interrupted_table_leaves_the_old_file(old: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, open_table(str(old), COLUMNS, ABOUT) as table:
        table.add(SAMPLE)
        raise error
    assert caught.value is error
    assert table.rows == 3


class FullDisk(io.FileIO):
    """A file on a disk without space."""

    def write(self, data: Any) -> int:
        raise OSError(28, os.strerror(28))


def on_full_disk(handle: int, mode: str) -> io.BufferedWriter:
    return io.BufferedWriter(FullDisk(handle, mode), 16)


def test_full_disk_leaves_the_old_file(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdopen", on_full_disk)
    said = rf"x{old.suffix}' cannot be written \(No space left on device\) after \d rows; the old file is"
    with pytest.raises(InputError, match=said), open_table(str(old), COLUMNS, ABOUT) as table:
        table.add(SAMPLE)


def test_interrupt_on_a_full_disk_stays_an_interrupt(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdopen", lambda handle, mode: io.BufferedWriter(FullDisk(handle, mode), 1 << 20))
    with pytest.raises(KeyboardInterrupt), open_table(str(old), COLUMNS, ABOUT) as table:
        table.add(SAMPLE)
        raise KeyboardInterrupt


@needs_device
@pytest.mark.parametrize("suffix", FORMATS)
def test_full_device(suffix: str) -> None:
    if FORMATS[suffix].package:
        pytest.importorskip(FORMATS[suffix].package)
    with (
        pytest.raises(
            InputError, match=r"'/dev/full' cannot be written \(No space left on device\) after \d rows$"
        ),
        open_table("/dev/full", COLUMNS, ABOUT, form=suffix) as table,
    ):
        table.add(SAMPLE)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("name", ["", "absent/x", "a\0b", "loop"])
def test_path_that_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = f"{tmp_path}/{name}"
    with (
        pytest.raises(InputError, match=r"^output: .* after 0 rows$"),
        open_table(path, [], ABOUT, form="csv"),
    ):
        pass


def test_closed_pipe_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    raw = io.FileIO(writing, "w")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw, 16)))
    with pytest.raises(BrokenPipeError), open_table("-", COLUMNS, ABOUT) as table:
        table.add(SAMPLE)
    with suppress(BrokenPipeError):
        sys.stdout.close()


def test_replaced_file_keeps_its_mode_and_links(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "real.csv").chmod(0o640)
    (tmp_path / "link.csv").symlink_to("real.csv")
    with open_table(str(tmp_path / "link.csv"), COLUMNS, ABOUT):
        pass
    assert (tmp_path / "link.csv").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.csv").stat().st_mode) == 0o640
    assert (tmp_path / "real.csv").read_bytes().startswith(b"\xef\xbb\xbfmodel")


def test_parquet_gives_back_numbers_words_and_meanings(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    second = block(["", "nan"], [1.0, 2.0], [3.0, 4.0])
    written(tmp_path / "x.parquet", SAMPLE, second)
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.to_pydict() == {
        "model": ["mixtral", "专家, 8", "mixtral", None, "nan"],
        "time": [0.1 + 0.2, None, 1e-300, 1.0, 2.0],
        "pieces": [4.0, math.inf, 2.0**60, 3.0, 4.0],
    }
    assert table.schema.field("time").metadata == {b"unit": b"s", b"meaning": b"of one layer"}
    assert str(table.schema.field("model").type).startswith("dictionary<")
    whole = table.schema.metadata
    assert whole[b"tool"].startswith(b"mc2perf ")
    assert json.loads(whole[b"inputs"]) == ABOUT.inputs


def test_parquet_gathers_blocks_to_row_groups(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    part: Block = {
        "model": Words(np.zeros(50_000, dtype=np.intp), ("mixtral",)),
        "time": np.arange(50_000.0),
        "pieces": np.full(50_000, np.nan),
    }
    written(tmp_path / "x.parquet", *[part] * 4)
    file = parquet.ParquetFile(tmp_path / "x.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert groups == [131_072, 68_928]
    file.close()
    empty = written(tmp_path / "x.parquet")
    assert parquet.read_table(io.BytesIO(empty)).column_names == ["model", "time", "pieces"]
