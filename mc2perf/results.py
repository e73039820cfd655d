"""What people read of a schedule: the words of results, row by row, each worked out when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from mc2perf.answer import ROUNDING
from mc2perf.equations import overlap
from mc2perf.equations.training import flops_utilisation
from mc2perf.outcomes.best import Numbers
from mc2perf.outcomes.outcome import Outcome
from mc2perf.study import Study
from mc2perf.units import Num

BOUNDS = ("compute", "memory", "comm", "latency", "host")
"""What a time may hang on: computing or moving, sending or waiting for the first byte, issuing."""


class Results(Mapping[str, Numbers]):
    """What people read of a schedule, each number worked out when it is asked for.

    Parameters
    ----------
    study : Study
        The rows.
    outcome : Outcome
        A schedule laid over them; host time runs beside its device time.
    base : Results, optional
        Those of serial, the base line; without it the schedule is its own.
    """

    def __init__(self, study: Study, outcome: Outcome, base: Results | None) -> None:
        t = self.timing = outcome.timing
        self.study, self.outcome, self.base = study, outcome, base
        waits = 0.0 if outcome.step else study.issued(*outcome.passes) - t.total
        self.free = waits + t.idle
        self.total = np.asarray(overlap.total_time(t.busy, t.exposed, self.free))
        self.serial = self.total if base is None else base.total

    @cached_property
    def compute(self) -> Num:
        """Stand-alone computation; the same sum in another order is not a stretch."""
        t = self.timing
        return np.where(np.abs(t.busy - t.compute) <= ROUNDING * t.busy, t.busy, t.compute)

    @cached_property
    def ceiling(self) -> Numbers:
        """Serial time over the longer engine's sum, uncut."""
        if self.base is not None:
            return self.base.ceiling
        longer = np.maximum(self.timing.comm, self.timing.compute)
        return np.where(longer > 0.0, ratio(self.total, longer), 1.0)

    @cached_property
    def bound(self) -> Numbers:
        """Index into ``BOUNDS``: host, or the longer engine and what is slow in it."""
        t = self.timing
        bound = np.where(t.memory > 0.5 * t.compute, 1.0, 0.0)
        sending = np.greater(t.comm, t.compute)
        if np.any(sending):
            bound = np.where(sending, np.where(self.study.latency > 0.5 * t.comm, 3.0, 2.0), bound)
        host = t.launches * self.study.host_per_launch
        return np.where((host >= t.total) & (self.total > 0.0), 4.0, bound)

    @cached_property
    def mfu(self) -> Num:
        """Model FLOPs over what the NPUs could do at their cube's peak; not-a-number for operators."""
        study = self.study
        if study.model is None:
            return np.nan
        peak = study.costs.machine.cube.peak[study.scenario.cube_dtype]
        flops = study.model_flops * study.counted_tokens
        return flops_utilisation(flops, self.total, peak, 1.0)

    def __getitem__(self, name: str) -> Numbers:
        return np.asarray(DEFINITIONS[name](self))

    def __iter__(self) -> Iterator[str]:
        return iter(DEFINITIONS)

    def __len__(self) -> int:
        return len(DEFINITIONS)


DEFINITIONS: dict[str, Callable[[Results], Num]] = {
    "pieces": lambda r: r.outcome.pieces,
    "imbalance": lambda r: r.study.imbalance,
    "hottest_expert": lambda r: r.study.hottest_expert,
    "piece_rows": lambda r: r.outcome.piece_rows,
    "rest_rows": lambda r: _of_the_rest(r.outcome, "rest_rows"),
    "rest_first": lambda r: _of_the_rest(r.outcome, "rest_first"),
    "total_time": lambda r: r.total,
    "serial_time": lambda r: r.serial,
    "compute_time": lambda r: r.compute,
    "comm_time": lambda r: r.timing.comm,
    "compute_stretch": lambda r: r.timing.busy - r.compute,
    "exposed_comm_time": lambda r: r.timing.exposed,
    "free_time": lambda r: r.free,
    "host_time": lambda r: r.timing.launches * r.study.host_per_launch,
    "comm_ratio": lambda r: ratio(r.timing.exposed, r.total),
    "hidden_ratio": lambda r: np.where(
        np.greater(r.timing.comm, 0.0), 1.0 - ratio(r.timing.exposed, r.timing.comm), 0.0
    ),
    "overlap_efficiency": lambda r: ratio(r.serial - r.total, np.minimum(r.timing.comm, r.compute)),
    "speedup": lambda r: ratio(r.serial, r.total),
    "ceiling": lambda r: r.ceiling,
    "tokens_per_second": lambda r: ratio(r.study.counted_tokens, r.total),
    "mfu": lambda r: r.mfu,
    "time_per_output_token": lambda r: (
        r.total / r.study.step_tokens if r.study.scenario.phase == "decode" else np.nan
    ),
    "time_to_first_token": lambda r: (
        r.total if r.study.scenario.phase == "prefill" and r.study.model is not None else np.nan
    ),
    "bubble_share": lambda r: ratio(r.timing.idle, r.total),
    "bound": lambda r: r.bound,
}
"""The words of results: what each of them is, row by row."""


def _of_the_rest(outcome: Outcome, name: str) -> Numbers:
    """What is true of the one piece of another length; not-a-number where all are equal."""
    if outcome.rest_rows is None:
        return np.full((1, 1), np.nan)
    return np.where(np.not_equal(outcome.rest_rows, outcome.piece_rows), getattr(outcome, name), np.nan)


def ratio(above: Num, below: Num) -> Numbers:
    """A quotient; 0 where there is nothing to divide by."""
    above, below = np.asarray(above), np.asarray(below)
    zero = np.zeros(np.broadcast_shapes(above.shape, below.shape))
    return np.divide(above, below, out=zero, where=below > 0.0)
