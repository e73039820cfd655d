"""Real files of other projects, where they are at hand: point MC2PERF_SAMPLES at their folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mc2perf.measured import (
    CollectiveTimes,
    CommGroups,
    CommOps,
    ExpertLoad,
    KernelTotals,
    LinkUses,
    StepTrace,
    TrainingLog,
)
from mc2perf.readers.measured import iterate_kernels, read_measured
from mc2perf.readers.measured.step_trace import broken

ROUNDED = 0.5e-9
"""Kernels print three decimals of a microsecond [s]."""
FOLDER = Path(os.environ.get("MC2PERF_SAMPLES", "/nowhere"))
pytestmark = pytest.mark.skipif("MC2PERF_SAMPLES" not in os.environ, reason="MC2PERF_SAMPLES is not set")


def data(name: str, kind: type) -> Any:
    found = read_measured(FOLDER / name).data
    assert isinstance(found, kind)
    return found


def test_rates_of_the_four_all_reduces() -> None:
    ops = data("profiler/level1_2025/communication.json", CommOps).ops
    assert [round(op.wire_rate / 1e9, 1) for op in ops] == [119.8, 95.6, 128.3, 110.8]
    sent = 4_097_000 * 4 * 2 * 7 / 8  # an all-reduce of 4 097 000 numbers of 4 bytes over 8 ranks
    assert ops[0].size == pytest.approx(sent, rel=2e-3)


def test_every_operation_of_the_older_export_is_read() -> None:
    ops = data("profiler/gen2023/communication.json", CommOps).ops
    assert len(ops) == 28 and sum(op.wire_rate is not None for op in ops) == 7
    send = next(op for op in ops if op.kind == "p2p")
    assert send.wire_rate == pytest.approx(24.2778e9, rel=1e-4)


@pytest.mark.parametrize(
    "generation", ["gen2023", "level0_2025", "level1_2025", "cluster_baseline", "cluster_old"]
)
def test_sums_of_steps_hold(generation: str) -> None:
    name = "cluster_step_trace_time.csv" if "cluster" in generation else "step_trace_time.csv"
    for step in data(f"profiler/{generation}/{name}", StepTrace).steps:
        assert not list(broken(step))
        assert step.exposed + step.overlapped == pytest.approx(step.communication, rel=1e-9)


@pytest.mark.parametrize("generation", ["level0_2025", "level1_2025"])
def test_kernels_add_up_to_the_step(generation: str) -> None:
    """Computing of the step trace is the sum of the kernels, read from another file of the same export."""
    (step,) = data(f"profiler/{generation}/step_trace_time.csv", StepTrace).steps
    kernels = data(f"profiler/{generation}/kernel_details.csv", KernelTotals)
    assert sum(k.total for k in kernels.compute) == pytest.approx(step.computing, abs=187 * ROUNDED)
    assert sum(k.total for k in kernels.communication) == pytest.approx(step.communication, rel=1e-3)


def test_statistic_agrees_with_details() -> None:
    folder = "profiler/level1_2025"
    statistic = {k.type: k for k in data(f"{folder}/op_statistic.csv", KernelTotals).compute}
    for kernel in data(f"{folder}/kernel_details.csv", KernelTotals).compute:
        assert statistic[kernel.type].count == kernel.count
        assert statistic[kernel.type].total == pytest.approx(kernel.total, abs=kernel.count * ROUNDED)


def test_both_headers_of_kernels_say_the_same() -> None:
    old = list(iterate_kernels(FOLDER / "profiler/gen2023/kernel_details.csv"))
    assert old and old == list(iterate_kernels(FOLDER / "profiler/op_summary/op_summary_1.csv"))


def test_links_and_groups() -> None:
    links = data("profiler/level1_2025/communication_matrix.json", LinkUses).links
    assert {(link.source, link.target) for link in links} == {(0, rank) for rank in range(1, 8)}
    assert all(12e9 < link.rate < 19e9 for link in links)
    assert len(data("profiler/cluster_baseline/communication_group.json", CommGroups).groups) == 29


@pytest.mark.parametrize("generation", ["cluster_baseline", "cluster_old"])
def test_clusters_of_both_nestings(generation: str) -> None:
    ops = data(f"profiler/{generation}/cluster_communication.json", CommOps).ops
    assert {op.rank for op in ops} == {"0", "1"} and all(op.name.startswith("hcom_") for op in ops)


def test_the_slowest_rank_counts() -> None:
    (point,) = data("bench/hccl_test_allreduce_16rank_two_rows.txt", CollectiveTimes).points
    assert (point.time, point.samples) == (pytest.approx(6e-3), 2)
    low, high = data("bench/hccl_test_allreduce_128rank.txt", CollectiveTimes).points
    assert low.time == pytest.approx(60.7e-6) and high.algorithm_rate == pytest.approx(102.82543e9, rel=1e-5)


def test_experts_and_logs() -> None:
    for phase in ("decode", "prefill"):
        assert all(x >= 1 for x in data(f"profiler/expert_hotspot/{phase}_0.csv", ExpertLoad).imbalance)
    runs = data("logs/mindspeed_llm_fsdp2_log.txt", TrainingLog).runs
    assert [len(run.iterations) for run in runs] == [3, 3]
    assert [i.tokens for i in runs[1].iterations] == [564, 793, 756]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("mixtral_mcore_tp4_cp2_ep2_ptd", 3.150, 3.340),
        ("deepseek_v2_mcore_tp1_pp1_ep8", 4.590, 4.640),
        ("pretrain_minimax27_4K_A3_ptd_l1tp1pp1ep4", 0.465, 0.476),
        ("llama2_tp8_pp1_coc_ptd", 1.010, 1.050),
    ],
)
def test_baselines(name: str, low: float, high: float) -> None:
    (run,) = data(f"logs/mindspeed_ci_baseline_{name}.json", TrainingLog).runs
    assert low <= run.time <= high
