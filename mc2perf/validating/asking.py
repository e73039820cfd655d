"""Answers to the questions of rows, with what their sources count by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mc2perf import evaluate
from mc2perf.answer import Answer
from mc2perf.answer import Row as Result
from mc2perf.bands import like
from mc2perf.machine import Machine
from mc2perf.measurement import UNITS, Plain
from mc2perf.model import Model
from mc2perf.operators import DTYPES, MOE_LAYER, OPERATORS
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.validate.asked import Asked
from mc2perf.validating.decode import decode_choices
from mc2perf.validating.inputs import model_inputs, operator_inputs, prefill_choices
from mc2perf.validating.parts import Alone, part_alone
from mc2perf.validating.questions import is_decode, is_part, number
from mc2perf.validating.sizes import sized

DIES_PER_CARD = 2.0
"""What a card of an Atlas A3 holds."""


class Asking:
    """Answers questions; machines, models and answers are kept, for values share them."""

    def __init__(self, own: tuple[Path, ...]) -> None:
        self._machine = cache(lambda name: load_machine(name, own, {}))
        self._model = cache(load_model)
        self._answers: dict[str, Answer | InputError] = {}

    def __call__(self, question: Mapping[str, Plain]) -> Asked:
        """Ask; every problem is an `InputError`."""
        if "hardware" not in question:
            raise InputError(["unstated: hardware"])
        machine = self._machine(str(question["hardware"]))
        target = str(question["target"])
        if is_part(question):
            return _asked_part(question, machine, part_alone(question, machine))
        given = operator_inputs(question) if is_operator(target) else model_inputs(question)
        scenario, _ = read_scenario(target, given)
        model = None if is_operator(target) else sized(self._model(target), question)
        answer = self._answer(scenario, machine, model)
        result = next(row for row in answer.rows if row.schedule == scenario.schedule)
        if not result.legal:
            raise InputError([f"schedule: {scenario.schedule}: {result.reason}"])
        return _asked(question, scenario, machine, model, answer, result)

    def chosen(self, question: Mapping[str, Plain]) -> dict[str, Plain]:
        """What the row leaves open and is chosen here."""
        if not is_decode(question) or "hardware" not in question:
            return prefill_choices(question) if question.get("phase") == "prefill" else {}
        machine = self._machine(str(question["hardware"]))
        experts = sized(self._model(str(question["target"])), question).experts
        per_card = DIES_PER_CARD if machine.rank == "die" else 1.0
        return decode_choices(question, per_card, experts.count if experts else 0)

    def _answer(self, scenario: Scenario, machine: Machine, model: Model | None) -> Answer:
        key = repr((scenario, model))
        if key not in self._answers:
            try:
                self._answers[key] = evaluate.estimate(scenario, machine, model)
            except InputError as error:
                self._answers[key] = error
        found = self._answers[key]
        if isinstance(found, InputError):
            raise found
        return found


def _asked(
    question: Mapping[str, Plain],
    scenario: Scenario,
    machine: Machine,
    model: Model | None,
    answer: Answer,
    result: Result,
) -> Asked:
    """The answer with what its source counts by."""
    ranks = number(answer.resolved["npus"])
    npus = number(question["npus"]) if "dies" in question and "npus" in question else ranks
    per_card = DIES_PER_CARD if machine.rank == "die" else 1.0
    cards = number(question["cards"]) if "cards" in question else ranks / per_card
    peak = float(machine.cube.peak[scenario.cube_dtype])
    flops, weights = _work_of_operator(scenario) if model is None else _work_of_model(model, answer, result)
    stated = str(question["peak"]).split() if "peak" in question else None
    return Asked(
        result=result,
        ranks=ranks,
        npus=npus,
        cards=cards,
        ranks_per_server=float(machine.ranks_per_server),
        machine_peak=peak,
        flops_time=flops / peak if model is None else flops,
        bytes_time=weights * DTYPES[scenario.dtype].stored_size / float(machine.memory.bandwidth),
        peak=float(stated[0]) * UNITS[stated[1]] if stated else None,
        baseline=number(question.get("baseline_throughput", 100.0)),
        like=like(scenario, machine, model),
    )


def _asked_part(question: Mapping[str, Plain], machine: Machine, part: Alone) -> Asked:
    """A part of a layer: its time, what it exchanges, and what the naive model knows of it."""
    ranks = number(question.get("ranks", 1))
    return Asked(
        result=Result(schedule="serial", total_time=part.time, serial_time=part.time, speedup=1.0),
        ranks=ranks,
        npus=ranks,
        cards=ranks,
        ranks_per_server=float(machine.ranks_per_server),
        machine_peak=float(machine.cube.peak[str(question.get("dtype", "bf16"))]),
        flops_time=part.work_time,
        bytes_time=part.bytes_time,
        exchanged=part.exchanged,
    )


def _work_of_operator(scenario: Scenario) -> tuple[float, float]:
    """FLOPs of an operator on one rank, and weights that the rank holds."""
    m, n, k = (number(size) for size in (scenario.m, scenario.n, scenario.k))
    weights = n * k * scenario.experts_per_rank
    if scenario.target == MOE_LAYER:
        return 6.0 * m * scenario.top_k * n * k, 3.0 * weights
    ranks = scenario.ranks or 1.0
    return 2.0 * m * (ranks if OPERATORS[scenario.target].gathered else 1.0) * n * k, weights


def _work_of_model(model: Model, answer: Answer, result: Result) -> tuple[float, float]:
    """Time of the counted FLOPs at peak [s], and weights that a rank reads, once per micro-batch."""
    resolved = {name: number(answer.resolved.get(name, 1.0)) for name in ("tp", "pp", "ep")}
    count = number(answer.resolved.get("micro_batches_of_a_step", 1.0))
    routed = sum(group.count * model.routed_parameters(group) for group in model.layers)
    cut = resolved["ep"] if resolved["ep"] > 1.0 else resolved["tp"]
    held = (model.parameter_count - routed) / resolved["tp"] + routed / cut
    return result.mfu * result.total_time, count * held / resolved["pp"]
