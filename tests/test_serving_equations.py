"""Serving: experts and attention of a decode step, drafts, shared NPUs, figures that papers print."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations import attention, serving

quick = settings(max_examples=80, deadline=None)


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("ep", [1, 2])
@pytest.mark.parametrize("tokens", [0, 1, 2, 3])
def test_decode_reads_the_experts_that_some_token_chose(tokens: int, ep: int) -> None:
    """Over every choice of 2 of 4 experts by each token, the experts of one rank that were chosen."""
    choices = list(itertools.product(itertools.combinations(range(4), 2), repeat=tokens))
    mine = range(4 // ep)
    touched = sum(len({e for token in chosen for e in token if e in mine}) for chosen in choices)
    expected = 2.0 * (10.0 + 7.0 * touched / len(choices))
    assert serving.decode_weight_bytes(10.0, 7.0, 4.0, 2.0, tokens, ep, 2.0) == close(expected)


@quick
@given(st.lists(st.floats(0.0, 1.0), max_size=5))
def test_tokens_per_step_over_every_outcome(chances: list[float]) -> None:
    expected = 0.0
    for outcome in itertools.product([True, False], repeat=len(chances)):
        chance = math.prod(a if yes else 1 - a for a, yes in zip(chances, outcome, strict=True))
        expected += chance * (1 + [*outcome, False].index(False))
    assert serving.tokens_per_step_by_position(np.array(chances)) == close(expected)


@quick
@given(st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 1e-6).map(lambda x: 1 - x)), st.integers(0, 9))
def test_one_chance_for_all_drafts_is_the_geometric_sum(a: float, drafts: int) -> None:
    value = serving.tokens_per_step(a, drafts)
    assert value == close(sum(a**i for i in range(drafts + 1)))
    assert value == close(serving.tokens_per_step_by_position(np.full(drafts, a)))
    assert 1.0 <= value + 1e-12 <= drafts + 1 + 2e-12


@pytest.mark.parametrize(
    ("sequences", "tpot", "printed"), [(128, 46.8, 2733), (96, 49.4, 1943), (8, 14.9, 538), (96, 44.9, 2138)]
)
def test_decode_throughput_that_is_printed(sequences: float, tpot: float, printed: float) -> None:
    """DeepSeek-R1 decode: CloudMatrix384 (arXiv 2506.12708), and cann-recipes-infer (6144 over 64 chips)."""
    rounding = 0.05 / tpot + 0.5 / printed
    assert serving.decode_throughput(sequences, tpot / 1e3) == pytest.approx(printed, rel=rounding)


def test_one_draft_on_cloudmatrix_gains_what_is_printed() -> None:
    """arXiv 2506.12708: a layer takes 874 us, 1260 with one draft (70 % accepted); gains are 6 to 49 %."""
    gain = serving.speculative_speedup(serving.tokens_per_step(0.7, 1.0), 1.0, 874.0, 1260.0, 0.0)
    assert 1.06 < gain < 1.49
    assert serving.time_per_output_token(1260.0, 1.7) == close(874.0 / gain)


@quick
@given(st.floats(0.0, 0.99), st.integers(1, 9), st.floats(0.01, 1.0))
def test_drafts_pay_as_the_theorem_says(a: float, drafts: int, cost: float) -> None:
    """Leviathan et al. 2023, theorem 3.8 and its corollary: one draft pays exactly if a > c."""
    theorem = (1 - a ** (drafts + 1)) / ((1 - a) * (drafts * cost + 1))
    gain = serving.speculative_speedup(serving.tokens_per_step(a, drafts), drafts, 1.0, 1.0, cost)
    assert gain == pytest.approx(theorem, rel=1e-9)
    one = serving.speculative_speedup(serving.tokens_per_step(a, 1.0), 1.0, 1.0, 1.0, cost)
    assert (one > 1) == (a > cost) or one == close(1.0)


@pytest.mark.parametrize(("slots", "output", "prefill", "tpot"), [(1, 4, 3.0, 1.0), (4, 9, 0.5, 0.25)])
def test_shared_npus_yield_what_a_full_batch_played_yields(
    slots: int, output: int, prefill: float, tpot: float
) -> None:
    left, clock, tokens, rounds = [0] * slots, 0.0, 0, 1000 * (output - 1)
    for _ in range(rounds):
        fresh = left.count(0)
        left = [output - 1 if todo == 0 else todo for todo in left]
        clock += fresh * prefill + tpot
        tokens += fresh + slots
        left = [todo - 1 for todo in left]
    assert serving.shared_throughput(slots, output, prefill, tpot) == close(tokens / clock)
    assert serving.time_to_first_token(3.0, prefill, 2.0) == prefill + 5.0
    alone = serving.request_time(serving.time_to_first_token(0.0, prefill, 0.0), tpot, output)
    assert serving.shared_throughput(1.0, output, prefill, tpot) == close(output / alone)


def test_prefill_and_decode_npus_serve_requests_at_one_rate() -> None:
    ratio = serving.prefill_npus_per_decode_npu(3000.0, 500.0, 6000.0, 1500.0)
    assert ratio * 6000.0 / 3000.0 == close(1500.0 / 500.0)


@quick
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 9))
def test_the_largest_batch_fits_and_one_more_does_not(limit: int, fixed: int, each: int) -> None:
    fits = [b for b in range(1, 61) if fixed + b * each <= limit]
    assert serving.largest_batch(limit, fixed, each) == len(fits)


def test_decode_attention_reads_once_for_all_drafts() -> None:
    token = 2 * 8 * 128 * 2.0
    moved = serving.decode_attention_bytes(3.0, 5.0, token, 4096.0, np.inf, 2.0)
    cache, fresh = np.empty((3, 4096, 2, 8, 128), "f2"), np.empty((3, 2, 2, 8, 128), "f2")
    assert moved == 5 * (cache.nbytes + fresh.nbytes)
    assert serving.decode_attention_bytes(3.0, 5.0, token, 4096.0, 128.0, 2.0) == moved * 130 / 4098
    flops = attention.attention_flops(3 * 2.0, 4096.0, 32.0, 128.0, 128.0)
    intensity = serving.decode_attention_intensity(32.0, 128.0, 128.0, 2.0, token)
    assert intensity == close(flops / cache.nbytes)


def test_a_decode_step_is_between_its_longest_part_and_their_sum() -> None:
    parts = np.random.default_rng(4).uniform(0.0, 1.0, (5, 100))
    time = serving.decode_step_time(*parts)
    assert np.all(np.max(parts, axis=0) <= time) and np.all(time <= np.sum(parts, axis=0))
