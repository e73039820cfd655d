"""Readers of measured files on small synthetic files that have the quirks of real ones."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mc2perf.comparing import ask_compare
from mc2perf.measured import (
    CollectiveTimes,
    CommGroups,
    CommOps,
    ExpertLoad,
    KernelTimes,
    KernelTotals,
    LinkUses,
    Measured,
    StepTrace,
    TileTimes,
    TrainingLog,
    bus_factor,
)
from mc2perf.problems import InputError
from mc2perf.readers.measured import iterate_kernels, read_measured, recognise


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """Write a file under a name that says nothing, and read it."""

    def write(content: str | bytes | dict[str, Any]) -> Path:
        file = tmp_path / "attachment"
        text = json.dumps(content) if isinstance(content, dict) else content
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def aside(found: Measured) -> dict[str, int]:
    return {rows.reason: rows.count for rows in found.report.set_aside}


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_measured(path)
    assert all("\n" not in problem for problem in caught.value.problems)
    return str(caught.value)


# hccl_test

HCCL = """mpirun -n 8 ./bin/all_reduce_test -b 8K -e 64M -f 2 -d fp16 -p 8
the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 10
data_size(Bytes): | {name}(us): | alg_bandwidth(GB/s): | check_result:
8192 | 61.61 | {small} | success
1048576 | 75.08 | {middle} | NULL
67108864 | 930.78 | {large} | success
67108864 | 900.00 | 74.56541 | success
1024 | 50.00 | 0.02048 | failed
2048 | 50.00 | 3.00000 | success
4096 | 50.00
"""


@pytest.mark.parametrize("name", ["aveg_time", "avg_time"])
def test_hccl_test_takes_both_spellings_and_the_slowest_rank(put: Any, name: str) -> None:
    found = read_measured(put(HCCL.format(name=name, small="0.13297", middle="13.96611", large="72.09960")))
    assert found.format == "hccl_test" and isinstance(found.data, CollectiveTimes)
    assert [(p.size, p.samples) for p in found.data.points] == [(8192, 1), (1048576, 1), (67108864, 2)]
    last = found.data.points[-1]
    assert last.time == pytest.approx(930.78e-6) and (last.op, last.ranks) == ("all_reduce", 8)
    assert last.bus_rate == pytest.approx(67108864 / 930.78e-6 * 1.75)
    assert sum(aside(found).values()) == 3


def test_hccl_test_tells_binary_from_decimal_bandwidth(put: Any) -> None:
    binary = HCCL.format(name="avg_time", small="0.12383", middle="13.00695", large="67.14799")
    binary = "\n".join(line for line in binary.splitlines() if "74.56" not in line)
    assert any("2^30" in note for note in read_measured(put(binary)).report.notes)


def test_hccl_test_columns_in_any_order(put: Any) -> None:
    text = "check_result: | avg_time(us): | data_size(Bytes):\nsuccess | 60.70 | 1024 |\n"
    data = read_measured(put(text)).data
    assert isinstance(data, CollectiveTimes) and data.points[0].time == pytest.approx(60.7e-6)


def test_the_folder_of_hccl_test_is_no_operation(put: Any) -> None:
    text = HCCL.format(name="avg_time", small="0.13297", middle="13.96611", large="72.09960")
    data = read_measured(put(text.replace("./bin/", "/usr/local/Ascend/tools/hccl_test/bin/"))).data
    assert isinstance(data, CollectiveTimes) and data.points[0].op == "all_reduce"


def test_an_emulator_is_no_measurement(put: Any) -> None:
    rows = "".join(f"{1024 * 4**i} | 1000.00 | {1024 * 4**i / 1e-3 / 1e9:.5f} | success\n" for i in range(6))
    header = "data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    assert "emulator" in refused(put(header + rows))


def test_bus_factor_of_a_ring() -> None:
    """A ring all-reduce passes n - 1 blocks of 1/n twice; counted here hop by hop."""
    for n in (2, 3, 8, 16):
        sent = sum(1 / n for _ in range(n - 1)) + sum(1 / n for _ in range(n - 1))
        assert bus_factor("all_reduce", n) == pytest.approx(sent)
        assert bus_factor("all_to_all", n) == pytest.approx(sent / 2)


# nccl-tests

OLD = """# Using devices
#  Rank  0 Pid  1 on  node device  0 [0x07] X
#  Rank  1 Pid  1 on  node device  1 [0x0a] X
#                                         out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    40.00   26.21   26.21  1e-07    41.00   25.58   25.58  1e-07
     2097152        524288   float            60.00   34.95   34.95  0e+00    61.00   34.38   34.38  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 30.0
"""
NEW = """# nccl-tests version 2.17.1
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on node device  0 [0000:07:00] X
#  Rank  1 Group  0 Pid 1 on node device  1 [0000:0a:00] X
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.00   26.21   26.21       0    41.00   25.58   25.58     N/A
     2097152        524288     float     sum      -1    60.00   34.95   34.95     N/A    61.00   34.38   34.38       0
     4194304       1048576     float     sum      -1    90.00   46.60   46.60       7    61.00   34.38   34.38       0
     8388608       2097152     float     sum      -1    90.00   46.60   46.60       0    61.00   34.38   34.38       0
"""
EACH = """#       size  count  type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%
 1048576 262144 float sum -1 40.00 26.21 26.21 0 38.0 44.0 43.9 2.1
 2097152 524288 float sum -1 60.00 34.95 34.95 0 58.0 64.0 63.9 2.1
"""


@pytest.mark.parametrize("text", [OLD, NEW, EACH], ids=["old", "new", "per-iteration"])
def test_nccl_tests_of_every_generation_say_the_same(put: Any, text: str) -> None:
    found = read_measured(put(text))
    assert found.format == "nccl-tests" and isinstance(found.data, CollectiveTimes)
    assert [(p.size, round(p.time * 1e6, 6)) for p in found.data.points] == [(1048576, 40.0), (2097152, 60.0)]


def test_nccl_tests_knows_operation_ranks_and_wrong_rows(put: Any) -> None:
    found = read_measured(put(NEW))
    assert isinstance(found.data, CollectiveTimes)
    assert {(p.op, p.ranks) for p in found.data.points} == {("all_reduce", 2)}
    assert aside(found) == {"the result is wrong": 1, "algbw: does not follow from size and time": 1}


def test_nccl_tests_of_two_operations_stay_apart(put: Any) -> None:
    second = NEW.replace("all_reduce", "all_gather").replace("#  Rank  1 Group", "# ")
    found = read_measured(put(f"{NEW}# Avg bus bandwidth    : 30.0\n{second}"))
    assert isinstance(found.data, CollectiveTimes)
    assert {key: len(points) for key, points in found.data.groups().items()} == {
        ("all_reduce", 2): 2,
        ("all_gather", 1): 2,
    }


def test_nccl_tests_refuses_host_times(put: Any) -> None:
    assert "cputime" in refused(put(EACH.replace(" time ", " cputime ")))


def test_nccl_json(put: Any) -> None:
    row = {
        "size": 1048576,
        "out_of_place": {"time": 40.0, "alg_bw": 26.2144, "bus_bw": 26.2, "nwrong": "N/A"},
    }
    tree = {"args": "./build/all_gather_perf -g 4", "devices": [{}] * 4, "results": [row, {"size": 1}]}
    found = read_measured(put(tree))
    assert isinstance(found.data, CollectiveTimes)
    (point,) = found.data.points
    assert (point.op, point.ranks, point.size) == ("all_gather", 4, 1048576)
    assert point.bus_rate == pytest.approx(26.2144e9 * 3 / 4)


# step trace

STEP = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
REST = "Communication(Not Overlapped and Exclude Receive)"
ROW = "50,8000.0,6000.0,2000.0,8000.0,1000.0,15000.0,0,6000.0"
GENERATIONS = {
    "2023": f"{STEP},{REST}\n{ROW}\n",
    "2025": f"{STEP},{REST},Preparing\r\n{ROW},17902.5\r\n",
    "newest": f"\ufeffDevice_id,{STEP},{REST},Preparing\n0,{ROW},N/A\n",
    "blank step": f"{STEP},{REST}\n{ROW.removeprefix('50')}\n",
    "cluster": f"{STEP.replace('Step,', 'Step,Type,Index,')},{REST},DP Index\n"
    f"{ROW.replace('50,', '50,rank,0,', 1)},0\n" + f'{ROW.replace("50,", """50,stage,"(0, 1)",""", 1)},0\n',
}


@pytest.mark.parametrize("text", GENERATIONS.values(), ids=list(GENERATIONS))
def test_step_traces_of_every_generation_say_the_same(put: Any, text: str) -> None:
    found = read_measured(put(text))
    assert isinstance(found.data, StepTrace)
    (step,) = found.data.steps
    assert (step.computing, step.exposed, step.communication) == pytest.approx((8e-3, 6e-3, 8e-3))
    assert (step.exposed_share, step.overlap_efficiency, step.free_share) == pytest.approx(
        (0.4, 0.25, 1 / 15)
    )
    assert not any("is not" in note for note in found.report.notes)


def test_a_step_trace_of_any_generation_is_compared_alike(put: Any) -> None:
    answers = [ask_compare("mixtral-8x7b", [str(put(text))], {"ep": 8}, {}) for text in GENERATIONS.values()]
    assert all(answer.runs[0].lines == answers[0].runs[0].lines for answer in answers)


def test_ranks_that_differ_are_told(put: Any) -> None:
    """Rank 1 computes a tenth longer than the mean of both; nobody differs in free time."""
    rows = [ROW.replace("50,", f"{step},rank,{rank},", 1) for step in (50, 51) for rank in (0, 1)]
    rows[3] = rows[3].replace("8000.0,6000.0", "8842.1,6000.0").replace("15000.0", "15842.1")
    head = STEP.replace("Step,", "Step,Type,Index,")
    data = read_measured(put("\n".join([f"{head},{REST}", *rows, ""]))).data
    assert isinstance(data, StepTrace)
    spread, most = data.spread("computing")
    assert spread == pytest.approx(0.1, abs=1e-4) and (most.rank, most.step) == ("1", "51")
    said = [line for line in data.takes() if "differ" in line]
    assert said == ["ranks differ by 10% of the mean in computing; most: rank 1 in step 51"]


def test_a_step_whose_sums_do_not_hold_is_told(put: Any) -> None:
    notes = read_measured(put(f"{STEP},{REST}\n{ROW.replace(',2000.0,', ',2020.0,')}\n")).report.notes
    assert any("Communication is not Not Overlapped + Overlapped" in note for note in notes)


# communication.json


def op(size: float = 28.0, transit: float = 0.25, elapsed: float = 80.0, **links: Any) -> dict[str, Any]:
    link = {"Transit Size(MB)": size, "Transit Time(ms)": 7 * transit, "Bandwidth(GB/s)": 15.7}
    none = {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0}
    times = {"Elapse": elapsed, "Transit": transit, "Wait": 5.0, "Idle": elapsed - transit - 5.0}
    return {
        "Communication Time Info": {f"{key} Time(ms)": value for key, value in times.items()},
        "Communication Bandwidth Info": {"RDMA": none, "HCCS": link, "PCIE": none, "SDMA": link, **links},
    }


NESTED = {
    "one rank": {"step50": {"p2p": {}, "collective": {"hcom_allReduce__1_0@7": op(), "Total Op Info": op()}}},
    "bare step": {"step": {"collective": {"hcom_allReduce__1_0@7": op(), "Total Op Info": op()}}},
    "cluster": {"collective": {"step2": {"hcom_allReduce__1_0@7": {"0": op()}}}},
    "old cluster": {"(0, 1)": {"step": {"hcom_allReduce__1_0@7": {"0": op()}}}},
}


@pytest.mark.parametrize("tree", NESTED.values(), ids=list(NESTED))
def test_communication_of_every_nesting_says_the_same(put: Any, tree: dict[str, Any]) -> None:
    found = read_measured(put(tree))
    assert isinstance(found.data, CommOps)
    (only,) = found.data.ops
    assert (only.name, only.group) == ("hcom_allReduce__1_0", "7")
    assert only.wire_rate == pytest.approx(28e6 / 0.25e-3), "over transit, once, never over elapsed"
    assert aside(found)["SDMA adds HCCS, PCIE, SIO up"] == 1


def test_bytes_without_transit_time_have_no_rate(put: Any) -> None:
    found = read_measured(put({"step": {"collective": {"hcom_allGather__1_0@7": op(transit=0.0) | {
        "Communication Bandwidth Info": {"HCCS": {"Transit Size(MB)": 5, "Transit Time(ms)": 1}}}}}}))  # fmt: skip
    assert isinstance(found.data, CommOps) and found.data.ops[0].wire_rate is None
    assert found.data.ops[0].size == 5e6


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-1", '"much"', "1e999", "9" * 5000, "true", "[]"], ids=lambda t: t[:9]
)
def test_numbers_that_are_none_are_named(put: Any, number: str) -> None:
    text = json.dumps(NESTED["one rank"]).replace('"Transit Size(MB)": 28.0', f'"Transit Size(MB)": {number}')
    assert "attachment" in refused(put(text))


def test_the_matrix_takes_links_once(put: Any) -> None:
    def uses(size: float) -> dict[str, Any]:
        link = {"Transport Type": "HCCS", "Transit Size(MB)": size, "Transit Time(ms)": size / 16}
        return {"0-0": link | {"Transport Type": "LOCAL"}, "0-1": link, "0-x": link}

    ops = {"allreduce-top1@7": uses(16), "allreduce-bottom1@7": uses(8), "allreduce-total@7": uses(24)}
    found = read_measured(put({"step1": {"p2p": {}, "collective": ops}}))
    assert isinstance(found.data, LinkUses)
    (link,) = found.data.links
    assert (link.source, link.target, link.size) == (0, 1, 24e6)
    assert link.rate == pytest.approx(16e9)
    assert aside(found)["LOCAL is a copy on the chip"] == 3


def test_groups_old_and_new(put: Any) -> None:
    old: dict[str, Any] = {"collective": [[0, 1, 2, 3], [0, 2]], "p2p": [[0, 1]]}
    info = {"type": "collective", "rank_set": [0, 2], "group_name": "g", "group_id": "x", "pg_name": "exp"}
    found = read_measured(put(old)).data
    assert isinstance(found, CommGroups) and [len(g.ranks) for g in found.groups] == [4, 2, 2]
    named = read_measured(put(old | {"comm_group_parallel_info": [info, info | {"rank_set": [0, 0]}]}))
    assert isinstance(named.data, CommGroups) and [g.purpose for g in named.data.groups] == ["exp"]


# kernels

LEVEL0 = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
LEVEL0_ROWS = (
    "50,trans_TransData_0,N/A,N/A,1736405443881410.320\t,50.621,0,32",
    "50,aclnnMm_MatMul_1,N/A,AI_CORE,1736405443881500.001\t,100.0,0,24",
    "50,hcom_allReduce__868_0_1,N/A,HCCL,1736405443909176.934\t,72994.438,320.026,0",
)
NEWEST = (
    "Device_id,Step ID,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
    "Duration(us),Wait Time(us),Block Num,Mix Block Num,Input Shapes"
)
NEWEST_ROWS = (
    '0,50,4294967295,1,2,MatMulV2_1,MatMulV2,dynamic,AI_CORE,1736405443881500.001\t,100.0,0,24,0,"""4096,512;512,64"""',
    "0,50,4294967295,N/A,N/A,hcom_allGather__868_0_1,hcom_allGather_,N/A,COMMUNICATION,1736405443909176.934\t,500.0,0,0,0,N/A",
    "0,50,4294967295,9,40,allgatherAivKernel_1,allgatherAivKernel,N/A,AI_VECTOR_CORE,1736405443909180.100\t,490.0,0,8,0,N/A",
    "0,50,4294967295,N/A,N/A,hcom_allGather__999_0_1,hcom_allGather_,N/A,COMMUNICATION,1736405443909176.934\t,400.0,0,0,0,N/A",
)
SUMMARY = "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Dim"


def test_kernels_keep_time_stamps_and_shapes(put: Any) -> None:
    rows = list(iterate_kernels(put("\r\n".join([NEWEST, *NEWEST_ROWS, ""]))))
    assert [row.start for row in rows] == [1736405443881500001, 1736405443909176934, 1736405443909176934]
    assert rows[0].input_shapes == ((4096, 512), (512, 64)) and rows[0].blocks == 24
    assert [row.communication for row in rows] == [False, True, True]


def test_doubled_rows_of_communication_are_set_aside(put: Any) -> None:
    for order in (NEWEST_ROWS, (NEWEST_ROWS[0], NEWEST_ROWS[1], NEWEST_ROWS[1], NEWEST_ROWS[3])):
        found = read_measured(put("\n".join([NEWEST, *order, ""])))
        assert aside(found) == {"a communication row that stands twice (logical row and kernel)": 1}
        assert isinstance(found.data, KernelTotals) and found.data.communication[0].count == 2


def test_level_0_knows_types_by_name(put: Any) -> None:
    found = read_measured(put("\r\n".join([LEVEL0, *LEVEL0_ROWS, ""])))
    assert isinstance(found.data, KernelTotals)
    assert [k.type for k in found.data.compute] == ["trans_TransData", "aclnnMm_MatMul"]
    assert found.data.communication[0].total == pytest.approx(72994.438e-6)
    assert any("elapsed" in note for note in found.report.notes)


def test_op_summary_says_the_same_as_kernel_details(put: Any) -> None:
    row = "MatMulV2_1,MatMulV2,AI_CORE,1736405443881500.001\t,100.0,0,24"
    (kernel,) = iterate_kernels(put(f"{SUMMARY}\n{row}\n"))
    (same, *_) = iterate_kernels(put("\n".join([NEWEST, *NEWEST_ROWS, ""])))
    for name in ("name", "type", "core", "start", "duration", "blocks", "wait"):
        assert getattr(kernel, name) == getattr(same, name)


def test_op_statistic(put: Any) -> None:
    header = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
    rows = "MatMulV2,AI_CORE,8,921.498,16.54,115.187,346.567,10.4\nCast,AI_CORE,2,100.0,16.54,60.0,70.0,1\n"
    found = read_measured(put(header + rows))
    assert isinstance(found.data, KernelTotals)
    assert found.data.compute[0].mean == pytest.approx(115.18725e-6)
    assert aside(found) == {"Total Time is not Count x Avg Time": 1}
    without = header.replace("Core Type,", "") + "hcom_allGather_,2,120.0,50.0,60.0,70.0,1\n"
    assert "communication, elapsed" in "\n".join(read_measured(put(without)).data.takes())


# experts, logs, tables, tiles


def test_expert_load_measures_the_skew(put: Any) -> None:
    found = read_measured(put("100,100,100,100\n400,0,0,0\n0,0,0,0\n1,2,3\n"))
    assert isinstance(found.data, ExpertLoad) and found.data.imbalance == (1.0, 4.0)
    assert len(aside(found)) == 2


def test_the_skew_of_two_times(put: Any) -> None:
    """Balanced 773.8 against 3139.8 ms on one busy rank (pytorch/torchtitan): a factor of 4.06."""
    found = read_measured(put("31398,0,0,0\n7738,0,0,0\n")).data
    assert isinstance(found, ExpertLoad)
    assert found.tokens[0][0] / found.tokens[1][0] == pytest.approx(4.06, abs=0.005)


LINE = "iteration {n:8d}/ 100 | consumed samples: 8 | elapsed time per iteration (ms): {t} | learning rate: 1E-06 |"


def log(*times: float, start: int = 1) -> str:
    lines = (LINE.format(n=n, t=t) for n, t in enumerate(times, start))
    return "".join(
        f" [2024-04-06 03:04:49.123] {line} global batch size:   128 | lm loss: 1 |\n" for line in lines
    )


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
