"""The measuring script: what it plans agrees with the catalogue, and what it writes is read again."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mc2perf.measured import CollectiveTimes, KernelTimes, TileTimes
from mc2perf.operators import OPERATORS
from mc2perf.readers.measured import read_measured
from mc2perf.workload.fused import Sizes, compute_rows, payload_bytes

SCRIPT = Path(__file__).parents[1] / "scripts" / "measure_overlap.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_overlap", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


script: Any = _script()


def asked(*more: str) -> Any:
    return script.arguments(["--shape", "64,32,16", *more])


@pytest.mark.parametrize("name", sorted(script.OPERATORS))
def test_operators_are_those_of_the_catalogue(name: str) -> None:
    """Rows, columns, what travels and how many bytes: the script knows nothing of mc2perf."""
    ours, theirs = OPERATORS[name], script.OPERATORS[name]
    assert (ours.collective, ours.order == "comm_first", ours.gathered) == (
        theirs.collective,
        theirs.comm_first,
        theirs.gathered,
    )
    case = script.Case(name, 96, 32, 16, 4, "bf16")
    sizes = Sizes(m=96.0, n=32.0, k=16.0, ranks=4.0, experts=1.0, dtype="bf16", payload_dtype="bf16",
                  split_axis="m")  # fmt: skip
    assert case.payload() == payload_bytes(ours, sizes)
    assert case.rows == compute_rows(ours, sizes)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_plan_times_the_parts_of_every_cut(ranks: int) -> None:
    words = ["--shape", "768,64,128", "--shape", "96,64,128", "--dtype", "fp16", "--dtype", "bf16"]
    cases = script.cases_of(script.arguments(words), ranks)
    plan = script.planned(cases, [1, 2, 5, 8], [4096, 100_000])
    assert {tiles for _, tiles in plan.scans} == {1, 2, 8} and {case for case, _ in plan.scans} == set(cases)
    for case, tiles in plan.scans:
        assert (case.kind.collective, case.payload() / tiles) in plan.transfers
        assert set(case.matmuls(tiles)) <= set(plan.matmuls)
    assert all(size % (2 * ranks) == 0 for _, size in plan.transfers), "whole elements for every rank"
    for found in (plan.transfers, plan.matmuls, plan.scans):
        assert len(set(found)) == len(found)


def test_gathered_rows_are_multiplied_once_each() -> None:
    """A rank's own rows at once, those of the others piece by piece: together all of them."""
    case = script.Case("all_gather_matmul", 96, 32, 16, 4, "bf16")
    assert case.matmuls(1) == [(384, 32, 16, "bf16")]
    assert case.matmuls(3) == [(96, 32, 16, "bf16")]  # 288 rows of others in 3 pieces, and 96 own ones
    rows = [m for m, *_ in case.matmuls(2)]
    assert sorted(rows) == [96, 144] and case.rows == 96 + 2 * 144


def test_the_slowest_rank_and_the_statistic() -> None:
    row = script.times_of([3e-6, 1e-6, 9e-6], "median")
    assert (row["time_us"], row["min_us"], row["repetitions"]) == ("3.000", "1.000", 3)
    assert script.times_of([3e-6, 1e-6, 9e-6], "min")["time_us"] == "1.000"


class Still:
    """A bench without a machine: everything takes as many microseconds as its turn."""

    rank, ranks = 0, 2

    def __init__(self, asked: Any) -> None:
        self.asked, self.turn = asked, 0

    def time(self, _: object) -> list[float]:
        self.turn += 1
        return [self.turn * 1e-6] * 3


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("transfer_alone", "matmul_alone", "checked_pieces"):
        monkeypatch.setattr(script, name, lambda *_: None)
    how = asked("--tile-cnt", "1,2", "--sizes", "4K..16K:x2", "--rounds", "2")
    plan = script.planned(script.cases_of(how, 2), how.tile_cnt, how.sizes)
    for name, rows in script.measured(Still(how), plan).items():
        script.write_table(tmp_path / name, rows)
    return tmp_path


def test_what_is_written_is_read_again(tables: Path) -> None:
    collectives = read_measured(tables / "collectives.csv")
    assert isinstance(collectives.data, CollectiveTimes) and not collectives.report.set_aside
    ops = {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}
    assert {(p.op, p.ranks) for p in collectives.data.points} == {(op, 2) for op in ops}
    matmuls = read_measured(tables / "matmul.csv")
    assert isinstance(matmuls.data, KernelTimes) and not matmuls.report.set_aside
    assert {row.sizes["m"] for row in matmuls.data.rows} == {32, 64, 128}
    scan = read_measured(tables / "overlap.csv")
    assert isinstance(scan.data, TileTimes) and not scan.report.set_aside
    assert sorted(p.name for p in tables.iterdir()) == ["collectives.csv", "matmul.csv", "overlap.csv"]


def test_rounds_go_through_the_whole_plan(tables: Path) -> None:
    """Two rounds of so many rows, timed in turn: the first of the last table has both its turns."""
    rows = [line.split(",") for line in (tables / "collectives.csv").read_text().splitlines()[1:]]
    whole = sum(len((tables / name).read_text().splitlines()) - 1 for name in script.TABLES)
    assert [float(row[5]) for row in rows] == list(range(1, len(rows) + 1))
    assert float(rows[0][3]) == (1 + whole + 1) / 2 and rows[0][-1] == "6"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "1,2"], "write M,N,K"),
        (["--shape", "0,2,2"], "no whole number"),
        (["--shape", "1,2,2", "--sizes", "4K..1K"], "rising ladder"),
        (["--shape", "1,2,2", "--tile-cnt", "2,4"], "needs 1"),
        ([], "--shape"),
        (["--shape", "1,2,2", "--operator", "sort"], "invalid choice"),
    ],
)
def test_wrong_words_are_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.arguments(words)
    assert stopped.value.code == 2 and said in capsys.readouterr().err


def test_rows_that_ranks_do_not_divide_are_told_at_once() -> None:
    with pytest.raises(SystemExit, match=r"(?s)all_to_all_matmul: m = 63 .*\n.*m = 63"):
        script.cases_of(script.arguments(["--shape", "63,32,16"]), 2)


def test_sizes_as_axes() -> None:
    assert script.ladder("1K..10K:x4") == [1024, 4096] and script.ladder("3,4K") == [3, 4096]


def test_it_starts_with_torchrun_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match="torchrun"):
        script.main(["--shape", "64,32,16"])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not here")
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_run_on_this_machine(tmp_path: Path, ranks: int) -> None:
    """Every operator, cut and uncut, must come to the same result on real ranks."""
    words = "--backend gloo --shape 96,32,16 --tile-cnt 1,2,4 --sizes 4K --rounds 1 --repeat 2 --warm-up 1"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*command, str(SCRIPT), *words.split(), "--output", str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for name in script.TABLES:
        assert not read_measured(tmp_path / "made" / name).report.set_aside
