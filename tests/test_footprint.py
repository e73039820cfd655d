"""Memory of an NPU: tensors listed one by one, figures that papers print, laws, rows against columns."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.footprint import Footprint, communicators, footprint_of, shortfall
from mc2perf.machine import Machine, Memory
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.placement import weights_of_a_rank
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model, model_names
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of
from mc2perf.writers.footprint import to_memory_table

NPU = "atlas_800t_a2"
quick = settings(max_examples=15, deadline=None)
model_of, machine_of = cache(load_model), cache(load_machine)

Tensor = tuple[tuple[float, ...], int]
"""Shape and bytes of an element."""


def held(*tensors: Tensor) -> float:
    return sum(math.prod(shape) * size for shape, size in tensors)


def study(target: str | Model, hardware: str = NPU, machine: Machine | None = None, **given: Any) -> Study:
    model = model_of(target) if isinstance(target, str) else target
    scenario = Scenario(target=model.name, hardware=hardware, **given)
    return study_of(scenario, machine or machine_of(hardware), model)


def footprint(target: str | Model, hardware: str = NPU, **given: Any) -> Footprint:
    return footprint_of(study(target, hardware, **given))


def one(number: Any) -> float:
    return float(np.asarray(number).item())


def gpt(name: str, layers: int, hidden: int, heads: int, vocab: int = 51200) -> Model:
    mixer = Attention(
        kind="softmax", heads=heads, kv_heads=heads, head_dim=hidden // heads, v_head_dim=hidden // heads
    )
    return Model(
        name=name, source="test", hidden_size=hidden, vocab_size=vocab, matrices=2, dense_width=4 * hidden,
        layers=(LayerGroup(count=layers, mixer="full", ffn="dense"),), mixers={"full": mixer},
    )  # fmt: skip


# --- tensor by tensor -----------------------------------------------------------------------------------

HALF, FULL = 2, 4
STATISTICS = 2 * 8 * FULL  # CANN's softmaxMax and softmaxSum, eight wide


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_llama_tensor_by_tensor(tp: int) -> None:
    """Llama 3.1 8B, two stages, four micro-batches: the first stage has two of them in flight."""
    s, h, f, heads, kv, d, v, layers = 4096, 4096, 14336, 32, 8, 128, 128256, 32 // 2
    got = footprint("llama-3.1-8b", tp=tp, pp=2, dp=4, global_batch_size=16)
    weights = [
        (h, heads * d), *[(h, kv * d)] * 2, (heads * d, h), *[(h, f)] * 2, (f, h)
    ]  # fmt: skip
    parameters = (layers * sum(math.prod(w) for w in weights) + v * h) / tp
    layer = held(
        *[((s / tp, h), HALF)] * 4,  # inputs of norm, QKV, norm, gate and up
        *[((s, heads * d / tp), HALF)] * 2, *[((s, max(kv / tp, 1) * d), HALF)] * 2,  # Q, output, K, V
        ((s, heads / tp), STATISTICS),
        *[((s, f / tp), HALF)] * 3,  # gate, up, product
    )  # fmt: skip
    assert one(got["weights"]) == pytest.approx(2 * parameters, rel=1e-12)
    assert one(got["gradients"]) == pytest.approx(4 * parameters, rel=1e-12)
    assert one(got["optimizer"]) == pytest.approx(12 * parameters / 4, rel=1e-12)
    assert one(got["activations"]) == pytest.approx(2 * layers * layer, rel=1e-12)
    assert one(got.stage) == 0 and one(got["logits or a layer computed again"]) == 0
    groups = 2 + (tp > 1)  # pp and dp
    assert one(got["communication windows"]) == groups * 2 * 200 * 2**20
    assert one(got.total) == pytest.approx(sum(one(part.bytes) for part in got.parts), rel=1e-12)


def test_mixtral_tensor_by_tensor() -> None:
    """Mixtral 8x7B, an expert on each of 8 NPUs: experts have no second copy that shares their optimizer."""
    s, h, f, kv, v, layers, experts, top_k = 4096, 4096, 14336, 1024, 32000, 32, 8, 2
    got = footprint("mixtral-8x7b", nodes=1, ep=8, global_batch_size=8)
    dense = layers * (2 * h * h + 2 * h * kv + h * experts) + 2 * v * h
    routed = layers * 3 * h * f
    assert dense + 8 * routed == pytest.approx(46.7e9, rel=1e-3)  # the model card
    assert one(got["weights"]) == 2 * (dense + routed)
    assert one(got["optimizer"]) == 12 * (dense / 8 + routed)
    rows = s * top_k
    layer = held(
        *[((s, h), HALF)] * 4, *[((s, h), HALF)] * 2, *[((s, kv), HALF)] * 2, ((s, 32), STATISTICS),
        ((s, experts), FULL),  # router
        *[((rows, h), HALF)] * 2, *[((rows, f), HALF)] * 3,  # of the expert: input, output, gate, up, product
    )  # fmt: skip
    assert one(got["activations"]) == layers * layer
    logits = held(*[((s, h), HALF)] * 2, ((s, v), FULL))
    assert one(got["logits or a layer computed again"]) == logits


def deepseek(ep: int) -> tuple[float, float]:
    """Weights of DeepSeek-V3 on a rank: everything, and the routed experts of it."""
    h, heads, q, kv, rope, nope, value, v = 7168, 128, 1536, 512, 64, 128, 128, 129280
    mla = (
        h * q + q * heads * (nope + rope) + h * (kv + rope) + kv * heads * (nope + value) + heads * value * h
    )
    expert = 3 * h * 2048
    routed = 58 * 256 * expert / ep
    return 61 * mla + 3 * 3 * h * 18432 + 58 * (expert + h * 256) + 2 * v * h + routed, routed


def test_deepseek_v3_in_training_tensor_by_tensor() -> None:
    s, h, heads, q, kv, layers = 4096, 7168, 128, 1536, 512, 61
    got = footprint("deepseek-v3", ep=64, global_batch_size=64)
    everything, routed = deepseek(64)
    assert deepseek(1)[0] == pytest.approx(671e9, rel=1e-3)  # arXiv 2412.19437
    assert one(got["gradients"]) == 4 * everything
    assert one(got["optimizer"]) == 12 * ((everything - routed) / 64 + routed)
    mixer = held(
        *[((s, h), HALF)] * 4, *[((s, q), HALF)] * 2, *[((s, kv), HALF)] * 2,
        *[((s, heads, 192), HALF)] * 2, *[((s, heads, 128), HALF)] * 2, ((s, heads), STATISTICS),
    )  # fmt: skip
    moe = held(
        ((s, 256), FULL), *[((s * 8, h), HALF)] * 2, *[((s * 8, 2048), HALF)] * 3, *[((s, 2048), HALF)] * 3
    )
    dense = held(*[((s, 18432), HALF)] * 3)
    assert one(got["activations"]) == layers * mixer + 58 * moe + 3 * dense


def test_deepseek_v3_prefill_tensor_by_tensor() -> None:
    """The cache of a token is 70 272 bytes ("Insights into DeepSeek-V3", ISCA 2025, table 1)."""
    got = footprint("deepseek-v3", "atlas_800t_a3", phase="prefill", ep=64, batch_size=2)
    assert one(got["weights"]) == 2 * deepseek(64)[0]
    assert one(got["KV cache"]) == 2 * 4096 * 70272
    assert [part.name for part in got.parts][1:3] == ["KV cache", "activations of one layer"]
    int8 = footprint("deepseek-v3", "atlas_800t_a3", phase="prefill", ep=64, batch_size=2, dtype="int8")
    tables = 2 * 129280 * 7168  # embedding and head keep two bytes
    assert one(int8["weights"]) == deepseek(64)[0] + tables
    assert one(int8["KV cache"]) == one(got["KV cache"])


def test_only_what_is_cut_shrinks_under_tensor_parallelism() -> None:
    """Router and, beside expert parallelism, shared experts meet a rank's own tokens: every rank has them."""
    h, expert = 7168, 3 * 7168 * 2048
    everything, routed = deepseek(64)
    got = footprint("deepseek-v3", phase="prefill", ep=64, tp=2)
    copied = 58 * (expert + h * 256)
    assert one(got["weights"]) == 2 * ((everything - routed - copied) / 2 + copied + routed)


@pytest.mark.parametrize(("target", "tokens"), [("mistral-7b", 4096), ("llama-3.1-8b", 32768)])
def test_a_window_bounds_the_cache(target: str, tokens: int) -> None:
    got = footprint(target, phase="prefill", seq_len=32768)
    assert one(got["KV cache"]) == 32 * 2 * 8 * 128 * 2 * tokens


def test_a_linear_mixer_keeps_a_state_whatever_the_length() -> None:
    model = model_of("qwen3-next-80b-a3b")
    short, long = (one(footprint(model, phase="prefill", seq_len=n)["KV cache"]) for n in (4096, 8192))
    full = sum(g.count for g in model.layers if g.mixer and model.mixers[g.mixer].kind == "softmax")
    softmax = next(m for m in model.mixers.values() if m.kind == "softmax")
    token = full * softmax.kv_heads * (softmax.head_dim + softmax.v_head_dim) * 2
    assert long - short == 4096 * token
    linear = next(m for m in model.mixers.values() if m.kind == "linear")
    state = (48 - full) * linear.heads * linear.head_dim * linear.v_head_dim * 4
    assert short - 4096 * token == state
    cut = one(footprint(model, phase="prefill", seq_len=4096, tp=2)["KV cache"])
    assert cut == short / 2


@pytest.mark.parametrize(("tp", "ep"), [(1, 8), (2, 1), (2, 8), (4, 4)])
def test_a_gated_hybrid_tensor_by_tensor(tp: int, ep: int) -> None:
    """Qwen3-Next: 36 gated linear mixers, 12 gated attentions, experts cut by ep or else by tp."""
    s, h, experts, top_k, f = 4096, 2048, 512, 10, 512
    got = footprint("qwen3-next-80b-a3b", nodes=1, tp=tp, ep=ep, seq_len=s)
    row, wide = s / tp, [((s, 32 * 128 / tp), HALF)]
    linear = held(*[((s, 16 * 128 / tp), HALF)] * 2, *wide * 4)  # Q, K; V, output, gate, their product
    full = held(*[((s, 16 * 256 / tp), HALF)] * 4, *[((s, max(2 / tp, 1) * 256), HALF)] * 2)
    full += held(((s, 16 / tp), STATISTICS))
    rows, etp = (row * top_k, 1) if ep > 1 else (s * top_k, tp)
    moe = held(
        *[((row, h), HALF)] * 4, ((row, experts), FULL), *[((row, 512), HALF)] * 3,
        *[((rows, h), HALF)] * 2, *[((rows, f / etp), HALF)] * 3,
    )  # fmt: skip
    assert one(got["activations"]) == pytest.approx(48 * moe + 36 * linear + 12 * full, rel=1e-12)
    projections = 36 * (h * (2 * 2048 + 4096) + 2 * h * 4096) + 12 * (3 * h * 4096 + 2 * h * 512)
    shared, routed = 3 * h * f, 3 * h * f * experts
    cut = projections + 2 * 151936 * h + (48 * shared if ep == 1 else 0)
    whole = 48 * (h * experts + (shared if ep > 1 else 0))
    weights = cut / tp + whole + 48 * routed / (ep if ep > 1 else tp)
    assert one(got["weights"]) == pytest.approx(2 * weights, rel=1e-12)


def test_layers_of_one_part_keep_half_the_residual_path() -> None:
    """Nemotron 3 Super: a layer mixes or feeds forward; experts work on a latent width of 1024."""
    s, h, latent, rows = 4096, 4096, 1024, 4096 * 22
    got = footprint("nemotron-3-super-120b", ep=8, nodes=1, seq_len=s)
    path = held(*[((s, h), HALF)] * 2)
    linear = held(*[((s, 8 * 128), HALF)] * 2, *[((s, 128 * 64), HALF)] * 4)
    full = held(*[((s, h), HALF)] * 2, *[((s, 256), HALF)] * 2, ((s, 32), STATISTICS))
    moe = held(
        ((s, 512), FULL), ((s, latent), HALF), *[((s, 5376), HALF)] * 2,
        *[((rows, latent), HALF)] * 2, *[((rows, 2688), HALF)] * 2,
    )  # fmt: skip
    assert one(got["activations"]) == 88 * path + 40 * linear + 8 * full + 40 * moe


@pytest.mark.parametrize("cp", [1, 2])
def test_compressed_keys_and_a_factored_output_tensor_by_tensor(cp: int) -> None:
    """DeepSeek-V4-Flash: beside a window of 128 tokens, one key per 4 or per 128 tokens is cached."""
    s = 8192
    prefill = footprint("deepseek-v4-flash", nodes=1, phase="prefill", seq_len=s, cp=cp)
    mine = s / cp
    tokens = 2 * 128 + 21 * (mine / 4 + 128) + 20 * (mine / 128 + 128)
    # 21 layers keep a key of 128 for their indexer beside each of the 512
    assert one(prefill["KV cache"]) == tokens * (512 + 512) * 2 + 21 * mine / 4 * 128 * 2
    wide, tp = footprint("deepseek-v4-flash", nodes=1, seq_len=s, tp=2, ep=8, sp=False), 2
    mixer = held(
        *[((s, 4096), HALF)] * 4, *[((s, 1024), HALF)] * 2, *[((s, 64 * 512 / tp), HALF)] * 2,
        *[((s, 512), HALF)] * 2, ((s, 8 * 1024 / tp), HALF), ((s, 64 / tp), STATISTICS),
    )  # fmt: skip
    own, rows = s / tp, s / tp * 6
    moe = held(
        ((own, 256), FULL), *[((own, 2048), HALF)] * 3, *[((rows, 4096), HALF)] * 2,
        *[((rows, 2048), HALF)] * 3,
    )  # fmt: skip
    # queries of 64 index heads, two series of keys with gates, a weight for each head: whole on each rank
    index = held(((s, 64 * 128), HALF), ((s, 4 * 128), HALF), ((s, 64), HALF))
    assert one(wide["activations"]) == pytest.approx(43 * (mixer + moe) + 21 * index, rel=1e-12)


def test_latents_are_cut_with_the_sequence_and_unfolded_for_every_head() -> None:
    """The same layer, whichever number of key-value heads its latent attention is written with."""
    model = model_of("deepseek-v2-lite")
    ((name, mixer),) = model.mixers.items()
    single = replace(model, mixers={name: replace(mixer, kv_heads=1)})
    base, cut, uncut, same = (
        one(footprint(m, nodes=1, tp=tp, ep=8, sp=sp)["activations"])
        for m, tp, sp in ((model, 1, True), (model, 2, True), (model, 2, False), (single, 1, True))
    )
    assert same == base == 2 * cut
    path, latents = 4 * 2048, 2 * (mixer.q_lora_rank + mixer.kv_lora_rank)
    assert uncut - cut == 27 * 4096 * (path + latents) * HALF / 2


def test_picked_keys_are_all_cached() -> None:
    got = footprint("deepseek-v3.2", phase="prefill", seq_len=16384, ep=64)
    assert one(got["KV cache"]) == 16384 * (70272 + 61 * 128 * 2)
    windowed = model_of("deepseek-v3.2")
    mixers = {name: replace(mixer, window=128) for name, mixer in windowed.mixers.items()}
    both = footprint(replace(windowed, mixers=mixers), phase="prefill", seq_len=16384, ep=64)
    assert one(both["KV cache"]) == one(got["KV cache"])


def test_tied_embeddings_are_one_table_on_one_stage_and_two_on_two() -> None:
    table = 256000 * 4608
    layers = 46 * (3 * 4608 * 36864 + 2 * 4608 * 4096 + 2 * 4608 * 2048)
    alone = footprint("gemma-2-27b", nodes=1, global_batch_size=8)
    assert one(alone["weights"]) == 2 * (layers + table)
    staged = footprint("gemma-2-27b", nodes=1, pp=2, global_batch_size=8)
    assert one(staged["weights"]) == 2 * (layers / 2 + table)
    last = footprint("gemma-2-27b", nodes=1, pp=2, dp=1, global_batch_size=1, recompute="full")
    assert (one(last.stage), one(last["weights"])) == (1, 2 * (layers / 2 + table))


def test_a_layer_computed_again_has_its_input_already() -> None:
    """Full recompute of one layer needs what the layer keeps without it, not its input twice."""
    s, h, vocab = 4096, 2048, 512
    model = gpt("gpt", 1, h, 16, vocab)
    none, full = (footprint(model, nodes=1, global_batch_size=8, recompute=word) for word in ("none", "full"))
    again = "logits or a layer computed again"
    assert one(full["activations"]) == s * h * HALF
    assert one(full["activations"] + full[again]) == one(none["activations"])
    assert one(none[again]) == held(*[((s, h), HALF)] * 2, ((s, vocab), FULL))


def test_prefill_computes_the_logits_of_the_last_tokens_only() -> None:
    vocab = 4_000_000
    got = footprint(gpt("gpt", 2, 64, 2, vocab), phase="prefill", batch_size=4)
    assert one(got["activations of one layer"]) == held(*[((4, 64), HALF)] * 2, ((4, vocab), FULL))


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
