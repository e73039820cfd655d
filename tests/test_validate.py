"""Scoring against measurements: errors by hand, every value accounted for, nothing read that is held out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mc2perf import validating
from mc2perf.answer import Row as Result
from mc2perf.api import estimate
from mc2perf.cli.validate import validate as command
from mc2perf.measurement import Family, Plain, Relation, Row, Value
from mc2perf.problems import InputError
from mc2perf.readers.measurements import load_measurements, read_family
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.studies.validate import (
    QUANTITIES,
    Asked,
    Case,
    checks,
    efficiency_of,
    relative_error,
    scored,
    scores,
)
from mc2perf.validating import (
    Validation,
    decode_choices,
    exchange_inputs,
    grouped_matmul_time,
    model_inputs,
    operator_inputs,
    sized,
    validate,
)
from mc2perf.writers.scores import document, to_json, to_text


@pytest.fixture(scope="module")
def everything() -> Validation:
    return validate()


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
        sp=False, pp=2, dp=4, ep=1, schedule="mc2",
    )  # fmt: skip
    row = next(row for row in answer.rows if row.schedule == "mc2")
    assert found.predicted == row.tokens_per_second
    assert found.assumed["hardware"] == "atlas_800t_a2"
    assert found.unpriced == ("gradient_accumulation_fusion",)
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


MODEL = "measurements_version: 1\nfamily: X\ntitle: t\nmeasured: m\nmachine: h\nsource: s\nrows:\n"
ROW = (
    "  - {{id: X-1, grade: E, predictable: P1, open: true, level: step, target: {target},"
    " inputs: {{{inputs}}}"
)
END = ", quantity: {quantity}, value: 1, unit: s{more}}}\n"


def reason_of(target: str, inputs: str, quantity: str = "step_time", more: str = "") -> str:
    text = MODEL + ROW.format(target=target, inputs=inputs) + END.format(quantity=quantity, more=more)
    family = read_family(text, "x.yaml")
    (row,) = family.rows
    return validating._case(family, row, row.values[0], validating._Asking(())).reason


STEP = "hardware: atlas_800t_a2, phase: train, seq_len: 4096, global_batch_size: 16, npus: 8, tp: 8"


@pytest.mark.parametrize(
    ("target", "inputs", "more", "why"),
    [
        ("llama-2-7b", STEP, "", ""),
        ("llama-2-7b", STEP, ", outside: unknowable", "outside: unknowable"),
        ("nothing", STEP, ", needs: {nothing: no sizes}", "needs nothing: no sizes"),
        ("nothing", STEP, "", "target: 'nothing' is no operator"),
        ("llama-2-7b", STEP + ", stage_layers: 1-2", "", "inputs: stage_layers cannot be asked yet"),
        ("llama-2-7b", STEP + ", flash_attention: false", "", "flash_attention False is not what is priced"),
        ("llama-2-7b", STEP + ", pp: 3", "", "npus: 8 do not divide by tp x cp x pp = 24"),
        ("llama-2-7b", STEP + ", dp: 2", "", "npus: 8 are not tp x cp x pp x dp = 16"),
        ("llama-2-7b", STEP + ", micro_batches: 5", "", "global_batch_size: 16 is not that of 5 samples"),
        ("llama-2-7b", STEP + ", experts: 8", "", "llama-2-7b is dense and the row has 8"),
        ("llama-2-7b", STEP + ", num_layers: '4, 8'", "", "'4, 8' is not one number"),
        ("llama-2-7b", STEP.replace(", npus: 8", ""), ", unstated: [dp]", "unstated: dp"),
        ("llama-2-7b", STEP.replace("hardware: atlas_800t_a2, ", ""), "", "unstated: hardware"),
        ("llama-2-7b", STEP.replace("train", "decoding"), "", "phase: 'decoding' is not known"),
        ("llama-2-7b", STEP.replace("800t_a2", "900"), "", "atlas_900"),
        ("llama-2-7b", STEP + ", system: comet", "", "how comet overlaps is none of the schedules"),
        ("matmul_all_reduce", "hardware: atlas_800t_a2, ranks: 8, m: 64, n: 64, k: 64, requests: 1", "",
         "inputs: requests cannot be asked yet"),
        ("moe_layer", "hardware: h800_sxm, ranks: 8, m: 64, n: 64, k: 64, experts: 8, schedule: mc2", "",
         "schedule: mc2: MC2 is part of CANN"),
    ],
)  # fmt: skip
def test_why_not(target: str, inputs: str, more: str, why: str) -> None:
    reason = reason_of(target, inputs, more=more)
    assert (why in reason) if why else not reason


def test_quantities_that_nothing_predicts() -> None:
    assert reason_of("llama-2-7b", STEP, "share") == "quantity: nothing predicts share yet"
    assert reason_of("llama-2-7b", STEP, "tpot") == "quantity: tpot is of decode"
    assert reason_of("llama-2-7b", STEP, "ttft") == "quantity: ttft is of prefill"
    assert reason_of("llama-2-7b", STEP, "speedup").startswith("quantity: speedup of serial over itself")
    assert not reason_of("llama-2-7b", STEP + ", schedule: mc2", "speedup")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"npus": 64, "tp": 8, "pp": 4}, {"dp": 2.0}),
        ({"npus": 16, "dies": 32, "tokens_per_npu": 16384}, {"dp": 32.0, "tokens": 8192.0}),
        ({"tp": 4, "batch_tokens": 3200}, {"dp": 1.0, "tokens": 800.0}),
        ({"tp": 8, "ep": 16}, {"dp": 2.0, "ep": 16}),
        ({"requests": 8, "prompt_len": 1024}, {"batch_size": 8, "seq_len": 1024}),
        ({"tp": 2, "fused_operator": "matmul_all_reduce"}, {"sp": False, "schedule": "mc2"}),
    ],
)
def test_inputs_of_models(question: dict[str, Plain], expected: Mapping[str, Plain]) -> None:
    given = model_inputs({"target": "qwen3-8b", **question})
    assert {name: given[name] for name in expected} == expected


def test_experts_of_operators_are_counted_once() -> None:
    assert operator_inputs({"target": "moe_layer", "ranks": 4, "experts": 8})["experts_per_rank"] == 2.0
    with pytest.raises(InputError, match="are 2 per rank"):
        operator_inputs({"target": "moe_layer", "ranks": 4, "experts": 8, "experts_per_rank": 3})


# --- decode ------------------------------------------------------------------------------------------------


def test_a_row_of_decode_is_what_estimate_says(everything: Validation) -> None:
    """I2-d1 with flags by hand: 64 sequences on each of 256 dies, as copies of experts have the other 64."""
    found = {case.address: case for case in everything.cases}
    answer = estimate(
        "deepseek-r1", hardware="cloudmatrix384", phase="decode", dtype="int8", dp=256, ep=256, batch_size=64,
        context_len=1536, speculative_tokens=1, acceptance=0.7, host="graph", sp=False, schedule="serial",
    )  # fmt: skip
    (row,) = answer.rows
    case = found["I2-d1/tpot"]
    assert case.predicted == row.time_per_output_token == pytest.approx(row.total_time / 1.7)
    assert found["I2-d1/tokens_per_second_per_npu"].predicted == pytest.approx(128 / case.predicted)
    chosen = {"ep": 256.0, "dies": 256.0, "npus": 128.0, "host": "graph", "sp": False}
    assert chosen.items() <= case.assumed.items()


def test_predicted_throughput_is_batch_over_time_per_token(everything: Validation) -> None:
    """The identity of both sources holds on predictions, whatever ranks were left out."""
    found = {case.address: case.predicted for case in everything.cases}
    for name, batch in (("I2-d3", 96), ("I2-d5", 8), ("I3-1", 6144 / 64), ("I3-2", 256 / 64)):
        per = "tokens_per_second_per_npu" if name < "I3" else "tokens_per_second_per_card"
        rate, time = found[f"{name}/{per}"], found[f"{name}/tpot"]
        assert rate and time and rate * time == pytest.approx(batch)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"npus": 160, "dies": 320, "batch_per_npu": 128}, {"batch_size": 64.0, "dp": 320.0}),
        ({"npus": 8, "tp": 4, "batch_per_npu": 6}, {"batch_size": 24.0, "dp": 2.0}),
        ({"tp": 2, "batch_per_die": 3}, {"batch_size": 6.0, "dp": 1.0}),
        ({"dp": 16, "tp": 4, "global_batch_size": 256}, {"batch_size": 16, "dp": 16.0}),
        ({"requests": 5}, {"batch_size": 5, "dp": 1.0}),
        ({"dp": 4, "requests": 5}, {"batch_size": 2}),
        ({"batch_size": 3, "mtp": 2, "mtp_acceptance": 0.5}, {"speculative_tokens": 2.0, "acceptance": 0.5}),
        (
            {"batch_size": 3, "mtp": 1, "tokens_per_request": 2},
            {"acceptance": 1.0, "speculative_tokens": 1.0},
        ),
    ],
)
def test_inputs_of_decode(question: dict[str, Plain], expected: Mapping[str, Plain]) -> None:
    given = model_inputs({"target": "deepseek-v3", "phase": "decode", "context_len": 64, **question})
    assert {name: given[name] for name in expected} == expected
    assert given["context_len"] == 64 and "global_batch_size" not in given and "seq_len" not in given


def test_accepted_drafts_by_roots_of_the_polynomial() -> None:
    """1.44 of 3 drafts: a + a^2 + a^3; and the mean context of tokens 4096 to 4351."""
    given = model_inputs(
        {"target": "deepseek-v3", "phase": "decode", "prompt_len": 4096, "output_len": 256, "batch_size": 1,
         "mtp": 3, "mtp_accepted": 1.44}
    )  # fmt: skip
    (root,) = (r.real for r in np.roots([1.0, 1.0, 1.0, -1.44]) if abs(r.imag) < 1e-9)
    assert given["acceptance"] == pytest.approx(root)
    assert given["context_len"] == pytest.approx(np.mean(range(4096, 4352)), abs=0.5)


@pytest.mark.parametrize("ep", [72, 144, 257, 320])
def test_ranks_that_experts_leave_over(ep: int) -> None:
    found = decode_choices({"ep": ep, "dp": ep, "batch_per_npu": 4}, 1.0, 256)
    most = next(ranks for ranks in range(ep, 0, -1) if 256 % ranks == 0)
    assert found["ep"] == found["dp"] == most
    for kept in ({"ep": ep, "requests": 4, "dp": 1}, {"ep": 64, "batch_per_npu": 4}):
        assert "ep" not in decode_choices(kept, 1.0, 256)


def test_what_a_row_states_is_not_chosen() -> None:
    stated: dict[str, Plain] = {
        "cards": 32, "dp": 16, "tp": 4, "ep": 64, "sp": True, "host": "eager", "attention_dtype": "bf16",
        "kv_dtype": "int8", "global_batch_size": 256,
    }  # fmt: skip
    assert decode_choices(stated, 2.0, 128) == {"dies": 64.0}


SERVED = "hardware: cloudmatrix384, phase: decode, context_len: 64, batch_size: 4, npus: 8, ep: 8"


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (SERVED, ""),
        (
            SERVED + ", mtp: 1, mtp_acceptance: 1, tokens_per_request: 4",
            "tokens_per_request: 4 are not one and 1 drafts",
        ),
        (SERVED + ", mtp: 1", "unstated: mtp_acceptance, on which tpot depends"),
        (SERVED + ", mtp: 1, mtp_accepted: 1.5", "mtp_accepted: 1.5 of 1 drafts"),
        (SERVED + ", mtp: simulated, mtp_acceptance: 0.5", "'simulated' is not one number"),
        (SERVED.replace("context_len", "prompt_len"), "unstated: context_len"),
        (SERVED.replace(", batch_size: 4", ""), "unstated: batch_size"),
        (SERVED.replace("decode", "prefill"), "quantity: tpot is of decode"),
        (SERVED + ", cache_hit_share: 0.5", "inputs: cache_hit_share cannot be asked yet"),
    ],
)
def test_why_decode_is_not_asked(inputs: str, why: str) -> None:
    reason = reason_of("deepseek-v3", inputs, "tpot")
    assert (why in reason) if why else not reason


def test_inputs_of_decode_are_of_decode_only() -> None:
    prefill = SERVED.replace("decode", "prefill") + ", batch_per_npu: 4, mtp: 1"
    assert "batch_per_npu, mtp cannot be asked yet" in reason_of("deepseek-v3", prefill)


def test_naive_time_per_token_by_hand() -> None:
    """A step of 10 s for 2 tokens; the naive one takes 4 / 0.5 + 1 = 9 s for as many."""
    answer = asked(time_per_output_token=5.0)
    assert QUANTITIES["tpot"](answer.naive(0.5)) == pytest.approx(4.5)
    value = Value(quantity="tpot", unit="s", value=4.5)
    assert efficiency_of([case("a", value, answer)]) == pytest.approx(0.5)


# --- parts of an expert layer ------------------------------------------------------------------------------


def test_exchanges_are_those_of_the_layer(everything: Validation) -> None:
    """C2-1 and C3-8 are segments of a layer of any width, and send no faster than their links."""
    found = {case.address: case for case in everything.cases}
    for width in (2048, 4096):
        answer = estimate(
            "moe_layer", hardware="h800_sxm", ranks=8, m=128, k=7168, n=width, top_k=8, experts_per_rank=1,
            dispatch_dtype="fp8", combine_dtype="bf16", schedule="serial",
        )  # fmt: skip
        assert found["C3-8/dispatch"].predicted == answer.rows[0].segments["dispatch"]
        assert found["C3-8/combine"].predicted == answer.rows[0].segments["combine"]
    leaving = 128 * 8 * 7168 * 7 / 8
    assert leaving / 200e9 < (found["C3-8/dispatch"].predicted or 0.0)
    assert "experts" in found["C3-16/dispatch"].reason and found["C2-1/rate"].reason


def test_what_an_exchange_needs() -> None:
    with pytest.raises(InputError, match="unstated: k, ranks"):
        exchange_inputs({"target": "moe_dispatch", "m": 8, "top_k": 8}, load_machine("h800_sxm", (), {}))


def test_grouped_matmul_streams_the_weights_of_experts_with_rows(everything: Validation) -> None:
    """256 experts, 8 of each of 32 tokens: 1 - (31 / 32)^32 of them, drawn without the formula."""
    draws = np.random.default_rng(1)
    touched = np.mean(
        [len({e for _ in range(32) for e in draws.choice(256, 8, replace=False)}) for _ in range(200)]
    )
    found = {case.address: case for case in everything.cases}
    few, all_of_them = (found[f"G1d-1/up_{tokens}"].predicted for tokens in (32, 512))
    assert few and all_of_them and few / all_of_them == pytest.approx(touched / 256, rel=0.05)


@pytest.mark.parametrize(
    ("left", "more", "why"),
    [("top_k", {}, "unstated: top_k"), ("", {"imbalance": 2}, "evenly"), ("", {"dtype": "int4"}, "no peak")],
)
def test_what_a_grouped_matmul_needs(left: str, more: dict[str, Plain], why: str) -> None:
    sizes = {"m": 64, "n": 64, "k": 64, "experts": 8, "experts_per_rank": 8, "top_k": 2}
    given = {name: size for name, size in sizes.items() if name != left}
    with pytest.raises(InputError, match=why):
        grouped_matmul_time({**given, **more}, load_machine("h800_sxm", (), {}))


def test_what_computes_nothing_fits_no_efficiency() -> None:
    """An exchange beside a matmul of 4 / (9 - 1); its own naive time is none."""
    sent = case("a", seconds(2.0), replace(asked(), flops_time=0.0, bytes_time=0.0))
    both = [sent, case("b", seconds(9.0), asked())]
    assert efficiency_of(both) == pytest.approx(0.5)
    assert [one.naive for one in scored(both)] == pytest.approx([0.0, 9.0])


# --- models of other sizes ---------------------------------------------------------------------------------


def test_cut_models_by_hand() -> None:
    """12 of 80 LLaMA layers of 8192 wide and 28672 in the FFN, 8 key heads of 128."""
    cut = sized(load_model("llama-3.1-70b"), {"num_layers": 12})
    layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
    assert cut.parameter_count == 12 * layer + 2 * 128256 * 8192


def test_groups_keep_their_proportion_and_none_is_made_up() -> None:
    gemma = sized(load_model("gemma-2-27b"), {"num_layers": 5})
    assert gemma.num_layers == 5
    deepseek = load_model("deepseek-v3")
    for total, dense in ((4, 1), (10, 0), (2, 2)):
        cut = sized(deepseek, {"num_layers": total, "dense_layers": dense})
        assert (cut.num_layers, cut.num_moe_layers) == (total, total - dense)
        assert all(group.count > 0 for group in cut.layers)
    mixtral = sized(load_model("mixtral-8x7b"), {"dense_layers": 2, "dense_width": 64})
    assert (mixtral.num_layers, mixtral.num_moe_layers) == (32, 30)


def test_head_widths_follow_where_they_do_so_in_the_shipped_model() -> None:
    llama = sized(load_model("llama-2-7b"), {"hidden_size": 2048, "heads": 32})
    assert {(mixer.head_dim, mixer.kv_heads) for mixer in llama.mixers.values()} == {(64, 32)}
    gemma = sized(load_model("gemma-2-27b"), {"hidden_size": 4096, "window": 1024})
    assert {mixer.head_dim for mixer in gemma.mixers.values()} == {128}
    assert {mixer.window for mixer in gemma.mixers.values()} == {0, 1024}


def test_experts_follow_the_row() -> None:
    found = sized(
        load_model("mixtral-8x7b"), {"experts": 16, "expert_width": 64, "top_k": 1, "hidden_size": 8}
    )
    assert found.experts is not None
    e = found.experts
    assert (e.count, e.width, e.top_k, e.payload_width) == (16, 64, 1, 8)
    with pytest.raises(InputError, match="the row none"):
        sized(load_model("mixtral-8x7b"), {"experts": 0})


def test_sizes_of_published_rows_are_those_of_shipped_models() -> None:
    """T1 states every size of 36 shipped models; what `sized` makes of them are these models again."""
    (family,) = load_measurements("T1")
    for row in family.rows:
        model = load_model(row.target)
        assert sized(model, row.question(row.values[0])) == model, row.id


# --- everything that is shipped ----------------------------------------------------------------------------


def test_every_value_is_scored_or_listed_once(everything: Validation) -> None:
    every = Counter(
        f"{row.id}/{value.key}"
        for family in load_measurements()
        for row in family.rows
        for value in row.values
    )
    accounted = Counter(one.case.address for one in everything.scored)
    accounted.update(case.address for case in everything.listed)
    assert accounted == every
    assert set(every.values()) == {1}
    open_rows = {row.id for family in everything.families for row in family.rows if row.open}
    text = to_text(everything.cases, everything.scored, everything.scores, everything.checks, rows=True)
    assert [name for name in open_rows if name not in text] == []


def test_nothing_is_scored_that_is_held_out(everything: Validation) -> None:
    assert all(one.case.row.open for one in everything.scored)
    assert not any(score.held_out for score in everything.scores)
    assert all(case.why_not for case in everything.cases if not case.row.open)


FEW = ("A2", "A3", "I1", "T2", "T4", "T5")


def test_predictions_do_not_look_at_measured_values(
    everything: Validation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values in every row change errors only."""
    changed = tuple(
        replace(
            family,
            rows=tuple(
                replace(row, values=tuple(replace(v, value=7.0, upper=None) for v in row.values))
                for row in family.rows
            ),
        )
        for family in load_measurements()
        if family.family in FEW
    )
    monkeypatch.setattr(validating, "load_measurements", lambda *_: changed)
    other = validate()
    kept = [case for case in everything.cases if case.family in FEW]
    assert [case.predicted for case in other.cases] == [case.predicted for case in kept]
    assert [case.reason for case in other.cases] == [case.reason for case in kept]
    assert other.scored[0].error != everything.scored[0].error


def test_values_of_held_out_rows_are_scored_apart(tmp_path: Path, everything: Validation) -> None:
    """An invented value of twice the predicted one: 50 % below it, and no score of an open row moves."""
    held = next(case for case in everything.cases if case.asked and not case.row.open)
    said = held.predicted
    assert said is not None
    unit = Value(quantity="time", unit=held.value.unit, value=1.0).si
    assert unit is not None
    found = validate(held.family, {held.address: 2.0 * said / unit})
    apart = [score for score in found.scores if score.held_out and score.by == "family"]
    assert [score.values for score in apart] == [1]
    assert apart[0].bias == pytest.approx(-0.5)
    assert [score for score in found.scores if score.by == "family" and not score.held_out] == [
        score for score in everything.scores if score.by == "family" and score.group == held.family
    ]


def test_deterministic() -> None:
    texts = []
    for _ in range(2):
        found = validate("T2")
        texts.append(to_json(found.cases, found.scored, found.scores, found.checks))
    assert texts[0] == texts[1]


# --- the command -------------------------------------------------------------------------------------------


RUN = """
import sys
from mc2perf import cli
from mc2perf.cli.validate import validate
if not any(c.callback is validate for c in cli.app.registered_commands):
    cli.app.command(cls=cli.GroupedHelp)(validate)
cli.main()
"""


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", RUN, "validate", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_command_and_exit_codes(tmp_path: Path) -> None:
    code, out, err = run("--family", "T2", "--rows")
    assert (code, err) == (0, "")
    assert "Families, open values" in out and "T2-a/step_time" in out and "naive:" in out
    bad = tmp_path / "values.yaml"
    bad.write_text("nothing: 1\nT2-a: 1\n", encoding="utf-8")
    code, out, err = run(
        "--family", "T99", "--values", str(bad), "--format", "yaml", "--kernels", str(tmp_path)
    )
    assert (code, out) == (2, "")
    for part in ("--format: 'yaml'", "'nothing' is no measurement", "holds no .csv", "'T99' is unknown"):
        assert part in err


def test_values_that_are_shipped_are_refused(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("T2-a: 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="'T2-a' is open; leave it out, its value is shipped"):
        command(values=str(values))


def test_json_shape_and_held_out_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("- {id: A3-1, value: 5000}\n", encoding="utf-8")
    table = tmp_path / "matmul_bf16.csv"
    table.write_text("m,n,k,time_us\n4096,7168,2048,400\n", encoding="utf-8")
    command(family="A3", values=str(values), kernels=str(table), format="json", rows=False)
    tree = json.loads(capsys.readouterr().out)
    assert list(tree) == [
        "schema_version", "tool", "naive", "scores", "values", "not_scored", "relations", "kernels",
    ]  # fmt: skip
    assert [(one["value"], one["held_out"]) for one in tree["values"]] == [
        ("A3-0/time", False),
        ("A3-1/time", True),
    ]
    assert tree["values"][1]["measured"] == 5e-3
    assert tree["not_scored"] == []
    assert {score["held_out"] for score in tree["scores"]} == {False, True}
    assert {relation["id"] for relation in tree["relations"]} == {"A3-rows", "A3-flop", "A3-weights"}
    assert tree["kernels"][0]["table"] == "matmul_bf16"
    command(family="A3", values=str(values), kernels=str(table), format="table")
    text = capsys.readouterr().out
    assert "Families, held out" in text and "Kernels" in text
