"""Prediction beside measurement: the field's rows, what is left over, and what could explain it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mc2perf import evaluate
from mc2perf.answer import Answer, Row
from mc2perf.equations import claims
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.problems import InputError
from mc2perf.scenario import Scenario
from mc2perf.studies.observed import Observed
from mc2perf.study import Study, study_of
from mc2perf.workload.parts import ExpertPath, Pair, Part, Slices, all_segments

SCHEDULE_OF = {"alltoall": "serial"}
"""Words for a run that are not names of schedules."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One schedule of an answer in the profiler's words [s], and what prices its variants."""

    scenario: Scenario
    machine: Machine
    model: Model | None
    study: Study
    answer: Answer
    row: Row
    serial: Row
    gmm: float

    @property
    def fused(self) -> bool:
        """Whether kernels hold communication, which a profiler counts as computing."""
        return self.row.schedule == "mc2" and not self.row.reason

    @property
    def bubble(self) -> float:
        """Waiting for other pipeline stages."""
        return self.row.bubble_share * self.row.total_time

    def priced(self, machine: Machine | None = None, **changes: object) -> Row | None:
        """The same schedule under other inputs or on another machine; none where they contradict."""
        scenario = replace(self.scenario, **changes)  # type: ignore[arg-type]
        try:
            rows = evaluate.estimate(scenario, machine or self.machine, self.model).rows
        except InputError:
            return None
        row = rows[-1]
        return row if row.legal else None


def predict(scenario: Scenario, machine: Machine, model: Model | None, schedule: str) -> Prediction:
    """Estimate the schedule that was run.

    Raises
    ------
    InputError
        Contradictions, or a schedule that is refused here.
    """
    asked = replace(scenario, schedule=schedule)
    answer = evaluate.estimate(asked, machine, model)
    row = answer.rows[-1]
    if not row.legal:
        raise InputError([f"{schedule}: is refused: {row.reason}"])
    study = study_of(asked, machine, model)
    return Prediction(
        scenario=asked, machine=machine, model=model, study=study, answer=answer, row=row,
        serial=answer.rows[0], gmm=grouped_time(study),
    )  # fmt: skip


def grouped_time(study: Study) -> float:
    """Stand-alone time of the expert matmuls of an NPU, forward and backward; 0 without experts. [s]"""
    total = sum(layer.count * _expert_matmuls((*layer.forward, *layer.backward)) for layer in study.layers)
    return total * _passes(study)


def _expert_matmuls(parts: tuple[Part, ...]) -> float:
    """Of one layer with a gate or of a grouped operator; dense layers have none."""
    grouped = [part for part in parts if isinstance(part, Pair) and part.experts]
    if not any(isinstance(part, ExpertPath | Slices) for part in parts):
        return sum(_compute(part, "") for part in grouped)
    return sum(_compute(part, "ffn") for part in parts)


def _compute(part: Part, starts: str) -> float:
    times = (
        s.cost.time
        for s in all_segments(part)
        if s.engine == "compute" and s.name.startswith(starts) and not s.name.endswith("added")
    )
    return math.fsum(np.asarray(time).item() for time in times)


def _passes(study: Study) -> float:
    """How often a layer of the model runs on one NPU: micro-batches of a step over pipeline stages."""
    step = study.scenario.global_batch_size
    if step is None or study.layout is None:
        return 1.0
    samples = float(np.asarray(study.samples).item())
    return step / (study.layout.dp * samples) / study.layout.pp


# --- rows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the template; not-a-number where a side does not say."""

    name: str
    unit: str
    measured: float
    predicted: float
    meaning: str

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else math.nan

    @property
    def residual(self) -> float:
        """Measured less predicted."""
        return self.measured - self.predicted


LOGGED = "step (log)"
BUSY = "compute + exposed"
IF_MEASURED = (LOGGED, "bubble", "GMM", "MC2 kernels", "HCCL", "transfer", "tokens/s/NPU")
"""Rows that need a measurement; the others say what is predicted anyway."""

Pick = Callable[[Observed], float]
Told = Callable[[Prediction], float]

TEMPLATE: tuple[tuple[str, str, Pick, Told, str], ...] = (
    ("step", "s", lambda o: o.step, lambda p: p.row.total_time, "computing + exposed + free"),
    (LOGGED, "s", lambda o: o.steady_step, lambda p: p.row.total_time, "of the training log"),
    ("compute", "s", lambda o: o.compute, lambda p: p.row.compute_time + p.row.compute_stretch,
     "busy computation"),
    ("communication", "s", lambda o: o.communication, lambda p: p.row.comm_time,
     "measured with waiting, predicted without"),
    ("exposed", "s", lambda o: o.exposed, lambda p: p.row.exposed_comm_time + p.bubble,
     "communication that nothing covers, receive waits of a pipeline included"),
    (BUSY, "s", lambda o: o.compute + o.exposed,
     lambda p: p.row.total_time - p.row.free_time + p.bubble if p.fused else math.nan,
     "together, as fused kernels hold communication"),
    ("overlapped", "s", lambda o: o.overlapped, lambda p: p.row.comm_time - p.row.exposed_comm_time,
     "communication beside computation"),
    ("free", "s", lambda o: o.free, lambda p: p.row.free_time - p.bubble, "neither runs"),
    ("bubble", "s", lambda o: o.bubble, lambda p: p.bubble, "receive waits of a pipeline"),
    ("host", "s", lambda o: math.nan, lambda p: p.row.host_time, "what issuing every kernel takes"),
    ("GMM", "s", lambda o: o.gmm, lambda p: math.nan if p.fused else p.gmm or math.nan,
     "grouped matmuls of the experts, outside fused kernels"),
    ("MC2 kernels", "s", lambda o: o.fused or math.nan, lambda p: math.nan,
     "fused kernels, communication inside them included"),
    ("HCCL", "s", lambda o: o.hccl, lambda p: p.row.comm_time, "operations as elapsed, with waiting"),
    ("transfer", "s", lambda o: o.transfer, lambda p: p.row.comm_time, "operations as transit"),
    ("comm_ratio", "1", lambda o: o.exposed / o.step, lambda p: (p.row.exposed_comm_time + p.bubble)
     / p.row.total_time, "exposed over step"),
    ("tokens/s/NPU", "1/s", lambda o: o.tokens_per_second, lambda p: p.row.tokens_per_second or math.nan,
     "of one NPU"),
)  # fmt: skip
"""Name, unit, measured, predicted, meaning."""


def lines(seen: Observed, told: Prediction) -> Iterator[Line]:
    """Rows of which at least one side says something, the other may be empty."""
    for name, unit, pick, tell, meaning in TEMPLATE:
        line = Line(name=name, unit=unit, measured=pick(seen), predicted=tell(told), meaning=meaning)
        if name == LOGGED and seen.steady_step == seen.step:
            continue  # there is no trace beside the log
        if name == BUSY and not told.fused:
            continue
        if not math.isnan(line.measured) or (name not in IF_MEASURED and not math.isnan(line.predicted)):
            yield line


def with_rate(seen: Observed, told: Prediction) -> Observed:
    """Tokens of one NPU: of all ranks as logged, else of the prediction over the measured step."""
    npus = told.answer.resolved.get("npus")
    if not math.isnan(seen.tokens_per_second) and isinstance(npus, float):
        return replace(seen, tokens_per_second=seen.tokens_per_second / npus)
    step = seen.step if math.isnan(seen.steady_step) else seen.steady_step
    tokens = told.row.tokens_per_second * told.row.total_time
    return replace(seen, tokens_per_second=tokens / step if tokens else math.nan)


# --- two runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One run over another, measured and predicted, and what their communication shares imply."""

    before: str
    after: str
    measured: float
    predicted: float
    share_speedup: float
    ceiling: float
    unexplained: float


def gain(before: tuple[str, Observed, Prediction], after: tuple[str, Observed, Prediction]) -> Gain:
    """What the second run gains over the first."""
    (name, seen, told), (other, new, newly) = before, after
    measured = _whole(seen) / _whole(new)
    share, share_after = seen.exposed / seen.step, new.exposed / new.step
    return Gain(
        before=name,
        after=other,
        measured=measured,
        predicted=told.row.total_time / newly.row.total_time,
        share_speedup=float(claims.share_speedup(share, share_after)),
        ceiling=float(claims.overlap_ceiling(share, 1.0 - share)),
        unexplained=float(claims.unexplained_speedup(measured, share, share_after)),
    )


def _whole(seen: Observed) -> float:
    """A step without the profiler where a log says so."""
    return seen.step if math.isnan(seen.steady_step) else seen.steady_step
