"""Memory: tensors counted one by one, schedules walked through, figures that papers print."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations import activations, memory

degrees = st.sampled_from([1, 2, 4, 8])
quick = settings(max_examples=60, deadline=None)


def held(*tensors: tuple[tuple[int, ...], str]) -> int:
    """Bytes of real arrays of these shapes and types."""
    return sum(np.empty(shape, dtype=dtype).nbytes for shape, dtype in tensors)


HALF, MASK, FULL = "f2", "i1", "f4"


def gpt_layer(s: int, b: int, h: int, a: int, tp: int, split: int, scores: bool) -> int:
    """Every tensor that the backward pass of a GPT layer reads, as a rank holds it."""
    whole, rows = (s, b, h // tp), (s // split, b, h)
    square = (b, a // tp, s, s)
    norms = ((rows, HALF), (rows, HALF))
    linear_inputs = ((rows, HALF), (rows, HALF))
    dropouts = ((rows, MASK), (rows, MASK))
    query_key_value_output = ((whole, HALF),) * 4
    softmax = ((square, HALF), (square, HALF), (square, MASK)) if scores else ()
    gelu = (((s, b, 4 * h // tp), HALF),) * 2
    return held(*norms, *linear_inputs, *dropouts, *query_key_value_output, *softmax, *gelu)


SHAPES = [(16, 2, 64, 8, tp, split) for tp in (1, 2, 4, 8) for split in {1, tp}]


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize(("s", "b", "h", "a", "tp", "split"), SHAPES)
def test_a_gpt_layer_tensor_by_tensor(
    s: int, b: int, h: int, a: int, tp: int, split: int, scores: bool
) -> None:
    counted = gpt_layer(s, b, h, a, tp, split, scores)
    assert activations.gpt_activation_bytes(s * b, h, a, s, tp, split, float(scores)) == counted
    parts = (
        activations.residual_activation_bytes(s * b, h, 2.0, 1.0, split)
        + activations.attention_activation_bytes(s * b, a, a, h / a, h / a, 2.0, tp)
        + activations.score_activation_bytes(s * b, s, a, 2.0, 1.0, tp) * scores
        + activations.ffn_activation_bytes(s * b, 2.0, 4.0 * h, 2.0, tp)
    )
    assert parts == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize(
    ("heads", "hidden", "factor", "saved"), [(96, 12288, 80, 70), (128, 20480, 64, 65)], ids=["175B", "530B"]
)
def test_selective_recompute_saves_what_the_paper_says(
    heads: int, hidden: int, factor: int, saved: int
) -> None:
    """Korthikanti et al. 2022, section 5: 5 a s / h is 80 for GPT-3 and 64 for MT-NLG, saving 70 and 65 %."""
    kept, all_of_it = (
        activations.gpt_activation_bytes(2048.0, hidden, heads, 2048.0, 1.0, 1.0, keep) for keep in (0.0, 1.0)
    )
    assert (all_of_it - kept) / (2048.0 * hidden) == factor
    assert round(100 * (1 - float(kept / all_of_it))) == saved


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_llama_layer_with_flash_attention_tensor_by_tensor(tp: int) -> None:
    """Norm, QKV, rotary queries and keys, flash attention, output; norm, gate and up, SwiGLU, down."""
    s, h, heads, kv, d, f = 32, 64, 16, 4, 8, 96
    rows, mine = (s // tp, h), max(kv // tp, 1)
    counted = held(
        *[(rows, HALF)] * 4,
        ((s, heads // tp, d), HALF), ((s, mine, d), HALF), ((s, mine, d), HALF),
        ((s, heads // tp, d), HALF), ((heads // tp, s), FULL),
        *[((s, f // tp), HALF)] * 3,
    )  # fmt: skip
    parts = (
        activations.residual_activation_bytes(s, h, 2.0, 0.0, tp)
        + activations.attention_activation_bytes(s, heads, kv, d, d, 2.0, tp)
        + activations.statistic_bytes(s, heads, 4.0, tp)
        + activations.ffn_activation_bytes(s, 3.0, f, 2.0, tp)
    )
    assert parts == counted


def test_experts_tensor_by_tensor() -> None:
    """Two ranks route their tokens; what each holds, summed, is what even routing says of both."""
    rng = np.random.default_rng(1)
    tokens, top_k, experts, h, f, ep = 12, 2, 4, 16, 8, 2
    chosen = np.concatenate([rng.permutation(experts)[:top_k] for _ in range(tokens * ep)])
    rows = np.bincount(chosen // (experts // ep), minlength=ep)
    counted = sum(held(((r, h), HALF), *[((r, f), HALF)] * 3, ((r, h), HALF)) for r in rows.tolist())
    even = activations.expert_activation_bytes(tokens * top_k, 2.0, h, 3.0, f, 1.0, 2.0)
    assert ep * even == counted
    cut = activations.expert_activation_bytes(tokens * top_k, 2.0, h, 3.0, f, 4.0, 2.0)
    assert cut == held(*[((tokens * top_k, h), HALF)] * 2, *[((tokens * top_k, f // 4), HALF)] * 3)
    busiest = activations.expert_activation_bytes(float(rows.max()), 2.0, h, 3.0, f, 1.0, 2.0)
    assert busiest == pytest.approx(even * rows.max() / rows.mean(), rel=1e-12)


def test_the_ends_of_the_pipeline_are_what_the_paper_adds() -> None:
    """Korthikanti et al. 2022, 4.3: s b h p / t for the embedding, 4 s b h / t (1 + v / h) for the head."""
    s, b, h, v, t, pp = 16, 2, 64, 512, 4, 8
    embedding = pp * activations.boundary_bytes(s * b, h, 1.0, t)
    assert embedding == held(*[((s // t, b, h), MASK)] * pp) == s * b * h * pp / t
    head = activations.head_activation_bytes(s * b, h, v, 2.0, 4.0, t, t)
    assert head == held(*[((s // t, b, h), HALF)] * 2, ((s, b, v // t), FULL))
    assert head == 4 * s * b * h / t * (1 + v / h)


@pytest.mark.parametrize("split", [1, 4])
def test_between_layers_stands_the_hidden_state(split: int) -> None:
    assert activations.boundary_bytes(16 * 2, 64, 2.0, split) == held(((16 // split, 2, 64), HALF))


# --- how many micro-batches a stage holds


def kinds(pp: int, vpp: int, n_mb: int, stage: int) -> str:
    """Forwards and backwards of a stage in Megatron's order, as a word of F and B."""
    warm_up = pp - stage - 1 if vpp == 1 else 2 * (pp - stage - 1) + (vpp - 1) * pp
    chunks = n_mb * vpp
    warm_up = min(warm_up, chunks)
    return "F" * warm_up + "FB" * (chunks - warm_up) + "B" * warm_up


@quick
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.data())
def test_chunks_in_flight_are_the_most_of_the_schedule(
    pp: int, vpp: int, rounds: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, pp - 1))
    n_mb = rounds * pp if vpp > 1 else rounds
    word = kinds(pp, vpp, n_mb, stage)
    most = int(np.cumsum([1 if step == "F" else -1 for step in word]).max())
    assert activations.chunks_in_flight(pp, stage, n_mb, vpp) == most


@quick
@given(st.integers(1, 8), st.integers(2, 6))
def test_the_first_stage_holds_all_layers_and_interleaving_more(pp: int, vpp: int) -> None:
    many = 8.0 * pp * vpp
    assert activations.chunks_in_flight(pp, 0.0, many, 1.0) / pp == 1.0
    layers = activations.chunks_in_flight(pp, 0.0, many, vpp) / (pp * vpp)
    assert layers == pytest.approx(1 + (pp - 1) / (pp * vpp), rel=1e-12)


# --- weights, gradients, optimizer

ADAM = 12.0


@pytest.mark.parametrize(
    ("weight", "gradient", "optimizer", "plain", "fixed", "shared"),
    [
        (["f2"], ["f2"], ["f4", "f4", "f4", "f4"], 20, 4, 16),
        (["f2"], ["f4"], ["f4", "f4", "f4"], 18, 6, 12),
        (["f4"], ["f4"], ["f4", "f4"], 16, 8, 8),
    ],
    ids=["fp16", "bf16 with fp32 gradients", "fp32"],
)
@pytest.mark.parametrize("dp", [1, 2, 64])
def test_megatron_table_of_the_distributed_optimizer(
    weight: list[str], gradient: list[str], optimizer: list[str], plain: int, fixed: int, shared: int, dp: int
) -> None:
    """Bytes per weight in Megatron-LM's page on it: 20 or 4 + 16/d, 18 or 6 + 12/d, 16 or 8 + 8/d."""
    w, g, o = (sum(np.dtype(t).itemsize for t in part) for part in (weight, gradient, optimizer))
    assert memory.model_state_bytes(1.0, w, 1.0, g, 1.0, o, 1.0) == plain
    assert memory.model_state_bytes(1.0, w, 1.0, g, 1.0, o, dp) == fixed + shared / dp


def test_zero_figure_1() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5B weights on 64 ranks take 120, 31.4, 16.6, 1.9 GB."""
    stages = [(1.0, 1.0, 1.0), (1.0, 1.0, 64.0), (1.0, 64.0, 64.0), (64.0, 64.0, 64.0)]
    gigabytes = [memory.model_state_bytes(7.5, 2.0, w, 2.0, g, ADAM, o) for w, g, o in stages]
    assert [round(float(size), 1) for size in gigabytes] == [120.0, 31.4, 16.6, 1.9]


# --- KV cache


@pytest.mark.parametrize(
    ("layers", "kv_heads", "key_dim", "value_dim", "kilobytes"),
    [(61, 1, 512, 64, 70.272), (80, 8, 128, 128, 327.680), (126, 8, 128, 128, 516.096)],
    ids=["DeepSeek-V3", "Qwen2.5-72B", "LLaMA-3.1-405B"],
)
def test_kv_cache_that_a_paper_prints(
    layers: int, kv_heads: int, key_dim: int, value_dim: int, kilobytes: float
) -> None:
    """Zhao et al., "Insights into DeepSeek-V3", ISCA 2025, table 1 (bf16)."""
    token = memory.kv_token_bytes(kv_heads, key_dim, value_dim, 2.0, 1.0)
    assert memory.kv_cache_bytes(1.0, layers, 1.0, np.inf, token) / 1e3 == pytest.approx(kilobytes, rel=1e-12)


@quick
@given(st.integers(1, 40), st.integers(1, 12), degrees)
def test_a_window_keeps_what_a_rolling_buffer_keeps(context: int, window: int, tp: int) -> None:
    kept: list[int] = []
    for token in range(context):
        kept = [*kept, token][-window:]
    mine = max(4 // tp, 1)
    buffer = held(((len(kept), 2, mine, 16), HALF))
    token_bytes = memory.kv_token_bytes(4.0, 16.0, 16.0, 2.0, tp)
    assert memory.kv_cache_bytes(1.0, 1.0, context, window, token_bytes) == buffer


def test_a_hybrid_is_the_sum_of_its_kinds_and_a_state_does_not_grow() -> None:
    layers, window, context = np.array([10.0, 50.0]), np.array([np.inf, 128.0]), np.array([[64.0], [4096.0]])
    cache = memory.kv_cache_bytes(2.0, layers, context, window, 512.0)
    assert np.sum(cache, axis=-1).tolist() == [2 * 512 * 60 * 64, 2 * 512 * (10 * 4096 + 50 * 128)]
    assert memory.linear_state_bytes(2.0, 3.0, 4.0, 8.0, 16.0, 4.0) == held(((2, 3, 4, 8, 16), FULL))


# --- laws of all of them

EQUATIONS: list[Callable[..., Any]] = [
    f for _, f in inspect.getmembers(memory, inspect.isfunction) if hasattr(f, "formula")
]
FUNCTIONS: dict[str, Any] = {"max": max, "min": min, "floor": math.floor}
DIVIDES = {"tp", "split", "etp", "weight_shards", "gradient_shards", "optimizer_shards", "stage"}


def drawn(equation: Callable[..., Any], data: st.DataObject) -> dict[str, float]:
    return {name: data.draw(st.floats(1.0, 50.0)) for name in inspect.signature(equation).parameters}


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda f: f.__name__)
@quick
@given(data=st.data())
def test_text_is_the_equation_and_more_ranks_never_hold_more(
    equation: Callable[..., Any], data: st.DataObject
) -> None:
    values = drawn(equation, data)
    value = equation(**values)
    assert value == pytest.approx(eval(vars(equation)["formula"], dict(FUNCTIONS), values), rel=1e-9)
    for name in values:
        if equation is activations.chunks_in_flight and name == "vpp":
            continue
        grown = equation(**values | {name: values[name] * 2.0})
        slack = 1e-9 * abs(value)
        assert (grown <= value + slack) if name in DIVIDES else (grown >= value - slack)


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda f: f.__name__)
def test_columns_give_what_numbers_give(equation: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    columns = {name: rng.uniform(1.0, 9.0, 5) for name in inspect.signature(equation).parameters}
    rows = [equation(**{name: float(c[i]) for name, c in columns.items()}) for i in range(5)]
    assert np.array_equal(equation(**columns), rows)
