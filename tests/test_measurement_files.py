"""Files of measurements and of held-out values: what may stand in them, and every problem at once."""

# ruff: noqa: E501 - exact lines stand in tables
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mc2perf.measurement import UNITS, Family, Relation, Value, evaluate, numbers
from mc2perf.problems import InputError
from mc2perf.readers.measurements import family_names, load_measurements, read_family, read_values


def problems(call: Any, *args: Any) -> list[str]:
    with pytest.raises(InputError) as refused:
        call(*args)
    return refused.value.problems


@pytest.mark.parametrize(
    "content",
    [
        "T1-04: 700\nG1d-8/up_16: 1.5",
        "# kept apart\n- {id: T1-04, value: 700}\n- {id: G1d-8/up_16, value: 1.5}",
    ],
)
def test_values_are_lines_or_a_list(content: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(content, encoding="utf-8")
    assert read_values(file) == {"T1-04": 700.0, "G1d-8/up_16": 1.5}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "T1-044: 700\nT1-04: many\nT1-08: true\nT1-12: .nan",
            [
                "'T1-044' is no measurement; did you mean 'T1-04'?",
                "T1-04: 'many' is not a number; write one in the unit of the row",
                "T1-08: True is not a number; write one in the unit of the row",
                "T1-12: nan is not a number; write one in the unit of the row",
            ],
        ),
        (
            "- {id: T1-04, value: 1}\n- {id: T1-04, value: 2}\n- 3\n- {id: T1-08}",
            [
                "2: is no measurement; write {id: ..., value: ...}",
                "3: is no measurement; write {id: ..., value: ...}",
                "'T1-04' stands 2 times; keep one",
            ],
        ),
        ("T1-04: 1\nT1-04: 2", ["line 2, column 1: key 'T1-04' stands twice; keep one"]),
        ("- {id: T1-04, value: 1}\n- }", ["line 2, column 3: did not find expected node content"]),
        ("text", ["expected 'key: value' lines, found str"]),
    ],
)
def test_every_problem_of_a_values_file(content: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(content, encoding="utf-8")
    assert problems(read_values, file) == [f"{file}: {line}" for line in expected]


HEAD = "measurements_version: 1\nfamily: X\ntitle: t\nmeasured: m\nmachine: h\nsource: s\n"
ROW = "id: X-1, grade: E, predictable: P1, open: true, level: step, target: moe_layer"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            HEAD.replace("1", "2", 1)
            + f"inputs: {{tp: [1]}}\nrows:\n  - {{{ROW}, grad: E, quantity: time, value: x, unit: ms}}\n  - 3\n",
            [
                "measurements_version: '2' is not known; write 1",
                "inputs.tp: '[1]' is not a number, a word, true or false",
                "rows.1: expected a mapping",
                "rows.0.value: 'x' is not a number; write for example 46.8",
                "rows.0.grad: unknown key; did you mean 'grade'?",
            ],
        ),
        (
            HEAD
            + f"assumed: {{seq_len: 1}}\nrows:\n  - {{{ROW}, inputs: {{sequence_len: 4}}, quantity: time, unit: msec}}\n  - {{{ROW.replace('true', 'false').replace('X-1', 'X-2')}, quantity: time, value: 1, unit: s}}\n",
            [
                "X-1: time: unit 'msec' is unknown; did you mean 'ms'?",
                "X-1: time: is open; write its value",
                "X-1: sequence_len: is no input; did you mean 'seq_len'?",
                "X-2: time: is held out; take its value away",
            ],
        ),
        (
            HEAD
            + f"rows:\n  - {{{ROW}, quantity: time, value: 1, unit: s}}\nrelations:\n  - {{id: r, kind: order, of: ['[X-2] +'], says: s}}\n",
            [
                "r: '[X-2]' is no value of this family; did you mean 'X-1'?",
                "r: '[X-2] +' is not a formula of numbers and [references] (invalid syntax (<unknown>, line 1))",
                "r: an order needs two formulas or more",
            ],
        ),
        (
            HEAD + f"rows:\n  - {{{ROW}}}\n",
            ["X-1: has no quantity; write what was measured, without a value where it is held out"],
        ),
        (
            HEAD
            + f"rows:\n  - {{{ROW}, values: [{{quantity: time, value: 1, unit: s}}, {{quantity: time, value: 2, unit: s}}]}}\n",
            ["X-1: time: stands 2 times; give each value a name"],
        ),
    ],
)
def test_every_problem_of_a_family_file(content: str, expected: list[str]) -> None:
    assert problems(read_family, content, "x.yaml") == [f"x.yaml: {line}" for line in expected]


@pytest.mark.parametrize("sum_", ["1 + 2 * 3", "-(2 - 5) / 4 ** 2", "max(1, 2, 3) - min(4, 5)", "1e-3 * 7"])
def test_formulas_are_python_arithmetic(sum_: str) -> None:
    assert evaluate(sum_, {}) == pytest.approx(eval(sum_))


@pytest.mark.parametrize(
    "bad", ["__import__('os')", "x", "[a].b", "1 if 1 else 2", "True", "1 / 0", "max()", "(1", "max(*[a])"]
)
def test_formulas_are_nothing_else(bad: str) -> None:
    with pytest.raises(ValueError, match="is not a formula"):
        evaluate(bad, {"a": 1.0})


def test_a_relation_that_does_not_hold_says_so() -> None:
    relation = Relation(id="r", kind="identity", of=("[a]", "[b]"), says="equal")
    assert relation.holds({"a": 1.0, "b": 1.02}) is False
    assert replace(relation, within=0.03).holds({"a": 1.0, "b": 1.02}) is True
    assert replace(relation, kind="order").holds({"a": 1.0, "b": 1.02}) is False
    assert replace(relation, kind="sign").holds({"a": 1.0, "b": 0.0}) is False
    assert relation.holds({"a": 1.0}) is None


def test_a_range_stands_for_its_middle() -> None:
    assert Value(quantity="time", unit="us", value=304.6, upper=324.8).si == pytest.approx(314.7e-6)
    assert numbers(load_measurements("C1"))["C1-1"] == pytest.approx(314.7e-6)
    assert UNITS["tokens/s"] == 1.0


def test_every_family_reads_alone() -> None:
    for name in family_names():
        (family,) = load_measurements(name)
        assert isinstance(family, Family) and family.family == name
