"""From the words of a check to its answers: what is judged, on which machine, every problem at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mc2perf.operators import MOE_LAYER, TARGETS
from mc2perf.problems import InputError
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.question import read_question
from mc2perf.readers.scenarios import scenario_tree
from mc2perf.resolve import as_columns, model_layout
from mc2perf.rules.catalogue import OPERATORS
from mc2perf.scenario import Scenario
from mc2perf.studies.check import Check, Question, asked_of, checks, ranks_of


def ask_check(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    operators: str = "",
    own: Sequence[Path] = (),
) -> tuple[Question, tuple[Check, ...], tuple[Check, ...]]:
    """Judge every operator of a target.

    Parameters
    ----------
    target : str
        An operator (priced or not), a model, a ``config.json`` or a scenario file.
    given : mapping
        Inputs.
    overrides : mapping
        Overrides of the hardware profile.
    operators : str
        Names, with commas between: show these only.
    own : sequence of path
        Folders with profiles of your own.

    Returns
    -------
    tuple
        The question with its numbers filled in, the checks asked for, and all of them.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> given = {"m": 27, "k": 7168, "ranks": 16, "experts_per_rank": 16, "top_k": 8}
    >>> _, shown, _ = ask_check("moe_distribute_dispatch", {**given, "hardware": "atlas_800t_a3"}, {})
    >>> shown[0].version, shown[0].findings[0].text, [change.flag for change, in shown[0].mends[:2]]
    ('v1', 'needs 201.1 MB of HCCL_BUFFSIZE, has 200', ['--hccl-buffsize 202', '-m 26'])
    """
    question = ask_question(target, given, overrides, own)
    every = checks(question)
    names = [name.strip() for name in operators.split(",") if name.strip()]
    return question, asked_of(every, names), every


def ask_question(
    target: str, given: Mapping[str, object], overrides: Mapping[str, str], own: Sequence[Path] = ()
) -> Question:
    """Read what is to be judged, with the numbers it resolves to filled in.

    Raises
    ------
    InputError
        Every problem, one line each.
    """
    unpriced = target if target in OPERATORS and target not in TARGETS else ""
    scenario, machine, model = read_question(MOE_LAYER if unpriced else target, given, overrides, own)
    question = Question(
        scenario=scenario,
        machine=machine,
        model=model,
        operator=unpriced,
        load=lambda name: load_machine(name, own),
    )
    return replace(question, scenario=_filled(question))


def _filled(question: Question) -> Scenario:
    """The scenario with what defaults stand for, so that a change is a change of what is there."""
    scenario, model = question.scenario, question.model
    if model is None:
        return replace(scenario, ranks=ranks_of(question))
    layout, _, reasons = model_layout(as_columns(scenario), question.machine, model)
    if reasons:
        raise InputError([reason.text for reason in reasons])
    filled = replace(scenario, ep=layout.ep if model.experts else None)
    if scenario.phase == "decode":
        samples = 1.0 if scenario.batch_size is None else scenario.batch_size
        return replace(filled, batch_size=samples)
    tokens = float(np.asarray(layout.tokens).item())
    return replace(filled, tokens=tokens, batch_size=None, seq_len=None, micro_batch_size=None)


def check_tree(question: Question, overrides: Mapping[str, str]) -> dict[str, object]:
    """The question as inputs that can be asked again."""
    tree = scenario_tree(question.scenario, overrides)
    return tree | ({"target": question.operator} if question.operator else {})
