"""Readers of training logs and tables on small files with the quirks of real ones; what cannot be read."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measured_files import NESTED, OLD, REST, ROW, STEP, aside, log, refused

from mc2perf.measured import CollectiveTimes, KernelTimes, TileTimes, TrainingLog
from mc2perf.readers.measured import read_measured, recognise


def test_training_logs_drop_the_warm_up_and_tell_runs_apart(put: Any) -> None:
    text = "noise\n" * 20_000 + log(16808.0, 3300, 3200, 3210) + log(*[9000.0] * 5, *[2104.0] * 6, 8000.0)
    found = read_measured(put(text))
    assert found.format == "training_log" and isinstance(found.data, TrainingLog)
    first, second = found.data.runs
    assert first.time == pytest.approx(3.21) and second.time == pytest.approx(2.104)
    assert len(second.steady) == 6 and second.iterations[0].global_batch_size == 128
    assert found.report.read == 16


def test_the_first_iterations_are_warm_up_even_where_they_are_hardly_longer(put: Any) -> None:
    data = read_measured(put(log(*[120.0] * 5, *[100.0] * 6))).data
    assert isinstance(data, TrainingLog) and [i.number for i in data.runs[0].steady] == [*range(6, 12)]


def test_an_iteration_of_several_ranks_counts_once(put: Any) -> None:
    for times in ((100.0, 120.0), (120.0, 100.0)):
        data = read_measured(put(log(times[0]) + log(times[1]) + log(90.0, start=2))).data
        assert isinstance(data, TrainingLog)
        assert [i.time for i in data.runs[0].iterations] == pytest.approx([0.12, 0.09])


def test_tokens_are_differences_of_those_consumed(put: Any) -> None:
    line = (
        "INFO >>  iteration {}/ 9 | consumed tokens: {} | elapsed time per iteration (ms): 500.0 | mfu: 1 |\n"
    )
    data = read_measured(put("".join(line.format(n, 100 * n * n) for n in (1, 2, 3, 5)))).data
    assert isinstance(data, TrainingLog)
    assert [i.tokens for i in data.runs[0].iterations] == [100, 300, 500, None]


def test_a_baseline_is_a_run(put: Any) -> None:
    data = read_measured(put({"lm loss": [1], "time info": [10565.2, *[4500.0] * 9, 4600.0, 4600.0]})).data
    assert isinstance(data, TrainingLog) and data.runs[0].time == pytest.approx(4.5)


def test_tables_of_kernels(put: Any) -> None:
    found = read_measured(put("m,n,k,time_us\n1024,4096,1024,50\n1,1,1,0\n0,1,1,5\n"))
    assert found.format == "table of matmul" and isinstance(found.data, KernelTimes)
    assert found.data.rows[0].sizes == {"m": 1024, "n": 4096, "k": 1024} and len(found.data.rows) == 1
    heads = "batch,seq_len,heads,kv_heads_0_means_heads,head_dim,time_ms\n1,128,8,0,128,1.5\n"
    data = read_measured(put(heads)).data
    assert isinstance(data, KernelTimes) and data.rows[0].sizes["kv_heads"] == 8
    assert data.rows[0].time == pytest.approx(1.5e-3)
    assert "with its unit" in refused(put("m,n,k,time\n1,2,3,4\n"))


def test_a_sweep_over_m_reads_in_order(put: Any) -> None:
    """Times of an all-gather matmul on 8 GPUs over M (bytedance/flux, issue 90), fused against not."""
    fused, plain = (.25, .426, .673, 1.315, 2.804, 5.819), (.247, .454, .867, 1.692, 3.387, 6.831)  # fmt: skip
    gains = []
    for i, times in enumerate(zip(plain, fused, strict=True)):
        rows = "".join(f"{1024 << i},12288,49152,{time}\n" for time in times)
        data = read_measured(put(f"m,n,k,time_ms\n{rows}")).data
        assert isinstance(data, KernelTimes)
        gains.append(data.rows[0].time > data.rows[1].time)
    assert gains == [False, True, True, True, True, True]


def test_tables_of_collectives_check_their_rate(put: Any) -> None:
    text = "op,ranks,size_bytes_whole_array,time_us,bus_gbps\nall_reduce,8,1048576,50,36.70\n"
    found = read_measured(put(text + "all_reduce,8,1048576,50,20.97\nall_sum,8,1,1,1\nall_gather,1,8,1,0\n"))
    assert isinstance(found.data, CollectiveTimes) and len(found.data.points) == 1
    assert sum(aside(found).values()) == 3


@pytest.mark.parametrize(
    "text",
    [
        "tile_cnt,time_us\n1,605\n2,500.0\n",
        "tileCnt,time\n1,605 us\n2,0.5 ms\n",
        "\ufeff时间,tile_cnt,time (ms)\r\n'=cmd,1,0.605\r\nx,2,0.5\r\n",
        "- {tile_cnt: 1, time: 605 us}\n- {tile_cnt: 2, time_us: 500}\n",
        "points:\n- tile_cnt: 1\n  time: 605us\n- tile_cnt: 2\n  time: 0.5 ms\n",
        "tile_cnt:  # time\n  1: 605 us\n  2: 0.5 ms\n",
    ],
)
def test_tile_times_of_every_form_say_the_same(put: Any, text: str) -> None:
    data = read_measured(put(text)).data
    assert isinstance(data, TileTimes) and len(data.scans) == 1
    assert data.scans[0].medians() == pytest.approx({1: 605e-6, 2: 500e-6})
    assert data.scans[0].best[0] == 2 and not data.scans[0].inputs


SHAPED = [
    "operator,m,n,k,ranks,dtype,tile_cnt,time_us\nall_gather_matmul,512,256,1024,2,torch.bfloat16,1,605\n"
    "all_gather_matmul,512,256,1024,2,bf16,2,500\nall_gather_matmul,1024,256,1024,2,bf16,2,900\n"
    "all_gatherer,512,256,1024,2,bf16,2,500\nall_gather_matmul,512,256,1024,2,posit,2,500\n",
    "operator: all_gather_matmul\nn: 256\nk: 1024\nranks: 2\ndtype: bfloat16\npoints:\n"
    "  - {m: 512, tile_cnt: 1, time: 605 us}\n  - {m: 512, tile_cnt: 2, time: 500 us}\n"
    "  - {m: 1024, tile_cnt: 2, time: 900 us}\n  - {m: -1, tile_cnt: 2, time: 900 us}\n"
    "  - {m: 512, operator: all_gatherer, tile_cnt: 2, time: 900 us}\n",
]


@pytest.mark.parametrize("text", SHAPED, ids=["csv", "yaml"])
def test_tile_times_of_several_operators_stay_apart(put: Any, text: str) -> None:
    found = read_measured(put(text))
    assert isinstance(found.data, TileTimes)
    inputs = {"target": "all_gather_matmul", "n": 256.0, "k": 1024.0, "ranks": 2.0, "dtype": "bf16"}
    assert [scan.inputs for scan in found.data.scans] == [inputs | {"m": 512.0}, inputs | {"m": 1024.0}]
    assert [scan.points for scan in found.data.scans] == [((1, 605e-6), (2, 500e-6)), ((2, 900e-6),)]
    assert sum(aside(found).values()) == 2


def test_tile_times_below_their_counts_may_say_whose(put: Any) -> None:
    found = read_measured(put("operator: matmul_all_reduce\nm: 512\ntile_cnt:\n  1: 605 us\n  2: 500 us\n"))
    assert isinstance(found.data, TileTimes)
    assert found.data.scans[0].inputs == {"target": "matmul_all_reduce", "m": 512.0}


def test_a_table_of_kernels_may_say_the_type(put: Any) -> None:
    found = read_measured(put("m,n,k,dtype,time_us\n1024,4096,1024,torch.float16,50\n"))
    assert isinstance(found.data, KernelTimes)
    assert found.data.rows[0].dtype == "fp16" and not found.report.notes


def test_tile_times_need_a_unit(put: Any) -> None:
    assert "has no unit" in refused(put("tile_cnt,time\n1,605\n"))
    assert "has no unit" in refused(put("- {tile_cnt: 1, time: 605.0}\n"))


# what is none of them


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfet\0i\0", "UTF-16"),
        (b"\x7fELF\0\0", "is not text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"caf\xe9,1\n", "not UTF-8"),
        (b"dear all\n", "looked for"),
        (json.dumps(NESTED["one rank"])[:900].encode(), "cut off"),
        (b'{"Communication Time Info": 1, "Communication Time Info": 2}', "stands twice"),
        (b"m,n,k,m,time_us\n1,2,3,4,5\n", "stands 2 times"),
        (b"Computing,Communication(Not Overlapped)\n1,2\n", "no column 'Overlapped'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_is_told_in_a_line(put: Any, content: bytes, said: str) -> None:
    assert said in refused(put(content))


def test_folders_and_absent_files(tmp_path: Path) -> None:
    assert "folder" in refused(tmp_path)
    assert "not there" in refused(tmp_path / "nothing")


def test_a_cut_last_line_is_told(put: Any) -> None:
    assert any("cut off" in n for n in read_measured(put(f"{STEP},{REST}\n{ROW[:-2]}")).report.notes)


def test_recognise_names_the_format(put: Any) -> None:
    assert recognise(put(OLD)) == "nccl-tests"
