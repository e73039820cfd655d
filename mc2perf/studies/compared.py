"""Runs beside their predictions, as they are told: rows, candidates for what is left over, tile scans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mc2perf.machine import Machine
from mc2perf.measured import TileScan
from mc2perf.model import Model
from mc2perf.problems import InputError
from mc2perf.scenario import Scenario
from mc2perf.studies.causes import Explanation, Pair, explanations, faster
from mc2perf.studies.compare import Gain, Line, Prediction, gain, lines, predict, with_rate
from mc2perf.studies.observed import Observed


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured run: its rows, what could explain the rest, how its files were reduced."""

    label: str
    schedule: str
    files: tuple[str, ...]
    seen: Observed
    told: Prediction
    lines: tuple[Line, ...]
    causes: tuple[Explanation, ...]
    notes: tuple[str, ...]

    @property
    def unexplained(self) -> float:
        """What asks for an explanation. [s]"""
        return Pair(self.seen, self.told).unexplained


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Tile counts of one operator: measured and predicted time of each [s], and what the best ones cost."""

    whose: str
    points: tuple[tuple[int, float, float], ...]
    causes: tuple[Explanation, ...]
    notes: tuple[str, ...]

    @property
    def best_measured(self) -> int:
        """The count with the least measured time."""
        return min(self.points, key=lambda point: point[1])[0]

    @property
    def best_predicted(self) -> int:
        """The count with the least predicted time."""
        return min(self.points, key=lambda point: point[2])[0]

    @property
    def regret(self) -> float:
        """Measured time at the predicted best count over the best measured time, less 1."""
        measured = {n: time for n, time, _ in self.points}
        return measured[self.best_predicted] / measured[self.best_measured] - 1.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that was compared."""

    target: str
    hardware: str
    resolved: dict[str, object]
    runs: tuple[Run, ...] = ()
    scans: tuple[Scan, ...] = ()
    gain: Gain | None = None
    notes: tuple[str, ...] = ()


def run_of(label: str, files: Sequence[str], seen: Observed, told: Prediction) -> Run:
    """A run beside its prediction.

    Parameters
    ----------
    label : str
        What the user calls it.
    files : sequence of str
        Where it was read from.
    seen, told : Observed, Prediction
        Both sides.
    """
    seen = with_rate(seen, told)
    pair = Pair(seen, told)
    return Run(
        label=label,
        schedule=told.row.schedule,
        files=tuple(files),
        seen=seen,
        told=told,
        lines=tuple(lines(seen, told)),
        causes=tuple(explanations(pair)),
        notes=(*seen.notes, *_notes(pair), *faster(pair)),
    )


def _notes(pair: Pair) -> Iterator[str]:
    """What sets both sides apart by definition."""
    if pair.fused and pair.in_parts:
        yield (
            "a profiler counts fused kernels as computing: their communication shows as longer computing, so "
            "compute and exposed are judged together"
        )
    scenario = pair.told.scenario
    if scenario.phase == "train" and pair.told.model is not None and scenario.global_batch_size is None:
        yield "the prediction holds layers alone: give --global-batch-size to compare a whole step"
    if math.isnan(pair.seen.compute):
        yield "no step_trace_time.csv: the residual cannot be told apart by computing, communication and free"
    if not math.isnan(pair.seen.hccl) or not math.isnan(pair.seen.communication):
        yield "communication is measured with waiting for other ranks; only 'transfer' is without"


def gain_of(runs: Sequence[Run]) -> Gain | None:
    """The last run over the first, if there are two or more."""
    if len(runs) < 2:
        return None
    first, last = runs[0], runs[-1]
    return gain((first.label, first.seen, first.told), (last.label, last.seen, last.told))


def scan_of(scan: TileScan, scenario: Scenario, machine: Machine, model: Model | None) -> Scan:
    """A scan over tile counts beside the model; one tile is the serial base line.

    Raises
    ------
    InputError
        Not one of the counts can be estimated.
    """
    points, notes, problems = [], [], []
    told: dict[int, Prediction] = {}
    for count, time in scan.medians().items():
        asked = replace(scenario, tile_cnt=float(count))
        try:
            told[count] = predict(asked, machine, model, "serial" if count == 1 else "mc2")
        except InputError as error:
            notes.append(f"{count} tiles: not predicted: {'; '.join(error.problems)}")
            problems += error.problems
            continue
        points.append((count, time, told[count].row.total_time))
    if not points:
        raise InputError(problems)
    best = min(points, key=lambda point: point[1])
    gained = next((time / best[1] for count, time, _ in points if count == 1), math.nan)
    pair = Pair(Observed(step=best[1], gain=gained), told[best[0]])
    return Scan(
        whose=scan.whose,
        points=tuple(points),
        causes=tuple(explanations(pair)),
        notes=(*notes, f"causes: of the time at {best[0]} tiles"),
    )
