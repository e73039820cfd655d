"""What users measured: benchmark tables, profiler exports, training logs, launch scripts, all in SI.

Each kind of file is one frozen dataclass whose ``takes`` says in a few lines what a model may use of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from mc2perf.measured.benchmarks import (
    CollectiveTime,
    CollectiveTimes,
    KernelTime,
    KernelTimes,
    TileScan,
    TileTimes,
    bus_factor,
)
from mc2perf.measured.profiler import (
    CommGroup,
    CommGroups,
    CommOp,
    CommOps,
    ExpertLoad,
    Kernel,
    KernelTotal,
    KernelTotals,
    LinkUse,
    LinkUses,
    StepTime,
    StepTrace,
    Traffic,
)
from mc2perf.measured.training import WARM_UP, Iteration, Launch, TrainingLog, TrainingRun

__all__ = [
    "WARM_UP",
    "CollectiveTime",
    "CollectiveTimes",
    "CommGroup",
    "CommGroups",
    "CommOp",
    "CommOps",
    "ExpertLoad",
    "Iteration",
    "Kernel",
    "KernelTime",
    "KernelTimes",
    "KernelTotal",
    "KernelTotals",
    "Launch",
    "LinkUse",
    "LinkUses",
    "Measured",
    "Report",
    "SetAside",
    "StepTime",
    "StepTrace",
    "Takes",
    "TileScan",
    "TileTimes",
    "Traffic",
    "TrainingLog",
    "TrainingRun",
    "bus_factor",
]


class Takes(Protocol):
    """Anything that was measured."""

    def takes(self) -> Iterator[str]:
        """Say line by line what may be used."""


@dataclass(frozen=True)
class SetAside:
    """Rows that were not taken: why, how many, and where the first stands."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True)
class Report:
    """What a reader took, what it set aside, and what the user should know."""

    read: int
    what: str
    set_aside: tuple[SetAside, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One file: its name, its format, what it holds, and the report of the reader."""

    name: str
    format: str
    data: Takes
    report: Report
