"""The blocks of a sweep on a Dask cluster: every worker writes its parts of the rows as Parquet files.

A part is a range of consecutive blocks, and depends on nothing else: when a worker is lost, Dask gives its
parts to another one, which writes the very same files. A part takes its name when all of it is there, the
folder takes its name when all parts are there. The folder lies on a file system that all workers share.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from mc2perf.problems import InputError
from mc2perf.studies.run import Done, best_rows
from mc2perf.studies.sweep import BLOCK, Sweep
from mc2perf.table import Block, Column
from mc2perf.version import VERSION
from mc2perf.writers.tables import About, open_table

PART = 4_000_000
"""Rows of the grid in a part: seconds to minutes of work, so that files are few and a lost one is cheap."""

PARTS = "part-*.parquet"
"""Names of the files of a folder."""

PATIENCE = 5.0
"""How long the scheduler, and its first worker, may take to answer [s]."""

AHEAD = 2
"""Parts in flight for every thread: one in work, one at hand."""


Work = Callable[["Part"], Any]
"""What is done with a part; can be sent to a worker."""


class Part(NamedTuple):
    """Consecutive blocks: its number, the range of its tasks, its rows of the grid."""

    number: int
    first: int
    last: int
    rows: int


def run_on_cluster(
    sweep: Sweep,
    columns: Sequence[Column],
    about: About,
    folder: str,
    address: str,
    *,
    block: int = BLOCK,
    part: int = PART,
    done: Done = lambda rows: None,
) -> int:
    """Write the rows of a sweep into ``part-00000.parquet``, ... of a folder, in the order of a local run.

    Parameters
    ----------
    sweep : Sweep
        The question.
    columns : sequence of Column
        Columns in order.
    about : About
        What the files say beside the rows.
    folder : str
        ``NAME.parquet`` or ``NAME/``, where all workers reach it by the same path. Parts of an earlier run
        are replaced; a folder with anything else in it is refused.
    address : str
        The scheduler, such as ``tcp://10.0.0.1:8786``.
    block : int
        Rows of a block; the result does not depend on it.
    part : int
        Rows of the grid in a file, at least: a file ends with a block.
    done : callable
        Told of progress, in rows of the grid.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    InputError
        Dask is missing here, or this tool there; nobody answers; the folder cannot be written; a part
        took several workers with it. What was in the folder before is still there.

    Notes
    -----
    Workers with one thread each serve best: most of the work holds Python's lock. Certificates, if the
    cluster wants them, come from the configuration of Dask. Whoever reaches a scheduler of Dask can run
    code on its workers.

    Examples
    --------
    >>> from mc2perf.writers.tables import About
    >>> about = About(title="", inputs={}, profiles=(), dictionary=())
    >>> run_on_cluster(sweep=None, columns=(), about=about, folder="rows.csv", address="tcp://10.0.0.1:8786")
    Traceback (most recent call last):
    mc2perf.problems.InputError: output: 'rows.csv' is no folder of parts; write NAME.parquet or NAME/
    """
    with _folder(folder) as unfinished, _connected(address) as client:
        work = partial(_write, sweep, tuple(columns), about, str(unfinished), block)
        return sum(rows for _, rows in _results(client, work, _parts(sweep, block, part), done))


def best_on_cluster(
    sweep: Sweep,
    columns: Sequence[str],
    count: int,
    address: str,
    *,
    block: int = BLOCK,
    part: int = PART,
    done: Done = lambda rows: None,
) -> Block | None:
    """The best rows of a sweep by its metric, as :func:`run_on_cluster`; ties keep their order.

    Returns
    -------
    Block or None
        The columns named, at most ``count`` rows; None if conditions dropped every row.
    """
    names = tuple(dict.fromkeys((*columns, sweep.metric)))
    work = partial(_rank, sweep, names, count, block)
    with _connected(address) as client:
        found = dict(_results(client, work, _parts(sweep, block, part), done))
    ordered = (found[number] for number in sorted(found) if found[number] is not None)
    best = best_rows(ordered, count, sweep.metric)
    return None if best is None else {name: best[name] for name in columns}


# --- parts ----------------------------------------------------------------------------------------------


def _parts(sweep: Sweep, block: int, rows: int) -> Iterator[Part]:
    """Ranges of blocks of at least so many rows, the last one aside."""
    number = first = size = 0
    for last, task in enumerate(sweep.tasks(block), 1):
        size += sweep.rows_in(task)
        if size >= rows:
            yield Part(number, first, last, size)
            number, first, size = number + 1, last, 0
    if size:
        yield Part(number, first, last, size)


def _rows(sweep: Sweep, part: Part, columns: Sequence[str], block: int) -> Iterator[Block]:
    for task in islice(sweep.tasks(block), part.first, part.last):
        yield sweep.evaluate(task, columns)


def _write(sweep: Sweep, columns: Sequence[Column], about: About, folder: str, block: int, part: Part) -> int:
    """The rows of a part into its file; gives how many they are."""
    path = str(Path(folder) / f"part-{part.number:05d}.parquet")
    if not Path(folder).is_dir():
        said = f"output: a worker does not see '{Path(folder).parent}'; write where all share a file system"
        raise InputError([said])
    with open_table(path, columns, about) as table:
        for rows in _rows(sweep, part, [column.name for column in columns], block):
            table.add(rows)
    return table.rows


def _rank(sweep: Sweep, columns: Sequence[str], count: int, block: int, part: Part) -> Block | None:
    """The best rows of a part, if any is left."""
    return best_rows(_rows(sweep, part, columns, block), count, sweep.metric)


def _do(work: Work, part: Part, version: str) -> Any:
    """What a worker runs; it may have joined after the others were asked for their version."""
    if version != VERSION:
        raise InputError([f"cluster: a worker has mc2perf {VERSION}, not {version}; install the same one"])
    return work(part)


def _results(client: Any, work: Work, parts: Iterator[Part], done: Done) -> Iterator[tuple[int, Any]]:
    """Number and result of every part, as they come, with a bounded number in flight."""
    run, running = uuid4().hex, dict[str, Part]()
    # a task, not scattered data: if its last holder is lost, the scheduler can make it again
    shared = client.submit(_same, work, key=f"sweep-{run}")

    def started() -> Iterator[Any]:
        """Parts to keep the threads of the moment busy; one at least, in place of the one that is done."""
        room = AHEAD * sum(client.nthreads().values()) - len(running)
        for part in islice(parts, max(room, 1)):
            key = f"part-{part.number:05d}-{run}"
            running[key] = part
            yield client.submit(_do, shared, part, VERSION, key=key)

    distributed = _dask()
    with _explained(distributed):
        finished = distributed.as_completed(list(started()), loop=client.loop)
        for future in finished:
            result = future.result()
            part = running.pop(future.key)
            finished.update(list(started()))
            done(part.rows)
            yield part.number, result


def _same(work: Work) -> Work:
    return work


@contextmanager
def _explained(distributed: Any) -> Iterator[None]:
    """Say on one line what ends a run on a cluster."""
    try:
        yield
    except InputError as error:  # of a worker
        raise InputError(error.problems) from None
    except distributed.KilledWorker:
        said = "cluster: one part took several workers with it (out of memory?); nothing is written"
        raise InputError([said]) from None
    except (distributed.CancelledError, ImportError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise InputError([f"cluster: the run ended early ({why}); nothing is written"]) from None


# --- the cluster ----------------------------------------------------------------------------------------


def _dask() -> Any:
    try:
        return importlib.import_module("dask.distributed")
    except ImportError:
        said = "cluster: needs the package dask; pip install 'mc2perf[dask]', or use --jobs"
        raise InputError([said]) from None


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of a scheduler that has workers, all with this version of the tool."""
    distributed = _dask()
    try:
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop already, as in a notebook
            thread.submit(asyncio.run, _knock(distributed, address)).result()
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        said = f"cluster: no scheduler answers at '{address}' ({error}); write tcp://HOST:PORT"
        raise InputError([said]) from None
    with client:
        _check(client, address)
        yield client


async def _knock(distributed: Any, address: str) -> None:
    """Open and close a connection: a client that finds nobody leaves threads behind, this does not."""
    secrets = distributed.Security().get_connection_args("client")
    comm = await importlib.import_module("distributed.comm").connect(address, timeout=PATIENCE, **secrets)
    await comm.close()


def _check(client: Any, address: str) -> None:
    """Everybody there has this version; the scheduler reads the tasks too.

    The question is a function of the standard library, which arrives where this package is missing.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        said = f"cluster: '{address}' has no worker; start some with 'dask worker {address} --nthreads 1'"
        raise InputError([said]) from None
    question = "mc2perf.version:VERSION"
    versions = {"the scheduler": _of_scheduler(client, question)}
    answers = client.run(pkgutil.resolve_name, question, on_error="return")
    versions |= {f"worker {name}": answer for name, answer in answers.items()}
    problems = [
        f"cluster: {name} has {_version(answer)}; install mc2perf[dask] {VERSION} there"
        for name, answer in versions.items()
        if answer != VERSION
    ]
    if problems:
        raise InputError(problems)


def _of_scheduler(client: Any, question: str) -> object:
    try:
        return client.run_on_scheduler(pkgutil.resolve_name, question)
    except ImportError as error:
        return error


def _version(answer: object) -> str:
    return f"mc2perf {answer}" if isinstance(answer, str) else f"no mc2perf ({answer})"


# --- the folder -----------------------------------------------------------------------------------------


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """A folder of parts under a temporary name; takes its own at a clean exit, else the old one stays."""
    if not name.lower().endswith(("/", ".parquet")):
        raise InputError([f"output: '{name}' is no folder of parts; write NAME.parquet or NAME/"])
    try:
        with _replacing(_free(name)) as unfinished:
            yield unfinished
    except OSError as error:
        said = f"output: '{name}' cannot be written ({error.strerror or error})"
        raise InputError([said]) from None


def _free(name: str) -> Path:
    """Where the folder goes; anything but parts of an earlier run is somebody's."""
    try:
        folder = Path(name).resolve()
    except (RuntimeError, ValueError) as error:  # a ring of links, a zero byte
        raise OSError(str(error)) from None
    if folder.exists() and not folder.is_dir():
        raise InputError([f"output: '{name}' is a file, and a cluster writes a folder; write another name"])
    files = folder.iterdir() if folder.exists() else ()
    others = [path.name for path in files if not path.match(PARTS)]
    if others:
        raise InputError([f"output: '{name}' holds other files, such as '{min(others)}'; write another name"])
    return folder


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    unfinished, dropped, old = (folder.with_name(f".{folder.name}.{uuid4().hex[:8]}") for _ in range(3))
    unfinished.mkdir()
    try:
        yield unfinished
        for left in unfinished.glob(".*"):  # of workers that were killed
            left.unlink()
        if folder.exists():
            folder.replace(old)
        unfinished.replace(folder)
    finally:
        if old.exists() and not folder.exists():
            old.replace(folder)
        with suppress(FileNotFoundError):
            unfinished.replace(dropped)  # a worker that is still at it finds nowhere to write
            shutil.rmtree(dropped, ignore_errors=True)
        with suppress(OSError):  # something was put beside the old parts during the run: that stays
            for part in old.glob(PARTS):
                part.unlink()
            old.rmdir()
