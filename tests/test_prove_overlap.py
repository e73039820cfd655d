"""The proof on a CPU: a profile that made the tables foretells them, and one without slow-down does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from mc2perf.cli import main
from mc2perf.readers.profiles import load_machine

FOLDER = Path(__file__).parents[1] / "scripts"


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("prove_overlap", FOLDER / "prove_overlap.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = _script()
MADE = (
    "operator,m,n,k,ranks,dtype,tile_cnt,buffers,time_us\n"
    + "".join(f"all_to_all_matmul,1024,512,1024,2,bf16,{n},4,{1000 + n}\n" for n in (1, 2, 4, 8))
    + "".join(f"matmul_all_reduce,1024,512,1024,2,bf16,{n},4,{2000 - n}\n" for n in (1, 2, 16))
)


def test_only_few_tiles_are_fitted(tmp_path: Path) -> None:
    (tmp_path / "overlap.csv").write_text(MADE)
    rows = script.few_tiles(tmp_path).read_text().splitlines()
    assert [line.split(",")[6] for line in rows] == ["tile_cnt", "1", "2", "1", "2"]


def test_the_profile_that_made_the_tables_foretells_them(tmp_path: Path) -> None:
    """A base with one core for both gains nothing by overlapping: more tiles cost more, one is best."""
    (tmp_path / "overlap.csv").write_text(MADE)
    machine = load_machine(str(FOLDER / "cpu_gloo.yaml"))
    scans = list(script.scans(tmp_path))
    assert [scan.counts.tolist() for scan in scans] == [[1, 2, 4, 8], [1, 2, 16]]
    lines = MADE.splitlines()
    times = [time for scan in scans for time in scan.foretold(machine)]
    made = [f"{line.rpartition(',')[0]},{time * 1e6}" for line, time in zip(lines[1:], times, strict=True)]
    (tmp_path / "overlap.csv").write_text("\n".join([lines[0], *made, ""]))
    rows = script.compared(machine, tmp_path)
    assert all(abs(row.off) < 1e-9 for row in rows)
    first = [row for row in rows if row.words.startswith("all_to_all_matmul")]
    assert [row.predicted for row in first] == sorted(row.predicted for row in first)
    assert all(row.alone < row.predicted for row in first if row.tiles > 1)
    said = "\n".join(script.report(rows))
    assert "foretold, more than 2 tiles: 3 times, median error 0%, worst 0%, bias +0%" in said


def test_the_scan_is_compared_on_a_machine_whose_launches_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "overlap.csv"
    slow = MADE.replace(",100", ",900")  # nine milliseconds leave something to explain
    file.write_text("".join(line for line in slow.splitlines(True) if "all_reduce" not in line))
    words = "compare all_to_all_matmul {} -m 1024 -n 512 -k 1024 --ranks 2 --hardware {}"
    asked = words.format(file, FOLDER / "cpu_gloo.yaml").split()
    monkeypatch.setattr(sys, "argv", ["mc2perf", *asked])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0 and "a launch takes no time" in capsys.readouterr().out
