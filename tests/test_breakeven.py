"""Break-even: read off by hand, and against single estimates on both sides of every threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mc2perf.api import estimate
from mc2perf.breakingeven import ask_breakeven
from mc2perf.problems import InputError
from mc2perf.studies import breakeven
from mc2perf.studies.breakeven import COLUMNS, HIDDEN, PAYS, BreakEven, as_block


def test_thresholds_by_hand() -> None:
    sizes = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    speedup = np.array([0.0, 0.9, 1.02, 1.0, 1.2, 1.3])
    hidden = np.array([0.0, 0.2, 0.96, 0.5, 0.97, 0.99])
    said = breakeven._read_off(sizes, speedup, hidden)
    assert said == {
        "pays_from": 16.0, "first_gain": 4.0, "dead_zone_from": 1.0, "dead_zone_to": 8.0, "hidden_from": 16.0,
        "best_speedup": 1.3, "best_size": 32.0, "largest_size": 32.0, "worst_speedup": 0.9, "worst_size": 2.0,
    }  # fmt: skip
    never = breakeven._read_off(sizes, np.full(6, 0.9), np.zeros(6))
    assert math.isnan(never["pays_from"]) and math.isnan(never["hidden_from"])
    assert never["dead_zone_to"] == 32.0


OPERATORS: list[tuple[str, dict[str, Any]]] = [
    ("all_gather_matmul", {"n": 4096, "k": 8192, "ranks": 8}),
    ("matmul_all_reduce", {"n": 8192, "k": 4096, "ranks": 8}),
]


@pytest.mark.parametrize(("target", "given"), OPERATORS)
def test_the_thresholds_are_those_of_single_estimates(target: str, given: dict[str, Any]) -> None:
    (answer,) = ask_breakeven(target, given, {}, to="16K")

    def best_cut(m: float) -> tuple[float, float]:
        """Speed-up of the best cut of at least two tiles; the hidden share of the best one."""
        row = estimate(target, schedule="mc2", m=m, **given).rows[-1]
        times = [time for tiles, time in row.curve.items() if tiles > 1]
        return max((row.serial_time / time for time in times), default=0.0), row.hidden_ratio

    speedup, _ = best_cut(answer.pays_from)
    assert speedup >= PAYS
    before, _ = best_cut(answer.dead_zone_to)
    assert before < PAYS
    assert best_cut(answer.best_size)[0] == answer.best_speedup
    assert best_cut(answer.worst_size)[0] == answer.worst_speedup
    if not math.isnan(answer.hidden_from):
        assert best_cut(answer.hidden_from)[1] >= HIDDEN


@pytest.mark.parametrize(
    ("target", "given", "over"),
    [
        ("deepseek-v3", {"ep": 16, "hardware": "atlas_800t_a3"}, "tokens"),
        ("mixtral-8x7b", {"phase": "prefill"}, "batch_size"),
        ("moe_layer", {"n": 2048, "k": 7168, "ranks": 8, "experts_per_rank": 4, "top_k": 8}, "m"),
    ],
)
def test_layers_pay_from_where_their_estimates_do(target: str, given: dict[str, Any], over: str) -> None:
    for answer in ask_breakeven(target, given, {}, over, to="8K"):
        if answer.reason or math.isnan(answer.pays_from):
            continue
        at: dict[str, Any] = {**given, over: answer.pays_from}
        row = estimate(target, schedule=answer.schedule, **at).rows[-1]
        assert row.speedup >= PAYS
        assert answer.dead_zone_to < answer.pays_from or math.isnan(answer.dead_zone_to)


def test_faster_links_pay_later() -> None:
    """With nothing to hide there is nothing to gain: the sign of the effect."""
    slow, fast = (
        ask_breakeven(
            "all_to_all_matmul", {"n": 4096, "k": 7168, "ranks": 8}, {"tiers.node.link_rate": rate}
        )[0]
        for rate in ("10 GB/s", "100 GB/s")
    )
    assert slow.best_speedup > fast.best_speedup


def test_several_machines_stand_side_by_side() -> None:
    machines = ["atlas_800i_a2", "atlas_800t_a3", "h100_sxm"]
    answers = ask_breakeven("all_gather_matmul", {**OPERATORS[0][1], "hardware": ",".join(machines)}, {})
    assert [answer.hardware for answer in answers] == machines
    assert "CANN" in answers[2].reason
    block = as_block(answers)
    assert list(block) == [column.name for column in COLUMNS]
    assert list(block["hardware"]) == machines


def test_every_problem_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ask_breakeven(
            "all_gather_matmul",
            {"n": 1, "k": 1, "tile_cnt": 2, "hardware": "atlas_800i_a2,nope"}, {},
            over="tokens", to="0",
        )  # fmt: skip
    said = "\n".join(caught.value.problems)
    for word in ("over:", "tile_cnt:", "nope", "to:"):
        assert word in said


def test_a_contradiction_is_the_reason() -> None:
    (answer,) = ask_breakeven("all_gather_matmul", {"n": 4096, "k": 4096, "ranks": 3}, {})
    assert isinstance(answer, BreakEven) and "ranks" in answer.reason
