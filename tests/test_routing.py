"""Routing equations against enumeration, published figures and laws."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.equations import routing


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(4, 1, 3), (4, 2, 2), (5, 3, 2), (6, 2, 3)])
def test_distinct_experts_is_the_mean_over_all_draws(experts: int, top_k: int, tokens: int) -> None:
    draws = list(combinations(range(experts), top_k))
    counts = [len(set().union(*batch)) for batch in product(draws, repeat=tokens)]
    assert routing.distinct_experts(float(experts), float(top_k), float(tokens)) == pytest.approx(
        np.mean(counts), rel=1e-12
    )


@pytest.mark.parametrize(
    ("experts", "top_k", "servers", "groups", "top_groups"),
    [
        (8, 2, 2, 1, 1),
        (8, 3, 4, 1, 1),
        (12, 4, 3, 1, 1),
        (8, 8, 4, 1, 1),
        (8, 2, 2, 4, 2),
        (12, 3, 3, 6, 3),
        (16, 4, 4, 8, 2),
        (12, 3, 6, 3, 2),  # a group fills two servers
        (8, 4, 1, 4, 2),
    ],
)
def test_distinct_servers_is_the_mean_over_all_draws(
    experts: int, top_k: int, servers: int, groups: int, top_groups: int
) -> None:
    counts = []
    for picked in combinations(range(groups), top_groups):
        pool = [expert for expert in range(experts) if expert * groups // experts in picked]
        counts += [len({e * servers // experts for e in draw}) for draw in combinations(pool, top_k)]
    got = routing.distinct_servers(experts, top_k, servers, groups, top_groups)
    assert got == pytest.approx(np.mean(counts), rel=1e-12)


@pytest.mark.parametrize(("servers", "expected"), [(2, 1.93), (4, 2.92), (8, 3.63)])
def test_deepseek_v3_touches_the_expected_servers(servers: int, expected: float) -> None:
    """facts/step-model.md item 7: 256 experts, top-8 of 4 among 8 groups (2.928 is exact for 4 servers)."""
    assert routing.distinct_servers(256, 8, servers, 8, 4) == pytest.approx(expected, abs=0.01)


routers = st.tuples(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 32), st.data()
)


@given(routers)
def test_servers_stay_in_their_bounds(drawn: tuple[int, int, int, st.DataObject]) -> None:
    groups, servers, top_k, data = drawn
    top_groups = data.draw(st.integers(1, groups))
    top_k = min(top_k, 256 // groups * top_groups)
    free = routing.distinct_servers(256, top_k, servers, 1, 1)
    bound = routing.distinct_servers(256, top_k, servers, groups, top_groups)
    most = top_groups * max(servers / groups, 1.0)
    assert 1 - 1e-9 <= bound <= min(servers, top_k, most) + 1e-9
    assert bound <= free + 1e-9
    assert routing.distinct_servers(256, top_k, 2 * servers, groups, top_groups) >= bound - 1e-9


@given(st.integers(1, 64), st.integers(0, 10_000), st.integers(64, 1024))
def test_experts_stay_in_their_bounds(top_k: int, tokens: int, experts: int) -> None:
    got = routing.distinct_experts(float(experts), float(top_k), float(tokens))
    assert -1e-9 <= got <= min(experts, top_k * tokens) + 1e-6


def test_equations_take_columns() -> None:
    tokens = np.array([1.0, 8.0, 1e6])
    touched = routing.distinct_experts(256.0, 8.0, tokens)
    assert isinstance(touched, np.ndarray)
    assert touched == pytest.approx([8.0, 256 * (1 - (31 / 32) ** 8), 256.0])
    assert routing.dispatch_bytes(tokens, 8.0, 7168.0, 1.0, 4.0) == pytest.approx(tokens * 57376.0)


def test_scales_of_a_short_last_block_are_whole() -> None:
    assert routing.mx_scale_bytes(np.array([32.0, 33.0]), 32.0, 1.0) == pytest.approx([1.0, 2.0])


def test_flops_per_byte_is_flops_over_bytes() -> None:
    """Nemotron-3-Super: latent experts, two matrices; the one number equals its parts."""
    routed = routing.routed_flops_per_token(2.0, 1024.0, 2688.0, 22.0)
    shared = routing.shared_flops_per_token(2.0, 4096.0, 5376.0)
    there_and_back = 2.0 * routing.dispatch_bytes(1.0, 22.0, 1024.0, 2.0, 0.0)
    got = routing.flops_per_byte(2.0, 4096.0, 1024.0, 2688.0, 5376.0, 22.0)
    assert got == pytest.approx((routed + shared) / there_and_back, rel=1e-12)
    assert round(float(got)) == 3665


def test_capacity_rows_are_the_even_share_times_the_factor() -> None:
    assert routing.capacity_rows(1.0, 4096.0, 8.0, 256.0) == 128.0
    assert routing.crossing_copies(3.0, 4.0) == 2.25
