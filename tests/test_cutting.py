"""Policies: one price for every cut; by formula equals every count where costs are affine; bounds; limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from mc2perf import cutting, schedules
from mc2perf.api import estimate
from mc2perf.costs import Cost
from mc2perf.equations.overlap import longest_path, two_stage_paths
from mc2perf.machine import Machine
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.piece_counts import Counts, tile_counts
from mc2perf.policies import uneven
from mc2perf.policies.closed_form import Affine, affine_through, two_stage_branches
from mc2perf.problems import InputError
from mc2perf.readers.profiles import load_machine
from mc2perf.reasons import Reason
from mc2perf.results import Results
from mc2perf.scenario import POLICIES, Scenario
from mc2perf.study import Study, study_of
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, PairPieces, Segment

SHAPES = 3000
EVERY = np.arange(1.0, 33.0).reshape(1, -1)


def study(policy: str, hardware: str = "atlas_800i_a2", **given: Any) -> Study:
    asked = {"target": "matmul_all_reduce", "m": 4096.0, "n": 4096.0, "k": 4096.0, "ranks": 8.0, **given}
    return study_of(Scenario(**asked, policy=policy, schedule="mc2"), load_machine(hardware), None)


def affine_pair(
    rng: np.random.Generator, rows: int, order: Literal["comm_first", "compute_first"], own: bool
) -> Pair:
    """Random constants and work of both sides, a column of them."""
    a0, b0 = (10.0 ** rng.uniform(-6, -4, (rows, 1)) for _ in range(2))
    a1, b1 = (10.0 ** rng.uniform(-5, -2, (rows, 1)) for _ in range(2))
    share = rng.uniform(0.05, 0.5, (rows, 1)) if own else np.zeros((rows, 1))

    def build(n: Num, local_first: bool) -> PairPieces:
        def compute(work: Num) -> tuple[Segment, ...]:
            return (Segment("matmul", "compute", Cost(work, 0.0)),)

        cut = local_first and own
        work = np.asarray(b0 + (b1 * (1.0 - share) if cut else b1) / n)
        head = compute(b1 * share + 0.0 * n) if cut else ()
        return PairPieces((), Segment("send", "comm", Cost(a0 + a1 / n, 0.0)), compute(work), head)

    return Pair("pair", order, 8.0, np.full((rows, 1), 4096.0), build, local_first=own)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("order", ["comm_first", "compute_first"])
def test_affine_costs_by_formula_are_every_count(order: Any, own: bool) -> None:
    """Thousands of random costs and sets of feasible counts: the same time, to rounding."""
    rng = np.random.default_rng(7)
    of = study("closed_form")
    pair = affine_pair(rng, SHAPES, order, own and order == "comm_first")
    feasible = rng.random((SHAPES, EVERY.shape[1])) < 0.6
    feasible[:, 0] = True
    tried = Counts(EVERY, (Reason("no", ~feasible),))
    on = replace(of.conditions(pair), compute_slowdown=1.1)
    of.conditions = lambda part: on  # type: ignore[method-assign]
    chosen = cutting.counts_to_price(of, pair, tried)
    assert chosen.pieces.shape == (SHAPES, 2)
    assert np.take_along_axis(feasible, chosen.pieces.astype(int) - 1, axis=1).all()
    by_formula = np.min(np.asarray(schedules.pair_mc2(pair, chosen.pieces, on).total), axis=1)
    every = np.where(feasible, schedules.pair_mc2(pair, EVERY, on).total, np.inf)
    np.testing.assert_allclose(by_formula, every.min(axis=1), rtol=1e-12)


def test_the_branches_are_the_paths() -> None:
    """The same makespan from coefficients as from the paths, for random costs and counts."""
    rng = np.random.default_rng(3)
    p, q, r, s, h = (rng.uniform(0.0, 2.0, 500) for _ in range(5))
    n, buffers = rng.integers(2, 20, 500).astype(float), rng.integers(2, 9, 500).astype(float)
    f = rng.uniform(1.0, 2.0, 500)
    g = 1.0 + rng.random(500) * (np.minimum(f / (f - 1.0), 3.0) - 1.0)
    a, b = p + q / n, r + s / n
    paths = two_stage_paths(a, b, n, h, buffers, f, g)
    branches = two_stage_branches(Affine(p, q), Affine(r, s), h, buffers, f, g)
    longest = np.max(branches.a * n + branches.b / n + branches.c, axis=0)
    np.testing.assert_allclose(longest, np.max(np.stack(np.broadcast_arrays(*paths[:4])), axis=0), rtol=1e-12)
    work = n * (a + b) + h
    assert np.all(longest_path(*paths, work=work, comm=n * a).total <= work)


def test_a_line_through_two_prices() -> None:
    alpha, work = affine_through(2.0, 16.0, 3.0 + 8.0 / 2.0, 3.0 + 8.0 / 16.0)
    assert (alpha, work) == (3.0, 8.0)
    assert affine_through(2.0, 4.0, 1.0, 2.0) == (1.0, 0.0)
    assert affine_through(1.0, 2.0, 8.0, 3.0)[0] == 0.0


def test_unequal_pieces_are_below_all_under_one_affine_cost() -> None:
    rng = np.random.default_rng(11)
    for _ in range(40):
        a0, b0 = rng.uniform(0.0, 2.0, 2)
        a1, b1 = rng.uniform(0.1, 3.0, 2)
        equal = []
        for n in range(1, 17):
            paths = two_stage_paths(a0 + a1 * 32 / n, b0 + b1 * 32 / n, float(n), 0.0, 17.0, 1.0, 1.0)
            equal.append(float(max(paths[:4])))
        best = uneven.best_uneven(
            32.0, 16, alpha_first=a0, per_row_first=a1, alpha_second=b0, per_row_second=b1
        )
        assert best.time <= min(equal) * (1.0 + 1e-9)
        assert best.time >= max(a0 + 32 * a1, b0 + 32 * b1) * (1.0 - 1e-12)


def random_shapes(machine: Machine, target: str, ranks: float, policy: str) -> tuple[Study, Results, Any]:
    rng = np.random.default_rng(5)
    m = rng.integers(1, 257, (SHAPES, 1)) * 256.0
    n, k = (2.0 ** rng.uniform(8, 14, (SHAPES, 1)) // 128 * 128 for _ in range(2))
    given: dict[str, Any] = {"target": target, "m": m, "n": n, "k": k, "ranks": ranks}
    of = study_of(Scenario(**given, policy=policy, schedule="mc2"), machine, None)
    outcome = OUTCOMES["mc2"](of, serial_outcome(of))
    return of, Results(of, outcome, None), outcome


TARGETS = ["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce", "all_to_all_matmul"]


@pytest.mark.parametrize("hardware", ["atlas_800t_a3", "ascend_950pr", "atlas_800i_a2"])
@pytest.mark.parametrize("target", TARGETS)
def test_regret_of_the_formula_and_the_bound(hardware: str, target: str) -> None:
    """Full costs: nothing is below its longer engine; the formula mostly finds nearly the best cut."""
    machine = load_machine(hardware)
    if hardware == "atlas_800t_a3" and target == "matmul_all_reduce":
        pytest.skip("no such operator on A3")
    best = {}
    for policy in ("scan", "closed_form"):
        _, results, outcome = random_shapes(machine, target, 8.0, policy)
        refused = outcome.refused_at
        longer = np.maximum(results["compute_time"], results["comm_time"])
        assert np.all(results.total >= longer * (1.0 - 1e-12))
        at = best_count(np.asarray(results.total), refused)
        best[policy] = at_count(results.total, at)[:, 0]
    regret = best["closed_form"] / best["scan"] - 1.0
    assert regret.min() >= 0.0
    assert np.median(regret) <= 0.01
    assert np.mean(regret <= 0.02) > 0.8
    assert np.mean(regret) < 0.02


@pytest.mark.parametrize("hardware", ["atlas_800i_a2", "ascend_950pr"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pieces", [1, 2, 4, 8])
def test_equal_tiles_cost_what_the_closed_form_says(hardware: str, target: str, pieces: int) -> None:
    of = study("scan", hardware, target=target, m=8192.0)
    (pair,) = of.of_kind(Pair)
    timing, played = cutting.priced(of, pair, [8192.0 / pieces] * pieces)
    closed = schedules.scalar(schedules.pair_mc2(pair, float(pieces), of.conditions(pair)))
    for name in ("total", "compute", "comm", "busy", "exposed", "launches"):
        assert getattr(timing, name) == pytest.approx(getattr(closed, name), rel=1e-9, abs=1e-15), name
    assert len([span for span in played.spans if span.engine == "comm"]) == pieces


def test_policies_side_by_side() -> None:
    answer = estimate("matmul_all_reduce", m=4096, n=8192, k=4096, ranks=8, policy="all")
    assert [cut.policy for cut in answer.policies] == list(POLICIES)
    for cut in answer.policies:
        assert sum(cut.tiles) == 4096
        assert cut.above_bound >= 0.0
        alone = estimate(
            "matmul_all_reduce", m=4096, n=8192, k=4096, ranks=8, policy=cut.policy, schedule="mc2"
        ).rows[-1]
        assert alone.total_time == cut.total_time
    scan, formula, cann, _ = answer.policies
    assert scan.total_time <= formula.total_time
    assert scan.total_time <= cann.total_time


def test_cann_cuts_as_its_worked_example() -> None:
    """cann-mc2.md 5.1: 24 cores, 4096 rows -> 512 + 4 x 896; per rank for reduce-scatter (5.3)."""
    of = study("cann", "atlas_800t_a2_b2", n=8192.0)
    (pair,) = of.of_kind(Pair)
    assert cutting.cut_by_cann(of, pair).tiles == (512.0, *(896.0,) * 4)
    of = study("cann", target="matmul_reduce_scatter", m=16384.0, n=8192.0, k=2048.0)
    (pair,) = of.of_kind(Pair)
    assert cutting.cut_by_cann(of, pair).tiles == (1024.0,) * 16


@pytest.mark.parametrize(
    ("hardware", "given", "said"),
    [
        ("h100_sxm", {}, "MC2 is part of CANN"),
        ("atlas_800i_a2", {"split_axis": "n"}, "CANN cuts rows"),
    ],
)
def test_where_cann_has_no_policy(hardware: str, given: dict[str, Any], said: str) -> None:
    asked = {"m": 4096, "n": 4096, "k": 4096, "ranks": 8, "hardware": hardware, **given}
    row = estimate("matmul_all_reduce", policy="cann", schedule="mc2", **asked).rows[-1]
    assert not row.legal and said in row.reason


def test_all_policies_need_one_operator() -> None:
    with pytest.raises(InputError, match="policy"):
        estimate("mixtral-8x7b", policy="all")


@pytest.mark.parametrize(
    ("given", "override", "n", "said"),
    [
        ({"m": 65536.0}, {"limits.pieces": "8"}, 16, "takes 8 tiles"),
        ({"m": 65536.0}, {"tiers.node.engines.udma.put": "1 MiB"}, 2, "put"),
        ({"m": 65536.0, "buffers": 256.0}, {}, 2, "symmetric heap"),
        ({"m": 65536.0, "ranks": 2.0}, {"tiers.node.engines.udma.flags": "3"}, 8, "3 flags"),
        ({"m": np.array([[20.0], [4096.0]])}, {}, 3, "the cube multiplies 16 rows"),
        ({"m": 20.0}, {}, 16, "leaves nothing for the last"),
    ],
)
def test_every_rejected_count_says_why(
    given: dict[str, Any], override: dict[str, str], n: int, said: str
) -> None:
    machine = load_machine("ascend_950pr", overrides=override)
    asked = {"target": "all_to_all_matmul", "n": 4096.0, "k": 7168.0, "ranks": 8.0, **given}
    of = study_of(Scenario(**asked, engine="udma", schedule="mc2"), machine, None)
    (pair,) = of.of_kind(Pair)
    counts = tile_counts(of, pair)
    shape = (np.size(asked["m"]), counts.pieces.shape[-1])
    reasons = [r.text for r in counts.refused if np.broadcast_to(r.where, shape)[0, n - 1 : n].any()]
    if n > counts.pieces.shape[-1]:
        asked_of = replace(of, scenario=replace(of.scenario, tile_cnt=np.array([[float(n)]])))
        reasons = [r.text for r in tile_counts(asked_of, pair).refused if np.all(r.where)]
    assert any(said in text for text in reasons), reasons
