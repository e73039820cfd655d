"""Layouts that could lie behind a number whose configuration nobody states: what each would give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mc2perf import evaluate
from mc2perf.answer import Answer, Row
from mc2perf.costs import link_bandwidth
from mc2perf.equations import claims as equations
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import DTYPES
from mc2perf.problems import InputError
from mc2perf.resolve import default_ep
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of

OVERLAPPED = ("mc2", "micro_batch", "dual_batch")
"""Schedules that may lie behind a claim of overlap that names none; CoC excludes MC2."""

FUSED = ("serial", "mc2")
"""Schedules that count even where they overlap nothing."""

Inputs = dict[str, Any]
Fill = Callable[[Machine, Model, float], Inputs]
"""Machine, model and NPUs to inputs."""


def _experts(machine: Machine, model: Model, npus: float) -> Inputs:
    return {"ep": default_ep(float(model.experts.count), npus)} if model.experts else {}


@dataclass(frozen=True)
class Choice:
    """One way to fill inputs that a claim leaves open, of models with experts, without, or both."""

    name: str
    fill: Fill
    moe: tuple[bool, ...] = (True, False)


def _fixed(**inputs: Any) -> Fill:
    return lambda *_: inputs


@dataclass(frozen=True)
class Question:
    """Inputs that belong together, what stands for them where a claim states none, and in which phases."""

    inputs: tuple[str, ...]
    choices: tuple[Choice, ...]
    phases: tuple[str, ...] = ("train", "prefill", "decode")


PLACES = (
    Question(
        ("nodes", "dp"),
        (Choice("1 server", _fixed(nodes=1.0)), Choice("2 servers", _fixed(nodes=2.0))),
    ),
    Question(("rdma",), (Choice("", _fixed()), Choice("no RDMA", _fixed(rdma=False)))),
)
"""Where it may run."""

LAYOUTS = (
    Question(
        ("ep", "tp", "pp", "cp"),
        (
            Choice("EP", _experts, moe=(True,)),
            Choice("DP", _fixed(tp=1.0), moe=(False,)),
            Choice("TP", lambda machine, model, npus: {"tp": npus}),
        ),
    ),
    Question(
        ("seq_len", "batch_size", "tokens", "micro_batch_size"),
        (Choice("4096 tokens", _fixed(seq_len=4096.0)), Choice("256 tokens", _fixed(seq_len=256.0))),
        phases=("train", "prefill"),
    ),
    Question(
        ("batch_size", "tokens"),
        tuple(Choice(f"{n} sequences", _fixed(batch_size=float(n))) for n in (1, 32, 256)),
        phases=("decode",),
    ),
    Question(
        ("global_batch_size",),
        (
            Choice("layers alone", _fixed()),
            Choice("whole step", lambda machine, model, npus: {"global_batch_size": npus}),
        ),
        phases=("train",),
    ),
)
"""How it may be laid out; every combination is tried."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A prediction for one layout, place and schedule. Rates are of one NPU.

    ``wire_bytes`` is what an NPU sends per token of its own for experts and tensor parallelism,
    ``bandwidth`` that of the fastest links it uses; ``unit`` says what an NPU is here: npu, die or gpu.
    """

    layout: str
    place: str
    parallel: str
    schedule: str
    note: str
    inputs: Mapping[str, Any]
    comm_ratio: float
    tokens_per_second: float
    tokens_per_second_without_comm: float
    flops_per_token: float
    peak: float
    unit: str
    wire_bytes: float
    bandwidth: float


def candidates_for(
    scenario: Scenario,
    stated: Mapping[str, object],
    overlapped: bool,
    machine: Machine,
    model: Model,
    known: dict[Scenario, tuple[Answer, Study]],
) -> list[Candidate]:
    """Every layout that the stated inputs allow, under the schedules they allow.

    Parameters
    ----------
    scenario : Scenario
        With all stated inputs.
    stated : mapping
        Which inputs are stated; the others vary.
    overlapped : bool
        Whether the claim overlaps; a stated schedule wins.
    machine, model : Machine, Model
        Where and what.
    known : dict
        Estimates on this machine that were made already; new ones are added.

    Returns
    -------
    list of Candidate
        Without those that contradict themselves, and without doubles.

    Raises
    ------
    InputError
        Every layout contradicts the stated inputs.
    """
    found: dict[tuple[object, ...], Candidate] = {}
    problems: list[str] = []
    for layout, asked in _asked(scenario, stated, machine, model):
        try:
            if asked not in known:
                known[asked] = evaluate.estimate(asked, machine, model), study_of(asked, machine, model)
        except InputError as error:  # more ranks than NPUs, heads that do not divide
            problems += error.problems
            continue
        answer, study = known[asked]
        for row in _rows(answer, stated, overlapped):
            made = _candidate(study, answer, row, layout, asked)
            found.setdefault((made.layout, row.comm_ratio, row.tokens_per_second), made)
    if problems and not found:
        raise InputError(problems)
    return list(found.values())


def _asked(
    scenario: Scenario, stated: Mapping[str, object], machine: Machine, model: Model
) -> Iterator[tuple[str, Scenario]]:
    """Layout and question of every combination."""
    places = [_open(question, stated, scenario, model) for question in PLACES]
    layouts = [_open(question, stated, scenario, model) for question in LAYOUTS]
    for place, layout in itertools.product(itertools.product(*places), itertools.product(*layouts)):
        where = replace(scenario, **_filled(place, machine, model, 1.0), schedule="all")
        npus = (where.nodes or 1.0) * machine.ranks_per_server
        inputs = _filled(layout, machine, model, npus)
        if "global_batch_size" in inputs:  # one sample for every data-parallel replica: the least step
            inputs["global_batch_size"] = _replicas(replace(where, **inputs), npus)
        name = ", ".join(choice.name for choice in layout if choice.name)
        yield name or "as stated", replace(where, **inputs)


def _filled(choices: Iterable[Choice], machine: Machine, model: Model, npus: float) -> Inputs:
    """What the choices put into a scenario."""
    return {name: v for choice in choices for name, v in choice.fill(machine, model, npus).items()}


def _replicas(scenario: Scenario, npus: float) -> float:
    return max(npus // (scenario.tp * scenario.cp * scenario.pp), 1.0)


def _open(
    question: Question, stated: Mapping[str, object], scenario: Scenario, model: Model
) -> tuple[Choice, ...]:
    """The choices of a question, or none to make where it is answered or not asked."""
    if scenario.phase not in question.phases or any(name in stated for name in question.inputs):
        return (Choice("", _fixed()),)
    return tuple(choice for choice in question.choices if (model.experts is not None) in choice.moe)


def _rows(answer: Answer, stated: Mapping[str, object], overlapped: bool) -> Iterator[Row]:
    names = OVERLAPPED if overlapped else ("serial",)
    if "schedule" in stated and stated["schedule"] != "all":
        names = (str(stated["schedule"]),)
    # a schedule that has nothing to overlap backs no claim; of fused operators it is worth knowing
    legal = (row for row in answer.legal_rows if row.schedule in names)
    return (row for row in legal if row.schedule in FUSED or not row.reason)


def _place(study: Study, asked: Scenario) -> str:
    servers = study.npus / study.costs.machine.ranks_per_server
    return f"{servers:g} server{'s' if servers > 1 else ''}{'' if asked.rdma else ', no RDMA'}"


def _candidate(study: Study, answer: Answer, row: Row, layout: str, asked: Scenario) -> Candidate:
    tokens = row.tokens_per_second * row.total_time
    wire, ranks = wire_bytes(study)
    spanned = study.costs.tiers_for(ranks)
    degrees = {
        name: float(str(answer.resolved[name]))
        for name in ("ep", "tp", "pp", "cp")
        if name in answer.resolved
    }
    return Candidate(
        layout=layout,
        place=_place(study, asked),
        parallel=", ".join(f"{name} {n:g}" for name, n in degrees.items() if n > 1.0) or "none",
        schedule=row.schedule,
        note=row.reason,
        inputs={name: answer.resolved[name] for name in ("nodes", "ep", "tp", "seq_len", "tokens_per_npu")},
        comm_ratio=row.comm_ratio,
        tokens_per_second=row.tokens_per_second,
        tokens_per_second_without_comm=tokens / (row.total_time - row.exposed_comm_time),
        flops_per_token=np.asarray(study.model_flops).item(),
        peak=float(study.costs.machine.cube.peak[asked.cube_dtype]),
        unit=study.costs.machine.rank,
        wire_bytes=wire,
        bandwidth=max(link_bandwidth(tier, min(ranks, float(tier.ranks))) for _, tier in spanned),
    )


def wire_bytes(study: Study) -> tuple[float, float]:
    """Bytes an NPU sends per token of its own for experts and tensor parallelism; ranks of the larger group.

    Gradients, pipeline and context parallelism are not in it.
    """
    model, layout, phase = study.model, study.layout, study.scenario.phase
    assert model is not None and layout is not None
    passes = 2.0 if phase == "train" else 1.0
    item = DTYPES[layout.dtype].size
    exchanged = gathered = 0.0
    if model.experts and layout.etp > 1:
        # copies of tokens, or the tokens themselves, gathered before their experts and scattered after
        copies = model.experts.top_k if layout.dispatcher == "all_to_all" else 1.0
        width = model.experts.payload_width * copies
        gathered = float(equations.tensor_parallel_bytes(
            2.0 * passes, model.num_moe_layers, width, item, layout.etp
        ))  # fmt: skip
    if model.experts and layout.ep > 1 and layout.dispatcher == "all_to_all":
        sizes = (DTYPES[layout.dispatch_dtype].size + DTYPES[layout.combine_dtype].size) / 2.0
        exchanged = float(equations.expert_exchange_bytes(
            passes, model.num_moe_layers, model.experts.top_k, model.experts.payload_width, sizes, layout.ep
        ))  # fmt: skip
    collectives = 5.0 if phase == "train" else 2.0
    cut = 2.0 * model.num_layers - model.num_moe_layers
    dense = float(equations.tensor_parallel_bytes(collectives, cut, model.hidden_size, item, layout.tp))
    return exchanged + gathered + dense, max(layout.ep, layout.tp)
