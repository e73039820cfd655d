"""Beside what another simulator says: within a factor, or by a cause that can be switched."""

from __future__ import annotations

import json

import pytest

from mc2perf.api import estimate
from mc2perf.measurement import Row
from mc2perf.readers.measurements import family_names, load_neighbours
from mc2perf.studies.neighbours import FAR, Ratio
from mc2perf.validating import Validation, neighbours
from mc2perf.writers.neighbours import document, to_json, to_text

(FOUND,) = neighbours()
ROWS = {row.id: row for row in FOUND.simulator.rows}

# simulated, not measured (Huawei msmodeling, tests/benchmark/models/cases, A3): step, and its all-to-alls [s]
SIMULATED = {
    "deepseek-v3.1": (64.1e-3, 7.74e-3),
    "glm-4.7": (53.2e-3, 4.27e-3),
    "kimi-k2.5": (1.114, 191e-3),
    "minimax-m2.7": (242e-3, 38.8e-3),
}

# reading whose ratio is far off -> the reading that differs from it by the cause alone
SWITCHED = {
    "deepseek-v3.1-roce": "deepseek-v3.1",
    "deepseek-v3.1-each": "deepseek-v3.1",
    "glm-4.7": "glm-4.7-plain",
    "glm-4.7-each": "glm-4.7-plain",
    "kimi-k2.5-all": "kimi-k2.5",
}
DIFFER = {
    "deepseek-v3.1-roce": {"hardware"},
    "deepseek-v3.1-each": {"requests", "batch_size"},
    "glm-4.7": {"engine"},
    "glm-4.7-each": {"engine", "requests", "batch_size"},
    "kimi-k2.5-all": {"prompt_len"},
}


def ratios(row: str) -> dict[str, Ratio]:
    return {one.case.value.quantity: one for one in FOUND.of(ROWS[row])}


def inputs(row: Row) -> set[tuple[str, object]]:
    return set(row.inputs.items())


def test_every_reading_of_a_deployment_is_of_the_same_numbers() -> None:
    assert {row.target for row in ROWS.values()} == SIMULATED.keys()
    for row in ROWS.values():
        assert tuple(one.simulated for one in FOUND.of(row)) == pytest.approx(SIMULATED[row.target])


def test_both_readings_of_every_deployment_are_asked() -> None:
    assert all(one.case.predicted for one in FOUND.ratios)
    for target in SIMULATED:
        assert len([row for row in ROWS.values() if row.target == target]) >= 2


@pytest.mark.parametrize("row", ROWS)
def test_within_a_factor_or_by_a_cause_that_can_be_switched(row: str) -> None:
    far = {quantity for quantity, one in ratios(row).items() if one.far}
    assert bool(far) == (row in SWITCHED) == bool(ROWS[row].note)
    for quantity in far:
        without = ratios(SWITCHED[row])[quantity].ratio
        assert without is not None and 1.0 / FAR <= without <= FAR
        differ = {name for name, _ in inputs(ROWS[row]) ^ inputs(ROWS[SWITCHED[row]])}
        assert differ == DIFFER[row]


def test_calls_of_kernels_that_wait_against_plain_ones() -> None:
    """Two calls for each of 89 layers: 24 us simulated, as HCCL's curve; the kernels begin at 54 us."""
    calls = 2 * 89
    simulated, kernels, plain = (
        time / calls
        for time in (
            SIMULATED["glm-4.7"][1],
            ratios("glm-4.7")["exchange_time"].case.predicted or 0.0,
            ratios("glm-4.7-plain")["exchange_time"].case.predicted or 0.0,
        )
    )
    assert simulated == pytest.approx(24e-6, rel=0.01)
    assert plain < 1.1 * simulated < 54e-6 < kernels


def test_as_estimate_says() -> None:
    """DeepSeek-V3.1 by hand: 172 requests on 32 ranks are 6 on the fullest, of 4 tokens, 3 drafts."""
    asked = estimate(
        "deepseek-v3", hardware="cloudmatrix384", phase="decode", batch_size=6, dp=32, ep=32,
        context_len=4200, dtype="int8", kv_dtype="int8", attention_dtype="int8", speculative_tokens=3,
        host="graph", sp=False, schedule="serial",
    )  # fmt: skip
    row, found = asked.rows[0], ratios("deepseek-v3.1")
    assert found["step_time"].case.predicted == row.total_time
    assert found["exchange_time"].case.predicted == row.comm_time  # nothing but all-to-alls without tp
    calls = 2 * (58 + 3)
    assert row.comm_time / calls == pytest.approx(7.74e-3 / 122, rel=0.1)


def test_exchanges_leave_out_the_all_reduces() -> None:
    found = ratios("minimax-m2.7")["exchange_time"].case
    assert found.asked is not None and found.predicted is not None
    assert found.predicted < 0.6 * found.asked.result.comm_time


def test_neither_scored_nor_in_a_band(everything: Validation) -> None:
    names = {family.family for family in load_neighbours()}
    assert not names & {case.family for case in everything.cases}
    assert not names & set(family_names())


def test_both_outputs_say_the_same() -> None:
    text, tree = to_text([FOUND]), document([FOUND])
    assert json.loads(to_json([FOUND])) == tree
    assert "neither measures" in text
    for one in tree["neighbours"]:
        assert f"{one['ratio']:.2f}x" in text
        assert bool(one["cause"]) == (not 1.0 / FAR <= one["ratio"] <= FAR)
        assert one["cause"] in text
