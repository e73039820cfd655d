"""From the words of a question about paths to its answer: machine, model, how serving was started."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.problems import Problems, did_you_mean
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, named
from mc2perf.readers.scenarios import number, read_scenario
from mc2perf.resolve import default_ep, npus_of
from mc2perf.rules.selector import CAPS
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.paths import Paths, Serving, paths_of
from mc2perf.units import COUNT

NUMBERS = ("max_num_batched_tokens", "max_num_seqs", "graph_size", "mega_moe_max_tokens")
"""Numbers of a serving stack that are given as text."""

MOST_TOKENS = 8192.0
"""Token counts are tried up to here, or up to what a step may have."""


def ask_paths(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    started: Mapping[str, object],
    own: Sequence[Path] = (),
) -> tuple[Scenario, Paths]:
    """Which path an MoE layer takes, which is fastest.

    Parameters
    ----------
    target : str
        A model, a ``config.json`` or a scenario file.
    given, overrides : mapping
        Inputs; overrides of the hardware profile.
    started : mapping
        How serving was started: fields of :class:`mc2perf.studies.paths.Serving`, numbers as text.
    own : sequence of path
        Folders with profiles of your own.

    Returns
    -------
    tuple
        The scenario with its degrees filled in, and the answer for every number of tokens.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> _, found = ask_paths("qwen3-235b-a22b", {"ep": 8}, {}, {})
    >>> sorted(set(found.taken))
    ['all_gather']
    """
    problems = Problems()
    scenario, from_file = read_scenario(target, given)
    if is_operator(scenario.target):
        problems.append(f"target: '{scenario.target}' is an operator; paths are of models")
    serving = _serving(started, scenario.speculative_tokens + 1.0, problems)
    problems.refuse()
    machine, model = load_machine(scenario.hardware, own, {**from_file, **overrides}), load_model(target)
    scenario = _with_degrees(named(scenario, machine), machine, model)
    most = max(MOST_TOKENS, serving.max_num_batched_tokens)
    if scenario.tokens is not None:
        most = float(np.asarray(scenario.tokens).item()) * scenario.tp
    tokens = scenario.tp * np.arange(1.0, math.ceil(most / scenario.tp) + 1.0)
    return scenario, paths_of(scenario, machine, model, serving, tokens)


def _with_degrees(scenario: Scenario, machine: Machine, model: Model) -> Scenario:
    """Serving spreads experts over every rank that they divide over, tensor-parallel ones too."""
    if scenario.ep or model.experts is None:
        return scenario
    npus = npus_of(scenario, machine, scenario.tp)
    return replace(scenario, ep=default_ep(float(model.experts.count), npus))


def _serving(started: Mapping[str, object], query_len: float, problems: list[str]) -> Serving:
    known: dict[str, object] = {name: value for name, value in started.items() if value is not None}
    for name in NUMBERS:
        if name in known:
            try:
                known[name] = number(known[name], COUNT)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    fused = str(known.get("fused", "off"))
    if fused not in CAPS:
        problems.append(f"fused: '{fused}' is not known{did_you_mean(fused, CAPS)}")
    return Serving() if problems else replace(Serving(query_len=query_len), **known)  # type: ignore[arg-type]
