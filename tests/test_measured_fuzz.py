"""Damaged files of every format: a clear message or a correct subset, never a traceback."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import measured_files as formats
import pytest
import test_measured_launch as scripts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mc2perf.cli.inspect import described
from mc2perf.problems import InputError
from mc2perf.readers.measured import FORMATS, read_measured

HEADER = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
JSON = json.dumps
GOOD: dict[str, str] = {
    "hccl_test": formats.HCCL.format(name="avg_time", small="0.13297", middle="13.96611", large="72.09960"),
    "nccl-tests": formats.NEW,
    "nccl-tests.json": JSON({"results": [{"size": 1048576, "out_of_place": {"time": 40.0, "alg_bw": 26.2144}}]}),
    "step_trace_time": formats.GENERATIONS["cluster"],
    "op_statistic": HEADER + "MatMulV2,AI_CORE,8,921.498,16.54,115.187,346.567,10.4\n",
    "kernel_details": "\n".join([formats.NEWEST, *formats.NEWEST_ROWS, ""]),
    "communication.json": JSON(formats.NESTED["one rank"]),
    "communication_matrix.json": JSON(
        {"step": {"p2p": {}, "collective": {"a-total@7": {
            "0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 16, "Transit Time(ms)": 1}}}}}
    ),
    "communication_group.json": JSON({"collective": [[0, 1], [2, 3]], "p2p": [[0, 1]]}),
    "expert_counts": "layer,expert,tokens\n0,0,100\n0,1,300\n",
    "expert_load": "100,100,100,100\n400,0,0,0\n",
    "training_log": formats.log(100.0, 90.0, 90.0),
    "training_baseline.json": JSON({"time info": [100.0, 90.0, 91.0]}),
    "table of kernels": "m,n,k,time_us\n1024,4096,1024,50\n1024,4096,2048,90\n",
    "table of collectives": "op,ranks,size_bytes_whole_array,time_us,bus_gbps\nall_reduce,8,1048576,50,36.70\n",
    "tile_times": "tile_cnt,time_us\n1,605\n2,500.0\n",
    "tile_times.yaml": "- {tile_cnt: 1, time: 605 us}\n- {tile_cnt: 2, time_us: 500}\n",
    "launch script": scripts.SCRIPT.format(
        nodes=2, per_node=8, tp=2, pp=2, ep=4, mbs=1, gbs=64, dispatcher="alltoall"
    ),
}  # fmt: skip
few = settings(
    max_examples=400 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 12,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""A few examples in every run; scripts/fuzz.sh tries hundreds of fresh ones in each of its rounds."""
names = pytest.mark.parametrize("name", sorted(GOOD))


def tried(folder: Path, content: bytes) -> Any:
    """What a file holds, after printing it; ``None`` where it was refused in clear lines."""
    file = folder / "x"
    file.write_bytes(content)
    try:
        found = read_measured(file)
    except InputError as error:
        assert error.problems and all(problem.startswith(str(file)) for problem in error.problems)
        return None
    assert all("\n" not in line for line in described(found))
    return found


def test_every_format_is_tried() -> None:
    assert {form.name for form in FORMATS} == set(GOOD)


@names
def test_good_files_are_read(tmp_path: Path, name: str) -> None:
    found = tried(tmp_path, GOOD[name].encode())
    assert found and found.format.startswith(name.removesuffix("kernels").removesuffix("collectives"))
    assert tried(tmp_path, b"\xef\xbb\xbf" + GOOD[name].replace("\n", "\r\n").encode()).data == found.data


@names
@few
@given(st.data())
def test_cut_files(tmp_path: Path, name: str, data: st.DataObject) -> None:
    text = GOOD[name]
    cut = text[: data.draw(st.integers(0, len(text)))]
    found = tried(tmp_path, cut.encode())
    if found and name.endswith("json"):
        assert len(cut) >= len(text.rstrip()), "a tree that was cut is no tree"
    elif found and not cut.endswith(("\n", "\r")) and name != "launch script":
        assert any("cut off" in note for note in found.report.notes)


@names
@few
@given(st.data())
def test_files_with_something_else_inside(tmp_path: Path, name: str, data: st.DataObject) -> None:
    text = GOOD[name]
    at = data.draw(st.integers(0, len(text)))
    odd = st.sampled_from(
        ['"', "\0", "\t", ",", "\n", "{", "N/A", "1e999", "-1", "nan", "9" * 5000, "\r", "$(", "é"]
    )
    gone = data.draw(st.integers(0, 12))
    tried(tmp_path, (text[:at] + data.draw(odd) + text[at + gone :]).encode())


@names
@few
@given(st.binary(max_size=300))
def test_files_with_bytes_behind_their_header(tmp_path: Path, name: str, noise: bytes) -> None:
    tried(tmp_path, noise)
    tried(tmp_path, GOOD[name].encode().split(b"\n")[0] + b"\n" + noise)


CSV = (
    "step_trace_time",
    "op_statistic",
    "kernel_details",
    "table of kernels",
    "table of collectives",
    "tile_times",
)


@pytest.mark.parametrize("name", CSV)
@few
@given(st.randoms(use_true_random=False))
def test_columns_in_any_order_say_the_same(tmp_path: Path, name: str, shuffled: random.Random) -> None:
    import csv
    import io

    rows = list(csv.reader(io.StringIO(GOOD[name])))
    order = list(range(len(rows[0])))
    shuffled.shuffle(order)
    made = io.StringIO()
    csv.writer(made).writerows([[row[at] for at in order] for row in rows])
    expected, found = (
        tried(tmp_path, GOOD[name].encode()).data,
        tried(tmp_path, made.getvalue().encode()).data,
    )
    assert found == expected


@pytest.mark.parametrize("name", CSV)
def test_a_column_less_is_told_or_not_needed(tmp_path: Path, name: str) -> None:
    import csv
    import io

    rows = list(csv.reader(io.StringIO(GOOD[name])))
    expected = tried(tmp_path, GOOD[name].encode())
    for gone in range(len(rows[0])):
        made = io.StringIO()
        csv.writer(made).writerows([row[:gone] + row[gone + 1 :] for row in rows])
        found = tried(tmp_path, made.getvalue().encode())
        assert found is None or type(found.data) is type(expected.data)
