"""The profile that calibration writes: what it holds and keeps, where it warns, pipes and samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calibrations import DOUBLING, HEADER, collectives, matmuls, put, trials, value
from command_line import run

from mc2perf.calibrating import calibrate
from mc2perf.costs import Costs, Ledger
from mc2perf.problems import InputError
from mc2perf.quantity import quantities
from mc2perf.readers.profiles import load_machine

# --- the profile that is written --------------------------------------------------------------------------


def test_a_new_profile_holds_what_was_fitted_and_nothing_else(tmp_path: Path) -> None:
    file = put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, 5e-5 + DOUBLING / 75e9))
    out = tmp_path / "box.yaml"
    code, report, err = run("calibrate", str(file), "--hardware", "atlas_800t_a2", "-o", str(out))
    assert code == 0 and not err and "latency" in report
    base, box = (dict(quantities(load_machine(x))) for x in ("atlas_800t_a2", str(out)))
    new = {path for path, quantity in box.items() if base.get(path) != quantity}
    at = "tiers.node.engines.measured.curves.all_reduce"
    assert new and all(path.startswith((f"{at}.ranks.8", f"{at}.sizes.8", f"{at}.device.8")) for path in new)
    assert all(
        box[path].kind == "fitted" and "table.csv, 19 rows, 20" in box[path].ref
        for path in new if ".device." not in path
    )  # fmt: skip
    code, answer, _ = run(
        "estimate", "matmul_all_reduce", "-m4096", "-n4096", "-k4096", "--hardware", str(out)
    )
    assert code == 0 and "box.yaml" in answer


COMMENTED = """# our box, by hand
extends: atlas_800t_a2
name: ours  # keep
tiers:
  node:
    engines:
      measured:
        # we measured this
        round_cost: {value: 9 us, kind: measured, ref: "us"}  # twice
        curves:
          all_reduce:
            ranks:
              8:
                # from an old run
                - {kind: measured, ref: "old", constant: 70 us, up_to: 1 MiB}  # flat
                # and beyond
                - {kind: measured, ref: "old", constant: 70 us, slope: 20 us/MiB}  # slow
# the end
notes:
  - ours
"""


def test_a_file_written_by_hand_keeps_its_comments(tmp_path: Path) -> None:
    file = put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, 5e-5 + DOUBLING / 75e9))
    ours = put(tmp_path, COMMENTED, "ours.yaml")
    for hardware in ("atlas_800t_a2", str(ours)):  # the base, or itself
        ours.write_text(COMMENTED)
        assert run("calibrate", str(file), "--hardware", hardware, "-o", str(ours))[0] == 0
        text = ours.read_text()
        for comment in ("# our box, by hand", "# keep", "# we measured this", "# twice", "# from an old run",
                        "# flat", "# and beyond", "# slow", "# the end"):  # fmt: skip
            assert comment in text
        machine = load_machine(str(ours))
        engine = machine.tiers["node"].engines["measured"]
        assert (machine.name, engine.round_cost, machine.notes) == ("ours", 9e-6, ("ours",))
        (band,) = engine.curves["all_reduce"].ranks[8]
        assert band.constant == pytest.approx(5e-5, rel=0.01)


def test_a_shipped_profile_with_all_its_comments_can_be_edited(tmp_path: Path) -> None:
    """In place, through every kind of number; only the values differ."""
    from mc2perf.calibrating.profile import profile_text
    from mc2perf.readers.profiles import find_profile

    text = find_profile("atlas_800t_a2_b2").read_text()
    file = put(tmp_path, text, "own.yaml")
    truth = load_machine(str(file))
    benchmark = HEADER + collectives("all_gather", DOUBLING, 5e-5 + DOUBLING / 150e9, 4)
    tables = [put(tmp_path, benchmark, "c.csv"), put(tmp_path, matmuls(truth, 1), "m.csv")]
    found = calibrate(tables, str(file))
    new = profile_text(found, str(file), str(file))
    old_lines, new_lines = text.splitlines(), new.splitlines()
    gone = [line for line in old_lines if line not in new_lines]
    assert len(gone) <= 10 and all("#" not in line.split('"')[0] for line in gone)
    file.write_text(new)
    assert load_machine(str(file)) == found.machine


def test_a_rule_made_for_eight_ranks_makes_way(tmp_path: Path) -> None:
    """CANN's curves scale one fit of 8 ranks; a fit of 4 cannot stand beside it."""
    base = load_machine("atlas_800t_a2")
    time = 3e-5 + DOUBLING / 60e9
    found = calibrate(
        [put(tmp_path, HEADER + collectives("all_gather", DOUBLING, time, 4))],
        base.name,
        engine="vendor_model",
    )
    curve = found.machine.tiers["node"].engines["vendor_model"].curves["all_gather"]
    assert list(curve.ranks) == [4] and curve.rank_rule == "interpolate"
    priced = Costs(found.machine, Ledger(), "vendor_model").collective("x", "all_gather", DOUBLING, 4.0).time
    assert np.allclose(np.asarray(priced), time, rtol=0.01)


def test_wires_across_servers(tmp_path: Path) -> None:
    truth = load_machine(
        "atlas_800t_a2", (),
        {"tiers.cluster.engines.hccl.wires.latency": "40 us",
         "tiers.cluster.engines.hccl.wires.efficiency": "0.5"},
    )  # fmt: skip
    time = np.asarray(Costs(truth, Ledger()).collective("x", "all_reduce", DOUBLING, 16.0).time)
    noise = np.exp(0.02 * np.random.default_rng(3).standard_normal(len(time)))
    (group,) = calibrate(
        [put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, time * noise, 16))], "atlas_800t_a2"
    ).found.groups
    assert value(group, "latency") == pytest.approx(40e-6, rel=0.2)
    assert value(group, "efficiency") == pytest.approx(0.5, rel=0.1)


# --- outside what was fitted ------------------------------------------------------------------------------


def test_outside_the_fitted_range_an_estimate_warns_and_strict_fails(tmp_path: Path) -> None:
    size = 2.0 ** np.arange(16, 27)
    truth = load_machine("atlas_800t_a2")
    files = [put(tmp_path, HEADER + collectives("all_reduce", size, 5e-5 + size / 75e9), "c.csv"),
             put(tmp_path, matmuls(truth, 1), "m.csv")]  # fmt: skip
    out = str(tmp_path / "box.yaml")
    assert run("calibrate", *map(str, files), "--hardware", "atlas_800t_a2", "-o", out)[0] == 0
    words = (
        "estimate",
        "matmul_all_reduce",
        "-n4096",
        "-k4096",
        "--ranks",
        "8",
        "--hardware",
        out,
        "--strict",
    )
    code, answer, _ = run(*words, "-m4096")
    assert code == 0 and "EXTRAPOLATED" not in answer
    code, answer, said = run(*words, "-m256K")
    assert said.startswith("strict: exit 1, ") and "or leave --strict out" in said
    assert code == 1 and "all_reduce.ranks.8: 2 GiB, fitted for 64 KiB to 64 MiB" in answer
    assert "cube.rules.measured" in answer
    assert run(*words[:-1], "-m64K")[0] == 0
    assert run(*words[:-3], "--hardware", "atlas_800t_a2", "--strict", "-m64K")[0] == 0


# --- through pipes, from samples --------------------------------------------------------------------------


def test_pipes(tmp_path: Path) -> None:
    """A benchmark in, a profile out, a profile in: messages on standard error only."""
    from mc2perf.readers import profiles

    text = trials.hccl_test(DOUBLING, 6e-5 + DOUBLING / 77e9)
    code, profile, err = run("calibrate", "-", "--hardware", "atlas_800t_a2", stdin=text.encode())
    assert code == 0 and profile.startswith("# Fitted by") and "standard input, 19 rows" in err
    profiles._standard_input.cache_clear()
    words = ("estimate", "matmul_all_reduce", "-m4K", "-n4K", "-k4K", "--hardware", "-")
    code, answer, err = run(*words, stdin=profile.encode())
    profiles._standard_input.cache_clear()
    assert code == 0 and not err and "matmul_all_reduce on atlas_800t_a2_calibrated: " in answer


def test_ranks_and_op_that_a_file_does_not_say(tmp_path: Path) -> None:
    text = trials.hccl_test(DOUBLING, 6e-5 + DOUBLING / 77e9).split("\n", 1)[1]
    file = put(tmp_path, text, "mail.txt")
    code, _, err = run("calibrate", str(file), "--hardware", "atlas_800t_a2")
    assert code == 2 and "write --op --ranks" in err
    words = ("--op", "all_reduce", "--ranks", "8", "--format", "json", "-o", str(tmp_path / "box.yaml"))
    code, out, _ = run("calibrate", str(file), "--hardware", "atlas_800t_a2", *words)
    tree = json.loads(out)
    assert code == 0 and tree["groups"][0]["what"] == "all_reduce, 8 ranks"
    assert tree["groups"][0]["values"][1]["value"] == pytest.approx(1.75 * 77e9, rel=0.01)


def test_a_profile_of_the_users_own_is_a_base(tmp_path: Path) -> None:
    """A machine that nobody ships, in a folder elsewhere; the fitted profile finds it."""
    (tmp_path / "bases").mkdir()
    put(tmp_path / "bases", "extends: h100_sxm\nname: lab\nranks_per_server: "
        '{value: 2, kind: assumed, ref: "two processes"}\n', "lab.yaml")  # fmt: skip
    file = put(tmp_path, HEADER + collectives("all_reduce", DOUBLING, 5e-5 + DOUBLING / 75e9, 2))
    base, out = str(tmp_path / "bases" / "lab.yaml"), tmp_path / "fitted.yaml"
    assert run("calibrate", str(file), "--hardware", base, "-o", str(out))[0] == 0
    assert "extends: bases/lab.yaml" in out.read_text()
    assert load_machine(str(out)).ranks_per_server == 2.0


def test_a_profilers_matmuls_and_transit_times(tmp_path: Path) -> None:
    truth = replace(load_machine("atlas_800t_a2"), name="t")
    head = "Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes,Input Data Types\n"
    rows, costs = [], Costs(truth, Ledger())
    for i, (m, n, k) in enumerate(
        (m, n, k) for m in (128, 512, 2048, 8192) for n in (1024, 4096) for k in (1024, 8192)
    ):
        us = float(costs.matmul("x", float(m), float(n), float(k), "bf16").time) * 1e6
        rows += [f'op{i},MatMulV2,AI_CORE,{i},{us:.3f},"""{m},{k};{n},{k}""",DT_BF16;DT_BF16'] * 2
        rows.append(f'op{i},Add,AI_VECTOR_CORE,{i},5.0,"""{m},{k}""",DT_BF16')
    found = calibrate([put(tmp_path, head + "\n".join(rows) + "\n", "kernel_details.csv")], "atlas_800t_a2")
    (group,) = found.found.groups
    assert group.what == "matmul, bf16" and group.rows == 16
    assert value(group, "utilisation.bf16") == pytest.approx(0.884, rel=0.02)


def test_the_sample_of_a_profiler(samples: Path) -> None:
    """Four all-reduces at 95.6 to 128.3 GB/s on the wire: their fit stays among them; elapsed is 100x."""
    file = samples / "profiler" / "level1_2025" / "communication.json"
    (group,) = calibrate([file], "atlas_800t_a2", {"ranks": "8"}).found.groups
    assert group.what == "all_reduce, 8 ranks" and group.rows == 4
    assert 95e9 < value(group, "bus rate") < 140e9 and group.left[0].startswith("latency")


@pytest.fixture
def samples() -> Path:
    import os

    folder = os.environ.get("MC2PERF_SAMPLES")
    if not folder:
        pytest.skip("MC2PERF_SAMPLES is not set")
    return Path(folder)


def test_two_tables_of_one_collective_are_one(tmp_path: Path) -> None:
    time = 5e-5 + DOUBLING / 75e9
    files = [put(tmp_path, HEADER + collectives("all_reduce", DOUBLING[at], time[at]), f"{name}.csv")
             for name, at in (("a", slice(0, None, 2)), ("b", slice(1, None, 2)))]  # fmt: skip
    (group,) = calibrate(files, "atlas_800t_a2").found.groups
    assert group.rows == len(DOUBLING) and group.origin.file == "a.csv, b.csv"


def test_without_ranks_a_profilers_file_is_a_question(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--op --ranks"):
        calibrate(
            [put(tmp_path, trials.hccl_test(DOUBLING, 1e-5 + DOUBLING / 7e10)[50:], "x")], "atlas_800t_a2"
        )
