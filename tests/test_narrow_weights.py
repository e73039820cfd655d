"""4-bit weights beside 8-bit rows: what is read, by hand; what computes and travels as int8; free drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mc2perf.answer import Answer, Row
from mc2perf.api import estimate
from mc2perf.evaluate import estimate as evaluate
from mc2perf.operators import DTYPES, PAYLOADS
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.scenario import Scenario

KIMI: dict[str, Any] = {
    "hardware": "atlas_800t_a3", "phase": "decode", "tp": 4, "dp": 4, "ep": 16, "batch_size": 4,
    "context_len": 4096, "host": "graph", "sp": False, "schedule": "serial",
}  # fmt: skip
BYTES = 0.5 + 2.0 / 32.0  # of a weight: 4 bits, and a 16-bit scale for 32 of them


def asked(dtype: str, target: str = "kimi-k2.5", explain: bool = False, **how: Any) -> Answer:
    return estimate(target, explain=explain, dtype=dtype, **{**KIMI, **how})


def row(*args: Any, **how: Any) -> Row:
    return asked(*args, **how).rows[0]


def steps(answer: Answer) -> dict[str, float]:
    return {step.label: float(step.value) for step in answer.steps if isinstance(step.value, float)}


def test_a_step_reads_the_experts_it_touches_at_4_bits_and_their_scales() -> None:
    """16 rows of 8 of 384 experts, 24 on a die: those that some token chose, gate and up of 2048 x 7168."""
    wide, narrow = (steps(asked(dtype, explain=True)) for dtype in ("int8", "w4a8"))
    touched = 24.0 * (1.0 - (1.0 - 8.0 / 384.0) ** 16)
    assert narrow["ffn1: weights"] == pytest.approx(touched * 2 * 2048 * 7168 * BYTES)
    assert narrow["ffn1: weights"] / wide["ffn1: weights"] == pytest.approx(BYTES)
    same = ("ffn1: computing", "ffn1: rows in and out", "ffn2: computing", "shared ffn1: weights")
    assert [narrow[name] for name in same] == [wide[name] for name in same]


def test_only_routed_experts_are_narrow_and_everything_travels_as_int8() -> None:
    wide, narrow = row("int8"), row("w4a8")
    faster = {name for name in wide.segments if narrow.segments[name] < wide.segments[name]}
    assert faster == {"ffn1", "ffn2"}
    assert {n: t for n, t in narrow.segments.items() if n not in faster} == {
        n: t for n, t in wide.segments.items() if n not in faster
    }
    assert narrow.comm_time == wide.comm_time
    assert 1.0 < wide.segments["ffn1"] / narrow.segments["ffn1"] < 1.0 / BYTES


def test_a_long_prefill_gains_nothing_that_its_cubes_do_not_wait_for() -> None:
    how: dict[str, Any] = {"phase": "prefill", "context_len": None, "batch_size": 8, "seq_len": 16384}
    wide, narrow = row("int8", **how), row("w4a8", **how)
    assert 1.0 <= wide.total_time / narrow.total_time < 1.02
    assert wide.mfu == pytest.approx(narrow.mfu, rel=0.02)


def test_a_dense_model_has_all_its_weights_narrow() -> None:
    how: dict[str, Any] = {"target": "qwen3-32b", "tp": 8, "dp": 1, "ep": 1}
    wide, narrow = row("int8", **how), row("w4a8", **how)
    matmuls = {"attention in", "attention out", "ffn1", "ffn2"} & wide.segments.keys()
    assert matmuls
    assert all(narrow.segments[name] < wide.segments[name] for name in matmuls)
    assert narrow.segments["attention"] == wide.segments["attention"]


def test_memory_by_hand() -> None:
    """60 layers of 384 experts of three matrices, over 16 dies; a dense model: all but two tables."""
    wide, narrow = (asked(dtype).memory for dtype in ("int8", "w4a8"))
    assert wide is not None and narrow is not None
    routed = 60 * 384 * 3 * 2048 * 7168 / 16
    assert wide.parts["weights"] - narrow.parts["weights"] == pytest.approx((1.0 - BYTES) * routed)
    assert {n: s for n, s in wide.parts.items() if n != "weights"} == {
        n: s for n, s in narrow.parts.items() if n != "weights"
    }
    dense = asked("w4a8", "qwen3-32b", tp=8, dp=1, ep=1).memory
    assert dense is not None
    qwen = load_model("qwen3-32b")
    tables = 2.0 * qwen.vocab_size * qwen.hidden_size
    assert dense.parts["weights"] * 8 == pytest.approx((qwen.parameter_count - tables) * BYTES + tables * 2.0)


def test_what_is_computed_wide_is_kept_wide() -> None:
    """Router, embedding, head, and in a decode step what absorbs keys and values; all else in 8 bits."""
    h, latent, heads = 7168, 512, 64
    whole = load_model("kimi-k2.5").parameter_count
    routed = 60 * 384 * 3 * 2048 * h
    wide = 60 * h * 384 + 2 * 163840 * h + 61 * latent * heads * (128 + 128)
    alone = asked("int8", tp=1, dp=16).memory
    assert alone is not None
    assert alone.parts["weights"] == pytest.approx(whole - routed * 15 / 16 + wide)


@pytest.mark.parametrize(("ranks", "each", "shared"), [(384, 1, 32), (400, 1, 16), (64, 6, 16), (64, 7, 16)])
def test_a_rank_of_shared_experts_alone_keeps_8_bits(ranks: int, each: int, shared: int) -> None:
    """One routed expert of 4 bits takes less than the shared one of 8; six of them take more."""
    layout: dict[str, Any] = {"tp": 1, "dp": None, "ep": ranks + shared, "nodes": (ranks + shared) / 16}
    layout |= {"redundant_experts": ranks * each - 384} if ranks * each > 384 else {}
    held = asked("w4a8", **layout, shared_expert_ranks=shared).memory
    alone = asked("w4a8", tp=1, dp=16).memory  # 24 routed experts and the shared one
    assert held is not None and alone is not None
    of_rank = max(each * BYTES, 1.0) - (24 * BYTES + 1.0)
    assert held.parts["weights"] - alone.parts["weights"] == pytest.approx(of_rank * 60 * 3 * 2048 * 7168)


@pytest.mark.parametrize("hardware", profile_names())
def test_operators_are_never_slower_and_their_payload_is_int8(hardware: str) -> None:
    """Where memory is the roof and where it is not, on every machine whose cube has int8."""
    for m in (16.0, 16384.0):
        ask: dict[str, Any] = {"hardware": hardware, "m": m, "n": 4096.0, "k": 7168.0, "schedule": "serial"}
        try:
            wide, narrow = (estimate("all_gather_matmul", dtype=dtype, **ask) for dtype in ("int8", "w4a8"))
        except InputError as error:
            assert "int8" in str(error)  # what the cube lacks, in its own words
            continue
        assert narrow.resolved["payload_dtype"] == "int8"
        assert narrow.rows[0].comm_time == wide.rows[0].comm_time
        assert narrow.rows[0].compute_time <= wide.rows[0].compute_time
        if m < 100.0 and hardware == "atlas_800t_a3":  # others are held up by what their blocks fill
            assert narrow.rows[0].compute_time < wide.rows[0].compute_time


def test_an_expert_layer_as_an_operator() -> None:
    ask: dict[str, Any] = {
        "hardware": "atlas_800t_a3", "m": 64.0, "n": 2048.0, "k": 7168.0, "experts_per_rank": 16.0,
        "ranks": 16.0, "top_k": 8.0, "shared_width": 2048.0, "schedule": "serial",
    }  # fmt: skip
    wide, narrow = (estimate("moe_layer", dtype=dtype, **ask).rows[0] for dtype in ("int8", "w4a8"))
    assert {n for n, t in narrow.segments.items() if t != wide.segments[n]} == {"ffn1", "ffn2"}


def test_refused_where_it_means_nothing() -> None:
    with pytest.raises(InputError, match="w4a8 are served, not trained"):
        asked("w4a8", phase="train", context_len=None)
    for name in ("dispatch_dtype", "combine_dtype", "kv_dtype", "attention_dtype"):
        with pytest.raises(InputError, match=f"{name}: 'w4a8' is not known"):
            estimate("kimi-k2.5", **{**KIMI, name: "w4a8"})
    assert "w4a8" not in PAYLOADS and set(DTYPES) - set(PAYLOADS) == {"w4a8"}


def test_it_says_what_it_takes_for_granted() -> None:
    said = " ".join(asked("w4a8").assumptions)
    assert "4-bit weights of routed experts alone; a 16-bit scale for 32 of them; widened to int8" in said
    assert "w4a8" not in " ".join(asked("int8").assumptions)
    assert "4-bit weights of its matmuls" in " ".join(asked("w4a8", "qwen3-32b", ep=1).assumptions)


# --- drafts that cost nothing ------------------------------------------------------------------------------


def test_looked_up_drafts_leave_out_the_layers_that_make_them() -> None:
    """What a draft costs does not hang on how many there are; with none both are the same."""
    made, found = (
        [row("int8", speculative_tokens=n, speculative_method=how).total_time for n in (1, 3)]
        for how in ("mtp", "ngram")
    )
    assert 0.0 < made[0] - found[0] == pytest.approx((made[1] - found[1]) / 3.0)
    alone = row("int8").total_time
    assert alone < found[0] < found[1] < made[1]


def test_drafts_are_of_decode() -> None:
    for how, said in (
        ({"speculative_method": "ngram"}, "speculative_method: is of drafts"),
        ({"speculative_method": "ngram", "phase": "prefill", "context_len": None}, "is of decode"),
        ({"speculative_method": "eagle", "speculative_tokens": 1}, "'eagle' is not known"),
    ):
        with pytest.raises(InputError, match=said):
            asked("int8", **how)


# --- communication by group --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["serial", "micro_batch"])
def test_traffic_by_group_adds_up(schedule: str) -> None:
    answer = asked("w4a8", schedule=schedule).rows[-1]
    assert answer.traffic.keys() == {"tp", "ep"}
    assert sum(comm for comm, _ in answer.traffic.values()) == pytest.approx(answer.comm_time)
    assert sum(bare for _, bare in answer.traffic.values()) == pytest.approx(answer.exposed_comm_time)
    segments = answer.segments
    if schedule == "serial":
        assert answer.traffic["ep"][0] == pytest.approx(60 * (segments["dispatch"] + segments["combine"]))


@pytest.mark.parametrize("kept", ["fp16", "bf16"])
def test_types_that_a_cube_does_not_have_are_told(kept: str) -> None:
    """Attention of its own type; gate and head of an 8-bit model on a cube that has no bf16."""
    machine = load_machine("atlas_800t_a2")
    cube = replace(machine.cube, peak={name: machine.cube.peak[name] for name in (kept, "int8")})
    question = Scenario(target="mixtral-8x7b", phase="decode", ep=8.0, dtype="int8", attention_dtype="fp8")
    with pytest.raises(InputError) as refused:
        evaluate(question, replace(machine, cube=cube), load_model("mixtral-8x7b"))
    attention, *gate = refused.value.problems
    assert attention == f"attention_dtype: the cube of atlas_800t_a2 has no fp8; write one of {kept}, int8"
    no_bf16 = (
        "dtype: gate and head stay in bf16 in int8; the cube of atlas_800t_a2 has none; did you mean 'fp16'?"
    )
    assert gate == ([no_bf16] if kept == "fp16" else [])
