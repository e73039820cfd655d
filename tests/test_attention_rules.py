"""Rules of attention, quantised and grouped kernels: by hand, at their limits, and their laws."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.costs import Cost, Costs, Ledger
from mc2perf.equations import attention, collectives, matmul
from mc2perf.machine import Machine
from mc2perf.readers.profiles import load_machine, profile_names

quick = settings(max_examples=60, deadline=None)
MACHINES = {name: load_machine(name) for name in profile_names()}
DIE = MACHINES["atlas_800t_a3"]
CLOSE = 1e-12
rows_of = st.floats(1.0, 1e5)
widths = st.floats(64.0, 16384.0)
batches = st.integers(1, 256).map(float)
contexts = st.floats(1.0, 65536.0)


def prices(machine: Machine, warm: bool = False) -> Costs:
    return Costs(machine, Ledger(), warm_l2=warm)


def decode(machine: Machine, b: Any, s: Any, h: Any = 32.0, kv: Any = 8.0, warm: bool = False) -> Cost:
    return prices(machine, warm).decode_attention("x", b, s, h, kv, 128.0, 128.0, "bf16")


def prefill(machine: Machine, b: Any, s: Any, h: Any = 32.0) -> Cost:
    flops = attention.attention_flops(b * s, s, h, 128.0, 128.0)
    return prices(machine).attention("x", flops, "bf16", s)


def experts(machine: Machine, rows: Any, n: Any, k: Any, touched: Any, quantised: bool = False) -> Cost:
    costs = prices(machine)
    if quantised:
        return costs.quantised_matmul("x", rows, n, k, touched)
    return costs.matmul("x", rows, n, k, "bf16", 64.0, touched)


# --- by hand


@quick
@given(batches, st.floats(16.0, 16384.0), st.sampled_from([8.0, 40.0, 64.0]))
def test_prefill_pair_by_pair(b: float, s: float, h: float) -> None:
    """Two matmuls of s x s x 128 per head and sample, and as many again for the extra keys."""
    rule, peak = DIE.kernels.attention, DIE.cube.peak["bf16"]
    pairs = b * h * s * (s + rule.extra_keys)
    expected = rule.launch + 2 * 2 * 128 * pairs / peak / rule.utilisation
    assert prefill(DIE, b, s, h).time == pytest.approx(expected, rel=1e-9)


@quick
@given(batches, contexts, st.sampled_from([8.0, 40.0, 64.0]), st.sampled_from([1.0, 8.0]), st.booleans())
def test_decode_is_the_longest_of_three_and_the_merge(
    b: float, s: float, h: float, kv: float, warm: bool
) -> None:
    rule, memory = DIE.kernels.decode_attention, DIE.memory
    cache = b * s * kv * 2 * 128 * 2
    share = 1 / (1 + (cache / (rule.resident * memory.l2)) ** 8) if warm else 0.0
    cold = cache / memory.bandwidth / rule.memory_efficiency
    read = share * cold / rule.l2_gain + (1 - share) * cold
    cube = 4 * b * s * h * 128 / DIE.cube.peak["bf16"] / DIE.kernels.attention.utilisation
    heads = b * kv * rule.key_head_time / DIE.cube.cores
    merge = b * h * rule.query_head_time / DIE.cube.cores
    expected = rule.launch + max(read, cube, heads) + merge
    assert decode(DIE, b, s, h, kv, warm).time == pytest.approx(expected, rel=1e-9)


@quick
@given(rows_of, widths, widths)
def test_w8a8_by_hand(m: float, n: float, k: float) -> None:
    r, rate = DIE.kernels.w8a8, DIE.memory.bandwidth
    p = float(r.knee)
    cube = 2 * m * n * k / DIE.cube.peak["int8"] / r.utilisation
    stream = (n * k + m * k + 2 * m * n) / rate / r.memory_efficiency
    scale = 6 * m * n / rate / r.dequantise_efficiency
    expected = (
        r.launch
        + r.ramp * m / (m + r.ramp_rows)
        + 3 * m * k / rate / r.quantise_efficiency
        + (cube**p + stream**p + scale**p) ** (1 / p)
    )
    assert prices(DIE).quantised_matmul("x", m, n, k).time == pytest.approx(expected, rel=1e-9)


@quick
@given(rows_of, widths, widths, st.floats(0.1, 64.0))
def test_experts_by_hand(m: float, n: float, k: float, touched: float) -> None:
    rule, rate = DIE.kernels.grouped, DIE.memory.bandwidth
    assert rule is not None
    p = float(rule.knee)
    cube = 2 * m * n * k / DIE.cube.peak["bf16"] / rule.utilisation
    stream = 2 * (touched * n * k + m * k + m * n) / rate / rule.memory_efficiency
    expected = rule.launch + (cube**p + stream**p) ** (1 / p)
    assert experts(DIE, m, n, k, touched).time == pytest.approx(expected, rel=1e-9)


def test_a_chosen_rule_prices_experts_too() -> None:
    """The grouped rule stands beside the measured one; the vendor's rule keeps its own answer."""
    costs = Costs(DIE, Ledger(), matmul_rule="vendor_model")
    grouped = costs.matmul("x", 4096.0, 2048.0, 7168.0, "bf16", 8.0, 8.0)
    assert grouped == costs.matmul("x", 4096.0, 2048.0, 7168.0, "bf16", 8.0)


def test_without_a_grouped_rule_the_dense_one_answers() -> None:
    machine = MACHINES["a100_sxm_80g"]
    assert machine.kernels.grouped is None
    assert experts(machine, 4096.0, 2048.0, 7168.0, 8.0, quantised=True).time > 0.0


# --- limits


def test_a_cache_leaves_l2_as_it_grows() -> None:
    moved = np.array([1e6, 1e8, 2e8, 4e8, 1e12])
    whole = attention.cache_time(moved, 1e12, 2.0, 2e8) / (moved / 1e12)
    assert whole[0] == pytest.approx(0.5, rel=1e-9)
    assert whole[2] == pytest.approx(0.75, rel=1e-9)
    assert whole[-1] == pytest.approx(1.0, rel=1e-9)
    assert np.all(np.diff(whole) > 0.0)


def test_long_sequences_reach_the_utilisation() -> None:
    assert attention.attention_work(1e15, 1e12, 1330.0) == pytest.approx(1e15, rel=1e-6)
    assert attention.attention_work(1e15, np.inf, 1330.0) == 1e15


def test_the_ramp_is_half_at_its_rows_and_whole_beyond() -> None:
    assert matmul.ramp_time(0.0, 2.0, 120.0) == 0.0
    assert matmul.ramp_time(120.0, 2.0, 120.0) == 1.0
    assert matmul.ramp_time(1e12, 2.0, 120.0) == pytest.approx(2.0, rel=1e-9)


def test_a_cold_l2_holds_nothing() -> None:
    """The layers between two reads of a cache leave nothing of it."""
    cold, warm = (decode(DIE, 8.0, 4096.0, warm=w).time for w in (False, True))
    rule = DIE.kernels.decode_attention
    full = 8 * 4096 * 8 * 512 / DIE.memory.bandwidth / rule.memory_efficiency
    assert cold - rule.launch >= full
    assert warm < cold


# --- laws on every machine


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=20, deadline=None)
@given(batches, contexts, st.floats(1.0, 4.0), rows_of, widths, widths)
def test_more_work_takes_longer(
    name: str, b: float, s: float, more: float, m: float, n: float, k: float
) -> None:
    machine = MACHINES[name]
    for warm in (False, True):
        base = decode(machine, b, s, warm=warm).time
        for batch, context, heads, keys in (
            (b * more, s, 32.0, 8.0), (b, s * more, 32.0, 8.0),
            (b, s, 32.0 * more, 8.0), (b, s, 32.0, 8.0 * more),
        ):  # fmt: skip
            assert base <= decode(machine, batch, context, heads, keys, warm).time * (1 + CLOSE)
    assert prefill(machine, b, s).time <= prefill(machine, b, s * more).time * (1 + CLOSE)
    dense = prices(machine).quantised_matmul("x", m, n, k).time
    for sizes in ((m * more, n, k), (m, n * more, k), (m, n, k * more)):
        assert dense <= prices(machine).quantised_matmul("x", *sizes).time * (1 + CLOSE)
    if machine.kernels.grouped:
        for quantised in (False, True):
            base = experts(machine, m, n, k, 8.0, quantised).time
            for rows, columns, depth, touched in (
                (m * more, n, k, 8.0), (m, n * more, k, 8.0), (m, n, k * more, 8.0), (m, n, k, 8.0 * more)
            ):  # fmt: skip
                larger_time = experts(machine, rows, columns, depth, touched, quantised).time
                assert base <= larger_time * (1 + CLOSE)


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=20, deadline=None)
@given(batches, contexts, rows_of, widths, widths)
def test_nothing_is_faster_than_peak_or_memory(
    name: str, b: float, s: float, m: float, n: float, k: float
) -> None:
    machine = MACHINES[name]
    peak, rate = machine.cube.peak, machine.memory.bandwidth
    assert decode(machine, b, s).work >= b * s * 8 * 512 / rate * (1 - CLOSE)
    assert decode(machine, b, s, 128.0, 1.0).work >= 4 * b * s * 128 * 128 / peak["bf16"] * (1 - CLOSE)
    assert prefill(machine, b, s).work >= 4 * b * s * s * 32 * 128 / peak["bf16"] * (1 - CLOSE)
    quantised = prices(machine).quantised_matmul("x", m, n, k).work
    assert quantised >= max(2 * m * n * k / peak["int8"], (n * k + 3 * m * k + 2 * m * n) / rate) * (
        1 - CLOSE
    )
    grouped = experts(machine, m, n, k, 8.0).work
    assert grouped >= max(2 * m * n * k / peak["bf16"], 2 * (8 * n * k + m * k + m * n) / rate) * (1 - CLOSE)


@pytest.mark.parametrize("name", MACHINES)
def test_many_rows_are_the_same_rows(name: str) -> None:
    """One by one or as a column: the same bits."""
    machine = MACHINES[name]
    column = np.array([[1.0], [17.0], [256.0], [5000.0]])
    calls: tuple[Any, ...] = (
        lambda x: decode(machine, x, 100.0 * x, warm=True),
        lambda x: prefill(machine, 2.0, x),
        lambda x: prices(machine).quantised_matmul("x", x, 4096.0, 1024.0),
        lambda x: experts(machine, x, 4096.0, 1024.0, 3.0),
        lambda x: experts(machine, x, 4096.0, 1024.0, 3.0, True),
    )
    for call in calls:
        many = np.asarray(call(column).time)
        assert many.shape == (4, 1)
        one_row = np.array([np.ravel(call(column[i : i + 1]).time) for i in range(4)])
        assert np.array_equal(many, one_row)
        assert np.array_equal(many, np.array([[call(x).time] for x in column[:, 0]]))


@quick
@given(st.integers(-10, 10), batches, contexts)
def test_a_faster_clock_is_proportionally_faster(power: int, b: float, s: float) -> None:
    c = 2.0**power
    moved = 1e6 * s
    assert attention.cache_time(moved, 1e12 / c, 2.0, 1e8) == attention.cache_time(moved, 1e12, 2.0, 1e8) * c
    parts = {"sequences": b, "heads": 32.0, "kv_heads": 8.0, "cores": 24.0}
    time = attention.decode_attention_time(3e-6, 5e-6, **parts, key_head_time=2e-6, query_head_time=1e-7)
    slow = attention.decode_attention_time(
        3e-6 * c, 5e-6 * c, **parts, key_head_time=2e-6 * c, query_head_time=1e-7 * c
    )
    assert slow == time * c


# --- collectives between and beyond the fitted rank counts


@pytest.mark.parametrize("collective", collectives.PASSES)
def test_cliffs_stand_at_the_same_share_inside_a_server(collective: str) -> None:
    """Four ranks fall off the cliff at half the array of eight and at twice that of two."""
    curve = DIE.tiers["node"].engines["measured"].curves[collective]
    small, large = (curve.ranks[p][0].up_to for p in (2, 8))
    if abs(large / small - 4.0) > 0.01:
        return  # no common cliff
    edge = large / 2.0
    below, above = np.asarray(
        prices(DIE).collective("x", collective, np.array([edge * 0.99, edge * 1.01]), 4.0).time
    )
    assert above > 1.5 * below
    assert collective != "all_to_all"


@pytest.mark.parametrize("collective", collectives.PASSES)
@quick
@given(st.floats(1e3, 1e9), st.floats(1.0, 2.0))
def test_more_ranks_than_fitted_in_a_server(collective: str, size: float, more: float) -> None:
    """The curve of 8 ranks, its cliff at the same share, its slopes and constants a little larger."""
    ledger = Ledger()
    costs = Costs(DIE, ledger)
    at_16 = costs.collective("x", collective, size, 16.0).time
    assert ledger.extrapolated
    half, whole = (costs.collective("x", collective, s, 8.0).time for s in (size / 2.0, size))
    assert half <= at_16 <= whole * 1.5
    if size > 5e7:
        assert at_16 >= whole
    assert at_16 <= costs.collective("x", collective, size * more, 16.0).time * (1 + CLOSE)


def test_factors_beyond_the_fit() -> None:
    assert collectives.more_traffic(1e9, 2.0) == pytest.approx(2.0, rel=1e-6)
    assert collectives.more_traffic(8.0, 8.0) == 1.0
    assert collectives.more_latency(8.0, 8.0, 0.3) == 1.0
    assert collectives.more_latency(64.0, 8.0, 1.0) == 8.0


@pytest.mark.parametrize("collective", collectives.PASSES)
def test_beyond_the_fits_of_a_fabric_time_grows_on(collective: str) -> None:
    fabric = MACHINES["cloudmatrix384"]
    sizes = np.array([1e4, 1e6, 1e8, 1e10])
    times = [prices(fabric).collective("x", collective, sizes, p).time for p in (32.0, 64.0, 256.0, 768.0)]
    assert all(np.all(a < b) for a, b in pairwise(times))
