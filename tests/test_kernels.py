"""Tables of measured kernels: reading them, scoring rules on them, the errors that profiles state."""

# ruff: noqa: E501 - headers and lines stand as they are
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mc2perf.kernels import KINDS, KernelTable
from mc2perf.problems import InputError
from mc2perf.readers.kernels import read_kernels
from mc2perf.readers.profiles import load_machine
from mc2perf.studies.kernels import ALL, PRICES, Score, outliers, predicted, score

FABRIC = load_machine("cloudmatrix384")
FOLDER = os.environ.get("MC2PERF_KERNELS", "")
"""Environment variable: a folder with tables of kernels, in it or one level down."""

HEADERS = {
    "matmul_bf16": "m,n,k,time_us",
    "matmul_w8a8": "m,n,k,time_us",
    "moe_ffn_bf16": "model,num_tokens,hidden_size,moe_intermediate_size,num_experts,top_k,ep,local_experts,time_us",
    "attention_context_bf16": "batch,seq_len,heads,kv_heads_0_means_heads,head_dim,time_us",
    "attention_decode_bf16": "batch,seq_len,heads,kv_heads,head_dim,time_us",
    "hccl": "op,ranks,size_bytes_whole_array,time_us,bus_gbps",
}
ROWS = {
    "matmul_bf16": ["1,512,1024,10", "4096,7168,2048,400"],
    "matmul_w8a8": ["1,512,1024,17"],
    "moe_ffn_bf16": ["x,64,2048,1024,128,8,4,32,300", "x,4096,2048,1024,128,8,4,32,900"],
    "attention_context_bf16": ["2,1024,8,1,128,110", "1,128,16,0,128,47"],
    "attention_decode_bf16": ["2,1024,8,1,128,58", "64,4096,16,0,128,2000"],
    "hccl": ["all_gather,8,1048576,14,1", "all_to_all,2,1000,7,1", "all_gather,8,16777216,170,1"],
}


def write(folder: Path, name: str, rows: list[str] | None = None, header: str | None = None) -> Path:
    lines = [header or HEADERS[name], *(ROWS[name] if rows is None else rows)]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(InputError) as refused:
        read_kernels(path)
    return refused.value.problems


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, KernelTable]:
    for name in HEADERS:
        write(tmp_path, name)
    return {table.name: table for table in read_kernels(tmp_path)}


# --- reading


def test_the_header_says_the_kind(tables: dict[str, KernelTable]) -> None:
    assert {name: (table.kind.name, table.dtype) for name, table in tables.items()} == {
        "matmul_bf16": ("matmul", "bf16"),
        "matmul_w8a8": ("matmul", "w8a8"),
        "moe_ffn_bf16": ("moe_ffn", "bf16"),
        "attention_context_bf16": ("context_attention", "bf16"),
        "attention_decode_bf16": ("decode_attention", "bf16"),
        "hccl": ("collective", "any"),
    }
    assert set(PRICES) == set(KINDS)


def test_numbers_are_in_si(tables: dict[str, KernelTable]) -> None:
    assert tables["matmul_bf16"].time == pytest.approx([10e-6, 400e-6])
    assert tables["attention_context_bf16"].columns["kv_heads"].tolist() == [1.0, 16.0]
    assert tables["moe_ffn_bf16"].columns["width"].tolist() == [1024.0, 1024.0]
    assert tables["hccl"].words == ("all_gather", "all_to_all", "all_gather")
    assert tables["hccl"].row(0) == "all_gather, ranks 8, size 1.04858e+06"


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    (table,) = read_kernels(write(tmp_path, "matmul_bf16", ["10,3,2,1"], "time_us,k,n,m"))
    assert [table.columns[name][0] for name in "mnk"] == [1.0, 2.0, 3.0]


def test_a_part_of_a_table(tables: dict[str, KernelTable]) -> None:
    part = tables["hccl"].where(np.array([False, True, True]))
    assert (len(part), part.words, part.time.tolist()) == (
        2,
        ("all_to_all", "all_gather"),
        [7 * 1e-6, 170 * 1e-6],
    )


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    write(tmp_path, "matmul_bf16", ["1,x,3,4", "1,2,-3,nan", "1,2"])
    write(tmp_path, "hccl", ["all_gatherr,8,1,1,1"])
    lines = problems(tmp_path)
    assert lines == [
        "hccl.csv: line 2: op 'all_gatherr' is unknown; did you mean 'all_gather'?",
        "matmul_bf16.csv: line 2: n 'x' is not a positive number",
        "matmul_bf16.csv: line 3: k '-3' is not a positive number",
        "matmul_bf16.csv: line 4: k '' is not a positive number",
        "matmul_bf16.csv: line 3: time 'nan' is not a positive number",
        "matmul_bf16.csv: line 4: time '' is not a positive number",
    ]


@pytest.mark.parametrize(
    ("name", "header", "said"),
    [
        ("matmul", HEADERS["matmul_bf16"], "has no element type; write one of bf16, w8a8, fp16 into its name"),
        ("attention_bf16", HEADERS["attention_decode_bf16"], "may be several kinds of kernel; write context or decode"),
        ("other_bf16", "a,b,c", "header fits no kind of kernel; write time_us and one of matmul: m, n, k; "),
        ("hccl", "ranks,size,time_us", "has no column 'op'; write the collective of each row there"),
        ("matmul_bf16", HEADERS["matmul_bf16"], "has a header and no rows"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table(tmp_path: Path, name: str, header: str, said: str) -> None:
    (line,) = (
        problems(write(tmp_path, name, [], header))
        if name == "matmul_bf16"
        else problems(write(tmp_path, name, ["1,1,1,1,1,1"], header))
    )
    assert line.startswith(f"{name}.csv: {said}")


def test_an_empty_folder(tmp_path: Path) -> None:
    (line,) = problems(tmp_path)
    assert "holds no .csv file" in line


# --- scoring


def test_scores_of_a_table_that_the_rules_made(tables: dict[str, KernelTable]) -> None:
    """Times that are the predictions have no error; all 10 % longer ones have -1/11."""
    for table in tables.values():
        exact = KernelTable(
            table.name, table.kind, table.dtype, table.columns, table.words, predicted(table, FABRIC)
        )
        assert all(s.worst < 1e-12 for s in score([exact], FABRIC))
        longer = KernelTable(
            table.name, table.kind, table.dtype, table.columns, table.words, exact.time * 1.1
        )
        for one in score([longer], FABRIC):
            for error in (one.median, one.p90, one.worst, -one.bias):
                assert error == pytest.approx(1 / 11, rel=1e-9)
        assert outliers(exact, FABRIC, 0.01) == []
        assert len(outliers(longer, FABRIC, 0.05)) == len(table)


def test_classes_share_out_the_rows(tables: dict[str, KernelTable]) -> None:
    for table in tables.values():
        whole, *classes = score([table], FABRIC)
        assert whole.size_class == ALL
        assert whole.count == len(table) == sum(one.count for one in classes)
        assert {one.size_class for one in classes} <= set(table.kind.classes())


def test_a_row_costs_the_same_alone(tables: dict[str, KernelTable]) -> None:
    for table in tables.values():
        together = predicted(table, FABRIC)
        for index in range(len(table)):
            alone = predicted(table.where(np.arange(len(table)) == index), FABRIC)
            assert alone[0] == together[index]


def test_two_points_on_a_roofline_are_met_by_the_naive_one(tmp_path: Path) -> None:
    """Time in proportion to the bytes: the naive roofline has the right share among its candidates."""
    share = np.geomspace(0.02, 50.0, 161)[100]
    moved = np.array([8.0, 16.0]) * 512.0 * 1024.0
    times = moved * 7.0 / 8.0 / (196e9 * share) * 1e6
    rows = [
        f"all_gather,8,{size},{time},1" for size, time in zip(moved.tolist(), times.tolist(), strict=True)
    ]
    (table,) = read_kernels(write(tmp_path, "hccl", rows))
    assert score([table], FABRIC)[0].naive_median < 1e-6


# --- what profiles state, where the tables are at hand

STATED = {
    "matmul_bf16": (0.07, 0.24),
    "matmul_w8a8": (0.04, 0.14),
    "moe_ffn_bf16": (0.06, 0.20),
    "moe_ffn_w8a8": (0.06, 0.18),
    "attention_context_bf16": (0.055, 0.18),
    "attention_decode_bf16": (0.09, 0.23),
    "a3_die": (0.01, 0.07),
    "a2": (0.03, 0.25),
}
"""Table -> median and p90 of the absolute relative error of all its rows."""


def reached() -> dict[str, Score]:
    files = {file.stem: file for file in Path(FOLDER).glob("**/*.csv") if file.stem in STATED}
    a2 = load_machine("atlas_800t_a2_b2")
    return {
        name: score(read_kernels(file), a2 if name == "a2" else FABRIC)[0] for name, file in files.items()
    }


@pytest.mark.skipif(not FOLDER, reason="MC2PERF_KERNELS names no folder with tables of kernels")
def test_profiles_reach_the_errors_they_state() -> None:
    found = reached()
    assert found
    for name, one in found.items():
        median, p90 = STATED[name]
        assert one.median <= median, one
        assert one.p90 <= p90, one
        assert one.median <= one.naive_median / 1.95, one
