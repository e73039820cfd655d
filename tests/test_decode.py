"""A decode step over a KV cache: FLOPs and bytes counted in another way, number by number and by hand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from cached_passes import GROUPS, cache_of_sequence, counted, decode, layout_of, prompt, quick, small
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mc2perf.model import Attention, Experts, LayerGroup, Model
from mc2perf.readers.models import load_model
from mc2perf.workload.decode import Cache
from mc2perf.workload.keys import kept_keys, keys_seen, mean_cached_context
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import all_segments

CLOSE = 1e-12


# --- a step computed number by number, counting every multiplication


@dataclass
class Tally:
    """Matrix products with their FLOPs, and the elements of weights that were read."""

    flops: float = 0.0
    weights: float = 0.0

    def times(self, rows: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
        """Rows with a weight matrix."""
        self.weights += weight.size
        return self.between(rows, weight)

    def between(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Any two matrices."""
        self.flops += 2.0 * a.shape[0] * a.shape[1] * b.shape[1]
        product: NDArray[Any] = a @ b
        return product


RANDOM = np.random.default_rng(7)


def some(*shape: int) -> NDArray[Any]:
    return RANDOM.normal(size=shape)


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def step_of_groups(mixer: Attention, hidden: int, context: int, tally: Tally) -> float:
    """One token of one sequence through grouped-query attention; elements of cache that were read."""
    token, read = some(1, hidden), 0
    queries = tally.times(token, some(hidden, mixer.heads * mixer.head_dim))
    tally.times(token, some(hidden, mixer.kv_heads * (mixer.head_dim + mixer.v_head_dim)))
    seen = min(context + 1, mixer.window or context + 1)
    results = []
    for group in range(mixer.kv_heads):
        keys, values = some(seen, mixer.head_dim), some(seen, mixer.v_head_dim)
        read += keys.size + values.size
        each = mixer.heads // mixer.kv_heads
        for head in range(group * each, (group + 1) * each):
            query = queries[:, head * mixer.head_dim : (head + 1) * mixer.head_dim]
            results.append(tally.between(softmax(tally.between(query, keys.T)), values))
    tally.times(np.hstack(results), some(mixer.heads * mixer.v_head_dim, hidden))
    return read


def step_of_latents(mixer: Attention, hidden: int, context: int, tally: Tally) -> float:
    """The same through absorbed latent attention, which gives what the plain form gives."""
    nope, rope, rank = mixer.head_dim - mixer.rope_head_dim, mixer.rope_head_dim, mixer.kv_lora_rank
    token, cached = some(1, hidden), some(context + 1, rank + rope)
    low = tally.times(token, some(hidden, mixer.q_lora_rank)) if mixer.q_lora_rank else token
    queries = tally.times(low, some(low.shape[1], mixer.heads * mixer.head_dim))
    tally.times(token, some(hidden, rank + rope))
    results = []
    for head in range(mixer.heads):
        up_keys, up_values = some(nope, rank), some(rank, mixer.v_head_dim)
        query = queries[:, head * mixer.head_dim : (head + 1) * mixer.head_dim]
        absorbed = np.hstack([tally.times(query[:, :nope], up_keys), query[:, nope:]])
        shares = softmax(tally.between(absorbed, cached.T))
        results.append(tally.times(tally.between(shares, cached[:, :rank]), up_values))
        keys = np.hstack([cached[:, :rank] @ up_keys.T, cached[:, rank:]])
        plain = softmax(query @ keys.T) @ (cached[:, :rank] @ up_values)
        assert np.allclose(results[-1], plain)
    tally.times(np.hstack(results), some(mixer.heads * mixer.v_head_dim, hidden))
    return cached.size


LATENT = Attention(
    kind="mla", heads=3, kv_heads=3, head_dim=12, v_head_dim=6, q_lora_rank=10, kv_lora_rank=16,
    rope_head_dim=4,
)  # fmt: skip


@pytest.mark.parametrize(
    "mixer",
    [GROUPS, replace(GROUPS, window=5), LATENT, replace(LATENT, q_lora_rank=0)],
    ids=["gqa", "window", "mla", "mla with whole queries"],
)
@pytest.mark.parametrize("context", [0, 3, 9])
def test_number_by_number(mixer: Attention, context: int) -> None:
    step = {"softmax": step_of_groups, "mla": step_of_latents}[mixer.kind]
    tally = Tally()
    read = step(mixer, 32, context, tally)
    tally.times(some(1, 32), some(32, 96))
    pass_ = counted(small(mixer), layout_of(1.0), decode(float(context)))
    assert pass_.total(": FLOPs") == pytest.approx(tally.flops, rel=CLOSE)
    assert pass_.total(": weights") == pytest.approx(2.0 * tally.weights, rel=CLOSE)
    assert pass_.total("attention: cache") == pytest.approx(2.0 * read, rel=CLOSE)


# --- shipped models, from their published sizes


def test_llama_by_hand() -> None:
    """Llama 3.1 8B: 8.03e9 weights without the embedding; two matrix products per cached token and head."""
    b, context = 16, 2000
    pass_ = counted(load_model("llama-3.1-8b"), layout_of(float(b)), decode(float(context)))
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    read = 32 * layer + 4096 * 128256
    assert read == 7_504_658_432 == 8_030_261_248 - 128256 * 4096 - 65 * 4096
    pairs = b * (context + 1)
    assert pass_.total(": weights") == 2 * read
    assert pass_.total(": FLOPs") == 2 * b * read + 32 * pairs * 32 * 2 * (128 + 128)
    assert pass_.total("attention: cache") == 32 * pairs * 8 * 256 * 2


def test_deepseek_by_hand() -> None:
    """DeepSeek-V3 over 256 ranks: one expert each, all of them touched; 576 elements of a token and layer."""
    b, context, q = 32, 4096, 2
    layout = layout_of(float(b), float(q), ep=256.0, servers=16.0)
    pass_ = counted(load_model("deepseek-v3"), layout, decode(float(context)), "cloudmatrix384")
    heads, pairs = 128, b * q * (context + 1.5)
    up = heads * 128 * 512
    mixer = 7168 * (1536 + 576) + 1536 * heads * 192 + 2 * up + heads * 128 * 7168
    beside = 256 * 7168 + 3 * 7168 * 2048
    dense = 61 * mixer + 3 * 3 * 7168 * 18432 + 58 * beside + 7168 * 129280
    expert, touched = 3 * 7168 * 2048, 1 - (1 - 8 / 256) ** (b * q * 256)
    flops = 2 * b * q * (dense + 58 * 8 * expert) + 61 * pairs * heads * 2 * (576 + 512)
    assert pass_.total(": FLOPs") == pytest.approx(flops, rel=CLOSE)
    assert pass_.total(": weights") == pytest.approx(2 * (dense + 58 * touched * expert), rel=CLOSE)
    assert pass_.total("attention: cache") == pytest.approx(61 * b * (context + 1.5) * 576 * 2, rel=CLOSE)
    sent = b * q * 8 * 7168 * 2
    assert pass_.total("dispatch: bytes") == pass_.total("combine: bytes") == 58 * sent


@pytest.mark.parametrize("tp, ep", [(1.0, 1.0), (1.0, 4.0), (4.0, 1.0)])
def test_mixtral_by_hand(tp: float, ep: float) -> None:
    """Mixtral 8x7B, two sequences per NPU: of 8 experts those with a token, 2 of 8 each, are read."""
    sequences, context = 2.0 * tp, 1000.0
    pass_ = counted(load_model("mixtral-8x7b"), layout_of(sequences, tp=tp, ep=ep), decode(context))
    mixer = 4096 * (4096 + 2 * 1024 + 4096)
    expert, together = 3 * 4096 * 14336, sequences * ep
    touched = 8 * (1 - 0.75**together)
    read = 32 * mixer / tp + 32000 * 4096 / tp + 32 * touched * expert / tp / ep + 32 * 8 * 4096
    assert pass_.total(": weights") == pytest.approx(2 * read, rel=CLOSE)
    assert pass_.total("attention: cache") == 32 * sequences * (context + 1) * 8 / tp * 256 * 2


@pytest.mark.parametrize("n, k, b", [(4, 2, 1), (4, 2, 2), (4, 1, 3), (5, 2, 3)])
def test_touched_experts_over_all_routings(n: int, k: int, b: int) -> None:
    draws = list(itertools.product(itertools.combinations(range(n), k), repeat=b))
    mean = sum(len(set().union(*draw)) for draw in draws) / len(draws)
    experts = Experts(count=n, top_k=k, width=64, shared_width=0, payload_width=32)
    model = replace(small(GROUPS), layers=(LayerGroup(count=1, mixer=None, ffn="moe"),), experts=experts)
    for tp, ep in ((1.0, 1.0), (1.0, float(n)), (2.0, 1.0)):
        pass_ = counted(model, layout_of(b / ep, tp=tp, ep=ep), decode(0.0))
        read = mean * 3 * 32 * 64 / tp / ep + 32 * n + 32 * 96 / tp
        assert pass_.total(": weights") == pytest.approx(2 * read, rel=CLOSE)


@pytest.mark.parametrize(
    "name, per_token", [("deepseek-v3", 70_272), ("qwen2-72b", 327_680), ("llama-3.1-405b", 516_096)]
)
def test_published_cache_sizes(name: str, per_token: int) -> None:
    """DeepSeek-AI, "Insights into DeepSeek-V3", table 1 (Qwen2.5-72B has the heads of Qwen2-72B)."""
    assert cache_of_sequence(load_model(name), 1.0, 2.0, 1.0) == per_token


def test_cache_on_ranks_of_a_group() -> None:
    """Key heads are dealt to the ranks until each has one; the latent is on all of them."""
    llama, deepseek = load_model("llama-3.1-8b"), load_model("deepseek-v3")
    sizes = [cache_of_sequence(llama, 100.0, 2.0, tp) for tp in (1.0, 4.0, 8.0, 16.0)]
    assert sizes == [32 * 100 * 8 * 256 * 2 / n for n in (1, 4, 8, 8)]
    assert cache_of_sequence(deepseek, 100.0, 1.0, 8.0) == 61 * 100 * 576


def test_states_do_not_grow() -> None:
    model = load_model("qwen3-next-80b-a3b")
    linear = [g.count for g in model.layers if g.mixer and model.mixers[g.mixer].kind == "linear"]
    grown = cache_of_sequence(model, 2000.0, 2.0, 1.0) - cache_of_sequence(model, 1000.0, 2.0, 1.0)
    fixed = cache_of_sequence(model, 1000.0, 2.0, 1.0) - grown
    assert fixed == sum(linear) * 32 * 128 * 128 * 4


# --- bytes of what is neither a matmul nor attention


def moved(model: Model, layout: Layout, over: Cache, name: str) -> float:
    """Bytes of an element-wise pass, the first of that name."""
    pass_ = counted(model, layout, over)
    for layer in pass_.layers:
        for part in layer.forward:
            all_segments(part)
    return next(float(np.sum(s.numbers["moved"])) for s in pass_.ledger.steps if s.label == f"{name}: time")


def test_cache_write_by_hand() -> None:
    """New keys and values are read as bf16 and written in the type of the cache."""
    groups, latent = small(GROUPS), small(LATENT)
    assert moved(groups, layout_of(3.0, 2.0), decode(50.0), "cache write") == 3 * 2 * 2 * (8 + 6) * (2 + 2)
    eight = decode(50.0, kv_dtype="int8")
    assert moved(groups, layout_of(3.0, 2.0), eight, "cache write") == 3 * 2 * 2 * (8 + 6) * (2 + 1)
    assert moved(latent, layout_of(3.0), decode(50.0), "cache write") == 3 * (16 + 4) * (2 + 2)
    assert moved(latent, layout_of(4.0, 8.0), prompt(50.0), "cache write") == 4 * 8 * (16 + 4) * (2 + 2)


def test_state_by_hand() -> None:
    """A float32 matrix per head and sequence, read and written, for one token or three."""
    linear = Attention(kind="linear", heads=8, kv_heads=4, head_dim=16, v_head_dim=12)
    for new, context in ((1.0, 0.0), (3.0, 5000.0)):
        size = moved(small(linear), layout_of(5.0, new, tp=2.0), decode(context), "attention")
        assert size == 2 * (10 / 2) * (8 / 2) * 16 * 12 * 4 * 2 / 2


def test_logits_by_hand() -> None:
    """Every token of a step is sampled, a prompt's last one alone; a draft joins two hidden states."""
    assert moved(small(GROUPS), layout_of(5.0, 2.0), decode(9.0), "sampling") == 5 * 2 * 96 * 2
    head = counted(small(GROUPS), layout_of(5.0, 7.0, logit_rows=5.0), prompt()).total("head: FLOPs")
    assert head == 2 * 5 * 32 * 96
    drafted = counted(small(GROUPS), layout_of(5.0, 3.0), decode(9.0, drafts=2.0))
    assert drafted.total("draft in: FLOPs") == 2 * 2 * 5 * 64 * 32
    assert drafted.total("head: FLOPs") == 2 * (3 * 5 + 2 * 5) * 32 * 96


# --- keys a token sees


@quick
@given(st.integers(0, 60), st.integers(1, 20), st.sampled_from([1, 7, 40, 1000]))
def test_context_token_by_token(before: int, new: int, window: int) -> None:
    seen = [min(before + i + 1, window) for i in range(new)]
    mean = mean_cached_context(float(before), float(new), float(window))
    assert mean == pytest.approx(sum(seen) / new, rel=1e-9)


@quick
@given(
    st.floats(0.0, 5000.0).map(round),
    st.sampled_from([0, 100]),
    st.sampled_from([1, 4]),
    st.sampled_from([0, 50]),
)
def test_sparse_keys(before: int, window: int, compression: int, top: int) -> None:
    """The window, and beyond it one key per so many tokens, of which so many are picked."""
    mixer = replace(GROUPS, window=window, compression=compression, top_keys=top)
    n = before + 1
    near = min(n, window) if window else 0
    far = min(n / compression, top) if top else n / compression
    sparse = compression > 1 or top
    expected = min(n, near + far) if sparse else near or n
    assert keys_seen(mixer, float(before), 1.0) == pytest.approx(expected, rel=1e-9)
    old = (min(before, window) if window else 0) + before / compression
    kept = min(before, old if sparse else min(before, window or before))
    assert kept_keys(mixer, float(before)) == pytest.approx(kept, rel=1e-9)
