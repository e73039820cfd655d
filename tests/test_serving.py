"""Steps over a cache: published figures, chunks, every schedule over a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from cached_passes import decode, prompt

from mc2perf.api import estimate
from mc2perf.measurement import Row
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.readers.measurements import load_measurements
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.results import Results
from mc2perf.scenario import SCHEDULES, Scenario
from mc2perf.study import Study, study_of
from mc2perf.validating.decode import mean_context
from mc2perf.workload.decode import Cache, cached_layers

ROWS = {row.id: row for family in load_measurements() for row in family.rows}


def study_over(
    target: str, over: Cache, sequences: Any, new: Any = 1.0, peaks: tuple[str, str] | None = None, **how: Any
) -> Study:
    """Sequences of a tensor-parallel group on a machine whose kernels no host issues."""
    overrides = dict(zip(("cube.peak.bf16", "cube.peak.int8"), peaks, strict=True)) if peaks else {}
    s = Scenario(target=target, phase="prefill", **{"hardware": "atlas_800t_a3", "host": "graph"} | how)
    model = load_model(target)
    # a batch that divides evenly, which a decode step need not
    even = replace(s, batch_size=1.0, seq_len=64.0)
    study = study_of(even, load_machine(s.hardware, overrides=overrides), model)
    assert study.layout is not None
    study.costs.decode, study.costs.prefill = over.decode, not over.decode
    sequences, new = (np.reshape(np.asarray(x, float), (-1, 1)) for x in (sequences, new))
    layout = replace(
        study.layout, tokens=sequences * new / s.tp, seq_len=new,
        logit_rows=None if over.decode else sequences,
    )  # fmt: skip
    layers = cached_layers(study.costs, model, layout, over)
    return replace(
        study, layout=layout, layers=layers, tokens=layout.tokens, rows=layout.tokens, samples=sequences
    )


def one(value: Any) -> float:
    """The number of a study of one row."""
    return float(np.asarray(value).item())


def results(study: Study, schedule: str = "serial") -> Results:
    serial = serial_outcome(study)
    base = Results(study, serial, None)
    return base if schedule == "serial" else Results(study, OUTCOMES[schedule](study, serial), base)


# --- what papers print of both


def rate_and_tpot(row: Row) -> tuple[float, float, float] | None:
    """Printed tokens per second, time per token [s], and the share that its last digit makes."""
    values = {value.quantity: value for value in row.values if not value.name}
    rate = values.get("tokens_per_second_per_npu") or values.get("tokens_per_second_per_card")
    tpot = values.get("tpot")
    if not (rate and tpot and rate.value and tpot.value and tpot.si):
        return None
    return rate.value, tpot.si, 10.0 ** -len(str(tpot.value).partition(".")[2]) / tpot.value


BOTH = [row for row in ROWS.values() if row.open and row.id[:2] in ("I2", "I3") and rate_and_tpot(row)]


@pytest.mark.parametrize("row", BOTH, ids=lambda row: row.id)
def test_published_throughput(row: Row) -> None:
    """Printed tokens per second are batch over printed time per token, to the last digit of both."""
    found, inputs = rate_and_tpot(row), row.inputs
    assert found is not None
    rate, tpot, digit = found
    devices = float(inputs.get("cards") or inputs.get("npus_or_cards") or 1.0)
    batch = float(inputs.get("batch_per_npu") or float(inputs.get("global_batch_size", 0.0)) / devices)
    assert batch / tpot == pytest.approx(rate, rel=digit, abs=1.0)


def test_published_throughput_of_enough_rows() -> None:
    assert len(BOTH) == 10


# --- chunks


def test_small_chunks_wait_for_weights() -> None:
    """One pass of the whole prompt is fastest; tokens that are cached already are not computed."""
    times = []
    for length in (128.0, 512.0, 2048.0, 8192.0):
        before = np.arange(0.0, 8192.0, length).reshape(-1, 1)
        study = study_over("llama-3.1-8b", prompt(before), np.ones_like(before), length)
        times.append(np.sum(results(study).total))
    assert times == sorted(times, reverse=True)
    half = one(results(study_over("llama-3.1-8b", prompt(4096.0), 1.0, 4096.0)).total)
    assert times[-1] / 2 < half < times[-1]


# --- an answer from its first to its last token


def test_mean_context_stands_for_every_step() -> None:
    """Steps of 64 tokens added up take what the step at the mean context takes, times 64."""
    study = study_over("llama-3.1-8b", decode(np.arange(4000.0, 4064.0).reshape(-1, 1)), np.full(64, 32.0))
    middle = study_over("llama-3.1-8b", decode(mean_context(4000.0, 64.0)), 32.0)
    assert np.sum(results(study).total) == pytest.approx(64.0 * one(results(middle).total), rel=1e-9)


# --- schedules lie over a step as they do over training

LAID = [
    ("mixtral-8x7b", {"ep": 8.0, "nodes": 1.0}), ("deepseek-v2-lite", {"ep": 16.0, "nodes": 1.0}),
    ("llama-3.1-70b", {"tp": 8.0}), ("llama-3.1-70b", {"tp": 8.0, "sp": False}),
    ("qwen3-30b-a3b", {"tp": 4.0, "sp": False}), ("qwen3-235b-a22b", {"tp": 4.0, "ep": 16.0, "nodes": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target, how", LAID, ids=[f"{t}-{'-'.join(h)}" for t, h in LAID])
@pytest.mark.parametrize("over, new", [(decode(3000.0, drafts=1.0), 2.0), (prompt(1024.0), 512.0)])
def test_every_schedule(target: str, how: dict[str, Any], over: Cache, new: float, schedule: str) -> None:
    """Rows below each other, counts across; parts of a time add up; no one beats the longer engine."""
    study = study_over(target, over, [16.0, 64.0, 128.0], [new] * 3, **how)
    serial, laid = results(study), results(study, schedule)
    if np.all(laid.outcome.refused_at):
        # fused pairs and CoC have rules of their own about ranks and rows
        assert schedule in ("mc2", "coc")
        return
    t = laid.timing
    total = np.broadcast_to(t.total, (3, np.shape(t.total)[-1]))
    assert np.all(np.isfinite(total)) and np.all(total > 0.0)
    assert np.allclose(total, t.busy + t.exposed + t.idle)
    assert np.all(total >= t.compute * (1.0 - 1e-9))
    assert np.shape(serial.total) == (3, 1)


def test_two_halves_compute_no_less_than_one_whole() -> None:
    """Both halves read all weights: a step bound by memory may lose what it hides."""
    study = study_over(
        "deepseek-v3", decode(4096.0), 32.0, 2.0, ep=32.0, nodes=2.0, hardware="cloudmatrix384"
    )
    whole, halves = results(study), results(study, "dual_batch")
    assert one(halves.compute) > one(whole.compute)
    assert one(halves["exposed_comm_time"]) < one(whole["exposed_comm_time"])


# --- published steps: predicted from the profiles as they are; no number was fitted to any of these rows


@dataclass(frozen=True)
class Published:
    """An open row: what runs on an NPU or group of NPUs, tokens of a step, the figure to compare with."""

    target: str
    over: Cache
    sequences: float
    new: float
    how: dict[str, Any]
    step_tokens: float = 1.0
    quantity: str = "tpot"

    def predicted(self) -> float:
        """The figure in SI."""
        study = study_over(self.target, self.over, self.sequences, self.new, **self.how)
        if self.quantity == "tokens_per_second_per_npu":
            # a package of two dies
            return 2.0 * one(results(study)["tokens_per_second"])
        return one(results(study).total) / self.step_tokens


def dies(count: float, **how: Any) -> dict[str, Any]:
    """Dies of one fabric; attention on every one, experts over all."""
    return {"ep": count, "nodes": count / 16.0, "dtype": "int8", "hardware": "cloudmatrix384"} | how


def i2(context: Any, per_die: float) -> Published:
    """256 dies instead of 320: the paper's redundant and shared experts have dies of their own."""
    return Published("deepseek-v3", decode(one(context), drafts=1.0), per_die, 2.0, dies(256.0), 1.7)


def i3_sparse(sequences: float, cards: float, context: float) -> Published:
    """Attention and experts over all dies, which the source does not say."""
    how, over = dies(2.0 * cards), decode(context, drafts=3.0)
    return Published("deepseek-v3.2", over, sequences / cards / 2.0, 4.0, how, 2.44)


INT8_KERNEL = {"attention_dtype": "int8"}
SMALL_DIE = {"peaks": ("280 TFLOP/s", "560 TFLOP/s")}
WHOLE = {"tp": 4.0, "sp": False}
STEPS = {
    "I1-0": Published("deepseek-v3", prompt(), 2.0, 4096.0, dies(32.0), quantity="time"),
    "I2-p0": Published(
        "deepseek-v3", prompt(), 2.0, 4096.0, dies(32.0), quantity="tokens_per_second_per_npu"
    ),
    "I2-d1": i2(mean_context(1024.0, 1024.0), 64.0),
    "I2-d3": i2(mean_context(4096.0, 256.0), 48.0),
    "I2-d5": i2(mean_context(4096.0, 256.0), 4.0),
    "I3-1": Published(
        "deepseek-v3", decode(4096.0, drafts=1.0, kv_dtype="int8"), 48.0, 2.0, dies(128.0, **INT8_KERNEL), 1.7
    ),
    "I3-2": i3_sparse(256.0, 64.0, 65536.0),
    "I3-4": i3_sparse(128.0, 64.0, 131072.0),
    "I3-6": i3_sparse(64.0, 32.0, 65536.0),
    "I3-7": i3_sparse(32.0, 16.0, 65536.0),
    "I5-1": Published(
        "qwen3-8b", prompt(), 8.0, 1024.0, {"tp": 2.0, "sp": False, "hardware": "atlas_800t_a2_b2"},
        quantity="step_time",
    ),
    "I5-3": Published("qwen3-30b-a3b", prompt(), 1.0, 3200.0, WHOLE, quantity="step_time"),
    "I5-4": Published("qwen3-30b-a3b", decode(3450.0), 1.0, 1.0, WHOLE, quantity="step_time"),
    "I5-6": Published(
        "deepseek-v3", decode(4200.0, drafts=3.0, kv_dtype="int8"), 172.0 / 32.0, 4.0,
        dies(32.0, **INT8_KERNEL, **SMALL_DIE), quantity="step_time",
    ),
}  # fmt: skip


def measured(row: str) -> float:
    """The published figure in SI."""
    values = [v.si for v in ROWS[row].values if v.quantity == STEPS[row].quantity and not v.name]
    assert ROWS[row].open and len(values) == 1 and values[0] is not None
    return values[0]


@pytest.mark.parametrize("row", STEPS)
def test_published_steps(row: str) -> None:
    """Within a factor of two; what is unknown stands in the notes of each family."""
    assert 0.49 < STEPS[row].predicted() / measured(row) < 2.0


def test_published_steps_together() -> None:
    errors = sorted(abs(step.predicted() / measured(row) - 1.0) for row, step in STEPS.items())
    assert errors[len(errors) // 2] < 0.25


def test_published_slope() -> None:
    """CloudMatrix-Infer: 0.39 ms of time per token for every request more on a package of two dies."""
    small, large = STEPS["I2-d5"].predicted(), STEPS["I2-d3"].predicted()
    assert (large - small) / 88 == pytest.approx(0.39e-3, rel=0.4)


def test_published_orders() -> None:
    """Larger batches take more time per token and give more tokens per second."""
    d1, d3, d5 = (STEPS[row].predicted() for row in ("I2-d1", "I2-d3", "I2-d5"))
    assert d3 > d5 and d1 > d5
    assert 64.0 / d1 > 48.0 / d3 > 4.0 / d5


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_embedding_and_head_are_not_quantised(phase: str) -> None:
    """What is left when the layers are taken off is the same; layers are faster."""
    rows = {
        dtype: estimate("llama-2-7b", phase=phase, dtype=dtype, schedule="serial", host="graph").rows[0]
        for dtype in ("bf16", "int8")
    }
    layers = {dtype: 32.0 * sum(row.segments.values()) for dtype, row in rows.items()}
    ends = [row.total_time - layers[dtype] for dtype, row in rows.items()]
    assert ends[1] == pytest.approx(ends[0]) and layers["int8"] < 0.8 * layers["bf16"]


def test_a_prefill_yields_the_first_token_and_nothing_else_does() -> None:
    rows = {phase: estimate("llama-2-7b", phase=phase, schedule="serial").rows[0] for phase in
            ("train", "prefill", "decode")}  # fmt: skip
    assert rows["prefill"].time_to_first_token == rows["prefill"].total_time > 0.0
    assert rows["decode"].time_to_first_token == rows["train"].time_to_first_token == 0.0
