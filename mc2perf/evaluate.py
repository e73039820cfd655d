"""Answer a scenario: a row per schedule, the best one, and everything the answer rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mc2perf import schedules
from mc2perf.answer import Answer, Remark, Row, Step
from mc2perf.equations import overlap, routing
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, MOE_LAYER_MEANING, OPERATORS
from mc2perf.remarks import assumptions_of, remarks_of
from mc2perf.rows import ROWS, best_tiles, fused_groups, serial_row
from mc2perf.scenario import SCHEDULES, Scenario
from mc2perf.study import Study, main_layer, study_of
from mc2perf.workload.parts import ExpertPath, Pair, Part


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
    base_line = serial_row(study)
    names = SCHEDULES if scenario.schedule == "all" else dict.fromkeys(("serial", scenario.schedule))
    rows = tuple(base_line if name == "serial" else ROWS[name](study, base_line) for name in names)
    answer = _answer(study, rows)
    if explain:
        answer = replace(answer, steps=_explanation(study, answer))
    return answer


def with_inputs(answer: Answer, inputs: dict[str, object]) -> Answer:
    """The answer with inputs that are complete enough to ask again."""
    return replace(answer, inputs=inputs)


def _answer(study: Study, rows: tuple[Row, ...]) -> Answer:
    scenario, ledger = study.scenario, study.costs.ledger
    operator = OPERATORS.get(scenario.target)
    meaning = {axis: getattr(operator, axis) for axis in "mnk"} if operator else {}
    if scenario.target == MOE_LAYER:
        meaning = MOE_LAYER_MEANING
    groups = fused_groups(study.of_kind(Pair), study.of_kind(ExpertPath))
    remarks: tuple[Remark, ...] = tuple(
        remarks_of(scenario, study.costs, rows, study.model, study.npus, study.refused_tiles, groups)
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


def _explanation(study: Study, answer: Answer) -> tuple[Step, ...]:
    """Every equation of the best row's main layer, forward, with its numbers; then the whole answer."""
    best = answer.best
    if best is None:
        return ()
    tiles = {part.name: best_tiles(study, part)[1] for part in study.of_kind(Pair)} if _fuses(best) else {}
    ledger = study.costs.ledger
    ledger.recording = True
    for part in main_layer(study).forward:
        _replay(study, part, best, tiles)
    ledger.run(
        "the whole answer", overlap.total_time, busy_compute=best.compute_time + best.compute_stretch,
        exposed_comm=best.exposed_comm_time, free=best.free_time,
    )  # fmt: skip
    ledger.recording = False
    return tuple(ledger.steps)


def _fuses(row: Row) -> bool:
    return row.schedule == "mc2" and not row.reason


def _replay(study: Study, part: Part, best: Row, tiles: dict[str, int]) -> None:
    """Price one part once more, as the best row did."""
    communicates = getattr(part, "ranks", 1.0) > 1
    if isinstance(part, ExpertPath) and communicates and best.schedule == "micro_batch":
        schedules.experts_micro_batch(part, float(best.pieces), study.conditions(part))
    elif isinstance(part, ExpertPath) and communicates and _fuses(best):
        schedules.experts_mc2(part, study.conditions(part))
    elif isinstance(part, Pair) and communicates and _fuses(best):
        schedules.pair_mc2(part, float(tiles[part.name]), study.conditions(part))
    elif isinstance(part, Pair) and communicates and best.schedule == "coc":
        schedules.pair_parts(part, float(best.pieces), study.conditions(part))
    else:
        schedules.pair_serial(part)
