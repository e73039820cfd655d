"""The best piece count in closed form against trying every one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations import optimum, pipeline
from mc2perf.equations.optimum import Branches

alphas = st.one_of(st.just(0.0), st.floats(1e-7, 1e-3))
works = st.one_of(st.just(0.0), st.floats(1e-6, 1e-1))
six = st.tuples(alphas, works, alphas, works, alphas, works)
limits = st.integers(1, 200)
quick = settings(max_examples=300, deadline=None)


def best_is_the_scan(branches: Branches, scan: list[float]) -> None:
    """``scan``: makespans of 1, 2, ... pieces from elsewhere."""
    best = optimum.best_piece_count(*branches, scan[0], float(len(scan)))
    chosen = float(best.pieces)
    assert chosen == int(chosen) and 1 <= chosen <= len(scan)
    assert best.time == pytest.approx(min(scan), rel=1e-12, abs=1e-300)
    assert scan[int(chosen) - 1] == pytest.approx(min(scan), rel=1e-12, abs=1e-300)


@quick
@given(alphas, works, alphas, works, limits)
def test_two_stages_equal_the_scan(a0: float, a1: float, b0: float, b1: float, largest: int) -> None:
    n = np.arange(1.0, largest + 1.0)
    scan = pipeline.two_stage_time(a0 + a1 / n, b0 + b1 / n, n)
    best_is_the_scan(optimum.two_stage_branches(a0, a1, b0, b1), [float(t) for t in np.asarray(scan)])


@pytest.mark.parametrize("deep", [True, False])
@quick
@given(costs=six, largest=limits)
def test_three_stages_equal_the_scan(
    deep: bool, costs: tuple[float, float, float, float, float, float], largest: int
) -> None:
    n = np.arange(1.0, largest + 1.0)
    d, e, c = (costs[k] + costs[k + 1] / n for k in (0, 2, 4))
    scan = pipeline.three_stage_time(d, e, c, n, np.inf if deep else 2.0)
    of = optimum.three_stage_deep_branches if deep else optimum.three_stage_two_buffer_branches
    best_is_the_scan(of(*costs), [float(t) for t in np.asarray(scan)])


@quick
@given(
    st.lists(st.tuples(alphas, works, st.floats(-1e-2, 1e-1)), min_size=1, max_size=6),
    st.floats(0.0, 1.0),
    limits,
)
def test_any_branches_equal_the_scan(
    rows: list[tuple[float, float, float]], single: float, largest: int
) -> None:
    scan = [single] + [max(a * n + b / n + c for a, b, c in rows) for n in range(2, largest + 1)]
    best_is_the_scan(Branches(*np.array(rows).T), scan)


@quick
@given(
    st.lists(st.tuples(alphas, works, alphas, works), min_size=1, max_size=8), limits, st.integers(-30, 30)
)
def test_rows_together_equal_each_alone_and_scale_to_the_bit(
    rows: list[tuple[float, float, float, float]], largest: int, power: int
) -> None:
    table, s = np.array(rows).T, 2.0**power
    together = optimum.best_piece_count(
        *optimum.two_stage_branches(*table), table.sum(axis=0), float(largest)
    )
    faster = optimum.best_piece_count(
        *optimum.two_stage_branches(*(s * table)), s * table.sum(axis=0), float(largest)
    )
    assert np.array_equal(faster.pieces, together.pieces)
    assert np.array_equal(faster.time, s * np.asarray(together.time))
    for k in range(len(rows)):
        column = table[:, k]
        alone = optimum.best_piece_count(*optimum.two_stage_branches(*column), column.sum(), float(largest))
        assert (alone.pieces, alone.time) == (np.asarray(together.pieces)[k], np.asarray(together.time)[k])


def test_one_branch_set_with_many_limits() -> None:
    branches = optimum.two_stage_branches(1.0, 100.0, 1.0, 100.0)
    best = optimum.best_piece_count(*branches, 202.0, np.array([1.0, 4.0, 64.0]))
    assert np.array_equal(best.pieces, [1.0, 4.0, 10.0])
    assert np.array_equal(best.time, [202.0, 130.0, 121.0])


@pytest.mark.parametrize(("latency", "pieces"), [(1e-9, 64.0), (1.0, 1.0)])
def test_free_pieces_are_many_and_dear_ones_few(latency: float, pieces: float) -> None:
    branches = optimum.two_stage_branches(latency, 1.0, latency, 1.0)
    assert optimum.best_piece_count(*branches, 2.0 + 2.0 * latency, 64.0).pieces == pieces


def test_of_equal_counts_the_smallest_is_best() -> None:
    flat = Branches(np.zeros(1), np.zeros(1), np.ones(1))
    assert optimum.best_piece_count(*flat, 1.0, 9.0).pieces == 1.0
    assert optimum.best_piece_count(*flat, 2.0, 9.0).pieces == 2.0


def test_extreme_costs_do_not_overflow() -> None:
    tiny = optimum.two_stage_branches(5e-324, 1e300, 5e-324, 1e300)
    assert optimum.best_piece_count(*tiny, 2e300, 50.0).pieces == 50.0


@quick
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.sampled_from([0.0, 0.02, 0.25]))
def test_the_flat_region_is_walked_to(times: list[int], within: float) -> None:
    lowest = times.index(min(times))
    first = last = lowest
    while first > 0 and times[first - 1] <= (1.0 + within) * min(times):
        first -= 1
    while last < len(times) - 1 and times[last + 1] <= (1.0 + within) * min(times):
        last += 1
    region = optimum.flat_region(np.array([times, times], float), within)
    assert region.first.tolist() == [first, first]
    assert region.last.tolist() == [last, last]


def test_the_flat_region_stops_at_what_is_not_allowed() -> None:
    region = optimum.flat_region(np.array([np.inf, 2.0, 2.01, np.inf, 2.0]), 0.02)
    assert (int(region.first), int(region.last)) == (1, 2)
