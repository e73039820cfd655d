"""Whole answers played piece by piece: totals of the closed forms, traces, drawings."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from mc2perf.answer import Row
from mc2perf.api import ask, playback_of
from mc2perf.cli import main
from mc2perf.playback import MOST_SPANS, Playback
from mc2perf.timeline import Span, Timeline
from mc2perf.two_engines import Job, if_it_pays, side_by_side, two_stages
from mc2perf.writers.gantt import to_gantt
from mc2perf.writers.timeline_svg import to_svg
from mc2perf.writers.trace import ANALYSIS, INSIGHT, to_trace

REDUCE: dict[str, Any] = {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "wide experts": ("mixtral-8x7b", {}),
    "many experts": ("deepseek-v3", {"hardware": "atlas_800t_a3"}),
    "prefill": ("deepseek-v3", {"hardware": "atlas_800t_a3", "phase": "prefill", "batch_size": 4}),
    "decode": ("deepseek-v3", {"hardware": "cloudmatrix384", "phase": "decode", "batch_size": 64, "ep": 32}),
    "dense": ("llama-2-13b", {"tp": 8, "hardware": "atlas_800t_a2"}),
    "step": ("llama-2-13b", {"tp": 8, "hardware": "atlas_800t_a2", "global_batch_size": 64}),
    "bubble": ("llama-2-13b",
               {"tp": 4, "pp": 4, "nodes": 2, "hardware": "atlas_800t_a2", "global_batch_size": 64}),
    "reduce": ("matmul_all_reduce", REDUCE),
    "unequal tiles": ("matmul_all_reduce", REDUCE | {"policy": "cann"}),
    "own rows first": ("all_gather_matmul", REDUCE | {"hardware": "ascend_950pr"}),
    "grouped": ("all_to_all_v_grouped_matmul",
                {"m": 8192, "n": 4096, "k": 7168, "experts_per_rank": 4, "hardware": "atlas_800t_a3"}),
    "layer": ("moe_layer", {"m": 4096, "n": 7168, "k": 2048, "ranks": 8, "top_k": 8}),
    "host": ("mixtral-8x7b", {"host": "eager", "seq_len": 64}),
    "one buffer": ("moe_layer", {"m": 4096, "n": 7168, "k": 2048, "ranks": 8, "top_k": 8, "buffers": 1}),
}  # fmt: skip


def plays(name: str) -> list[tuple[Row, Playback]]:
    target, given = QUESTIONS[name]
    answer, scenario, overrides = ask(target, given, {})
    return [(row, playback_of(scenario, overrides, row)) for row in answer.legal_rows]


def play(name: str, schedule: str) -> Playback:
    return next(played for row, played in plays(name) if row.schedule == schedule)


def one_by_one(spans: list[Span]) -> bool:
    return all(a.end <= b.start + 1e-15 for a, b in pairwise(sorted(spans, key=lambda s: (s.start, s.end))))


# --- the closed forms


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_schedule_played_is_its_row(name: str) -> None:
    answers = plays(name)
    assert answers
    for row, played in answers:
        whole, n = played.timeline, played.batches
        found = (whole.total, whole.busy_compute, whole.exposed_comm, whole.free)
        busy = row.compute_time + row.compute_stretch
        said = (row.total_time, busy, row.exposed_comm_time, row.free_time)
        assert found == pytest.approx([n * time for time in said], rel=1e-9, abs=1e-12 * row.total_time)
        for engine in ("comm", "compute", "free"):
            assert one_by_one([span for span in whole.spans if span.engine == engine])


def test_a_slow_down_that_makes_overlapping_lose_is_played_in_turn() -> None:
    """Profiles refuse such factors of one engine; the worst of two engines may still be so."""

    def play(buffers: int) -> Timeline:
        return two_stages(
            "comm_first", [1.0] * 4, [1.0] * 4, buffers=buffers, comm_slowdown=3.0, compute_slowdown=3.0
        )

    assert play(2).total > 8.0 == if_it_pays(play, 2).total
    assert side_by_side(Job("send", 1, 1.0, 0), Job("work", 1, 1.0, 0), 3.0, 3.0).total == 2.0


def test_blocks_take_the_place_of_layers_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play("dense", "mc2").timeline
    monkeypatch.setattr("mc2perf.playback.MOST_SPANS", 100)
    short = play("dense", "mc2").timeline
    assert len(short.spans) < 0.2 * len(whole.spans) < MOST_SPANS
    assert (short.total, short.exposed_comm) == pytest.approx((whole.total, whole.exposed_comm))


def test_pieces_of_different_parts_are_not_taken_for_each_other() -> None:
    scene = play("dense", "mc2").close_up[0]
    chains: defaultdict[int, set[str]] = defaultdict(set)
    for span in scene.timeline.spans:
        chains[span.piece].add(span.name)
    assert all(len(names) == 2 for piece, names in chains.items() if piece)
    path = play("many experts", "mc2").close_up[0].timeline.spans
    assert [s.name for s in path if s.piece == 3] == [
        "dispatch, local expert 3", "ffn1, local expert 3", "ffn2, local expert 3", "combine, local expert 3",
    ]  # fmt: skip


# --- the trace


def trace(name: str, schedule: str) -> tuple[Playback, dict[str, Any]]:
    played = play(name, schedule)
    return played, json.loads(to_trace(played, name))


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("many experts", "mc2"), ("layer", "micro_batch"), ("wide experts", "dual_batch"), ("reduce", "coc"),
     ("bubble", "mc2"), ("host", "serial")],
)  # fmt: skip
def test_a_trace_is_one_that_viewers_take(name: str, schedule: str) -> None:
    """Required keys, nothing overlapping on a lane, flows that begin and end, totals."""
    played, tree = trace(name, schedule)
    lanes: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: defaultdict[int, list[str]] = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in tree["traceEvents"] if e["name"] == "thread_name"}
    sums: defaultdict[str, int] = defaultdict(int)
    for event in tree["traceEvents"]:
        assert event["ph"] in "MXstf"
        assert {"pid", "tid", "name"} <= event.keys()
        if event["ph"] == "X":
            start, length = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            assert start >= 0
            assert length >= 0
            assert (event["pid"], event["tid"]) in named
            lanes[event["pid"], event["tid"]].append((start, start + length))
            sums[event["name"] if event["pid"] == 2 else ""] += length
        elif event["ph"] in "stf":
            flows[event["id"]].append(event["ph"])
    for spans in lanes.values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))
    assert all(steps[0] == "s" and steps[-1] == "f" and set(steps[1:-1]) <= {"t"} for steps in flows.values())
    whole, notes = played.timeline, tree["otherData"]
    assert (
        notes["total_time_s"]
        == whole.total
        == notes["busy_compute_s"] + notes["exposed_comm_time_s"] + notes["free_time_s"]
    )
    events = len(tree["traceEvents"])
    for lane, seconds in (
        ("Computing", whole.busy_compute),
        ("Communication(Not Overlapped)", whole.exposed_comm),
        ("Free", whole.free),
    ):
        assert sums[lane] == pytest.approx(seconds * 1e9, abs=events)
    assert sums["Communication"] >= sums["Communication(Not Overlapped)"]


def test_flows_lead_from_dispatch_through_experts_to_combine() -> None:
    target, given = "moe_layer", QUESTIONS["layer"][1] | {"schedule": "micro_batch", "micro_batches": 64}
    answer, scenario, overrides = ask(target, given, {})
    tree = json.loads(to_trace(playback_of(scenario, overrides, answer.rows[-1]), "64 pieces"))
    events = tree["traceEvents"]
    at = {(e["tid"], e["ts"]): e["name"] for e in events if e["ph"] == "X" and e["pid"] == 1}
    chains: defaultdict[int, list[str]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            chains[event["id"]].append(at[event["tid"], event["ts"]])
    assert sorted(chains) == list(range(1, 65))
    assert chains[7] == ["dispatch 7", "experts 7", "combine 7"]


def test_lanes_of_the_overlap_analysis_are_those_that_profilers_write() -> None:
    assert list(ANALYSIS) == ["Computing", "Communication", "Communication(Not Overlapped)", "Free"]
    _, tree = trace("layer", "micro_batch")
    labels = [e["args"] for e in tree["traceEvents"] if e["name"] == "process_labels"]
    assert labels == [{"labels": "predicted"}] * 2


# --- drawings


def test_a_gantt_by_hand() -> None:
    text = to_gantt(play("reduce", "mc2"), 60)
    title, comm, compute, exposed, axis, *_ = text.splitlines()
    assert title.startswith("matmul_all_reduce: ")
    lanes = [line.split("|")[1] for line in (comm, compute, exposed)]
    assert {len(lane) for lane in lanes} == {44}
    assert compute.split("|")[1].strip() == "".join(sorted(compute.split("|")[1].strip()))
    assert set(lanes[2]) <= {" ", "="}
    assert all(b == " " for b, e in zip(lanes[1], lanes[2], strict=True) if e == "=")
    assert axis.strip().startswith("0 s")
    assert "all_reduce, tile" in text


def test_a_drawing_has_every_span_and_no_script() -> None:
    played = play("layer", "micro_batch")
    tree = ET.fromstring(to_svg(played))
    bars = [e for e in tree.iter() if e.tag.endswith("rect") and e.get("class") in ("comm", "compute")]
    assert len(bars) == len(played.close_up[0].timeline.spans)
    right = max(float(e.get("x", 0)) + float(e.get("width", 0)) for e in bars)
    assert right <= float(tree.get("width", 0))
    assert not [e for e in tree.iter() if "script" in e.tag]


# --- the command


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["mc2perf", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, *capsys.readouterr()  # type: ignore[return-value]


def test_eight_tiles_as_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace_view.json"
    words = ["estimate", "matmul_all_reduce", "-m", "8192", "-n", "8192", "-k", "4096", "--tile-cnt", "8"]
    code, out, err = run(capsys, monkeypatch, *words, "--schedule", "mc2", "--trace", str(file), "--timeline")
    assert (code, err) == (0, "")
    assert INSIGHT.fullmatch(file.name)
    assert "matmul, tile" in out
    names = [e["name"] for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    assert "all_reduce, tile 8" in names
    drawing = tmp_path / "layer.svg"
    assert run(capsys, monkeypatch, *words, "--trace", str(drawing))[0] == 0
    assert ET.fromstring(drawing.read_text()).tag.endswith("svg")


def test_a_name_that_insight_does_not_open_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.json"
    code, _, err = run(capsys, monkeypatch, "estimate", "mixtral-8x7b", "--trace", str(file))
    assert code == 0
    assert "trace_view.json" in err
    code, _, err = run(capsys, monkeypatch, "estimate", "mixtral-8x7b", "--trace", "a.txt", "-o", "a.pdf")
    assert (code, len(err.splitlines())) == (2, 2)
