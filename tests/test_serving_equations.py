"""Tokens of a decode step with drafts."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations import serving

quick = settings(max_examples=80, deadline=None)


@quick
@given(st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 1e-6).map(lambda x: 1 - x)), st.integers(0, 6))
def test_tokens_per_step_over_every_outcome(a: float, drafts: int) -> None:
    """Every draft is accepted or not; those before the first refusal count, and the token after them."""
    expected = 0.0
    for outcome in itertools.product([True, False], repeat=drafts):
        chance = math.prod(a if yes else 1 - a for yes in outcome)
        expected += chance * (1 + [*outcome, False].index(False))
    assert serving.tokens_per_step(a, drafts) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@quick
@given(st.floats(0.0, 1.0), st.integers(0, 9))
def test_one_chance_for_all_drafts_is_the_geometric_sum(a: float, drafts: int) -> None:
    value = serving.tokens_per_step(a, drafts)
    assert value == pytest.approx(sum(a**i for i in range(drafts + 1)), rel=1e-12)
    assert 1.0 <= value + 1e-12 <= drafts + 1 + 2e-12
