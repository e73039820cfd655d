"""Shared experts on ranks of their own: rows and copies by sending every token, figures by hand, limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mc2perf.api import estimate
from mc2perf.costs import Cost, Costs, Ledger
from mc2perf.footprint import footprint_of
from mc2perf.model import Experts
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.rules.facts import WINDOWS, Facts
from mc2perf.scenario import Scenario
from mc2perf.study import study_of
from mc2perf.workload.experts import expert_path
from mc2perf.workload.parts import Segment, all_segments
from mc2perf.workload.routing import Routing

SERVED: dict[str, Any] = {
    "hardware": "cloudmatrix384", "phase": "decode", "dtype": "int8", "context_len": 4224.0, "sp": False,
    "host": "graph", "schedule": "serial",
}  # fmt: skip


def routing(ep: int, shared: int, tokens: float = 4.0, **how: Any) -> Routing:
    """Experts of DeepSeek-V3, as many as asked for."""
    given: dict[str, Any] = {"count": 256, "top_k": 8, "shared_width": 2048} | how
    return Routing(
        experts=Experts(width=2048, payload_width=7168, **given), hidden_size=7168.0, matrices=3.0,
        tokens=tokens, ep=float(ep), servers=1.0, dtype="int8", expert_dtype="int8",
        dispatch_dtype="int8", combine_dtype="bf16",
        shared_ranks=float(shared),
    )  # fmt: skip


def segments(r: Routing) -> dict[str, Segment]:
    costs = Costs(load_machine("cloudmatrix384"), Ledger(), decode=True)
    return {segment.name: segment for segment in all_segments(expert_path(costs, r))}


def price(r: Routing, *names: str) -> float:
    found = segments(r)
    return sum(float(np.asarray(found[name].cost.time)) for name in names)


FFN = ("ffn1", "activation", "ffn2")


@pytest.mark.parametrize(
    "ep, shared, experts, k", [(12, 4, 16, 2), (10, 2, 8, 4), (11, 3, 8, 1), (9, 1, 8, 2)]
)
def test_rows_and_copies_by_sending_every_token(ep: int, shared: int, experts: int, k: int) -> None:
    """Every rank's tokens go around the experts in turn, and to the rank of shared experts that serves it."""
    routed, each = ep - shared, 2 * experts
    sent, got = Counter[int](), Counter[int]()
    serves = int(np.ceil(ep / shared))
    turn = 0
    for rank in range(ep):
        for _ in range(each):
            to = [(turn + i) % experts * routed // experts for i in range(k)]
            turn += k
            for place in (*to, routed + rank // serves):
                sent[rank] += 1
                got[place] += 1
    r = routing(ep, shared, float(each), count=experts, top_k=k)
    assert {got[rank] for rank in range(routed)} == {r.rows(1.0)} == {each * k * ep / routed}
    assert max(got[rank] for rank in range(routed, ep)) == r.tokens * r.served
    most = max(*sent.values(), *got.values())
    assert r.tokens * r.copies(r.load(1.0)) == most
    assert r.local_experts == experts / routed


def test_cloudmatrix_by_hand() -> None:
    """320 dies: 256 experts and 32 copies on 288 of them, shared ones on 32, each for 10 dies."""
    r = routing(320, 32, 8.0, count=288)
    assert (r.local_experts, r.routed_ranks, r.served) == (1.0, 288.0, 10.0)
    assert r.rows(1.0) == pytest.approx(8 * 8 * 320 / 288)
    # a rank of shared experts gets ten ranks' tokens, one more than a rank sends
    assert r.copies(r.load(1.0)) == 10.0
    assert r.touched(1.0) == pytest.approx(1 - (1 - 8 / 288) ** (8 * 320))


def test_few_ranks_of_shared_experts_set_the_pace() -> None:
    """With many of them routed experts do; they take a matmul, activation, matmul of all their rows."""
    few, many = routing(260, 4, 64.0), routing(512, 256, 64.0)
    costs = Costs(load_machine("cloudmatrix384"), Ledger(), decode=True)
    rows = 64.0 * 65
    alone: list[Cost] = [
        costs.matmul("up", rows, 4096.0, 7168.0, "int8"),
        costs.vector("activation", rows * 3 * 2048 * 2),
        costs.matmul("down", rows, 7168.0, 2048.0, "int8"),
    ]
    assert price(few, *FFN) == pytest.approx(float(sum(np.asarray(cost.time) for cost in alone)))
    without = routing(256, 0, 64.0 * 2)
    assert price(many, *FFN) == pytest.approx(price(without, *FFN))
    assert "shared experts" in segments(without) and "shared experts" not in segments(many)


def test_a_rank_holds_one_kind_of_expert() -> None:
    """On 256 dies a layer has one routed and the shared expert, on 320 the one or the other."""
    machine = load_machine("cloudmatrix384")

    def weights(target: str, **how: Any) -> float:
        scenario = Scenario(target=target, **(SERVED | {"batch_size": 4.0} | how))
        held = footprint_of(study_of(scenario, machine, load_model(target)))
        return float(np.asarray(held["weights"]).item())

    expert = 58 * 3 * 7168 * 2048
    whole = weights("deepseek-v3", ep=256.0, nodes=16.0)
    apart = weights("deepseek-v3", ep=320.0, nodes=20.0, redundant_experts=32.0, shared_expert_ranks=32.0)
    assert whole - apart == pytest.approx(expert)
    # one rank for the shared expert, 15 with 18 routed ones each, instead of 16 and the shared one on all
    alike = weights("deepseek-v3", ep=16.0, nodes=1.0)
    few = weights("deepseek-v3", ep=16.0, nodes=1.0, redundant_experts=14.0, shared_expert_ranks=1.0)
    assert few - alike == pytest.approx((18 - 17) * expert)
    # two shared experts of DeepSeek-V2 are more than the one routed expert of another rank
    alike = weights("deepseek-v2", ep=160.0, nodes=10.0)
    apart = weights("deepseek-v2", ep=176.0, nodes=11.0, shared_expert_ranks=16.0)
    assert alike - apart == pytest.approx((1 + 2 - 2) * 59 * 3 * 5120 * 1536)


def test_dispatch_is_legal_over_the_ranks_of_routed_experts() -> None:
    given = {"m": 8.0, "k": 7168.0, "ranks": 320.0, "experts": 288.0, "top_k": 8.0, "dtype": "bf16"}
    alike, apart = (Facts(given | {"shared_ranks": n}) for n in (0.0, 32.0))
    assert (apart["routed_ranks"], apart["experts_per_rank"], alike["experts_per_rank"]) == (288.0, 1.0, 0.9)
    # a copy more comes back: 8 tokens of 14 336 bytes, twice
    more = Facts(given | {"experts": 320.0, "shared_ranks": 0.0})
    assert WINDOWS["a3_v3_mb"].needed(apart) - WINDOWS["a3_v3_mb"].needed(more) == pytest.approx(
        2 * 8 * 14336 / 2**20
    )


@pytest.mark.parametrize(
    ("target", "given", "problem"),
    [
        ("deepseek-v3", {"phase": "train"}, "is of prefill and decode; leave it out"),
        ("qwen3-30b-a3b", {}, "qwen3-30b-a3b has no shared experts; leave it out"),
        ("deepseek-v3", {"ep": 4}, "4 of 4 ranks leave none for routed experts"),
        ("deepseek-v3", {"ep": 16}, "256 experts do not divide by 16 - 4 = 12 ranks"),
        ("nemotron-3-super-120b", {}, "sends tokens in another width"),
        ("deepseek-v3", {"token_dispatcher": "all_gather"}, "whole experts by an all_to_all"),
        ("deepseek-v3", {"ep": 16, "redundant_experts": 1}, "257 experts with their copies do not"),
    ],
)  # fmt: skip
def test_ranks_that_cannot_be(target: str, given: dict[str, Any], problem: str) -> None:
    how: dict[str, Any] = {
        "hardware": "cloudmatrix384",
        "phase": "decode",
        "ep": 8,
        "nodes": 1,
        "shared_expert_ranks": 4,
    }
    with pytest.raises(InputError) as refused:
        estimate(target, **(how | given))
    assert problem in "\n".join(refused.value.problems)


def test_what_is_assumed_is_said() -> None:
    how = SERVED | {"batch_size": 4.0, "redundant_experts": 32}
    found = estimate("deepseek-v3", ep=320, nodes=20, shared_expert_ranks=32, **how)
    said = " ".join(found.assumptions)
    assert "32 of 320 ranks hold shared experts alone, each for the tokens of 10 ranks" in said
    assert "own tokens" not in said
    assert found.facts["dispatch_bytes"] == (8 + 1) * (7168 + 4)
