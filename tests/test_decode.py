"""Passes over a KV cache: FLOPs and bytes counted in another way, limits, laws, every schedule."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mc2perf.api import estimate
from mc2perf.costs import Costs, Ledger
from mc2perf.equations import attention
from mc2perf.machine import Machine
from mc2perf.model import Attention, Experts, LayerGroup, Model
from mc2perf.readers.models import load_model, model_names
from mc2perf.readers.profiles import load_machine
from mc2perf.workload.decode import Cache, cache_of_sequence, cached_layers
from mc2perf.workload.keys import kept_keys, keys_seen, mean_cached_context
from mc2perf.workload.layer import LayerParts, layers_of
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import ExpertPath, Pair, all_segments, time_of

quick = settings(max_examples=25, deadline=None)
CLOSE = 1e-12


@cache
def machine_of(name: str) -> Machine:
    return load_machine(name)


def layout_of(sequences: Any, new_tokens: Any = 1.0, **how: Any) -> Layout:
    """New tokens of an NPU's sequences, or of a tensor-parallel group's."""
    plain: dict[str, Any] = {
        "tp": 1.0, "ep": 1.0, "servers": 1.0, "logit_rows": None, "dtype": "bf16", "sp": False,
        "expert_dtype": "bf16", "dispatch_dtype": "bf16", "combine_dtype": "bf16", "attention_dtype": "bf16",
        "capacity_factor": None,
    }  # fmt: skip
    plain |= {"etp": how.get("tp", 1.0) if how.get("ep", 1.0) == 1.0 else 1.0, **how}
    return Layout(tokens=sequences * new_tokens / plain["tp"], seq_len=new_tokens, **plain)


@dataclass
class Counted:
    """What the ledger wrote down while the parts of a pass were priced."""

    layers: list[LayerParts]
    ledger: Ledger
    names: dict[str, float] = field(default_factory=dict)

    def total(self, ending: str) -> float:
        """Sum of a quantity over all layers."""
        found = 0.0
        for layer in self.layers:
            for part in layer.forward:
                self.ledger.steps.clear()
                all_segments(part)
                values = [s.value for s in self.ledger.steps if s.label.endswith(ending)]
                found += layer.count * sum(v for v in values if isinstance(v, float))
        return found


def counted(model: Model, layout: Layout, over: Cache, hardware: str = "atlas_800t_a3") -> Counted:
    ledger = Ledger(recording=True)
    return Counted(cached_layers(Costs(machine_of(hardware), ledger), model, layout, over), ledger)


def decode(context: Any, **how: Any) -> Cache:
    return Cache(context=context, decode=True, **how)


def prompt(context: Any = 0.0, **how: Any) -> Cache:
    return Cache(context=context, decode=False, **how)


def seconds(model: Model, layout: Layout, over: Cache, hardware: str = "atlas_800t_a3") -> Any:
    """Everything one after the other."""
    layers = cached_layers(Costs(machine_of(hardware), Ledger()), model, layout, over)
    pieces = [(layer.count, all_segments(part)) for layer in layers for part in layer.forward]
    return sum(n * (time_of(s, "compute") + time_of(s, "comm")) for n, s in pieces)


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


def small(mixer: Attention) -> Model:
    """One layer without a feed-forward part, and a head of 96 words."""
    return Model(
        name="small", source="", hidden_size=32, vocab_size=96, matrices=3, dense_width=0,
        layers=(LayerGroup(count=1, mixer="m", ffn=None),), mixers={"m": mixer},
    )  # fmt: skip


GROUPS = Attention(kind="softmax", heads=4, kv_heads=2, head_dim=8, v_head_dim=6)
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


# --- prefill


def test_prompt_from_its_beginning_is_the_layer_without_a_cache() -> None:
    """The same parts at the same price, and the cache that is written."""
    for name in ("mixtral-8x7b", "deepseek-v3", "deepseek-v3.2", "qwen3-next-80b-a3b"):
        model, costs = load_model(name), Costs(machine_of("atlas_800t_a3"), Ledger())
        layout = layout_of(2.0, 1024.0, ep=8.0, logit_rows=2.0)
        for plain, built in zip(
            layers_of(costs, model, layout), cached_layers(costs, model, layout, prompt()), strict=True
        ):
            parts = [part for part in built.forward if part.name != "cache write"]
            assert [all_segments(part) for part in parts] == [all_segments(part) for part in plain.forward]
            assert built.backward == ()


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b"])
def test_chunks_do_the_work_of_the_whole(name: str) -> None:
    """Pairs of queries and keys add up, chunk by chunk."""
    model = load_model(name)
    whole = counted(model, layout_of(1.0, 6000.0, logit_rows=1.0), prompt())
    chunks = [
        counted(model, layout_of(1.0, new, logit_rows=1.0 / 3), prompt(before))
        for before, new in ((0.0, 2048.0), (2048.0, 2048.0), (4096.0, 1904.0))
    ]
    assert sum(c.total(": FLOPs") for c in chunks) == pytest.approx(whole.total(": FLOPs"), rel=1e-9)


def test_short_chunk_over_long_context_reads_its_cache() -> None:
    """One new token after very many: no faster than the cache streams."""
    model, machine = load_model("llama-3.1-8b"), machine_of("atlas_800t_a3")
    layers = cached_layers(Costs(machine, Ledger()), model, layout_of(1.0), prompt(1e7))
    core = next(part for part in layers[0].forward if part.name == "attention")
    (segment,) = all_segments(core)
    read = 1e7 * 8 * 256 * 2 / (machine.memory.bandwidth * machine.memory.efficiency)
    assert segment.cost.work == segment.cost.memory == pytest.approx(read)


def test_cached_latents_are_projected_again() -> None:
    """Keys and values of every cached token of a prompt, 128 heads of 128 + 128 from 512."""
    model, new = load_model("deepseek-v3"), layout_of(1.0, 512.0, ep=8.0, logit_rows=1.0)
    with_cache, without = counted(model, new, prompt(1000.0)), counted(model, new, prompt())
    again = with_cache.total("cached keys: FLOPs")
    assert again == 61 * 2 * 1000 * 512 * 128 * 256
    grown = 61 * 512 * 1000 * 128 * 2 * (192 + 128)
    assert with_cache.total(": FLOPs") - without.total(": FLOPs") == pytest.approx(again + grown, rel=1e-9)


def test_nothing_is_projected_again_where_nothing_was_cached() -> None:
    """One row of a column starts from its beginning, the other does not."""
    costs, context = Costs(machine_of("atlas_800t_a3"), Ledger()), np.array([[0.0], [1000.0]])
    layout = layout_of(np.ones((2, 1)), 512.0, ep=8.0, logit_rows=1.0)
    layers = cached_layers(costs, load_model("deepseek-v3"), layout, prompt(context))
    (again,) = [part for part in layers[0].forward if part.name == "cached keys"]
    nothing, something = np.ravel(time_of(all_segments(again), "compute"))
    assert nothing == 0.0 < something


# --- limits


def test_one_sequence_is_bound_by_its_weights() -> None:
    model, machine = load_model("llama-3.1-8b"), machine_of("atlas_800t_a3")
    least = 2 * 7_504_658_432 / machine.memory.bandwidth
    time = float(seconds(model, layout_of(1.0), decode(0.0)))
    launches = float(seconds(small(GROUPS), layout_of(1.0), decode(0.0)))
    assert least < time < least / 0.7 + 32 * launches


def test_many_sequences_are_bound_by_computing() -> None:
    model, machine = load_model("llama-3.1-8b"), machine_of("atlas_800t_a3")

    def share(batch: float) -> float:
        layers = cached_layers(Costs(machine, Ledger()), model, layout_of(batch), decode(0.0))
        segments = [s for layer in layers for part in layer.forward for s in all_segments(part)]
        matmuls = [
            s.cost for s in segments if s.name in ("attention in", "attention out", "ffn1", "ffn2", "head")
        ]
        return float(sum(c.memory for c in matmuls) / sum(c.work for c in matmuls))

    assert share(1.0) == 1.0 and share(65536.0) == 0.0
    per_token = float(seconds(model, layout_of(65536.0), decode(0.0))) / 65536
    assert 1.0 < per_token / (2 * 7_504_658_432 / machine.cube.peak["bf16"]) < 2.0


def test_long_contexts_cost_their_bytes() -> None:
    """Far out every token more takes the time to read it."""
    model, machine = load_model("llama-3.1-8b"), machine_of("atlas_800t_a3")
    rate = machine.memory.bandwidth * machine.kernels.decode_attention.memory_efficiency
    near, far = (float(seconds(model, layout_of(8.0), decode(c))) for c in (1e6, 2e6))
    assert far - near == pytest.approx(1e6 * 8 * 32 * 8 * 256 * 2 / rate)


def test_latents_bound_by_computing_with_a_draft() -> None:
    """128 heads on 576 elements: 242 FLOP/B with one token, twice that with two; the die's ridge is 322."""
    model, machine = load_model("deepseek-v3"), machine_of("atlas_800t_a3")
    rule = machine.kernels
    computing = 4096.0 * 128 * 2 * (576 + 512) / (machine.cube.peak["bf16"] * rule.attention.utilisation)

    def grown(q: float) -> float:
        one, other = (
            float(seconds(model, layout_of(64.0, q, ep=32.0, servers=2.0), decode(c), "cloudmatrix384"))
            for c in (32768.0, 32768.0 + 4096.0)
        )
        return (other - one) / 61 / 64

    assert grown(2.0) == pytest.approx(2.0 * computing)
    assert grown(1.0) == pytest.approx(
        max(computing, 4096.0 * 1152 / (machine.memory.bandwidth * rule.decode_attention.memory_efficiency))
    )


# --- laws

models = st.sampled_from(
    ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-next-80b-a3b"]
)
batches = st.integers(1, 256).map(float)
contexts = st.integers(0, 50_000).map(float)


@quick
@given(models, batches, contexts, st.integers(1, 3).map(float))
def test_more_takes_longer(name: str, batch: float, context: float, drafts: float) -> None:
    model, least = load_model(name), 1.0 - 1e-9
    time = seconds(model, layout_of(batch), decode(context))
    assert seconds(model, layout_of(batch + 8.0), decode(context)) >= time * least
    assert seconds(model, layout_of(batch), decode(context + 1000.0)) >= time * least
    assert seconds(model, layout_of(batch, 1.0 + drafts), decode(context)) >= time * least
    assert seconds(model, layout_of(batch, 2.0), decode(context, drafts=1.0)) > time
    assert seconds(model, layout_of(batch), decode(context, kv_dtype="int8")) <= time / least


@quick
@given(st.sampled_from(["llama-3.1-8b", "deepseek-v2-lite"]), batches, contexts)
def test_larger_batches_pay(name: str, batch: float, context: float) -> None:
    """A step of twice the sequences takes no more than twice the time."""
    model = load_model(name)
    one = seconds(model, layout_of(batch), decode(context))
    assert seconds(model, layout_of(2.0 * batch), decode(context)) <= 2.0 * one * (1.0 + 1e-9)


@quick
@given(batches, contexts)
def test_window_stops_the_growth(batch: float, context: float) -> None:
    mixer = replace(GROUPS, window=4096)
    times = [seconds(small(mixer), layout_of(batch), decode(c + 4096.0)) for c in (context, context + 9999.0)]
    assert times[0] == pytest.approx(times[1])


@quick
@given(models, st.lists(st.tuples(batches, contexts), min_size=2, max_size=4))
def test_columns_are_rows_one_by_one(name: str, rows: list[tuple[float, float]]) -> None:
    model = load_model(name)
    batch, context = (np.array(column).reshape(-1, 1) for column in zip(*rows, strict=True))
    together = np.broadcast_to(seconds(model, layout_of(batch, ep=4.0), decode(context)), batch.shape)
    alone = [float(seconds(model, layout_of(b, ep=4.0), decode(c))) for b, c in rows]
    assert together.ravel() == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_model_decodes(name: str) -> None:
    model = load_model(name)
    for over in (decode(4096.0, drafts=1.0), prompt(4096.0)):
        time = float(seconds(model, layout_of(8.0, 2.0), over))
        assert np.isfinite(time) and time > 0.0


def test_parts_of_a_step() -> None:
    """Pairs of tensor parallelism; the expert path; a draft is a layer and a head for one token."""
    costs = Costs(machine_of("atlas_800t_a3"), Ledger())
    dense = cached_layers(costs, load_model("llama-3.1-8b"), layout_of(8.0, tp=4.0), decode(100.0))
    kinds = [(p.name, p.order, p.ranks) for p in dense[0].forward if isinstance(p, Pair)]
    assert kinds == [("attention out", "compute_first", 4.0), ("ffn2", "compute_first", 4.0)]
    over = decode(100.0, drafts=2.0)
    moe = cached_layers(costs, load_model("deepseek-v3"), layout_of(8.0, 3.0, ep=8.0), over)
    assert [(layer.name, layer.count, layer.ends) for layer in moe] == [
        ("full + dense", 3.0, False), ("full + moe", 58.0, False), ("draft", 2.0, False),
        ("embedding", 1.0, True), ("head", 1.0, True),
    ]  # fmt: skip
    (path,) = [part for part in moe[1].forward if isinstance(part, ExpertPath)]
    (drafted,) = [part for part in moe[2].forward if isinstance(part, ExpertPath)]
    assert (path.tokens, drafted.tokens) == (24.0, 8.0)


def test_attention_equation_is_the_limit() -> None:
    assert mean_cached_context(0.0, 77.0, np.inf) == attention.mean_causal_context(77.0, np.inf) == 39.0


# --- served models -----------------------------------------------------------------------------------------


def test_kernels_made_for_tokens_sort_and_count_them() -> None:
    """Their dispatch and combine hold what is a pass of its own beside an all-to-all: counts, both sorts."""
    asked: dict[str, Any] = {
        "m": 32, "n": 2048, "k": 7168, "ranks": 8, "experts_per_rank": 4, "top_k": 8, "schedule": "serial",
        "hardware": "atlas_800t_a3",
    }  # fmt: skip
    plain, made = (estimate("moe_layer", **asked, engine=e).rows[0] for e in ("measured", "ep_low_latency"))
    assert plain.segments.keys() - made.segments.keys() == {"counts", "permute", "unpermute"}
    assert not made.segments.keys() - plain.segments.keys()
    costs = Costs(machine_of("atlas_800t_a3"), Ledger(), decode=True)
    assert costs.sorts_tokens(8.0) and not costs.sorts_tokens(32.0), "RoCE has no such kernels"


@pytest.mark.parametrize("touched", [None, 4.0])
def test_served_int8_rows_come_and_go_in_16_bit(touched: float | None) -> None:
    machine = machine_of("atlas_800t_a3")
    plain, decode = Costs(machine, Ledger()), Costs(machine, Ledger(), decode=True)
    shape = (256.0, 4096.0, 7168.0)
    groups = 4.0 if touched else 1.0
    served = decode.matmul("x", *shape, "int8", groups, touched).time
    assert served == plain.quantised_matmul("x", *shape, touched).time
    assert served > plain.matmul("x", *shape, "int8", groups, touched).time
    heads = (decode.matmul("x", *shape, "int8", 4.0).time, plain.matmul("x", *shape, "int8", 4.0).time)
    assert heads[0] == heads[1], "matmuls by head quantise nothing"
    assert decode.matmul("x", *shape, "bf16").time == plain.matmul("x", *shape, "bf16").time


def test_a_prompt_is_attended_to_in_16_bit() -> None:
    """With one-byte weights as with two: the prompt's attention does not change, matmuls do."""
    one_byte, two = (
        estimate("deepseek-v3", phase="prefill", hardware="h800_sxm", ep=8, seq_len=1024, dtype=dtype,
                 schedule="serial").rows[0].segments
        for dtype in ("fp8", "bf16")
    )  # fmt: skip
    assert one_byte["attention"] == two["attention"]
    assert one_byte["attention out"] < two["attention out"]


def test_a_whole_prefill_computes_slower_and_sends_as_fast() -> None:
    found = {
        share: estimate("deepseek-v3", phase="prefill", hardware="cloudmatrix384", ep=32, host="graph",
                        schedule="serial", set={"cube.served": share}).rows[0]
        for share in ("1", "0.5")
    }  # fmt: skip
    launches = 2.0 * found["1"].compute_time - found["0.5"].compute_time
    assert 0.0 < launches < 0.05 * found["1"].compute_time
    assert found["0.5"].comm_time == found["1"].comm_time


def test_narrow_heads_side_by_side_are_as_wide_as_all_of_them() -> None:
    """128 matmuls of 128 columns stream like one of 16384: narrow weights are slow for want of cores."""
    costs = Costs(machine_of("atlas_800t_a3"), Ledger())
    heads = costs.matmul("x", 128.0 * 8.0, 128.0, 512.0, "bf16", 128.0).time
    wide = costs.matmul("x", 8.0, 128.0 * 128.0, 512.0, "bf16").time
    assert heads == pytest.approx(wide, rel=0.2)
