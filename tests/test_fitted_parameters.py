"""Which numbers are fitted and which stay at their base: what is said of them does not contradict itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mc2perf.studies.calibrate.parameters import Fitted, Parameter, fit_parameters

RATE = 1e11
SIZE = np.geomspace(1e6, 3e7, 24)


def fitted(launch: float, base: float, noise: float = 0.05, seed: int = 1) -> Fitted:
    """Times of a launch and a rate; the base knows another launch."""
    time = (launch + SIZE / RATE) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(SIZE)))

    def number(name: str, value: float, symbol: str) -> Parameter:
        def change(machine: Any, x: float) -> Any:
            return {**machine, name: x}

        return Parameter(name, change, value, 0.0, np.inf, symbol, lambda *_: (), value)

    numbers = [number("rate", 0.8 * RATE, "B/s"), number("launch", base, "s")]
    machine: Any = {"rate": RATE, "launch": base}

    def predict(m: Any) -> Any:
        return m["launch"] + SIZE / m["rate"]

    return fit_parameters(machine, numbers, predict, time)


def test_a_wide_interval_that_shuts_the_base_out_is_a_finding() -> None:
    """Between 0.4 and 2 us or so: whatever it is, it is not the base's 30 us."""
    found = fitted(launch=1e-6, base=30e-6, seed=0)
    launch = next(value for value in found.values if value.name == "launch")
    assert not found.left and launch.high < 30e-6
    assert launch.high - launch.value > 0.5 * launch.value


def test_a_wide_interval_around_the_base_leaves_it() -> None:
    found = fitted(launch=1e-6, base=1.5e-6, seed=0)
    assert [left.partition(":")[0] for left in found.left] == ["launch"]
    assert "anything from 541.7 ns to 1.918 us would do" in found.left[0]


@pytest.mark.parametrize("seed", [2, 3])
def test_a_base_just_outside_is_left_in_words_that_hold(seed: int) -> None:
    """The fit with the base's value is about as good: said so, not that only other values would do."""
    found = fitted(launch=1e-6, base=1.5e-6, seed=seed)
    (left,) = found.left
    assert "the base's 1.5 us fits about as well" in left and "would do" not in left
