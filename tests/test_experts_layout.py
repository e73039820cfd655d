"""Dispatchers, slices of experts, context parallelism, order of ranks: volumes and work by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mc2perf.answer import Row
from mc2perf.api import estimate
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.training import contiguous_ring_factor, ulysses_bytes
from mc2perf.placement import stage_counts, weights_of_a_rank
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of
from mc2perf.workload.parts import all_segments

MIXTRAL: dict[str, Any] = {"target": "mixtral-8x7b", "hardware": "atlas_800t_a2", "schedule": "serial"}


def row(**given: Any) -> Row:
    asked = {**MIXTRAL, **given}
    return estimate(asked.pop("target"), **asked).rows[-1]


def study(target: str = "mixtral-8x7b", hardware: str = "atlas_800t_a2", **given: Any) -> Study:
    scenario = Scenario(target=target, hardware=hardware, **given)
    return study_of(scenario, load_machine(hardware), load_model(target))


def collective(name: str, size: float, ranks: float, stride: float = 1.0) -> float:
    costs = Costs(load_machine("atlas_800t_a2"), Ledger(), cuts_messages=True)
    return float(costs.collective("x", name, size, ranks, stride=stride).time)


TOKENS, ROW = 4096, 4096 * 2


def test_an_all_gather_brings_all_tokens_and_an_all_to_all_the_copies() -> None:
    sent = row(ep=8, nodes=1).segments
    brought = row(ep=8, nodes=1, token_dispatcher="all_gather").segments
    assert sent["dispatch"] == pytest.approx(collective("all_to_all", TOKENS * 2 * ROW, 8))
    assert brought["dispatch"] == pytest.approx(collective("all_gather", TOKENS * 8 * ROW, 8))
    assert brought["combine"] == pytest.approx(collective("reduce_scatter", TOKENS * 8 * ROW, 8))
    assert brought["ffn1"] == sent["ffn1"]
    assert "counts" not in brought


def test_slices_of_experts_gather_tokens_once_or_every_copy() -> None:
    own = TOKENS / 8
    once = row(tp=8).segments
    copies = row(tp=8, token_dispatcher="all_to_all").segments
    assert once["dispatch"] == pytest.approx(collective("all_gather", own * 8 * ROW, 8))
    assert copies["dispatch"] == pytest.approx(collective("all_gather", own * 2 * 8 * ROW, 8))
    assert copies["ffn1"] == once["ffn1"]


def test_slices_of_experts_with_ranks_of_their_own() -> None:
    """tp 4, ep 2, etp 4: copies go to the other half of the server, then to the slices there."""
    own = TOKENS / 4
    both = row(tp=4, ep=2, etp=4, nodes=1).segments
    across = collective("all_to_all", own * 2 * ROW, 2, stride=4)
    assert both["dispatch"] == pytest.approx(across + collective("all_gather", own * 2 * 4 * ROW, 4))
    far = row(tp=8, ep=2, etp=8, nodes=2, batch_size=2).segments
    own = 2 * TOKENS / 8
    across = collective("all_to_all", own * 2 * ROW, 2, stride=8)
    assert across > own * 2 * ROW / 2 / 25e9  # the other half is in the other server
    assert far["dispatch"] == pytest.approx(across + collective("all_gather", own * 2 * 8 * ROW, 8))


@pytest.mark.parametrize(
    "layout",
    [{"ep": 8.0}, {"tp": 8.0}, {"tp": 4.0, "ep": 2.0, "etp": 4.0}, {"tp": 2.0, "ep": 4.0, "etp": 2.0}],
)
@pytest.mark.parametrize("dispatcher", ["all_to_all", "all_gather"])
def test_every_layout_computes_the_same_expert_rows(layout: dict[str, Any], dispatcher: str) -> None:
    """FLOPs of the experts per token are those of top-k experts, however they are cut."""
    s = study(**layout, token_dispatcher=dispatcher, nodes=1.0)
    s.costs.ledger.recording = True
    for layer in s.layers[:1]:
        for part in layer.forward:
            all_segments(part)
    flops = sum(step.value for step in s.costs.ledger.steps if step.label in ("ffn1: FLOPs", "ffn2: FLOPs"))  # type: ignore[misc]
    tokens = float(np.asarray(s.layout.tokens).item()) if s.layout else 0.0
    assert flops / tokens == pytest.approx(2 * 2 * 3 * 4096 * 14336)


def test_weights_of_slices_add_up_and_routers_are_copied() -> None:
    layouts: list[dict[str, Any]] = [
        {"ep": 8.0}, {"tp": 8.0}, {"tp": 4.0, "ep": 2.0, "etp": 4.0}, {"tp": 4.0, "ep": 2.0},
    ]  # fmt: skip
    for layout in layouts:
        other, routed = weights_of_a_rank(study(**layout, nodes=1.0, global_batch_size=8.0))
        cut = {"etp": layout.get("tp", 1.0) if layout.get("ep", 1.0) == 1 else 1.0, "ep": 1.0, **layout}
        assert routed * cut["ep"] * cut["etp"] == pytest.approx(32 * 8 * 3 * 4096 * 14336)
        tp, router = layout.get("tp", 1.0), 32 * 4096 * 8
        whole = load_model("mixtral-8x7b").parameter_count - 32 * 8 * 3 * 4096 * 14336
        assert other == pytest.approx((whole - router) / tp + router)


def test_unfused_permutes_gather_and_scatter_at_their_own_speed() -> None:
    rate = 1.6e12 * 0.0515
    fused, apart = (row(ep=8, nodes=1, fused_permute=fused).segments["permute"] for fused in (True, False))
    # 8 experts on 8 ranks: one local expert, nothing to sort behind the all-to-all
    assert apart == pytest.approx(TOKENS * 2 * ROW * 2 / rate + 2e-6)
    assert fused < apart / 10
    sorted_too = row(ep=4, nodes=1, fused_permute=False).segments["permute"]
    assert sorted_too == pytest.approx(2 * apart, rel=1e-9)
    selected = row(ep=8, nodes=1, fused_permute=False, token_dispatcher="all_gather").segments["permute"]
    assert selected == pytest.approx(2 * apart, rel=1e-9)


def test_gradients_added_apart_cost_a_pass_of_ten_bytes() -> None:
    asked = {"target": "llama-2-7b", "tp": 8}
    fused, apart = (row(**asked, gradient_accumulation_fusion=on).backward_segments for on in (True, False))
    weights = 3 * 4096 * 11008 / 8 * 2 / 3
    assert apart["ffn1 wgrad added"] == pytest.approx(weights * 10 / (1.6e12 * 0.84) + 2e-6)
    assert apart["ffn1 wgrad"] < fused["ffn1 wgrad"]
    assert sum(apart.values()) > sum(fused.values())


# --- context parallelism


@pytest.mark.parametrize("cp", [1, 2, 3, 8])
def test_pairs_of_the_busiest_rank_counted_one_by_one(cp: int) -> None:
    """One stretch per rank, and zigzag: an early and a late one of twice as many."""
    seq = 2 * cp * 16
    mine = [sum(range(i * seq // cp, (i + 1) * seq // cp)) + seq / cp / 2 for i in range(cp)]
    assert max(mine) / (sum(mine) / cp) == pytest.approx(float(contiguous_ring_factor(float(cp))))
    short = seq // (2 * cp)
    pairs = [sum(range(i * short, (i + 1) * short)) for i in range(2 * cp)]
    assert len({pairs[i] + pairs[2 * cp - 1 - i] for i in range(cp)}) == 1


def test_a_ring_is_a_kernel_for_every_block() -> None:
    ask = {"target": "llama-2-7b", "seq_len": 65536, "nodes": 1}
    whole, ring, uneven = (
        row(**ask, **how).segments["attention"] for how in ({}, {"cp": 8}, {"cp": 8, "cp_balanced": False})
    )
    # every block costs 1330 keys more for every query, and merging its results
    assert ring / (whole / 8) > (32768 + 8 * 1330) / (32768 + 1330)
    merged = 7 * (65536 / 8 * 4096 * 10 / (1.6e12 * 0.84) + 2e-6)
    launches = 8 * 47.1e-6
    assert (uneven - merged - launches) / (ring - merged - launches) == pytest.approx(15 / 8)


def test_traded_heads_are_the_bytes_of_ulysses() -> None:
    found = row(target="llama-3.1-8b", seq_len=32768, cp=4, cp_kind="ulysses", nodes=1, dp=2).segments
    rows = 32768 / 4
    arrays = {"in": (32 * 128, 8 * 128, 8 * 128), "out": (32 * 128,)}
    for way, widths in arrays.items():
        expected = sum(collective("all_to_all", rows * width * 2, 4) for width in widths)
        assert found[f"attention heads {way}"] == pytest.approx(expected)
    sent = sum(rows * width * 2 * 3 / 4 for widths in arrays.values() for width in widths)
    assert sent == pytest.approx(float(ulysses_bytes(rows, 32.0, 8.0, 128.0, 128.0, 2.0, 4.0)))
    plain = row(target="llama-3.1-8b", seq_len=32768, nodes=1).segments["attention"]
    assert found["attention"] - 47.1e-6 == pytest.approx((plain - 47.1e-6) / 4)


def test_a_hybrid_with_one_kind_is_that_kind() -> None:
    ask: dict[str, Any] = {"target": "llama-3.1-8b", "seq_len": 32768, "cp": 8, "nodes": 1}
    assert row(**ask, cp_kind="hybrid", ulysses=8).total_time == row(**ask, cp_kind="ulysses").total_time
    assert row(**ask, cp_kind="hybrid", ulysses=1).total_time == row(**ask).total_time
    mixed = row(**ask, cp_kind="hybrid", ulysses=2).segments
    assert {"attention heads in", "attention ring", "attention"} <= mixed.keys()


# --- order of ranks, stages


def test_the_order_of_ranks_decides_which_links_a_group_has() -> None:
    ask: dict[str, Any] = {
        "target": "llama-2-7b", "tp": 2, "pp": 4, "dp": 4, "nodes": 4, "global_batch_size": 64,
    }  # fmt: skip
    inside, outside = (row(**ask, rank_order=order).traffic for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"))
    assert inside["dp"][0] < outside["dp"][0]
    assert inside["pp"][0] > outside["pp"][0]
    assert inside["tp"] == outside["tp"]


def test_stages_of_any_length() -> None:
    uneven = study("llama-2-7b", pp=4.0, stage_layers="7-9-9-7", global_batch_size=8.0)
    assert stage_counts(uneven) == [[7.0], [9.0], [9.0], [7.0]]
    ask: dict[str, Any] = {"target": "llama-2-7b", "tp": 2, "pp": 4, "nodes": 1, "global_batch_size": 8}
    even = row(**ask).total_time
    assert row(**ask, stage_layers="8-8-8-8").total_time == even
    # the head weighs on the last stage: one layer less there is faster, one more slower
    assert row(**ask, stage_layers="8-8-9-7").total_time != even
    assert row(**ask, stage_layers="7-7-7-11").total_time > even
    deep = study("deepseek-v3", "cloudmatrix384", pp=16.0, ep=8.0, global_batch_size=64.0,
                 stage_layers="-".join(["4"] * 15 + ["1"]))  # fmt: skip
    assert stage_counts(deep)[0] == [3.0, 1.0] and stage_counts(deep)[-1] == [0.0, 1.0]


def test_mixers_alternate_over_the_stages() -> None:
    """Gemma 2: every stage has as many layers with a window as with full attention."""
    counts = stage_counts(study("gemma-2-27b", pp=2.0, tp=8.0, nodes=2.0, global_batch_size=8.0))
    assert counts == [[11.5, 11.5]] * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rank_order": "tp-dp"}, "rank_order: 'tp-dp' is no order"),
        ({"cp": 2, "cp_kind": "hybrid", "nodes": 1}, "cp_kind: a hybrid"),
        ({"cp": 4, "ulysses": 2, "nodes": 1}, "ulysses: is of a hybrid"),
        ({"cp": 4, "cp_kind": "hybrid", "ulysses": 3, "nodes": 1}, "ulysses: 4 context-parallel ranks"),
        ({"target": "qwen2-7b", "cp": 8, "cp_kind": "ulysses", "nodes": 1}, "cp: 28 heads of a rank"),
        ({"tp": 8, "etp": 4, "ep": 1}, "etp: with ep 1"),
        ({"ep": 8, "etp": 2, "nodes": 1}, "etp: 8 NPUs of a stage"),
        ({"token_dispatcher": "all_gather", "capacity_factor": 1}, "token_dispatcher: an all_gather"),
        ({"pp": 4, "stage_layers": "8-8-16", "global_batch_size": 8}, "3 stages are not pp = 4"),
        ({"pp": 2, "stage_layers": "16-15", "global_batch_size": 8}, "31 layers are not the model's 32"),
        ({"pp": 2, "stage_layers": "many", "global_batch_size": 8}, "'many' is no list of layers"),
        ({"stage_layers": "32"}, "stage_layers: is part of a whole step"),
    ],
)
def test_layouts_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        row(**given)
