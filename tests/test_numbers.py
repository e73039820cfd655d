"""Published numbers: each has a source, and a tolerance that comes from the source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.answer import Answer, Row
from mc2perf.api import estimate
from mc2perf.costs import Costs, Ledger
from mc2perf.equations import matmul, overlap, pipeline, routing
from mc2perf.equations.collectives import PASSES
from mc2perf.machine import Machine
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.units import MIB

KIB = 1024.0
PROFILES = profile_names()
MACHINES = {name: load_machine(name) for name in PROFILES}


def engines_of(machine: Machine) -> list[str]:
    return sorted({name for tier in machine.tiers.values() for name in tier.engines})


def price(machine: Machine, engine: str | None, collective: str, size: Any, ranks: float) -> Any:
    return Costs(machine, Ledger(), engine).collective("x", collective, size, ranks).time


def row(answer: Answer, schedule: str) -> Row:
    return next(r for r in answer.rows if r.schedule == schedule)


def codes(answer: Answer) -> dict[str, str]:
    return {remark.code: remark.text for remark in answer.warnings}


# --- one published operator


def all_reduce_4096(**more: Any) -> Row:
    answer = estimate(
        "matmul_all_reduce",
        m=4096,
        n=8192,
        k=4096,
        dtype="fp16",
        ranks=8,
        hardware="atlas_800t_a2_b2",
        schedule="serial",
        **more,
    )
    return answer.rows[0]


def test_matmul_all_reduce_by_the_vendors_rules() -> None:
    """CANN best practices, atlas_ascendc_best_practices_10_0043: matmul 888 us, all-reduce 1025 us."""
    serial = all_reduce_4096(matmul_rule="vendor_model", engine="vendor_model")
    launch = float(MACHINES["atlas_800t_a2_b2"].cube.rules["vendor_model"].launch)  # type: ignore[arg-type]
    assert (serial.compute_time - launch) * 1e6 == pytest.approx(892.0, abs=0.5)
    assert (serial.compute_time - launch) * 1e6 == pytest.approx(888.0, rel=0.02)
    assert serial.comm_time * 1e6 == pytest.approx(931.0, rel=0.01)
    assert serial.total_time == pytest.approx(serial.compute_time + serial.comm_time, rel=1e-15)


def test_all_reduce_of_the_measured_table_meets_a_row_it_was_not_fitted_to() -> None:
    assert all_reduce_4096(engine="measured").comm_time * 1e6 == pytest.approx(1025.0, rel=0.06)


# --- collective tables (hardware.md 5.1: ops-transformer hccl_performance.cpp, c29bc106)

TABLES = {
    ("atlas_800t_a2_b2", 64 * KIB): 18.0,
    ("atlas_800t_a2_b2", 256 * KIB): 21.5,
    ("atlas_800t_a2_b2", 1 * MIB): 40.9,
    ("atlas_800t_a2_b2", 4 * MIB): 107.5,
    ("atlas_800t_a2_b2", 16 * MIB): 278.9,
    ("atlas_800t_a2_b2", 64 * MIB): 930.9,
    ("atlas_800t_a2_b2", 256 * MIB): 3539.0,
    ("ascend_950pr", 64 * KIB): 5.787,
    ("ascend_950pr", 256 * KIB): 6.3,
    ("ascend_950pr", 1 * MIB): 8.5,
    ("ascend_950pr", 4 * MIB): 16.3,
    ("ascend_950pr", 16 * MIB): 47.4,
    ("ascend_950pr", 64 * MIB): 172.0,
}


@pytest.mark.parametrize(("name", "size"), TABLES)
def test_the_collective_tables(name: str, size: float) -> None:
    at = MACHINES[name]
    whole = price(at, "vendor_model", "all_reduce", size, 8.0)
    assert whole * 1e6 == pytest.approx(TABLES[name, size], rel=0.01)
    for half in ("all_gather", "reduce_scatter"):
        for ranks in (2.0, 4.0, 8.0):
            share = price(at, "vendor_model", half, size, ranks) / whole
            assert share == pytest.approx(4.0 / ranks, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "expected"), [(64 * MIB, 11.38154641 * 64 + 248.151561), (1 * MIB, 250.0), (2 * MIB, 250.0)]
)
def test_the_double_ring_of_a3(size: float, expected: float) -> None:
    a3 = MACHINES["atlas_800t_a3"]
    assert price(a3, "vendor_model", "all_reduce", size, 8.0) * 1e6 == pytest.approx(expected, rel=0.01)
    for p in (2.0, 4.0, 8.0, 16.0):
        factor = 2.0 * (7.0 / 8.0) / ((p - 1.0) / p)
        gather = price(a3, "vendor_model", "all_gather", size, p)
        assert gather * factor * 1e6 == pytest.approx(expected, rel=0.01)


# --- one rank, and a second server


@pytest.mark.parametrize("name", PROFILES)
def test_one_rank_costs_nothing(name: str) -> None:
    sizes = np.array([0.0, 1.0, KIB, MIB, 1024 * MIB])
    for engine in (None, *engines_of(MACHINES[name])):
        for collective in PASSES:
            assert price(MACHINES[name], engine, collective, 1e9, 1.0) == 0.0
            assert np.all(price(MACHINES[name], engine, collective, sizes, 1.0) == 0.0)
    answer = estimate("matmul_all_reduce", m=1024, n=1024, k=1024, ranks=1, schedule="serial", hardware=name)
    assert answer.rows[0].comm_time == 0.0
    assert answer.rows[0].comm_ratio == 0.0


@pytest.mark.parametrize("name", [n for n in PROFILES if len(MACHINES[n].tiers) > 1])
@pytest.mark.parametrize("collective", PASSES)
@settings(max_examples=40, deadline=None)
@given(st.floats(KIB, 1024 * MIB), st.integers(2, 4))
def test_a_second_server_is_never_cheaper(name: str, collective: str, size: float, servers: int) -> None:
    machine = MACHINES[name]
    inner = float(next(iter(machine.tiers.values())).ranks)
    for engine in (None, *engines_of(machine)):
        inside = price(machine, engine, collective, size, inner)
        across = price(machine, engine, collective, size, servers * inner)
        assert across >= inside * (1.0 - 1e-12), (engine, inside, across)


# --- serial share of communication (ecosystem.md: exact arithmetic)


@pytest.mark.parametrize(
    ("model", "rate", "percent"),
    [
        ("mixtral-8x7b", 100e9, 8.4),
        ("deepseek-v3", 100e9, 36.4),
        ("qwen3-30b-a3b", 100e9, 63.1),
        ("mixtral-8x7b", 20e9, 31.5),
        ("deepseek-v3", 20e9, 74.1),
        ("qwen3-30b-a3b", 20e9, 89.5),
    ],
)
def test_serial_share_of_the_routed_ffn(model: str, rate: float, percent: float) -> None:
    loaded = load_model(model)
    e = loaded.experts
    assert e is not None
    ratio = routing.flops_per_byte(
        float(loaded.matrices), float(loaded.hidden_size), float(e.payload_width), float(e.width),
        float(e.shared_width), float(e.top_k),
    )  # fmt: skip
    compute, comm = ratio / (376e12 * 0.6), 7.0 / 8.0 / rate
    assert 100.0 * comm / (comm + compute) == pytest.approx(percent, abs=0.05)


# --- pure rates: 4 experts per rank on A3 (cann-mc2.md 5.6)

ROWS, HIDDEN, COLUMNS, EXPERTS = 8192.0, 7168.0, 4096.0, 4.0


def test_pure_rates_by_the_equations() -> None:
    """Rates of the vendor: 161.2 GB/s of the double ring, 4096 MAC x 1843.2 / us x 24 cores x 0.85."""
    flops = matmul.matmul_flops(ROWS / EXPERTS, COLUMNS, HIDDEN)
    g = float(matmul.roofline_time(flops, 0.0, 2 * 4096 * 1843.2e6 * 24, 0.85, 1.6e12))
    c = ROWS / EXPERTS * HIDDEN * 2.0 * 7.0 / 8.0 / 161.2e9
    assert c * 1e6 == pytest.approx(159.4, abs=0.05)
    assert g * 1e6 == pytest.approx(390.4, abs=0.05)
    assert pipeline.serial_time(c, g, EXPERTS) * 1e6 == pytest.approx(2199.1, abs=0.15)
    total = max(overlap.two_stage_paths(c, g, EXPERTS, 0.0, EXPERTS, 1.0, 1.0)[:4])
    assert total * 1e6 == pytest.approx(1721.0, abs=0.15)


def test_pure_rates_through_a_machine() -> None:
    """The same through a profile whose latencies, launches and rounds are zero."""
    changes = {
        "tiers.node.engines.p2p.wires.latency": "0 us",
        "tiers.node.engines.p2p.wires.efficiency": f"{161.2 / 196:.17g}",
        "tiers.node.engines.p2p.host_launch": "0 us",
        "tiers.node.engines.p2p.round_cost": "0 us",
        "tiers.node.engines.p2p.comm_under_compute": "1",
        "cube.rules.vendor_model.launch": "0 us",
        "host.per_launch": "0 us",
    }
    answer = estimate(
        "all_to_all_v_grouped_matmul", m=8192, n=4096, k=7168, ranks=8, experts_per_rank=4,
        hardware="atlas_800t_a3", engine="p2p", matmul_rule="vendor_model", schedule="mc2", set=changes,
    )  # fmt: skip
    serial, fused = row(answer, "serial"), row(answer, "mc2")
    assert fused.pieces == 4
    assert serial.comm_time / 4 * 1e6 == pytest.approx(159.4, abs=0.05)
    assert serial.compute_time / 4 * 1e6 == pytest.approx(390.4, abs=0.05)
    assert serial.total_time * 1e6 == pytest.approx(2199.1, abs=0.15)
    assert fused.total_time * 1e6 == pytest.approx(1721.0, abs=0.15)


# --- rules of thumb

SHAPE: dict[str, Any] = {"m": 4096, "n": 8192, "k": 4096, "ranks": 8, "hardware": "atlas_800t_a2_b2"}


@pytest.mark.parametrize("name", ["matmul_all_reduce", "all_gather_matmul", "matmul_reduce_scatter",
                                  "all_to_all_matmul", "matmul_all_to_all"])  # fmt: skip
@pytest.mark.parametrize("schedule", ["mc2", "coc"])
def test_one_piece_is_serial(name: str, schedule: str) -> None:
    answer = estimate(name, tile_cnt=1, schedule=schedule, **SHAPE)
    one = row(answer, schedule)
    if not one.legal:
        assert schedule == "coc"
        return
    assert one.pieces == 1
    assert one.total_time == pytest.approx(row(answer, "serial").total_time, rel=1e-12)


def test_one_micro_batch_is_serial() -> None:
    for model in ("mixtral-8x7b", "deepseek-v3"):
        answer = estimate(model, schedule="micro_batch", micro_batches=1)
        one, serial = row(answer, "micro_batch"), row(answer, "serial")
        assert one.total_time == pytest.approx(serial.total_time, rel=1e-12)


@pytest.mark.parametrize(
    ("target", "schedule", "more"),
    [
        ("matmul_all_reduce", "mc2", SHAPE),
        ("all_gather_matmul", "mc2", {**SHAPE, "m": 512}),
        ("all_gather_matmul", "coc", {**SHAPE, "m": 512}),
        ("mixtral-8x7b", "micro_batch", {}),
        # the vendor's curves: the measured all-to-all is slower per byte beyond 190 MB, so pieces pay
        ("deepseek-v3", "micro_batch", {"engine": "vendor_model"}),
    ],
)
def test_one_buffer_is_serial(target: str, schedule: str, more: dict[str, Any]) -> None:
    answer = estimate(target, buffers=1, schedule=schedule, **more)
    assert row(answer, schedule).pieces == 1
    assert answer.best is not None
    assert answer.best.total_time == pytest.approx(row(answer, "serial").total_time, rel=1e-12)


def test_one_buffer_hides_nothing_however_many_pieces() -> None:
    """A message that has outgrown the library's buffer is cut anyway: pieces alone gain nothing."""
    for schedule in ("mc2", "coc"):
        one = row(estimate("all_gather_matmul", buffers=1, schedule=schedule, **SHAPE), schedule)
        assert one.pieces == 1
        assert one.total_time == pytest.approx(one.compute_time + one.comm_time, rel=1e-12)
        assert one.hidden_ratio == pytest.approx(0.0, abs=1e-12)


def micro_batches_of_mixtral(batch_size: int, **more: Any) -> Answer:
    return estimate(
        "mixtral-8x7b", seq_len=64, batch_size=batch_size, micro_batches=8, schedule="micro_batch", **more
    )


@pytest.mark.parametrize("more", [{}, {"matmul_rule": "vendor_model", "engine": "vendor_model"}])
def test_four_short_samples_in_eight_micro_batches_lose(more: dict[str, Any]) -> None:
    answer = micro_batches_of_mixtral(4, **more)
    assert row(answer, "micro_batch").speedup < 0.7
    said = codes(answer)["SLOWER_THAN_SERIAL"]
    assert "weights read again" in said
    assert "launch" in said


def test_sixteen_short_samples_are_about_even_by_cann_and_better_than_four() -> None:
    vendor = micro_batches_of_mixtral(16, matmul_rule="vendor_model", engine="vendor_model")
    assert 0.9 <= row(vendor, "micro_batch").speedup <= 1.1
    four, sixteen = (row(micro_batches_of_mixtral(b), "micro_batch").speedup for b in (4, 16))
    assert sixteen > four


def test_roce_hides_less_than_hccs() -> None:
    inside, across = (
        estimate("deepseek-v3", hardware="atlas_800t_a2", ep=ep, schedule="micro_batch") for ep in (8, 16)
    )
    assert row(across, "micro_batch").hidden_ratio < row(inside, "micro_batch").hidden_ratio
    assert row(across, "micro_batch").comm_ratio > row(inside, "micro_batch").comm_ratio
    assert row(across, "serial").comm_ratio > row(inside, "serial").comm_ratio


@pytest.mark.parametrize("name", ["matmul_all_reduce", "all_gather_matmul", "all_to_all_matmul"])
@pytest.mark.parametrize("hardware", ["atlas_800t_a2_b2", "ascend_950pr"])
def test_very_few_rows_gain_nothing(name: str, hardware: str) -> None:
    answer = estimate(name, **{**SHAPE, "m": 16, "hardware": hardware})
    assert answer.best is not None
    assert answer.best.schedule == "serial"
    assert answer.best.speedup == 1.0


@pytest.mark.parametrize("hardware", ["atlas_800i_a2", "atlas_800t_a2"])
def test_tensor_parallel_mixtral_shows_the_regime_of_the_field(hardware: str) -> None:
    """30-47 % communication with TP 8, published for prefill; EP 8 does not show it."""
    tensor = estimate("mixtral-8x7b", phase="prefill", hardware=hardware, tp=8, schedule="serial")
    expert = estimate("mixtral-8x7b", phase="prefill", hardware=hardware, ep=8, schedule="serial")
    assert 0.28 <= tensor.rows[0].comm_ratio <= 0.47
    assert expert.rows[0].comm_ratio < 0.15


@pytest.mark.parametrize(
    ("condition", "code", "word"),
    [({"cann": "8.0"}, "CANN_8_0", "RoCE"), ({"rdma": False}, "NO_RDMA", "hccn_tool -i eth0 -roce -s")],
)
def test_across_servers_the_software_may_fall_back(condition: dict[str, Any], code: str, word: str) -> None:
    where: dict[str, Any] = {"hardware": "atlas_800t_a3", "ep": 32, "schedule": "mc2"}
    plain, fallen = estimate("deepseek-v3", **where), estimate("deepseek-v3", **where, **condition)
    assert row(plain, "mc2").total_time < row(plain, "serial").total_time
    fused = row(fallen, "mc2")
    assert fused.legal
    assert fused.reason
    assert fused.total_time == row(fallen, "serial").total_time
    assert word in codes(fallen)[code]
    assert code not in codes(plain)
    inside = estimate("deepseek-v3", **{**where, "ep": 16}, **condition)
    assert code not in codes(inside)
