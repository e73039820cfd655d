"""Scans of few tiles: what they tell, and that they do not tell what they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mc2perf.machine import Machine
from mc2perf.quantity import replaced
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.studies.calibrate.result import NotFittedError, Origin
from mc2perf.studies.calibrate.scans import Scan, fit_scans, scan_times

BASE = load_machine(str(Path(__file__).parents[1] / "scripts" / "cpu_gloo.yaml"))
ENGINE = ("tiers", "node", "engines", "gloo")
KNOWN = ("all_to_all, 2 ranks", "matmul, bf16")
FEW, MANY = np.array([1.0, 2.0]), np.array([4.0, 8.0, 16.0])


def changed(machine: Machine, **numbers: float) -> Machine:
    """A machine with other numbers of its engine."""
    for name, number in numbers.items():
        machine = replaced(machine, (*ENGINE, name), number)
    return machine


def scans(machine: Machine, counts: Any, noise: float = 0.0) -> list[Scan]:
    rng, found = np.random.default_rng(3), []
    for operator in ("all_to_all_matmul", "matmul_all_to_all"):
        for n in (256.0, 512.0, 1024.0, 2048.0):
            scenario = Scenario(target=operator, m=1024.0, n=n, k=1024.0, ranks=2.0)
            scan = Scan(scenario, counts, counts, Origin("scan.csv", ""))
            times = scan_times(machine, scan) * np.exp(noise * rng.standard_normal(len(counts)))
            found.append(Scan(scenario, counts, times, scan.origin))
    return found


def test_one_and_two_tiles_of_several_shapes_foretell_many() -> None:
    """Where the base says that both sides share a core, runs of two tiles tell what a round costs."""
    truth = changed(BASE, round_cost=90e-6)
    found = fit_scans(BASE, scans(truth, FEW, 0.01), KNOWN)
    value = next(value for value in found.group.values if value.name.endswith("round_cost"))
    assert value.value == pytest.approx(90e-6, rel=0.2)
    fitted = changed(BASE, round_cost=value.value)
    for true, told, base in zip(*(scans(m, MANY) for m in (truth, fitted, BASE)), strict=True):
        assert told.times == pytest.approx(true.times, rel=0.08)
        assert np.all(base.times < true.times)


def test_a_cost_that_is_nothing_is_not_told() -> None:
    """Other numbers that are left one by one must not leave a nothing that seems certain."""
    start = changed(BASE, comm_under_compute=1.0, compute_under_comm=1.0)
    truth = changed(BASE, comm_under_compute=1.8, compute_under_comm=1.8)
    found = fit_scans(start, scans(truth, FEW, 0.01), KNOWN)
    assert all(value.value > 1e-9 and value.high > value.low for value in found.group.values)


def test_one_run_of_more_than_one_tile_is_too_few() -> None:
    with pytest.raises(NotFittedError, match="1 runs of more than one tile; a fit needs at least 2"):
        fit_scans(BASE, scans(BASE, FEW)[:1])
