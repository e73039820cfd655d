"""Rules of operators: windows by published tables, every row of the rules, verdicts inside estimates."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mc2perf import remarks
from mc2perf.api import estimate
from mc2perf.equations import windows
from mc2perf.rules.catalogue import FAMILIES, OPERATORS, PIECES, SWITCHES, VARIANTS, variants_of
from mc2perf.rules.facts import DERIVED, WINDOWS, Facts
from mc2perf.rules.rule import MultipleOf, OneOf, Rule, Source, Within, Word
from mc2perf.units import MIB

DEEPSEEK = {"local_experts": 16.0, "ep": 16.0, "top_k": 8.0, "hidden_size": 7168.0}
QWEN = {"local_experts": 8.0, "ep": 16.0, "top_k": 8.0, "hidden_size": 4096.0}


@pytest.mark.parametrize(
    ("equation", "sizes", "megabytes"),
    [
        (windows.a3_window_v1, DEEPSEEK, {16: 120, 32: 238, 64: 474, 128: 946, 256: 1890, 512: 3778}),
        (windows.a3_window_v1, QWEN, {16: 37, 32: 73, 64: 143, 128: 285, 256: 567, 512: 1132}),
        (windows.a2_mesh_window, DEEPSEEK, {16: 60, 32: 116, 64: 228, 128: 452, 256: 900}),
        (windows.a2_mesh_window, QWEN, {16: 36, 32: 68, 64: 132, 128: 260, 256: 516}),
        (windows.a3_window_v3, DEEPSEEK | {"shared": 0.0}, {26: 194, 27: 202, 512: 3824}),
    ],
)
def test_windows_of_the_published_table(
    equation: Callable[..., Any], sizes: dict[str, float], megabytes: dict[int, int]
) -> None:
    tokens = np.array(list(megabytes), float)
    assert np.round(equation(tokens, **sizes) / MIB).tolist() == list(megabytes.values())


ALL_SIZES = DEEPSEEK | {
    "tokens": 27.0, "experts": 256.0, "item_size": 2.0, "shared": 1.0, "token_bytes": 14336.0,
    "micro_batch": 2.0, "seq_len": 4096.0, "buffsize": 200 * MIB, "buffers": 4.0, "ranks": 8.0, "rows": 512.0,
    "row_bytes": 900.0, "scale_row_bytes": 28.0,
}  # fmt: skip
FORMULAS = [f for _, f in inspect.getmembers(windows, inspect.isfunction) if hasattr(f, "formula")]


@pytest.mark.parametrize("equation", FORMULAS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("top_k", [6.0, 8.0])
def test_the_text_of_a_window_is_its_value(equation: Any, top_k: float) -> None:
    numbers = {name: ALL_SIZES[name] for name in inspect.signature(equation).parameters}
    if "top_k" in numbers:
        numbers["top_k"] = top_k
    value = eval(equation.formula, {"min": min, "ceil": math.ceil, "__builtins__": {}}, numbers)
    assert equation(**numbers) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("megabytes", [1.0, 200.0, 431.0])
def test_the_largest_batch_is_that_of_counting_up(name: str, megabytes: float) -> None:
    def needed(tokens: float) -> float:
        given = {"m": tokens, "k": 4096.0, "ranks": 16.0, "experts": 128.0, "top_k": 8.0, "dtype": "bf16"}
        return float(WINDOWS[name].needed(Facts(given | {"shared_ranks": 0.0})))

    counted = max((t for t in range(1, 700) if needed(float(t)) <= megabytes), default=0)
    assert windows.largest(lambda tokens: needed(tokens) <= megabytes, 699.0) == counted


# --- rows ----------------------------------------------------------------------------------------------

GIVEN = {
    "ranks", "tiers", "wiring", "needs_rdma", "interleaves", "engine", "cann", "rdma", "hccl_buffsize", "m",
    "handles", "peer_window_min_mb", "peer_window_max_mb", "dtype", "decode", "train", "schedule", "sp", "tp",
    "n", "k", "experts", "experts_per_rank", "top_k", "payload_width", "shared_hidden", "family",
    "shared_ranks", "mega_moe_max_tokens",
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v.operator} {v.version} {v.family}")
def test_every_rule_names_its_source_and_known_facts(variant: Any) -> None:
    assert variant.rules and variant.family in FAMILIES
    for rule in variant.rules:
        assert rule.source.document and rule.source.version
        asked = {*rule.of, *(name for name, _ in rule.when)}
        asked |= {end for end in vars(rule.test).values() if isinstance(end, str)}
        assert asked <= GIVEN | DERIVED.keys() | WINDOWS.keys()


def test_every_operator_says_who_cuts_it_and_where_it_is_offered() -> None:
    assert {name for name in OPERATORS if name not in PIECES} <= {
        "all_to_all_all_gather_batch_matmul",
        "batch_matmul_reduce_scatter_all_to_all",
    }
    assert all(any(variants_of(name, family) for family in FAMILIES) for name in (*OPERATORS, *SWITCHES))
    assert not variants_of("matmul_all_reduce", "a3")


SOURCE = Source("a document", "1")


@pytest.mark.parametrize(
    ("test", "good", "bad", "words"),
    [
        (OneOf((2.0, 4.0)), 4.0, 3.0, "x must be 2 or 4, not 3"),
        (Within(1.0, 8.0), 8.0, 9.0, "x must be 1 to 8, not 9"),
        (Within(most="most"), 7.0, 7.5, "x must be at most 7, not 7.5"),
        (Within(5.0), 5.0, 4.0, "x must be at least 5, not 4"),
        (MultipleOf("most"), 14.0, 15.0, "x must be a multiple of most = 7, not 15"),
        (Word(("bf16", "fp16")), "fp16", "int8", "x must be bf16 or fp16, not int8"),
    ],
)
def test_what_a_test_asks_and_says(test: Any, good: Any, bad: Any, words: str) -> None:
    rule = Rule(of=("x",), test=test, source=SOURCE)
    assert not np.any(rule.broken(Facts({"x": good, "most": 7.0})))
    assert np.all(rule.broken(Facts({"x": bad, "most": 7.0})))
    assert rule.words(Facts({"x": bad, "most": 7.0}), {}) == words


def test_columns_are_judged_row_by_row_and_conditions_hold_back() -> None:
    rule = Rule(of=("x", "y"), test=Within(1.0, 8.0), when=(("z", "on"),), source=SOURCE)
    column = np.array([[1.0], [2.0], [5.0]])
    assert rule.broken(Facts({"x": column, "y": 2.0, "z": "on"})).ravel().tolist() == [False, False, True]
    assert not np.any(rule.broken(Facts({"z": "off"})))


# --- inside estimates ----------------------------------------------------------------------------------

DENSE: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "ranks": 8}


def mc2(target: str, **given: Any) -> Any:
    return estimate(target, schedule="mc2", **given).rows[-1]


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("all_gather_matmul", DENSE, ""),
        ("all_gather_matmul", DENSE | {"k": 128}, ""),  # v2 in AIV mode has no such limit
        ("all_gather_matmul", DENSE | {"k": 128, "hccl_buffsize": 100}, "hccl buffsize must be at least 200"),
        ("all_gather_matmul", DENSE | {"ranks": 3}, "ranks must be 1, 2, 4 or 8, not 3"),
        ("matmul_all_reduce", DENSE | {"hardware": "atlas_800t_a3"}, "is not offered on a3"),
        ("matmul_all_reduce", DENSE | {"n": 65536}, "n must be 1 to 65535, not 65536"),
        ("all_to_all_matmul", DENSE | {"k": 40000}, "k must be 1 to 35000, not 40000"),
        ("all_gather_matmul", DENSE | {"hardware": "h100_sxm"}, "MC2 is part of CANN"),
        ("all_to_all_matmul", DENSE | {"hardware": "ascend_950pr", "dtype": "mxfp8", "k": 2080},
         "k / ranks must be a multiple of 64, not 260"),
    ],
)  # fmt: skip
def test_estimates_refuse_what_the_rules_refuse(target: str, given: dict[str, Any], words: str) -> None:
    row = mc2(target, **given)
    assert words in row.reason and row.legal == (not words)


def test_estimates_warn_of_what_the_rules_call_slow() -> None:
    few = {"m": 64 * 8, "n": 4096, "k": 7168, "ranks": 8, "experts_per_rank": 4, "hardware": "atlas_800t_a3"}
    answer = estimate("all_to_all_v_grouped_matmul", **few)  # type: ignore[arg-type]
    (warning,) = (w for w in answer.warnings if w.code == "PEER_WINDOW")
    assert "MB per peer must be at least 2, not 0.875" in warning.text
    codes = {w.code for w in estimate("mixtral-8x7b", ep=8, nodes=2, cann="8.0", tp=16).warnings}
    assert "CANN_8_0" in codes


def test_decode_does_not_fuse_an_all_reduce() -> None:
    row = mc2("qwen3-32b", phase="decode", tp=8, sp=False, batch_size=8)
    assert row.legal and "runs unfused in decode" in row.reason and row.speedup == 1.0


def test_every_code_that_is_given_is_listed_and_the_other_way_round() -> None:
    """Stable codes of warnings: those that rules carry, and those written where remarks are made."""
    ruled = {rule.code for variant in VARIANTS for rule in variant.rules if rule.code}
    written = set(re.findall(r'Remark\(\s*"(\w+)"', inspect.getsource(remarks)))
    assert ruled | written == remarks.CODES.keys()
    assert set(remarks.ADVICE) <= ruled
