"""Calibration: known parameters come back, overlap with them, impossible tables do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calibrations import DOUBLING, HEADER, Numbers, collectives, group_of, matmuls, put, trials, value
from command_line import run

from mc2perf.calibrating import calibrate
from mc2perf.costs import Costs, Ledger
from mc2perf.machine import Machine
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.studies.calibrate.result import Origin
from mc2perf.studies.calibrate.scans import Scan, scan_times

# --- known parameters come back ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "seeds"), [("alpha-beta", 4), ("vendor", 2), ("two cliffs", 3)])
def test_known_parameters_come_back(tmp_path: Path, kind: str, seeds: int) -> None:
    """A few of the trials of scripts/calibration_trials.py; 5 % noise, 2 % wild outliers."""
    for seed in range(1000, 1000 + seeds):
        group = trials.fitted(kind, seed, tmp_path)
        assert not list(trials.missed(kind, group)), (seed, group.values)
        assert group.r2 > 0.99


def test_intervals_cover_what_is_true(tmp_path: Path) -> None:
    """95 % intervals hold the truth in about 95 % of trials: not in far fewer, and they are not endless."""
    covered, widths = 0, []
    for seed in range(10):
        group = trials.fitted("alpha-beta", seed, tmp_path)
        for v in group.values:
            true = trials.TRUTH["alpha-beta"].get(v.name)
            covered += true is not None and v.low <= true <= v.high
            widths += [(v.high - v.low) / v.value] if true else []
    assert covered >= 17 and np.median(widths) < 0.1


def test_the_written_curve_is_what_was_measured(tmp_path: Path) -> None:
    """Read back through the profile and priced by the model, links and launches and all."""
    rng = np.random.default_rng(1)
    time = trials.two_cliffs(DOUBLING)
    text = HEADER + collectives("all_to_all", DOUBLING, time * np.exp(0.01 * rng.standard_normal(len(time))))
    for base in ("atlas_800t_a2", "ascend_950pr", "h100_sxm"):
        machine = calibrate([put(tmp_path, text)], base).machine
        priced = Costs(machine, Ledger()).collective("x", "all_to_all", DOUBLING, 8.0).time
        assert np.max(np.abs(np.asarray(priced) / time - 1.0)) < 0.05, base


def test_what_sizes_do_not_tell_stays_at_the_base(tmp_path: Path) -> None:
    base = load_machine("atlas_800t_a2")
    latency = float(Costs(base, Ledger()).collective("x", "all_reduce", 1.0, 8.0).time)
    large = 2.0 ** np.arange(26, 33)
    noise = np.exp(0.05 * np.random.default_rng(2).standard_normal(7))
    found = calibrate(
        [put(tmp_path, HEADER + collectives("all_reduce", large, large / 75e9 * noise))], base.name
    )
    (group,) = found.found.groups
    assert value(group, "latency") == pytest.approx(latency, rel=1e-3)
    assert value(group, "bus rate") == pytest.approx(1.75 * 75e9, rel=0.1)
    assert [left.split(":")[0] for left in group.left] == ["latency"]
    small = 2.0 ** np.arange(8, 15)
    found = calibrate([put(tmp_path, HEADER + collectives("all_reduce", small, 5e-5 * noise))], base.name)
    (group,) = found.found.groups
    assert value(group, "latency") == pytest.approx(5e-5, rel=0.1)
    assert [left.split(":")[0] for left in group.left] == ["rate"]


def test_matmuls_give_their_rule_back(tmp_path: Path) -> None:
    truth = load_machine(
        "atlas_800t_a2", (),
        {"cube.rules.measured.utilisation.bf16": "0.7", "cube.rules.measured.launch": "12 us"},
    )  # fmt: skip
    found = calibrate([put(tmp_path, matmuls(truth, 3))], "atlas_800t_a2")
    (group,) = found.found.groups
    assert value(group, "utilisation.bf16") == pytest.approx(0.7, rel=0.03)
    assert value(group, "launch") == pytest.approx(12e-6, rel=0.1)
    assert group.r2 > 0.999 and "knee" in group.form
    large_only = [
        line for line in matmuls(truth, 3).splitlines() if line.split(",")[0] not in ("64", "256", "512")
    ]  # without few rows nothing tells the launch
    deep = "\n".join(line for line in large_only if "m,n" in line or ",16384," in line)
    found = calibrate([put(tmp_path, deep)], "atlas_800t_a2")
    assert any("launch" in left for left in found.found.groups[0].left)


# --- overlap ----------------------------------------------------------------------------------------------

COUNTS = np.array([1.0, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16])


def asked(operator: str, m: int, n: int, k: int) -> Scenario:
    return Scenario(target=operator, m=float(m), n=float(n), k=float(k), ranks=8.0)


def scans(machine: Machine, scenarios: list[Scenario], seed: int) -> str:
    rng, rows = np.random.default_rng(seed), ["operator,m,n,k,ranks,dtype,tile_cnt,time_us"]
    for s in scenarios:
        times = true_times(machine, s) * np.exp(0.01 * rng.standard_normal(len(COUNTS)))
        times[int(rng.integers(len(times)))] *= 4.0
        shape = f"{s.target},{s.m:g},{s.n:g},{s.k:g},{s.ranks:g},bf16"
        rows += [f"{shape},{n:g},{t * 1e6:.3f}" for n, t in zip(COUNTS, times, strict=True)]
    return "\n".join([*rows, ""])


def true_times(machine: Machine, scenario: Scenario) -> Numbers:
    return scan_times(machine, Scan(scenario, COUNTS, COUNTS, Origin("", "")))


ENGINE = "tiers.node.engines.nccl."


def test_rounds_and_slow_downs_come_back_beside_a_benchmark(tmp_path: Path) -> None:
    """Collective and matmul alone, then together: what is left of the scans is what overlapping costs."""
    truth = load_machine(
        "h100_sxm", (),
        {f"{ENGINE}round_cost": "60 us", f"{ENGINE}comm_under_compute": "1.5",
         f"{ENGINE}compute_under_comm": "1.1"},
    )  # fmt: skip
    noise = np.exp(0.01 * np.random.default_rng(5).standard_normal(len(DOUBLING)))
    tables = "".join(
        collectives(
            op, DOUBLING, np.asarray(Costs(truth, Ledger()).collective(op, op, DOUBLING, 8.0).time) * noise
        )
        for op in ("all_reduce", "all_gather")
    )
    shapes = [
        asked("matmul_all_reduce", 8192, 8192, 1024),
        asked("matmul_all_reduce", 4096, 4096, 8192),
        asked("matmul_all_reduce", 8192, 8192, 8192),
        asked("all_gather_matmul", 2048, 2048, 8192),
        asked("all_gather_matmul", 2048, 8192, 4096),
    ]
    files = [put(tmp_path, HEADER + tables, "c.csv"), put(tmp_path, matmuls(truth, 4), "m.csv"),
             put(tmp_path, scans(truth, shapes, 6), "s.csv")]  # fmt: skip
    group = group_of(calibrate(files, "h100_sxm"), "overlap")
    assert value(group, "round_cost") == pytest.approx(60e-6, rel=0.2)
    assert value(group, "comm_under_compute") == pytest.approx(1.5, rel=0.1)
    assert value(group, "compute_under_comm") == pytest.approx(1.1, rel=0.1)
    assert len(group.outliers) >= 3 and group.median < 0.02


def test_a_scan_alone_tells_the_best_tiles_of_other_shapes(tmp_path: Path) -> None:
    """The machine is not as the profile says; after one scan of two shapes the best counts are right."""
    truth = load_machine(
        "atlas_800t_a2", (),
        {"tiers.node.link_rate": "18 GB/s", "cube.rules.measured.utilisation.bf16": "0.6",
         "tiers.node.engines.measured.round_cost": "150 us"},
    )  # fmt: skip
    shapes = [asked("matmul_all_reduce", 4096, 8192, 4096), asked("matmul_all_reduce", 4096, 4096, 16384)]
    file, out = put(tmp_path, scans(truth, shapes, 7), "scan.csv"), str(tmp_path / "box.yaml")
    code, report, _ = run("calibrate", str(file), "--hardware", "atlas_800t_a2", "-o", out)
    assert code == 0 and "best" in report
    worse = {"atlas_800t_a2": 0.0, out: 0.0}
    for m, n, k in ((8192, 8192, 4096), (16384, 4096, 1024), (8192, 4096, 8192)):
        other = asked("matmul_all_reduce", m, n, k)
        times = true_times(truth, other)
        for hardware in worse:
            sizes = (f"-m{m}", f"-n{n}", f"-k{k}", "--ranks", "8", "--hardware", hardware)
            vary = ("--vary", "tile_cnt=" + ",".join(f"{c:g}" for c in COUNTS), "--best-over", "tile_cnt")
            code, _, _ = run("sweep", "matmul_all_reduce", *sizes, *vary, "-o", str(tmp_path / "best.jsonl"))
            (best,) = [json.loads(x) for x in (tmp_path / "best.jsonl").read_text().splitlines()]
            chosen = times[COUNTS.tolist().index(best["tile_cnt"])]
            worse[hardware] = max(worse[hardware], chosen / times.min() - 1.0)
            if hardware == out:
                assert best["total_time"] == pytest.approx(chosen, rel=0.1)
    assert worse[out] < 0.02 and worse["atlas_800t_a2"] > 0.02


def test_a_scan_may_be_told_its_shape(tmp_path: Path) -> None:
    truth = load_machine("atlas_800t_a2", (), {"tiers.node.engines.measured.round_cost": "60 us"})
    times = true_times(truth, asked("matmul_all_reduce", 4096, 4096, 4096))
    lines = "".join(
        f"- {{tile_cnt: {n:g}, time: {t * 1e3:.6f} ms}}\n" for n, t in zip(COUNTS, times, strict=True)
    )
    file = put(tmp_path, lines, "scan.yml")
    code, _, err = run("calibrate", str(file), "--hardware", "atlas_800t_a2")
    assert code == 2 and "does not say the operator; write --operator" in err
    words = ("--operator", "matmul_all_reduce", "-m", "4K", "-n", "4K", "-k", "4096")
    code, _, err = run("calibrate", str(file), "--hardware", "atlas_800t_a2", *words)
    assert code == 2 and err == f"{file}: does not say ranks; write --ranks\n"
    code, profile, report = run("calibrate", str(file), "--hardware", "atlas_800t_a2", *words, "--ranks", "8")
    assert code == 0 and "round_cost" in profile and "best" in report


# --- impossible and useless -------------------------------------------------------------------------------

IMPOSSIBLE = {
    "faster than the wires": HEADER + collectives("all_gather", DOUBLING, 1e-5 + DOUBLING / 4e11),
    "every size takes the same time": HEADER + collectives("all_gather", DOUBLING, 0.001 + 0.0 * DOUBLING),
    "2 sizes; a latency and a rate need at least 3":
        HEADER + collectives("all_gather", DOUBLING[-2:], DOUBLING[-2:] / 1e11),
    "faster than the cube": "m,n,k,dtype,time_us\n"
        + "".join(f"{m},4096,4096,bf16,{m * 0.05}\n" for m in (1024, 2048, 4096, 8192)),
    "the cube of atlas_800t_a3 has no fp32": "m,n,k,dtype,time_us\n1024,4096,4096,float32,900\n",
    "broadcast is not modelled": HEADER + collectives("broadcast", DOUBLING, DOUBLING / 1e11),
}  # fmt: skip


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_impossible_tables_are_refused(tmp_path: Path, why: str) -> None:
    file, out = put(tmp_path, IMPOSSIBLE[why]), tmp_path / "out.yaml"
    code, _, err = run("calibrate", str(file), "--hardware", "atlas_800t_a3", "-o", str(out))
    assert code == 1 and why in err and "nothing could be fitted" in err and not out.exists()


def test_a_fused_moe_table_that_gets_faster_with_more_tokens_is_refused(tmp_path: Path) -> None:
    """The times fall beyond 64 tokens: 256 experts' weights would pass memory faster than it is."""
    tokens = {1: 508, 2: 888, 4: 1623, 8: 1626, 16: 1627, 32: 1634, 64: 1650, 256: 587, 1024: 766, 4096: 1515}
    head = "num_tokens,hidden_size,moe_intermediate_size,num_experts,top_k,ep,local_experts,time_us\n"
    rows = "".join(f"{n * 8},6144,2048,256,8,8,32,{time}\n" for n, time in tokens.items())
    found = calibrate([put(tmp_path, head + rows, "moe_ffn_bf16.csv")], "atlas_800t_a3")
    assert not found.found.groups and not found.edits
    (line,) = found.found.refused
    assert "faster than the cube" in line or "faster than memory" in line
    good = "".join(f"{n * 8},6144,2048,256,8,8,32,{time}\n" for n, time in list(tokens.items())[:7])
    assert calibrate([put(tmp_path, head + good, "moe_ffn_bf16.csv")], "atlas_800t_a3").found.groups


def test_single_impossible_rows_are_set_aside(tmp_path: Path) -> None:
    time = 5e-5 + DOUBLING / 75e9
    time[-1] /= 30.0
    (group,) = calibrate(
        [put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, time))], "atlas_800t_a2"
    ).found.groups
    assert group.rows == len(DOUBLING) - 1 and "1 rows set aside" in group.notes[0]


def test_every_problem_is_told_at_once_and_nothing_is_destroyed(tmp_path: Path) -> None:
    good = put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, 5e-5 + DOUBLING / 75e9))
    kept = put(tmp_path, "extends: atlas_800t_a3\nname: kept\n", "kept.yaml")
    broken, cut = put(tmp_path, "hello\n", "x"), put(tmp_path, '{"results": [', "y.json")
    words = ("calibrate", str(good), str(broken), str(cut), "--hardware", "atlas_800t_a9", "-o", str(kept))
    code, out, err = run(*words)
    assert code == 2 and not out and len(err.splitlines()) == 3 and "Traceback" not in err
    code, _, err = run("calibrate", str(good), "--hardware", "atlas_800t_a2", "-o", str(kept))
    assert code == 2 and "is there and does not extend atlas_800t_a2" in err
    assert kept.read_text() == "extends: atlas_800t_a3\nname: kept\n"


def test_files_of_no_use_say_why(tmp_path: Path) -> None:
    log = "".join(f" iteration {i}/ 9 | elapsed time per iteration (ms): 100.{i} |\n" for i in range(1, 9))
    code, out, err = run("calibrate", str(put(tmp_path, log, "train.log")), "--hardware", "atlas_800t_a2")
    assert (code, out) == (1, "") and "does not tell utilisation from what is recomputed" in err
