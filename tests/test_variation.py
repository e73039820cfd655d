"""Machines whose numbers are columns: row by row the same as one machine at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mc2perf.costs import Costs, Ledger
from mc2perf.machine import Machine
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.readers.scenarios import read_scenario
from mc2perf.results import Results
from mc2perf.scenario import SCHEDULES, is_operator
from mc2perf.step import base_line, laid
from mc2perf.study import Study, study_of
from mc2perf.variation import Parameter, parameters, varied

QUESTIONS: dict[str, dict[str, Any]] = {
    "knee": {"target": "matmul_all_reduce", "m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"},
    "steps": {"target": "all_gather_matmul", "m": 8192, "n": 4096, "k": 7168, "hardware": "atlas_800t_a2_b2",
              "matmul_rule": "vendor_model"},
    "curve": {"target": "all_to_all_matmul", "m": 8192, "n": 4096, "k": 7168, "ranks": 8,
              "hardware": "ascend_950dt"},
    "linear": {"target": "all_to_all_matmul", "m": 8192, "n": 4096, "k": 7168, "ranks": 8,
               "hardware": "ascend_950pr"},
    "constant": {"target": "mixtral-8x7b", "hardware": "h800_sxm"},
    "cliffs": {"target": "deepseek-v3", "hardware": "atlas_800t_a3", "ep": 32, "dtype": "int8",
               "phase": "prefill"},
    "servers": {"target": "deepseek-v3", "hardware": "atlas_800i_a2", "ep": 32, "phase": "decode",
                "batch_size": 64},
    "step": {"target": "llama-2-13b", "hardware": "atlas_800t_a2", "tp": 8, "pp": 2, "global_batch_size": 512,
             "micro_batch_size": 4, "recompute": "selective"},
}  # fmt: skip

ROWS = 5


def times(study: Study) -> dict[str, np.ndarray[Any, Any]]:
    """The best time of every legal schedule, a column."""
    serial = base_line(study)
    base = Results(study, serial, None)
    outcomes = [laid(study, name, serial) for name in SCHEDULES]
    return {
        o.schedule: np.min(np.where(o.refused_at, np.inf, Results(study, o, base).total), -1, keepdims=True)
        for o in outcomes
        if not o.refused_at.all()
    }


def asked(given: dict[str, Any]) -> Any:
    """What prices a machine under a question, and that machine."""
    scenario, _ = read_scenario(given["target"], {k: v for k, v in given.items() if k != "target"})
    model = None if is_operator(scenario.target) else load_model(scenario.target)
    return (lambda machine: study_of(scenario, machine, model)), load_machine(scenario.hardware)


def speeds(machine: Machine) -> list[Parameter]:
    return [p for p in parameters(machine) if not p.whole and not p.fixed]


@pytest.mark.parametrize("name", QUESTIONS)
def test_columns_are_single_machines_side_by_side(name: str) -> None:
    study, machine = asked(QUESTIONS[name])
    noise = np.random.default_rng(7)
    columns: dict[str, Any] = {
        p.path: p.within(p.quantity * np.exp(0.3 * noise.standard_normal((ROWS, 1)))) for p in speeds(machine)
    }
    together = times(study(varied(machine, columns)))
    for row in range(ROWS):
        single = times(study(varied(machine, {path: float(c[row, 0]) for path, c in columns.items()})))
        assert together.keys() == single.keys()
        for schedule, time in single.items():
            here = np.broadcast_to(together[schedule], (ROWS, 1))[row]
            np.testing.assert_allclose(here, time.ravel(), rtol=1e-14)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_moves_the_time_is_in_the_ledger(name: str) -> None:
    study, machine = asked(QUESTIONS[name])
    at_base = study(machine)
    base, used = times(at_base), {id(q) for q in at_base.costs.ledger.used.values()}
    found = speeds(machine)
    columns: dict[str, Any] = {p.path: np.full((len(found), 1), float(p.quantity)) for p in found}
    for row, p in enumerate(found):
        columns[p.path][row] = p.within(p.quantity * 1.1)
    for schedule, time in times(study(varied(machine, columns))).items():
        moved = np.flatnonzero(np.broadcast_to(time, (len(found), 1)) != base[schedule])
        assert moved.size and all(id(found[row].quantity) in used for row in moved)


@pytest.mark.parametrize("name", profile_names())
def test_every_number_has_a_dimension_that_it_obeys(name: str) -> None:
    found = parameters(load_machine(name))
    assert len({p.path for p in found}) == len(found)
    for p in found:
        assert p.quantity.symbol == p.dim.symbol
        assert p.within(float(p.quantity)) == p.quantity
        low, high = p.within(0.9 * p.quantity), p.within(1.1 * p.quantity)
        assert p.dim.signed or (p.dim.at_least <= low <= p.quantity <= high <= p.dim.at_most)


def test_a_path_that_is_no_place_is_refused() -> None:
    with pytest.raises(KeyError):
        varied(load_machine("atlas_800i_a2"), {"tiers.moon.link_rate": 1.0})


@pytest.mark.parametrize("name", profile_names())
def test_slower_links_carry_no_size_faster_than_they_could(name: str) -> None:
    # a flat start of a curve is a wait, not bandwidth: cut into many short messages, even a large array must
    # not pass slow links faster than the best size passes the links of the fit, slowed down
    machine, sizes = load_machine(name), np.logspace(2.0, 10.0, 200)
    for at, tier in machine.tiers.items():
        slow = varied(machine, {f"tiers.{at}.link_rate": tier.link_rate / 300.0})
        for engine, drives in tier.engines.items():
            for collective in drives.curves:
                for ranks in (2.0, min(float(tier.ranks), 16.0)):
                    asked = (collective, collective, sizes, ranks)
                    fast = Costs(machine, Ledger(), engine, cuts_messages=True).collective(*asked)
                    late = Costs(slow, Ledger(), engine, cuts_messages=True).collective(*asked)
                    best = np.min(np.asarray(fast.work) / sizes)
                    assert np.all(np.asarray(late.work) / sizes >= 100.0 * best)


def test_a_formula_chooses_a_count_for_every_machine() -> None:
    given = {**QUESTIONS["linear"], "policy": "closed_form"}
    study, machine = asked(given)
    rates = np.array([[0.05], [0.3], [1.0], [4.0]]) * machine.tiers["node"].link_rate
    path = "tiers.node.link_rate"
    together = times(study(varied(machine, {path: rates})))["mc2"]
    single = [times(study(varied(machine, {path: float(rate)})))["mc2"].item() for rate in rates[:, 0]]
    assert together.ravel().tolist() == pytest.approx(single, rel=1e-14)
