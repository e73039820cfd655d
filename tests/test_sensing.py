"""What an answer hangs on: against single estimates, and laws that hold whatever the numbers."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mc2perf import evaluate
from mc2perf.answer import Row
from mc2perf.api import estimate
from mc2perf.cli import app
from mc2perf.problems import InputError
from mc2perf.quantity import Quantity
from mc2perf.readers.profiles import load_machine
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import is_operator
from mc2perf.sensing import ask_sensitivity
from mc2perf.studies.bandwidth import SIGNS
from mc2perf.studies.breakeven import HIDDEN
from mc2perf.studies.sensitivity import Sensitivity
from mc2perf.studies.side_by_side import side_by_side
from mc2perf.studies.uncertainty import UNCERTAINTY, Uncertainty, sampled, stated_uncertainty
from mc2perf.variation import parameters, varied

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "operator": ("matmul_all_reduce", {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}),
    "950": ("all_to_all_matmul", {"m": 8192, "n": 4096, "k": 7168, "ranks": 8, "hardware": "ascend_950pr"}),
    "model": ("deepseek-v3", {"hardware": "atlas_800t_a3", "ep": 32, "dtype": "int8", "phase": "prefill"}),
    "decode": ("deepseek-v3", {"hardware": "atlas_800i_a2", "ep": 32, "phase": "decode", "batch_size": 64}),
    "step": ("llama-2-13b", {"hardware": "atlas_800t_a2", "tp": 8, "global_batch_size": 512,
                             "micro_batch_size": 4, "schedule": "mc2"}),
    "gpu": ("mixtral-8x7b", {"hardware": "h800_sxm"}),
}  # fmt: skip


@cache
def found(name: str, by: str = "10%", *uncertainty: str) -> Sensitivity:
    target, given = QUESTIONS[name]
    return ask_sensitivity(target, given, {}, by=by, uncertainty=uncertainty, samples="256")


def best(name: str, **change: Any) -> Row:
    """One estimate of its own; ``set`` overrides the profile by text, as users do."""
    target, given = QUESTIONS[name]
    answer = estimate(target, **given, **change)
    chosen = answer.rows[-1] if "schedule" in {**given, **change} else answer.best
    assert chosen is not None
    return chosen


def text(value: float, symbol: str) -> str:
    return f"{value!r} {symbol}".removesuffix(" 1")


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_effect_is_that_of_an_estimate_with_the_value_set(name: str) -> None:
    answer, base = found(name), best(name)
    assert answer.choice.total_time == pytest.approx(base.total_time, rel=1e-12)
    for effect in answer.effects[:6]:
        for side in (effect.less, effect.more):
            row = best(name, set={effect.path: text(side.value, effect.quantity.symbol)})
            assert side.total_time == pytest.approx(row.total_time, rel=1e-12)
            assert (side.schedule, side.pieces) == (row.schedule, row.pieces)
            slower = row.total_time / base.total_time
            assert side.change == pytest.approx(
                (slower if is_operator(QUESTIONS[name][0]) else 1.0 / slower) - 1.0, abs=1e-12
            )


@pytest.mark.parametrize("name", QUESTIONS)
def test_elasticities_of_times_less_those_of_rates_are_one(name: str) -> None:
    # a clock that runs faster scales every time and 1/rate, and with them the answer: Euler's theorem.
    # A parameter that were missing, or counted twice, would break the sum
    timed = [e for e in found(name, "0.001%").effects if e.time_power and not math.isnan(e.elasticity)]
    assert sum(e.time_power * e.elasticity for e in timed) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", QUESTIONS)
def test_faster_hardware_is_never_slower(name: str) -> None:
    gain = -1.0 if is_operator(QUESTIONS[name][0]) else 1.0
    rates = [e for e in found(name).effects if e.path.endswith((".link_rate", "memory.bandwidth"))]
    rates += [e for e in found(name).effects if e.quantity.symbol == "FLOP/s"]
    assert len(rates) >= 2
    for e in rates:
        assert gain * e.more.change >= -1e-12 and gain * e.less.change <= 1e-12


@pytest.mark.parametrize("name", ["operator", "model", "gpu"])
def test_a_break_even_rate_divides_what_hides_from_what_does_not(name: str) -> None:
    target, given = QUESTIONS[name]

    def holds(sign: str, path: str, rate: float) -> bool:
        answer = estimate(target, **given, set={path: f"{rate!r} B/s"})
        serial, row = answer.rows[0], answer.best
        assert row is not None
        limits = (serial.comm_time <= serial.compute_time, row.hidden_ratio >= HIDDEN, row.comm_ratio <= 0.05)
        return limits[list(SIGNS).index(sign)]

    reached = 0
    for reach in found(name).reaches:
        path = f"tiers.{reach.tier}.link_rate"
        if math.isinf(reach.rate):
            assert not holds(reach.sign, path, reach.now * 1e3)
        else:
            assert holds(reach.sign, path, reach.rate * (1 + 1e-6))
            assert not holds(reach.sign, path, reach.rate * (1 - 1e-6))
            reached += 1
    assert reached


@pytest.mark.parametrize("name", QUESTIONS)
def test_small_uncertainty_spreads_as_the_elasticities_say(name: str) -> None:
    # first order: the variance of log time is the sum of (elasticity x uncertainty)^2, nearly normal
    answer = found(name, "0.1%", *(f"{kind}=0.2%" for kind in UNCERTAINTY))
    sure = math.sqrt(sum((e.elasticity * math.log1p(e.uncertainty)) ** 2 for e in answer.effects
                         if math.isfinite(e.elasticity)))  # fmt: skip
    spread = answer.confidence.total_time
    assert math.log(spread.p90 / spread.p10) == pytest.approx(2.0 * 1.2816 * sure, rel=0.2)
    assert spread.p50 == pytest.approx(answer.choice.total_time, rel=1e-3)
    assert sum(e.share for e in answer.effects) == pytest.approx(1.0)


def test_confidence_counts_what_single_estimates_choose() -> None:
    target, given = QUESTIONS["operator"]
    scenario, _ = read_scenario(target, given)
    machine = load_machine(scenario.hardware)
    answer = ask_sensitivity(target, given, {}, samples="24")
    used = {id(q) for q in side_by_side(scenario, machine, None, {}, 1).used.values()}
    columns = sampled([p for p in parameters(machine) if id(p.quantity) in used], Uncertainty(), 24)
    rows = []
    for i in range(24):
        one = varied(machine, {path: float(values[i]) for path, values in columns.items()})
        rows.append({row.schedule: row for row in evaluate.estimate(scenario, one).rows if row.legal})
    mine, pieces = answer.choice.schedule, int(answer.choice.pieces)
    confidence = answer.confidence
    fastest = [min(r.values(), key=lambda row: row.total_time).schedule for r in rows]
    assert confidence.schedule_best == fastest.count(mine) / 24
    assert confidence.count_best == sum(r[mine].pieces == pieces for r in rows) / 24
    assert confidence.count_within == sum(
        r[mine].curve[pieces] <= 1.02 * r[mine].total_time for r in rows
    ) / 24  # fmt: skip
    times = [r[mine].curve[pieces] for r in rows]
    assert confidence.total_time == pytest.approx(np.percentile(times, [10, 50, 90]).tolist())
    assert 0 < confidence.count_best < 1  # or the seed would test nothing


def test_the_price_of_a_choice_when_rates_are_off() -> None:
    answer, paid = found("operator"), 0.0
    peaks = ("cube.peak.bf16", "memory.bandwidth")
    machine = load_machine("atlas_800t_a2_b2")
    rates = {p.path: p.quantity for p in parameters(machine) if p.path in (*peaks, "tiers.node.link_rate")}
    for off in answer.off:
        change = {path: text(rate * (off.compute if path in peaks else off.comm), rate.symbol)
                  for path, rate in rates.items()}  # fmt: skip
        there = best("operator", set=change)
        kept = {"schedule": answer.choice.schedule, "tile_cnt": answer.choice.pieces}
        chosen = best("operator", set=change, **kept)
        assert (off.schedule, off.pieces) == (there.schedule, there.pieces)
        assert off.regret == pytest.approx(chosen.total_time / there.total_time - 1.0, abs=1e-12)
        paid = max(paid, off.regret)
    assert len(answer.off) == 8 and paid > 0.0


def test_what_a_fit_states_goes_before_what_its_kind_stands_for() -> None:
    found = {p.path: p.quantity for p in parameters(load_machine("atlas_800t_a3"))}
    cores, kernel = found["cube.cores"], found["kernels.grouped.utilisation"]
    assert Uncertainty().of(cores) == UNCERTAINTY["datasheet"]
    # "median error 5 %": half of all normal errors are within 0.6745 standard deviations
    assert "median error 5 %" in kernel.ref and Uncertainty().of(kernel) == pytest.approx(0.05 / 0.6745)
    assert Uncertainty({"fitted": 0.5}, frozenset({"fitted"})).of(kernel) == 0.5
    odd = [Quantity(1.0, "s", "fitted", ref) for ref in ("95 %: a to b", "95 %: 1 us to", "95 %: 1 B to 2 B")]
    assert [stated_uncertainty(quantity) for quantity in odd] == [None] * 3
    slope = Quantity(1e-12, "s/B", "fitted", "x.txt, 9 rows; 95 %: 0.9 us/MiB to 1.2 us/MiB; more")
    assert stated_uncertainty(slope) == pytest.approx(0.3e-6 / 2**20 / 2 / 1.96 / 1e-12)


def test_the_same_question_has_the_same_answer() -> None:
    target, given = QUESTIONS["operator"]
    twice = [ask_sensitivity(target, given, {}, samples="64") for _ in range(2)]
    assert twice[0] == twice[1]


def test_policies_that_cut_one_machine_at_a_time() -> None:
    target, given = QUESTIONS["operator"]
    answer = ask_sensitivity(target, {**given, "policy": "cann", "schedule": "mc2"}, {}, samples="16")
    effect = answer.effects[0]
    row = estimate(target, **given, policy="cann", schedule="mc2",
                   set={effect.path: text(effect.more.value, effect.quantity.symbol)}).rows[-1]  # fmt: skip
    assert effect.more.total_time == pytest.approx(row.total_time, rel=1e-12)
    assert answer.confidence.count_best is None


def test_bad_input_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ask_sensitivity("mixtral-9x9b", {"ep": "x"}, {}, "200%", ["foo=3", "fitted=0"], "3")
    told = "\n".join(caught.value.problems)
    assert all(word in told for word in ("by:", "foo=3", "fitted", "samples:", "mixtral-9x9b", "ep:"))
    with pytest.raises(InputError, match="CoC"):
        ask_sensitivity("mixtral-8x7b", {"hardware": "h800_sxm", "schedule": "coc", "tp": 2}, {})


def test_files_and_text(tmp_path: Path) -> None:
    run = ["sensitivity", "mixtral-8x7b", "--samples", "16"]
    said = CliRunner().invoke(app, run)
    assert said.exit_code == 0 and "of the uncertainty" in said.stdout and "nan" not in said.stdout
    for name in ("a.csv", "a.json", "a.md", "a.jsonl", "a.txt"):
        assert CliRunner().invoke(app, [*run, "-o", str(tmp_path / name)]).exit_code == 0
    tree = json.loads((tmp_path / "a.json").read_text())
    assert tree["choice"]["schedule"] == "dual_batch" and tree["parameters"][0]["change_more"] > 0
    assert (tmp_path / "a.csv").read_text("utf-8-sig").startswith("parameter,value,kind,")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == len(tree["parameters"])
