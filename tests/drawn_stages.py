"""Times, counts, buffers and slow-downs of stages as laws are tried on, and how close is equal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

CLOSE = 1e-12
times = st.one_of(st.integers(0, 12).map(float), st.floats(0.0, 1e3).map(lambda t: round(t, 3)))
counts = st.integers(1, 12)
rings = st.integers(1, 8)
factors = st.floats(1.0, 4.0)
quick = settings(max_examples=150, deadline=None)


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=CLOSE, abs=1e-12)
