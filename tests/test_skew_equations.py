"""Skewed routing: loads against drawing tokens, copies and placement against trying all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.equations import routing, skew
from mc2perf.equations.play import play

Loads = skew.Loads
some_loads = st.lists(st.integers(1, 40), min_size=4, max_size=6).map(lambda n: np.array(n, float))


@given(st.floats(0.0, 4.0), st.sampled_from([1, 2, 4, 8, 64]), st.sampled_from([1, 2, 8, 64]))
def test_zipf_loads_keep_mean_order_and_cap(exponent: float, ranks: int, top_k: int) -> None:
    wanted = skew.zipf_loads(64, exponent)
    loads = skew.capped_loads(wanted, 64 / top_k)
    assert loads.mean() == pytest.approx(1.0)
    assert np.all(np.diff(loads) <= 1e-12)
    assert loads.max() <= 64 / top_k * (1 + 1e-12)
    assert 1.0 - 1e-9 <= skew.busiest_rank_factor(loads, ranks) <= ranks * (1 + 1e-9)
    free = loads < 64 / top_k * (1 - 1e-9)
    assert np.ptp(loads[free] / wanted[free]) <= 1e-9 * loads.max() if free.any() else True


def test_cap_by_halving_intervals() -> None:
    """The factor on what is not capped is the root of sum(min(f l, cap)) = E."""
    wanted = skew.zipf_loads(256, 2.0)
    low, high = 1.0, 1e6
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if np.minimum(middle * wanted, 32.0).sum() < 256 else (low, middle)
    assert skew.capped_loads(wanted, 32.0) == pytest.approx(np.minimum(low * wanted, 32.0), rel=1e-9)


def test_zipf_of_a_published_figure() -> None:
    """16 of 256 experts hold H(16) / H(256) of the rows at exponent 1."""
    harmonic = [sum(1.0 / i for i in range(1, n + 1)) for n in (16, 256)]
    factor = skew.busiest_rank_factor(skew.zipf_loads(256, 1.0), 16)
    assert factor == pytest.approx(16 * harmonic[0] / harmonic[1])


@given(some_loads, st.integers(0, 4))
def test_no_choice_of_copies_has_a_smaller_largest_load(loads: Loads, copies: int) -> None:
    slots = skew.with_copies(loads, copies)
    best = min(
        (loads / (1 + np.array(extra))).max()
        for extra in product(range(copies + 1), repeat=loads.size)
        if sum(extra) == copies
    )
    assert slots.size == loads.size + copies and slots.sum() == pytest.approx(loads.sum())
    assert slots.max() == pytest.approx(best)


def halves(slots: Loads) -> Iterator[float]:
    """The fuller rank of every way to place slots on two ranks."""
    for first in combinations(range(slots.size), slots.size // 2):
        held = slots[list(first)].sum()
        yield max(held, slots.sum() - held)


@given(st.lists(st.integers(1, 40), min_size=4, max_size=8).filter(lambda n: len(n) % 2 == 0))
def test_placement_against_every_placement(numbers: list[int]) -> None:
    """Longest first is within 4 / 3 of the best, keeps every slot, and never loses to popularity order."""
    slots = np.array(sorted(numbers, reverse=True), float)
    placed = skew.placed_by_load(slots, 2)
    fullest = placed.reshape(2, -1).sum(axis=1).max()
    best = min(halves(slots))
    assert best - 1e-9 <= fullest <= 4 / 3 * best + 1e-9
    assert sorted(placed) == sorted(slots)
    assert fullest <= slots.reshape(2, -1).sum(axis=1).max()


def test_placement_is_often_the_best() -> None:
    draws = np.random.default_rng(5)
    gaps = []
    for _ in range(60):
        slots = skew.with_copies(skew.zipf_loads(8, 1.0) * draws.uniform(0.5, 1.5, 8), 2)
        gaps.append(skew.placed_by_load(slots, 2).reshape(2, -1).sum(axis=1).max() / min(halves(slots)))
    assert np.mean(gaps) < 1.03


@given(st.floats(0.0, 2.0), st.sampled_from([0, 16, 48]))
def test_balancing_never_loads_the_busiest_rank_more(exponent: float, copies: int) -> None:
    loads = skew.zipf_loads(64, exponent)
    placed = skew.placed_by_load(skew.with_copies(loads, copies), 16)
    assert 1.0 - 1e-9 <= skew.busiest_rank_factor(placed, 16) <= skew.busiest_rank_factor(loads, 16) + 1e-9


def test_slots_with_rows_are_distinct_experts_where_chances_are_alike() -> None:
    tokens = np.array([1.0, 7.0, 300.0])
    chances = np.full(64, 4 / 64)
    assert skew.slots_with_rows(chances, tokens) == pytest.approx(routing.distinct_experts(64.0, 4.0, tokens))


@pytest.mark.parametrize(
    ("ranks", "experts", "top_k", "tokens_of_rank"),
    [(8, 8, 2, 1), (8, 8, 2, 8), (16, 256, 8, 1), (16, 256, 8, 8), (64, 256, 8, 4), (2, 8, 2, 4)],
)
def test_fullest_rank_by_drawing_tokens(ranks: int, experts: int, top_k: int, tokens_of_rank: int) -> None:
    draws = np.random.default_rng(7)
    factors = []
    for _ in range(500):
        chosen = np.argpartition(draws.random((tokens_of_rank * ranks, experts)), top_k - 1)[:, :top_k]
        counts = np.bincount((chosen * ranks // experts).ravel(), minlength=ranks)
        factors.append(counts.max() / counts.mean())
    said = skew.drawn_rank_factor(
        float(tokens_of_rank * top_k), float(experts), float(top_k), *skew.normal_maximum(ranks), float(ranks)
    )
    assert said == pytest.approx(np.mean(factors), rel=0.05 if tokens_of_rank * top_k < 4 else 0.02)


def test_largest_of_normal_numbers_by_drawing() -> None:
    numbers = np.random.default_rng(3).standard_normal((40_000, 16)).max(axis=1)
    assert skew.normal_maximum(16) == pytest.approx((numbers.mean(), (numbers**2).mean()), rel=0.01)
    assert skew.normal_maximum(2)[0] == pytest.approx(np.pi**-0.5, rel=1e-5)


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_pairwise_exchange_by_playing_its_steps(ranks: int, seed: int) -> None:
    """Every rank is an engine; a step of all is one piece, which begins when the one before has ended."""
    counts = np.random.default_rng(seed).integers(0, 50, (ranks, ranks)).astype(float)
    now = 0.0
    for step in range(1, ranks):
        steps = [[3.0 + 0.5 * counts[i, (i + step) % ranks]] for i in range(ranks)]
        durations = np.array(steps).reshape(ranks, 1, 1)
        now += play(durations, ["link"], [(0, 0)], 1).ends.max()
    assert skew.pairwise_all_to_all_v_time(counts, 3.0, 0.5) == pytest.approx(now)


def test_pairwise_exchange_of_alike_senders_is_an_even_one_of_the_busiest_rank() -> None:
    loads = skew.zipf_loads(8, 1.0)
    counts = np.tile(loads, (8, 1)) * 100.0
    even = np.full((8, 8), 100.0)
    uneven_time = skew.pairwise_all_to_all_v_time(counts, 0.0, 1.0)
    assert uneven_time / skew.pairwise_all_to_all_v_time(even, 0.0, 1.0) == pytest.approx(loads.max())
