"""A sweep on a Dask cluster: two workers, one of them killed, give the rows of a local run to the bit."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mc2perf import cli, cluster
from mc2perf.cluster import Part, best_on_cluster, run_on_cluster
from mc2perf.problems import InputError
from mc2perf.studies import run
from mc2perf.sweeping import Asked, Ranking, about, ask_sweep
from mc2perf.version import VERSION
from mc2perf.writers.tables import open_table

QUESTION: Any = (
    "all_gather_matmul",
    {"n": "4K", "k": "8K", "ranks": 8},
    {},
    ["m=64..64000:64", "tile_cnt=1..4"],
)
SMALL: dict[str, Any] = {"block": 500, "part": 1000}
"""Blocks and parts of few rows, so that there are several of each."""


def asked(**ranking: Any) -> Asked:
    target, given, overrides, axes = QUESTION
    return ask_sweep(target, given, overrides, axes, Ranking(**ranking))


def on_cluster(question: Asked, folder: Path | str, address: str, **how: Any) -> int:
    given = (question.sweep, question.columns, about(question), str(folder), address)
    return run_on_cluster(*given, **{**SMALL, **how})


def local(question: Asked, path: Path) -> list[Any]:
    with open_table(str(path), question.columns, about(question)) as table:
        for block in run.blocks(question.sweep, [column.name for column in question.columns]):
            table.add(block)
    return cells([path])


def cells(files: list[Path]) -> list[Any]:
    """Every column of the files, one below the other: numbers by their bits, words as text."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.concat_tables([parquet.read_table(file) for file in files], promote_options="permissive")
    words = [arrow.types.is_dictionary(column.type) for column in table.columns]
    return [
        column.cast(arrow.string()).to_pylist() if word else column.to_numpy().tobytes()
        for word, column in zip(words, table.columns, strict=True)
    ]


def parts_of(folder: Path) -> list[Path]:
    """The files of a finished run, which are parts without a gap, and nothing else."""
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"part-{i:05d}.parquet" for i in range(len(files))]
    return files


@pytest.fixture(scope="module")
def dask() -> Any:
    pytest.importorskip("pyarrow")
    return pytest.importorskip("dask.distributed")


@pytest.fixture(scope="module")
def two(dask: Any) -> Iterator[Any]:
    """A scheduler, two worker processes that are started anew when they die."""
    how = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with dask.LocalCluster(**how) as both:
        yield both


@pytest.fixture
def client(dask: Any, two: Any) -> Iterator[Any]:
    with dask.Client(two.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
        yield client


def die_in_its_second_block() -> Callable[[], None]:
    """What makes a worker die by SIGKILL in the middle of a part, with a file half written."""

    def arm() -> None:
        import os
        import signal

        from mc2perf.studies.sweep import Sweep

        evaluate, seen = Sweep.evaluate, []

        def dying(sweep: Any, task: Any, columns: Any) -> Any:
            seen.append(task)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return evaluate(sweep, task, columns)

        Sweep.evaluate = dying  # type: ignore[method-assign, assignment]

    return arm


def set_version(version: str | None) -> Callable[[], None]:
    """What makes a process have another version of the tool, or none."""

    def change() -> None:
        import importlib
        import sys

        name: Any = "mc2perf.version"
        if version is None:
            sys.modules[name] = None  # type: ignore[assignment]
        else:
            sys.modules.pop(name, None)
            importlib.import_module(name).VERSION = version  # type: ignore[attr-defined]

    return change


# --- rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [1, 2])
def test_no_row_is_lost_or_doubled_with_a_worker(client: Any, tmp_path: Path, killed: int) -> None:
    question, seen = asked(), list[int]()
    before = client.run(os.getpid)
    client.run(die_in_its_second_block(), workers=list(before)[:killed])
    rows = on_cluster(question, tmp_path / "x.parquet", client.scheduler.address, done=seen.append)
    client.wait_for_workers(2, timeout=30)
    assert len(set(before.values()) - set(client.run(os.getpid).values())) == killed
    assert rows == sum(seen) == question.sweep.rows_evaluated == 4000
    parts = parts_of(tmp_path / "x.parquet")
    assert len(seen) == len(parts) == 4
    assert cells(parts) == local(question, tmp_path / "local.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local.parquet", "x.parquet"]


@pytest.mark.parametrize("size", [{"part": 1}, {"part": 10**9}, {"block": 10**9, "part": 700}])
def test_parts_only_cut_the_rows(client: Any, tmp_path: Path, size: dict[str, int]) -> None:
    question = asked(best_over=["tile_cnt"], where=["comm_ratio < 12%"])
    rows = on_cluster(question, f"{tmp_path}/x/", client.scheduler.address, **size)
    assert 0 < rows < question.sweep.outer == 1000
    assert len(parts_of(tmp_path / "x")) == {1: 8, 700: 1, 10**9: 1}[size["part"]]
    assert cells(parts_of(tmp_path / "x")) == local(question, tmp_path / "local.parquet")


def test_a_ranking_is_that_of_all_rows(client: Any) -> None:
    question = asked(where=["tile_cnt >= 2"], by="total_time", top="9")
    names = ["m", "tile_cnt", "schedule", "total_time"]
    best = best_on_cluster(question.sweep, names, 9, client.scheduler.address, **SMALL)
    expected = run.best_rows(run.blocks(question.sweep, names), 9, "total_time")
    assert best is not None and expected is not None
    assert {name: list(best[name]) for name in names} == {name: list(expected[name]) for name in names}
    dropped = asked(where=["m < 0"]).sweep
    assert best_on_cluster(dropped, names, 9, client.scheduler.address, **SMALL) is None


@pytest.mark.parametrize("rows", [1, 999, 1000, 1001, 4000, 10**9])
def test_parts_are_all_blocks_in_order(rows: int) -> None:
    sweep = asked().sweep
    parts = list(cluster._parts(sweep, 500, rows))
    tasks = list(sweep.tasks(500))
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [index for part in parts for index in range(part.first, part.last)] == list(range(len(tasks)))
    assert [part.rows for part in parts] == [
        sum(map(sweep.rows_in, tasks[part.first : part.last])) for part in parts
    ]
    assert all(part.rows >= rows for part in parts[:-1])


class Counting:
    """A cluster of two threads that notes how many parts were in flight; each result comes at once."""

    def __init__(self) -> None:
        self.most, self.loop = 0, None
        self.flying: list[Any] = []

    def submit(self, function: Any, *given: Any, key: str) -> Any:
        future = Done(key, given)
        if key.startswith("part-"):
            self.flying.append(future)
            self.most = max(self.most, len(self.flying))
        return future

    def nthreads(self) -> dict[str, int]:
        return {"a": 1, "b": 1}


class Done:
    """A future that is done."""

    def __init__(self, key: str, given: Any) -> None:
        self.key, self.given = key, given

    def result(self) -> int:
        part: Part = self.given[1]
        return part.number


def test_few_parts_are_in_flight(monkeypatch: pytest.MonkeyPatch, dask: Any) -> None:
    client = Counting()

    class Completed:
        def __init__(self, futures: list[Any], loop: None) -> None:
            self.update = client_has_them
            self.futures = futures

        def __iter__(self) -> Iterator[Any]:
            while client.flying:
                yield client.flying.pop()

    def client_has_them(futures: list[Any]) -> None:
        assert set(futures) <= set(client.flying)

    monkeypatch.setattr(dask, "as_completed", Completed)
    parts = (Part(i, i, i + 1, 10) for i in range(50))
    found = list(cluster._results(client, len, parts, lambda rows: None))
    assert sorted(number for number, _ in found) == list(range(50))
    assert client.most == cluster.AHEAD * 2


# --- what goes wrong ------------------------------------------------------------------------------------


def test_a_part_that_kills_is_given_up(client: Any, two: Any, tmp_path: Path) -> None:
    client.run(die_in_its_second_block(), workers=[next(iter(client.run(os.getpid)))])
    allowed, two.scheduler.allowed_failures = two.scheduler.allowed_failures, 0
    try:
        with pytest.raises(InputError, match="took several workers with it"):
            on_cluster(asked(), tmp_path / "x.parquet", client.scheduler.address)
    finally:
        two.scheduler.allowed_failures = allowed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("version", "said"), [("0.0.1", "has mc2perf 0.0.1;"), (None, "has no mc2perf")])
def test_another_version_is_refused(client: Any, tmp_path: Path, version: str | None, said: str) -> None:
    worker = next(iter(client.run(os.getpid)))
    client.run(set_version(version), workers=[worker])
    try:
        with pytest.raises(InputError) as caught:
            on_cluster(asked(), tmp_path / "x.parquet", client.scheduler.address)
    finally:
        client.run(set_version(VERSION), workers=[worker])
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"cluster: worker {worker} {said}")
    assert not list(tmp_path.iterdir())


def test_a_scheduler_without_the_tool(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mc2perf.version", None)  # the scheduler lives in this process
    with pytest.raises(InputError, match="cluster: the scheduler has no mc2perf") as caught:
        on_cluster(asked(), tmp_path / "x.parquet", client.scheduler.address)
    assert len(caught.value.problems) == 1


def test_a_late_worker_of_another_version_is_refused() -> None:
    with pytest.raises(InputError, match=rf"a worker has mc2perf {VERSION}, not 9"):
        cluster._do(len, Part(0, 0, 1, 1), "9")


def test_a_folder_that_workers_do_not_see(client: Any, tmp_path: Path) -> None:
    work = partial(cluster._write, asked().sweep, asked().columns, about(asked()), "/no/folder", 500)
    parts = cluster._parts(asked().sweep, 500, 1500)
    with pytest.raises(InputError, match="a worker does not see '/no'; write where all share") as caught:
        list(cluster._results(client, work, parts, lambda rows: None))
    assert len(caught.value.problems) == 1


def test_nobody_at_the_address(dask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but it does not listen
        addresses = [f"tcp://127.0.0.1:{free.getsockname()[1]}", "nonsense", "", "what://x:1"]
        for address in addresses:
            with pytest.raises(InputError, match="no scheduler answers at") as caught:
                on_cluster(asked(), tmp_path / "x.parquet", address)
            assert len(caught.value.problems) == 1
    assert not list(tmp_path.iterdir())


def test_a_scheduler_without_workers(dask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with (
        dask.LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as nobody,
        pytest.raises(InputError, match="has no worker; start some with 'dask worker tcp://"),
    ):
        on_cluster(asked(), tmp_path / "x.parquet", nobody.scheduler_address)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    with pytest.raises(InputError, match=r"pip install 'mc2perf\[dask\]'"):
        on_cluster(asked(), tmp_path / "x.parquet", "tcp://127.0.0.1:1")
    assert not list(tmp_path.iterdir())


# --- the folder -----------------------------------------------------------------------------------------


def test_parts_of_an_earlier_run_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "x.parquet"
    folder.mkdir()
    for number in range(3):
        (folder / f"part-{number:05d}.parquet").write_text("old")
    with cluster._folder(str(folder)) as unfinished:
        (unfinished / "part-00000.parquet").write_text("new")
        (unfinished / ".part-00001.parquet.half").write_text("of a worker that was killed")
        assert len(list(folder.iterdir())) == 3
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("part-00000.parquet", "new")]
    assert list(tmp_path.iterdir()) == [folder]


def test_what_came_during_the_run_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "x.parquet"
    folder.mkdir()
    with cluster._folder(str(folder)) as unfinished:
        (unfinished / "part-00000.parquet").write_text("new")
        (folder / "thesis.txt").write_text("mine")
    assert [file.name for file in folder.iterdir()] == ["part-00000.parquet"]
    assert [file.read_text() for file in tmp_path.glob(".x.parquet.*/*")] == ["mine"]


def test_a_failed_run_leaves_the_old_parts(tmp_path: Path) -> None:
    folder = tmp_path / "x.parquet"
    folder.mkdir()
    (folder / "part-00000.parquet").write_text("old")
    with pytest.raises(KeyboardInterrupt), cluster._folder(str(folder)) as unfinished:
        (unfinished / "part-00000.parquet").write_text("new")
        raise KeyboardInterrupt
    assert (folder / "part-00000.parquet").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_folders_of_somebody_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file.parquet").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    wrong = {
        "rows.csv": "is no folder of parts; write NAME.parquet or NAME/",
        "-": "is no folder of parts",
        f"{tmp_path}/file.parquet": "is a file, and a cluster writes a folder",
        f"{tmp_path}/mine/": "holds other files, such as 'thesis.txt'",
        f"{tmp_path}/a\0b.parquet": "cannot be written (embedded null byte)",
        f"{tmp_path}/none/x.parquet": "cannot be written (No such file or directory)",
    }
    for name, said in wrong.items():
        with pytest.raises(InputError) as caught:
            on_cluster(asked(), name, "tcp://127.0.0.1:1")
        assert len(caught.value.problems) == 1
        assert said in caught.value.problems[0]


# --- the command ----------------------------------------------------------------------------------------


def test_command(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, given, _, axes = QUESTION
    words = [f"--{name}={value}" for name, value in given.items() if name == "ranks"]
    words += ["-n", "4K", "-k", "8K", *(word for axis in axes for word in ("--vary", axis))]

    def code(*more: str) -> int:
        there = ["--cluster", client.scheduler.address, *more]
        monkeypatch.setattr(sys, "argv", ["mc2perf", "sweep", target, *words, *there])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(str(left.value.code))

    assert code("-o", f"{tmp_path}/x.parquet") == 0
    assert code("-o", f"{tmp_path}/x.parquet", "--format", "parquet") == 0, "once more"
    assert "4,000 rows in" in capsys.readouterr().err
    assert cells(parts_of(tmp_path / "x.parquet")) == local(asked(), tmp_path / "local.parquet")
    assert code("-o", f"{tmp_path}/x.csv", "--top", "3", "--columns", "m,tile_cnt") == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 4
    assert code() == 2
    assert code("-o", f"{tmp_path}/y.parquet", "--format", "csv") == 2
    assert "a cluster writes parquet, not csv" in capsys.readouterr().err
