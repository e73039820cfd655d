"""Skewed routing from the word to the answer: the busiest rank, unequal pieces, copies, files of counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mc2perf import two_engines
from mc2perf.answer import Answer, Row
from mc2perf.api import estimate, playback_of
from mc2perf.equations.overlap import longest_path, two_stage_paths
from mc2perf.equations.unequal import unequal_pieces
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_scenario
from mc2perf.readers.skew import read_skew
from mc2perf.scenario import is_operator
from mc2perf.skew import Counted, Group
from mc2perf.studies.run import blocks
from mc2perf.study import Study, study_of
from mc2perf.sweeping import ask_sweep
from mc2perf.table import Words
from mc2perf.workload.parts import ExpertPath
from mc2perf.writers.explain import to_explanation

MOE: dict[str, Any] = {"m": 4096, "n": 2048, "k": 4096, "ranks": 8, "experts_per_rank": 4, "top_k": 2}
DECODE: dict[str, Any] = {"phase": "decode", "hardware": "cloudmatrix384", "ep": 64, "batch_size": 32}
PREFILL: dict[str, Any] = {"phase": "prefill", "hardware": "atlas_800t_a3"}

times = st.floats(0.01, 10.0)


def first(number: Any) -> float:
    """The number of a study of one row."""
    return float(np.ravel(number)[0])


def row(answer: Answer, schedule: str) -> Row:
    return next(r for r in answer.rows if r.schedule == schedule)


def study(target: str, **given: Any) -> Study:
    scenario, _ = read_scenario(target, given)
    model = None if is_operator(target) else load_model(target)
    return study_of(scenario, load_machine(scenario.hardware), model)


# --- unequal pieces


@given(
    st.lists(st.tuples(times, times), min_size=1, max_size=7),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([1.0, 1.2]),
    st.sampled_from([1.0, 1.3]),
)
def test_unequal_pieces_against_playing_them(
    pieces: list[tuple[float, float]], head: float, f: float, g: float
) -> None:
    comm, compute = (np.array(part) for part in zip(*pieces, strict=True))
    played = two_engines.two_stages(
        "comm_first", comm.tolist(), compute.tolist(), head=head, buffers=max(len(comm), 2),
        comm_slowdown=f, compute_slowdown=g,
    )  # fmt: skip
    found = unequal_pieces(comm, compute, head, f, g)
    assert float(found.total) == pytest.approx(played.total)
    assert float(found.exposed_comm) == pytest.approx(played.exposed_comm, abs=1e-9)
    assert float(found.total) == pytest.approx(float(found.busy_compute + found.exposed_comm), rel=1e-15)


@given(times, times, st.integers(1, 9), st.sampled_from([0.0, 2.0]))
def test_equal_pieces_are_the_closed_form(comm: float, compute: float, n: int, head: float) -> None:
    paths = two_stage_paths(comm, compute, float(n), head, float(max(n, 2)), 1.1, 1.2)
    whole = longest_path(**paths._asdict(), work=n * (comm + compute) + head, comm=n * comm)
    found = unequal_pieces(np.full(n, comm), np.full(n, compute), head, 1.1, 1.2)
    assert np.array(found) == pytest.approx(np.array(whole), abs=1e-9)


def test_fused_experts_against_pricing_and_playing_each() -> None:
    """Dispatch + FFN1 of every local expert of the busiest rank, one by one."""
    s = study("moe_layer", **MOE, skew="zipf:0.8", hardware="atlas_800t_a3", schedule="mc2")
    loads = np.arange(1.0, 33.0) ** -0.8
    local = loads[:4] / loads.mean()
    rows = 4096 * 2 * local / 4
    total = 0.0
    (path,) = s.of_kind(ExpertPath)
    whole = path.build(1.0, False)
    for width_in, width_out, name in ((4096, 4096, "ffn1"), (2048, 4096, "ffn2")):
        comm = [s.costs.collective("x", "all_to_all", r * 4096 * 2, 8.0).work for r in rows]
        chance = np.minimum(local * 2 / 32, 1.0)
        compute = [
            s.costs.matmul(name, r, width_out, width_in, "bf16", 1.0, 1 - (1 - p) ** (4096 * 8), 4.0)
            for r, p in zip(rows, chance, strict=True)
        ]
        on = s.conditions(path)
        order: two_engines.Order = "comm_first" if name == "ffn1" else "compute_first"
        played = two_engines.two_stages(
            order, [first(c) + on.round_cost for c in comm], [first(c.work) for c in compute],
            buffers=4, comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
        )  # fmt: skip
        total += played.total + first(compute[0].launch) + first(whole.comm_in.cost.launch)
    rest = (*whole.before, *whole.middle, *whole.after)
    total += sum(first(segment.cost.time) for segment in rest)
    answer = estimate("moe_layer", **MOE, skew="zipf:0.8", hardware="atlas_800t_a3", schedule="mc2")
    assert row(answer, "mc2").total_time - row(answer, "mc2").free_time == pytest.approx(total)
    assert answer.resolved["imbalance"] == pytest.approx(local.mean())


@pytest.mark.parametrize("target", ["all_to_all_v_grouped_matmul", "grouped_matmul_all_to_all_v"])
def test_fused_operator_in_groups_of_experts(target: str) -> None:
    """One piece is the operator uncut: rows and bytes of the busiest rank; two pieces are two halves."""
    given: dict[str, Any] = {
        "m": 8192, "n": 4096, "k": 4096, "ranks": 8, "experts_per_rank": 4, "hardware": "atlas_800t_a3",
    }  # fmt: skip
    skewed = {count: estimate(target, **given, skew="zipf:1", tile_cnt=count) for count in (1, 2, 4)}
    factor = skewed[1].resolved["imbalance"]
    uncut = row(estimate(target, **given, skew=factor, tile_cnt=1), "mc2")
    assert row(skewed[1], "mc2").total_time == pytest.approx(uncut.total_time)
    even = row(estimate(target, **given, skew=factor, tile_cnt=4), "mc2")
    # what is computed before it travels ends with the smallest piece, and overlaps better so
    slower = target == "all_to_all_v_grouped_matmul"
    assert (row(skewed[4], "mc2").total_time > even.total_time) == slower
    assert row(skewed[4], "mc2").comm_time == pytest.approx(even.comm_time, rel=0.2)
    sweep = ask_sweep(target, given | {"skew": "zipf:1", "schedule": "mc2"}, {}, ["tile_cnt=1,2,3,4"]).sweep
    (block,) = blocks(sweep, ["tile_cnt", "total_time", "reason"])
    times = block["total_time"]
    assert not isinstance(times, Words) and np.isnan(times[2])  # 3 does not divide 4 experts
    assert [times[at] for at in (0, 1, 3)] == [row(answer, "mc2").total_time for answer in skewed.values()]


@pytest.mark.parametrize("buffers", [1, 4])
@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("deepseek-v3", {**PREFILL, "schedule": "all"}),
        ("moe_layer", {**MOE, "shared_width": 1024, "schedule": "all"}),
        (
            "grouped_matmul_all_to_all_v",
            {"m": 8192, "n": 4096, "k": 4096, "ranks": 8, "experts_per_rank": 4, "schedule": "mc2"},
        ),
    ],
)
def test_playing_a_skewed_answer_takes_as_long(target: str, given: dict[str, Any], buffers: int) -> None:
    asked = {**given, "skew": "zipf:0.9", "buffers": buffers}
    scenario, _ = read_scenario(target, asked)
    for found in estimate(target, **asked).legal_rows:
        played = playback_of(scenario, {}, found).timeline
        assert played.exposed_comm == pytest.approx(found.exposed_comm_time, rel=1e-9, abs=1e-12)
        assert played.busy_compute == pytest.approx(found.compute_time + found.compute_stretch)


# --- what a skew does to an answer


def test_rows_and_bytes_of_the_busiest_rank_are_its_share() -> None:
    even, skewed = (
        estimate("moe_layer", **MOE, skew=skew, schedule="serial").rows[0] for skew in ("even", "2")
    )
    assert skewed.segments["gate"] == even.segments["gate"]
    more = {name: skewed.segments[name] / even.segments[name] for name in ("dispatch", "ffn1", "combine")}
    assert all(1.8 < factor < 2.05 for factor in more.values())


def test_skew_moves_the_best_count() -> None:
    """What travels and is computed grows, what a piece costs does not: more pieces pay."""
    counts = [
        row(estimate("deepseek-v3", **PREFILL, skew=skew, schedule="micro_batch"), "micro_batch").pieces
        for skew in ("even", "zipf:0.5", "zipf:1")
    ]
    assert counts[0] < counts[1] < counts[2]


def test_unequal_experts_overlap_worse_than_alike_ones() -> None:
    skewed = estimate("deepseek-v3", **PREFILL, skew="zipf:1", schedule="mc2")
    alike = estimate("deepseek-v3", **PREFILL, skew=skewed.resolved["imbalance"], schedule="mc2")
    assert row(skewed, "mc2").speedup < 0.98 * row(alike, "mc2").speedup
    assert skewed.rows[0].comm_time == pytest.approx(alike.rows[0].comm_time)


def test_nothing_changes_where_nothing_is_skewed() -> None:
    even = estimate("deepseek-v3", **PREFILL)
    ways: list[dict[str, Any]] = [{"skew": "zipf:0"}, {"skew": 1}, {"redundant_experts": 0}]
    for skew in ways:
        assert estimate("deepseek-v3", **PREFILL, **skew).rows == even.rows
    many = estimate("moe_layer", **{**MOE, "m": 10**7}, skew="random", schedule="serial").rows[0]
    assert many.imbalance == pytest.approx(1.0, abs=1e-3)


def test_the_fullest_rank_by_chance_grows_with_pieces() -> None:
    """Few tokens in each piece: 64 pieces of 16 tokens have a fuller rank than one of 1024."""
    asked = {**MOE, "m": 1024, "schedule": "micro_batch", "micro_batches": 64}
    sums = [
        estimate("moe_layer", **asked, skew=skew).rows[1].comm_time for skew in ("even", "random", "1.02")
    ]
    assert sums[0] < sums[2] < sums[1]
    answer = estimate("moe_layer", **{**MOE, "m": 64})
    assert any("drawn at random the fullest of 8 ranks would carry" in text for text in answer.assumptions)


def test_copies_cost_memory_and_even_out() -> None:
    asked = {**DECODE, "skew": "zipf:0.8", "schedule": "serial"}
    plain, placed, copied = (
        estimate("deepseek-v3", **asked, redundant_experts=copies) for copies in (None, 0, 64)
    )
    factors = [float(str(answer.resolved["imbalance"])) for answer in (plain, placed, copied)]
    assert factors[0] > factors[1] > factors[2] >= 1.0 and factors[2] < 1.05
    assert plain.rows[0].total_time > placed.rows[0].total_time > copied.rows[0].total_time
    assert plain.memory and copied.memory
    model = load_model("deepseek-v3")
    routed = sum(group.count * model.routed_parameters(group) for group in model.layers)
    more_weights = copied.memory.parts["weights"] - plain.memory.parts["weights"]
    assert more_weights == pytest.approx(routed / 64 * 64 / 256 * 2)


def test_weights_read_are_those_of_experts_with_rows() -> None:
    """The busiest rank of a decode step, its experts drawn one by one."""
    s = study("moe_layer", **{**MOE, "m": 2, "experts_per_rank": 8}, skew="zipf:1")
    loads = np.arange(1.0, 65.0) ** -1.0
    chances = 2 * loads[:8] / loads.sum()
    draws = np.random.default_rng(2).random((20_000, 16, 8)) < chances
    (path,) = s.of_kind(ExpertPath)
    r = path.build.args[1]
    assert first(r.touched(1.0)) == pytest.approx(draws.any(axis=1).sum(axis=1).mean(), rel=0.01)
    assert float(np.sum(r.touched_each())) == pytest.approx(first(r.touched(1.0)))


def test_a_row_of_a_sweep_is_the_estimate() -> None:
    axes = ["skew=zipf:0..1:0.5,random,1.5", "redundant_experts=0", "tokens=256,4096"]
    sweep = ask_sweep("deepseek-v3", PREFILL | {"schedule": "mc2"}, {}, axes).sweep
    found = list(blocks(sweep, ["skew", "tokens", "imbalance", "total_time", "legal"]))
    assert [word for block in found for word in block["legal"]].count("yes") == 6  # others have no loads
    for text, at in (("zipf:0", 0), ("zipf:0.5", 0), ("zipf:1", 1)):
        block = next(b for b in found if text in b["skew"])
        numbers = {name: block[name] for name in ("total_time", "imbalance")}
        answer = estimate(
            "deepseek-v3", **PREFILL, schedule="mc2", skew=text, redundant_experts=0, tokens=(256, 4096)[at]
        )
        for name, column in numbers.items():
            assert not isinstance(column, Words) and column[at] == getattr(row(answer, "mc2"), name)


def test_every_equation_of_unequal_pieces_is_explained() -> None:
    answer = estimate("moe_layer", **MOE, skew="zipf:1", schedule="mc2", explain=True)
    text = to_explanation(answer)
    assert "makespan of unequal pieces" in text and "comm = [" in text


# --- words and files


def test_counts_with_a_header_and_without(tmp_path: Path) -> None:
    named, bare = tmp_path / "named.csv", tmp_path / "bare.csv"
    named.write_text("layer,expert,tokens\n0,1,30\n0,0,10\n0,3,20\n1,2,40\n1,0,20\n")
    bare.write_text("10,30,0,20\n20,0,40,0\n")
    first, second = read_skew(str(named)), read_skew(str(bare))
    assert isinstance(first, Counted) and isinstance(second, Counted)
    assert first.layers == second.layers == ((10, 30, 0, 20), (20, 0, 40, 0))
    busiest = first.busiest(Group(4, 2, 1))
    # layer 0: (40, 20) of 60 rows, layer 1: (20, 40): 4 / 3 in both
    assert busiest.imbalance == pytest.approx(4 / 3)
    assert busiest.hottest == pytest.approx((2.0 + 40 / 15) / 2)
    assert busiest.local == pytest.approx(((2.0 + 8 / 3) / 2, (2 / 3 + 0.0) / 2))
    (tmp_path / "rank_2.csv").write_text("1,2,3,4\n")
    (tmp_path / "rank_10.csv").write_text("5,6,7,8\n")
    joined = read_skew(str(tmp_path / "rank_*.csv"))
    assert isinstance(joined, Counted) and joined.layers == ((1, 2, 3, 4, 5, 6, 7, 8),)


def test_slots_of_a_balancer_lie_as_counted(tmp_path: Path) -> None:
    file = tmp_path / "slots.csv"
    file.write_text("5,1,1,1,1,1\n")
    busiest = read_skew(str(file)).busiest(Group(4, 2, 1, copies=2))
    assert busiest.imbalance == pytest.approx(1.4) and busiest.local == pytest.approx((3.0, 0.6, 0.6))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"skew": "zipf:-1"}, "skew: '-1' is"),
        ({"skew": "zpf:1"}, "skew: 'zpf:1' is no skew and no file; did you mean 'zipf:1.0'?"),
        ({"skew": "8.5"}, "skew: 8.5 is more than the busiest of 8 ranks can carry; write at most 4"),
        ({"skew": 2, "redundant_experts": 8}, "what a balancer leaves of skew 2 is not known"),
        ({"redundant_experts": 8}, "redundant_experts: is of prefill and decode; leave it out"),
        ({"redundant_experts": 3, "phase": "prefill"}, "11 experts with their copies do not divide"),
        ({"skew": "zipf:1", "capacity_factor": 1.25}, "skew: a capacity_factor gives every expert"),
    ],
)  # fmt: skip
def test_what_no_group_of_ranks_can_have(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        estimate("mixtral-8x7b", **given)
    assert problem in "\n".join(refused.value.problems)


@pytest.mark.parametrize("target", ["llama-2-7b", "all_gather_matmul"])
def test_what_has_no_experts_has_no_skew(target: str) -> None:
    sizes: dict[str, Any] = {"m": 1024, "n": 1024, "k": 1024} if is_operator(target) else {}
    with pytest.raises(InputError, match=f"skew: {target} has no experts; leave it out"):
        estimate(target, **sizes, skew="zipf:1")


def test_files_that_are_no_counts(tmp_path: Path) -> None:
    for text, problem in (
        ("a,b\n1,2\n", "is of no known kind"),
        ("expert,tokens\n0,5\n1,x\n", "line 3"),
        ("1,2,3,4\n", "counts 4 experts and there are 8"),
        ("9,0,0,0,0,0,0,1\n", "gives one expert 90% of all rows; a token goes to 2"),
    ):
        file = tmp_path / "counts.csv"
        file.write_text(text)
        with pytest.raises(InputError) as refused:
            estimate("mixtral-8x7b", skew=str(file))
        assert problem in "\n".join(refused.value.problems)


@pytest.mark.skipif("MC2PERF_SAMPLES" not in os.environ, reason="no samples")
def test_counts_of_a_profiler_on_their_own_rank() -> None:
    """A file of one rank of 64: 58 layers of 4 of 256 experts; alone it is not enough."""
    file = Path(os.environ["MC2PERF_SAMPLES"]) / "profiler/expert_hotspot/decode_0.csv"
    skew = read_skew(str(file))
    assert isinstance(skew, Counted) and len(skew.layers) == 58
    with pytest.raises(InputError, match="counts 4 experts and there are 256; count all of them"):
        estimate("deepseek-v3", **DECODE, skew=str(file))
