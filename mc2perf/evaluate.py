"""Answer a scenario: price its parts under every schedule, choose the best counts, say what it rests on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import legality, schedules
from mc2perf.answer import Answer, Remark, Row
from mc2perf.costs import Costs, Ledger
from mc2perf.equations import pipeline, routing
from mc2perf.legality import Verdict
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, MOE_LAYER_MEANING, OPERATORS
from mc2perf.remarks import assumptions_of, remarks_of
from mc2perf.resolve import micro_batches_of, model_layout, npus_of, operator_sizes, refuse
from mc2perf.scenario import COC_PARTS, SCHEDULES, Scenario, is_operator
from mc2perf.schedules import Conditions, Timing
from mc2perf.units import Num
from mc2perf.workload.experts import expert_path
from mc2perf.workload.fused import fused_pair, moe_layer_routing
from mc2perf.workload.layer import LayerParts, layers_of
from mc2perf.workload.parts import ExpertPath, Pair, Part, all_segments, time_of

MOST_MICRO_BATCHES = 64
"""More micro-batches than this are never tried on their own; any number may be asked for."""

FLAT = 0.02
"""Counts whose time is within this share of the best are reported as equally good."""


@dataclass
class Study:
    """One scenario resolved against one machine: prices, layers, and what an NPU works on."""

    scenario: Scenario
    costs: Costs
    layers: list[LayerParts]
    tokens: float
    npus: float
    model: Model | None = None
    asked_micro_batches: float | None = None
    samples: float = 0.0
    resolved: dict[str, object] = field(default_factory=dict)
    refused_tiles: dict[int, str] = field(default_factory=dict)

    def parts(self) -> list[tuple[float, Part]]:
        """Every part with how often it runs."""
        return [(layer.count, part) for layer in self.layers for part in (*layer.forward, *layer.backward)]

    def of_kind(self, kind: type) -> list[Any]:
        """Parts of one kind that have something to communicate."""
        return [part for _, part in self.parts() if isinstance(part, kind) and getattr(part, "ranks", 0) > 1]

    def conditions(self, part: Pair | ExpertPath) -> Conditions:
        """Engines under a part."""
        engines = self.costs.engines_for(part.ranks)
        for name, tier in self.costs.tiers_for(part.ranks):
            engine_name, engine = self.costs.engine_of(tier)
            path = f"tiers.{name}.engines.{engine_name}"
            for what in ("round_cost", "comm_under_compute", "compute_under_comm"):
                self.costs.ledger.use(f"{path}.{what}", getattr(engine, what))
        return Conditions.of(engines, self.scenario.buffers, self.costs.ledger.run)

    def total(self, handle: Callable[[Part], Timing]) -> Timing:
        """All layers, every part priced by ``handle``."""
        timing = schedules.NOTHING
        for count, part in self.parts():
            timing = timing + handle(part).times(count)
        return timing

    @property
    def host_per_launch(self) -> float:
        """Host time of one launch; a replayed graph has none. [s]"""
        if self.scenario.host == "graph":
            return 0.0
        self.costs.ledger.use("host.per_launch", self.costs.machine.host.per_launch)
        return float(self.costs.machine.host.per_launch)


def estimate(
    scenario: Scenario, machine: Machine, model: Model | None = None, explain: bool = False
) -> Answer:
    """Estimate one scenario.

    Parameters
    ----------
    scenario : Scenario
        The question.
    machine : Machine
        Where it runs.
    model : Model, optional
        What runs, if the target is not an operator.
    explain : bool
        Write down every equation of the best row with its numbers.

    Returns
    -------
    Answer
        A row per schedule asked for; the best one, warnings, assumptions, sources.

    Raises
    ------
    InputError
        Contradictions between inputs, machine and model, one line each.
    """
    study = _study(scenario, machine, model)
    serial_row = _serial(study)
    names = SCHEDULES if scenario.schedule == "all" else dict.fromkeys(("serial", scenario.schedule))
    rows = tuple(serial_row if name == "serial" else _ROWS[name](study, serial_row) for name in names)
    answer = _answer(study, rows)
    if explain:
        answer = replace(answer, steps=_explanation(study, answer))
    return answer


def with_inputs(answer: Answer, inputs: dict[str, object]) -> Answer:
    """The answer with inputs that are complete enough to ask again."""
    return replace(answer, inputs=inputs)


def _study(scenario: Scenario, machine: Machine, model: Model | None) -> Study:
    costs = Costs(machine, Ledger(), scenario.engine, scenario.matmul_rule, warm_l2=scenario.l2 == "warm")
    if is_operator(scenario.target):
        return _operator_study(scenario, costs)
    assert model is not None
    layout, npus = model_layout(scenario, machine, model)
    samples = layout.tokens * layout.tp / layout.seq_len
    resolved: dict[str, object] = {
        "npus": npus, "nodes": npus / machine.ranks_per_server, "ep": layout.ep, "tp": layout.tp,
        "batch_size": samples, "seq_len": layout.seq_len, "tokens_per_npu": layout.tokens,
        "dispatch_dtype": layout.dispatch_dtype, "combine_dtype": layout.combine_dtype,
    }  # fmt: skip
    layers = layers_of(costs, model, layout)
    if scenario.phase == "prefill":
        layers = [replace(layer, backward=()) for layer in layers]
    asked = micro_batches_of(scenario, samples)
    return Study(scenario, costs, layers, layout.tokens, npus, model, asked, samples, resolved)


def _operator_study(scenario: Scenario, costs: Costs) -> Study:
    machine = costs.machine
    sizes = operator_sizes(scenario, machine)
    refuse([f"dtype: {p}" for p in _missing_rates(costs, scenario)])
    npus = npus_of(scenario, machine, sizes.ranks)
    resolved: dict[str, object] = {
        "ranks": sizes.ranks, "npus": npus, "nodes": npus / machine.ranks_per_server,
        "payload_dtype": sizes.payload_dtype,
    }  # fmt: skip
    if scenario.target == MOE_LAYER:
        combine = scenario.combine_dtype or "bf16"
        servers = np.ceil(sizes.ranks / min(sizes.ranks, next(iter(machine.tiers.values())).ranks))
        r = moe_layer_routing(
            sizes, scenario.top_k, scenario.shared_width, combine, float(servers), scenario.capacity_factor
        )
        part: Part = expert_path(costs, r)
        tokens = sizes.m
    else:
        part, tokens = fused_pair(costs, OPERATORS[scenario.target], sizes), 0.0
    layers = [LayerParts(scenario.target, 1.0, (part,), ())]
    return Study(scenario, costs, layers, tokens, npus, None, scenario.micro_batches, 0.0, resolved)


def _missing_rates(costs: Costs, scenario: Scenario) -> list[str]:
    rates = getattr(costs.rule, "rate_per_core", {scenario.dtype: 1.0})
    return [] if scenario.dtype in rates else [f"this matmul rule has no rate for {scenario.dtype}"]


# --- rows --------------------------------------------------------------------------------------------


def _row(study: Study, schedule: str, timing: Timing, serial: Row | None, **extra: Any) -> Row:
    """A row from scalar timings; host time runs beside the device."""
    device = float(timing.total)
    host = float(timing.launches) * study.host_per_launch
    total = float(pipeline.host_bound_time(device, float(timing.launches), study.host_per_launch))
    free, busy, exposed = total - device, float(timing.busy), float(timing.exposed)
    return Row(
        schedule=schedule,
        total_time=busy + exposed + free,
        serial_time=serial.total_time if serial else busy + exposed + free,
        compute_time=float(timing.compute),
        comm_time=float(timing.comm),
        compute_stretch=busy - float(timing.compute),
        exposed_comm_time=exposed,
        free_time=free,
        host_time=host,
        tokens_per_second=study.tokens / (busy + exposed + free) if study.tokens else 0.0,
        bound=_bound(study, timing, host, total),
        **extra,
    )


def _bound(study: Study, timing: Timing, host: float, total: float) -> str:
    """What the answer hangs on: host, or the longer engine and what is slow in it."""
    if host >= total > 0.0:
        return "host"
    if timing.comm <= timing.compute:
        return "memory" if timing.memory > 0.5 * timing.compute else "compute"
    floor = sum(count * time_of(all_segments(part, 1e9), "comm") for count, part in study.parts())
    return "latency" if floor > 0.5 * timing.comm else "comm"


def _refused(schedule: str, reason: str) -> Row:
    return Row(schedule=schedule, legal=False, reason=reason)


def _equal_to_serial(serial: Row, schedule: str, reason: str) -> Row:
    return replace(serial, schedule=schedule, reason=reason)


def _serial(study: Study) -> Row:
    timing = study.total(schedules.pair_serial)
    forward, backward = _segments(study, 1.0)
    return _row(
        study, "serial", timing, None, piece_rows=study.tokens, segments=forward, backward_segments=backward
    )


def main_layer(study: Study) -> LayerParts:
    """The layer to show: the most frequent one with an expert path, else the most frequent."""
    ranked = sorted(
        study.layers, key=lambda layer: (any(isinstance(p, ExpertPath) for p in layer.forward), layer.count)
    )
    return ranked[-1]


def _segments(study: Study, pieces: float) -> tuple[dict[str, float], dict[str, float]]:
    """Stand-alone time of every segment of the main layer, all pieces together."""
    layer = main_layer(study)

    def summed(parts: tuple[Part, ...]) -> dict[str, float]:
        times: defaultdict[str, float] = defaultdict(float)
        for part in parts:
            n = pieces if isinstance(part, ExpertPath) else 1.0
            for segment in all_segments(part, n):
                times[segment.name] += n * float(segment.cost.time)
        return dict(times)

    return summed(layer.forward), summed(layer.backward)


def _micro_batch(study: Study, serial: Row) -> Row:
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not paths:
        return _equal_or_refused(study, serial, "micro_batch", "no all-to-all between ranks to hide")
    largest = int(min(MOST_MICRO_BATCHES, study.tokens))
    asked = study.asked_micro_batches
    counts = np.array([asked]) if asked else np.arange(1.0, largest + 1.0)
    rest = study.total(
        lambda part: schedules.NOTHING if isinstance(part, ExpertPath) else schedules.pair_serial(part)
    )

    def at(n: Num) -> Timing:
        def price(part: Part) -> Timing:
            if isinstance(part, ExpertPath):
                return schedules.experts_micro_batch(part, n, study.conditions(part))
            return schedules.NOTHING

        return study.total(price) + rest

    experts = float(paths[0].experts_per_rank * paths[0].ranks)
    row = _best_of(study, serial, "micro_batch", counts, at)
    if experts > study.tokens:
        return row
    default = _row(study, "micro_batch", _scalar(at(experts)), serial)
    return replace(row, default_pieces=int(experts), default_time=default.total_time)


def _scalar(timing: Timing, index: int = 0) -> Timing:
    """One row of a timing."""
    return Timing(*(float(np.ravel(v)[index if np.size(v) > 1 else 0]) for v in timing))


def _best_of(
    study: Study, serial: Row, schedule: str, counts: NDArray[np.float64], at: Callable[[Num], Timing]
) -> Row:
    """The best count, the region as good as it, and the whole curve."""
    timing = at(counts)
    device = np.broadcast_to(timing.total, counts.shape)
    total = np.asarray(pipeline.host_bound_time(device, timing.launches, study.host_per_launch))
    best = int(np.argmin(total))
    first, last = flat_region(total, best)
    n = counts[best]
    forward, backward = _segments(study, float(n))
    return _row(
        study, schedule, _scalar(at(float(n))), serial,
        pieces=int(n), piece_rows=study.tokens / n, flat_region=(int(counts[first]), int(counts[last])),
        curve={int(c): float(t) for c, t in zip(counts, total, strict=True)},
        segments=forward, backward_segments=backward,
    )  # fmt: skip


def flat_region(times: NDArray[np.float64], best: int) -> tuple[int, int]:
    """First and last index of the neighbours of the best that are within ``FLAT`` of it.

    Examples
    --------
    >>> flat_region(np.array([2.0, 1.01, 1.0, 1.015, 1.2, 1.0]), 2)
    (1, 3)
    """
    good = times <= times[best] * (1.0 + FLAT)
    first = last = best
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < len(times) and good[last + 1]:
        last += 1
    return first, last


def _equal_or_refused(study: Study, serial: Row, schedule: str, reason: str) -> Row:
    """A schedule without work to do: equal to serial, or refused for an operator it is not made for."""
    operator = study.scenario.target in OPERATORS
    if operator and schedule in ("micro_batch", "dual_batch"):
        return _refused(schedule, f"{schedule} lays over whole MoE layers; ask for moe_layer or a model")
    return _equal_to_serial(serial, schedule, reason)


def _dual_batch(study: Study, serial: Row) -> Row:
    parts = [*study.of_kind(ExpertPath), *study.of_kind(Pair)]
    if not parts or study.scenario.target in OPERATORS:
        return _equal_or_refused(study, serial, "dual_batch", "no communication between ranks to hide")
    training = study.model is not None and study.scenario.phase == "train"
    if not training and study.model is not None and study.samples < 2:
        return _refused("dual_batch", "prefill needs two samples to overlap; raise batch_size to 2")
    worst = max(parts, key=lambda part: part.ranks)
    on, share = study.conditions(worst), 1.0 if training else 2.0
    timing = schedules.NOTHING
    for layer in study.layers:
        for parts_in_turn in (layer.forward, layer.backward):
            if layer is study.layers[-1] and study.model is not None:
                turn = sum((schedules.pair_serial(p) for p in parts_in_turn), schedules.NOTHING)
            else:
                turn = schedules.dual_batch(parts_in_turn, share, on) if parts_in_turn else schedules.NOTHING
            timing = timing + turn.times(layer.count)
    forward, backward = _segments(study, 1.0)
    return _row(
        study, "dual_batch", timing, serial, pieces=2, piece_rows=study.tokens / share,
        segments=forward, backward_segments=backward,
    )  # fmt: skip


def _mc2(study: Study, serial: Row) -> Row:
    """Fused operators wherever they are legal; the tile count or the local experts decide the pieces."""
    pairs: list[Pair] = study.of_kind(Pair)
    paths: list[ExpertPath] = study.of_kind(ExpertPath)
    if not pairs and not paths:
        return _equal_to_serial(serial, "mc2", "nothing to communicate: one rank in every group")
    verdict = _fused_verdict(study, pairs, paths)
    if not verdict.legal:
        return _refused("mc2", verdict.reason)
    if verdict.serial:
        return _equal_to_serial(serial, "mc2", verdict.reason)
    if not pairs and all(path.experts_per_rank == 1 for path in paths) and not _shared(paths):
        return _equal_to_serial(serial, "mc2", "one local expert: one piece, equals serial")
    if study.scenario.target in OPERATORS:
        return _fused_operator(study, serial, pairs[0])
    return _fused_model(study, serial, pairs, paths)


def _fused_verdict(study: Study, pairs: list[Pair], paths: list[ExpertPath]) -> Verdict:
    """The verdict of the groups that communicate; an illegal one decides."""
    asked = [(p.name if p.name in legality.FAMILY else "all_gather_matmul", p.ranks) for p in pairs[:1]]
    asked += [("all_to_all_v_grouped_matmul", path.ranks) for path in paths[:1]]
    verdicts = [legality.fused(study.costs, study.scenario, name, ranks) for name, ranks in asked]
    return min(verdicts, key=lambda v: (v.legal, not v.serial))


def _shared(paths: list[ExpertPath]) -> bool:
    return any(path.build(1.0, False).beside for path in paths)


def _fused_operator(study: Study, serial: Row, pair: Pair) -> Row:
    counts = _tile_counts(study, pair)
    on = study.conditions(pair)
    row = _best_of(study, serial, "mc2", counts, lambda n: schedules.pair_mc2(pair, n, on))
    return replace(row, piece_rows=pair.rows / row.pieces)


def _fused_model(study: Study, serial: Row, pairs: list[Pair], paths: list[ExpertPath]) -> Row:
    chosen: dict[str, int] = {}

    def price(part: Part) -> Timing:
        if isinstance(part, ExpertPath) and part.ranks > 1:
            return schedules.experts_mc2(part, study.conditions(part))
        if isinstance(part, Pair):
            timing, chosen[part.name] = _best_tiles(study, part)
            return timing
        return schedules.pair_serial(part)

    timing = study.total(price)
    pieces = paths[0].experts_per_rank if paths else max(chosen.values())
    forward, backward = _segments(study, 1.0)
    return _row(
        study, "mc2", timing, serial, pieces=pieces, piece_rows=study.tokens / pieces,
        segments=forward, backward_segments=backward,
    )  # fmt: skip


def _best_tiles(study: Study, pair: Pair) -> tuple[Timing, int]:
    """A fused pair at its best tile count."""
    counts = _tile_counts(study, pair)
    timing = schedules.pair_mc2(pair, counts, study.conditions(pair))
    best = int(np.argmin(timing.total))
    return _scalar(timing, best), int(counts[best])


def _tile_counts(study: Study, pair: Pair) -> NDArray[np.float64]:
    """Tile counts to try: what was asked, else divisors of the axis whose tiles fit base block and limits."""
    asked = study.scenario.tile_cnt
    if asked:
        return np.array([asked])
    if pair.experts:
        return np.array([float(pair.experts)])
    axis = study.scenario.split_axis if study.model is None else "m"
    whole = pair.rows if axis == "m" else float(getattr(study.scenario, axis))
    base = float(getattr(study.costs.machine.cube.base_block, axis))
    limit = int(min(study.costs.machine.limits.pieces, whole, 1024))
    study.costs.ledger.use("limits.pieces", study.costs.machine.limits.pieces)
    fitting = [1.0]
    for n in range(2, limit + 1):
        reason = _tile_problem(study, pair, whole / n, base, whole)
        if reason:
            study.refused_tiles[n] = reason
        else:
            fitting.append(float(n))
    return np.array(fitting)


def _tile_problem(study: Study, pair: Pair, rows: float, base: float, whole: float) -> str:
    """Why a tile of so many rows does not fit; empty if it does."""
    if rows != int(rows):
        return f"{whole:g} does not divide evenly"
    if rows < base or (whole % base == 0 and rows % base):
        return f"{rows:g} is not a multiple of the base block {base:g}"
    _, engine = study.costs.engine_of(next(iter(study.costs.machine.tiers.values())))
    if rows * pair.piece_bytes / pair.ranks > engine.put:
        return f"a put of {rows * pair.piece_bytes / pair.ranks / 1024:g} KiB is above the limit"
    if study.scenario.buffers * rows * pair.piece_bytes > engine.shmem:
        return "the buffers do not fit the symmetric heap"
    return ""


def _coc(study: Study, serial: Row) -> Row:
    pairs: list[Pair] = study.of_kind(Pair)
    if study.model is not None and not pairs:
        return _equal_to_serial(serial, "coc", "CoC cuts tensor-parallel matmuls; tp is 1")
    target = study.scenario.target
    name = target if study.model is None else "all_gather_matmul"
    verdict = legality.parts_allowed(study.scenario, name, pairs[0].rows if pairs else 0.0)
    if study.costs.machine.family in ("gpu", "950"):
        return _refused("coc", f"CoC is not offered on {study.costs.machine.family}")
    if not verdict.legal or not pairs:
        return _refused("coc", verdict.reason or "nothing to communicate: one rank")
    asked = study.scenario.tile_cnt if study.model is None else None
    if asked and asked not in COC_PARTS:
        return _refused("coc", f"CoC cuts into 1, 2, 4 or 8 parts, not {asked:g}")
    counts = np.array([asked] if asked else [float(p) for p in COC_PARTS if pairs[0].rows % p == 0])

    def at(n: Num) -> Timing:
        return study.total(
            lambda part: (
                schedules.pair_parts(part, n, study.conditions(part))
                if isinstance(part, Pair)
                else schedules.pair_serial(part)
            )
        )

    row = _best_of(study, serial, "coc", counts, at)
    return replace(row, piece_rows=pairs[0].rows / row.pieces)


_ROWS: dict[str, Callable[[Study, Row], Row]] = {
    "mc2": _mc2,
    "micro_batch": _micro_batch,
    "coc": _coc,
    "dual_batch": _dual_batch,
}
"""Schedule -> how its row is made."""


# --- the answer ----------------------------------------------------------------------------------------


def _answer(study: Study, rows: tuple[Row, ...]) -> Answer:
    scenario, ledger = study.scenario, study.costs.ledger
    operator = OPERATORS.get(scenario.target)
    meaning = {axis: getattr(operator, axis) for axis in "mnk"} if operator else {}
    if scenario.target == MOE_LAYER:
        meaning = MOE_LAYER_MEANING
    remarks: tuple[Remark, ...] = tuple(
        remarks_of(scenario, study.costs, rows, study.model, study.npus, study.refused_tiles)
    )
    return Answer(
        kind="operator" if study.model is None else "model",
        inputs={name: value for name, value in vars(scenario).items() if value is not None},
        resolved=study.resolved,
        rows=rows,
        warnings=remarks,
        assumptions=assumptions_of(scenario, study.model, study.costs),
        sources=dict(sorted(Counter(q.kind for q in ledger.used.values()).items())),
        facts=_facts(study),
        meaning=dict(meaning),
    )


def _facts(study: Study) -> dict[str, float]:
    """Numbers of the workload itself."""
    model = study.model
    if model is None or model.experts is None:
        return {}
    e = model.experts
    ratio = routing.flops_per_byte(
        float(model.matrices), float(model.hidden_size), float(e.payload_width), float(e.width),
        float(e.shared_width), float(e.top_k),
    )  # fmt: skip
    return {"flops_per_byte": float(ratio)}


def _explanation(study: Study, answer: Answer) -> tuple[Any, ...]:
    """Every equation of the best row's main layer, forward, with its numbers."""
    best = answer.best
    if best is None:
        return ()
    ledger = study.costs.ledger
    ledger.recording = True
    for part in main_layer(study).forward:
        if isinstance(part, ExpertPath) and part.ranks > 1 and best.schedule == "micro_batch":
            schedules.experts_micro_batch(part, float(best.pieces), study.conditions(part))
        elif isinstance(part, ExpertPath) and part.ranks > 1 and best.schedule == "mc2" and not best.reason:
            schedules.experts_mc2(part, study.conditions(part))
        elif isinstance(part, Pair) and best.schedule == "mc2" and not best.reason:
            pieces = float(best.pieces) if study.model is None else float(_best_tiles_quietly(study, part))
            schedules.pair_mc2(part, pieces, study.conditions(part))
        elif isinstance(part, Pair) and best.schedule == "coc":
            schedules.pair_parts(part, float(best.pieces), study.conditions(part))
        else:
            schedules.pair_serial(part)
    ledger.recording = False
    return tuple(ledger.steps)


def _best_tiles_quietly(study: Study, pair: Pair) -> int:
    """The best tile count, without writing the search down."""
    ledger = study.costs.ledger
    ledger.recording = False
    _, pieces = _best_tiles(study, pair)
    ledger.recording = True
    return pieces
