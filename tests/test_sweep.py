"""A sweep: every row is the single estimate, whatever the blocks and processes; filters, ranking, groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.answer import Row
from mc2perf.api import estimate
from mc2perf.columns import RESULTS, dictionary
from mc2perf.problems import InputError
from mc2perf.studies import run
from mc2perf.sweeping import Asked, Ranking, ask_sweep
from mc2perf.table import Block, Words, joined, length

NUMBERS = [c.name for c in RESULTS if not c.name.startswith("flat")]
SINGLE: dict[str, Any] = {"n": 4096.0, "k": 8192.0, "ranks": 8.0}


def asked(target: str, vary: Sequence[str], given: dict[str, Any] | None = None, **ranking: Any) -> Asked:
    return ask_sweep(target, given or {}, {}, vary, Ranking(**ranking))


def rows(question: Asked, **how: Any) -> list[dict[str, Any]]:
    names = [column.name for column in dictionary()]
    names += [column.name for column in question.columns if column.name not in names]
    return records(joined(list(run.blocks(question.sweep, names, **how))))


def records(block: Block) -> list[dict[str, Any]]:
    columns = {n: list(v) if isinstance(v, Words) else v.tolist() for n, v in block.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def same(row: dict[str, Any], single: Row) -> None:
    """To the last bit."""
    assert row["legal"] == ("yes" if single.legal else "no")
    if not single.legal:
        assert all(math.isnan(row[name]) for name in NUMBERS)
        return
    equal = () if single.rest_rows else ("rest_rows", "rest_first")
    for name in NUMBERS:
        value = getattr(single, name)
        if (
            name in ("tokens_per_second", "mfu", "time_per_output_token", "time_to_first_token", *equal)
            and not value
        ):
            assert math.isnan(row[name])
        else:
            assert row[name] == value, name
    assert row["bound"] == single.bound
    assert row["reason"] == single.reason


@cache
def single(target: str, schedule: str, **given: Any) -> Row | None:
    """One estimate of its own; None where the input contradicts itself."""
    try:
        answer = estimate(target, schedule=schedule, **given)
    except InputError:
        return None
    return answer.rows[-1]


OPERATORS = st.sampled_from(
    [
        "all_gather_matmul",
        "matmul_reduce_scatter",
        "matmul_all_reduce",
        "all_to_all_matmul",
        "matmul_all_to_all",
    ]
)
MACHINES = st.sampled_from(["atlas_800i_a2", "atlas_800t_a3", "ascend_950pr", "h100_sxm"])
SIZES = st.lists(
    st.sampled_from([100, 128, 1000, 1024, 4096, 6144, 16384, 65536]), min_size=1, max_size=3, unique=True
)


@given(
    OPERATORS, MACHINES, SIZES, SIZES, st.sampled_from([2, 8, 16]), st.sampled_from(["serial", "mc2", "coc"]),
    st.lists(st.sampled_from([1, 2, 3, 4, 8, 16, 32]), max_size=4, unique=True),
    st.sampled_from(["m", "n", "k"]), st.sampled_from([1, 2, 4]),
)  # fmt: skip
@settings(max_examples=25)
def test_a_row_is_the_single_estimate(
    operator: str, machine: str, ms: list[int], ns: list[int], ranks: int, schedule: str, tiles: list[int],
    axis: str, buffers: int,
) -> None:  # fmt: skip
    fixed = {"k": 8192, "ranks": ranks, "hardware": machine, "split_axis": axis, "buffers": buffers}
    vary = [f"m={','.join(map(str, ms))}", f"n={','.join(map(str, ns))}", f"schedule={schedule}"]
    vary += [f"tile_cnt={','.join(map(str, tiles))}"] if tiles else []
    found = rows(asked(operator, vary, fixed))
    assert len(found) == len(ms) * len(ns) * max(len(tiles), 1)
    for row, (m, n, tile) in zip(
        found, itertools.product(ms, ns, list[int | None](tiles) or [None]), strict=True
    ):
        assert (row["m"], row["n"]) == (m, n)
        alone = single(operator, schedule, m=m, n=n, tile_cnt=tile, **fixed)
        if alone is None:
            assert row["legal"] == "no" and row["reason"]
        else:
            same(row, alone)


@pytest.mark.parametrize("schedule", ["serial", "mc2", "micro_batch", "coc", "dual_batch"])
@pytest.mark.parametrize(
    ("target", "fixed", "vary"),
    [
        ("moe_layer", {"n": 2048, "k": 4096, "ranks": 8, "experts_per_rank": 4}, {"m": [64, 1000, 8192]}),
        ("mixtral-8x7b", {"hardware": "atlas_800t_a3"}, {"seq_len": [512, 4096], "batch_size": [1, 3]}),
        ("mixtral-8x7b", {"tp": 8}, {"batch_size": [1, 4]}),
        ("deepseek-v3", {"phase": "prefill", "ep": 16}, {"tokens": [1024, 6000]}),
    ],
)
def test_a_row_of_layers_is_the_single_estimate(
    target: str, fixed: dict[str, Any], vary: dict[str, list[int]], schedule: str
) -> None:
    texts = [f"{name}={','.join(map(str, values))}" for name, values in vary.items()]
    found = rows(asked(target, [*texts, f"schedule={schedule}"], fixed))
    for row, values in zip(found, itertools.product(*vary.values()), strict=True):
        alone = single(target, schedule, **fixed, **dict(zip(vary, values, strict=True)))
        assert alone is not None
        same(row, alone)


@pytest.mark.parametrize("schedule", ["micro_batch", "mc2"])
def test_asked_micro_batches_are_the_single_estimate(schedule: str) -> None:
    fixed = {"n": 2048, "k": 4096, "ranks": 8, "experts_per_rank": 4}
    found = rows(asked("moe_layer", ["m=512,8192", "micro_batches=1,2,7,600", f"schedule={schedule}"], fixed))
    for row, (m, n) in zip(found, itertools.product((512, 8192), (1, 2, 7, 600)), strict=True):
        alone = single("moe_layer", schedule, m=m, micro_batches=n, **fixed)
        assert alone is not None
        same(row, alone)


GRID = ["hardware=atlas_800i_a2,ascend_950pr", "m=512..4096:512", "n=1024,4096", "tile_cnt=1..9"]


@pytest.mark.parametrize("how", [{"block": 1}, {"block": 7}, {"block": 100}, {"jobs": 2, "block": 13}])
@pytest.mark.parametrize(
    "best_over", [(), ("tile_cnt",), ("m",), ("hardware", "n"), ("m", "tile_cnt", "hardware")]
)
def test_blocks_and_processes_change_nothing(how: dict[str, int], best_over: tuple[str, ...]) -> None:
    question = asked("all_gather_matmul", GRID, {"k": 4096, "ranks": 4}, best_over=best_over)
    assert repr(rows(question)) == repr(rows(question, **how))


@pytest.mark.parametrize(
    "best_over", [("tile_cnt",), ("m",), ("hardware",), ("n", "tile_cnt"), ("hardware", "m")]
)
def test_the_best_of_a_group_is_the_smallest(best_over: tuple[str, ...]) -> None:
    fixed = {"k": 4096, "ranks": 4}
    every = rows(asked("all_gather_matmul", GRID, fixed))
    best = rows(asked("all_gather_matmul", GRID, fixed, best_over=best_over))
    kept = [name for name in ("hardware", "m", "n", "tile_cnt") if name not in best_over]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in every:
        groups.setdefault(tuple(row[name] for name in kept), []).append(row)
    assert len(best) == len(groups)
    for row in best:
        members = groups[tuple(row[name] for name in kept)]
        times = [r["total_time"] for r in members if r["legal"] == "yes"]
        assert row["total_time"] == min(times) if times else row["legal"] == "no"


def test_conditions_come_before_the_best() -> None:
    fixed = {"k": 4096, "ranks": 4}
    condition = "pieces != 4 and comm_ratio > 0"
    every = [
        r for r in rows(asked("all_gather_matmul", GRID, fixed)) if r["pieces"] != 4 and r["comm_ratio"] > 0
    ]
    kept = rows(asked("all_gather_matmul", GRID, fixed, where=[condition]))
    assert repr(kept) == repr(every)
    best = rows(asked("all_gather_matmul", GRID, fixed, where=[condition], best_over=["tile_cnt"]))
    groups = {(r["hardware"], r["m"], r["n"]) for r in every}
    assert len(best) == len(groups)
    for row in best:
        times = [r["total_time"] for r in every if all(r[n] == row[n] for n in ("hardware", "m", "n"))]
        assert row["total_time"] == min(times)


def test_top_rows_are_the_best_of_all() -> None:
    question = asked("all_gather_matmul", GRID, {"k": 4096, "ranks": 4}, by="speedup")
    names = ["m", "speedup", "hardware"]
    best = run.best_rows(run.blocks(question.sweep, names, block=10), 7, "speedup")
    assert best is not None and length(best) == 7
    speedups = sorted((r["speedup"] for r in rows(question) if r["legal"] == "yes"), reverse=True)
    assert np.asarray(best["speedup"]).tolist() == speedups[:7]


def test_what_does_not_fit_stays_with_its_reason() -> None:
    found = rows(asked("matmul_reduce_scatter", ["m=4096,4097", "ranks=2,3,8,64"], {"n": 4096, "k": 4096}))
    by = {(r["ranks"], r["m"], r["schedule"]): r for r in found}
    assert by[(8.0, 4096.0, "mc2")]["legal"] == "yes"
    assert "do not divide" in by[(8.0, 4097.0, "mc2")]["reason"]
    assert by[(3.0, 4096.0, "mc2")]["legal"] == "no"
    assert len(found) == 24


def test_a_planner_gets_both_sides() -> None:
    given = {"target_tokens_per_second": "100000", "price_per_npu_hour": "3.6"}
    row = rows(asked("mixtral-8x7b", ["schedule=serial"], {}, **given))[0]
    rate = row["tokens_per_second"]
    assert row["npus_needed"] == math.ceil(100000 / (rate * 8)) * 8
    assert row["servers_needed"] == row["npus_needed"] / 8
    assert row["cost_per_million_tokens"] == pytest.approx(1e3 / rate)
    alone = row["tokens_per_second_without_comm"]
    assert alone == pytest.approx(4096 / (row["compute_time"] + row["free_time"]))
    assert alone > rate
    assert row["cost_per_million_tokens_without_comm"] < row["cost_per_million_tokens"]


def test_profile_values_are_axes() -> None:
    path = "tiers.node.link_rate"
    found = rows(
        asked("all_gather_matmul", [f"{path}=20GB/s,28GB/s", "schedule=serial"], {**SINGLE, "m": 4096})
    )
    for row, rate in zip(found, ("20GB/s", "28GB/s"), strict=True):
        assert row[path] == rate
        answer = estimate("all_gather_matmul", set={path: rate}, schedule="serial", m=4096, **SINGLE)
        same(row, answer.rows[0])
    assert found[0]["profile_hash"] != found[1]["profile_hash"]


def test_every_problem_of_a_question_at_once() -> None:
    with pytest.raises(InputError) as caught:
        asked(
            "all_gather_matmul", ["hardware=atlas_800i_a3x", "m=1,2"], {}, best_over=["tyle"], by="speed",
            where=["comm_ratoi < 1"], columns="m,nn", top="0",
        )  # fmt: skip
    said = "\n".join(caught.value.problems)
    for word in ("atlas_800i_a3x", "tyle", "speed", "comm_ratoi", "nn", "top"):
        assert word in said


def test_the_rows_of_a_task_add_up() -> None:
    question = asked("all_gather_matmul", GRID, {"k": 4096, "ranks": 4}, best_over=["n"])
    counts = [question.sweep.rows_in(task) for task in question.sweep.tasks(10)]
    assert sum(counts) == question.sweep.rows_evaluated == 2 * 8 * 2 * 9


def test_what_no_row_can_have_is_wrong_input() -> None:
    with pytest.raises(InputError, match="k: is missing"):
        asked("all_gather_matmul", ["m=4096"], {"n": 4096})
    question = asked("mixtral-8x7b", ["ep=3,8"], {"schedule": "serial"})
    legal = {row["ep"]: (row["legal"], row["reason"]) for row in rows(question)}
    assert legal[8.0] == ("yes", "")
    assert legal[3.0][0] == "no"
    assert "do not divide by 3" in legal[3.0][1]


@pytest.mark.parametrize("pipeline", ["1f1b", "zb-h1", "dualpipe"])
def test_micro_batches_of_a_step_lie_down(pipeline: str) -> None:
    """What they hold is a size, and how many there are follows: no number of pieces, for any schedule."""
    step: dict[str, Any] = {
        "hardware": "atlas_800t_a2", "ep": 8.0, "pp": 4.0, "nodes": 4.0, "global_batch_size": 128.0,
        "pipeline": pipeline,
    }  # fmt: skip
    found = rows(asked("mixtral-8x7b", ["micro_batch_size=1,2,4"], step))
    assert {row["schedule"] for row in found} >= {"serial", "micro_batch", "dual_batch"}
    for row in found:
        alone = single("mixtral-8x7b", row["schedule"], micro_batch_size=row["micro_batch_size"], **step)
        if alone is None:
            why = "dualpipe needs at least 2 x pp = 8 micro-batches; write a larger one"
            assert row["legal"] == "no" and why in row["reason"]
        else:
            assert row["legal"] == ("yes" if alone.legal else "no")
            assert math.isnan(row["total_time"]) or row["total_time"] == alone.total_time
