"""What of a row can be asked, and what it is asked with: models, operators, decode, parts, sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from mc2perf.api import estimate
from mc2perf.measurement import Plain
from mc2perf.problems import InputError
from mc2perf.readers.measurements import load_measurements, read_family
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.validating import Validation, case_of
from mc2perf.validating.asking import Asking
from mc2perf.validating.decode import decode_choices
from mc2perf.validating.inputs import model_inputs, operator_inputs, prefill_choices
from mc2perf.validating.parts import engine_of_mode, grouped_matmul, part_alone
from mc2perf.validating.sizes import sized

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
    return case_of(family, row, row.values[0], Asking(())).reason


STEP = "hardware: atlas_800t_a2, phase: train, seq_len: 4096, global_batch_size: 16, npus: 8, tp: 8"


@pytest.mark.parametrize(
    ("target", "inputs", "more", "why"),
    [
        ("llama-2-7b", STEP, "", ""),
        ("llama-2-7b", STEP, ", outside: unknowable", "outside: unknowable"),
        ("nothing", STEP, ", needs: {nothing: no sizes}", "needs nothing: no sizes"),
        ("nothing", STEP, "", "target: 'nothing' is no operator"),
        ("llama-2-7b", STEP + ", disaggregated: true", "", "inputs: disaggregated cannot be asked yet"),
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


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"tp": 4, "dp": 4, "requests": 5, "prompt_len": 8000}, {"batch_size": 2}),
        ({"tp": 8, "ep": 16, "requests": 2, "prompt_len": 3538}, {"batch_size": 1, "prompt_len": 3544}),
        ({"tp": 8, "cp": 2, "batch_size": 4, "requests": 4, "prompt_len": 10}, {"prompt_len": 12}),
        ({"tp": 4, "requests": 3, "prompt_len": 64}, {}),
        ({"tp": 4, "dp": 4, "requests": 5, "prompt_len": 7, "tokens": 100}, {}),
    ],
)
def test_choices_of_prefill(question: dict[str, Plain], expected: Mapping[str, Plain]) -> None:
    """Requests are of all replicas, the fullest is asked; the ranks that share its tokens have whole ones."""
    assert prefill_choices(question) == expected
    given = model_inputs({"target": "deepseek-v3", "phase": "prefill", **question, **expected})
    if "tokens" not in question:
        tokens = float(given["batch_size"]) * float(given["seq_len"])
        assert tokens % (float(question["tp"]) * float(question.get("cp", 1))) == 0.0


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
        ({"batch_size": 3, "tokens_per_request": 4}, {"acceptance": 1.0, "speculative_tokens": 3.0}),
    ],
)
def test_inputs_of_decode(question: dict[str, Plain], expected: Mapping[str, Plain]) -> None:
    given = model_inputs({"target": "deepseek-v3", "phase": "decode", "context_len": 64, **question})
    assert {name: given[name] for name in expected} == expected
    assert given["context_len"] == 64 and "global_batch_size" not in given and "seq_len" not in given


def test_drafts_that_no_layer_makes_cost_nothing() -> None:
    """Several tokens of a request are drafts; who makes them is a layer only where the row says so."""
    tokens = {"tokens_per_request": 4, "cards": 4}
    assert decode_choices(tokens, 2.0, 64)["speculative_method"] == "ngram"
    for question in ({**tokens, "mtp": 3}, {"cards": 4}, {"cards": 4, "tokens_per_request": 1}):
        assert "speculative_method" not in decode_choices(question, 2.0, 64)


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
        (SERVED + ", tokens_per_request: 2", "unstated: mtp_acceptance, on which tpot depends"),
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


# --- parts of an expert layer ------------------------------------------------------------------------------


def test_exchanges_are_those_of_the_layer(everything: Validation) -> None:
    """C3-8 are segments of a layer of any width; its rate counts every copy, also the one that stays."""
    found = {case.address: case for case in everything.cases}
    for width in (2048, 4096):
        answer = estimate(
            "moe_layer", hardware="h800_sxm", ranks=8, m=128, k=7168, n=width, top_k=8, experts_per_rank=1,
            dispatch_dtype="fp8", combine_dtype="bf16", schedule="serial", engine="ep_low_latency",
        )  # fmt: skip
        assert found["C3-8/dispatch"].predicted == answer.rows[0].segments["dispatch"]
        assert found["C3-8/combine"].predicted == answer.rows[0].segments["combine"]
    assert (found["C3-8/dispatch"].predicted or 0.0) > 128 * 8 * 7168 * 7 / 8 / 200e9
    time, rate = (found[f"C2-1/{name}"].predicted for name in ("time", "rate"))
    assert time and rate and time * rate == pytest.approx(128 * 8 * (7168 + 4))


def test_a_rate_counts_a_copy_for_each_server_that_gets_one(everything: Validation) -> None:
    """C4-3: 2.92 of 4 servers hold a token's experts; three of four of these copies cross at 43.5 GB/s."""
    found = {case.address: case for case in everything.cases}["C4-3/dispatch"]
    assert found.predicted == pytest.approx(50e9 * 0.87 * 4 / 3, rel=0.02)
    assert found.asked and found.asked.exchanged == pytest.approx(4096 * 2.93 * (7168 + 4), rel=0.005)


def test_both_exchanges_take_their_sum() -> None:
    machine = load_machine("h800_sxm", (), {})
    asked: dict[str, Plain] = {"m": 128, "k": 7168, "top_k": 8, "ranks": 8, "mode": "low_latency"}
    one, other, both = (
        part_alone({**asked, "target": name}, machine)
        for name in ("moe_dispatch", "moe_combine", "moe_dispatch_combine")
    )
    assert both == pytest.approx([a + b for a, b in zip(one, other, strict=True)])
    assert engine_of_mode({"mode": "low_latency"}, machine) == "ep_low_latency"
    assert engine_of_mode({"mode": "low_latency", "engine": "nccl"}, machine) == "nccl"
    assert engine_of_mode({"mode": "normal"}, load_machine("atlas_800t_a3", (), {})) is None


def test_what_an_exchange_needs() -> None:
    machine = load_machine("h800_sxm", (), {})
    asked: dict[str, Plain] = {"target": "moe_dispatch", "m": 8, "top_k": 8}
    with pytest.raises(InputError, match="unstated: k, ranks"):
        part_alone(asked, machine)
    with pytest.raises(InputError, match="experts, on which the copies"):
        part_alone({**asked, "k": 64, "ranks": 8, "mode": "normal"}, machine)


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
    [
        ("top_k", {}, "unstated: top_k"),
        ("", {"skew": "zipf:1"}, "evenly"),
        ("", {"dtype": "int4"}, "no peak"),
    ],
)
def test_what_a_grouped_matmul_needs(left: str, more: dict[str, Plain], why: str) -> None:
    sizes = {"m": 64, "n": 64, "k": 64, "experts": 8, "experts_per_rank": 8, "top_k": 2}
    given = {name: size for name, size in sizes.items() if name != left}
    with pytest.raises(InputError, match=why):
        grouped_matmul({**given, **more}, load_machine("h800_sxm", (), {}))


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
