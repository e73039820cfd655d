"""The best lengths against brute force, closed forms, geometric rows, and pieces played one by one."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations import optimum, overlap
from mc2perf.policies.uneven import Order, aligned, best_lengths, best_uneven
from mc2perf.problems import InputError
from mc2perf.two_engines import two_stages

alphas = st.one_of(st.just(0.0), st.floats(1e-7, 1e-4))
rates = st.floats(1e-10, 1e-7)
rows = st.floats(10.0, 1e5)
counts = st.integers(1, 12)
heads = st.one_of(st.just(0.0), st.floats(0.0, 1e-2))
orders = st.sampled_from(get_args(Order))
quick = settings(max_examples=40, deadline=None)


@st.composite
def costs(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "alpha_first": draw(alphas),
        "per_row_first": draw(rates),
        "alpha_second": draw(alphas),
        "per_row_second": draw(rates),
    }


def close(expected: Any, rel: float = 1e-9) -> Any:
    return pytest.approx(expected, rel=rel)


def stages(lengths: tuple[float, ...], cost: dict[str, float]) -> tuple[list[float], list[float]]:
    return (
        [cost["alpha_first"] + cost["per_row_first"] * x for x in lengths],
        [cost["alpha_second"] + cost["per_row_second"] * x for x in lengths],
    )


def equal_pieces(total: float, n: int, cost: dict[str, float], head: float, order: str) -> float:
    """The closed form of equal pieces."""
    (first,), (second,) = stages((total / n,), cost)
    comm, compute = (first, second) if order == "comm_first" else (second, first)
    return float(max(overlap.two_stage_paths(comm, compute, float(n), head, n + 1, 1.0, 1.0)[:4]))


@quick
@given(rows, counts, costs(), heads, orders)
def test_never_above_equal_pieces_nor_below_either_stage(
    total: float, n: int, cost: dict[str, Any], head: float, order: Order
) -> None:
    best = best_lengths(total, n, **cost, head=head, order=order)
    assert best.time <= equal_pieces(total, n, cost, head, order) * (1.0 + 1e-12)
    first, second = stages(best.rows, cost)
    beside = (0.0, head) if order == "comm_first" else (head, 0.0)
    assert best.time >= max(sum(first) + beside[0], sum(second) + beside[1]) * (1.0 - 1e-12)
    assert len(best.rows) == n
    assert math.fsum(best.rows) == close(total, 1e-12)
    assert min(best.rows) >= 0.0


@quick
@given(rows, counts, costs(), heads, orders)
def test_the_time_is_that_of_the_pieces_played(
    total: float, n: int, cost: dict[str, Any], head: float, order: Order
) -> None:
    best = best_lengths(total, n, **cost, head=head, order=order)
    first, second = stages(best.rows, cost)
    comm, compute = (first, second) if order == "comm_first" else (second, first)
    deep = n + 1  # with one buffer nothing would overlap, not even a head
    played = two_stages(
        order, comm, compute, head=head, buffers=deep, comm_slowdown=1.0, compute_slowdown=1.0
    )
    assert best.time == close(played.total)


def fine_grid(total: int, n: int, least: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Every way to cut whole rows into n pieces."""
    cuts = itertools.product(range(least, total + 1), repeat=n - 1)
    return np.array([(*x, total - sum(x)) for x in cuts if total - sum(x) >= least], float)


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize(
    ("n", "total", "least"), [(1, 40, 0), (2, 200, 0), (2, 200, 70), (3, 60, 0), (4, 24, 3)]
)
@pytest.mark.parametrize(
    ("a", "f", "b", "s", "head"),
    [
        (3.0, 1.0, 2.0, 2.0, 0.0),
        (0.0, 2.0, 5.0, 1.0, 0.0),
        (4.0, 1.0, 4.0, 1.0, 30.0),
        (9.0, 0.5, 1.0, 3.0, 0.0),
    ],
)
def test_brute_force(
    n: int, total: int, least: int, a: float, f: float, b: float, s: float, head: float, order: Order
) -> None:
    """Whole rows are a little worse: rounding moves every start of a piece by less than a row."""
    cuts = fine_grid(total, n, least)
    first, second = a + f * cuts, b + s * cuts
    free_first, free_second = np.zeros(len(cuts)), np.full(len(cuts), head if order == "comm_first" else 0.0)
    for i in range(n):
        free_first = free_first + first[:, i]
        free_second = np.maximum(free_second, free_first) + second[:, i]
    if order == "compute_first":
        free_second = np.maximum(free_second, free_first + head)
    brute = float(free_second.min())
    best = best_lengths(
        total, n, alpha_first=a, per_row_first=f, alpha_second=b, per_row_second=s,
        head=head, order=order, least=least,
    )  # fmt: skip
    assert best.time <= brute * (1.0 + 1e-12)
    assert brute < best.time + f + s
    assert min(best.rows) >= least


@pytest.mark.parametrize(("f", "s"), [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (3.0, 2.0)])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_without_alphas_the_lengths_are_geometric(f: float, s: float, n: int) -> None:
    """Path j + 1 less path j is f x(j+1) - s x(j); where all are equal, x(j+1) = x(j) s / f."""
    best = best_lengths(1000.0, n, alpha_first=0.0, per_row_first=f, alpha_second=0.0, per_row_second=s)
    row = [(s / f) ** i for i in range(n)]
    expected = [1000.0 * x / sum(row) for x in row]
    assert best.rows == close(expected, 1e-7)
    assert best.time == close(f * expected[0] + s * 1000.0)


def test_with_alphas_a_piece_covers_the_next_ones_first_stage() -> None:
    """Balanced: a1 + f x(j+1) = a2 + s x(j); by hand 4, 9, 19 of 32 for a1 = 1, a2 = 2, f = 1, s = 2."""
    best = best_lengths(32.0, 3, alpha_first=1.0, per_row_first=1.0, alpha_second=2.0, per_row_second=2.0)
    assert best.rows == close([4.0, 9.0, 19.0], 1e-7)
    assert best.time == close(5.0 + 3 * 2.0 + 64.0)


def test_small_alphas_approach_the_geometric_row() -> None:
    def rows_with(alpha: float) -> tuple[float, ...]:
        return best_lengths(
            7.0, 3, alpha_first=alpha, per_row_first=1.0, alpha_second=0.0, per_row_second=2.0
        ).rows

    off = [max(abs(x - y) for x, y in zip(rows_with(a), (1, 2, 4), strict=True)) for a in (0.1, 0.01, 0.001)]
    assert off[0] > 5 * off[1] > 25 * off[2] > 0.0


@quick
@given(rows, counts, costs(), heads, orders, st.floats(1e-3, 1e3), st.floats(0.1, 10.0))
def test_homogeneous_in_time_and_in_rows(
    total: float, n: int, cost: dict[str, Any], head: float, order: Order, s: float, r: float
) -> None:
    best = best_lengths(total, n, **cost, head=head, order=order)
    slower = {name: s * value for name, value in cost.items()}
    assert best_lengths(total, n, **slower, head=s * head, order=order).time == close(s * best.time, 1e-7)
    finer = {name: value / r if "row" in name else value for name, value in cost.items()}
    assert best_lengths(r * total, n, **finer, head=head, order=order).time == close(best.time, 1e-7)


@quick
@given(rows, costs(), heads)
def test_one_piece_is_serial(total: float, cost: dict[str, Any], head: float) -> None:
    (first,), (second,) = stages((total,), cost)
    assert best_lengths(total, 1, **cost) == ((total,), close(first + second))
    assert best_lengths(total, 1, **cost, head=head).time == close(max(head, first) + second)


@settings(max_examples=15, deadline=None)
@given(rows, st.integers(1, 9), costs(), heads, orders)
def test_the_best_number_is_the_best_of_all(
    total: float, most: int, cost: dict[str, Any], head: float, order: Order
) -> None:
    """Stopping at the floor loses nothing."""
    best = best_uneven(total, most, **cost, head=head, order=order)
    every = [best_lengths(total, n, **cost, head=head, order=order).time for n in range(1, most + 1)]
    assert best.time == close(min(every), 2e-8)
    assert best.time < min([*every[: len(best.rows) - 1], math.inf])


@settings(max_examples=25, deadline=None)
@given(rows, st.integers(1, 16), costs())
def test_never_above_the_best_number_of_equal_pieces(total: float, most: int, cost: dict[str, Any]) -> None:
    branches = optimum.two_stage_branches(
        cost["alpha_first"],
        cost["per_row_first"] * total,
        cost["alpha_second"],
        cost["per_row_second"] * total,
    )
    serial = sum(map(sum, stages((total,), cost)))
    equal = optimum.best_piece_count(*branches, single=serial, largest=float(most))
    assert best_uneven(total, most, **cost).time <= float(equal.time) * (1.0 + 1e-8)


def test_fewer_pieces_where_two_tie() -> None:
    only_second: dict[str, Any] = {
        "alpha_first": 0.0,
        "per_row_first": 0.0,
        "alpha_second": 0.0,
        "per_row_second": 1.0,
    }
    assert best_uneven(10.0, 8, **only_second) == ((10.0,), 10.0)
    nothing: dict[str, Any] = dict.fromkeys(only_second, 0.0)
    assert best_lengths(10.0, 2, **nothing) == ((5.0, 5.0), 0.0)


def test_least_limits_lengths_and_number() -> None:
    cost: dict[str, Any] = {
        "alpha_first": 0.0,
        "per_row_first": 1.0,
        "alpha_second": 0.0,
        "per_row_second": 2.0,
    }
    assert best_lengths(70.0, 3, **cost, least=15.0).rows[0] == close(15.0)
    assert len(best_uneven(70.0, 8, **cost, least=30.0).rows) == 2
    assert best_lengths(70.0, 7, **cost, least=10.0).rows == (10.0,) * 7


# --- whole blocks


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=12), st.integers(1, 1024))
def test_aligned_keeps_the_sum_in_whole_blocks(lengths: list[float], base: int) -> None:
    total = round(math.fsum(lengths))
    lengths[0] += max(0.0, total - math.fsum(lengths))
    whole = aligned(tuple(lengths), base)
    assert sum(whole) == round(math.fsum(lengths))
    assert sum(x % base > 0 for x in whole) == (sum(whole) % base > 0)
    assert min(whole, default=1.0) > 0.0
    assert len(whole) <= len(lengths)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=8), st.integers(1, 512))
def test_aligned_moves_no_length_by_a_block(lengths: list[int], base: int) -> None:
    spaced = [x + 2 * base for x in lengths]  # none is dropped
    whole = aligned(tuple(map(float, spaced)), base)
    assert all(abs(x - y) < base for x, y in zip(whole, spaced, strict=True))
    assert aligned(whole, base) == whole


@pytest.mark.parametrize(
    ("lengths", "base", "expected"),
    [
        ((100.0, 200.0, 400.0), 100, (100.0, 200.0, 400.0)),
        ((130.0, 250.0, 388.0), 128, (128.0, 256.0, 384.0)),
        ((10.0, 20.0, 226.0), 128, (256.0,)),
        ((40.0, 40.0), 100, (80.0,)),
        ((300.0, 300.0, 100.0), 256, (256.0, 444.0)),
        ((1.5, 2.5), 1, (2.0, 2.0)),
        ((0.0, 0.0), 8, ()),
    ],
)
def test_aligned_by_hand(lengths: tuple[float, ...], base: int, expected: tuple[float, ...]) -> None:
    assert aligned(lengths, base) == expected


def test_every_problem_at_once() -> None:
    with pytest.raises(InputError) as caught:
        best_lengths(
            0.0, 0, alpha_first=-1.0, per_row_first=math.nan, alpha_second=math.inf, per_row_second=1.0,
            order="sideways", least=-1.0,  # type: ignore[arg-type]
        )  # fmt: skip
    where = [problem.split(":")[0] for problem in caught.value.problems]
    expected = ["alpha_first", "per_row_first", "alpha_second", "least", "order", "total_rows", "pieces"]
    assert where == expected
    cost: dict[str, Any] = {
        "alpha_first": 0.0,
        "per_row_first": 1.0,
        "alpha_second": 0.0,
        "per_row_second": 2.0,
    }
    with pytest.raises(InputError, match="least: 3 pieces"):
        best_lengths(10.0, 3, **cost, least=4.0)
    with pytest.raises(InputError, match="pieces: 0"):
        best_uneven(10.0, 0, **cost)
    with pytest.raises(InputError, match="base: 0"):
        aligned((), 0)
