"""The sweep as a user meets it: outputs, streams, exit codes, interruption, memory, messages."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from mc2perf.problems import InputError
from mc2perf.sweeping import Ranking, ask_sweep

SINGLE = ("sweep", "all_gather_matmul", "-n", "4096", "-k", "8192", "--ranks", "8", "--schedule", "mc2")
GRID = (*SINGLE, "--vary", "m=1K..4K:x2", "--vary", "tile_cnt=1..4")
FEW = ("--columns", "m,tile_cnt,total_time")
LONG = (*SINGLE, "--vary", "m=1..1000000", "--vary", "tile_cnt=1..16", *FEW)
TOOL = [sys.executable, "-m", "mc2perf"]
TINY = {
    "model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 8, "intermediate_size": 3584, "num_local_experts": 16,
    "num_experts_per_tok": 2, "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# --- outputs --------------------------------------------------------------------------------------------


def test_data_goes_to_stdout_and_talk_to_stderr() -> None:
    code, out, err = run(*GRID, *FEW, "-o", "-", "--where", "m >= 2K", "--best-over", "pieces", "--top", "2")
    assert code == 0
    assert [row["m"] for row in table(out)] == ["2048", "4096"]
    assert err == (
        "12 rows over m (3), tile_cnt (4); where m >= 2K; "
        "best over tile_cnt by total_time; top 2 by total_time\n"
    )


def test_full_digits_are_the_very_same_numbers() -> None:
    lines = run(*GRID, *FEW, "--format", "jsonl")[1].splitlines()
    rows = table(run(*GRID, *FEW, "-o", "-", "--digits", "full")[1])
    assert len(rows) == len(lines) == 12
    for row, line in zip(rows, lines, strict=True):
        assert row["total_time(s)"] == str(json.loads(line).get("total_time", ""))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "md", "xlsx", "parquet"])
def test_the_same_question_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    if suffix in ("xlsx", "parquet"):
        pytest.importorskip({"xlsx": "xlsxwriter", "parquet": "pyarrow"}[suffix])
    for name, more in (("one", ()), ("two", ("--jobs", "2"))):
        assert run(*GRID, "-o", f"{name}.{suffix}", *more)[:2] == (0, "")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_a_file_has_a_mark_for_excel_unless_told_not_to(tmp_path: Path) -> None:
    run(*GRID, "-o", "with.csv")
    run(*GRID, "-o", "without.csv", "--no-bom")
    assert (tmp_path / "with.csv").read_bytes() == b"\xef\xbb\xbf" + (tmp_path / "without.csv").read_bytes()


def test_columns_lists_the_header_of_a_file() -> None:
    header = next(csv.reader(io.StringIO(run(*GRID, "-o", "-")[1])))
    listed = [line.split()[0] for line in run("columns")[1].splitlines()]
    assert [name.partition("(")[0] for name in header] == list(dict.fromkeys(listed))
    assert len(set(header)) == len(header)


def test_columns_asked_for_are_shown_even_if_empty_and_in_order() -> None:
    out = run(*SINGLE, "--vary", "m=1K", "--columns", "reason,total_time,m,m")[1]
    assert out.split()[:3] == ["reason", "total_time", "m"]


def test_names_of_files_are_no_formulas_and_may_be_chinese(tmp_path: Path) -> None:
    for name in ("=cmd.json", "专家.json"):
        (tmp_path / name).write_text(json.dumps(TINY), encoding="utf-8")
        rows = table(run("sweep", name, "--vary", "seq_len=1K", "--columns", "target", "-o", "-")[1])
        assert rows[0]["target"] == (f"'{name}" if name[0] == "=" else name)
    assert "专家.json" in run("sweep", "专家.json", "--vary", "seq_len=1K", "--columns", "target")[1]


def test_a_workbook_shortens_long_axes_and_tells_machines_apart() -> None:
    from mc2perf.sweeping import about, ask_sweep

    vary = ["m=1..1048577:2", "tiers.node.link_rate=10 GB/s,20 GB/s"]
    said = about(ask_sweep("all_gather_matmul", {"n": 1, "k": 1}, {}, vary))
    assert said.inputs["m"] == "1, 3, ..., 1048577 (524289 values)"
    machines = {row[0] for row in said.profiles}
    assert machines == {f"atlas_800i_a2, tiers.node.link_rate={rate} GB/s" for rate in (10, 20)}


# --- what varies ----------------------------------------------------------------------------------------

PLAN = """\
target: all_gather_matmul
n: 4096
k: 8K
ranks: 8
schedule: mc2
vary:
  m: 1K..4K:x2
  tile_cnt: [1, 2, 4]
"""


@pytest.mark.parametrize(
    ("more", "ms", "ns"),
    [
        ((), {1024, 2048, 4096}, {4096}),
        (("--vary", "m=8K"), {8192}, {4096}),
        (("-m", "2K"), {2048}, {4096}),
        (("--vary", "n=1K,2K"), {1024, 2048, 4096}, {1024, 2048}),
    ],
)
def test_the_command_line_goes_before_the_file(
    more: tuple[str, ...], ms: set[int], ns: set[int], tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    rows = table(run("sweep", "plan.yaml", *more, "-o", "-")[1])
    assert {int(row["m"]) for row in rows} == ms
    assert {int(row["n"]) for row in rows} == ns


def test_a_target_that_varies_need_not_be_named() -> None:
    vary = ("--vary", "target=all_gather_matmul,matmul_all_reduce", "--vary", "m=1K")
    out = run("sweep", *vary, "-n", "1K", "-k", "1K", "--columns", "target", "-o", "-")[1]
    assert {row["target"] for row in table(out)} == {"all_gather_matmul", "matmul_all_reduce"}


def test_top_goes_by_the_rate_where_the_work_varies() -> None:
    model = ("sweep", "mixtral-8x7b", "--ep", "8", "--vary", "seq_len=1K,2K", "--top", "2", *("-o", "-"))
    assert "by tokens_per_second" in run(*model)[2]
    assert "by total_time" in run(*model, "--by", "total_time")[2]
    assert "by total_time" in run(*GRID, "--top", "2")[2]


def test_best_over_several_axes_is_the_best_of_all_rows() -> None:
    question = (
        "sweep", "mixtral-8x7b", "--ep", "8", "--vary", "micro_batches=1,2,4", "-o", "-", "--digits", "full",
        "--vary", "schedule=micro_batch,serial", "--vary", "hardware=atlas_800i_a2,h100_sxm",
    )  # fmt: skip
    every = table(run(*question)[1])
    over = ("--best-over", "micro-batches,schedule", "--best-over", "hardware")
    (best,) = table(run(*question, *over)[1])
    rates = [float(row["tokens_per_second(1/s)"] or 0) for row in every]
    assert float(best["tokens_per_second(1/s)"]) == max(rates)


# --- exit codes -----------------------------------------------------------------------------------------


def test_nothing_left_is_one_line_and_exit_1() -> None:
    for more in ((), ("-o", "x.csv")):
        code, out, err = run(*GRID, "--where", "total_time < 1 ns", *more)
        assert (code, out) == (1, "")
        assert "every one was dropped by a condition" in err.splitlines()[-1]
        assert len(err.splitlines()) == 2


def test_only_refused_rows_are_shown_with_reasons_and_exit_1(tmp_path: Path) -> None:
    refused = (*SINGLE, "--vary", "m=1000", "--vary", "tile_cnt=1001")
    code, out, _ = run(*refused)
    assert code == 1
    assert "leaves nothing" in out
    code, out, err = run(*refused, "-o", "x.csv")
    assert (code, out) == (1, "")
    assert "none with an answer" in err
    assert "leaves nothing" in (tmp_path / "x.csv").read_text()


WRONG = [
    ((*GRID, "-m", "4096"), "vary: 'm' varies and is 4096 as well; write one of both"),
    (
        (*SINGLE, "--vary", "schedule=coc"),
        "vary: 'schedule' varies and is mc2 as well; write one of both",
    ),
    (
        (*GRID, "--set", "tiers.node.link_rate=1 GB/s", "--vary", "tiers.node.link_rate=2 GB/s"),
        "vary: 'tiers.node.link_rate' varies and is 1 GB/s as well; write one of both",
    ),
    (
        (*GRID, "--vary", "target=matmul_all_reduce"),
        "vary: 'target' leaves out 'all_gather_matmul'; add it, or name one that varies",
    ),
    (("sweep", "mixtral-8x7b", "--vary", "m=1K"), "vary: 'm' is for operators; mixtral-8x7b is none;"),
    (("sweep", "mixtral-8x7b", "-m", "3"), "m: is for operators; 'mixtral-8x7b' is a model; leave it out"),
    ((*SINGLE, "--vary", "m=1..", "--best-over", "m"), "vary: 'm=1..' has no end; write for example m=1..32"),
    ((*GRID, "--vary", "tiers.node.x=1,2"), "vary: 'tiers.node.x' is no value of this profile"),
    ((*GRID, "--by", "speedup"), "by: nothing is ranked by speedup; add --best-over or --top"),
    ((*GRID, "--top", "2", "--by", "tokens_per_second"), "by: tokens_per_second is of models and moe_layer;"),
    (
        ("sweep", "mixtral-8x7b", "--top", "2", "--by", "npus_needed"),
        "by: npus_needed needs a number; add --target-tokens-per-second",
    ),
    ((*GRID, "--columns", "m,,n"), "columns: has an empty name; write for example m,tile_cnt,total_time"),
    ((*GRID, "--top", "0"), "top: '0' is too small"),
    ((*GRID, "--jobs", "0"), "jobs: '0' is too small"),
    ((*GRID, "--where", "total_time < 3 GB/s"), "where: 'total_time' is in s and '3 GB/s' is in B/s;"),
    ((*GRID, "-o", ""), "output: is empty; write something, or leave it out"),
    ((*GRID, "-o", "."), "output: '.' is a folder; write a file, such as plan.csv"),
    ((*GRID, "-o", "no/x.csv"), "output: there is no folder 'no'; create it, or write elsewhere"),
    ((*GRID, "-o", "x.bar"), "output: 'x.bar' ends in no known suffix;"),
    (
        (*SINGLE, "--vary", "m=1..1000000", "--best-over", "m"),
        "best_over: compares 1000000 sizes at once; vary sizes so that there are 250000 at most",
    ),
]


@pytest.mark.parametrize(("args", "said"), WRONG, ids=[line for _, line in WRONG])
def test_wrong_input_is_one_line(args: tuple[str, ...], said: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_every_problem_is_told_at_once_and_the_old_file_stays(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("old")
    code, out, err = run(
        "sweep", "mixtrall", "--vary", "m=1..", "--by", "x", "--top", "0", "--jobs", "0", "--digits", "8",
        "--set", "foo", "--where", "x y", "--columns", "foo", "--price-per-npu-hour", "-1", "-o", "x.csv",
    )  # fmt: skip
    assert (code, out) == (2, "")
    starts = ("target", "vary", "by", "top", "jobs", "digits", "--set", "where", "columns", "price_per")
    for start in starts:
        assert any(line.startswith(start) for line in err.splitlines()), start
    assert names(tmp_path) == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "old"


# --- long runs ------------------------------------------------------------------------------------------


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """The command in a process of its own, in a group of its own."""
    begun: list[subprocess.Popen[str]] = []

    def call(*args: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE) -> Any:
        process = subprocess.Popen(
            [*TOOL, *args], cwd=tmp_path, text=True, start_new_session=True, stdout=stdout, stderr=stderr
        )
        begun.append(process)
        return process

    yield call
    for process in begun:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait(20)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_run_leaves_the_old_file(jobs: str, start: Start, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("old")
    process = start(*LONG, "-o", "x.csv", "--jobs", jobs)
    deadline = time.monotonic() + 20
    while len(names(tmp_path)) < 2 and time.monotonic() < deadline:  # its temporary file is there
        time.sleep(0.02)
    time.sleep(0.7)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    echo, last = err.splitlines()
    assert echo.startswith("16,000,000 rows over")
    assert last.startswith("interrupted after ")
    assert last.endswith(" of 16,000,000 rows; 'x.csv' is as it was")
    assert names(tmp_path) == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "old"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no process of it is left


@pytest.mark.parametrize("args", [(*LONG, "-o", "-"), (*LONG, "-o", "-", "--jobs", "2"), GRID])
def test_a_closed_pipe_is_no_failure(args: tuple[str, ...], start: Start) -> None:
    process = start(*args)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert len(process.stderr.read().splitlines()) <= 2
    assert process.wait(20) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk to try")
@pytest.mark.parametrize("args", [("-o", "/dev/full", "--format", "csv"), ("-o", "-")])
def test_a_full_disk_is_one_line(args: tuple[str, ...], start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(*SINGLE, "--vary", "m=1..3000", *args, stdout=full.fileno())
        assert process.stderr is not None
        echo, last = process.stderr.read().splitlines()
    assert process.wait(20) == 2
    assert echo.startswith("3,000 rows")
    assert "No space left on device" in last


def test_memory_does_not_grow_with_the_grid(start: Start) -> None:
    peaks = []
    for count in (62, 250):
        vary = ("--vary", f"n=256..{256 * count}:256", "--vary", "m=1..1000", "--vary", "tile_cnt=1..16")
        args = ("sweep", "all_gather_matmul", "-k", "8192", "--ranks", "8", "--schedule", "mc2", *vary)
        process = start(*args, "--best-over", "tile_cnt", *FEW, "-o", "few.csv")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(used.ru_maxrss / 1024)
    assert peaks[1] - peaks[0] < 10, peaks  # [MB]; 1 and 4 million rows


def test_a_terminal_sees_rate_and_time_left(start: Start) -> None:
    ours, theirs = pty.openpty()
    process = start(*LONG, "-o", "x.csv", stderr=theirs)
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 20
    while not re.search(rb"[\d,]+ rows/s  \[[#-]+\] +\d+%  00:\d\d:\d\d", seen):
        assert time.monotonic() < deadline, seen
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    last = os.read(ours, 65536).decode().splitlines()[-1]
    os.close(ours)
    assert last.startswith("interrupted after ")  # on a line of its own


def test_a_grid_of_any_size_begins_at_once(start: Start) -> None:
    vary = ("--vary", "m=1..1000000", "--vary", "n=1..1000000")
    process = start("sweep", "all_gather_matmul", "-k", "8192", *vary, *FEW, "-o", "-")
    assert process.stdout is not None
    begin = time.monotonic()
    for _ in range(2):
        process.stdout.readline()
    assert time.monotonic() - begin < 10
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(20) in (0, 130)


def test_help_lists_every_option_under_a_heading() -> None:
    text = run("sweep", "--help")[1]
    own = text[text.index("\nWhat varies, what is kept:") :]
    for flag in ("vary", "best-over", "by", "top", "where", "columns", "target-tokens-per-second"):
        assert f"--{flag} " in own
    for flag in ("format", "output", "digits", "no-bom", "jobs", "profiles", "set", "dispatcher"):
        assert f"--{flag} " in text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sweep", "mixtral-8x7b", "--tp", "3", "--vary", "batch_size=1,2"), 2),
        (("sweep", "mixtral-8x7b", "--vary", "tp=3,8"), 0),
        (("sweep", "mixtral-8x7b", "--vary", "tp=3,5"), 1),  # each row for a reason of its own
        (("breakeven", "mixtral-8x7b", "--tp", "3"), 2),
        (("estimate", "mixtral-8x7b", "--tp", "3"), 2),
    ],
)
def test_what_contradicts_itself_in_every_row_is_wrong_input(words: tuple[str, ...], code: int) -> None:
    left, _, err = run(*words)
    assert left == code
    said = [line for line in err.splitlines() if not line.endswith("schedule (5)")]
    assert said == (["tp: 8 NPUs do not divide by 3; write a divisor"] if code == 2 else [])


def test_a_planner_has_no_use_for_operators() -> None:
    given = {"m": 1024, "k": 1024, "ranks": 8}
    ranking = Ranking(target_tokens_per_second="1e6", price_per_npu_hour="2")
    with pytest.raises(InputError) as refused:
        ask_sweep("all_gather_matmul", given, {}, ["n=1K,2K"], ranking)
    assert [line.partition(":")[0] for line in refused.value.problems] == [
        "target_tokens_per_second", "price_per_npu_hour",
    ]  # fmt: skip
