"""Differences attributed to what differs: by hand, against all orders, and laws of fair shares."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mc2perf.api import estimate
from mc2perf.cli import app
from mc2perf.differing import ask_diff
from mc2perf.equations.shapley import average_shares, orders_of, sets_on, shapley_shares
from mc2perf.problems import InputError
from mc2perf.studies import attribution, changes
from mc2perf.studies.diff import Difference
from mc2perf.variation import differences, varied

Question = tuple[str, dict[str, Any]]

PAIRS: dict[str, tuple[Question, Question]] = {
    "inputs": (("deepseek-v3", {"hardware": "atlas_800t_a3"}),
               ("deepseek-v3", {"hardware": "atlas_800t_a3", "dtype": "int8", "ep": 32, "seq_len": 2048})),
    "machines": (("all_gather_matmul", {"m": 8192, "n": 4096, "k": 8192}),
                 ("all_gather_matmul", {"m": 8192, "n": 4096, "k": 8192, "hardware": "atlas_800t_a3"})),
    "unlike": (("matmul_all_reduce", {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}),
               ("matmul_all_reduce", {"m": 8192, "n": 8192, "k": 4096, "hardware": "ascend_950pr"})),
    "models": (("mixtral-8x7b", {}), ("llama-2-13b", {"tp": 8})),
    "together": (("deepseek-v3", {"nodes": 1, "ep": 8}),
                 ("deepseek-v3", {"nodes": 2, "ep": 16, "l2": "warm"})),
}  # fmt: skip


def both_ways(name: str, folder: Path) -> tuple[Difference, Difference]:
    """The difference of two scenario files, and of the two the other way round."""
    files = []
    for i, (target, given) in enumerate(PAIRS[name]):
        files.append(folder / f"{i}.yaml")
        files[-1].write_text(json.dumps({"target": target, **given}))
    one, other = map(str, files)
    return ask_diff(one, other, {}, {}), ask_diff(other, one, {}, {})


def test_shares_are_averages_over_all_orders() -> None:
    noise = np.random.default_rng(3)
    for count in range(1, 6):
        values = noise.standard_normal(1 << count)
        every = list(itertools.permutations(range(count)))
        by_hand = np.zeros(count)
        for order in every:
            made = 0
            for change in order:
                by_hand[change] += (values[made | 1 << change] - values[made]) / len(every)
                made |= 1 << change
        np.testing.assert_allclose(shapley_shares(values), by_hand, atol=1e-12)
        known = {made: float(values[made]) for made in sets_on(every)}
        np.testing.assert_allclose(average_shares(known, every), by_hand, atol=1e-12)
        assert shapley_shares(values).sum() == pytest.approx(values[-1] - values[0])
        assert (shapley_shares(values[::-1]) == -shapley_shares(values)).all()


def test_drawn_orders_pass_the_same_sets_both_ways() -> None:
    orders = orders_of(7, 5)
    assert {127 ^ made for made in sets_on(orders)} == set(sets_on(orders))
    assert all(sorted(order) == list(range(7)) for order in orders)


def test_two_changes_by_hand() -> None:
    def time(**change: Any) -> float:
        best = estimate("deepseek-v3", hardware="atlas_800t_a3", **change).best
        assert best is not None
        return best.total_time

    path = {"tiers.node.link_rate": "14 GB/s"}
    none, dtype, links, all_ = time(), time(dtype="int8"), time(set=path), time(dtype="int8", set=path)
    found = ask_diff("deepseek-v3", None, {"hardware": "atlas_800t_a3"}, {},
                     ["dtype=int8", "tiers.node.link_rate=14 GB/s"])  # fmt: skip
    shares = {share.change: share.share for share in found.shares}
    assert shares["dtype"] == pytest.approx(((dtype - none) + (all_ - links)) / 2, rel=1e-12)
    assert shares["tiers.node.link_rate"] == pytest.approx(((links - none) + (all_ - dtype)) / 2, rel=1e-12)
    assert (found.before, found.after) == pytest.approx((none, all_), rel=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_shares_add_up_and_change_sign_on_the_way_back(name: str, tmp_path: Path) -> None:
    there, back = both_ways(name, tmp_path)
    assert there.before == pytest.approx(back.after, rel=1e-12)
    assert math.fsum(s.share for s in there.shares) == pytest.approx(
        there.after - there.before, abs=1e-12 * there.before
    )
    opposite = {share.change: -share.share for share in back.shares}
    assert {share.change: share.share for share in there.shares} == pytest.approx(
        opposite, rel=1e-12, abs=1e-15 * there.before
    )
    for (target, given), time in zip(PAIRS[name], (there.before, there.after), strict=True):
        best = estimate(target, **given).best
        assert best is not None and time == pytest.approx(best.total_time, rel=1e-12)


def test_drawn_orders_add_up_and_change_sign_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attribution, "MOST_CALLS", 4)
    there, back = both_ways("unlike", tmp_path)
    assert there.orders == 2 * attribution.ORDER_PAIRS
    total = math.fsum(share.share for share in there.shares)
    assert total == pytest.approx(there.after - there.before, rel=1e-9)
    opposite = {share.change: -share.share for share in back.shares}
    assert {s.change: s.share for s in there.shares} == pytest.approx(opposite, abs=1e-12 * there.before)


def test_what_is_legal_only_together_moves_as_one(tmp_path: Path) -> None:
    there, back = both_ways("together", tmp_path)
    assert there.together == back.together == ("ep + nodes",)
    assert {share.change for share in there.shares} == {"ep + nodes", "l2"}


def test_what_an_answer_does_not_rest_on_has_no_share() -> None:
    found = ask_diff("mixtral-8x7b", None, {}, {},
                     ["kernels.decode_attention.launch=1 ms", "tiers.cluster.link_rate=1 GB/s", "tp=1",
                      "rdma=false", "memory.bandwidth=3.2 TB/s"])  # fmt: skip
    shares = {share.change: share.share for share in found.shares}
    assert shares.pop("memory.bandwidth") == found.after - found.before < 0.0
    assert shares == dict.fromkeys(
        ("kernels.decode_attention.launch", "rdma", "tiers.cluster.link_rate"), 0.0
    )
    nothing = ask_diff("mixtral-8x7b", "mixtral-8x7b", {}, {})
    assert nothing.shares == () and nothing.before == nothing.after


def test_leaving_out_what_is_idle_changes_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    # 32 ranks are two servers of one machine, and inside one tier of the other: how a machine is built counts
    asked: Any = ("all_gather_matmul", None, {"m": 8192, "n": 4096, "k": 8192, "ranks": 32,
                  "hardware": "atlas_800t_a3"}, {}, ["hardware=cloudmatrix384", "m=4096"])  # fmt: skip
    without = {share.change: share.share for share in ask_diff(*asked).shares}
    assert without["tiers.node.ranks"] != 0.0
    monkeypatch.setattr(changes.Mover, "rests_on", lambda mover, used: True)
    monkeypatch.setattr(attribution, "MOST_CALLS", 4096)
    everything = {share.change: share.share for share in ask_diff(*asked).shares}
    assert len(everything) > 6 and everything == pytest.approx(without, abs=1e-12)


def test_more_of_a_rate_speaks_for_itself_in_tokens_per_second() -> None:
    found = ask_diff("mixtral-8x7b", None, {}, {}, ["cube.peak.bf16=500 TFLOP/s"], "tokens_per_second")
    assert found.after - found.before == found.shares[0].share > 0.0


def test_saved_results_say_what_changed_since(tmp_path: Path) -> None:
    run, saved = CliRunner(), tmp_path / "old.json"
    assert run.invoke(app, ["estimate", "mixtral-8x7b", "-o", str(saved)]).exit_code == 0
    same = ask_diff(str(saved), "mixtral-8x7b", {}, {})
    assert same.shares == ()
    changed = ask_diff(str(saved), "mixtral-8x7b", {"seq_len": 8192, "tokens": 8192}, {})
    assert {share.change for share in changed.shares} == {"seq_len", "tokens"}
    tree = json.loads(saved.read_text())
    for row in tree["results"]:
        row["total_time"] *= 1.25
    saved.write_text(json.dumps(tree))
    since = ask_diff(str(saved), "mixtral-8x7b", {"dtype": "int8"}, {})
    shares = {share.change: share.share for share in since.shares}
    assert shares[f"tool or profile since {saved} was saved"] == pytest.approx(-0.2 * since.before)
    assert math.fsum(shares.values()) == pytest.approx(since.after - since.before)
    tree["inputs"] = {"m": 4}
    saved.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"inputs\.target"):
        ask_diff(str(saved), "mixtral-8x7b", {}, {})


def test_two_machines_differ_where_changing_one_makes_the_other() -> None:
    from mc2perf.readers.profiles import load_machine

    for one, other in itertools.permutations(
        ("atlas_800i_a2", "atlas_800t_a3", "ascend_950pr", "h800_sxm"), 2
    ):
        here, there = load_machine(one), load_machine(other)
        made = varied(here, {place.path: place.other for place in differences(here, there)})
        assert list(differences(made, there)) == []
        assert len(list(differences(here, there))) == len(list(differences(there, here)))


def test_text_and_files(tmp_path: Path) -> None:
    run = ["diff", "matmul_all_reduce", "-m", "4K", "-n", "8K", "-k", "4K", "--to", "m=8K",
           "--to", "tiers.node.link_rate=56 GB/s"]  # fmt: skip
    said = CliRunner().invoke(app, run)
    assert said.exit_code == 0
    bars = [line for line in said.stdout.splitlines() if line.endswith("|")]
    assert [("+" in bar, "-" in bar.split("|")[1], "#" in bar) for bar in bars] == [
        (False, False, True), (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    lengths = [len(bar.split("|")[1].strip()) for bar in bars]
    assert lengths[0] + lengths[1] - lengths[2] == pytest.approx(lengths[3], abs=2)
    assert CliRunner().invoke(app, [*run, "-o", str(tmp_path / "a.csv")]).exit_code == 0
    assert CliRunner().invoke(app, [*run, "-o", str(tmp_path / "a.json")]).exit_code == 0
    tree = json.loads((tmp_path / "a.json").read_text())
    with (tmp_path / "a.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [row["change"] for row in rows] == [share["change"] for share in tree["shares"]]
    assert sum(float(row["share(s)"]) for row in rows) == pytest.approx(tree["after"] - tree["before"])
    assert (
        CliRunner().invoke(app, ["diff", "mixtral-8x7b", "mixtral-8x7b"]).stdout.startswith("Nothing differs")
    )


def test_bad_input_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ask_diff("mixtral-8x7b", None, {}, {}, ["foo", "exp=3"], "speed")
    assert len(caught.value.problems) == 3
    with pytest.raises(InputError, match="to:"):
        ask_diff("mixtral-8x7b", None, {}, {})
    with pytest.raises(InputError, match="with ep=7: ep"):
        ask_diff("mixtral-8x7b", None, {}, {}, ["ep=7"])
