"""Matmul rules against worked examples of the vendor and against arithmetic written out here."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.costs import Costs, Ledger
from mc2perf.equations import attention, collectives, matmul, overlap, routing, utilisation
from mc2perf.machine.cube import L2StepsRule, PowerRule
from mc2perf.readers.profiles import load_machine
from mc2perf.units import MIB

quick = settings(max_examples=100, deadline=None)
sizes = st.integers(1, 20_000).map(float)

A2, PR = load_machine("atlas_800t_a2_b2"), load_machine("ascend_950pr")

# --- the vendor's rule of A2 and A3, by hand (cann-mc2.md 1.1)


def l2_steps_by_hand(m: int, n: int, k: int, cores: int) -> float:
    """Microseconds of an fp16 matmul; one rank copy."""
    block = min(128, m)
    down, across = math.ceil(m / block), math.ceil(n / 256)
    footprint = (min(down, cores) * block + min(across, cores) * 256) * k * 2 // 2**20
    u = 0.85 if footprint <= 128 else 0.75 if footprint <= 192 else 0.65
    u *= min(down * across, cores) / cores
    return m * n * k / (4096 * 1.8 * 1024 * cores * u)


@pytest.mark.parametrize(
    ("m", "cores", "published"),
    [
        (512, 20, 134),
        (1024, 20, 268),
        (2048, 20, 535),
        (2048, 24, 446),
        (4096, 20, 1071),
        (4096, 24, 892),
        (8192, 20, 2142),
        (8192, 24, 1785),
        (16384, 24, 3569),
    ],
)
def test_worked_examples_of_the_vendor(m: int, cores: int, published: float) -> None:
    """cann-mc2.md 5.1: N 8192, K 4096, fp16; all at u = 0.85."""
    machine = load_machine("atlas_800t_a2_b2", overrides={"cube.cores": str(cores)})
    costs = Costs(machine, Ledger(), matmul_rule="vendor_model")
    cost = costs.matmul("x", float(m), 8192.0, 4096.0, "fp16")
    assert cost.work * 1e6 == pytest.approx(published, abs=1.0)
    assert cost.launch == machine.cube.rules["vendor_model"].launch


@quick
@given(st.integers(1, 20_000), st.integers(256, 20_000), st.integers(256, 20_000), st.integers(1, 40))
def test_l2_steps_equals_the_rule_by_hand(m: int, n: int, k: int, cores: int) -> None:
    rule = A2.cube.rules["vendor_model"]
    assert isinstance(rule, L2StepsRule)
    footprint = utilisation.l2_footprint(float(m), float(n), float(k), float(cores), 128.0, 256.0, 2.0)
    step = utilisation.l2_steps_utilisation(
        footprint, rule.part_size, rule.full_size, rule.part, rule.full, rule.out
    )
    blocks = utilisation.base_blocks(1.0, float(m), float(n), float(min(128, m)), 256.0)
    u = step * utilisation.first_round_occupancy(blocks, float(cores))
    rate = rule.rate_per_core["fp16"] * cores
    time = matmul.roofline_time(matmul.matmul_flops(float(m), float(n), float(k)), 0.0, rate, u, 1.0)
    assert time * 1e6 == pytest.approx(l2_steps_by_hand(m, n, k, cores), rel=1e-6)


@pytest.mark.parametrize(
    ("mib", "u"), [(0.0, 0.85), (128.0, 0.85), (129.0, 0.75), (192.0, 0.75), (193.0, 0.65)]
)
def test_steps_by_footprint(mib: float, u: float) -> None:
    limits = (128 * MIB, 192 * MIB)
    assert utilisation.l2_steps_utilisation(mib * MIB, *limits, 0.85, 0.75, 0.65) == u


@quick
@given(sizes, sizes, sizes)
def test_power_equals_the_rule_by_hand(m: float, n: float, k: float) -> None:
    """cann-mc2.md 1.1, utilisation of 950."""
    rule = PR.cube.rules["vendor_model"]
    assert isinstance(rule, PowerRule)
    half = m * n / (m + n)
    expected = min(0.95, 0.75 * min(1.4, (k / 1280) ** 0.7) * min(1.4, (half / 820) ** 0.7))
    found = utilisation.power_utilisation(
        m=m, n=n, k=k, base=rule.base, k_half=rule.k_half, mn_half=rule.mn_half,
        exponent=rule.exponent, gain_cap=rule.gain_cap, cap=rule.cap,
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-12)


# --- roofs


@quick
@given(sizes, sizes, sizes, st.floats(1e-3, 1.0), st.floats(1e9, 1e13))
def test_a_roof_is_the_longer_of_two(m: float, n: float, k: float, u: float, rate: float) -> None:
    flops, moved = matmul.matmul_flops(m, n, k), 2.0 * (m * k + n * k + m * n)
    split = matmul.weight_bytes(1.0, n, k, 2.0) + matmul.activation_bytes(m, n, k, 2.0, 2.0)
    assert split == pytest.approx(moved, rel=1e-12)
    assert matmul.roofline_time(flops, moved, 1e14, u, rate) == pytest.approx(
        max(2 * m * n * k / 1e14 / u, moved / rate), rel=1e-12
    )


@quick
@given(st.floats(1e-9, 1.0), st.floats(0.0, 1.0), st.floats(1.0, 16.0))
def test_a_knee_stays_between_the_longer_and_the_sum(compute: float, memory: float, knee: float) -> None:
    time = matmul.knee_time(compute, memory, knee)
    assert max(compute, memory) * (1 - 1e-12) <= time <= (compute + memory) * (1 + 1e-12)
    assert matmul.knee_time(compute, memory, 1.0) == pytest.approx(compute + memory, rel=1e-12)
    assert time == pytest.approx((compute**knee + memory**knee) ** (1 / knee), rel=1e-9)


def test_streaming_at_its_corners() -> None:
    """Few rows, many columns, many weights: plain bytes over rate; each term on its own otherwise."""
    plain: dict[str, float] = {
        "weight_bytes": 1e9, "other_bytes": 1e8, "rows": 1.0, "n": 1e9, "memory_rate": 1e12,
        "reread": 0.6, "block_rows": 180.0, "narrow_columns": 2463.0, "resident": 1.0,
    }  # fmt: skip
    assert matmul.streaming_time(**plain) == pytest.approx(1.1e-3, rel=1e-9)
    assert matmul.streaming_time(**plain | {"rows": 1e9}) == pytest.approx(1.7e-3, rel=1e-9)
    assert matmul.streaming_time(**plain | {"n": 2463.0}) == pytest.approx(1e-3 * 2**0.25 + 1e-4, rel=1e-9)
    assert matmul.streaming_time(**plain | {"resident": 1e9}) == pytest.approx(0.6e-3, rel=1e-9)


def test_rows_never_stream_faster_than_memory() -> None:
    """Small weights may arrive from L2; the rows of a tall matmul still pass memory."""
    time = matmul.streaming_time(
        weight_bytes=8192.0, other_bytes=2.7e8, rows=1e6, n=64.0, memory_rate=1.6e12,
        reread=1.0, block_rows=180.0, narrow_columns=2334.0, resident=2.4e7,
    )  # fmt: skip
    assert time >= 2.7e8 / 1.6e12


@quick
@given(st.integers(1, 2000), st.integers(1, 64))
def test_occupancy_by_dealing_blocks(blocks: int, cores: int) -> None:
    rounds = 0
    left = blocks
    while left > 0:
        left -= cores
        rounds += 1
    assert utilisation.round_occupancy(float(blocks), float(cores)) == pytest.approx(
        blocks / (rounds * cores), rel=1e-14
    )
    first = min(blocks, cores) / cores
    assert utilisation.first_round_occupancy(float(blocks), float(cores)) == pytest.approx(first, rel=1e-14)


@quick
@given(st.floats(1.0, 1e15), st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6))
def test_a_curve_stays_inside_its_points_and_meets_them(flops: float, shares: list[float]) -> None:
    work, share = 10.0 ** np.arange(9.0, 9.0 + len(shares)), np.array(shares)
    assert min(shares) - 1e-12 <= utilisation.curve_utilisation(flops, work, share) <= max(shares) + 1e-12
    assert np.allclose(utilisation.curve_utilisation(work, work, share), share, rtol=1e-12)


# --- the text of an equation, at random real numbers

FUNCTIONS: dict[str, Any] = {
    "max": max, "min": min, "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "log2": math.log2,
}  # fmt: skip


def decorated() -> list[Callable[..., Any]]:
    modules = (matmul, collectives, routing, attention, overlap)
    return [
        f
        for module in modules
        for _, f in inspect.getmembers(module, inspect.isfunction)
        if hasattr(f, "formula") and f.__module__ == module.__name__
    ]


@pytest.mark.parametrize("equation", decorated(), ids=lambda f: f.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_text_is_the_equation_at_real_numbers(equation: Callable[..., Any], data: st.DataObject) -> None:
    names = list(inspect.signature(equation).parameters)
    values = {name: data.draw(st.floats(1.0, 50.0), label=name) for name in names}
    result = equation(**values)
    parts = result if isinstance(result, tuple) else (result,)
    texts = vars(equation)["formula"].split(" ; ")
    for text, part in zip(texts, parts, strict=False):
        expected = eval(text, {"__builtins__": {}}, FUNCTIONS | values)
        assert part == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_every_equation_that_explains_itself_is_checked() -> None:
    assert len(decorated()) >= 25
    assert {"roofline_time", "streaming_time", "band_time", "latency_bandwidth_time"} <= {
        f.__name__ for f in decorated()
    }
