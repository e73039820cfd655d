"""Answer a scenario: a row per schedule, the best one, and everything the answer rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import explaining, schedules
from mc2perf.answer import Answer, Cut, Expectation, Memory, Remark, Row, Step
from mc2perf.assumptions import assumptions_of
from mc2perf.bands import band_of
from mc2perf.equations import overlap, routing
from mc2perf.equations.optimum import flat_region
from mc2perf.footprint import footprint_of, shortfall
from mc2perf.machine import Machine
from mc2perf.model import Experts, Model
from mc2perf.operators import DTYPES, MOE_LAYER, MOE_LAYER_MEANING, OPERATORS
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.batches import in_micro_batches
from mc2perf.outcomes.best import FLAT, at_count, best_count
from mc2perf.outcomes.mc2 import best_tiles
from mc2perf.outcomes.outcome import Outcome
from mc2perf.problems import InputError
from mc2perf.reasons import refuse
from mc2perf.remarks import remarks_of
from mc2perf.results import BOUNDS, Results
from mc2perf.scenario import POLICIES, SCHEDULES, Scenario
from mc2perf.step import as_step, base_line, laid
from mc2perf.study import Study, main_layer, segments_of, study_of
from mc2perf.workload.parts import ExpertPath, Pair, Part, Tiles, all_segments


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
    study = study_of(scenario, machine, model)
    refuse(study.reasons)
    serial = base_line(study)
    base = Results(study, serial, None)
    names = SCHEDULES if scenario.schedule == "all" else dict.fromkeys(("serial", scenario.schedule))
    outcomes = [laid(study, name, serial) for name in names]
    rows = tuple(_row(study, outcome, base) for outcome in outcomes)
    _watch(study, rows)
    answer = _answer(scenario, study, rows, outcomes)
    if scenario.policy == "all":
        answer = replace(answer, policies=_policies(study, serial, base))
    if explain:
        answer = replace(answer, steps=_explanation(study, answer))
    return answer


def _policies(study: Study, serial: Outcome, base: Results) -> tuple[Cut, ...]:
    """A fused operator as every policy cuts it, all at one price."""
    if study.scenario.target not in OPERATORS or study.scenario.tile_cnt is not None:
        raise InputError(["policy: all compares cuts of one operator whose tile_cnt is not given"])
    return tuple(_cut(study, policy, serial, base) for policy in POLICIES)


def _cut(study: Study, policy: str, serial: Outcome, base: Results) -> Cut:
    """What one policy makes of the operator."""
    chosen = replace(study, scenario=replace(study.scenario, policy=policy))
    outcome = OUTCOMES["mc2"](chosen, serial)
    row = _row(chosen, outcome, base)
    if not row.legal or row.reason:
        return Cut(policy=policy, tiles=outcome.tiles, reason=row.reason)
    rows = np.asarray(study.rows).item()
    longer = max(row.compute_time, row.comm_time)
    return Cut(
        policy=policy,
        tiles=row.tiles or (rows / row.pieces,) * row.pieces,
        total_time=row.total_time,
        speedup=row.speedup,
        above_bound=row.total_time / longer - 1.0,
        why=outcome.why or ("best of every length" if policy == "scan" else "valley of affine costs"),
    )


NOT_ALWAYS = ("mfu", "time_per_output_token", "time_to_first_token", "rest_rows", "rest_first")
"""Words of results that some questions have no answer to."""


def _row(study: Study, outcome: Outcome, base: Results) -> Row:
    """A schedule at its best count in a study of one row."""
    refused = outcome.refused_at
    if refused.all():
        why = next(reason.text for reason in outcome.refused if np.any(reason.where))
        return Row(schedule=outcome.schedule, legal=False, reason=why)
    numbers = Results(study, outcome, base)
    best = best_count(numbers["total_time"], refused)
    at: dict[str, Any] = {name: at_count(values, best).item() for name, values in numbers.items()}
    pieces = int(at["pieces"])
    at |= {"bound": BOUNDS[int(at["bound"])], "pieces": pieces}
    at |= {name: 0.0 for name in NOT_ALWAYS if isnan(at[name])}
    row = Row(
        schedule=outcome.schedule, reason=outcome.note, tiles=outcome.tiles or _unequal(study, at), **at
    )
    cut = float(pieces) if outcome.tried else 1.0
    forward, backward = segments_of(study, cut)
    row = replace(
        row,
        segments=forward,
        backward_segments=backward,
        traffic=_traffic(outcome, best) if study.model else {},
    )
    if outcome.tried is None:
        return row
    times = np.where(refused, np.inf, numbers["total_time"]).ravel()
    row = replace(_over_counts(row, np.ravel(outcome.pieces), times), cuts=_cuts(study, numbers))
    return _with_default(study, row)


def _unequal(study: Study, at: dict[str, Any]) -> tuple[float, ...]:
    """Rows of an operator's tiles in their order, if one is shorter; pairs of a model have their own."""
    if study.model is not None or not at["rest_rows"]:
        return ()
    return Tiles(at["pieces"], at["piece_rows"], at["rest_rows"], at["rest_first"]).in_order()


def _cuts(study: Study, numbers: Results) -> dict[int, tuple[float, ...]]:
    """Tiles of every count of which one is longer or shorter."""
    names = ("pieces", "piece_rows", "rest_rows", "rest_first")
    columns = np.broadcast_arrays(*(numbers[name] for name in names))
    found = (dict(zip(names, row, strict=True)) for row in np.stack(columns, axis=-1).reshape(-1, 4).tolist())
    return {int(at["pieces"]): _unequal(study, at) for at in found if not isnan(at["rest_rows"])}


def _traffic(outcome: Outcome, best: NDArray[np.intp]) -> dict[str, tuple[float, float]]:
    """Communication of a model by parallel group, and what of it is exposed."""
    return {
        group: (at_count(t.comm, best).item(), at_count(t.exposed, best).item())
        for group, t in outcome.traffic.items()
    }


def _over_counts(row: Row, counts: NDArray[np.floating[Any]], times: NDArray[np.floating[Any]]) -> Row:
    """The row with the curve over its counts and the region that is as good as the best."""
    region = flat_region(times, FLAT)
    flat = (int(counts[int(region.first)]), int(counts[int(region.last)]))
    curve = {int(n): t for n, t in zip(counts.tolist(), times.tolist(), strict=True) if t < np.inf}
    return replace(row, flat_region=flat, curve=curve)


def _with_default(study: Study, row: Row) -> Row:
    """Beside the best micro-batches, what CANN's default takes: one for every expert."""
    paths = study.of_kind(ExpertPath)
    if row.schedule != "micro_batch" or not paths:
        return row
    assert study.group is not None
    experts = float(study.group.experts)
    if experts > study.tokens:
        return row
    default = as_step(study, Outcome(schedule="micro_batch", layers=in_micro_batches(study, experts)))
    time = Results(study, default, None)["total_time"].item()
    return replace(row, default_pieces=int(experts), default_time=time)


def with_inputs(answer: Answer, inputs: dict[str, object]) -> Answer:
    """The answer with inputs that are complete enough to ask again."""
    return replace(answer, inputs=inputs)


def _answer(scenario: Scenario, study: Study, rows: tuple[Row, ...], outcomes: list[Outcome]) -> Answer:
    ledger = study.costs.ledger
    operator = OPERATORS.get(scenario.target)
    meaning = {axis: getattr(operator, axis) for axis in "mnk"} if operator else {}
    if scenario.target == MOE_LAYER:
        meaning = MOE_LAYER_MEANING
    memory = _memory(study)
    remarks: tuple[Remark, ...] = tuple(
        remarks_of(study, scenario, rows, _refused_tiles(outcomes), _shortfall(memory))
    )
    return Answer(
        kind="operator" if study.model is None else "model",
        inputs={name: value for name, value in vars(scenario).items() if value is not None},
        resolved={name: _plain(value) for name, value in study.resolved.items()},
        rows=rows,
        warnings=remarks,
        assumptions=assumptions_of(study),
        sources=dict(sorted(Counter(q.kind for q in ledger.used.values()).items())),
        facts=_facts(study),
        meaning=dict(meaning),
        memory=memory,
        expect=_expectation(study),
    )


def _expectation(study: Study) -> Expectation:
    """How far off validated answers like this one are."""
    band = band_of(study.scenario, study.costs.machine, study.model)
    median, worst = (band.median, band.worst) if band.rows else (None, None)
    return Expectation(
        text=str(band),
        like=str(band.like),
        rows=band.rows,
        families=band.families,
        median=median,
        worst=worst,
    )


def _memory(study: Study) -> Memory | None:
    """What an NPU holds, of a model."""
    if study.model is None:
        return None
    held = footprint_of(study)
    return Memory(
        parts={name: np.asarray(size).item() for name, size in held.parts},
        total=np.asarray(held.total).item(),
        capacity=float(held.capacity),
        fits=bool(np.all(held.fits)),
        shortfall="" if np.all(held.fits) else shortfall(held),
        assumptions=held.assumptions,
    )


def _shortfall(memory: Memory | None) -> str:
    return "" if memory is None else memory.shortfall


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.ndarray) else value


def _refused_tiles(outcomes: list[Outcome]) -> dict[int, str]:
    """Tile counts that were not tried, and the first reason of each."""
    refused: dict[int, str] = {}
    for outcome in outcomes:
        if outcome.schedule == "mc2" and outcome.tried is not None:
            for reason in outcome.tried.refused:
                where = np.broadcast_to(reason.where, outcome.tried.pieces.shape)
                for n in outcome.tried.pieces[where].tolist():
                    refused.setdefault(int(n), reason.text)
    return refused


def _facts(study: Study) -> dict[str, float]:
    """Numbers of the workload itself."""
    model, layout = study.model, study.layout
    if model is None or layout is None or model.experts is None:
        return {}
    e = model.experts
    ratio = routing.flops_per_byte(
        float(model.matrices), float(model.hidden_size), float(e.payload_width), float(e.width),
        float(e.shared_width), float(e.top_k),
    )  # fmt: skip
    copies = e.top_k + float(layout.shared_ranks > 0.0)
    return {
        "flops_per_byte": float(ratio),
        "dispatch_bytes": _copies(e, copies, layout.dispatch_dtype),
        "combine_bytes": _copies(e, copies, layout.combine_dtype),
    }


def _copies(experts: Experts, copies: float, dtype: str) -> float:
    """Bytes of so many copies of one token in a layer, scales with them, wherever the experts are. [B]"""
    width, item = float(experts.payload_width), DTYPES[dtype]
    scales = float(item.scale_bytes_per_row(width))
    return float(routing.dispatch_bytes(1.0, copies, width, item.size, scales))


def _watch(study: Study, rows: tuple[Row, ...]) -> None:
    """Price every row once more: what leaves the range of a fit is noted for these, not for all tried."""
    machine = study.costs.machine
    curves = (c for tier in machine.tiers.values() for e in tier.engines.values() for c in e.curves.values())
    if not machine.cube.fitted_work and not any(curve.sizes for curve in curves):
        return
    tiles = _tiles(study, rows)
    study.costs.watching = True
    layer = main_layer(study)
    for row in rows:
        for part in (*layer.forward, *layer.backward) if row.legal else ():
            _replay(study, part, row, tiles)
    study.costs.watching = False


def _tiles(study: Study, rows: tuple[Row, ...]) -> dict[str, Tiles]:
    """Best tiles of the pairs, if any row fuses them."""
    pairs = study.of_kind(Pair) if any(_fuses(row) for row in rows) else []
    return {part.name: best_tiles(study, part)[1] for part in pairs}


MAKESPANS = ("longest_path", "rest_first", "rest_last")
"""Equations of the pipeline inside a fused kernel."""


def _explanation(study: Study, answer: Answer) -> tuple[Step, ...]:
    """Every equation of the best row's main layer, forward, with its numbers; then the whole answer."""
    best = answer.best
    if best is None:
        return ()
    tiles = _tiles(study, (best,))
    ledger = study.costs.ledger
    ledger.recording = True
    sums = []
    for part in main_layer(study).forward:
        _replay(study, part, best, tiles)
        ledger.recording = False
        if isinstance(part, Pair) and ledger.steps[-1].equation in MAKESPANS and _fuses(best):
            ledger.steps.append(explaining.of_fused(part.name, ledger.steps[-1], part.build(1.0, False)))
        sums.append(explaining.of_part(part.name, all_segments(part)))
        ledger.recording = True
        ledger.steps.append(sums[-1])
    ledger.steps.append(explaining.of_layer(sums))
    ledger.run(
        "the whole answer", overlap.total_time, busy_compute=best.compute_time + best.compute_stretch,
        exposed_comm=best.exposed_comm_time, free=best.free_time,
    )  # fmt: skip
    ledger.recording = False
    return tuple(ledger.steps)


def _fuses(row: Row) -> bool:
    return row.legal and row.schedule == "mc2" and not row.reason


def _replay(study: Study, part: Part, best: Row, tiles: dict[str, Tiles]) -> None:
    """Price one part once more, as the best row did."""
    communicates = getattr(part, "ranks", 1.0) > 1
    if isinstance(part, ExpertPath) and communicates and best.schedule == "micro_batch":
        schedules.experts_micro_batch(part, float(best.pieces), study.conditions(part))
    elif isinstance(part, ExpertPath) and part.fuses and _fuses(best):
        schedules.experts_mc2(part, study.conditions(part))
    elif isinstance(part, Pair) and communicates and _fuses(best):
        schedules.pair_mc2(part, tiles[part.name], study.conditions(part))
    elif isinstance(part, Pair) and communicates and best.schedule == "coc":
        schedules.pair_parts(part, float(best.pieces), study.conditions(part))
    else:
        schedules.pair_serial(part)
