"""What would make it fit: every proposal asked again, every smaller step refused, the order by time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from mc2perf.evaluate import estimate
from mc2perf.footprint import footprint_of
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.studies import fit
from mc2perf.studies.fit import Fit, nearest_fits
from mc2perf.study import study_of
from mc2perf.writers.footprint import to_memory_table

NPU = "atlas_800t_a2"
model_of, machine_of = cache(load_model), cache(load_machine)


def asked(target: str, **given: Any) -> Scenario:
    return Scenario(target=target, hardware=NPU, **given)


def fits(scenario: Scenario, **how: Any) -> list[Fit]:
    return nearest_fits(scenario, machine_of(NPU), model_of(scenario.target), **how)


def total(scenario: Scenario) -> float:
    study = study_of(scenario, machine_of(NPU), model_of(scenario.target))
    return float(np.asarray(footprint_of(study).total).item())


CAPACITY = 64e9

TOO_MUCH = {
    "batch": asked("llama-2-7b", batch_size=64, nodes=1),
    "tokens": asked("mixtral-8x7b", tokens=65536, ep=8, nodes=1),
    "optimizer": asked("llama-2-7b", global_batch_size=64, distributed_optimizer=False, recompute="full"),
    "recompute": asked("llama-2-7b", global_batch_size=512, nodes=8, micro_batch_size=2),
    "prefill": asked("deepseek-v3", phase="prefill"),
    "whole step": asked("llama-3.1-70b", global_batch_size=64, tp=8),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_every_proposal_fits_when_asked_again(name: str) -> None:
    scenario = TOO_MUCH[name]
    assert total(scenario) > CAPACITY
    found = fits(scenario)
    assert found
    for proposal in found:
        again = replace(scenario, **proposal.change)
        assert again == proposal.scenario
        assert total(again) == float(np.asarray(proposal.footprint.total).item()) <= CAPACITY
        assert len(proposal.change) == 1


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_smaller_step_does_not_fit(name: str) -> None:
    """Of halved batches and doubled degrees, the value before the one proposed is refused or does not fit."""
    scenario = TOO_MUCH[name]
    for proposal in fits(scenario):
        ((what, value),) = proposal.change.items()
        if not isinstance(value, float):
            continue
        nearer = value * 2 if what in ("batch_size", "micro_batch_size", "tokens") else value / 2
        try:
            smaller: dict[str, Any] = {what: nearer}
            assert total(replace(scenario, **smaller)) > CAPACITY
        except InputError:
            continue


def test_what_is_proposed() -> None:
    def changes(name: str) -> list[str]:
        return [proposal.words for proposal in fits(TOO_MUCH[name])]

    assert changes("optimizer")[0] == "distributed_optimizer=true"
    assert any(word.startswith("batch_size=") for word in changes("batch"))
    assert any(word.startswith("tokens=") for word in changes("tokens"))
    first = changes("recompute")[0]
    assert first.startswith("recompute=block:") and "micro_batch_size=1" in changes("recompute")
    assert "ep=64" in changes("prefill") and "nodes=8" in changes("prefill")
    assert not any("recompute" in word or "pp" in word for word in changes("prefill"))


def test_the_first_block_that_fits_is_taken() -> None:
    scenario = TOO_MUCH["recompute"]
    (again,) = (p for p in fits(scenario) if "recompute" in p.change)
    layers = int(again.change["recompute"].partition(":")[2])
    assert total(replace(scenario, recompute=f"block:{layers}")) <= CAPACITY
    assert total(replace(scenario, recompute=f"block:{layers // 2}")) > CAPACITY


@pytest.mark.parametrize(
    ("recompute", "steps"),
    [
        ("none", ["selective", "block:1", "block:2", "block:4", "full"]),
        ("selective", ["block:1", "block:2", "block:4", "full"]),
        ("block:2", ["block:4", "full"]),
        ("full", []),
    ],
)
def test_recompute_goes_up_only(recompute: str, steps: list[str]) -> None:
    assert list(fit._more_recompute(recompute, 8.0)) == steps


def test_batches_are_halved_while_they_are_whole() -> None:
    assert list(fit._halves(np.array([[12.0]]))) == [6.0, 3.0]
    assert list(fit._halves(1.0)) == []


def test_what_fits_needs_no_change() -> None:
    assert fits(asked("llama-2-7b", phase="prefill")) == []


def test_pairs_where_no_input_is_enough_alone() -> None:
    """DeepSeek-V3 on NPUs that are given: more experts' ranks alone find no NPU."""
    scenario = asked("deepseek-v3", phase="prefill", ep=16, nodes=2)
    found = fits(scenario)
    assert found and all(len(proposal.change) == 2 for proposal in found)
    assert {"ep": 64.0, "nodes": 8.0} in [dict(proposal.change) for proposal in found]


def test_nothing_helps_where_memory_is_a_megabyte() -> None:
    machine = machine_of("atlas_800i_a2_32g")
    model = model_of("llama-3.1-405b")
    small = replace(machine, memory=replace(machine.memory, capacity=1e6))
    scenario = Scenario(target="llama-3.1-405b", hardware="atlas_800i_a2_32g", phase="prefill")
    assert nearest_fits(scenario, small, model) == []


def test_by_time_the_most_tokens_per_npu_come_first() -> None:
    scenario = TOO_MUCH["whole step"]
    machine, model = machine_of(NPU), model_of(scenario.target)

    def step_time(changed: Scenario) -> float:
        best = estimate(changed, machine, model).best
        assert best is not None
        return best.total_time

    found = fits(scenario, evaluate=step_time)
    rates = [proposal.tokens_per_second or 0.0 for proposal in found]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 0
    for proposal in found:
        best = estimate(proposal.scenario, machine, model).best
        assert best is not None
        assert proposal.step_time == best.total_time
        assert proposal.tokens_per_second == pytest.approx(best.tokens_per_second, rel=1e-12)
    assert {p.words for p in found} == {p.words for p in fits(scenario)}


def test_what_the_estimate_refuses_is_left_out() -> None:
    def refuse_tp(changed: Scenario) -> float:
        if changed.tp != 8:
            raise InputError(["tp: is refused here"])
        return 1.0

    found = fits(TOO_MUCH["whole step"], evaluate=refuse_tp)
    assert found and not any("tp" in proposal.change for proposal in found)


def test_a_contradiction_is_said_not_searched_around() -> None:
    with pytest.raises(InputError, match="tp"):
        fits(asked("llama-2-7b", tp=3))


def test_switches_come_before_another_layout() -> None:
    """Without sequence parallelism, or with interleaving, giving that up is proposed as well."""
    whole = asked("llama-2-7b", batch_size=16, tp=8, sp=False)
    assert next(p.words for p in fits(whole)) == "sp=true"
    chunks = asked(
        "llama-2-7b", global_batch_size=64, pp=4, vpp=8, tp=2, nodes=1, micro_batch_size=2, recompute="full"
    )
    machine = machine_of(NPU)
    just = total(replace(chunks, vpp=1.0))
    tight = replace(machine, memory=replace(machine.memory, capacity=just))
    assert {"vpp": 1.0} in [p.change for p in nearest_fits(chunks, tight, model_of("llama-2-7b"))]


def test_given_data_parallel_ranks_grow_instead_of_nodes() -> None:
    scenario = asked("llama-2-7b", global_batch_size=64, dp=1, recompute="full")
    found = fits(scenario)
    (wider,) = (p for p in found if "dp" in p.change)
    assert wider.npus == wider.change["dp"] and not any("nodes" in p.change for p in found)


def test_more_stages_than_npus_are_not_asked() -> None:
    """Nodes that are given as well must hold the stages; nothing here does."""
    scenario = asked("deepseek-v3", global_batch_size=1024, nodes=1, dtype="bf16")
    assert all(p.scenario.pp <= p.npus for p in fits(scenario))


def test_the_table_lists_the_proposals() -> None:
    scenario = TOO_MUCH["prefill"]
    study = study_of(scenario, machine_of(NPU), model_of(scenario.target))
    found = fits(scenario)
    text = to_memory_table(footprint_of(study), found)
    assert "would fit with" in text
    for proposal in found:
        (line,) = (row for row in text.splitlines() if row.startswith(f"{proposal.words} "))
        assert f"{proposal.npus:g}" in line.split()
    timed = fits(scenario, evaluate=lambda changed: 1.0)
    assert "tokens/s/NPU" in to_memory_table(footprint_of(study), timed)
