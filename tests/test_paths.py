"""Paths of an MoE layer: the published selector row by row, capacity, crossings, prices by hand."""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np
import pytest

from mc2perf import cli
from mc2perf.api import estimate
from mc2perf.pathing import ask_paths
from mc2perf.problems import InputError
from mc2perf.rules.facts import Facts
from mc2perf.rules.selector import PATHS, SELECTOR, capacity, selected
from mc2perf.studies.paths import PRICES, Paths, Serving, crossings
from mc2perf.writers.paths import paths_document

BASE = {"ep": 16.0, "lora": False, "experts_per_rank": 8.0, "tokens": 64.0, "capacity": 512.0,
        "fused": "off", "world": 16.0, "top_k": 8.0}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "changed", "path"),
    [
        ("a2", {}, "mc2"),
        ("a2", {"ep": 8.0}, "all_gather"),
        ("a2", {"experts_per_rank": 25.0}, "all_gather"),
        ("a2", {"tokens": 513.0}, "all_gather"),
        ("a2", {"ep": 1.0}, "all_gather"),
        ("a2", {"lora": True}, "all_to_all"),
        ("a3", {}, "mc2"),
        ("a3", {"tokens": 513.0}, "all_to_all"),
        ("a3", {"ep": 32.0, "fused": "dispatch_ffn_combine"}, "fused_mc2"),
        ("a3", {"ep": 64.0, "fused": "dispatch_ffn_combine"}, "mc2"),
        ("a3", {"ep": 64.0, "fused": "mega_moe"}, "fused_mc2"),
        ("a3", {"ep": 65.0, "fused": "mega_moe"}, "mc2"),
        ("950", {}, "mc2"),
        ("950", {"tokens": 513.0}, "all_to_all"),
        ("950", {"tokens": 513.0, "world": 8.0}, "all_gather"),
        ("950", {"world": 1.0}, "all_gather"),
        ("gpu", {}, ""),
    ],
)
def test_the_published_selector(family: str, changed: dict[str, Any], path: str) -> None:
    assert selected(family, Facts(BASE | changed)) == path


def test_every_row_is_a_path_and_the_last_always_holds() -> None:
    assert PRICES.keys() == PATHS.keys()
    for rows in SELECTOR.values():
        assert {row.path for row in rows} <= PATHS.keys() and not rows[-1].rules


def taken(target: str, tokens: float | None = None, **words: Any) -> str:
    """Path at one number of tokens of a tensor-parallel group."""
    started = {name: words.pop(name) for name in list(words) if name in Serving.__dataclass_fields__}
    _, found = ask_paths(target, words, {}, started)
    at = -1 if tokens is None else int(np.flatnonzero(found.tokens == tokens)[0])
    return found.taken[at]


def test_case_3_eligibility() -> None:
    assert taken("qwen3-235b-a22b", 64, ep=16) == "mc2"
    assert taken("qwen3-235b-a22b", 64, ep=8) == "all_gather"
    a3: dict[str, Any] = {"hardware": "cloudmatrix384"}
    assert taken("qwen3-235b-a22b", 64, ep=32, fused="dispatch_ffn_combine", **a3) == "fused_mc2"
    assert taken("qwen3-235b-a22b", 64, ep=64, fused="dispatch_ffn_combine", **a3) == "mc2"
    assert taken("qwen3-235b-a22b", 64, ep=64, fused="mega_moe", **a3) == "fused_mc2"


def test_case_4_capacity() -> None:
    a3 = {"hardware": "atlas_800t_a3", "tp": 8, "ep": 16}
    started = {"prefill_mc2": True, "max_num_batched_tokens": "8192"}
    _, found = ask_paths("qwen3-235b-a22b", a3, {}, started)
    assert found.capacity == 4096.0
    assert crossings(found.tokens, found.taken) == [("mc2", 8.0, 4096.0), ("all_to_all", 4104.0, 8192.0)]
    assert capacity(8.0, 100.0, 512.0) == 104.0


def test_case_5_kimi_is_refused_before_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "mc2perf paths kimi-k3 --hardware atlas_800t_a3 --ep 16 --fused mega_moe"
    for more, code, limits in (
        ("--mega-moe-max-tokens 6144", 1, ["mega_moe_max_tokens 6144 is above", "8192 tokens per rank are"]),
        ("", 1, ["8192 tokens per rank are above the 4096 of mega_moe"]),
        ("--max-num-batched-tokens 4096", 0, []),
    ):  # fmt: skip
        monkeypatch.setattr("sys.argv", shlex.split(f"{words} {more}"))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out = capsys.readouterr().out
        assert int(str(exit_.value.code or 0)) == code
        assert all(limit in out for limit in limits) and (code == 1) == ("refused at start" in out)


def test_all_to_all_is_the_serial_expert_path_of_an_estimate() -> None:
    given: dict[str, Any] = {"hardware": "atlas_800t_a3", "ep": 16}
    _, found = ask_paths("deepseek-v3", given | {"tokens": 64}, {}, {})
    row = estimate("deepseek-v3", phase="prefill", tokens=64, schedule="serial", **given).best
    assert row is not None
    attention = ("norms", "attention in", "cache write", "attention", "attention out")
    path = sum(time for name, time in row.segments.items() if name not in attention)
    assert found.times["all_to_all"][-1] == pytest.approx(path, rel=1e-9)


def test_gathering_wins_for_few_tokens_and_loses_for_many() -> None:
    _, found = ask_paths("qwen3-235b-a22b", {"hardware": "atlas_800t_a3", "ep": 16}, {}, {})
    assert found.fastest[0] == "all_gather" and found.fastest[-1] == "fused_mc2"
    rows = np.stack(list(found.times.values()))
    best = np.array([found.times[name][i] for i, name in enumerate(found.fastest)])
    assert np.all(best <= rows.min(axis=0) * 1.01)
    assert np.all(rows > 0.0)


def test_crossings_are_where_names_change() -> None:
    tokens = np.arange(1.0, 7.0)
    assert crossings(tokens, list("aabbba")) == [("a", 1.0, 2.0), ("b", 3.0, 5.0), ("a", 6.0, 6.0)]
    found = Paths(
        tokens=tokens, taken=("",) * 6, capacity=1.0, ep=2.0, tp=1.0, refusals=(),
        times={
            "a": np.array([1.0, 1.0, 1.005, 1.2, 1.0, 1.0]), "b": np.array([2.0, 1.5, 1.0, 1.0, 1.0, 0.5]),
        },
    )  # fmt: skip
    assert found.fastest == ("a", "a", "a", "b", "b", "b")


@pytest.mark.parametrize(
    ("target", "given", "started", "problem"),
    [
        ("llama-2-7b", {}, {}, "paths: llama-2-7b is dense"),
        ("moe_layer", {}, {}, "paths are of models"),
        ("mixtral-8x7b", {}, {"fused": "mega"}, "fused: 'mega' is not known; did you mean 'mega_moe'?"),
        ("mixtral-8x7b", {}, {"graph_size": "0"}, "graph_size: '0' is too small"),
    ],
)
def test_wrong_input(target: str, given: dict[str, Any], started: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem.replace("?", r"\?")):
        ask_paths(target, given, {}, started)


def test_json_holds_every_count() -> None:
    _, found = ask_paths("mixtral-8x7b", {"tokens": 300}, {}, {})
    tree = paths_document({}, found)
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert len(tree["tokens"]) == 300 == len(tree["times"]["mc2"])
