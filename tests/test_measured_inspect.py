"""The command that says what a file is, standard input, and files too large for memory."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

import io
import sys
import tracemalloc
from pathlib import Path

import pytest

from mc2perf.cli import main
from mc2perf.cli.inspect import inspect
from mc2perf.cli.progress import LARGE, reading
from mc2perf.measured import CollectiveTimes, KernelTotals
from mc2perf.problems import InputError
from mc2perf.readers.measured import read_measured

TEXT = "data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:\n1024 | 60.70 | 0.01687 | success\n"


def test_inspect_says_what_is_taken_and_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mail"
    file.write_text(TEXT + "2048 | 60.70 | 0.03374 | failed\n")
    inspect([file])
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: hccl_test, 1 sizes",
        "    operation not stated, ranks not stated: 1 size, 1 KiB to 1 KiB; shortest 60.7 us, "
        "best rate 16.87 MB/s by the array",
        "    fewer than 3 sizes: too few to fit a latency and a bandwidth",
        "    set aside: 1 x check_result: failed (first: line 3)",
        "    note: the operation is not in the file; alg_bandwidth is not the bus rate",
    ]


def test_inspect_reads_every_file_before_it_complains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(TEXT)
    bad.write_text("dear all")
    with pytest.raises(InputError, match="bad: is of no known kind"):
        inspect([bad, good, tmp_path / "absent"])
    assert "good: hccl_test" in capsys.readouterr().out


def test_inspect_takes_what_it_knows_from_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "times.txt").write_text(TEXT)
    (tmp_path / "profiler_info_0.json").write_text("{}")
    (tmp_path / "trace.db").write_bytes(b"SQLite")
    inspect([tmp_path])
    said = capsys.readouterr()
    assert "times.txt: hccl_test" in said.out and said.err.count("left out") == 1
    (tmp_path / "below" / "times.txt").unlink()
    with pytest.raises(InputError, match="holds no file of a known kind"):
        inspect([tmp_path])


@pytest.mark.parametrize("what", ["times.txt", "."])
def test_the_command_itself(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "times.txt").write_text(TEXT)
    monkeypatch.setattr(sys, "argv", ["mc2perf", "inspect", str(tmp_path / what)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0 and "times.txt: hccl_test" in capsys.readouterr().out


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    found = read_measured("-")
    assert found.name == "standard input" and isinstance(found.data, CollectiveTimes)


def test_large_files_stream(tmp_path: Path) -> None:
    """A hundred thousand kernels take no more memory than a few."""
    file, rows = tmp_path / "kernel_details.csv", 100_000
    with file.open("w") as out:
        out.write("Name,Type,Accelerator Core,Start Time(us),Duration(us)\n")
        for i in range(rows):
            out.write(f"MatMulV2_{i},MatMulV2,AI_CORE,{1736405443881410 + i}.320\t,1.5\n")
    size, told = file.stat().st_size, list[int]()

    def follow(done: int, total: int) -> None:
        """Trace the last quarter: a row that is kept shows there as well, and tracing is slow."""
        told.append(done)
        if done > 0.75 * total and not tracemalloc.is_tracing():
            tracemalloc.start()

    found = read_measured(file, follow)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found.data, KernelTotals) and found.data.compute[0].count == rows
    assert found.data.compute[0].total == pytest.approx(rows * 1.5e-6)
    assert 0 < peak < 2**20
    assert len(told) > 3 and told == sorted(told) and told[-1] == size


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_a_large_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half, back to the start as the file is read again, and all of it; a small file and a pipe say nothing."""
    seen = _Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    with reading("trace.csv") as told:
        assert told
        for done in (LARGE // 2, LARGE // 4, LARGE):
            told(done, LARGE)
    assert "trace.csv" in seen.getvalue() and "50%" in seen.getvalue() and "100%" in seen.getvalue()
    length = len(seen.getvalue())
    with reading("small.csv") as told:
        assert told
        told(1, LARGE - 1)
    assert len(seen.getvalue()) == length
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with reading("trace.csv") as nobody:
        assert nobody is None


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one_line"
    file.write_text("m,n,k,time_us\n1,2,3," + "4" * (1 << 20))
    with pytest.raises(InputError, match="line 2 is longer than"):
        read_measured(file)
