"""Two stages on engines that slow each other down: the closed form against a fluid that is played."""

from __future__ import annotations

import pytest
from drawn_stages import CLOSE, close, counts, factors, quick, rings, times
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.equations import overlap, pipeline
from mc2perf.equations.pipeline import StageBounds


def fluid(a: float, b: float, n: int, buffers: int, f: float, g: float) -> tuple[float, float]:
    """Two stages as fluids: first at 1/f and second at 1/g of its pace while both run."""
    left_first, left_second = [a] * n, [b] * n
    now = busy = 0.0
    i = j = 0
    while j < n:
        first = i < n and i - j < buffers
        second = j < i
        pace_first, pace_second = (1 / f if second else 1.0), (1 / g if first else 1.0)
        ends = ([left_first[i] / pace_first] if first else []) + (
            [left_second[j] / pace_second] if second else []
        )
        step = min(ends)
        now += step
        busy += step * second
        if first:
            left_first[i] -= step * pace_first
            i += left_first[i] <= 1e-9 * a
        if second:
            left_second[j] -= step * pace_second
            j += left_second[j] <= 1e-9 * b
    return now, busy


@quick
@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), counts, rings, st.floats(1.0, 4.0), st.floats(0.0, 1.0))
def test_stretched_equals_the_fluid(a: float, b: float, n: int, buffers: int, f: float, share: float) -> None:
    """Exact for equal pieces while overlapping pays: 1/f + 1/g >= 1."""
    g = 1.0 + share * ((f / (f - 1.0) if f > 1.0 else 4.0) - 1.0)
    g = min(g, 4.0)
    total, busy = fluid(a, b, n, buffers, f, g)
    bounds = StageBounds(a + n * b, n * a + b) if buffers > 1 else StageBounds(n * (a + b), n * (a + b))
    slow = overlap.stretched(*bounds, n * b, n * a, f, g)
    assert slow.total == pytest.approx(total, rel=1e-8)
    if total < n * (a + b) * (1.0 - 1e-6):
        assert slow.busy_compute == pytest.approx(busy, rel=1e-6)


@quick
@given(times, times, counts, factors, factors)
def test_stretched_adds_up_and_stays_between(comm: float, compute: float, n: int, f: float, g: float) -> None:
    bounds = pipeline.two_stage_bounds(comm, compute, n)
    work = n * (compute + comm)
    slow = overlap.stretched(*bounds, n * compute, n * comm, f, g)
    assert slow.total - slow.busy_compute == slow.exposed_comm
    assert slow.exposed_comm >= 0.0
    assert slow.busy_compute >= n * compute * (1.0 - CLOSE)
    assert min(max(bounds), work) * (1.0 - CLOSE) <= slow.total <= work * (1.0 + CLOSE)
    fast = overlap.stretched(*bounds, n * compute, n * comm, 1.0, 1.0)
    assert fast.total == close(min(max(bounds), work))
    assert fast.busy_compute == close(n * compute)
