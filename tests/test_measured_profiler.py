"""Readers of a profiler's files, on small ones that have the quirks of real ones."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

# ruff: noqa: E501 - lines of real files stand as they are
import json
from typing import Any

import pytest
from measured_files import (
    GENERATIONS,
    LEVEL0,
    LEVEL0_ROWS,
    NESTED,
    NEWEST,
    NEWEST_ROWS,
    REST,
    ROW,
    STEP,
    SUMMARY,
    aside,
    op,
    refused,
)

from mc2perf.comparing import ask_compare
from mc2perf.measured import CommGroups, CommOps, ExpertLoad, KernelTotals, LinkUses, StepTrace
from mc2perf.readers.measured import iterate_kernels, read_measured

# step trace


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
