"""Memory of an NPU: figures that papers print, the fullest stage, laws, rows against columns, words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from footprints import NPU, footprint, gpt, machine_of, model_of, one, quick, study
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.footprint import communicators, footprint_of, shortfall
from mc2perf.machine import Memory
from mc2perf.placement import weights_of_a_rank
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model, model_names
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import study_of
from mc2perf.writers.footprint import to_memory_table

# --- what papers print ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sp", [True, False])
def test_gpt_3_keeps_what_the_paper_says(sp: bool) -> None:
    """Korthikanti et al. 2022, table 2: s b h (10/r + 24/t) with dropout's two mask bytes: 8/r without."""
    s, h, t, layers, pp = 2048, 12288, 8, 96, 8
    got = footprint(
        gpt("gpt-3", layers, h, 96), seq_len=s, tp=t, sp=sp, pp=pp, dp=1, global_batch_size=64,
        recompute="selective",
    )  # fmt: skip
    per_token = layers * s * h * (8 / (t if sp else 1) + 24 / t)  # the first stage holds all layers' worth
    assert one(got["activations"]) == pytest.approx(per_token, rel=1e-12)


def test_mt_nlg_keeps_a_boundary_of_every_layer() -> None:
    """Korthikanti et al. 2022, appendix B: s b h p elements are 2.73 GB for 530B; 3 layers on 35 stages."""
    got = footprint(
        gpt("mt-nlg", 105, 20480, 128), seq_len=2048, tp=8, sp=False, pp=35, dp=1, global_batch_size=280,
        recompute="full",
    )  # fmt: skip
    assert round(one(got["activations"]) / 3 / 2**30, 2) == 2.73


@pytest.mark.parametrize(("shared", "fixed", "split"), [(True, 6.0, 12.0), (False, 18.0, 0.0)])
def test_megatron_s_bytes_per_weight(shared: bool, fixed: float, split: float) -> None:
    """Megatron-LM on its distributed optimizer: 18, or 6 + 12/d bytes per weight."""
    got = footprint("llama-2-7b", nodes=8, global_batch_size=64, distributed_optimizer=shared)
    states = one(got["weights"] + got["gradients"] + got["optimizer"])
    weights = model_of("llama-2-7b").parameter_count
    assert states / weights == pytest.approx(fixed + split / 64, rel=1e-12)


def test_zero_shares_the_optimizer_as_its_figure_says() -> None:
    """Rajbhandari et al. 2020, figure 1: of 7.5B weights on 64 ranks, 12 bytes each / 64 are 1.4 GB."""
    model = gpt("7.5B", 36, 4096, 32, vocab=28672)
    assert model.parameter_count == pytest.approx(7.5e9, rel=5e-3)
    got = footprint(model, nodes=8, global_batch_size=64)
    assert round(one(got["optimizer"]) / 1e9, 1) == 1.4


def test_mixtral_does_not_train_on_a_server_of_64_gb() -> None:
    """46.7B weights x 18 bytes are 841 GB, eight NPUs have 512: no layout of one server can hold them."""
    for tp, ep, pp in [(1, 8, 1), (8, 1, 1), (1, 1, 8), (2, 4, 2), (1, 4, 2), (4, 2, 1), (1, 1, 1)]:
        got = footprint(
            "mixtral-8x7b", nodes=1, tp=tp, ep=ep, pp=pp, global_batch_size=8, recompute="full",
            micro_batch_size=1,
        )  # fmt: skip
        assert not got.fits.any()
        assert one(got.total) > 46.7e9 * 18 / 8
    roomy = footprint(
        "mixtral-8x7b", nodes=4, tp=2, ep=8, pp=4, global_batch_size=64, recompute="full", micro_batch_size=1
    )
    assert roomy.fits.all()


# --- the fullest stage ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab", "batch", "stage"), [(512, 64, 0), (51200, 1, 3)], ids=["in flight", "logits"]
)
def test_the_fullest_stage_is_the_first_or_the_last(vocab: int, batch: int, stage: int) -> None:
    """Many micro-batches fill the first stage; with one of them a wide vocabulary fills the last."""
    got = footprint(gpt("gpt", 8, 1024, 8, vocab), tp=2, pp=4, dp=1, global_batch_size=batch)
    assert one(got.stage) == stage
    word = "the first of 4 stages" if stage == 0 else "the last of 4 stages"
    assert word in shortfall(got)


@pytest.mark.parametrize(("vpp", "chunks"), [(1, 4), (2, 2 * 4 - 1 + 4), (4, 2 * 4 - 1 + 3 * 4)])
def test_interleaving_keeps_more_chunks(vpp: int, chunks: int) -> None:
    plain = footprint(gpt("gpt", 16, 1024, 8), dp=2, global_batch_size=2)
    layer = one(plain["activations"]) / 16
    got = footprint(gpt("gpt", 16, 1024, 8, vocab=512), pp=4, vpp=vpp, dp=1, global_batch_size=64)
    assert one(got["activations"]) == pytest.approx(chunks * 16 / (4 * vpp) * layer, rel=1e-12)


def test_two_batches_half_a_step_apart_keep_both() -> None:
    single, dual = (footprint("llama-2-7b", schedule=name) for name in ("serial", "dual_batch"))
    assert one(dual["activations"]) == 2 * one(single["activations"])
    many, few = (
        footprint("llama-2-7b", pp=2, dp=4, global_batch_size=n, schedule="dual_batch") for n in (64, 8)
    )
    assert one(many["activations"]) == pytest.approx(1.5 * one(few["activations"]), rel=1e-12)


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("target", ["llama-2-7b", "llama-3.1-70b", "mixtral-8x7b"])
def test_a_step_moves_the_weights_that_are_held(target: str, pp: int) -> None:
    """The weights that gradients are exchanged for are those of the fullest stage."""
    asked = study(target, pp=pp, ep=8 if "x" in target else None, nodes=pp, global_batch_size=64 * pp)
    alone = replace(asked, scenario=replace(asked.scenario, recompute="full"))
    assert one(footprint_of(alone)["weights"]) == 2 * sum(weights_of_a_rank(asked))


# --- laws -----------------------------------------------------------------------------------------------

MODELS = ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-next-80b-a3b", "gemma-2-27b"]


@pytest.mark.parametrize("target", MODELS)
@quick
@given(
    batch=st.sampled_from([1, 2, 4]),
    seq=st.sampled_from([1024, 4096, 16384]),
    step=st.booleans(),
    hardware=st.sampled_from([NPU, "atlas_800t_a3", "h100_sxm"]),
)
def test_more_to_keep_is_never_less(target: str, batch: int, seq: int, step: bool, hardware: str) -> None:
    more: dict[str, Any] = {"global_batch_size": 128.0} if step else {}
    for phase in ("train",) if step else ("train", "prefill"):
        base = footprint(target, hardware, phase=phase, batch_size=batch, seq_len=seq, **more)
        wider = footprint(target, hardware, phase=phase, batch_size=2 * batch, seq_len=seq, **more)
        longer = footprint(target, hardware, phase=phase, batch_size=batch, seq_len=2 * seq, **more)
        assert one(wider.total) > one(base.total) and one(longer.total) > one(base.total)
        assert one(wider["weights"]) == one(longer["weights"]) == one(base["weights"])
        if phase == "train":
            assert one(wider["activations"]) == pytest.approx(2 * one(base["activations"]), rel=1e-12)


@pytest.mark.parametrize("target", MODELS)
@quick
@given(batch=st.sampled_from([1, 2]), tp=st.sampled_from([1, 2, 4]), sp=st.booleans(), blocks=st.data())
def test_recompute_keeps_less_the_more_it_repeats(
    target: str, batch: int, tp: int, sp: bool, blocks: st.DataObject
) -> None:
    layers = model_of(target).num_layers
    few = blocks.draw(st.integers(0, layers - 1))
    given_: dict[str, Any] = {"global_batch_size": 64.0, "micro_batch_size": batch, "tp": tp, "sp": sp}
    none, selective, full, some, more, zero, everything = (
        one(footprint(target, recompute=word, **given_).total)
        for word in (
            "none", "selective", "full", f"block:{few}", f"block:{few + 1}", "block:0", f"block:{layers}"
        )
    )  # fmt: skip
    assert full <= selective * (1 + 1e-12) and selective <= none
    assert zero == none and everything == full
    assert full <= more * (1 + 1e-12) and more <= some * (1 + 1e-12)


@pytest.mark.parametrize("layers", [8, 16])
def test_what_doubles_and_what_halves(layers: int) -> None:
    model = gpt("gpt", layers, 2048, 16)
    base = footprint(model, tp=2, dp=2, global_batch_size=8)
    wide = footprint(model, tp=4, dp=2, global_batch_size=8)
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert one(wide[name]) == pytest.approx(one(base[name]) / 2, rel=1e-12)
    deep = footprint(gpt("gpt", 2 * layers, 2048, 16), tp=2, dp=2, global_batch_size=8)
    assert one(deep["activations"]) == 2 * one(base["activations"])
    whole = footprint(model, tp=4, sp=False, dp=2, global_batch_size=8)
    assert one(wide["activations"]) < one(whole["activations"])
    staged = footprint(model, tp=2, pp=2, dp=2, global_batch_size=64)
    assert one(staged["activations"]) == one(base["activations"])  # half the layers, two micro-batches
    ring = footprint(model, tp=2, cp=2, dp=2, global_batch_size=8)
    assert one(ring["activations"]) == one(base["activations"]) / 2
    assert one(ring["optimizer"]) == one(base["optimizer"]) / 2  # context-parallel ranks share it too


@pytest.mark.parametrize("name", model_names())
def test_every_model_holds_something_in_every_phase(name: str) -> None:
    train = footprint(name, nodes=1)
    step = footprint(name, nodes=1, global_batch_size=64)
    prefill = footprint(name, nodes=1, phase="prefill")
    for got in (train, step, prefill):
        assert all(np.isfinite(part.bytes).all() and np.all(part.bytes >= 0) for part in got.parts)
    assert one(step["weights"]) == one(train["weights"]) == one(prefill["weights"])
    assert one(train["optimizer"]) == 0 < one(step["optimizer"])
    assert one(prefill["activations of one layer"]) < one(train["activations"])


# --- columns, communicators, words ----------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["train", "prefill", "step"])
@pytest.mark.parametrize("column", ["batch_size", "seq_len", "tokens"])
def test_columns_give_what_single_rows_give(phase: str, column: str) -> None:
    values = np.array([4096.0, 8192.0, 16384.0]) / (4096.0 if column == "batch_size" else 1.0)
    given_: dict[str, Any] = {"nodes": 2.0, "phase": "train" if phase == "step" else phase}
    if phase == "step":
        given_ |= {"global_batch_size": 256.0, "pp": 2.0, "recompute": "block:4"}
    many = footprint("mixtral-8x7b", **(given_ | {column: values.reshape(-1, 1)}))
    singles = [footprint("mixtral-8x7b", **(given_ | {column: value})) for value in values.tolist()]
    for name in (part.name for part in many.parts):
        expected = [one(single[name]) for single in singles]
        assert np.broadcast_to(many[name], (3, 1))[:, 0].tolist() == expected
    assert many.fits.shape == (3, 1)
    assert np.broadcast_to(many.stage, (3, 1))[:, 0].tolist() == [one(single.stage) for single in singles]


def test_every_group_that_communicates_has_its_buffers() -> None:
    def groups(**given: Any) -> tuple[str, ...]:
        return communicators(study("mixtral-8x7b", **given))

    assert groups() == ("ep",)
    assert groups(tp=2, cp=2, ep=8, nodes=4) == ("tp", "cp", "ep")
    assert groups(tp=2, ep=8, pp=2, nodes=4, global_batch_size=64) == (
        "tp",
        "ep",
        "pp",
        "dp",
        "dp of experts",
    )
    assert groups(ep=8, nodes=1, global_batch_size=64) == ("ep", "dp")
    assert groups(tp=1, ep=1, nodes=1) == ()
    assert groups(hardware="h100_sxm") == ()


def test_it_fits_up_to_the_last_byte() -> None:
    machine = machine_of(NPU)
    total = one(footprint("llama-2-7b", phase="prefill").total)
    for capacity, fits in ((total, True), (np.nextafter(total, 0), False)):
        memory = replace(machine.memory, capacity=capacity)
        assert isinstance(memory, Memory)
        asked = study("llama-2-7b", machine=replace(machine, memory=memory), phase="prefill")
        assert footprint_of(asked).fits.item() is fits


def test_an_operator_has_no_footprint() -> None:
    scenario = Scenario(target="all_gather_matmul", m=1024, n=1024, k=1024)
    asked = study_of(scenario, machine_of(scenario.hardware), None)
    with pytest.raises(InputError, match="memory: is of a model"):
        footprint_of(asked)


def test_the_capacity_is_named_among_the_sources() -> None:
    asked = study("llama-2-7b")
    footprint_of(asked)
    assert "memory.capacity" in asked.costs.ledger.used


def test_the_table_adds_up() -> None:
    got = footprint("mixtral-8x7b", nodes=1, global_batch_size=8)
    text = to_memory_table(got)
    assert text.startswith("Does not fit: ") and "missing" in text and "assumes: flash attention" in text
    cells = [line.split() for line in text.splitlines() if line.endswith("%")]
    sizes = {" ".join(words[:-3]): float(words[-3]) for words in cells}
    total, missing = sizes.pop("total"), sizes.pop("missing")
    assert sum(sizes.values()) == pytest.approx(total, rel=1e-3)
    assert total - missing == pytest.approx(got.capacity / 1e9, rel=1e-3)
    assert "| weights" in to_memory_table(got, style="github")
    assert to_memory_table(footprint("llama-2-7b", phase="prefill")).startswith("Fits: ")


def test_assumptions_say_what_applies() -> None:
    step = " ".join(footprint("mixtral-8x7b", global_batch_size=64, recompute="selective").assumptions)
    assert "1F1B" in step and "softmax statistics only" in step and "shared by dp" in step
    layers = " ".join(footprint("llama-2-7b").assumptions)
    assert "no optimizer" in layers and "1F1B" not in layers and "experts" not in layers
    prefill = " ".join(footprint("llama-2-7b", phase="prefill").assumptions)
    assert "KV cache in bf16" in prefill and "gradients" not in prefill


@pytest.mark.parametrize(("kv_dtype", "size"), [(None, 2.0), ("int8", 1.0)])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_cache_holds_what_came_before(phase: str, kv_dtype: str | None, size: float) -> None:
    """Llama 2 7B: keys and values of 32 heads of 128 in 32 layers, for the context and the new tokens."""
    new: dict[str, Any] = {"seq_len": 1024.0} if phase == "prefill" else {}
    asked = Scenario(
        target="llama-2-7b", phase=phase, batch_size=64.0, context_len=4096.0, kv_dtype=kv_dtype, **new
    )
    held = footprint_of(study_of(asked, load_machine("atlas_800i_a2"), load_model("llama-2-7b")))
    tokens = 64 * (4096 + (1024 if phase == "prefill" else 1))
    assert float(np.asarray(held["KV cache"]).item()) == 2 * 32 * 32 * 128 * size * tokens
