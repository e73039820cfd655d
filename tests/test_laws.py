"""Laws that hold for every profile, operator, shape and number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mc2perf.answer import Answer, Row
from mc2perf.equations import three_stages
from mc2perf.evaluate import estimate
from mc2perf.expert_groups import operator_group
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import DTYPES, OPERATORS
from mc2perf.problems import InputError
from mc2perf.quantity import Quantity
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.scenario import SCHEDULES, Scenario, is_operator
from mc2perf.skew import Drawn, Factor, Skew

quick = settings(max_examples=30, deadline=None)
TIME_POWER = {"s": 1, "s/B": 1, "s/B^2": 1, "B/s": -1, "FLOP/s": -1, "B": 0, "1": 0}
TIMES = (
    "total_time", "serial_time", "compute_time", "comm_time", "compute_stretch", "exposed_comm_time",
    "free_time", "host_time", "default_time",
)  # fmt: skip
CLOSE = 1e-12


@cache
def machine_of(name: str) -> Machine:
    return load_machine(name)


@cache
def model_of(name: str) -> Model:
    return load_model(name)


# --- questions


@dataclass(frozen=True)
class Question:
    """A scenario and its machine."""

    scenario: Scenario
    machine: Machine

    def answer(self) -> Answer:
        target = self.scenario.target
        return estimate(self.scenario, self.machine, None if is_operator(target) else model_of(target))

    def on(self, machine: Machine) -> Question:
        return replace(self, machine=machine)

    def asking(self, **changes: Any) -> Question:
        return replace(self, scenario=replace(self.scenario, **changes))


def answered(question: Question) -> Answer:
    """The answer, unless the question contradicts its machine."""
    try:
        return question.answer()
    except InputError:
        assume(False)
        raise


@st.composite
def places(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Hardware with an engine, a rule and an element type that it has."""
    machine = machine_of(name)
    engines = sorted({engine for tier in machine.tiers.values() for engine in tier.engines})
    rule = draw(st.sampled_from([None, *machine.cube.rules]))
    dtypes = [d for d in DTYPES if d in machine.cube.peak]
    rates = getattr(machine.cube.rules[rule or machine.cube.rule], "rate_per_core", dict.fromkeys(dtypes))
    return {
        "hardware": name,
        "engine": draw(st.sampled_from([None, *engines])),
        "matmul_rule": rule,
        "dtype": draw(st.sampled_from([d for d in dtypes if d in rates])),
        "host": draw(st.sampled_from(["eager", "graph"])),
        "l2": draw(st.sampled_from(["cold", "warm"])),
        "buffers": float(draw(st.integers(1, 6))),
    }


names = st.sampled_from(profile_names())
LAYOUTS: list[dict[str, Any]] = [{}, {"tp": 8.0}, {"ep": 8.0}, {"ep": 4.0, "tp": 2.0}, {"ep": 16.0}]


SKEWS = (Skew(), Skew("zipf:0.7", 0.7), Drawn("random"))
"""How tokens may be spread, whatever the layout."""


@st.composite
def operators(draw: st.DrawFn, /, name: str | None = None, **fixed: Any) -> Question:
    """Rows in whole blocks of every rank and expert: occupancy and division are then regular."""
    name = name or draw(names)
    target = draw(st.sampled_from([*OPERATORS, "moe_layer"]))
    grouped = target == "moe_layer" or OPERATORS[target].grouped
    ranks = draw(st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]))
    experts = draw(st.sampled_from([1.0, 2.0, 4.0, 8.0])) if grouped else 1.0
    scenario = Scenario(
        target=target,
        m=draw(st.integers(1, 16)) * 512.0 * ranks * experts,
        n=draw(st.integers(1, 32)) * 256.0,
        k=draw(st.integers(1, 32)) * 256.0,
        ranks=ranks,
        experts_per_rank=experts,
        top_k=1.0 if ranks * experts < 2 else 2.0,
        **{**draw(places(name)), **fixed},
    )
    return Question(scenario, machine_of(name))


@st.composite
def models(draw: st.DrawFn) -> Question:
    name = draw(names)
    scenario = Scenario(
        target=draw(st.sampled_from(["mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"])),
        phase=draw(st.sampled_from(["train", "prefill"])),
        batch_size=float(draw(st.integers(1, 8))),
        seq_len=draw(st.sampled_from([64.0, 1000.0, 4096.0])),
        skew=draw(st.sampled_from(SKEWS)),
        **draw(st.sampled_from(LAYOUTS)),
        **draw(places(name)),
    )
    return Question(scenario, machine_of(name))


questions = st.one_of(operators(), models())


def row(answer: Answer, schedule: str) -> Row:
    return next(r for r in answer.rows if r.schedule == schedule)


# --- what a row says of itself


@quick
@given(questions)
def test_the_parts_of_a_row_add_up_exactly(question: Question) -> None:
    for r in answered(question).legal_rows:
        busy = r.compute_time + r.compute_stretch
        assert r.total_time == busy + r.exposed_comm_time + r.free_time
        assert r.total_time > 0.0
        assert min(r.compute_time, r.comm_time, r.free_time, r.host_time) >= 0.0
        assert r.compute_stretch >= -CLOSE * r.compute_time
        assert r.exposed_comm_time >= -CLOSE * r.total_time


@quick
@given(questions)
def test_ratios_of_a_row(question: Question) -> None:
    answer = answered(question)
    serial = row(answer, "serial")
    for r in answer.legal_rows:
        assert r.serial_time == serial.total_time
        assert r.speedup * r.total_time == pytest.approx(r.serial_time, rel=CLOSE)
        assert r.comm_ratio * r.total_time == pytest.approx(r.exposed_comm_time, rel=CLOSE, abs=1e-18)
        assert -CLOSE <= r.comm_ratio <= 1.0
        assert r.hidden_ratio <= 1.0 + CLOSE
        if r.tokens_per_second:
            assert r.tokens_per_second * r.total_time == pytest.approx(
                serial.tokens_per_second * serial.total_time, rel=CLOSE
            )
    assert serial.hidden_ratio == pytest.approx(0.0, abs=CLOSE)
    assert answer.best is not None
    assert answer.best.total_time == min(r.total_time for r in answer.legal_rows)


def waits_for_routing(scenario: Scenario) -> bool:
    """Whether the host reads where tokens go before it can issue the experts."""
    model = None if is_operator(scenario.target) else model_of(scenario.target)
    return scenario.phase == "train" and model is not None and model.experts is not None


@quick
@given(questions)
def test_a_row_lies_between_its_longer_engine_and_both_in_turn(question: Question) -> None:
    """Whatever pieces cost, overlap never beats the longer engine and never loses to its own sum."""
    for r in answered(question).legal_rows:
        device = r.total_time - r.free_time
        assert device >= max(r.compute_time, r.comm_time) * (1 - CLOSE)
        assert device <= (r.compute_time + r.comm_time) * (1 + CLOSE)
        side_by_side = max(device, r.host_time)
        assert r.total_time >= side_by_side * (1 - CLOSE)
        if not waits_for_routing(question.scenario):
            assert r.total_time == pytest.approx(side_by_side, rel=CLOSE)


@quick
@given(questions, st.sampled_from(SCHEDULES))
def test_a_row_does_not_depend_on_its_neighbours(question: Question, schedule: str) -> None:
    whole = answered(question)
    alone = question.asking(schedule=schedule).answer()
    assert row(alone, schedule) == row(whole, schedule)
    assert row(alone, "serial") == row(whole, "serial")
    assert [r.schedule for r in alone.rows] == list(dict.fromkeys(["serial", schedule]))
    assert question.answer() == whole


@quick
@given(questions)
def test_a_curve_holds_its_best_count(question: Question) -> None:
    for r in answered(question).legal_rows:
        if r.curve:
            assert r.pieces in r.curve
            assert min(r.curve.values()) == pytest.approx(r.total_time, rel=CLOSE)
            assert r.flat_region[0] <= r.pieces <= r.flat_region[1]
            first = [count for count in r.curve if count <= r.pieces]
            assert all(r.curve[count] >= r.curve[r.pieces] for count in first)


# --- the stated overheads


def slowest(question: Question) -> tuple[float, float]:
    """Round cost and latency of the engines of a group: costs of one more piece."""
    rounds = latency = 0.0
    reached = False
    for tier in question.machine.tiers.values():
        name = question.scenario.engine
        engine = tier.engines[name if name in tier.engines else tier.engine]
        steps = (question.scenario.ranks or 1.0) if tier.wiring != "full_mesh" else 1.0
        passes = 2.0 if question.scenario.target == "matmul_all_reduce" else 1.0
        if not reached:
            rounds = max(rounds, engine.round_cost)
            latency += engine.host_launch + (passes * steps * engine.wires.latency if engine.wires else 0.0)
        reached = reached or (question.scenario.ranks or 1.0) <= tier.ranks
    return rounds, latency


@quick
@given(operators("ascend_950pr", matmul_rule="vendor_fit_balance", engine="udma", l2="cold"))
def test_serial_plus_stated_overheads_is_the_most(question: Question) -> None:
    """Affine prices (linear rule, wires): a piece more costs a round, launches, latency, weights read again.

    total <= serial + (pieces - 1) x (round + launch of the matmul + latency of the transfer + weights),
    and own rows before the first piece read the weights once more.
    """
    s = question.scenario
    assume(s.target in OPERATORS and s.ranks and s.ranks <= 8)
    answer = answered(question)
    serial, rule = row(answer, "serial"), question.machine.cube.rules["vendor_fit_balance"]
    rounds, latency = slowest(question)
    memory = question.machine.memory
    item = DTYPES[s.dtype].size + 1.0 / 32.0
    weights = s.experts_per_rank * s.n * s.k * item / (memory.bandwidth * memory.efficiency)  # type: ignore[operator]
    launch = rule.launch[s.dtype]  # type: ignore[index]
    for r in answer.legal_rows:
        more = (r.pieces - 1) * (rounds + launch + latency) + r.pieces * weights * (r.pieces > 1)
        device = r.total_time - r.free_time
        assert device <= (serial.total_time - serial.free_time + more) * (1 + CLOSE), r.schedule


# --- a clock that runs c times faster


def scaled(part: Any, c: float) -> Any:
    """Every rate of a machine times c, every time divided by it."""
    if isinstance(part, Quantity):
        return Quantity(part * c ** -TIME_POWER[part.symbol], part.symbol, part.kind, part.ref)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{f.name: scaled(getattr(part, f.name), c) for f in fields(part)})
    if isinstance(part, dict):
        return {key: scaled(value, c) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(scaled(value, c) for value in part)
    return part


def times_of(answer: Answer) -> Iterator[tuple[str, float]]:
    for r in answer.rows:
        for name in TIMES:
            yield f"{r.schedule}.{name}", getattr(r, name)
        for kind in ("curve", "segments", "backward_segments"):
            yield from ((f"{r.schedule}.{kind}.{k}", v) for k, v in getattr(r, kind).items())


@quick
@given(questions, st.integers(-12, 12))
def test_a_clock_scales_every_time_to_the_bit(question: Question, power: int) -> None:
    c = 2.0**power
    before, after = answered(question), answered(question.on(scaled(question.machine, c)))
    assert [(r.legal, r.reason, r.pieces, r.bound) for r in before.rows] == [
        (r.legal, r.reason, r.pieces, r.bound) for r in after.rows
    ]
    expected = {name: time / c for name, time in times_of(before)}
    assert dict(times_of(after)) == expected
    for b, a in zip(before.rows, after.rows, strict=True):
        assert a.tokens_per_second == b.tokens_per_second * c
        assert (a.comm_ratio, a.hidden_ratio, a.speedup) == (b.comm_ratio, b.hidden_ratio, b.speedup)


@quick
@given(questions, st.floats(0.01, 100.0))
def test_a_clock_scales_every_time_closely(question: Question, c: float) -> None:
    before, after = answered(question), answered(question.on(scaled(question.machine, c)))
    for b, a in zip(before.rows, after.rows, strict=True):
        assert a.total_time == pytest.approx(b.total_time / c, rel=CLOSE)
        assert a.serial_time == pytest.approx(b.serial_time / c, rel=CLOSE)
        if a.pieces == b.pieces:  # two counts may be equally good
            for name in ("compute_time", "comm_time", "host_time"):
                assert getattr(a, name) == pytest.approx(getattr(b, name) / c, rel=CLOSE)


# --- monotone


def changed(machine: Machine, touch: Callable[[str, Quantity], float], at: str = "") -> Machine:
    """A machine with numbers changed by their path."""

    def walk(part: Any, path: str) -> Any:
        if isinstance(part, Quantity):
            return Quantity(part * touch(path, part), part.symbol, part.kind, part.ref)
        if is_dataclass(part) and not isinstance(part, type):
            return replace(
                part, **{f.name: walk(getattr(part, f.name), f"{path}.{f.name}") for f in fields(part)}
            )
        if isinstance(part, dict):
            return {key: walk(value, f"{path}.{key}") for key, value in part.items()}
        return tuple(walk(v, path) for v in part) if isinstance(part, tuple) else part

    found = walk(machine, at)
    assert isinstance(found, Machine)
    return found


def not_slower(slow: Answer, fast: Answer, schedules: tuple[str, ...]) -> None:
    for name in schedules:
        s, f = row(slow, name), row(fast, name)
        assert s.legal == f.legal
        assert f.total_time <= s.total_time * (1 + CLOSE), name


SERIAL_AND_FUSED = ("serial", "mc2")


@pytest.mark.parametrize(
    "end", [".link_rate", "memory.bandwidth", ".memory.efficiency", ".wires.efficiency", ".peak"]
)
@quick
@given(question=questions, more=st.floats(1.0, 8.0))
def test_a_faster_part_is_not_slower(end: str, question: Question, more: float) -> None:
    fast = changed(question.machine, lambda path, _: more if end in path else 1.0)
    not_slower(answered(question), answered(question.on(fast)), SERIAL_AND_FUSED)


@pytest.mark.parametrize("end", [".wires.latency", ".launch", ".per_launch", ".round_cost", "vector"])
@quick
@given(question=questions, more=st.floats(1.0, 8.0))
def test_a_longer_latency_is_not_faster(end: str, question: Question, more: float) -> None:
    """Not ``host_launch`` under a curve: the fit contains it, so more of it leaves less for every piece."""
    slow = changed(
        question.machine,
        lambda path, q: more if end in path and q.symbol == "s" and "host_launch" not in path else 1.0,
    )
    not_slower(answered(question.on(slow)), answered(question), SERIAL_AND_FUSED)


@quick
@given(questions, st.sampled_from(["comm_under_compute", "compute_under_comm"]), st.floats(1.0, 1.3))
def test_a_stronger_slow_down_is_not_faster(question: Question, factor: str, more: float) -> None:
    slow = changed(question.machine, lambda path, _: more if path.endswith(factor) else 1.0)
    not_slower(answered(question.on(slow)), answered(question), SERIAL_AND_FUSED)


@quick
@given(operators(), st.sampled_from([2.0, 4.0]))
def test_more_rows_are_not_faster(question: Question, more: float) -> None:
    """In whole blocks, and doubled: every cut of the few is a cut of the many."""
    m = question.scenario.m
    assert m is not None
    large = question.asking(m=m * more)
    not_slower(answered(large), answered(question), SERIAL_AND_FUSED)


@quick
@given(operators(), st.sampled_from([1.5, 2.0, 4.0]))
def test_more_imbalance_is_not_faster(question: Question, factor: float) -> None:
    """In whole blocks again: occupancy counts a started block as a full one."""
    assert question.scenario.ranks is not None
    group = operator_group(question.scenario, question.scenario.ranks)
    assume(group is not None and factor <= group.most)
    skewed = question.asking(skew=Factor(str(factor), factor=factor))
    not_slower(answered(skewed), answered(question), SERIAL_AND_FUSED)


@quick
@given(questions)
def test_more_buffers_never_hurt(question: Question) -> None:
    few, many = (answered(question.asking(buffers=b)) for b in (2.0, 8.0))
    for name in ("coc", "micro_batch"):
        if row(few, name).legal:
            assert row(many, name).total_time <= row(few, name).total_time * (1 + CLOSE)


# --- that a law can break


def test_an_overlap_that_beats_its_floor_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = three_stages.three_stage_overlap

    def too_fast(**numbers: Any) -> Any:
        found = real(**numbers)
        return found._replace(exposed_comm=0.0, busy_compute=0.9 * found.busy_compute)

    monkeypatch.setattr("mc2perf.equations.three_stages.three_stage_overlap", too_fast)
    scenario = Scenario(target="mixtral-8x7b", schedule="micro_batch", micro_batches=4.0)
    r = row(Question(scenario, machine_of("atlas_800i_a2")).answer(), "micro_batch")
    assert r.total_time - r.free_time < max(r.compute_time, r.comm_time) * (1 - CLOSE)


def test_a_time_that_is_no_quantity_is_seen() -> None:
    """A constant in seconds inside the code would not scale."""
    question = Question(Scenario(target="mixtral-8x7b", schedule="serial"), machine_of("atlas_800i_a2"))
    frozen = replace(
        scaled(question.machine, 2.0),
        launch=question.machine.launch,
    )
    assert question.on(frozen).answer().rows[0].total_time != question.answer().rows[0].total_time / 2.0
