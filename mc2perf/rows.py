"""A schedule laid over the rows of a study: what it takes for every count, or why it cannot run.

Each schedule becomes an :class:`Outcome`; :class:`Results` are the numbers people read of it. All of
them are arrays that broadcast to (rows, counts); a single estimate is a study of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf import cutting, legality, schedules
from mc2perf.equations import overlap
from mc2perf.equations.training import flops_utilisation
from mc2perf.operators import OPERATORS
from mc2perf.problems import InputError
from mc2perf.reasons import Reason, said
from mc2perf.scenario import COC_PARTS
from mc2perf.schedules import Timing
from mc2perf.study import GROUPS, Counts, LaidLayer, Study, by_group, refused_at, tile_counts
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, Pair, Part

MOST_MICRO_BATCHES = 64
"""More micro-batches than this are never tried on their own; any number may be asked for."""

ROUNDING = 1e-12
"""Sums of the same times in another order differ by less than this share."""

FLAT = 0.02
"""Counts whose time is within this share of the best are reported as equally good."""

BOUNDS = ("compute", "memory", "comm", "latency", "host")
"""What a time may hang on: computing or moving, sending or waiting for the first byte, issuing."""

ONE = np.ones((1, 1))

Numbers = NDArray[np.floating[Any]]


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
    those that no row can have were left out, none if the schedule has no number to choose. ``tiles`` are
    the rows of unequal tiles, and ``why`` the rule that cut them.
    """

    schedule: str
    layers: tuple[LaidLayer, ...]
    pieces: Num = field(default_factory=lambda: ONE)
    piece_rows: Num = field(default_factory=lambda: ONE)
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
    def refused_at(self) -> NDArray[np.bool_]:
        """Mask of the rows and counts that have no answer."""
        return refused_at(self.refused)


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
        peak = study.costs.machine.cube.peak[study.scenario.dtype]
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
    "bubble_share": lambda r: ratio(r.timing.idle, r.total),
    "bound": lambda r: r.bound,
}
"""The words of results: what each of them is, row by row."""


def ratio(above: Num, below: Num) -> Numbers:
    """A quotient; 0 where there is nothing to divide by."""
    above, below = np.asarray(above), np.asarray(below)
    zero = np.zeros(np.broadcast_shapes(above.shape, below.shape))
    return np.divide(above, below, out=zero, where=below > 0.0)


def _refused(schedule: str, reason: str) -> Outcome:
    return Outcome(schedule=schedule, layers=(), refused=(Reason(reason),))


def _equal_to_serial(serial: Outcome, schedule: str, reason: str) -> Outcome:
    return replace(serial, schedule=schedule, note=reason)


def serial_outcome(study: Study) -> Outcome:
    """Everything one after the other: the base line."""
    layers = study.laid(schedules.pair_serial)
    return Outcome(schedule="serial", layers=layers, piece_rows=study.rows, refused=study.reasons)


def _micro_batch(study: Study, serial: Outcome) -> Outcome:
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not paths:
        return _equal_or_refused(study, serial, "micro_batch", "no all-to-all between ranks to hide")
    counts = micro_batch_counts(study)
    return Outcome(
        schedule="micro_batch",
        layers=in_micro_batches(study, counts.pieces),
        pieces=counts.pieces,
        piece_rows=study.rows / counts.pieces,
        refused=(*study.reasons, *counts.refused),
        tried=counts,
    )


def micro_batch_counts(study: Study) -> Counts:
    """Numbers of micro-batches: what was asked, else 1, 2, ... as long as there are tokens."""
    if study.asked_micro_batches is not None:
        asked = np.asarray(study.asked_micro_batches)
        return Counts(asked, _whole_tokens(study, asked), asked=True)
    most = min(MOST_MICRO_BATCHES, float(np.max(study.tokens)))
    counts = np.arange(1.0, most + 1.0).reshape(1, -1)
    return Counts(counts, _whole_tokens(study, counts))


def _whole_tokens(study: Study, counts: Numbers) -> tuple[Reason, ...]:
    return (Reason("more micro-batches than tokens", counts > study.tokens),)


def in_micro_batches(study: Study, counts: Num) -> tuple[LaidLayer, ...]:
    """All layers with their expert paths cut into micro-batches, everything else serial."""

    def price(part: Part) -> Timing:
        if isinstance(part, ExpertPath):
            return schedules.experts_micro_batch(part, counts, study.conditions(part))
        return schedules.pair_serial(part)

    return study.laid(price)


def _equal_or_refused(study: Study, serial: Outcome, schedule: str, reason: str) -> Outcome:
    """A schedule without work to do: equal to serial, or refused for an operator it is not made for."""
    operator = study.scenario.target in OPERATORS
    if operator and schedule in ("micro_batch", "dual_batch"):
        return _refused(schedule, f"{schedule} lays over whole MoE layers; ask for moe_layer or a model")
    return _equal_to_serial(serial, schedule, reason)


def _dual_batch(study: Study, serial: Outcome) -> Outcome:
    parts = [*study.of_kind(ExpertPath), *study.of_kind(Pair)]
    if not parts or study.scenario.target in OPERATORS:
        return _equal_or_refused(study, serial, "dual_batch", "no communication between ranks to hide")
    training = study.model is not None and study.scenario.phase == "train"
    reasons = study.reasons
    if not training and study.model is not None:
        alone = "needs two samples to overlap; raise batch_size to 2"
        reasons = (*reasons, Reason(alone, np.less(study.samples, 2.0)))
    worst = max(parts, key=lambda part: part.ranks)
    on, share = study.conditions(worst), 1.0 if training else 2.0

    def turn(parts: tuple[Part, ...], ends: bool) -> dict[str, Timing]:
        if ends or not parts:
            return by_group(parts, schedules.pair_serial)
        return {GROUPS[type(worst)]: schedules.dual_batch(parts, share, on)}

    layers = tuple(
        LaidLayer(layer.count, turn(layer.forward, layer.ends), turn(layer.backward, layer.ends))
        for layer in study.layers
    )
    return Outcome(
        schedule="dual_batch",
        layers=layers,
        pieces=2.0 * ONE,
        piece_rows=study.rows / share,
        refused=reasons,
    )


def _mc2(study: Study, serial: Outcome) -> Outcome:
    """Fused operators wherever they are legal; the tile count or the local experts decide the pieces."""
    pairs: list[Pair] = study.of_kind(Pair)
    every: list[ExpertPath] = study.of_kind(ExpertPath)
    paths = [path for path in every if path.fuses]
    if not pairs and not paths:
        alone = (
            "no operator fuses this dispatch" if every else "nothing to communicate: one rank in every group"
        )
        return _equal_to_serial(serial, "mc2", alone)
    if study.verdict.refusal:
        return _refused("mc2", study.verdict.refusal)
    if study.verdict.serial:
        return _equal_to_serial(serial, "mc2", study.verdict.fallback)
    if not pairs and all(path.experts_per_rank == 1 for path in paths) and not _shared(paths):
        return _equal_to_serial(serial, "mc2", "one local expert: one piece, equals serial")
    if study.scenario.target in OPERATORS:
        return _fused_operator(study, pairs[0])
    return _fused_model(study, paths)


def _illegal_rows(study: Study) -> tuple[Reason, ...]:
    """Rows that the rules of the fused operators refuse."""
    return tuple(Reason(said.text, said.where) for said in study.verdict.refused)


def _shared(paths: list[ExpertPath]) -> bool:
    return any(path.build(1.0, False).beside for path in paths)


def _fused_operator(study: Study, pair: Pair) -> Outcome:
    tried = tile_counts(study, pair)
    if study.scenario.policy in cutting.CUTS and not tried.asked and not pair.experts:
        return _fused_in_tiles(study, pair)
    counts = cutting.counts_to_price(study, pair, tried)
    return Outcome(
        schedule="mc2",
        layers=_one_part(_at_counts(study, pair, counts.pieces)),
        pieces=counts.pieces,
        piece_rows=pair.rows / counts.pieces,
        refused=(*study.reasons, *_illegal_rows(study), *counts.refused),
        tried=tried,
    )


def _at_counts(study: Study, pair: Pair, counts: Num) -> Timing:
    """A fused pair for every count; count by count where its experts differ in load."""
    on = study.conditions(pair)
    if not pair.loads:
        return schedules.pair_mc2(pair, counts, on)
    # counts that do not divide the experts are refused: any answer will do
    whole = np.gcd(np.asarray(counts, int), len(pair.loads))
    each = {count: schedules.pair_by_expert(pair, count, on) for count in np.unique(whole).tolist()}
    at = np.searchsorted(np.array(list(each)), whole)
    columns = zip(*each.values(), strict=True)
    return Timing(*(_picked(values, at) for values in columns))


def _picked(values: Sequence[Num], at: NDArray[np.intp]) -> Num:
    """Of values that are columns of rows, one for each count."""
    stacked = np.concatenate(np.broadcast_arrays(*map(np.atleast_2d, values)), axis=-1)
    rows = np.broadcast_to(at, (max(len(stacked), len(at)), at.shape[-1]))
    taken: Num = np.take_along_axis(np.broadcast_to(stacked, (len(rows), stacked.shape[-1])), rows, axis=-1)
    return taken


def _one_part(timing: Timing) -> tuple[LaidLayer, ...]:
    """An operator: one layer of one part."""
    return (LaidLayer(1.0, {"tp": timing}, {}),)


def _fused_in_tiles(study: Study, pair: Pair) -> Outcome:
    """A fused operator in tiles that may differ in length; the study has one row."""
    try:
        cut = cutting.CUTS[study.scenario.policy](study, pair)
    except InputError as error:
        return _refused("mc2", "; ".join(error.problems))
    refused = cutting.refused_tiles(study, pair, cut.tiles)
    timing, _ = cutting.priced(study, pair, cut.tiles)
    return Outcome(
        schedule="mc2",
        layers=_one_part(timing),
        pieces=len(cut.tiles) * ONE,
        piece_rows=max(cut.tiles) * ONE,
        refused=(*study.reasons, *((refused,) if refused else ())),
        tiles=cut.tiles,
        why=cut.why,
    )


def _fused_model(study: Study, paths: list[ExpertPath]) -> Outcome:
    most: Num = ONE

    def price(part: Part) -> Timing:
        nonlocal most
        if isinstance(part, ExpertPath) and part.fuses:
            return schedules.experts_mc2(part, study.conditions(part))
        if isinstance(part, Pair):
            timing, chosen = best_tiles(study, part)
            most = np.maximum(most, chosen)
            return timing
        return schedules.pair_serial(part)

    layers = study.laid(price)
    pieces = float(paths[0].experts_per_rank) * ONE if paths else most
    return Outcome(
        schedule="mc2",
        layers=layers,
        pieces=pieces,
        piece_rows=study.rows / pieces,
        refused=(*study.reasons, *_illegal_rows(study)),
    )


def best_tiles(study: Study, pair: Pair) -> tuple[Timing, Numbers]:
    """A fused pair at its best tile count, row by row."""
    counts = cutting.counts_to_price(study, pair, tile_counts(study, pair))
    timing = schedules.pair_mc2(pair, counts.pieces, study.conditions(pair))
    best = best_count(np.asarray(timing.total), refused_at(counts.refused))
    return Timing(*(at_count(value, best) for value in timing)), at_count(counts.pieces, best)


def best_count(time: Numbers, refused: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Index of the smallest time that is not refused, shape (rows, 1); the first of equals."""
    best: NDArray[np.intp] = np.argmin(np.where(refused, np.inf, time), axis=-1, keepdims=True)
    return best


def at_count(values: Num, index: NDArray[np.intp]) -> Numbers:
    """Values of shape (rows or 1, counts or 1) at one count of each row, shape (rows, 1)."""
    values = np.asarray(values)
    if values.ndim < 2 or values.shape[-1] == 1:
        return values
    rows = np.broadcast_to(values, (len(index), values.shape[-1]))
    taken: Numbers = np.take_along_axis(rows, index, axis=-1)
    return taken


def _coc(study: Study, serial: Outcome) -> Outcome:
    pairs: list[Pair] = study.of_kind(Pair)
    if study.model is not None and not pairs:
        return _equal_to_serial(serial, "coc", "CoC cuts tensor-parallel matmuls; tp is 1")
    target = study.scenario.target
    name = target if study.model is None else "all_gather_matmul"
    if study.costs.machine.family in ("gpu", "950"):
        return _refused("coc", f"CoC is not offered on {study.costs.machine.family}")
    refusal = legality.coc_refusal(name)
    if refusal or not pairs:
        return _refused("coc", refusal or "nothing to communicate: one rank")
    counts = _coc_counts(study, pairs[0].rows)

    def price(part: Part) -> Timing:
        if isinstance(part, Pair):
            return schedules.pair_parts(part, counts.pieces, study.conditions(part))
        return schedules.pair_serial(part)

    return Outcome(
        schedule="coc",
        layers=study.laid(price),
        pieces=counts.pieces,
        piece_rows=pairs[0].rows / counts.pieces,
        refused=(*study.reasons, *counts.refused),
        tried=counts,
    )


def _coc_counts(study: Study, rows: Num) -> Counts:
    """1, 2, 4 or 8 parts of equal rows, or the number asked for."""
    asked = study.scenario.tile_cnt if study.model is None else None
    odd = Reason(f"CoC needs rows divisible by 2, 4 or 8; m is {said(rows)}", np.asarray(rows) % 2 != 0)
    if asked is not None:
        wrong = Reason(f"CoC cuts into 1, 2, 4 or 8 parts, not {said(asked)}", ~np.isin(asked, COC_PARTS))
        return Counts(np.asarray(asked), (odd, wrong), asked=True)
    parts = np.array([COC_PARTS], float)
    return Counts(parts, (odd, Reason("rows do not divide evenly", np.asarray(rows) % parts != 0)))


OUTCOMES: dict[str, Callable[[Study, Outcome], Outcome]] = {
    "serial": lambda study, serial: serial,
    "mc2": _mc2,
    "micro_batch": _micro_batch,
    "coc": _coc,
    "dual_batch": _dual_batch,
}
"""Schedule -> how it is laid over a study."""
