"""Standard streams that a caller has closed: one line, or nothing, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = "standard output: is closed; leave it open, or write a file with -o where a command has it\n"
SINGLE = "sweep matmul_all_reduce -m 4096 -n 8192 -k 4096 --vary tile_cnt=1,2"


def call(words: str, folder: Path, *closed: str) -> subprocess.CompletedProcess[str]:
    """Run the command with some of its streams closed."""
    tool = [sys.executable, "-m", "mc2perf", *words.split()]
    shell = ["sh", "-c", f'exec "$@" {" ".join(closed)}', "sh"]
    return subprocess.run(
        [*shell, *tool], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "words",
    ["--version", "columns", "profiles list", "estimate mixtral-8x7b", "audit mixtral-8x7b-mc2", SINGLE],
)
def test_an_answer_for_nobody_is_one_line(words: str, tmp_path: Path) -> None:
    found = call(words, tmp_path, ">&-")
    echo = "2 rows over tile_cnt (2), schedule (1)\n" if words == SINGLE else ""
    assert (found.returncode, found.stderr) == (2, echo + CLOSED)


def test_rows_for_nobody_are_one_line(tmp_path: Path) -> None:
    found = call(f"{SINGLE} -o -", tmp_path, ">&-")
    _, last = found.stderr.splitlines()
    assert found.returncode == 2
    assert last.startswith("output: standard output cannot be written (")


@pytest.mark.parametrize("words", ["estimate mixtral-8x7b --ep 8", SINGLE])
def test_a_file_needs_no_standard_output(words: str, tmp_path: Path) -> None:
    assert call(f"{words} -o open.csv", tmp_path).returncode == 0
    found = call(f"{words} -o closed.csv", tmp_path, "<&-", ">&-", "2>&-")
    assert found.returncode == 0
    assert (tmp_path / "closed.csv").read_bytes() == (tmp_path / "open.csv").read_bytes()


def test_talk_that_nobody_hears_changes_nothing(tmp_path: Path) -> None:
    heard, unheard = call(SINGLE, tmp_path), call(SINGLE, tmp_path, "2>&-")
    assert (unheard.returncode, unheard.stdout) == (0, heard.stdout)
    assert call("estimate mixtrall", tmp_path, "2>&-").returncode == 2
    assert call("estimate mixtral-8x7b", tmp_path, ">&-", "2>&-").returncode == 2


def test_closed_standard_input_is_empty(tmp_path: Path) -> None:
    found = call("inspect -", tmp_path, "<&-")
    assert (found.returncode, found.stderr) == (2, "standard input: is empty\n")
