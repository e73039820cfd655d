"""Sparse attention: an indexer computed number by number, figures by hand, limits, laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cached_passes import cache_of_sequence, decode, prompt, small
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mc2perf.api import estimate
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.attention import cache_time
from mc2perf.equations.sparse import gather_time, top_k_bytes
from mc2perf.machine import Machine
from mc2perf.model import Attention, Indexer, Model
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.workload.decode import Cache, cached_layers
from mc2perf.workload.keys import cache_of_layer, keys_picked, keys_read, keys_scored, keys_seen
from mc2perf.workload.layer import LayerParts, layers_of
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import Segment, all_segments

quick = settings(max_examples=25, deadline=None)
A3 = load_machine("atlas_800t_a3")
INDEX = ("index queries", "index keys", "index scores", "index top-k")
LATENT = Attention(
    kind="mla", heads=3, kv_heads=3, head_dim=12, v_head_dim=6, q_lora_rank=10, kv_lora_rank=16,
    rope_head_dim=4, top_keys=4, indexer=Indexer(heads=2, head_dim=5),
)  # fmt: skip


def with_mixers(model: Model, **changed: Any) -> Model:
    return replace(model, mixers={name: replace(m, **changed) for name, m in model.mixers.items()})


def layout_of(sequences: Any, new_tokens: Any = 1.0, tp: float = 1.0, **how: Any) -> Layout:
    plain: dict[str, Any] = {
        "ep": 1.0, "servers": 1.0, "logit_rows": 1.0, "dtype": "bf16", "expert_dtype": "bf16", "sp": False,
        "dispatch_dtype": "bf16", "combine_dtype": "bf16", "attention_dtype": "bf16", "capacity_factor": None,
    }  # fmt: skip
    return Layout(tokens=sequences * new_tokens / tp, seq_len=new_tokens, tp=tp, **plain | how)


def passed(model: Model, layout: Layout, over: Cache | None, machine: Machine = A3) -> list[LayerParts]:
    costs = Costs(machine, Ledger())
    return layers_of(costs, model, layout) if over is None else cached_layers(costs, model, layout, over)


def first_layer(model: Model, layout: Layout, over: Cache | None, machine: Machine = A3) -> list[Segment]:
    parts = passed(model, layout, over, machine)[0].forward
    return [segment for part in parts for segment in all_segments(part)]


def written(model: Model, layout: Layout, over: Cache | None, backward: bool = False) -> dict[str, float]:
    """Every equation of the first layer, by label."""
    ledger = Ledger(recording=True)
    costs = Costs(A3, ledger)
    layers = layers_of(costs, model, layout) if over is None else cached_layers(costs, model, layout, over)
    ledger.steps.clear()
    for part in layers[0].backward if backward else layers[0].forward:
        all_segments(part)
    return {step.label: float(np.asarray(step.value).item()) for step in ledger.steps}


def of(segments: list[Segment], *names: str) -> float:
    return float(sum(np.sum(s.cost.time) for s in segments if s.name in names))


# --- a step computed number by number


RANDOM = np.random.default_rng(11)


def some(*shape: int) -> NDArray[Any]:
    return RANDOM.normal(size=shape)


def picked_keys(
    mixer: Attention, low: NDArray[Any], token: NDArray[Any], keys: NDArray[Any]
) -> tuple[Any, int]:
    """Equation 1 of DeepSeek-V3.2, multiplication by multiplication: which keys, and FLOPs of the scores."""
    assert mixer.indexer is not None
    heads, width = mixer.indexer.heads, mixer.indexer.head_dim
    queries = (low @ some(low.size, heads * width)).reshape(heads, width)
    weights = token @ some(token.size, heads)
    scores, flops = np.zeros(len(keys)), 0
    for s, key in enumerate(keys):
        for j in range(heads):
            scores[s] += weights[j] * max(float(queries[j] @ key), 0.0)
            flops += 2 * width
    return np.argsort(scores)[::-1][: mixer.top_keys], flops


@pytest.mark.parametrize("context", [0, 2, 3, 4, 30])
@pytest.mark.parametrize("new", [1, 3])
def test_number_by_number(context: int, new: int) -> None:
    """Queries and keys that meet, token by token; a sequence reads no more keys than are counted."""
    cached, flops, pairs = some(context + new, 5), 0, 0
    read: set[int] = set()
    for i in range(new):
        picks, made = picked_keys(LATENT, some(10), some(32), cached[: context + i + 1])
        flops, pairs, read = flops + made, pairs + len(picks), read | set(picks.tolist())
    counted = written(small(LATENT), layout_of(1.0, float(new)), decode(float(context)))
    assert counted["index scores: FLOPs"] == pytest.approx(flops)
    assert counted["attention: FLOPs"] == pytest.approx(pairs * 3 * 2 * (20 + 16))
    keys = float(keys_read(LATENT, float(context), float(new)))
    # keys that not all new tokens see count for those that do
    assert min(len(read), context + (new + 1) / 2) <= keys <= pairs
    assert counted["index scores: cache"] == pytest.approx((context + (new + 1) / 2) * 5 * 2)
    assert counted["index queries: FLOPs"] == 2 * new * 10 * 2 * 5
    assert counted["index keys: FLOPs"] == 2 * new * 32 * (5 + 2)
    assert counted["index top-k: bytes"] == pytest.approx(flops / (2 * 2 * 5) * 4 * 3)


def test_deepseek_by_hand() -> None:
    """DeepSeek-V3.2: 64 index heads of 128 meet all of 65536 keys, 128 heads 2048 latents for each query."""
    b, context, q = 2, 65536, 4
    model, layout = load_model("deepseek-v3.2"), layout_of(float(b), float(q), ep=128.0, servers=8.0)
    counted = written(model, layout, decode(float(context)))
    mean = context + 2.5
    assert counted["index queries: weights"] == 2 * 1536 * 64 * 128
    assert counted["index keys: weights"] == 2 * 7168 * (128 + 64)
    assert counted["index scores: FLOPs"] == 2 * b * q * mean * 64 * 128
    assert counted["index scores: cache"] == b * mean * 128 * 2
    assert counted["index top-k: bytes"] == b * q * mean * 12
    assert counted["attention: FLOPs"] == 2 * b * q * 2048 * 128 * (576 + 512)
    # four queries of a sequence pick apart
    rate = A3.memory.bandwidth * A3.kernels.decode_attention.memory_efficiency
    moved = b * q * 2048 * 576 * 2
    assert counted["attention: reading"] == pytest.approx(moved / rate, rel=1e-9)
    assert cache_of_sequence(model, 1.0, 2.0, 8.0) == 61 * (576 + 128) * 2


def test_compressed_keys_by_hand() -> None:
    """DeepSeek-V4-Flash scores one key per four tokens, and attends to 512 of them and a window of 128."""
    model, context = load_model("deepseek-v4-flash"), 8191.0
    mixer = model.mixers["compressed_4"]
    counted = written(replace(model, layers=model.layers[1:]), layout_of(3.0, ep=8.0), decode(context))
    assert counted["index scores: FLOPs"] == 2 * 3 * 2048 * 64 * 128
    assert counted["index keys: weights"] == 2 * 4096 * (4 * 128 + 64)
    assert counted["attention: FLOPs"] == 2 * 3 * (512 + 128) * 64 * (512 + 512)
    assert keys_picked(mixer, context, 1.0) == 512.0


def test_blocks_by_hand() -> None:
    """MiniMax-M3: each of 4 index heads picks blocks of 128 keys by their best score, without weights."""
    model = load_model("minimax-m3")
    counted = written(replace(model, layers=model.layers[1:]), layout_of(1.0, ep=8.0), decode(65535.0))
    assert counted["index queries: weights"] == 2 * 6144 * 4 * 128
    assert counted["index keys: weights"] == 2 * 6144 * 128
    assert counted["index top-k: bytes"] == 65536 / 128 * 4 * 12


# --- limits


@pytest.mark.parametrize("new, context", [(1.0, 2047.0), (4.0, 900.0)])
def test_a_step_over_few_keys_is_the_dense_one_and_the_indexer(new: float, context: float) -> None:
    dense, sparse = load_model("deepseek-v3"), load_model("deepseek-v3.2")
    layout = layout_of(8.0, new, ep=32.0, servers=2.0)
    one, other = (first_layer(m, layout, decode(context)) for m in (dense, sparse))
    same = [s for s in other if s.name not in (*INDEX, "cache write")]
    assert same == [s for s in one if s.name != "cache write"]
    assert [s.name for s in other if s.name in INDEX] == list(INDEX)
    # a key of 128 more is read as it was projected, and written
    more = of(other, "cache write") - of(one, "cache write")
    assert more == pytest.approx(8 * new * 128 * 4 / (A3.memory.bandwidth * A3.memory.efficiency))


@pytest.mark.parametrize("over", [decode(50000.0), prompt(), prompt(3000.0), None])
def test_picking_everything_is_the_dense_cost_and_the_indexer(over: Cache | None) -> None:
    """A cache, a prompt, a chunk of one, a layer in training."""
    dense = load_model("deepseek-v3")
    sparse = with_mixers(load_model("deepseek-v3.2"), top_keys=10**6)
    layout = layout_of(1.0, 2.0 if over and over.decode else 20000.0, ep=32.0, servers=2.0)
    one, other = (first_layer(m, layout, over) for m in (dense, sparse))
    same = [s for s in other if s.name not in (*INDEX, "cache write")]
    assert [s.name for s in same] == [s.name for s in one if s.name != "cache write"]
    times = [float(np.sum(s.cost.time)) for s in one if s.name != "cache write"]
    assert [float(np.sum(s.cost.time)) for s in same] == pytest.approx(times)


def test_a_long_step_takes_the_time_of_its_index_keys() -> None:
    """Far out attention stays as it is; every key more is read, scored, and its score passed three times."""
    model, q = load_model("deepseek-v3.2"), 1.0
    near, far = (first_layer(model, layout_of(64.0, q), decode(c)) for c in (1e5, 2e5))
    assert of(near, "attention") == of(far, "attention")
    kernels, memory = A3.kernels, A3.memory
    reading = 1e5 * 64 * 256 / (memory.bandwidth * kernels.decode_attention.memory_efficiency)
    computing = 1e5 * 64 * 2 * 64 * 128 / (A3.cube.peak["bf16"] * kernels.attention.utilisation)
    assert of(far, "index scores") - of(near, "index scores") == pytest.approx(max(reading, computing))
    passes = 1e5 * 64 * 12 / (memory.bandwidth * memory.efficiency)
    assert of(far, "index top-k") - of(near, "index top-k") == pytest.approx(passes)


def test_the_indexer_of_a_prompt_grows_with_its_square_and_attention_does_not() -> None:
    model = load_model("deepseek-v3.2")
    short, long = (written(model, layout_of(1.0, s, ep=8.0), prompt()) for s in (1e6, 2e6))
    assert long["index scores: FLOPs"] / short["index scores: FLOPs"] == pytest.approx(4.0, rel=1e-5)
    assert long["attention: FLOPs"] / short["attention: FLOPs"] == pytest.approx(2.0, rel=2e-3)


def test_a_prompt_is_masked_while_that_takes_fewer_flops() -> None:
    """All keys at 320 multiplications per head, or 2048 at 1088: equal at 13926 tokens but for the first."""
    model, times = load_model("deepseek-v3.2"), []
    for s in (8192.0, 12000.0, 13000.0, 16384.0, 65536.0):
        masked = s * (s + 1) / 2 * 128 * 2 * 320
        picked = (s * 2048 - 2048 * 2047 / 2) * 128 * 2 * 1088
        segments = first_layer(model, layout_of(1.0, s, ep=8.0), prompt())
        times.append(of(segments, "attention"))
        flops, mean = min((masked, (s + 1) / 2), (picked, 2048 - 2048 * 2047 / 2 / s))
        rule = A3.kernels.attention
        work = flops * (1 + rule.extra_keys / mean) / (A3.cube.peak["bf16"] * rule.utilisation)
        assert times[-1] - rule.launch == pytest.approx(work)
    assert times == sorted(times)


def test_picked_latents_are_not_unfolded() -> None:
    """A chunk after many tokens gathers latents; after few it unfolds those in the cache."""
    model, context = load_model("deepseek-v3.2"), np.array([[1000.0], [100000.0]])
    segments = first_layer(model, layout_of(np.ones((2, 1)), 512.0, ep=8.0), prompt(context))
    (again,) = [s for s in segments if s.name == "cached keys"]
    few, many = np.ravel(again.cost.time)
    assert few > 0.0 == many


def test_few_heads_wait_for_their_keys() -> None:
    """With 8 heads of 64 on a rank a prompt's queries gather more than they compute, from L2 or memory."""
    model, machine = load_model("glm-5"), A3
    held = 65536 * 1152
    assert held < machine.memory.l2
    slow = load_machine("atlas_800t_a3", overrides={"memory.l2": "16 MB"})
    slower = load_machine("atlas_800t_a3", overrides={"kernels.gather_efficiency": "0.5"})
    layout = layout_of(1.0, 65536.0, tp=8.0)
    times = [of(first_layer(model, layout, prompt(), m), "attention") for m in (machine, slow, slower)]
    kernel = machine.kernels.decode_attention
    picked = (65536 * 2048 - 2048 * 2047 / 2) * 1152 / (machine.memory.bandwidth * kernel.memory_efficiency)
    launch = machine.kernels.attention.launch
    assert times[1] == pytest.approx(picked + launch, rel=1e-3)
    assert times[0] == pytest.approx(picked / kernel.l2_gain + launch, rel=1e-3)
    assert times[2] == pytest.approx(2 * picked / kernel.l2_gain + launch, rel=1e-3)


def test_a_backward_pass_gathers_as_often_as_it_computes() -> None:
    """Eight heads on a rank wait for their keys in both passes: two matmuls forward, five backward."""
    row = estimate(
        "glm-5", hardware="atlas_800t_a3", tp=8, ep=16, nodes=8, seq_len=65536, batch_size=1, host="graph",
        schedule="serial",
    ).rows[0]  # fmt: skip
    forward, backward = row.segments["attention"], row.backward_segments["attention backward"]
    assert backward == pytest.approx(2.5 * forward, rel=0.01)


def test_an_indexer_keeps_keys_of_all_tokens() -> None:
    """Beside a window, or one key for four tokens: the cache of attention grows slower."""
    (mixer,) = (m for m in load_model("deepseek-v4-flash").mixers.values() if m.indexer)
    assert mixer.indexer is not None
    without = replace(mixer, indexer=None)
    both, plain = (cache_of_layer(m, 8192.0, 2.0, 1.0) for m in (mixer, without))
    assert float(both - plain) == 8192.0 / mixer.compression * mixer.indexer.head_dim * 2.0


def test_a_step_gathers_at_a_share_of_the_rate_of_a_cache() -> None:
    model, layout = load_model("glm-5"), layout_of(64.0, tp=8.0)
    slow = load_machine("atlas_800t_a3", overrides={"kernels.gather_efficiency": "0.5"})
    one, other = (first_layer(model, layout, decode(50000.0), machine) for machine in (A3, slow))
    gathered = 64 * 2048 * 1152 / (A3.memory.bandwidth * A3.kernels.decode_attention.memory_efficiency)
    assert of(other, "attention") - of(one, "attention") == pytest.approx(gathered)
    assert of(other, *INDEX) == of(one, *INDEX)


@pytest.mark.parametrize("new", [1.0, 4.0])
def test_few_new_tokens_read_what_they_pick(new: float) -> None:
    """However long the context: no prompt's queries read keys of a cache that nobody picked."""
    model = load_model("deepseek-v3.2")
    near, far = (first_layer(model, layout_of(8.0, new), prompt(c)) for c in (1e5, 1e6))
    assert of(near, "attention") == pytest.approx(of(far, "attention"))
    read = 8 * new * 2048 * 1152 / (A3.memory.bandwidth * A3.memory.efficiency)
    assert of(near, "attention") - A3.kernels.attention.launch >= read * (1 - 1e-9)


@pytest.mark.parametrize(
    ("sequences", "new", "before", "indexer", "attention"),
    [
        (1, 1024, 16384, 192.9e-6, 482.9e-6), (1, 1024, 131072, 1578.4e-6, 465.3e-6),
        (1, 4096, 32768, 1595.0e-6, 2012.7e-6), (1, 16384, 131072, 26568.4e-6, 7897.3e-6),
        (16, 1024, 65536, 13598.7e-6, 7932.6e-6), (4, 2048, 131072, 12942.0e-6, 3962.9e-6),
    ],
)  # fmt: skip
def test_beside_measured_kernels(
    sequences: int, new: int, before: int, indexer: float, attention: float
) -> None:
    """GLM-5 on an H100, keys in fp8: scores and pick, attention over picked keys.

    SGLang's kernels in aiconfigurator-core 0.12.0; of all 174 with 1024 queries of a sequence or more after
    16384 tokens or more, the indexer is 10 % faster than measured in the median, attention off by 1 %.
    """
    model, layout = load_model("glm-5"), layout_of(float(sequences), float(new))
    over, machine = prompt(float(before)), load_machine("h100_sxm")
    over, scored = replace(over, kv_dtype="fp8"), replace(layout, attention_dtype="fp8")
    found = of(first_layer(model, scored, over, machine), "index scores", "index top-k")
    assert found == pytest.approx(indexer, rel=0.2)
    attended = of(first_layer(model, layout, over, machine), "attention")
    assert attended == pytest.approx(attention, rel=0.1)


# --- laws


@quick
@given(st.integers(0, 100_000), st.integers(1, 2000), st.sampled_from(["deepseek-v3.2", "deepseek-v4-flash"]))
def test_a_longer_context_takes_longer(context: int, more: int, name: str) -> None:
    model, layout = load_model(name), layout_of(4.0, 2.0, ep=16.0)
    one, other = (
        sum(float(np.sum(s.cost.time)) for p in passed(model, layout, decode(float(c))) for part in p.forward
            for s in all_segments(part))
        for c in (context, context + more)
    )  # fmt: skip
    assert one <= other


@pytest.mark.parametrize("name", ["glm-5", "deepseek-v3.2"])
@pytest.mark.parametrize(("tp", "new"), [(1, 16), (4, 256)])
@pytest.mark.parametrize("hardware", ["atlas_800t_a3", "ascend_950pr"])
def test_a_chunk_after_more_tokens_takes_no_less(name: str, tp: int, new: int, hardware: str) -> None:
    """Cached latents are unfolded only where that, too, is less work than to pick: no cliff to fall off."""
    asked: dict[str, Any] = {
        "hardware": hardware, "phase": "prefill", "schedule": "serial", "ep": 16, "tp": tp, "seq_len": new,
        "batch_size": 2, "nodes": 2, "host": "graph",
    }  # fmt: skip
    times = [
        estimate(name, context_len=before, **asked).rows[0].total_time
        for before in (1024, 2048, 3000, 4096, 5000, 6000, 8192)
    ]
    assert times == sorted(times)


@quick
@given(
    st.integers(0, 400), st.integers(1, 9), st.sampled_from([0, 30]), st.sampled_from([1, 4]),
    st.sampled_from([0, 20]),
)  # fmt: skip
def test_keys_token_by_token(context: int, new: int, window: int, compression: int, top: int) -> None:
    mixer = replace(LATENT, window=window, compression=compression, top_keys=top)
    before, tokens = float(context), range(context + 1, context + new + 1)
    assert keys_scored(mixer, before, float(new)) * compression == pytest.approx(sum(tokens) / new)
    picked = sum(min(n / compression, top or n) for n in tokens) / new
    assert keys_picked(mixer, before, float(new)) == pytest.approx(picked, rel=1e-9)
    seen, read = keys_seen(mixer, before, float(new)), keys_read(mixer, before, float(new))
    every = keys_seen(replace(mixer, top_keys=0), before, float(new))
    assert read <= every * (1 + 1e-9) and read <= new * seen * (1 + 1e-9)
    assert read == pytest.approx(min(every, new * seen) if top else seen)


def test_every_rank_of_a_group_runs_the_indexer() -> None:
    model, context = load_model("deepseek-v3.2"), 30000.0
    alone, shared = (written(model, layout_of(8.0, tp=tp), decode(context)) for tp in (1.0, 8.0))
    for name in ("index queries", "index keys", "index scores"):
        assert alone[f"{name}: FLOPs"] == shared[f"{name}: FLOPs"]
    assert alone["index scores: cache"] == shared["index scores: cache"]
    assert alone["attention: FLOPs"] == 8 * shared["attention: FLOPs"]


def test_an_indexer_learns_from_the_keys_it_picked() -> None:
    """Gradients of queries and of keys for 2048 keys at most, and of its own weights."""
    model, s = load_model("deepseek-v3.2"), 32768
    counted = written(model, layout_of(1.0, float(s), logit_rows=None), None, backward=True)
    picked = s * 2048 - 2048 * 2047 / 2
    # a matmul for the gradient of queries, one for that of keys
    assert counted["index scores backward: FLOPs"] == pytest.approx(2 * picked * 64 * 128)
    more = 1 + A3.kernels.attention.extra_keys * s / picked
    assert counted["index scores backward: with overhead"] == pytest.approx(4 * picked * 64 * 128 * more)
    backward = {
        s.name for part in passed(model, layout_of(1.0, 64.0), None)[0].backward for s in all_segments(part)
    }
    assert {"index scores backward", "index queries wgrad", "index keys wgrad"} <= backward
    assert counted["index queries wgrad: FLOPs"] == 2 * s * 1536 * 64 * 128


def test_layers_that_share_picks_score_nothing() -> None:
    model = load_model("glm-5.2")
    shared = replace(model, layers=tuple(g for g in model.layers if g.mixer == "shared"))
    names = {s.name for s in first_layer(shared, layout_of(1.0, ep=16.0), decode(5000.0))}
    assert not names & set(INDEX)
    one, other = (cache_of_sequence(load_model(name), 1.0, 1.0, 1.0) for name in ("glm-5", "glm-5.2"))
    assert (one, other) == (78 * (576 + 128), 78 * 576 + 21 * 128)


# --- equations


@quick
@given(st.floats(1e3, 1e10), st.floats(1e6, 1e9))
def test_gathering_everything_once_is_reading_a_cache(moved: float, resident: float) -> None:
    assert gather_time(moved, moved, 1e12, 2.4, resident) == cache_time(moved, 1e12, 2.4, resident)
    assert 1 / 2.4 <= gather_time(moved, 1e7, 1e12, 2.4, resident) / (moved / 1e12) * (1 + 1e-9) <= 1 + 1e-8


@pytest.mark.parametrize(
    "queries, keys, measured", [(1024, 131072 + 512, 266.2e-6), (16384, 131072 + 8192, 4409.5e-6)]
)
def test_a_pass_over_scores_beside_a_measured_one(queries: int, keys: int, measured: float) -> None:
    """GLM-5's top-k on an H200, 4.8 TB/s: its two reads of every score (aiconfigurator-core 0.12.0)."""
    least = top_k_bytes(queries, keys, 1.0, 1.0, 4.0, 2.0) / 4.8e12
    assert 1.0 < measured / least < 1.25


# --- what is said


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_assumptions_are_named(phase: str) -> None:
    found = estimate(
        "deepseek-v3.2", hardware="cloudmatrix384", phase=phase, tp=2, ep=16, sp=phase == "train"
    )
    said = " ".join(found.assumptions)
    assert "indexer scores every key" in said and "every tensor-parallel rank" in said
    assert "gathered at the full rate of a cache" in said and ("under a mask" in said) == (phase != "decode")
    assert "indexer" not in " ".join(estimate("deepseek-v3", hardware="cloudmatrix384", ep=16).assumptions)
