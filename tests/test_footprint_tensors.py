"""What an NPU holds, tensor by tensor."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from footprints import footprint, gpt, model_of, one

HALF, FULL = 2, 4
STATISTICS = 2 * 8 * FULL  # CANN's softmaxMax and softmaxSum, eight wide

Tensor = tuple[tuple[float, ...], int]
"""Shape and bytes of an element."""


def held(*tensors: Tensor) -> float:
    return sum(math.prod(shape) * size for shape, size in tensors)


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
    wide = 2 * 129280 * 7168 + 58 * 7168 * 256  # embedding, head and router keep two bytes
    assert one(int8["weights"]) == deepseek(64)[0] + wide
    assert one(int8["KV cache"]) == one(got["KV cache"])


def test_only_what_is_cut_shrinks_under_tensor_parallelism() -> None:
    """Every rank has routers, latents and, where they meet its own tokens, shared experts."""
    h, expert = 7168, 3 * 7168 * 2048
    everything, routed = deepseek(64)
    got = footprint("deepseek-v3", phase="prefill", ep=64, tp=2)
    copied = 58 * (expert + h * 256) + 61 * h * (1536 + 512 + 64)
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
