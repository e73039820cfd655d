"""The text of every equation, evaluated as it stands, gives what the equation computes."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mc2perf.equations
from mc2perf.equations import serving, steps, training


def equations() -> list[Callable[..., Any]]:
    """Every function with a formula, in all equation files."""
    names = [m.name for m in pkgutil.iter_modules(mc2perf.equations.__path__, "mc2perf.equations.")]
    found = [
        f for name in names for _, f in inspect.getmembers(importlib.import_module(name), inspect.isfunction)
    ]
    return list(dict.fromkeys(f for f in found if hasattr(f, "formula")))


FUNCTIONS: dict[str, Any] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
}


SHARE = st.sampled_from([0.125, 0.25, 0.5, 0.75])
DRAWN = dict.fromkeys(("before", "after", "comm_ratio", "overlappable", "share"), SHARE) | {
    "experts": st.integers(10, 20).map(float)
}
"""Parameters that are shares, or more than others: what to draw for them."""


@pytest.mark.parametrize("equation", equations(), ids=lambda f: f.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_text_of_an_equation_says_what_it_computes(
    equation: Callable[..., Any], data: st.DataObject
) -> None:
    names = list(inspect.signature(equation).parameters)
    values = {name: data.draw(DRAWN.get(name, st.integers(1, 9).map(float)), label=name) for name in names}
    result = equation(**values)
    outputs = result if isinstance(result, tuple) else (result,)
    for text, output in zip(vars(equation)["formula"].split(" ; "), outputs, strict=False):
        expected = eval(text, {"__builtins__": {}}, FUNCTIONS | values)
        assert output == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_decorated_equations_are_found() -> None:
    found = {f.__name__ for f in equations()}
    assert {"two_stage_time", "three_stage_time", "three_stage_separate_time", "launch_queue_time"} <= found


WHOLE_STEPS = [f for f in equations() if f.__module__ in {m.__name__ for m in (steps, training, serving)}]


@pytest.mark.parametrize("equation", WHOLE_STEPS, ids=lambda f: f.__name__)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_text_says_it_for_any_number_and_for_columns(
    equation: Callable[..., Any], data: st.DataObject
) -> None:
    values = {name: data.draw(st.floats(1.0, 50.0)) for name in inspect.signature(equation).parameters}
    values |= {"acceptance": data.draw(st.floats(0.0, 0.99))} if "acceptance" in values else {}
    values |= {"top_k": min(values["top_k"], values["experts"])} if "top_k" in values else {}
    expected = eval(vars(equation)["formula"], {"__builtins__": {}}, FUNCTIONS | values)
    assert equation(**values) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    columns = {name: np.full(3, value) for name, value in values.items()}
    assert equation(**columns) == pytest.approx(np.full(3, expected), rel=1e-9, abs=1e-9)
