"""Claims: laws of their equations, verdicts by hand, the shipped claims, the traffic behind a layout."""

from __future__ import annotations

import csv
import io
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import run
from hypothesis import assume, given
from hypothesis import strategies as st

from mc2perf.api import estimate
from mc2perf.auditing import ask_audit
from mc2perf.claims import stated
from mc2perf.equations import claims as eq
from mc2perf.equations.pipeline import two_stage_time
from mc2perf.problems import InputError
from mc2perf.readers.claims import claims_names, load_claims
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_scenario
from mc2perf.studies.audit import Audit, Judged
from mc2perf.studies.layouts import wire_bytes
from mc2perf.study import study_of

SCHEMA = json.loads((resources.files("mc2perf") / "data" / "audit.schema.json").read_text(encoding="utf-8"))
share = st.floats(0.01, 0.95)


# --- equations -----------------------------------------------------------------------------------------


@given(share, share)
def test_nothing_changed_means_no_gain(before: float, after: float) -> None:
    assert eq.share_speedup(before, before) == pytest.approx(1.0)
    assert eq.hidden_share(before, before) == pytest.approx(0.0, abs=1e-9)
    assert eq.unexplained_speedup(eq.share_speedup(before, after), before, after) == pytest.approx(1.0)


@given(share, share, share)
def test_less_communication_gains_more_up_to_the_ceiling(before: float, after: float, less: float) -> None:
    assume(less < after)
    assert eq.share_speedup(before, less) > eq.share_speedup(before, after)
    assert eq.share_speedup(before, less) < 1.0 / (1.0 - before)
    assert eq.hidden_share(before, less) > eq.hidden_share(before, after)


@given(share, share)
def test_the_ceiling_is_what_endless_pieces_reach(comm: float, covering: float) -> None:
    """Independent way: play two stages with very many pieces beside work that cannot overlap."""
    assume(comm + covering <= 1.0)
    pieces = 1e7
    beside = float(two_stage_time(comm / pieces, covering / pieces, pieces))
    total = 1.0 - comm - covering + beside
    assert eq.overlap_ceiling(comm, covering) == pytest.approx(1.0 / total, rel=1e-6)
    assert eq.least_comm_ratio(comm, covering) == pytest.approx((beside - covering) / total, abs=1e-6)


@given(share, share)
def test_hiding_that_share_gives_the_new_ratio(before: float, hidden: float) -> None:
    left = before * (1.0 - hidden)
    after = left / (left + 1.0 - before)
    assert eq.hidden_share(before, after) == pytest.approx(hidden)
    assert eq.share_speedup(before, after) == pytest.approx(1.0 / (left + 1.0 - before))


@pytest.mark.parametrize(("percent", "most"), [(55, 1.82), (35, 1.54)])
def test_overlap_bound_of_prefill(percent: int, most: float) -> None:
    assert round(float(eq.overlap_ceiling(percent / 100, 1 - percent / 100)), 2) == most


def test_printed_numbers_keep_their_rounding() -> None:
    assert (stated("0.470").half, stated("18 %").half, stated("1420").half) == (0.0005, 0.005, 5.0)
    assert stated("1.5e3").value == 1500.0 and stated("1.5e3").half == 50.0
    for wrong in ("", "47 per cent", "-1", "nan", "1e999"):
        with pytest.raises(ValueError, match=r"write|range"):
            stated(wrong)


# --- verdicts ------------------------------------------------------------------------------------------


def verdicts(*claims: str, **inputs: object) -> list[Judged]:
    (audit,) = ask_audit([], claims, inputs)
    return list(audit.judgements)


def test_rounding_counts_in_favour_of_a_claim() -> None:
    base = "a:comm_ratio=50%,tokens_per_second=1000"
    assert verdicts(base, "b:tokens_per_second=2050")[1].verdict == "holds"  # over 950 .. 1050
    assert verdicts("a:comm_ratio=50.0%,tokens_per_second=1001", "b:tokens_per_second=2011")[1].verdict == (
        "impossible"
    )
    after = "b:comm_ratio=20%,speedup="
    assert [verdicts(base, f"{after}{gain}x")[1].verdict for gain in ("1.60", "1.58", "1.7")] == [
        "holds", "holds", "unexplained",
    ]  # fmt: skip


def test_more_communication_than_work_caps_the_gain() -> None:
    base = "a:comm_ratio=80%"
    assert verdicts(base, "b:speedup=1.24x")[1].verdict == "holds"
    assert verdicts(base, "b:speedup=1.40x")[1].verdict == "impossible"  # 1 / 0.2 = 5x without that cap
    assert verdicts(base, "b:comm_ratio=60%")[1].verdict == "impossible"  # 0.6 of 0.8 finds no cover
    assert verdicts(base, "b:comm_ratio=76%")[1].verdict == "holds"


def test_a_gain_below_its_shares_is_slower_work() -> None:
    _, after = verdicts("a:comm_ratio=50%", "b:comm_ratio=10%,speedup=1.2x")
    assert after.verdict == "holds" and after.unexplained < 1 and "slower" in after.findings[0]


def test_rates_above_the_peak_are_impossible_and_near_it_implausible() -> None:
    given: dict[str, object] = {
        "target": "qwen3-8b",
        "hardware": "atlas_800t_a3",
        "tp": 2.0,
        "seq_len": 4096.0,
    }
    # 7617 tokens/s of one die: the unit trap of a table that counts cards of two dies
    (die,) = verdicts("die:tokens_per_second=7617", **given)
    (card,) = verdicts("card:tokens_per_second=3808", **given)
    (between,) = verdicts("between:tokens_per_second=6900", **given)
    assert (die.verdict, between.verdict, card.verdict) == ("impossible", "implausible", "base")
    assert "card with two dies" in die.findings[0] and "card with two dies" in between.findings[0]
    assert die.mfu == pytest.approx(2 * card.mfu, rel=1e-3) and die.mfu > 1.0


def test_traffic_that_the_links_cannot_carry() -> None:
    given: dict[str, object] = {"target": "deepseek-v3", "ep": 16.0, "hardware": "atlas_800t_a3"}
    slow = {"tiers.node.link_rate": "100 MB/s"}
    (audit,) = ask_audit([], ["a:comm_ratio=10%,tokens_per_second=800"], given, slow)
    assert audit.judgements[0].verdict == "impossible"
    assert "full rate of the links" in audit.judgements[0].findings[-1]


# --- the shipped claims --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blog() -> Audit:
    return ask_audit(["mixtral-8x7b-mc2"], [], {})[0]


def test_numbers_of_the_shipped_claims(blog: Audit) -> None:
    base, one, two = blog.judgements
    assert round(base.ceiling, 3) == 1.887 and round(base.ceiling_rate) == 1094
    assert [round(j.share_rate) for j in (one, two)] == [897, 843]
    assert [round(j.share_speedup, 3) for j in (one, two)] == [1.547, 1.453]
    assert [j.unexplained for j in (one, two)] == pytest.approx([1.583, 1.246], abs=1e-3)
    assert [j.verdict for j in (base, one, two)] == ["base", "impossible", "unexplained"]
    assert [round(j.other_time * 1e6, 1) for j in (base, one, two)] == [913.8, 577.5, 733.3]
    assert "115%" in one.findings[0] and "577 us" in blog.remarks[0] and not blog.holds


def test_layouts_behind_the_shipped_claims_are_single_estimates(blog: Audit) -> None:
    for judgement in blog.judgements:
        share = judgement.claim.comm_ratio
        assert share is not None
        off = [abs(c.comm_ratio - share.value) for c in judgement.candidates]
        assert off == sorted(off)
    small = next(
        c
        for c in blog.judgements[0].candidates
        if c.layout == "TP, 256 tokens, layers alone" and c.place == "1 server"
    )
    row = estimate("mixtral-8x7b", tp=8, nodes=1, seq_len=256, schedule="serial").rows[0]
    assert (small.comm_ratio, small.tokens_per_second) == (row.comm_ratio, row.tokens_per_second)
    behind = {c.place for c in blog.judgements[2].candidates}
    assert behind == {"2 servers", "2 servers, no RDMA"}
    assert blog.layout is not None and len(blog.layout.candidates) == 3


def test_stated_inputs_are_not_varied() -> None:
    (audit,) = ask_audit(["mixtral-8x7b-mc2"], [], {"ep": 8.0, "seq_len": 512.0, "global_batch_size": 64.0})
    for judgement in audit.judgements:
        assert {c.inputs["seq_len"] for c in judgement.candidates} == {512.0}
        assert {c.parallel for c in judgement.candidates} == {"ep 8"}


def test_every_phase_and_dense_models_have_layouts() -> None:
    claim = "a:comm_ratio=20%,tokens_per_second=300"
    for phase, layouts in {
        "prefill": {"EP, 4096 tokens", "EP, 256 tokens", "TP, 4096 tokens", "TP, 256 tokens"},
        "decode": {f"{kind}, {n} sequences" for kind in ("EP", "TP") for n in (1, 32, 256)},
    }.items():
        (judged,) = verdicts(claim, target="mixtral-8x7b", phase=phase, nodes=1.0)
        assert {c.layout for c in judged.candidates} == layouts
    (judged,) = verdicts(claim, target="llama-2-7b", nodes=1.0, seq_len=512.0)
    assert {c.layout for c in judged.candidates} == {
        f"{kind}, {what}" for kind in ("DP", "TP") for what in ("layers alone", "whole step")
    }


@pytest.mark.parametrize(
    ("layout", "phase"), [({"ep": 8.0}, "train"), ({"tp": 8.0}, "train"), ({"tp": 8.0}, "prefill")]
)
def test_traffic_of_a_layout_is_what_slow_links_take(layout: dict[str, float], phase: str) -> None:
    """Independent way: the slope of communication time over the inverse of the bandwidth is the bytes."""
    asked: dict[str, Any] = {**layout, "phase": phase, "seq_len": 8192.0, "engine": "aiv", "nodes": 1.0}
    path, inverse, times = "tiers.node.link_rate", [1e-6, 5e-7], []
    for slow in inverse:
        row = estimate("mixtral-8x7b", set={path: f"{1 / slow:g} B/s"}, schedule="serial", **asked).rows[0]
        times.append(row.comm_time)
    machine = load_machine("atlas_800i_a2")
    study = study_of(read_scenario("mixtral-8x7b", asked)[0], machine, load_model("mixtral-8x7b"))
    node = machine.tiers["node"]
    wires = node.engines["aiv"].wires
    assert wires is not None
    sent = (times[0] - times[1]) / (inverse[0] - inverse[1]) * node.links * wires.efficiency
    per_token, ranks = wire_bytes(study)
    assert ranks == 8.0
    # counts of tokens per expert and three collectives of the head travel beside them
    assert per_token * 8192.0 / layout.get("tp", 1.0) == pytest.approx(sent, rel=1.2e-2)


# --- the command ---------------------------------------------------------------------------------------


NARROW = ("--seq-len", "256", "--tp", "8")
"""One layout for every claim: fewer estimates."""


def test_every_form_says_the_same(tmp_path: Path) -> None:
    code, text, _ = run("audit", "mixtral-8x7b-mc2", *NARROW)
    assert code == 1 and text.startswith("Does not hold: MC2 in one server is impossible")
    code, out, _ = run("audit", "mixtral-8x7b-mc2", *NARROW, "--format", "json")
    tree = json.loads(out)
    jsonschema.validate(tree, SCHEMA)
    assert code == 1 and tree["holds"] is False
    file = tmp_path / "claims.csv"
    assert run("audit", "mixtral-8x7b-mc2", *NARROW, "-o", str(file))[:2] == (1, "")
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"))))
    claims = tree["audits"][0]["claims"]
    layouts = [(claim["claim"], one["place"]) for claim in claims for one in claim["layouts"]]
    assert [(row["claim"], row["place"]) for row in rows] == layouts
    assert float(rows[-1]["unexplained"]) == pytest.approx(1.246, abs=1e-3)
    assert run("audit", "moe-step-split", "-o", str(tmp_path / "a.md"))[0] == 0
    assert "| claims |" in (tmp_path / "a.md").read_text()


def test_without_arguments_every_shipped_set() -> None:
    code, out, _ = run("audit", "--format", "json", *NARROW)
    tree = json.loads(out)
    assert code == 1 and [audit["name"] for audit in tree["audits"]] == claims_names()
    split = tree["audits"][claims_names().index("moe-step-split")]
    assert split["claims"][0]["ceiling"] == pytest.approx(1 / 0.7)


GOOD = "claims_version: 1\nclaims:\n  a: {comm_ratio: 40%}\n"


def test_files_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GOOD + "  b: {comm_ratio: 0.2, speedup: 1.3x, base: a}\n", encoding="utf-8")
    code, out, _ = run("audit", str(file))
    assert code == 0 and out.startswith("Holds: b.")
    assert load_claims(str(file)).claims[1].base == "a"


WRONG: list[tuple[str, str]] = [
    ("claims_version: 2\nclaims: {a: {comm_ratio: 0.1}}\n", "claims_version"),
    ("claims_version: 1\nclaims: {a: {comm_ratio: 1.2}}\n", "below 1"),
    ("claims_version: 1\nclaims: {a: {comm_ratio: true}}\n", "no number"),
    ("claims_version: 1\nclaims: {a: {tokens_per_second: 0}}\n", "not above 0"),
    ("claims_version: 1\nclaims: {a: {nodes: 1}}\n", "states no number"),
    ("claims_version: 1\nclaims: {a: {comm_ratio: 0.1, node: 1}}\n", "nodes"),
    ("claims_version: 1\nclaims: {a: {comm_ratio: 0.1, base: z}}\n", "is no claim"),
    ("claims_version: 1\nclaims: [1]\n", "expected lines"),
    ("claims_version: 1\n", "at least one"),
    ("claims_version: 1\ntarget: mixtral\nclaims: {a: {comm_ratio: 0.1}}\n", "mixtral-8x7b"),
    ("claims_version: 1\ntitle: 5\nclaim: 1\n", "title"),
]


@pytest.mark.parametrize(("text", "word"), WRONG)
def test_wrong_files_are_lines(tmp_path: Path, text: str, word: str) -> None:
    file, kept = tmp_path / "own.yaml", tmp_path / "kept.json"
    file.write_text(text, encoding="utf-8")
    kept.write_text("old", encoding="utf-8")
    code, out, err = run("audit", str(file), "-o", str(kept))
    assert (code, out) == (2, "") and word in err and "Traceback" not in err
    assert kept.read_text() == "old"


def test_every_problem_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ask_audit(
            ["nope"], ["a", "b:comm_ratio=2,comm_ratio=3", "c:speedup=x"], {"target": "all_gather_matmul"}
        )
    said = "\n".join(caught.value.problems)
    for word in ("nope", "NAME:KEY=VALUE", "stands twice", "no number"):
        assert word in said
    with pytest.raises(InputError, match="is an operator"):
        ask_audit([], ["a:comm_ratio=0.1"], {"target": "all_gather_matmul"})
