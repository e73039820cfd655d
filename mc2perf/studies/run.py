"""Run the blocks of a sweep, here or in several processes, in order and without holding them."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice

from mc2perf.studies.sweep import BLOCK, Sweep, Task, Top
from mc2perf.table import Block, length

Done = Callable[[int], None]
"""Told how many rows of the grid were evaluated since it was last called."""


def blocks(
    sweep: Sweep, columns: Sequence[str], *, jobs: int = 1, block: int = BLOCK, done: Done = lambda rows: None
) -> Iterator[Block]:
    """The rows of a sweep, block by block.

    Parameters
    ----------
    sweep : Sweep
        The question.
    columns : sequence of str
        Names of the columns wanted.
    jobs : int
        Processes; the result does not depend on it.
    block : int
        Rows of a block; the result does not depend on it either.
    done : callable
        Told of progress, in rows of the grid.

    Yields
    ------
    Block
        At most a few blocks exist at a time.
    """
    if jobs <= 1:
        for task in sweep.tasks(block):
            rows = sweep.evaluate(task, columns)
            done(sweep.rows_in(task))
            yield rows
        return
    yield from _in_processes(sweep, columns, jobs, block, done)


def _in_processes(sweep: Sweep, columns: Sequence[str], jobs: int, block: int, done: Done) -> Iterator[Block]:
    tasks = sweep.tasks(block)
    waiting: deque[tuple[Task, Future[Block]]] = deque()
    with ProcessPoolExecutor(jobs, initializer=_prepare, initargs=(sweep, tuple(columns))) as pool:
        try:
            # a few blocks ahead keep every process busy, and memory bounded
            waiting.extend((task, pool.submit(_evaluate, task)) for task in islice(tasks, 2 * jobs))
            while waiting:
                task, result = waiting.popleft()
                rows = result.result()
                waiting.extend(
                    (next_task, pool.submit(_evaluate, next_task)) for next_task in islice(tasks, 1)
                )
                done(sweep.rows_in(task))
                yield rows
        finally:
            # blocks under way are short; killing a process in the middle of its answer could hang the pool
            pool.shutdown(wait=False, cancel_futures=True)


_work: list[tuple[Sweep, tuple[str, ...]]] = []
"""What this process works on; sent once, not with every task."""


def _prepare(sweep: Sweep, columns: tuple[str, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the run
    _work[:] = [(sweep, columns)]


def _evaluate(task: Task) -> Block:
    sweep, columns = _work[0]
    return sweep.evaluate(task, columns)


def best_rows(parts: Iterator[Block], count: int, by: str) -> Block | None:
    """The best rows of all blocks; rows without an answer come last."""
    top = Top(count, by)
    for part in parts:
        if length(part):
            top.add(part)
    return top.rows[0] if top.rows else None
