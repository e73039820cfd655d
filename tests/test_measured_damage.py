"""Damaged rows are left out and told, and every other row reads as if the damaged ones had never been there.

That is the whole law, for every format that has rows: ``read(damaged) == read(text without those rows)``.
So no wrong type, no huge or negative number, no missing column can become a number that somebody believes.
"""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measured_files as formats
import pytest
import test_measured_fuzz as fuzz
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.cli.inspect import described
from mc2perf.measured import Launch, Measured
from mc2perf.problems import InputError
from mc2perf.readers.launch_scenario import asked_by
from mc2perf.readers.measured import read_measured

WRONG = (
    "abc",
    "1e999",
    "-7",
    "0x10",
    "1_000",
    "１２",
    "١٢",
    "1e5e5",
    "++1",
    "inf",
    "9" * 400,
    "1.2.3",
    "1;2",
    "None",
    "%s",
)
"""What is no number of any file, whatever Python makes of it."""


@dataclass(frozen=True)
class Book:
    """A format with rows: what stands above, the cells of the rows, what stands between them.

    ``needed`` are the cells without which a row says nothing; a number ten times as large in one of
    ``checked`` contradicts the rest of its row.
    """

    head: str
    rows: tuple[tuple[str, ...], ...]
    needed: tuple[int, ...]
    checked: tuple[int, ...] = ()
    between: str = ","
    first: int = 0

    def text(self, rows: list[list[str]]) -> str:
        """The whole file."""
        return self.head + "".join(self.between.join(row) + "\n" for row in rows)


def _hccl(size: int, time: float) -> tuple[str, ...]:
    return (str(size), f"{time:.2f}", f"{size / time / 1e3:.5f}", "success")


def _nccl(size: int, time: float) -> tuple[str, ...]:
    return (
        str(size),
        str(size // 4),
        "float",
        "sum",
        "-1",
        f"{time:.2f}",
        f"{size / time / 1e3:.2f}",
        "0.10",
        "0",
    )


def _step(step: int, computing: float) -> tuple[str, ...]:
    return (
        str(step),
        str(computing),
        "6000.0",
        "2000.0",
        "8000.0",
        "1000.0",
        str(computing + 7000),
        "0",
        "6000.0",
    )


def _kernel(index: int, kind: str, core: str) -> tuple[str, ...]:
    return (
        "50",
        f"{kind}_{index}",
        kind,
        core,
        f"{1736405443881410 + 999 * index}.320\t",
        f"{10 + index}.5",
        "0",
        "24",
    )


def _log(number: int, time: float) -> tuple[str, ...]:
    return (
        f" iteration {number:8d}/ 100 ",
        " consumed samples: 8 ",
        f" elapsed time per iteration (ms): {time} ",
        " lr: 1E-6 ",
        "",
    )


KERNELS = (
    ("MatMulV2", "AI_CORE"),
    ("Cast", "AI_VECTOR_CORE"),
    ("hcom_allReduce_", "HCCL"),
    ("Add", "AI_VECTOR_CORE"),
)
BOOKS = {
    "hccl_test": Book(
        "data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:\n",
        (_hccl(8192, 61.61), _hccl(1 << 20, 75.08), _hccl(1 << 26, 930.78), _hccl(1 << 27, 1800.5)),
        (0, 1), (0, 1), " | ",
    ),
    "nccl-tests": Book(
        "#       size  count  type  redop  root  time  algbw  busbw  #wrong\n",
        (_nccl(1 << 20, 40.0), _nccl(1 << 21, 60.0), _nccl(1 << 22, 90.0), _nccl(1 << 23, 150.0)),
        (5,), (0, 5), " ",
    ),
    "step_trace_time": Book(
        f"{formats.STEP},{formats.REST}\n", (_step(1, 8000.0), _step(2, 8100.0), _step(3, 8200.0)), (1, 2, 3, 4, 5)
    ),
    "op_statistic": Book(
        fuzz.HEADER,
        (("MatMulV2", "AI_CORE", "8", "921.498", "16.54", "115.187", "346.567", "10.4"),
         ("Cast", "AI_CORE", "2", "100.0", "40.0", "50.0", "60.0", "1"),
         ("hcom_allReduce_", "HCCL", "4", "400.0", "90.0", "100.0", "110.0", "5")),
        (2, 3, 4, 5, 6), (2, 3, 4, 5),
    ),
    "kernel_details": Book(
        f"{formats.LEVEL0}\n", tuple(_kernel(i, *KERNELS[i % 4]) for i in range(7)), (5,)
    ),
    "table of kernels": Book(
        "m,n,k,time_us\n", (("1024", "4096", "1024", "50"), ("1024", "4096", "2048", "90"), ("512", "8", "8", "7.5")), (0, 1, 2, 3)
    ),
    "table of collectives": Book(
        "op,ranks,size_bytes_whole_array,time_us,bus_gbps\n",
        (("all_reduce", "8", "1048576", "50", "36.70"), ("all_gather", "4", "1048576", "50", "15.73"), ("all_to_all", "2", "65536", "40", "0.82")),
        (1, 2, 3), (1, 2, 3),
    ),
    "tile_times": Book("tile_cnt,time_us\n", (("1", "605"), ("2", "500.0"), ("4", "450"), ("8", "480")), (0, 1)),
    "expert_load": Book("", (("100", "100", "100", "100"), ("400", "0", "0", "0"), ("1", "2", "3", "4")), (0, 1, 2, 3), first=1),
    "training_log": Book("noise\n", tuple(_log(n, 90.0 + n) for n in range(1, 13)), (2,), between="|"),
}  # fmt: skip
books = pytest.mark.parametrize("name", sorted(BOOKS))
tables = pytest.mark.parametrize(
    "name", sorted(n for n, book in BOOKS.items() if book.between == "," and book.head)
)


def tried(folder: Path, text: str) -> Measured | None:
    """What a file holds; ``None`` where it was refused in clear lines."""
    file = folder / "x"
    file.write_text(text, encoding="utf-8")
    try:
        found = read_measured(file)
    except InputError as error:
        assert error.problems and all(p.startswith(str(file)) and "\n" not in p for p in error.problems)
        return None
    assert all(line.isprintable() for line in described(found))
    return found


def aside(found: Measured) -> int:
    return sum(rows.count for rows in found.report.set_aside)


def as_if_never_there(folder: Path, damaged: str, without: str, count: int) -> None:
    """The law, and that what was left out was counted."""
    found, expected = tried(folder, damaged), tried(folder, without)
    assert (found is None) == (expected is None)
    if found and expected:
        assert found.data == expected.data
        assert aside(found) == aside(expected) + count


@books
@fuzz.few
@given(data=st.data())
def test_rows_that_hold_no_number_were_never_there(tmp_path: Path, name: str, data: st.DataObject) -> None:
    book = BOOKS[name]
    rows = [list(row) for row in book.rows]
    hit = data.draw(st.sets(st.integers(book.first, len(rows) - 1), min_size=1))
    for index in hit:
        cell = data.draw(st.sampled_from(book.needed))
        before, colon, _ = rows[index][cell].rpartition(": ")
        rows[index][cell] = before + colon + data.draw(st.sampled_from(WRONG))
    kept = [list(row) for index, row in enumerate(book.rows) if index not in hit]
    as_if_never_there(tmp_path, book.text(rows), book.text(kept), len(hit))


@pytest.mark.parametrize("name", [n for n, book in BOOKS.items() if book.checked])
@fuzz.few
@given(data=st.data())
def test_a_number_that_contradicts_its_row_is_not_believed(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    book = BOOKS[name]
    rows = [list(row) for row in book.rows]
    index = data.draw(st.integers(0, len(rows) - 1))
    cell = data.draw(st.sampled_from(book.checked))
    whole = "." not in rows[index][cell]
    rows[index][cell] = rows[index][cell] + "0" if whole else str(float(rows[index][cell]) * 10)
    kept = [list(row) for at, row in enumerate(book.rows) if at != index]
    as_if_never_there(tmp_path, book.text(rows), book.text(kept), 1)


@books
@fuzz.few
@given(data=st.data())
def test_rows_of_another_length_were_never_there(tmp_path: Path, name: str, data: st.DataObject) -> None:
    book = BOOKS[name]
    if name == "training_log":  # its fields bear names
        return
    rows = [list(row) for row in book.rows]
    index = data.draw(st.integers(book.first, len(rows) - 1))
    if data.draw(st.booleans()):
        del rows[index][data.draw(st.integers(0, len(rows[index]) - 1))]
    else:
        rows[index].insert(data.draw(st.integers(0, len(rows[index]))), "7")
    kept = [list(row) for at, row in enumerate(book.rows) if at != index]
    if name == "nccl-tests":  # one word less may be the blank redop of a gather: the times stand all the same
        found, whole = (
            tried(tmp_path, book.text(rows)),
            tried(tmp_path, book.text(list(map(list, book.rows)))),
        )
        expected = tried(tmp_path, book.text(kept))
        assert found and whole and expected and found.data in (whole.data, expected.data)
    else:
        as_if_never_there(tmp_path, book.text(rows), book.text(kept), 1)


@books
@fuzz.few
@given(data=st.data())
def test_a_cut_file_is_its_whole_rows_or_says_that_it_was_cut(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    book = BOOKS[name]
    text = book.text([list(row) for row in book.rows])
    cut = data.draw(st.integers(len(book.head) + 1, len(text)))
    whole = text[: text[:cut].rfind("\n") + 1]
    found, expected = tried(tmp_path, text[:cut]), tried(tmp_path, whole)
    if found and not any("cut off" in note for note in found.report.notes):
        assert expected and found.data == expected.data


def table(book: Book) -> list[list[str]]:
    return [next(csv.reader([book.head])), *map(list, book.rows)]


def written(rows: list[list[str]]) -> str:
    made = io.StringIO()
    csv.writer(made).writerows(rows)
    return made.getvalue()


@tables
def test_a_column_that_is_gone_is_one_without_values(tmp_path: Path, name: str) -> None:
    """Either its absence is told by its name, or the rest reads as beside a column of N/A."""
    rows = table(BOOKS[name])
    for gone in range(len(rows[0])):
        file = tmp_path / "x"
        file.write_text(written([row[:gone] + row[gone + 1 :] for row in rows]))
        try:
            found = read_measured(file)
        except InputError as error:
            said = str(error).lower()
            assert f"no column '{rows[0][gone].lower()}'" in said or "looked for" in said or "time" in said
            continue
        blank = [rows[0], *([*row[:gone], "N/A", *row[gone + 1 :]] for row in rows[1:])]
        expected = tried(tmp_path, written(blank))
        assert expected and found.data == expected.data


@tables
@fuzz.few
@given(data=st.data())
def test_columns_that_nobody_knows_change_nothing(tmp_path: Path, name: str, data: st.DataObject) -> None:
    rows = table(BOOKS[name])
    expected = tried(tmp_path, written(rows))
    at = data.draw(st.integers(0, len(rows[0])))
    odd = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    more = [
        [*row[:at], data.draw(odd) if i else "Some New Metric(%)", *row[at:]] for i, row in enumerate(rows)
    ]
    found = tried(tmp_path, written(more))
    assert found and expected and found.data == expected.data


# --- trees ---------------------------------------------------------------------------------------------------


def _ops() -> dict[str, Any]:
    return {"step5": {"p2p": {}, "collective": {
        f"hcom_allReduce__1_{i}@7": formats.op(28.0 + i, 0.25 + i) for i in range(4)}}}  # fmt: skip


def _links() -> dict[str, Any]:
    pairs = {
        f"0-{i}": {"Transport Type": "HCCS", "Transit Size(MB)": 16 + i, "Transit Time(ms)": 1}
        for i in (1, 2, 3)
    }
    return {"step": {"p2p": {}, "collective": {"a-total@7": pairs}}}


TREES: dict[str, tuple[Callable[[], Any], tuple[str, ...], tuple[str, ...]]] = {
    "communication.json": (_ops, ("step5", "collective"), ("Communication Time Info", "Transit Time(ms)")),
    "elapsed": (_ops, ("step5", "collective"), ("Communication Time Info", "Elapse Time(ms)")),
    "bytes": (_ops, ("step5", "collective"), ("Communication Bandwidth Info", "HCCS", "Transit Size(MB)")),
    "communication_matrix.json": (_links, ("step", "collective", "a-total@7"), ("Transit Size(MB)",)),
    "time of a link": (_links, ("step", "collective", "a-total@7"), ("Transit Time(ms)",)),
}
"""A tree with several equal entries: how to make it, where they hang, and a number of each."""


@pytest.mark.parametrize("name", TREES)
@fuzz.few
@given(data=st.data())
def test_entries_that_hold_no_number_were_never_there(tmp_path: Path, name: str, data: st.DataObject) -> None:
    make, above, leaf = TREES[name]
    tree = make()
    entries = tree
    for key in above:
        entries = entries[key]
    hit = data.draw(st.sets(st.sampled_from(sorted(entries)), min_size=1))
    without = copy.deepcopy(tree)
    for key in hit:
        node = without
        for part in above:
            node = node[part]
        del node[key]
        node = entries[key]
        for part in leaf[:-1]:
            node = node[part]
        odd: Any = data.draw(
            st.sampled_from([*WRONG, True, [], {}, [1], float("inf"), float("nan"), -1, 1e300, None])
        )
        node[leaf[-1]] = odd
        if odd is None and data.draw(st.booleans()):
            del node[leaf[-1]]
    found, expected = tried(tmp_path, json.dumps(tree)), tried(tmp_path, json.dumps(without))
    assert (found is None) == (expected is None)
    if found and expected:
        assert found.data == expected.data
        assert any(
            "Time" in r.reason or "Size" in r.reason or "'" in r.reason for r in found.report.set_aside
        )


# --- launch scripts ------------------------------------------------------------------------------------------


@fuzz.few
@given(data=st.data())
def test_a_damaged_script_is_a_scenario_or_a_clear_line(tmp_path: Path, data: st.DataObject) -> None:
    text = fuzz.GOOD["launch script"]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        odd: Any = data.draw(
            st.sampled_from([*WRONG, "$", "${", "\n", '"', "--", "--num-layers", " ", "\\", "é", "\x1b[2J"])
        )
        text = text[:at] + odd + text[at + data.draw(st.integers(0, 8)) :]
    found = tried(tmp_path, text)
    if found and isinstance(found.data, Launch):
        for target in (None, "deepseek-v3"):
            try:
                asked = asked_by(found.data, found.name, target, "x.model.yaml")
            except InputError as error:
                assert error.problems and all(
                    str(problem).startswith(found.name) for problem in error.problems
                )
            else:
                assert asked.scenario["target"]
