"""``--explain``: every printed formula, evaluated as text with the printed numbers, gives the value."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mc2perf import cli
from mc2perf.answer import Step
from mc2perf.api import estimate
from mc2perf.operators import OPERATORS
from mc2perf.writers.explain import substituted, to_explanation

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "abs": abs,
}
HEAD = re.compile(r"(\d+)\. (.+)  \[([a-z_0-9]+)\]")
SIZES: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "ranks": 8}

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{name}, {schedule}": (name, SIZES | {"schedule": schedule})
        for name, operator in OPERATORS.items()
        for schedule in ("serial", "mc2", "coc")
        if not (operator.grouped and schedule == "coc")
    },
    **{
        f"moe_layer, {schedule}": ("moe_layer", SIZES | {"schedule": schedule, "experts_per_rank": 4})
        for schedule in ("serial", "mc2", "micro_batch", "dual_batch")
    },
    **{
        f"deepseek-v3, {schedule}": ("deepseek-v3", {"schedule": schedule, "ep": 8, "batch_size": 2})
        for schedule in ("serial", "mc2", "micro_batch", "dual_batch")
    },
    "mixtral-8x7b, coc": ("mixtral-8x7b", {"schedule": "coc", "tp": 8}),
    "mixtral-8x7b, two servers": ("mixtral-8x7b", {"nodes": 2, "ep": 8, "skew": 1.5}),
    "qwen3-30b-a3b, across servers": ("qwen3-30b-a3b", {"nodes": 2, "ep": 16, "dispatch_dtype": "int8"}),
    "capacity": ("mixtral-8x7b", {"capacity_factor": 2, "phase": "prefill"}),
    "950": ("all_to_all_matmul", SIZES | {"hardware": "ascend_950pr", "dtype": "mxfp8"}),
    "950dt": ("moe_layer", SIZES | {"hardware": "ascend_950dt", "dtype": "fp8", "experts_per_rank": 4}),
    "h100": ("mixtral-8x7b", {"hardware": "h100_sxm", "dtype": "fp8"}),
    "a3": ("deepseek-v3", {"hardware": "atlas_800t_a3", "ep": 16, "phase": "prefill"}),
    "four ranks": ("matmul_all_reduce", SIZES | {"ranks": 4}),
    "vendor engine": ("matmul_all_reduce", SIZES | {"engine": "vendor_model"}),
    "vendor rule": ("matmul_all_reduce", SIZES | {"matmul_rule": "vendor_model"}),
    "aiv": ("matmul_all_reduce", SIZES | {"engine": "aiv"}),
    "columns": ("all_to_all_matmul", SIZES | {"split_axis": "n", "tile_cnt": 4, "buffers": 1}),
    "contraction": ("all_gather_matmul", SIZES | {"split_axis": "k", "tile_cnt": 2}),
    "warm": ("moe_layer", SIZES | {"l2": "warm", "experts_per_rank": 2, "shared_width": 2048}),
}


def worth(expression: str) -> float:
    """The value of an arithmetic expression; names other than the six functions are an error."""
    tree = ast.parse(expression.strip(), mode="eval")
    assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} <= FUNCTIONS.keys()
    return float(eval(compile(tree, "formula", "eval"), {"__builtins__": {}}, FUNCTIONS))


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Heads and lines of the numbered steps."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if HEAD.fullmatch(line):
            found.append((line, []))
        elif line.startswith("      ") and found:
            found[-1][1][-1] += " " + line.strip()
        elif line.startswith("   ") and found:
            found[-1][1].append(line.strip())
    return found


def check(text: str) -> tuple[int, int]:
    """Evaluate every step; how many had a formula, and how many only the numbers they were given."""
    formulas = bare = 0
    steps = blocks(text)
    assert [int(head.split(".")[0]) for head, _ in steps] == list(range(1, len(steps) + 1))
    for head, lines in steps:
        values = [float(value) for value in lines[-1].removeprefix("= ").split(", ")]
        assert all(map(math.isfinite, values)), head
        if lines[0].startswith("with "):
            bare += 1
            continue
        formula, numbers, _ = lines
        parts = numbers.removeprefix("= ").split(" ; ")
        assert len(formula.split(" ; ")) == len(parts) <= len(values), head
        assert len(parts) == len(values) or "[stretched]" in head or len(values) > len(parts) >= 1, head
        for part, value in zip(parts, values, strict=False):
            assert worth(part) == pytest.approx(value, rel=1e-6, abs=1e-15), (head, part)
        formulas += 1
    return formulas, bare


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_formula_gives_its_value(name: str) -> None:
    target, given = QUESTIONS[name]
    answer = estimate(target, explain=True, **given)
    text = to_explanation(answer)
    formulas, bare = check(text)
    assert formulas + bare == len(answer.steps)
    assert formulas >= 2
    assert formulas > 3 * bare, [step.equation for step in answer.steps if not step.formula]
    best = answer.best
    assert best is not None
    assert f"{best.total_time:.9g} s" in text.splitlines()[-1]


def of_printed(term: float, printed: list[float]) -> bool:
    """Whether a term is a printed value, or a few of them: kernels in a row, or a message sent in parts."""
    few = [sum(some) for count in (1, 2, 3) for some in itertools.combinations(printed, count)]
    parts = [count * value for count in range(2, 9) for value in printed]
    return any(math.isclose(term, value, rel_tol=1e-9) for value in (*few, *parts))


@pytest.mark.parametrize("name", QUESTIONS)
def test_printed_kernels_add_up_to_the_printed_table(name: str) -> None:
    """Terms of a sum are printed above or launches; the sums add up to the table of one layer."""
    target, given = QUESTIONS[name]
    answer = estimate(target, explain=True, **given)
    printed: list[float] = []
    for step in answer.steps[:-1]:
        terms = step.numbers if step.equation == "sum" else {}
        for term, work in terms.items():
            value = float(np.sum(work))
            whole = value + float(np.sum(terms.get(f"launch_of_{term}", 0.0)))
            free = term.startswith("launch_of_") or not value
            assert free or of_printed(value, printed) or of_printed(whole, printed), (step.label, term)
        printed += [float(v) for v in np.ravel(step.value) if 0.0 < v < 1.0]
    best = answer.best
    assert best is not None and answer.steps[-2].label == "all of it, one after the other"
    if best.schedule != "micro_batch":  # its table is of all micro-batches
        assert answer.steps[-2].value == pytest.approx(sum(best.segments.values()), rel=1e-9)


@pytest.mark.parametrize(
    "name", [name for name in QUESTIONS if name.endswith(", mc2") and name.split(",")[0] in OPERATORS]
)
def test_a_fused_kernel_adds_up_to_the_whole_answer(name: str) -> None:
    target, given = QUESTIONS[name]
    answer = estimate(target, explain=True, **given)
    fused = [step for step in answer.steps if step.label.startswith(f"{target}: fused, with launches")]
    best = answer.best
    assert best is not None and len(fused) == (best.schedule == "mc2" and best.pieces > 1)
    for step in fused:
        assert step.value == pytest.approx(best.total_time, rel=1e-9)


def test_lines_fit_on_a_terminal() -> None:
    text = to_explanation(estimate("deepseek-v3", explain=True, schedule="mc2", ep=8))
    assert max(map(len, text.splitlines())) <= 112


def test_the_check_notices_a_wrong_value() -> None:
    text = to_explanation(estimate("matmul_all_reduce", explain=True, **SIZES))
    numbers = next(lines for _, lines in blocks(text))
    with pytest.raises(AssertionError):
        check(text.replace(numbers[-1], "= 1234.5", 1))


def test_names_are_replaced_whole() -> None:
    step = Step(
        label="", equation="", formula="m + mn * m_n", numbers={"m": 1.0, "mn": 2.0, "m_n": 3.0}, value=7.0
    )
    assert substituted(step) == "1 + 2 * 3"


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_command_prints_the_same_text(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["-m", "4096", "-n", "4096", "-k", "4096", "--ranks", "8", "--explain", "--format", form]
    monkeypatch.setattr("sys.argv", ["mc2perf", "estimate", "all_to_all_matmul", *args])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.endswith(
        "\n" + to_explanation(estimate("all_to_all_matmul", explain=True, **SIZES))
    )


def test_rates_that_a_prefill_keeps_up_are_worked_out_once_and_before_they_are_used() -> None:
    given: dict[str, Any] = {
        "hardware": "atlas_800t_a3", "ep": 16, "phase": "prefill", "dtype": "int8"
    }  # fmt: skip
    steps = estimate("deepseek-v3", explain=True, **given).steps
    kept = [(at, step) for at, step in enumerate(steps) if step.equation == "kept_up_rate"]
    assert [(step.label, step.numbers["served"]) for _, step in kept] == [
        ("memory bandwidth that a prefill keeps up", 0.8),
        ("cube peak of int8 that a prefill keeps up", 0.8),
        ("cube peak of bf16 that a prefill keeps up", 0.8),
    ]
    peaks = {step.value: at for at, step in kept[1:]}
    used = [(at, step.numbers["peak"]) for at, step in enumerate(steps) if "peak" in step.numbers]
    assert used and all(peaks[peak] < at for at, peak in used)
    alone = estimate("deepseek-v3", explain=True, **given, set={"cube.served": "1"}).steps
    assert len(alone) == len(steps) - len(kept)


def test_nothing_is_written_down_unless_asked() -> None:
    assert estimate("mixtral-8x7b").steps == ()
