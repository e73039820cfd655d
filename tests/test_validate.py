"""Scores by hand: errors, signs, the naive model, relations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mc2perf.answer import Row as Result
from mc2perf.api import estimate
from mc2perf.measurement import Family, Relation, Row, Value
from mc2perf.studies.validate.asked import QUANTITIES, Asked, Case
from mc2perf.studies.validate.relations import checks
from mc2perf.studies.validate.scores import efficiency_of, relative_error, scored, scores
from mc2perf.validating import Validation
from mc2perf.writers.scores import document


def asked(**result: Any) -> Asked:
    """A question whose answer has these numbers; 4 s of FLOPs at peak and 1 s of bytes."""
    given = {"total_time": 10.0, "serial_time": 10.0, "compute_time": 8.0, "speedup": 1.0, **result}
    return Asked(
        result=Result(schedule="serial", **given), ranks=16.0, npus=16.0, cards=8.0, ranks_per_server=8.0,
        machine_peak=3e14, flops_time=4.0, bytes_time=1.0,
    )  # fmt: skip


def case(
    name: str, value: Value, answer: Asked | None, family: str = "X", open: bool = True, **more: Any
) -> Case:
    row = Row(
        id=name, grade="E", predictable="P1", open=open, level="step", target="x", values=(value,)
    )  # fmt: skip
    return Case(family=family, row=row, value=value, asked=answer, **more)


def seconds(value: float | None, **more: Any) -> Value:
    return Value(quantity="time", unit="s", value=value, **more)


# --- errors by hand ----------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    """Predicted 10 s for 8, 20 and 12.5 s: +25 %, -50 %, -20 %."""
    cases = [case(f"r{i}", seconds(value), asked()) for i, value in enumerate((8.0, 20.0, 12.5))]
    found = scored(cases)
    assert [one.error for one in found] == pytest.approx([0.25, -0.5, -0.2])
    # 4 / (8 - 1), 4 / (20 - 1), 4 / (12.5 - 1): the middle one says 12.5 s for all
    assert efficiency_of(cases) == pytest.approx(4.0 / 11.5)
    assert [one.naive for one in found] == pytest.approx([12.5] * 3)
    family = next(score for score in scores(found) if score.by == "family")
    assert (family.group, family.values, family.held_out) == ("X", 3, False)
    assert (family.median, family.worst, family.worst_at) == pytest.approx((0.25, 0.5, "r1/time"))
    assert (family.bias, family.naive_median) == pytest.approx((-0.2, 0.375))
    assert family.naive_worst == pytest.approx(12.5 / 8.0 - 1.0)


def test_naive_fits_rates_as_times_and_leaves_held_out_values_alone() -> None:
    """2000 tokens/s where 1600 are predicted in 10 s are a time of 8 s; the held-out value fits nothing."""
    rate = Value(quantity="tokens_per_second", unit="tokens/s", value=2000.0)
    one = case("a", rate, asked(tokens_per_second=100.0))
    held = case("b", seconds(1000.0), asked(), open=False)
    assert efficiency_of([one, held]) == pytest.approx(4.0 / 7.0)
    first, second = scored([one, held])
    assert (first.predicted, first.naive) == pytest.approx((1600.0, 2000.0))
    assert second.naive == pytest.approx(8.0)
    assert {(score.held_out, score.values) for score in scores([first, second])} == {(False, 1), (True, 1)}


def test_naive_knows_no_communication() -> None:
    naive = asked(comm_time=2.0, exposed_comm_time=2.0, comm_ratio=0.2, speedup=1.3, ceiling=1.4).naive(0.5)
    words = ("time", "comm_time", "exposed_time", "comm_ratio", "speedup", "gain", "max_saving")
    assert [QUANTITIES[word](naive) for word in words] == [9.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert QUANTITIES["relative_throughput"](naive) == 100.0
    assert QUANTITIES["mfu"](asked(mfu=0.36).naive(0.5)) == pytest.approx(0.4)


def test_faster_than_bytes_alone_needs_endless_efficiency() -> None:
    fast = case("a", seconds(0.5), asked())
    assert efficiency_of([fast]) == float("inf")
    assert scored([fast])[0].naive == 1.0
    tree = document([fast], scored([fast]), scores(scored([fast])), [])
    assert {score["efficiency"] for score in tree["scores"]} == {None}


@pytest.mark.parametrize(
    ("measured", "speedup", "wrong"),
    [(1.2, 1.5, False), (1.2, 0.9, True), (0.8, 0.9, False), (0.8, 1.0, False)],
)
def test_signs(measured: float, speedup: float, wrong: bool) -> None:
    """A gain predicted as a loss has the wrong sign; no change at all is only an error."""
    value = Value(quantity="speedup", unit="1", value=measured)
    (found,) = scored([case("a", value, asked(speedup=speedup))])
    assert (found.signed, found.wrong_sign) == (True, wrong)
    assert [score.sign_errors for score in scores([found])] == [int(wrong)] * 4


@pytest.mark.parametrize(
    ("bound", "predicted", "error"),
    [("exact", 12.0, 0.2), ("at_least", 12.0, 0.0), ("at_least", 8.0, -0.2), ("at_most", 12.0, 0.2),
     ("at_most", 8.0, 0.0)],
)  # fmt: skip
def test_bounds(bound: Any, predicted: float, error: float) -> None:
    assert relative_error(predicted, seconds(10.0, bound=bound)) == pytest.approx(error)


def test_ranges_and_nothing_measured() -> None:
    assert relative_error(15.0, seconds(10.0, upper=20.0)) == 0.0
    assert relative_error(-0.1, Value(quantity="gain", unit="1", value=0.0)) == -0.1


def test_relations_on_measured_values_and_on_predictions() -> None:
    """Measured 3 < 5; predicted 10 > 8; what refers to inputs alone predicts nothing."""
    cases = [
        case("a", seconds(3.0), asked(total_time=10.0)),
        case("b", seconds(5.0), asked(total_time=8.0)),
        case("c", seconds(7.0), None, reason="not asked"),
    ]
    rows = tuple(replace(one.row, inputs={"tp": 8}) for one in cases)
    relations = (
        Relation(id="r0", kind="order", of=("[b]", "[a/time]"), says=""),
        Relation(id="r1", kind="order", of=("[c]", "[b]"), says=""),
        Relation(id="r2", kind="identity", of=("[a:tp]", "8"), says=""),
    )
    family = Family(
        family="X", title="", measured="", machine="", source="", rows=rows, relations=relations
    )  # fmt: skip
    found = checks([family], cases)
    assert [(check.measured, check.predicted) for check in found] == [
        (True, False),
        (True, None),
        (True, None),
    ]


def test_quantities_against_their_definitions() -> None:
    """16 dies on 8 cards, 100 tokens/s each; 40 % of a peak of 300 TFLOP/s is 48 % of 250."""
    one = replace(asked(tokens_per_second=100.0, mfu=0.4, speedup=1.25), npus=8.0, peak=2.5e14)
    expected = {
        "tokens_per_second": 1600.0, "tokens_per_second_per_npu": 200.0, "tokens_per_second_per_card": 200.0,
        "tokens_per_second_per_node": 800.0, "mfu": 0.48, "flops_per_npu": 1.2e14, "time_saving": 0.2,
        "time_change": -0.2, "throughput_gain": 0.25, "relative_throughput": 125.0,
    }  # fmt: skip
    assert {name: QUANTITIES[name](one) for name in expected} == pytest.approx(expected)


# --- from rows to questions --------------------------------------------------------------------------------


def test_a_row_is_what_estimate_says(everything: Validation) -> None:
    """T1-01, asked again with flags read off the row by hand."""
    found = {case.address: case for case in everything.cases}["T1-01/tokens_per_second_per_npu"]
    answer = estimate(
        "llama-2-7b", hardware="atlas_800t_a2", seq_len=4096, micro_batch_size=1, global_batch_size=256, tp=1,
        sp=False, pp=2, dp=4, ep=1, schedule="mc2", gradient_accumulation_fusion=False,
        fused_cross_entropy=False,
    )  # fmt: skip
    row = next(row for row in answer.rows if row.schedule == "mc2")
    assert found.predicted == row.tokens_per_second
    assert found.assumed["hardware"] == "atlas_800t_a2"
    assert found.unpriced == ()
    by_hand = 256 * 4096 / 8 / row.total_time
    assert found.predicted == pytest.approx(by_hand)


def test_dies_and_cards_are_counted_as_the_source_does(everything: Validation) -> None:
    """Both sources print throughput of an NPU or card of two dies; a profile's rank is one die."""
    found = {case.address: case for case in everything.cases}
    for address in ("I2-p0/tokens_per_second_per_npu", "T4-4/tokens_per_second_per_card"):
        answer = found[address].asked
        assert answer is not None
        assert found[address].predicted == pytest.approx(2.0 * answer.result.tokens_per_second)


def test_defaults_that_stand_in_are_said(everything: Validation) -> None:
    found = next(case for case in everything.cases if case.address == "T2-b/step_time")
    assert found.assumed == {
        "hardware": "atlas_800t_a2", "dtype": "bf16", "sp": True, "vpp": 1.0, "schedule": "serial",
        "gradient_accumulation_fusion": False, "fused_cross_entropy": False, "dispatcher": "alltoall",
        "fused_permute": False, "grouped_matmul": False, "pad_to_capacity": True,
    }  # fmt: skip


def test_naive_terms_of_a_dense_step_by_hand(everything: Validation) -> None:
    """LLaMA2-7B, 8 NPUs: 6 FLOPs a weight, 6 L s h of attention; half of the weights on each of 2 stages."""
    found = next(case.asked for case in everything.cases if case.address == "T1-01/mfu")
    assert found is not None
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    flops = (6 * weights + 6 * 32 * 4096 * 4096) * 256 * 4096 / 8
    assert found.flops_time * found.machine_peak == pytest.approx(flops, rel=1e-3)
    assert found.peak == 313e12
    assert found.bytes_time == pytest.approx(64 * 2 * (weights + 32000 * 4096) / 2 / 1.6e12, rel=0.02)


def test_naive_terms_of_operators_by_hand(everything: Validation) -> None:
    found = {case.row.id: case.asked for case in everything.cases if case.asked}
    gather, layer = found["A2-0"], found["A3-0"]
    assert gather.flops_time * gather.machine_peak == pytest.approx(2 * 4 * 1024 * 10240 * 5120)
    assert layer.flops_time * layer.machine_peak == pytest.approx(2 * 3 * 2048 * 7168 * 2048)
    assert layer.bytes_time == pytest.approx(3 * 16 * 7168 * 2048 / 1.6e12)


def test_naive_time_per_token_by_hand() -> None:
    """A step of 10 s for 2 tokens; the naive one takes 4 / 0.5 + 1 = 9 s for as many."""
    answer = asked(time_per_output_token=5.0)
    assert QUANTITIES["tpot"](answer.naive(0.5)) == pytest.approx(4.5)
    value = Value(quantity="tpot", unit="s", value=4.5)
    assert efficiency_of([case("a", value, answer)]) == pytest.approx(0.5)


def test_what_computes_nothing_fits_no_efficiency() -> None:
    """An exchange beside a matmul of 4 / (9 - 1); its own naive time is none."""
    sent = case("a", seconds(2.0), replace(asked(), flops_time=0.0, bytes_time=0.0))
    both = [sent, case("b", seconds(9.0), asked())]
    assert efficiency_of(both) == pytest.approx(0.5)
    assert [one.naive for one in scored(both)] == pytest.approx([0.0, 9.0])
