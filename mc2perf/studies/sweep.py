"""A sweep: a grid of scenarios, block by block, filtered, ranked, the best of each group kept.

Named choices (and everything that is not a size) form *groups*; inside a group the sizes lie down as rows
and one number of pieces lies across. Rows come in this order: groups, then sizes, then pieces, each in the
order of its axes. A block is a range of the rows of one group, and depends on nothing else: neither the
size of blocks nor the number of processes changes a bit of the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.columns import HIGHER_IS_BETTER, dictionary
from mc2perf.conditions import Condition
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import OPERATORS
from mc2perf.problems import InputError
from mc2perf.scenario import PIECES, Scenario, columns_of, pieces_that_vary
from mc2perf.skew import Skew
from mc2perf.studies.rows import Plan, Rows, rows_of
from mc2perf.study import study_of
from mc2perf.table import Block, Column, Words, joined, merged, only

BLOCK = 65536
"""Rows of a block: large enough that NumPy's overhead vanishes, small enough that columns stay in cache."""

USUALLY_TRIED = 16
"""Counts of pieces tried in every row where none is asked for."""

Value = float | str | bool | Skew
Key = tuple[str, tuple[tuple[str, str], ...]]
"""A machine: the name of its profile, and what an axis overrides in it."""


class Task(NamedTuple):
    """A block of work: a group, and a range of its rows."""

    group: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The whole question of a sweep; can be sent to another process.

    ``axes`` map an input, or a dotted path of the profile, to its values; ``best_over`` names axes of which
    only the best row stays. ``machines`` and ``models`` hold whatever the axes name.
    """

    scenario: Scenario
    axes: Mapping[str, tuple[Value, ...]]
    machines: Mapping[Key, Machine]
    models: Mapping[str, Model]
    best_over: tuple[str, ...] = ()
    by: str = ""
    where: tuple[Condition, ...] = ()
    plan: Plan = field(default_factory=Plan)

    # --- axes: named choices, sizes, one number of pieces -------------------------------------------------

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Every target asked for."""
        return tuple(str(t) for t in self.axes.get("target", (self.scenario.target,)))

    @cached_property
    def _columns(self) -> list[str]:
        """Axes that every target takes as a column, outermost first."""
        numeric = [n for n, values in self.axes.items() if all(isinstance(v, float) for v in values)]
        return [name for name in numeric if all(name in columns_of(target) for target in self.targets)]

    @cached_property
    def pieces(self) -> str:
        """The axis that lies across, if any."""
        across = pieces_that_vary(self.scenario, self.axes)
        return next((name for name in reversed(self._columns) if name in across), "")

    @cached_property
    def sizes(self) -> list[str]:
        """Axes that lie down: those that stay, then those of which the best is kept."""
        across = pieces_that_vary(self.scenario, self.axes)
        down = [name for name in self._columns if name not in across]
        return sorted(down, key=lambda name: name in self.best_over)

    @cached_property
    def named(self) -> list[str]:
        """Axes whose values form groups: those that stay, then those of which the best is kept."""
        others = [name for name in self.axes if name not in self.sizes and name != self.pieces]
        return sorted(others, key=lambda name: name in self.best_over)

    def _count(self, names: Iterable[str]) -> int:
        return math.prod(len(self.axes[name]) for name in names)

    def _kept(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.best_over]

    @cached_property
    def groups(self) -> int:
        """Groups of rows that are kept apart."""
        return self._count(self._kept(self.named))

    @cached_property
    def outer(self) -> int:
        """Sizes of a group that are kept apart."""
        return self._count(self._kept(self.sizes))

    @cached_property
    def inner(self) -> int:
        """Sizes of which only the best is kept."""
        return self._count(self.sizes) // self.outer

    @cached_property
    def across(self) -> int:
        """Numbers of pieces."""
        return len(self.axes[self.pieces]) if self.pieces else 1

    @cached_property
    def rows_evaluated(self) -> int:
        """Rows of the whole grid."""
        return self._count(self.axes)

    @cached_property
    def metric(self) -> str:
        """What is best: as asked, else time, or tokens/s where the work itself varies."""
        same_work = {*PIECES, "schedule", "policy", "engine", "matmul_rule", "buffers"}
        varied = set(self.best_over) - same_work
        counted = all(target not in OPERATORS for target in self.targets)
        return self.by or ("tokens_per_second" if varied and counted else "total_time")

    # --- work -------------------------------------------------------------------------------------------

    def tasks(self, block: int = BLOCK) -> Iterator[Task]:
        """Blocks of about so many rows, in the order of the result."""
        tried = 1 if self.pieces else USUALLY_TRIED
        step = max(block // (self.inner * self.across * tried), 1)
        for group in range(self.groups):
            for first in range(0, self.outer, step):
                yield Task(group, first, min(first + step, self.outer))

    def rows_in(self, task: Task) -> int:
        """Rows of the grid that a task evaluates."""
        return (task.last - task.first) * self.rows_evaluated // (self.groups * self.outer)

    def evaluate(self, task: Task, columns: Sequence[str]) -> Block:
        """The rows of a block: priced, filtered, the best of each group."""
        best: tuple[NDArray[np.float64], Block] | None = None
        for chosen in self._choices(task.group):
            rows = self._rows(chosen, task)
            scores = self._scores(rows)
            at = self._best(scores)
            found = (scores if at is None else scores[at], rows.block(columns, at))
            rows.forget()
            if best is not None:
                better = found[0] < best[0]
                found = (np.minimum(found[0], best[0]), merged(best[1], found[1], better))
            best = found
        assert best is not None
        kept = best[0] < DROPPED
        return best[1] if kept.all() else only(best[1], kept)

    def contradictions(self) -> list[str]:
        """Problems of what does not vary that every row has: whatever varies, none is priced.

        Stops at the first row that has an answer, which is nearly always the first of all.
        """
        common: list[str] | None = None
        for task in self.tasks():
            for chosen in self._choices(task.group):
                scenario, machine, _ = self._asked(chosen, task)
                try:
                    study_of(scenario, machine, self.models.get(scenario.target))
                    return []
                except InputError as error:
                    found = error.problems
                    common = found if common is None else [problem for problem in common if problem in found]
                if not common:
                    return []
        return [problem for problem in common or () if problem.partition(":")[0] not in self.axes]

    def _choices(self, group: int) -> Iterator[dict[str, Value]]:
        """The named choices of a group, with every choice of those that are compared."""
        kept = self._kept(self.named)
        chosen = dict(zip(kept, _values(self.axes, kept, group), strict=True))
        compared = [name for name in self.named if name in self.best_over]
        for values in itertools.product(*(self.axes[name] for name in compared)):
            yield chosen | dict(zip(compared, values, strict=True))

    def _rows(self, chosen: Mapping[str, Value], task: Task) -> Rows:
        scenario, machine, paths = self._asked(chosen, task)
        shape = ((task.last - task.first) * self.inner, self.across)
        rows = rows_of(scenario, machine, self.models.get(scenario.target), shape, self.plan)
        rows.say(**paths)
        return rows

    def _asked(self, chosen: Mapping[str, Value], task: Task) -> tuple[Scenario, Machine, dict[str, str]]:
        """The question of a block, its machine, and what is overridden in that."""
        paths = {name: str(value) for name, value in chosen.items() if "." in name}
        given: dict[str, Any] = {
            n: None if value == "auto" else value for n, value in chosen.items() if n not in paths
        }
        given |= self._sizes(task)
        if self.pieces:
            given[self.pieces] = np.array([self.axes[self.pieces]], float)
        scenario = replace(self.scenario, **given)
        return scenario, self.machines[(scenario.hardware, tuple(paths.items()))], paths

    def _sizes(self, task: Task) -> dict[str, NDArray[np.float64]]:
        """The sizes of a block as columns, shape (rows, 1)."""
        index = np.arange(task.first * self.inner, task.last * self.inner)
        columns = {}
        for name in reversed(self.sizes):
            index, at = np.divmod(index, len(self.axes[name]))
            columns[name] = self._numbers[name][at].reshape(-1, 1)
        return columns

    @cached_property
    def _numbers(self) -> dict[str, NDArray[np.float64]]:
        """The values of the sizes, ready to be picked from."""
        return {name: np.array(self.axes[name], float) for name in self.sizes}

    # --- filtering and ranking --------------------------------------------------------------------------

    def _scores(self, rows: Rows) -> NDArray[np.float64]:
        """Flat scores, the smaller the better: rows without an answer come last, dropped ones after."""
        if not self.best_over:
            scores = np.zeros(math.prod(rows.shape))
        elif self.metric in rows.numbers:
            sign = -1.0 if self.metric in HIGHER_IS_BETTER else 1.0
            scores = sign * rows.flat(self.metric)
        else:
            scores = np.full(math.prod(rows.shape), np.nan)
        scores = np.where(np.isnan(scores), NO_ANSWER, scores)
        for condition in self.where:
            scores[~condition.holds(rows.block(condition.columns or ("target",)))] = DROPPED
        return scores

    def _best(self, scores: NDArray[np.float64]) -> NDArray[np.intp] | None:
        """Flat positions of the best row of each group, in order; None if nothing is compared."""
        across = bool(self.pieces) and self.pieces in self.best_over
        if self.inner == 1 and not across:
            return None
        grid = np.arange(len(scores)).reshape(-1, self.inner, self.across)
        many = self.inner * self.across if across else self.inner
        place = (grid if across else grid.transpose(0, 2, 1)).reshape(-1, many)
        first = np.argmin(scores[place], axis=1, keepdims=True)
        return np.take_along_axis(place, first, axis=1).ravel()


DROPPED = math.inf
"""Score of a row that a condition drops."""

NO_ANSWER = float(np.finfo(float).max)
"""Score of a row without an answer: it stays, with its reason, if its group has nothing better."""


def _values(axes: Mapping[str, tuple[Value, ...]], names: Sequence[str], index: int) -> list[Value]:
    """Values of the axes at a flat index, the first varying slowest."""
    found: list[Value] = []
    for name in reversed(names):
        index, at = divmod(index, len(axes[name]))
        found.append(axes[name][at])
    return found[::-1]


@dataclass
class Top:
    """The best rows of many blocks, by one number; ties keep their order."""

    count: int
    by: str
    rows: list[Block] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Take what may still be among the best."""
        self.rows = [self._best(joined([*self.rows, block]))]

    def _best(self, block: Block) -> Block:
        numbers = block[self.by]
        assert not isinstance(numbers, Words)
        keys = -numbers if self.by in HIGHER_IS_BETTER else numbers
        order = np.argsort(keys, kind="stable")[: self.count]
        return only(block, order)


def columns_for(sweep: Sweep) -> tuple[Column, ...]:
    """The column dictionary, and a column for every path of the profile that varies."""
    paths = [Column(name, "", "value of the hardware profile") for name in sweep.axes if "." in name]
    return (*dictionary(), *paths)
