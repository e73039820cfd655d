"""Prompts and steps over a cache: chunks, limits, laws, and what serving frameworks do otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cached_passes import (
    GROUPS,
    counted,
    decode,
    layout_of,
    machine_of,
    prompt,
    quick,
    seconds,
    small,
)
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.api import estimate
from mc2perf.costs import Costs, Ledger
from mc2perf.equations import attention
from mc2perf.readers.models import load_model, model_names
from mc2perf.workload.decode import cached_layers
from mc2perf.workload.keys import mean_cached_context
from mc2perf.workload.layer import layers_of
from mc2perf.workload.parts import ExpertPath, Pair, all_segments, time_of

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


KEPT_UP = [
    ("deepseek-v3", {"hardware": "atlas_800t_a3", "phase": "prefill"},
     "prefill run at 0.8 of", "cube.served, fitted"),
    ("deepseek-v3", {"hardware": "atlas_800t_a3", "phase": "prefill", "set": {"cube.served": "0.5"}},
     "prefill run at 0.5 of", "cube.served, assumed"),
    ("mixtral-8x7b", {"hardware": "h800_sxm", "global_batch_size": 128}, "training step run at 0.465 of",
     "cube.sustained, fitted"),
    ("deepseek-v3", {"hardware": "h800_sxm", "phase": "prefill"}, "", ""),
    ("deepseek-v3", {"hardware": "atlas_800t_a3", "phase": "decode"}, "", ""),
    ("mixtral-8x7b", {"hardware": "h800_sxm"}, "", ""),
    ("matmul_all_reduce", {"hardware": "atlas_800t_a3", "m": 1024, "n": 1024, "k": 1024, "ranks": 8}, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("target", "given", "share", "source"), KEPT_UP)
def test_an_answer_says_what_a_whole_pass_keeps_up(
    target: str, given: dict[str, Any], share: str, source: str
) -> None:
    said = [text for text in estimate(target, **given).assumptions if text.startswith("kernels of a ")]
    assert len(said) == bool(share)
    for text in said:
        assert share in text and f"({source}); machines without such a measurement at 1" in text


def test_narrow_heads_side_by_side_are_as_wide_as_all_of_them() -> None:
    """128 matmuls of 128 columns stream like one of 16384: narrow weights are slow for want of cores."""
    costs = Costs(machine_of("atlas_800t_a3"), Ledger())
    heads = costs.matmul("x", 128.0 * 8.0, 128.0, 512.0, "bf16", 128.0).time
    wide = costs.matmul("x", 8.0, 128.0 * 128.0, 512.0, "bf16").time
    assert heads == pytest.approx(wide, rel=0.2)
