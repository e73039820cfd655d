"""Whole training steps: put together by hand from single micro-batches, laws, and limits."""

from __future__ import annotations

from typing import Any

import pytest

from mc2perf.answer import Row
from mc2perf.api import estimate
from mc2perf.equations.steps import bubble_share
from mc2perf.placement import stage_counts, weights_of_a_rank
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import study_of

SINGLE = {"host.per_training_launch": "0 us"}
"""A host that is never late: sums by hand then hold."""

DENSE: dict[str, Any] = {
    "target": "llama-2-7b", "hardware": "atlas_800t_a2", "schedule": "serial", "set": SINGLE,
}  # fmt: skip
MIXTRAL: dict[str, Any] = {"target": "mixtral-8x7b", "hardware": "atlas_800t_a2", "schedule": "serial"}


def row(**given: Any) -> Row:
    target = given.pop("target")
    return estimate(target, **given).rows[-1]


def close(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-9)


def adam(parameters: float, shards: float = 1.0, on: str = "atlas_800t_a2") -> float:
    """Seconds of the optimizer: every array read and written once, gradients twice, over the memory."""
    memory = load_machine(on).memory
    moved = parameters / shards * (2 * 4 + 2 * 12 + 2) + parameters * 4
    launch = load_machine(on).launch.vector
    return moved / (memory.bandwidth * memory.efficiency) + launch


@pytest.mark.parametrize("n_mb", [1, 4, 32])
def test_one_stage_is_so_many_micro_batches_and_the_optimizer(n_mb: int) -> None:
    one = row(**DENSE, nodes=1, tp=8)
    step = row(**DENSE, nodes=1, tp=8, global_batch_size=n_mb)
    assert step.total_time == close(
        n_mb * one.total_time + adam(load_model("llama-2-7b").parameter_count / 8)
    )
    assert step.tokens_per_second == close(n_mb * 4096 / (8 * step.total_time))
    assert step.traffic["tp"][0] == close(n_mb * one.comm_time)
    assert step.traffic["dp"] == (0.0, 0.0)
    assert step.bubble_share == 0.0


@pytest.mark.parametrize(
    ("recompute", "again"), [("full", 1.0), ("block:8", 0.25), ("block:32", 1.0), ("block:99", 1.0)]
)
def test_recompute_runs_layers_forward_once_more(recompute: str, again: float) -> None:
    base = row(**DENSE, tp=8, global_batch_size=4)
    more = row(**DENSE, tp=8, global_batch_size=4, recompute=recompute)
    layers = sum(base.segments.values()) * 32  # segments of one layer, forward; the head is not run again
    assert more.total_time - base.total_time == pytest.approx(4 * again * layers, rel=1e-6)


def test_selective_recompute_runs_the_attention_again() -> None:
    base = row(**DENSE, tp=8, global_batch_size=4)
    more = row(**DENSE, tp=8, global_batch_size=4, recompute="selective")
    assert more.total_time - base.total_time == pytest.approx(4 * 32 * base.segments["attention"], rel=1e-6)


@pytest.mark.parametrize("n_mb", [4, 16, 64])
def test_the_bubble_of_nearly_equal_stages(n_mb: int) -> None:
    """A long sequence of layers per stage: embedding and head weigh little, (pp - 1) / n_mb remains."""
    step = row(
        **{**DENSE, "target": "llama-3.1-405b"}, dp=1, tp=8, pp=9, global_batch_size=n_mb, seq_len=4096
    )
    expected = float(bubble_share(9.0, float(n_mb), 1.0))
    assert step.bubble_share == pytest.approx(expected, rel=0.12)


def test_interleaving_divides_the_bubble() -> None:
    layout = {**DENSE, "tp": 2, "pp": 4, "dp": 1, "global_batch_size": 8}
    plain, chunks = row(**layout), row(**layout, vpp=2)
    idle, less = (r.bubble_share * r.total_time for r in (plain, chunks))
    # sends double with the chunks, and are part of the stages that the pipeline fills with
    assert less == pytest.approx(idle / 2, rel=0.05)


def test_stages_hold_every_layer_once_dense_ones_first() -> None:
    scenario = Scenario(
        target="deepseek-v3", hardware="cloudmatrix384", pp=1.0, ep=16.0, nodes=1.0, global_batch_size=64.0
    )
    study = study_of(scenario, load_machine("cloudmatrix384"), load_model("deepseek-v3"))
    assert stage_counts(study) == [[3.0, 58.0]]
    mixtral = Scenario(target="mixtral-8x7b", pp=4.0, tp=2.0, ep=1.0, global_batch_size=8.0)
    study = study_of(mixtral, load_machine("atlas_800i_a2"), load_model("mixtral-8x7b"))
    assert stage_counts(study) == [[8.0]] * 4


def test_weights_of_a_rank_add_up() -> None:
    scenario = Scenario(target="mixtral-8x7b", ep=8.0, global_batch_size=8.0)
    study = study_of(scenario, load_machine("atlas_800i_a2"), load_model("mixtral-8x7b"))
    other, routed = weights_of_a_rank(study)
    model = load_model("mixtral-8x7b")
    assert other + 8 * routed == model.parameter_count
    assert routed == 32 * 8 * 3 * 4096 * 14336 / 8


@pytest.mark.parametrize("schedule", ["serial", "mc2", "micro_batch", "dual_batch", "coc"])
@pytest.mark.parametrize(
    "layout",
    [
        {**DENSE, "tp": 4, "pp": 2, "nodes": 2, "global_batch_size": 16},
        {**MIXTRAL, "ep": 8, "global_batch_size": 64, "micro_batch_size": 2},
        {**MIXTRAL, "tp": 8, "pp": 2, "nodes": 2, "global_batch_size": 16, "recompute": "full"},
        {**MIXTRAL, "ep": 8, "pp": 4, "nodes": 4, "global_batch_size": 64, "grad_overlap": True},
    ],
)
def test_a_step_adds_up(layout: dict[str, Any], schedule: str) -> None:
    step = row(**{**layout, "schedule": schedule})
    busy = step.compute_time + step.compute_stretch
    assert step.total_time == close(busy + step.exposed_comm_time + step.free_time)
    assert sum(comm for comm, _ in step.traffic.values()) == close(step.comm_time)
    assert sum(exposed for _, exposed in step.traffic.values()) == close(step.exposed_comm_time)
    assert all(0.0 <= exposed <= comm * (1 + 1e-12) for comm, exposed in step.traffic.values())
    assert 0.0 < step.mfu < 1.0 and 0.0 <= step.bubble_share < 1.0
    serial = row(**{**layout, "schedule": "serial"})
    assert step.serial_time == serial.total_time


def test_whole_steps_compute_at_their_sustained_speed() -> None:
    on = {**DENSE, "hardware": "b200_sxm", "tp": 8, "global_batch_size": 8}
    fast, slow = (row(**{**on, "set": {"cube.sustained": share}}) for share in ("1", "0.5"))
    optimizer = adam(load_model("llama-2-7b").parameter_count / 8, on="b200_sxm")
    assert slow.compute_time - optimizer == close(2.0 * (fast.compute_time - optimizer))
    assert slow.comm_time == fast.comm_time


def test_overlapped_gradients_cost_no_more() -> None:
    layout = {**DENSE, "tp": 1, "pp": 1, "global_batch_size": 64}
    exposed, hidden = row(**layout), row(**layout, grad_overlap=True)
    assert hidden.traffic["dp"][0] == exposed.traffic["dp"][0]
    assert hidden.traffic["dp"][1] < exposed.traffic["dp"][1]
    assert hidden.total_time < exposed.total_time


def test_new_weights_are_gathered_after_the_optimizer_step() -> None:
    """Overlap is of gradients (--overlap-grad-reduce); that of weights is another flag of Megatron."""
    layout = {**DENSE, "tp": 1, "pp": 1, "global_batch_size": 64, "grad_overlap": True}
    gathered, reduced = (row(**layout, distributed_optimizer=on).traffic["dp"] for on in (True, False))
    weights = load_model("llama-2-7b").parameter_count * 2.0
    machine = load_machine("atlas_800t_a2")
    assert gathered[1] > weights * 7 / 8 / (7 * machine.tiers["node"].link_rate)
    assert reduced[1] < gathered[1]


@pytest.mark.parametrize("pipeline", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("host", ["eager", "blocking"])
@pytest.mark.parametrize("part", ["memory.bandwidth", "cube.peak.bf16"])
def test_gradients_have_as_long_to_travel_as_the_host_takes(pipeline: str, host: str, part: str) -> None:
    """A faster part shortens kernels that a slow host issues, and nothing that gradients travel beside."""
    layout = {**DENSE, "tp": 8, "pp": 2, "nodes": 16, "seq_len": 64, "grad_overlap": True, "host": host}
    layout |= {"global_batch_size": 64, "pipeline": pipeline, "set": {"tiers.cluster.link_rate": "x0.2"}}
    slow, fast = (row(**{**layout, "set": layout["set"] | more}) for more in ({}, {part: "x3"}))
    assert slow.traffic["dp"][1] < slow.traffic["dp"][0]
    if host == "eager":
        assert fast.traffic["dp"][1] == close(slow.traffic["dp"][1])
    assert fast.total_time <= slow.total_time * (1 + 1e-12)


def test_a_distributed_optimizer_moves_less() -> None:
    # on A2 the measured reduce-scatter collapses above its buffer, and all-reduce wins
    layout = {**DENSE, "hardware": "atlas_800t_a3", "set": {}, "tp": 1, "global_batch_size": 64}
    assert row(**layout).total_time < row(**layout, distributed_optimizer=False).total_time


def test_mfu_is_model_flops_over_the_peak() -> None:
    step = row(**DENSE, tp=8, global_batch_size=32)
    model, peak = load_model("llama-2-7b"), load_machine("atlas_800t_a2").cube.peak["bf16"]
    weights = model.parameter_count - model.vocab_size * model.hidden_size  # no look-up
    flops = 6 * weights + 6 * 32 * (4096 + 1) / 2 * 32 * 2 * 128
    assert step.mfu == close(flops * step.tokens_per_second / peak)


def test_without_sequence_parallelism_results_are_all_reduced() -> None:
    with_sp = estimate("llama-2-7b", hardware="atlas_800t_a2", tp=8, schedule="serial").rows[0]
    without = estimate("llama-2-7b", hardware="atlas_800t_a2", tp=8, sp=False, schedule="serial").rows[0]
    assert any("all_reduce" in name for name in without.segments)
    assert not any("gather" in name for name in without.segments)
    assert without.segments["norms"] == pytest.approx(8 * with_sp.segments["norms"], rel=0.3)


def test_more_micro_batches_cost_in_proportion_and_waste_less() -> None:
    few, many = (row(**DENSE, tp=2, pp=4, global_batch_size=n) for n in (8, 64))
    assert few.bubble_share > many.bubble_share
    assert few.tokens_per_second < many.tokens_per_second


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pp": 2}, "pp: is part of a whole step"),
        ({"recompute": "full"}, "recompute: is part of a whole step"),
        ({"global_batch_size": 8, "pp": 5, "nodes": 5}, "layers do not divide by pp x vpp"),
        ({"global_batch_size": 7, "tp": 1}, "does not divide"),
        ({"global_batch_size": 8, "vpp": 2}, "vpp: interleaves"),
        ({"global_batch_size": 8, "recompute": "ful"}, "did you mean 'full'"),
        ({"global_batch_size": 8, "phase": "prefill"}, "is of a training step"),
        ({"global_batch_size": 8, "recompute": "block:x"}, "'block:x' is not known"),
        ({"global_batch_size": 6, "pp": 4, "dp": 1, "vpp": 2}, "vpp: needs micro-batches in multiples of pp"),
        ({"phase": "decode", "cp": 2}, "cp: cuts the sequences"),
        ({"phase": "decode", "acceptance": 0.5}, "acceptance: is of drafts"),
        ({"global_batch_size": 8, "tp": 8, "pp": 2}, "NPUs"),
    ],
)
def test_contradictions_of_a_step(given: dict[str, Any], said: str) -> None:
    if "tp" in given and "pp" in given:
        given = {**given, "nodes": 1}
    with pytest.raises(InputError, match=said):
        row(**{**DENSE, **given})


def test_the_default_count_is_priced_in_the_same_step() -> None:
    asked: dict[str, Any] = {
        "hardware": "atlas_800t_a2", "ep": 8, "pp": 4, "nodes": 8, "global_batch_size": 256,
        "schedule": "micro_batch",
    }  # fmt: skip
    best = estimate("mixtral-8x7b", **asked).rows[-1]
    given = estimate("mixtral-8x7b", **asked, micro_batches=8).rows[-1]
    assert best.default_pieces == 8 and best.default_time == pytest.approx(given.total_time)
