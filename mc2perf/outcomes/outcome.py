"""One schedule laid over the rows of a study: what it takes for every count, or why it cannot run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf import schedules
from mc2perf.piece_counts import Counts, refused_at
from mc2perf.reasons import Reason
from mc2perf.schedules import Timing
from mc2perf.study import LaidLayer, Study
from mc2perf.units import Num

ONE = np.ones((1, 1))


class Traffic(NamedTuple):
    """Communication in one kind of parallel group, and what of it nothing covers. [s]"""

    comm: Num
    exposed: Num


@dataclass(frozen=True)
class WholeStep:
    """A training step: its slowest stage per NPU with the pipeline's idle time, traffic by group."""

    timing: Timing
    traffic: dict[str, Traffic]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One schedule: counts, what one piece holds, what it takes, which rows and counts are refused.

    ``note`` says why a schedule has nothing to do and equals serial; ``tried`` are the counts before
    those that no row can have were left out, none if the schedule has no number to choose. All pieces hold
    ``piece_rows`` but one, which may hold ``rest_rows`` and run first or last. ``tiles`` are the rows of
    tiles of any length, and ``why`` the rule that cut them.
    """

    schedule: str
    layers: tuple[LaidLayer, ...]
    pieces: Num = field(default_factory=lambda: ONE)
    piece_rows: Num = field(default_factory=lambda: ONE)
    rest_rows: Num | None = None
    rest_first: Num = 0.0
    refused: tuple[Reason, ...] = ()
    note: str = ""
    tried: Counts | None = None
    tiles: tuple[float, ...] = ()
    why: str = ""
    step: WholeStep | None = None

    @cached_property
    def timing(self) -> Timing:
        """What all layers take together, or the whole training step."""
        if self.step is not None:
            return self.step.timing
        return sum(self.passes, schedules.NOTHING)

    @property
    def passes(self) -> tuple[Timing, Timing]:
        """All layers forward, and backward."""
        there = sum((layer.there for layer in self.layers), schedules.NOTHING)
        return there, sum((layer.back for layer in self.layers), schedules.NOTHING)

    @property
    def traffic(self) -> dict[str, Traffic]:
        """Communication by parallel group, of a whole step or of all layers; {} where groups are mixed."""
        if self.step is not None:
            return self.step.traffic
        found: dict[str, Timing] = {}
        for layer in self.layers if self.schedule != "dual_batch" else ():
            for group, timing in (*layer.forward.items(), *layer.backward.items()):
                found[group] = found.get(group, schedules.NOTHING) + timing.times(layer.count)
        return {group: Traffic(t.comm, t.exposed) for group, t in found.items() if group}

    @property
    def refused_at(self) -> NDArray[np.bool_]:
        """Mask of the rows and counts that have no answer."""
        return refused_at(self.refused)


def refused_outcome(schedule: str, reason: str) -> Outcome:
    """A schedule that no row of the study can run."""
    return Outcome(schedule=schedule, layers=(), refused=(Reason(reason),))


def equal_to_serial(serial: Outcome, schedule: str, reason: str) -> Outcome:
    """A schedule that has nothing to do here."""
    return replace(serial, schedule=schedule, note=reason)


def serial_outcome(study: Study) -> Outcome:
    """Everything one after the other: the base line."""
    layers = study.laid(schedules.pair_serial)
    return Outcome(schedule="serial", layers=layers, piece_rows=study.rows, refused=study.reasons)
