"""Comparisons: runs made by the model with one thing changed, whose cause must be found and priced."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import run as typed

from mc2perf.answer import Row
from mc2perf.api import estimate
from mc2perf.comparing import ask_compare
from mc2perf.measured import Measured, Report, StepTime, StepTrace
from mc2perf.problems import InputError
from mc2perf.studies.causes import CAUSES, Explanation
from mc2perf.studies.compared import Comparison, Run
from mc2perf.studies.observed import observed

SCHEMA = json.loads((resources.files("mc2perf") / "data" / "compare.schema.json").read_text(encoding="utf-8"))
HEADER = (
    "Step,{rank}Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive)\n"
)
TARGET = "deepseek-v3"
ASKED: dict[str, Any] = {"ep": 16.0, "hardware": "atlas_800t_a3"}


def truth(schedule: str = "serial", overrides: dict[str, str] | None = None, **changes: Any) -> Row:
    """What a machine does on which something is different."""
    return estimate(TARGET, schedule=schedule, set=overrides or {}, **{**ASKED, **changes}).rows[-1]


def line(row: Row, step: str = "1", rank: str = "", **more: float) -> str:
    """One row of a step trace; ``more`` seconds are added to its parts."""
    compute = row.compute_time + row.compute_stretch + more.get("compute", 0.0)
    exposed = row.exposed_comm_time + more.get("exposed", 0.0)
    overlapped = max(row.comm_time - row.exposed_comm_time, 0.0)
    free = row.free_time + more.get("free", 0.0)
    times = (compute, exposed, overlapped, exposed + overlapped, free, compute + exposed + free, 0.0, exposed)
    return ",".join([step, *([f"rank,{rank}"] if rank else []), *(f"{t * 1e6:.6f}" for t in times)]) + "\n"


def trace(path: Path, *lines: str) -> str:
    ranks = "rank," in lines[0]
    path.write_text(HEADER.format(rank="Type,Index," if ranks else "") + "".join(lines), encoding="utf-8")
    return str(path)


def kernels(path: Path, *rows: tuple[str, float]) -> str:
    head = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
    body = [f"{kind},MIX_AIC,1,{t * 1e6},{t * 1e6},{t * 1e6},{t * 1e6},1\n" for kind, t in rows]
    path.write_text(head + "".join(body), encoding="utf-8")
    return str(path)


def operations(path: Path, *ops: tuple[str, float, float, float]) -> str:
    """``communication.json``: transport, elapsed, transit, bytes."""
    tree = {}
    for n, (transport, elapsed, transit, size) in enumerate(ops):
        times = {
            "Elapse Time(ms)": elapsed * 1e3, "Transit Time(ms)": transit * 1e3,
            "Wait Time(ms)": (elapsed - transit) * 1e3, "Idle Time(ms)": 0.0,
        }  # fmt: skip
        link = {transport: {"Transit Size(MB)": size / 1e6, "Transit Time(ms)": transit * 1e3}}
        tree[f"hcom_alltoallv__1_{n}@9"] = {
            "Communication Time Info": times, "Communication Bandwidth Info": link,
        }  # fmt: skip
    path.write_text(json.dumps({"step1": {"collective": tree}}), encoding="utf-8")
    return str(path)


def compared(*files: str, **given: Any) -> Comparison:
    return ask_compare(TARGET, files, {**ASKED, **given}, {})


def only(*files: str, **given: Any) -> Run:
    (run,) = compared(*files, **given).runs
    return run


def cause(run: Run, word: str) -> Explanation:
    return next(found for found in run.causes if word in found.cause)


# --- both sides ----------------------------------------------------------------------------------------


def test_what_the_model_made_has_no_residual(tmp_path: Path) -> None:
    rows = {"alltoall": truth(), "mc2": truth("mc2")}
    files = [f"{label}={trace(tmp_path / label, line(row))}" for label, row in rows.items()]
    found = compared(*files)
    for run in found.runs:
        assert all(c.share < 1e-5 or c.explains < 1e-5 for c in run.causes)
        for row in run.lines:
            if row.name not in ("host", "bubble") and row.predicted > 1e-9:
                assert row.ratio == pytest.approx(1.0, rel=1e-6), row.name
    assert found.gain is not None
    assert found.gain.measured == pytest.approx(rows["mc2"].speedup)
    assert found.gain.predicted == pytest.approx(rows["mc2"].speedup)
    ceiling = 1.0 / (1.0 - rows["alltoall"].comm_ratio)
    assert found.gain.measured < ceiling == pytest.approx(found.gain.ceiling)


def test_parts_of_the_residual_add_up(tmp_path: Path) -> None:
    run = only(trace(tmp_path / "t", line(truth(), compute=0.5, exposed=0.25, free=0.125)))
    by_name = {row.name: row.residual for row in run.lines}
    assert by_name["step"] == pytest.approx(0.875)
    assert [by_name[part] for part in ("compute", "exposed", "free")] == pytest.approx([0.5, 0.25, 0.125])
    assert run.unexplained == pytest.approx(0.875)
    for found in run.causes:
        assert 0.0 < found.explains <= 0.875 + 1e-9 and found.share == pytest.approx(found.explains / 0.875)


# --- planted causes ------------------------------------------------------------------------------------


def test_imbalance_is_solved_for_and_named_by_counts(tmp_path: Path) -> None:
    measured = trace(tmp_path / "t", line(truth(skew=1.6)))
    found = cause(only(measured), "imbalance")
    assert found.share == pytest.approx(1.0, abs=0.01) and "1.6 x the mean" in found.how
    counts = tmp_path / "decode_0.csv"
    counts.write_text("\n".join(["16,8,8,8"] * 4) + "\n")  # 16 over a mean of 10
    first = only(measured, str(counts)).causes[0]
    assert (first.cause, first.evidence) == ("expert imbalance", "supported")
    assert first.share == pytest.approx(1.0, abs=0.01)
    counts.write_text("\n".join(["10,10,10,10"] * 4) + "\n")
    even = only(measured, str(counts))
    assert not any("imbalance" in c.cause for c in even.causes)  # at a load of 1 it explains nothing


def test_a_skew_as_published(tmp_path: Path) -> None:
    """Torchtitan, 773.8 against 3139.8 ms: if experts alone set the pace, the skew is their quotient."""
    given: dict[str, Any] = {"n": 2048.0, "k": 7168.0, "ranks": 8.0, "experts_per_rank": 8.0, "m": 8192.0}
    target, hardware = "all_to_all_v_grouped_matmul", dict[str, Any](hardware="atlas_800t_a3")
    even = estimate(target, schedule="serial", **given, **hardware).rows[0]
    skewed = estimate(target, schedule="serial", skew=4.06, **given, **hardware).rows[0]
    file = trace(tmp_path / "t", line(skewed))
    (run,) = ask_compare(target, [file], {**given, **hardware}, {}).runs
    assert "4.06 x the mean" in cause(run, "imbalance").how
    assert 0.9 * 3139.8 / 773.8 < run.seen.step / even.total_time < 3139.8 / 773.8


def test_slow_links_are_solved_for_or_read_from_transit(tmp_path: Path) -> None:
    slow = truth(overrides={"tiers.node.link_rate": f"{28 / 1.5} GB/s"})
    measured = trace(tmp_path / "t", line(slow))
    found = cause(only(measured), "slow links")
    assert "1.5 x slower" in found.how and found.evidence == "possible"
    assert found.share == pytest.approx(1.0, abs=0.02)
    told = truth()
    transit = operations(tmp_path / "c.json", ("HCCS", slow.comm_time, slow.comm_time * 0.999, 1e9))
    run = only(measured, transit)
    assert cause(run, "slow links").evidence == "supported"
    assert cause(run, "a slow rank").evidence == "contradicted"
    waits = operations(tmp_path / "w.json", ("HCCS", slow.comm_time, told.comm_time, 1e9))
    run = only(measured, waits)
    assert run.causes[0].cause == "waiting for a slow rank" and run.causes[0].evidence == "supported"
    assert not any("slow links" in c.cause for c in run.causes)  # transfers take what they should


def test_a_slow_rank_among_several(tmp_path: Path) -> None:
    """The slow rank computes longest and waits least; all others wait for it."""
    row = truth()
    lines = [line(row, rank=str(n), exposed=0.4) for n in range(15)] + [line(row, rank="15", compute=0.4001)]
    run = only(trace(tmp_path / "t", *lines))
    assert "rank 15, the slowest of 16" in run.notes[0]
    assert cause(run, "imbalance").evidence == "supported"
    own = cause(run, "slower than the others")
    assert own.evidence == "supported" and own.share == pytest.approx(1.0, abs=0.01)
    assert cause(run, "slower kernels").evidence == "contradicted"
    waiting = [line(row, rank=str(n), exposed=0.4 + 1e-6 * (n == 3)) for n in range(15)] + [
        line(row, rank="15")
    ]
    found = cause(only(trace(tmp_path / "w", *waiting)), "a slow rank")
    assert found.explains == pytest.approx(0.4, rel=1e-3) and found.evidence == "contradicted"


def test_a_host_that_issues_slowly(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tp": 8.0, "seq_len": 256.0}
    slow = estimate("llama-2-7b", schedule="serial", set={"host.per_launch": "100 us"}, **given).rows[0]
    assert slow.free_time > 0.1 * slow.total_time
    (run,) = ask_compare("llama-2-7b", [trace(tmp_path / "t", line(slow))], given, {}).runs
    first = run.causes[0]
    assert (first.cause, first.evidence) == ("host-bound launches", "supported")
    assert "a launch took 100 us" in first.how


def test_fused_operators_that_did_not_run(tmp_path: Path) -> None:
    serial = truth()
    measured = "mc2=" + trace(tmp_path / "t", line(serial))
    plain = "mc2=" + kernels(tmp_path / "op.csv", ("GroupedMatmul", 1.0), ("MatMulV2", 2.0))
    run = only(measured, plain)
    first = run.causes[0]
    assert (first.cause, first.evidence) == ("the fused operators did not run", "supported")
    assert first.share == pytest.approx(1.0, abs=1e-3)
    fused = "mc2=" + kernels(tmp_path / "mc2.csv", ("AlltoAllvGroupedMatMul", 1.0), ("MatMulV2", 2.0))
    run = only(measured, fused)
    assert cause(run, "did not run").evidence == "contradicted"
    by_name = {row.name: row for row in run.lines}
    assert by_name["MC2 kernels"].measured == pytest.approx(1.0) and math.isnan(by_name["GMM"].predicted)
    busy, told = by_name["compute + exposed"], truth("mc2")
    assert busy.measured == pytest.approx(serial.total_time - serial.free_time)
    assert busy.predicted == pytest.approx(told.total_time - told.free_time)


def test_contention_is_solved_for(tmp_path: Path) -> None:
    path = "tiers.node.engines.measured.compute_under_comm"
    row = truth("dual_batch", overrides={path: "1.4"})
    found = cause(only("dual_batch=" + trace(tmp_path / "t", line(row))), "contention")
    assert "1.4 x slower" in found.how and found.share > 0.9


def test_gradients_and_recompute_that_were_not_predicted(tmp_path: Path) -> None:
    whole = truth(global_batch_size=16.0)
    run = only(trace(tmp_path / "t", line(whole)))
    assert cause(run, "gradients").explains == pytest.approx(whole.total_time - truth().total_time, rel=1e-6)
    again = truth(global_batch_size=16.0, recompute="full")
    found = cause(only(trace(tmp_path / "r", line(again)), global_batch_size=16.0), "recompute")
    assert found.explains == pytest.approx(again.total_time - whole.total_time, rel=1e-3)


def test_tcp_is_priced_where_operators_fall_back(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tp": 16.0, "nodes": 2.0, "seq_len": 4096.0}
    fallen = estimate("llama-2-70b", schedule="mc2", rdma=False, **given).rows[-1]
    files = ["mc2=" + trace(tmp_path / "t", line(fallen))]
    (run,) = ask_compare("llama-2-70b", files, given, {}).runs
    assert cause(run, "TCP").share == pytest.approx(1.0, abs=0.01)
    files.append("mc2=" + operations(tmp_path / "c.json", ("RDMA", 0.2, 0.1, 2e9)))
    (run,) = ask_compare("llama-2-70b", files, given, {}).runs
    assert cause(run, "TCP").evidence == "contradicted" and "20 GB/s" in cause(run, "TCP").why
    (run,) = ask_compare("llama-2-70b", ["alltoall=" + files[0][4:]], given, {}).runs
    assert not any("TCP" in c.cause and c.priced for c in run.causes)  # serial falls back to nothing


def test_time_before_the_first_task(tmp_path: Path) -> None:
    head, row = HEADER.format(rank="").strip() + ",Preparing\n", line(truth(), free=0.5).strip()
    file = tmp_path / "t.csv"
    file.write_text(head + f"{row},400000\n")
    found = cause(only(str(file)), "late start")
    assert found.evidence == "supported" and found.explains == pytest.approx(0.4)
    file.write_text(head + f"{row},0\n")
    assert not any("late start" in c.cause for c in only(str(file)).causes)


LOG = " iteration {n:8d}/ 100 | elapsed time per iteration (ms): {ms:.1f} | global batch size: 16 |\n"


def test_warm_up_stays_out_and_a_profiled_step_is_held_against_the_log(tmp_path: Path) -> None:
    steady = truth().total_time
    log = tmp_path / "train.log"
    times = [9 * steady, 3 * steady, *[steady] * 9, 2 * steady]
    log.write_text("".join(LOG.format(n=n + 1, ms=t * 1e3) for n, t in enumerate(times)))
    run = only(str(log))
    assert run.seen.step == pytest.approx(steady, rel=1e-4) and not run.causes
    traced = trace(tmp_path / "t", line(truth(), free=0.3))
    found = cause(only(str(log), traced), "warm-up")
    assert found.evidence == "supported" and found.explains == pytest.approx(0.3, abs=1e-3)
    many = trace(tmp_path / "m", line(truth(), "1", free=20), *(line(truth(), str(n)) for n in range(2, 5)))
    several = only(many)
    assert several.seen.step == pytest.approx(steady) and "of warm-up" in several.notes[0]


# --- reduction -----------------------------------------------------------------------------------------


def test_times_of_one_rank_and_step_stay_together() -> None:
    steps = [
        StepTime(step=s, rank=r, computing=c, exposed=e, overlapped=1.0, communication=1.0 + e, free=0.0)
        for s, r, c, e in [
            ("1", "0", 50, 9), ("2", "0", 10, 2), ("2", "1", 8, 3), ("3", "0", 5, 1), ("3", "1", 9, 2),
        ]
    ]  # fmt: skip
    seen = observed([Measured("c.csv", "step_trace_time", StepTrace(tuple(steps)), Report(5, "steps"))])
    assert (seen.step, seen.compute, seen.exposed) == (11, 9, 2)  # step 1 warms up; 12 and 11 remain
    assert (seen.ranks, seen.steps, seen.first_step) == (2, 3, 59)
    assert seen.step == seen.compute + seen.exposed + seen.free
    alone = observed([])
    assert math.isnan(alone.step) and alone.notes == ()


@pytest.mark.skipif("MC2PERF_SAMPLES" not in os.environ, reason="MC2PERF_SAMPLES is not set")
def test_transit_is_not_elapsed_time_in_a_real_export() -> None:
    folder = Path(os.environ["MC2PERF_SAMPLES"]) / "profiler" / "level1_2025"
    run = only(str(folder))
    assert run.seen.hccl == pytest.approx(105.99e-3, rel=1e-3)  # elapsed
    assert run.seen.transfer == pytest.approx(3.684e-3, rel=1e-3)  # 0.239 + 1.229 + 2.060 + 0.156 ms
    assert run.seen.waiting / run.seen.hccl > 0.96
    assert run.seen.step == pytest.approx(136.58e-3, rel=1e-3)
    assert "less" in run.notes[-1]  # a small network beside a large model
    cluster = only(str(folder.parent / "cluster_old"))
    assert cluster.seen.ranks == 8 and cluster.seen.rank_spread < 0.05 < cluster.seen.free


# --- scans ---------------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"m": 4096.0, "n": 4096.0, "k": 8192.0, "ranks": 8.0}


def scan(path: Path, times: dict[int, float]) -> str:
    head = "operator,m,n,k,ranks,dtype,tile_cnt,time_us\n"
    body = [f"all_gather_matmul,4096,4096,8192,8,bf16,{n},{t * 1e6}\n" for n, t in times.items()]
    path.write_text(head + "".join(body), encoding="utf-8")
    return str(path)


def test_a_scan_of_tiles_beside_single_estimates(tmp_path: Path) -> None:
    rows = {
        n: estimate("all_gather_matmul", schedule="mc2", tile_cnt=n, hardware="atlas_800t_a2", **SIZES).rows[
            -1
        ]
        for n in (1, 2, 4, 8)
    }
    file = scan(tmp_path / "s.csv", {n: row.total_time * 1.1 for n, row in rows.items()} | {99: 1.0})
    found = ask_compare("all_gather_matmul", [file], {"hardware": "atlas_800t_a2"}, {})
    (made,) = found.scans
    assert [n for n, _, _ in made.points] == [1, 2, 4, 8] and "99 tiles" in made.notes[0]
    for n, measured, predicted in made.points:
        assert predicted == pytest.approx(rows[n].total_time) == pytest.approx(measured / 1.1, rel=1e-6)
    assert made.best_measured == made.best_predicted and made.regret == 0.0
    assert next(c for c in made.causes if "contention" in c.cause).evidence == "contradicted"
    late = {1: 12e-3, 2: 9e-3, 4: 10e-3, 8: 11e-3}
    (other,) = ask_compare(
        "all_gather_matmul", [scan(tmp_path / "l.csv", late)], {"hardware": "atlas_800t_a2"}, {}
    ).scans
    assert other.best_measured == 2 and other.regret == pytest.approx(late[other.best_predicted] / 9e-3 - 1)


# --- the command ---------------------------------------------------------------------------------------


WORDS = ("--ep", "16", "--hardware", "atlas_800t_a3")


def test_every_form_says_the_same(tmp_path: Path) -> None:
    before = "alltoall=" + trace(tmp_path / "a", line(truth()))
    after = "mc2=" + trace(tmp_path / "m", line(truth("mc2", skew=1.3)))
    code, text, err = typed("compare", TARGET, before, after, *WORDS)
    assert (
        (code, err) == (0, "")
        and "mc2 over alltoall: measured" in text
        and "confirm expert imbalance" in text
    )
    code, out, _ = typed("compare", TARGET, before, after, *WORDS, "--format", "json")
    tree = json.loads(out)
    jsonschema.validate(tree, SCHEMA)
    file = tmp_path / "out.csv"
    assert typed("compare", TARGET, before, after, *WORDS, "-o", str(file)) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"))))
    told = [(r["run"], row["name"]) for r in tree["runs"] for row in r["rows"]]
    assert [(row["run"], row["name"]) for row in rows if row["kind"] == "row"] == told
    causes = [c["cause"] for r in tree["runs"] for c in r["causes"]]
    assert [row["name"] for row in rows if row["kind"] == "cause"] == causes


def test_pipes_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "host_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    inside.mkdir(parents=True)
    trace(inside / "step_trace_time.csv", line(truth()))
    (inside / "trace_view.json").write_text("[]")
    (inside / "other.csv").write_text("a,b\n1,2\n")
    code, text, _ = typed("compare", TARGET, str(inside.parent), *WORDS)
    assert code == 0 and "1.00x, close" in text
    data = (inside / "step_trace_time.csv").read_bytes()
    assert typed("compare", TARGET, "-", *WORDS, stdin=data)[1] == text


WRONG: list[tuple[str, bytes, str]] = [
    ("a.csv", b"Step,Computing\n1,2\n", "is of no known kind"),
    ("a.json", b'{"step": {"Communication Time Info": {', "cut off"),
    ("a.csv", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ("a.csv", "Step,Computing".encode("utf-16"), "UTF-16"),
    ("a.csv", HEADER.format(rank="").encode() + b"1,nan,2,3,4,5,6,7,8\n", "holds no steps"),
    ("a.csv", HEADER.format(rank="").encode() + b"1,-5,2,3,4,5,6,7,8\n", "holds no steps"),
    ("a.txt", b"data_size(Bytes): | avg_time(us): |\n1024 | 60.7 |\n2048 | 61 |\n", "nothing to lay beside"),
]


@pytest.mark.parametrize(("name", "data", "word"), WRONG)
def test_files_of_no_use_are_lines(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    file, kept = tmp_path / name, tmp_path / "kept.csv"
    file.write_bytes(data)
    kept.write_text("old")
    code, out, err = typed("compare", TARGET, str(file), *WORDS, "-o", str(kept))
    assert (code, out) == (2, "") and word in err and "Traceback" not in err
    assert kept.read_text() == "old"


def test_every_problem_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ask_compare("deepseek-v33", ["mc2=/nowhere/a.csv", str(tmp_path)], {"schedule": "mc2", "ep": "x"}, {})
    said = "\n".join(caught.value.problems)
    for word in ("/nowhere/a.csv", "holds no .csv", "schedule:", "deepseek-v3", "ep:"):
        assert word in said


def test_rules_are_complete() -> None:
    assert len({rule.name for rule in CAUSES}) == len(CAUSES)
    assert {rule.part for rule in CAUSES} == {"step", "compute", "exposed", "free"}
    for word in ("imbalance", "slow rank", "host", "TCP", "contention", "warm-up"):
        assert any(word in rule.name for rule in CAUSES)


@pytest.mark.parametrize(
    ("target", "given", "layers", "passes"),
    [
        (TARGET, ASKED, 58, 1),
        (TARGET, {**ASKED, "global_batch_size": 32.0}, 58, 2),
        ("mixtral-8x7b", {"tp": 8.0}, 32, 1),
        ("mixtral-8x7b", {"tp": 4.0, "pp": 2.0, "global_batch_size": 12.0}, 32, 6),
        ("llama-2-7b", {"tp": 8.0}, 0, 1),
    ],
)
def test_grouped_matmuls_are_those_of_every_expert_layer(
    tmp_path: Path, target: str, given: dict[str, Any], layers: int, passes: int
) -> None:
    """Independent way: the segments that an estimate lists of one layer."""
    row = estimate(target, schedule="serial", **given).rows[0]
    listed = {**row.segments, **row.backward_segments}
    one = math.fsum(t for name, t in listed.items() if name.startswith("ffn") and "gather" not in name)
    one -= math.fsum(t for name, t in listed.items() if name.startswith("ffn") and "scatter" in name)
    files = [trace(tmp_path / "t", line(row)), kernels(tmp_path / "k", ("GroupedMatmul", 2 * one + 1e-3))]
    (run,) = ask_compare(target, files, given, {}).runs
    assert run.told.gmm == pytest.approx(one * layers * passes)
    gmm = next(found for found in run.lines if found.name == "GMM")
    assert gmm.measured == pytest.approx(2 * one + 1e-3)
