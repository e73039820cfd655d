"""The host: queues played launch by launch, and what reads and blocking launches do to an estimate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.api import estimate
from mc2perf.equations.host import launch_queue_time

quick = settings(max_examples=100, deadline=None)
times = st.floats(1e-3, 10.0)


def played(stretches: list[list[float]], per_launch: float, per_read: float, reading: bool) -> float:
    """Host and device, launch by launch: the device is in order, and the host waits at every read."""
    host = device = 0.0
    for kernels in stretches:
        for kernel in kernels:
            host += per_launch
            device = max(device, host) + kernel
        if reading:
            host = device = max(host, device) + per_read
    return device


@quick
@given(times, times, st.integers(1, 9), st.integers(1, 5), times)
def test_a_queue_of_equal_kernels_is_its_closed_form(
    kernel: float, per_launch: float, each: int, reads: int, per_read: float
) -> None:
    total = played([[kernel] * each] * reads, per_launch, per_read, reading=True)
    found = launch_queue_time(kernel * each * reads, each * reads, per_launch, reads, per_read)
    assert float(found) == pytest.approx(total)


@quick
@given(st.lists(st.lists(times, min_size=1, max_size=6), min_size=1, max_size=4), times, times)
def test_a_queue_of_any_kernels_is_between_its_bounds(
    stretches: list[list[float]], per_launch: float, per_read: float
) -> None:
    total = played(stretches, per_launch, per_read, reading=True)
    low = high = len(stretches) * per_read
    for kernels in stretches:
        issue = per_launch * len(kernels)
        low += max(per_launch + sum(kernels), issue + kernels[-1])
        high += issue + sum(kernels)
    assert low * (1 - 1e-12) <= total <= high * (1 + 1e-12)


@quick
@given(st.lists(times, min_size=1, max_size=9), times, times)
def test_a_blocking_launch_is_a_read_after_every_kernel(
    kernels: list[float], per_launch: float, per_read: float
) -> None:
    total = played([[kernel] for kernel in kernels], per_launch, per_read, reading=True)
    n = float(len(kernels))
    assert float(launch_queue_time(sum(kernels), n, per_launch, n, per_read)) == pytest.approx(total)


@quick
@given(st.lists(times, min_size=1, max_size=9), times)
def test_without_reads_the_longer_one_counts_up_to_one_launch(
    kernels: list[float], per_launch: float
) -> None:
    """A whole step is long: that the device waits for the very first launch is left out."""
    total = played([kernels], per_launch, 0.0, reading=False)
    found = float(launch_queue_time(sum(kernels), float(len(kernels)), per_launch, 0.0, 1.0))
    assert found <= total <= found + per_launch + max(kernels)


def test_columns_are_single_rows() -> None:
    device, reads = np.array([8.0, 8.0]), np.array([0.0, 4.0])
    assert np.array_equal(launch_queue_time(device, 4.0, 1.0, reads, 0.5), [8.0, 14.0])


# --- estimates

MOE: dict[str, Any] = {
    "target": "mixtral-8x7b", "hardware": "atlas_800t_a2", "schedule": "serial", "ep": 8, "nodes": 1,
}  # fmt: skip


def total(**given: Any) -> float:
    asked = {**MOE, **given}
    return estimate(asked.pop("target"), **asked).rows[-1].total_time


def test_counts_are_read_once_per_layer_forward_and_again_where_recomputed() -> None:
    def waiting(**given: Any) -> float:
        slow, fast = (total(**given, set={"host.per_read": time}) for time in ("1 ms", "0 us"))
        return (slow - fast) * 1e3

    assert waiting() == pytest.approx(32)
    assert waiting(token_dispatcher="all_gather") == pytest.approx(4 * 32)
    assert waiting(global_batch_size=16) == pytest.approx(2 * 32)
    assert waiting(global_batch_size=16, recompute="full") == pytest.approx(2 * 2 * 32)
    assert waiting(capacity_factor=1.0) == 0.0
    assert waiting(capacity_factor=1.0, pad_to_capacity=False) == pytest.approx(32)
    assert waiting(host="graph") == 0.0
    assert waiting(phase="prefill") == 0.0


def test_blocking_launches_add_up_with_the_device() -> None:
    machine = {"host.per_launch": "1 ms", "host.per_read": "0 us"}
    row = estimate(
        "llama-2-7b", hardware="atlas_800t_a2", tp=8, schedule="serial", host="blocking", set=machine
    )
    device = row.rows[0].total_time - row.rows[0].free_time
    assert row.rows[0].total_time == pytest.approx(device + row.rows[0].host_time)


def test_separate_experts_are_launched_one_by_one() -> None:
    one = estimate("deepseek-v2-lite", hardware="atlas_800t_a2", ep=8, schedule="serial")
    each = estimate(
        "deepseek-v2-lite", hardware="atlas_800t_a2", ep=8, schedule="serial", grouped_matmul=False
    )
    # two matmuls and an activation forward, as many and two weight gradients backward: 8 times, not once
    more = (each.rows[0].host_time - one.rows[0].host_time) / 236e-6
    assert more == pytest.approx(26 * 7 * (3 + 5))
