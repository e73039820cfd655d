"""From rows of published measurements to questions, and from their answers to predictions.

A row is asked only where its target and every input that decides are expressible; whatever is not is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from mc2perf import evaluate
from mc2perf.answer import Answer
from mc2perf.answer import Row as Result
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.routing import distinct_experts
from mc2perf.equations.serving import tokens_per_step
from mc2perf.machine import Machine
from mc2perf.measurement import UNITS, Family, Plain, Row, Value
from mc2perf.model import Attention, Experts, LayerGroup, Model
from mc2perf.operators import DTYPES, MOE_LAYER, OPERATORS
from mc2perf.problems import InputError
from mc2perf.readers.kernels import read_kernels
from mc2perf.readers.measurements import load_measurements
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import DEFAULT_HARDWARE, Scenario, inputs, is_operator
from mc2perf.serving import mean_context
from mc2perf.studies.kernels import Score as KernelScore
from mc2perf.studies.kernels import score as score_kernels
from mc2perf.studies.validate import (
    GAINS,
    PHASES,
    QUANTITIES,
    YIELDS,
    Asked,
    Case,
    Check,
    Score,
    Scored,
    checks,
    scored,
    scores,
)

MIXER_SIZES = frozenset(
    ("heads", "kv_heads", "head_dim", "v_head_dim", "rope_head_dim", "q_lora_rank", "kv_lora_rank", "window")
)
EXPERT_SIZES = {
    "experts": "count",
    "top_k": "top_k",
    "expert_width": "width",
    "shared_width": "shared_width",
    "top_groups": "top_groups",
}
"""Words of rows -> those of a model's experts."""
SIZES = MIXER_SIZES | EXPERT_SIZES.keys() | {
    "hidden_size", "vocab_size", "dense_width", "num_layers", "dense_layers",
}  # fmt: skip
"""Inputs of rows that are sizes of a model."""

UNPRICED = frozenset(
    (
        "gradient_accumulation_fusion", "fused_cross_entropy", "grouped_matmul", "dispatcher", "chip", "peak",
        "launch_blocking", "pad_to_capacity", "tuned", "version", "system",
    )
)  # fmt: skip
"""How the software does the same work, which no equation prices: such rows are scored, and say so."""

OF_MODELS = frozenset(
    (
        "npus", "dies", "cards", "per", "requests", "prompt_len", "batch_tokens", "tokens_per_npu",
        "optimizer", "flash_attention", "fused_operator", "prefill_micro_batches", "baseline_throughput",
    )
)  # fmt: skip
"""Inputs of models that are turned into others, or compared with them."""

OF_DECODE = frozenset(
    (
        "batch_per_npu", "batch_per_die", "output_len", "mtp", "mtp_acceptance", "mtp_accepted",
        "tokens_per_request",
    )
)  # fmt: skip
"""Inputs of a decode step that are turned into others."""

OF_OPERATORS = frozenset(("experts", "local_first", "baseline_throughput"))
"""The same of operators."""

DECIDES = frozenset(
    (
        "hardware", "ranks", "m", "n", "k", "experts", "experts_per_rank", "top_k", "tokens", "seq_len",
        "prompt_len", "context_len", "batch_size", "global_batch_size", "micro_batch_size", "batch_per_npu",
        "npus", "dp", "pp", "tp", "ep", "parallel", "model", "time_unit",
    )
)  # fmt: skip
"""Inputs without which there is no prediction, only a guess; every other one has the default of software."""

ONLY: dict[str, Plain] = {
    "flash_attention": True,
    "optimizer": "zero1",
    "local_first": True,
    "fused_operator": "matmul_all_reduce",
}
"""Inputs that are priced in one way: another one is another question."""

EXCHANGES = {"moe_dispatch": "dispatch", "moe_combine": "combine"}
"""Parts of an expert layer that are asked alone -> its segment."""

GROUPED_MATMUL = "grouped_matmul"
"""The matmul of the local experts, asked alone; within a layer no row says which of the two it is."""

OF_PARTS = frozenset(("experts", "tokens", "ep"))
"""Inputs of parts that say again what m and experts_per_rank do."""

UNPRICED_IN_PARTS = frozenset(("mode", "kernel", "tier"))
"""Kernels of one exchange or matmul, which no equation tells apart."""

DIES_PER_CARD = 2.0
"""What a card of an Atlas A3 holds."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Every value as a case, those with scores, the scores of groups, and the relations."""

    families: tuple[Family, ...]
    cases: tuple[Case, ...]
    scored: tuple[Scored, ...]
    scores: tuple[Score, ...]
    checks: tuple[Check, ...]

    @property
    def listed(self) -> tuple[Case, ...]:
        """Every value without a score."""
        return tuple(case for case in self.cases if case.why_not)


def validate(
    family: str | None = None, values: Mapping[str, float] | None = None, own: Sequence[Path] = ()
) -> Validation:
    """Score the model against published measurements.

    Parameters
    ----------
    family : str, optional
        Such as ``T1``; all families without it.
    values : mapping, optional
        Values of held-out rows, see `mc2perf.readers.measurements.read_values`; scored apart.
    own : sequence of path
        Folders with hardware profiles of your own, searched first.

    Returns
    -------
    Validation
        Every value of every row, scored or with the reason why not.

    Raises
    ------
    InputError
        An unknown family or unknown values, one line each.

    Examples
    --------
    >>> found = validate("T2")
    >>> [score.values for score in found.scores if score.by == "all"]
    [5]
    """
    families = load_measurements(family, values)
    load_machine(DEFAULT_HARDWARE, own, {})  # a folder that is not there is said once, not for every row
    ask = _Asking(tuple(own))
    cases = tuple(
        _case(found, row, value, ask) for found in families for row in found.rows for value in row.values
    )
    pairs = scored(cases)
    return Validation(
        families=families, cases=cases, scored=pairs, scores=scores(pairs), checks=checks(families, cases)
    )


def kernels(path: Path, hardware: str, own: Sequence[Path] = ()) -> list[KernelScore]:
    """Score one machine against tables of measured kernels.

    Parameters
    ----------
    path : Path
        A table or a folder with tables, see `mc2perf.readers.kernels.read_kernels`.
    hardware : str
        Profile of the machine they were measured on.
    own : sequence of path
        Folders with hardware profiles of your own, searched first.
    """
    return score_kernels(read_kernels(path), load_machine(hardware, own, {}))


def _case(family: Family, row: Row, value: Value, ask: _Asking) -> Case:
    """One value, asked if it can be. The measured number is never looked at."""
    question = row.question(value)
    unpriced = tuple(sorted((question.keys() & _unpriced(question)) - value.at.keys()))
    case = Case(
        family=family.family, row=row, value=value, assumed=_assumed(row, question), unpriced=unpriced
    )
    try:
        _refuse(_why_not(row, value, question))
        left = ask.chosen(question)
        asked = ask({**question, **left})
        return replace(case, asked=asked, assumed={**case.assumed, **left})
    except InputError as error:
        return replace(case, reason="; ".join(error.problems))


def _assumed(row: Row, question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Inputs behind a prediction that no source states: of the row, and defaults that stand in."""
    found = dict(row.assumed)
    for name, default in {**_defaults(), "schedule": "serial"}.items():
        stands_in = name == "schedule" or name in row.unstated
        if stands_in and name not in question and isinstance(default, Plain):
            found[name] = default
    return found


def _refuse(problems: Iterator[str]) -> None:
    if found := list(problems):
        raise InputError(found)


def _why_not(row: Row, value: Value, question: Mapping[str, Plain]) -> Iterator[str]:
    """Why a value is not asked, as far as its row tells."""
    if row.outside:
        yield f"outside: {row.outside}"
        return
    alone = {*EXCHANGES, *({GROUPED_MATMUL} if row.target == GROUPED_MATMUL else ())}
    needed = [name for name in row.needs if name in question.values() and name not in alone]
    if needed:
        yield from (f"needs {name}: {row.needs[name]}" for name in needed)
        return
    if value.quantity not in (("time",) if _is_part(question) else QUANTITIES):
        yield f"quantity: nothing predicts {value.quantity} yet"
    if question.get("phase") != PHASES.get(value.quantity, question.get("phase")):
        yield f"quantity: {value.quantity} is of {PHASES[value.quantity]}"
    if (
        value.quantity in YIELDS
        and "mtp" in question
        and not {"mtp_acceptance", "mtp_accepted"} & set(question)
    ):
        yield f"unstated: mtp_acceptance, on which {value.quantity} depends"
    if value.quantity in GAINS and _schedule(question) == "serial":
        yield f"quantity: {value.quantity} of serial over itself, or of something that is no schedule"
    known = question.keys() | ({"parallel"} if _is_decode(question) else set())
    left_out = [name for name in row.unstated if name in DECIDES and name not in known]
    if left_out:
        yield f"unstated: {', '.join(left_out)}"
    yield from _unasked(question)


def _unasked(question: Mapping[str, Plain]) -> Iterator[str]:
    """Inputs that no scenario has, and those that are priced in another way."""
    own = OF_OPERATORS if is_operator(str(question["target"])) else SIZES | OF_MODELS
    own = OF_PARTS if _is_part(question) else own | (OF_DECODE if _is_decode(question) else frozenset())
    unknown = sorted(question.keys() - (_defaults().keys() | own | _unpriced(question) | {"target"}))
    if unknown:
        yield f"inputs: {', '.join(unknown)} cannot be asked yet"
    for name, only in ONLY.items():
        if question.get(name, only) != only:
            yield f"inputs: {name} {question[name]} is not what is priced"
    if "system" in question and "schedule" not in question:
        yield f"inputs: how {question['system']} overlaps is none of the schedules"
    batches = 2 if _schedule(question) == "dual_batch" else 1
    if question.get("prefill_micro_batches", batches) != batches:
        yield f"inputs: prefill_micro_batches is not the {batches} of {_schedule(question)}"


def _unpriced(question: Mapping[str, Plain]) -> frozenset[str]:
    """Inputs that are known and not priced."""
    return UNPRICED | UNPRICED_IN_PARTS if _is_part(question) else UNPRICED


def _is_part(question: Mapping[str, Plain]) -> bool:
    """Whether it is a part of an expert layer alone."""
    return question["target"] in (*EXCHANGES, GROUPED_MATMUL)


def _is_decode(question: Mapping[str, Plain]) -> bool:
    """Whether it is a decode step of a model."""
    return question.get("phase") == "decode" and not is_operator(str(question["target"]))


def _schedule(question: Mapping[str, Plain]) -> str:
    """The schedule: serial unless stated, or MC2 where a fused operator is named."""
    return str(question.get("schedule", "mc2" if "fused_operator" in question else "serial"))


@cache
def _defaults() -> dict[str, object]:
    """Every input of a scenario with its default."""
    return {spec.name: spec.default for spec, _ in inputs()}


# --- asking ------------------------------------------------------------------------------------------------


class _Asking:
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
        if _is_part(question):
            return _asked_part(question, machine, self._part_time(question, machine))
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
        if not _is_decode(question) or "hardware" not in question:
            return {}
        machine = self._machine(str(question["hardware"]))
        experts = sized(self._model(str(question["target"])), question).experts
        per_card = DIES_PER_CARD if machine.rank == "die" else 1.0
        return decode_choices(question, per_card, experts.count if experts else 0)

    def _part_time(self, question: Mapping[str, Plain], machine: Machine) -> float:
        """Time of a part alone, as the expert layer has it."""
        if question["target"] == GROUPED_MATMUL:
            return grouped_matmul_time(question, machine)
        scenario, _ = read_scenario(MOE_LAYER, exchange_inputs(question, machine))
        segments = self._answer(scenario, machine, None).rows[0].segments
        return segments[EXCHANGES[str(question["target"])]]

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
    ranks = _number(answer.resolved["npus"])
    npus = _number(question["npus"]) if "dies" in question and "npus" in question else ranks
    per_card = DIES_PER_CARD if machine.rank == "die" else 1.0
    cards = _number(question["cards"]) if "cards" in question else ranks / per_card
    peak = float(machine.cube.peak[scenario.dtype])
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
        bytes_time=weights * DTYPES[scenario.dtype].size / float(machine.memory.bandwidth),
        peak=float(stated[0]) * UNITS[stated[1]] if stated else None,
        baseline=_number(question.get("baseline_throughput", 100.0)),
    )


def _asked_part(question: Mapping[str, Plain], machine: Machine, time: float) -> Asked:
    """A part of a layer: nothing but its time, and for a matmul what the naive model knows of it."""
    dtype, matmul = str(question.get("dtype", "bf16")), question["target"] == GROUPED_MATMUL
    m, n, k, held = (_number(question.get(name, 0)) for name in ("m", "n", "k", "experts_per_rank"))
    peak, ranks = float(machine.cube.peak[dtype]), _number(question.get("ranks", 1))
    return Asked(
        result=Result(schedule="serial", total_time=time, serial_time=time, speedup=1.0),
        ranks=ranks,
        npus=ranks,
        cards=ranks,
        ranks_per_server=float(machine.ranks_per_server),
        machine_peak=peak,
        flops_time=2.0 * m * n * k / peak if matmul else 0.0,
        bytes_time=held * n * k * DTYPES[dtype].size / float(machine.memory.bandwidth) if matmul else 0.0,
    )


def _number(value: object) -> float:
    """A number among plain values; lists and ranges are words."""
    if not isinstance(value, int | float):
        raise InputError([f"inputs: '{value}' is not one number"])
    return float(value)


def _work_of_operator(scenario: Scenario) -> tuple[float, float]:
    """FLOPs of an operator on one rank, and weights that the rank holds."""
    m, n, k = (_number(size) for size in (scenario.m, scenario.n, scenario.k))
    weights = n * k * scenario.experts_per_rank
    if scenario.target == MOE_LAYER:
        return 6.0 * m * scenario.top_k * n * k, 3.0 * weights
    ranks = scenario.ranks or 1.0
    return 2.0 * m * (ranks if OPERATORS[scenario.target].gathered else 1.0) * n * k, weights


def _work_of_model(model: Model, answer: Answer, result: Result) -> tuple[float, float]:
    """Time of the counted FLOPs at peak [s], and weights that a rank reads, once per micro-batch."""
    resolved = {name: _number(answer.resolved.get(name, 1.0)) for name in ("tp", "pp", "ep")}
    count = _number(answer.resolved.get("micro_batches_of_a_step", 1.0))
    routed = sum(group.count * model.routed_parameters(group) for group in model.layers)
    cut = resolved["ep"] if resolved["ep"] > 1.0 else resolved["tp"]
    held = (model.parameter_count - routed) / resolved["tp"] + routed / cut
    return result.mfu * result.total_time, count * held / resolved["pp"]


# --- inputs ------------------------------------------------------------------------------------------------


def operator_inputs(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """What an operator is asked with; the experts of all ranks give those of one.

    Examples
    --------
    >>> operator_inputs({"target": "moe_layer", "ranks": 4, "experts": 128})
    {'ranks': 4, 'experts_per_rank': 32.0, 'schedule': 'serial'}
    """
    given = {name: value for name, value in question.items() if name in _defaults()}
    if "experts" in question:
        local = _number(question["experts"]) / _number(question.get("ranks", 1))
        if given.setdefault("experts_per_rank", local) != local:
            raise InputError([f"experts: {question['experts']} on these ranks are {local:g} per rank"])
    return {**given, "schedule": _schedule(question)}


def exchange_inputs(question: Mapping[str, Plain], machine: Machine) -> dict[str, Plain]:
    """What the expert layer is asked with for its dispatch or combine, which do not depend on the width.

    Raises
    ------
    InputError
        Ranks of several servers without experts: how many copies cross once depends on them; or inputs
        that the exchange cannot do without.
    """
    missing = [name for name in ("m", "k", "top_k", "ranks") if name not in question]
    ranks = _number(question.get("ranks", 1))
    if ranks > float(next(iter(machine.tiers.values())).ranks) and "experts" not in question:
        missing.append("experts, on which the copies between servers depend")
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    # where the source says no experts, those of one server only need to be at least top_k
    experts = question.get("experts", ranks * max(1, ceil(_number(question["top_k"]) / ranks)))
    width = {"n": question.get("n", question["k"])}
    asked = {name: value for name, value in question.items() if name not in OF_PARTS}
    return operator_inputs({**asked, **width, "experts": experts, "schedule": "serial"})


def grouped_matmul_time(question: Mapping[str, Plain], machine: Machine) -> float:
    """Time of the matmul of a rank's experts; weights are read of those that are expected to get rows. [s]

    Parameters
    ----------
    question : mapping
        ``m`` rows of all local experts together, ``n``, ``k``, ``experts``, ``experts_per_rank``, ``top_k``.
    machine : Machine
        Where it runs.

    Raises
    ------
    InputError
        What is missing, rows that are not evenly spread, and a type that the machine has no rate for.

    Examples
    --------
    >>> rows = {"m": 1024, "n": 4096, "k": 7168, "experts": 256, "experts_per_rank": 256, "top_k": 8}
    >>> time = grouped_matmul_time({**rows, "dtype": "fp8"}, load_machine("h800_sxm", (), {}))
    >>> 256 * 4096 * 7168 / 3.35e12 < time
    True
    """
    names = ("m", "n", "k", "experts", "experts_per_rank", "top_k")
    dtype, missing = str(question.get("dtype", "bf16")), [name for name in names if name not in question]
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    if dtype not in machine.cube.peak:
        raise InputError([f"dtype: {machine.name} has no peak of {dtype}"])
    if _number(question.get("imbalance", 1)) != 1.0:
        raise InputError(["inputs: rows of a grouped matmul are priced evenly spread"])
    m, n, k, experts, local, top_k = (_number(question[name]) for name in names)
    touched = distinct_experts(experts, top_k, m * experts / local / top_k) * local / experts
    costs = Costs(machine, Ledger(), cuts_messages=True)
    cost = costs.matmul(GROUPED_MATMUL, m, n, k, dtype, local, touched)
    return float(cost.time)


def model_inputs(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """What a model is asked with: layout from NPUs, batch from requests, schedule serial unless stated.

    Parameters
    ----------
    question : mapping
        Inputs of a row.

    Returns
    -------
    dict
        Fields of a scenario.

    Raises
    ------
    InputError
        Numbers that contradict each other, and requests of which it is not said whose they are.

    Examples
    --------
    >>> asked = model_inputs({"target": "qwen3-8b", "npus": 8, "tp": 2, "prompt_len": 64, "requests": 4})
    Traceback (most recent call last):
    mc2perf.problems.InputError: requests: whether 4 are of one of 4 replicas or of all is not stated
    >>> model_inputs({"target": "qwen3-8b", "tp": 2, "prompt_len": 64, "requests": 4})["batch_size"]
    4
    """
    taken = _defaults().keys() - SIZES - {"nodes", "micro_batches"}
    given = {name: value for name, value in question.items() if name in taken}
    if _is_decode(question):
        return _decode_inputs(question, given)
    if "fused_operator" in question:
        given["sp"] = False  # a fused all-reduce leaves whole sequences on every rank
    if "prompt_len" in question:
        given["seq_len"] = question["prompt_len"]
    dp = _replicas(question)
    _refuse(_contradictions(question, dp))
    return {**given, "schedule": _schedule(question), "dp": dp, **_batch(question, dp)}


def _degree(question: Mapping[str, Plain], *names: str) -> float:
    found = 1.0
    for name in names:
        found *= _number(question.get(name, 1))
    return found


def _replicas(question: Mapping[str, Plain]) -> float:
    """Data-parallel ranks: stated, or what the NPUs leave, or what expert parallelism needs."""
    replica = _degree(question, "tp", "cp", "pp")
    ranks = question.get("dies", question.get("npus"))
    if "dp" in question:
        return _number(question["dp"])
    if ranks is not None:
        return _number(ranks) / replica
    return max(1.0, _degree(question, "ep") / _degree(question, "tp", "cp"))


def _contradictions(question: Mapping[str, Plain], dp: float) -> Iterator[str]:
    """Layout and batch that the row states twice."""
    ranks, layout = question.get("dies", question.get("npus")), _degree(question, "tp", "cp", "pp") * dp
    if dp != int(dp):
        yield f"npus: {ranks} do not divide by tp x cp x pp = {layout / dp:g}"
    elif ranks is not None and _number(ranks) != layout:
        yield f"npus: {ranks} are not tp x cp x pp x dp = {layout:g}"
    if "nodes" in question and ranks is None and "dp" not in question:
        yield f"npus: {question['nodes']} nodes without npus or dp leave the layout open"
    if {"global_batch_size", "micro_batches"} <= question.keys():
        samples = _degree(question, "micro_batches", "micro_batch_size") * dp
        if samples != _number(question["global_batch_size"]):
            yield f"global_batch_size: {question['global_batch_size']} is not that of {samples:g} samples"


def _batch(question: Mapping[str, Plain], dp: float) -> dict[str, Plain]:
    """Tokens of an NPU or samples of a replica, from what a server counts."""
    if "tokens" in question or "global_batch_size" in question:
        return {}
    if "tokens_per_npu" in question:
        per_rank = _degree(question, "npus") / _degree(question, "dies") if "dies" in question else 1.0
        return {"tokens": _number(question["tokens_per_npu"]) * per_rank}
    if "batch_tokens" in question:
        return {"tokens": _number(question["batch_tokens"]) / (_degree(question, "tp", "cp") * dp)}
    if "requests" not in question:
        return {}
    if dp > 1.0:
        message = f"whether {question['requests']} are of one of {dp:g} replicas or of all is not stated"
        raise InputError([f"requests: {message}"])
    return {"batch_size": question["requests"]}


# --- decode ------------------------------------------------------------------------------------------------


def decode_choices(question: Mapping[str, Plain], per_card: float, experts: int) -> dict[str, Plain]:
    """What is chosen where a row of decode leaves it open; every choice is listed beside the prediction.

    Parameters
    ----------
    question : mapping
        Inputs of the row.
    per_card : float
        Ranks of a card.
    experts : int
        Routed experts of the model, 0 for a dense one.

    Returns
    -------
    dict
        No host issues kernels, for servers replay a graph; no sequence is cut, for there is one token of
        it; attention computes in the type of the cache where one of both is stated; without a layout
        attention runs on every rank and experts over all; with more ranks than divide the experts, as where
        copies of experts or shared ones have ranks of their own, so many ranks as do, each with its batch;
        requests are those of all replicas.

    Examples
    --------
    >>> decode_choices({"cards": 8, "kv_dtype": "int8"}, 2.0, 64)
    {'host': 'graph', 'sp': False, 'attention_dtype': 'int8', 'dies': 16.0, 'tp': 1.0, 'ep': 16.0}
    >>> decode_choices({"ep": 72, "batch_per_npu": 4, "host": "eager", "sp": False}, 1.0, 256)
    {'ep': 64.0}
    """
    found: dict[str, Plain] = {"host": "graph", "sp": False}
    for name, other in (("kv_dtype", "attention_dtype"), ("attention_dtype", "kv_dtype")):
        if other in question:
            found[name] = question[other]
    if "cards" in question and not {"npus", "dies"} & question.keys():
        ranks = _number(question["cards"]) * per_card
        found["dies"] = ranks
        if not {"tp", "dp", "ep"} & question.keys():
            found |= {"tp": 1.0, "ep": ranks} if experts else {"tp": 1.0}
    left = {name: value for name, value in found.items() if name not in question}
    return {**left, **_fewer_ranks({**question, **left}, experts), **_of_all_replicas(question)}


def _fewer_ranks(question: Mapping[str, Plain], experts: int) -> dict[str, Plain]:
    """The layout with the most ranks that divide the experts, where the batch is one of a rank."""
    ep = _degree(question, "ep")
    if not experts or experts % ep == 0 or not {"batch_per_npu", "batch_per_die"} & question.keys():
        return {}
    most = max(ranks for ranks in range(1, min(int(ep), experts) + 1) if experts % ranks == 0)
    layout = ("ep", "dp", "npus", "dies", "cards")
    return {name: _number(question[name]) * most / ep for name in layout if name in question}


def _of_all_replicas(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Sequences of the fullest replica, which the others wait for, where requests are of several."""
    replicas = _replicas(question)
    if "requests" not in question or "batch_size" in question or replicas == 1.0:
        return {}
    return {"batch_size": ceil(_number(question["requests"]) / replicas)}


def _decode_inputs(question: Mapping[str, Plain], given: Mapping[str, Plain]) -> dict[str, Plain]:
    """What a decode step is asked with; a global batch is that of all replicas."""
    dp = _replicas(question)
    _refuse(_contradictions(question, dp))
    _refuse(_decode_contradictions(question))
    step = {name: value for name, value in given.items() if name != "global_batch_size"}
    return {
        **step, **_context(question), **_drafts(question), **_sequences(question, dp),
        "schedule": _schedule(question), "dp": dp,
    }  # fmt: skip


def _decode_contradictions(question: Mapping[str, Plain]) -> Iterator[str]:
    """Tokens of a step that are not one and the drafts, and a prompt whose answer is not said."""
    new = 1.0 + _number(question.get("mtp", 0))
    if question.get("tokens_per_request", new) != new:
        yield f"tokens_per_request: {question['tokens_per_request']} are not one and {new - 1.0:g} drafts"
    if "context_len" not in question and not {"prompt_len", "output_len"} <= question.keys():
        yield "unstated: context_len"


def _context(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Tokens in the cache: stated, or on average while an answer is written, in whole tokens."""
    if "context_len" in question:
        return {}
    prompt, output = _number(question["prompt_len"]), _number(question["output_len"])
    return {"context_len": round(float(mean_context(prompt, output)))}


def _drafts(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Drafts of a step and the chance of each, from the chance or from how many are accepted on average."""
    if "mtp" not in question:
        return {}
    drafts = _number(question["mtp"])
    if "mtp_accepted" not in question:
        return {"speculative_tokens": drafts, "acceptance": question.get("mtp_acceptance", 1.0)}
    accepted = _number(question["mtp_accepted"])
    if not 0.0 <= accepted <= drafts:
        raise InputError([f"mtp_accepted: {accepted:g} of {drafts:g} drafts"])
    chance = brentq(lambda chance: float(tokens_per_step(chance, drafts)) - 1.0 - accepted, 0.0, 1.0)
    return {"speculative_tokens": drafts, "acceptance": float(chance)}


def _sequences(question: Mapping[str, Plain], dp: float) -> dict[str, Plain]:
    """Sequences of a replica; of the fullest one, which the others wait for, where they are not even."""
    if "batch_size" in question:
        return {}
    replica = _degree(question, "tp", "cp", "pp")
    if "batch_per_die" in question:
        return {"batch_size": _number(question["batch_per_die"]) * replica}
    if "batch_per_npu" in question:
        per_rank = _degree(question, "npus") / _degree(question, "dies") if "dies" in question else 1.0
        return {"batch_size": _number(question["batch_per_npu"]) * per_rank * replica}
    whole = {"global_batch_size", "requests"} & question.keys()
    if not whole:
        raise InputError(["unstated: batch_size"])
    return {"batch_size": ceil(_number(question[min(whole)]) / dp)}


# --- models of other sizes ---------------------------------------------------------------------------------


def sized(model: Model, sizes: Mapping[str, Plain]) -> Model:
    """A shipped model with the sizes that a row states.

    Parameters
    ----------
    model : Model
        The shipped one.
    sizes : mapping
        Such as ``num_layers`` or ``experts``; other names are passed over.

    Returns
    -------
    Model
        Groups of layers are scaled where a model is cut, dense ones to ``dense_layers`` if given. Head
        widths follow hidden size over heads where they do so in the shipped model.

    Raises
    ------
    InputError
        Experts of a dense model, or none of another.

    Examples
    --------
    >>> cut = sized(load_model("deepseek-v3"), {"num_layers": 4, "dense_layers": 1})
    >>> [(group.count, group.ffn) for group in cut.layers]
    [(1, 'dense'), (3, 'moe')]
    """
    given = {name: int(_number(value)) for name, value in sizes.items() if name in SIZES}
    hidden = given.get("hidden_size", model.hidden_size)
    return replace(
        model,
        hidden_size=hidden,
        vocab_size=given.get("vocab_size", model.vocab_size),
        dense_width=given.get("dense_width", model.dense_width),
        mixers={
            name: _mixer(mixer, given, model.hidden_size, hidden) for name, mixer in model.mixers.items()
        },
        experts=_experts(model, given, hidden),
        layers=_layers(model, given),
    )


def _mixer(mixer: Attention, given: Mapping[str, int], shipped: int, hidden: int) -> Attention:
    if mixer.kind == "linear":
        return mixer
    own = {name: given[name] for name in MIXER_SIZES & given.keys()}
    if not mixer.window:
        own.pop("window", None)
    heads = own.get("heads", mixer.heads)
    if mixer.kv_heads == mixer.heads:
        own.setdefault("kv_heads", heads)
    if mixer.heads * mixer.head_dim == shipped and "head_dim" not in own:
        own |= {"head_dim": hidden // heads, "v_head_dim": hidden // heads}
    kept: dict[str, Any] = own
    return replace(mixer, **kept)


def _experts(model: Model, given: Mapping[str, int], hidden: int) -> Experts | None:
    own = {ours: given[word] for word, ours in EXPERT_SIZES.items() if word in given}
    if model.experts is None:
        if own.get("count"):
            raise InputError([f"experts: {model.name} is dense and the row has {own['count']}"])
        return None
    if own.get("count") == 0:
        raise InputError([f"experts: {model.name} has experts and the row none"])
    if model.experts.payload_width == model.hidden_size:
        own["payload_width"] = hidden
    return replace(model.experts, **own)


def _layers(model: Model, given: Mapping[str, int]) -> tuple[LayerGroup, ...]:
    """Groups of layers, as many as stated."""
    total = given.get("num_layers", model.num_layers)
    if "dense_layers" not in given or model.experts is None:
        return _scaled(model.layers, total)
    dense = tuple(group for group in model.layers if group.ffn == "dense")
    other = tuple(group for group in model.layers if group.ffn != "dense")
    first = dense or (LayerGroup(count=1, mixer=other[0].mixer, ffn="dense"),)
    return (*_scaled(first, given["dense_layers"]), *_scaled(other, total - given["dense_layers"]))


def _scaled(groups: Sequence[LayerGroup], total: int) -> tuple[LayerGroup, ...]:
    """The same groups with ``total`` layers in all, in proportion; ends are rounded, none is made up."""
    whole, end, made = sum(group.count for group in groups), 0, []
    for group in groups:
        begin, end = end, end + group.count
        count = round(end * total / whole) - round(begin * total / whole)
        made.append(replace(group, count=count))
    return tuple(group for group in made if group.count)
