"""Training steps under every pipeline: the player against closed forms, passes beside each other, memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf import pipelines
from mc2perf.answer import Answer, Row
from mc2perf.api import estimate
from mc2perf.equations.beside import beside
from mc2perf.equations.overlap import lockstep, stretched
from mc2perf.equations.stage_order import Work
from mc2perf.evaluate import estimate as evaluate
from mc2perf.footprint import footprint_of
from mc2perf.model import LayerGroup
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.passes import Passes
from mc2perf.pipelines import PIPELINES, Pipeline
from mc2perf.placement import data_groups
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.studies.fit import nearest_fits
from mc2perf.study import study_of

DENSE: dict[str, Any] = {"target": "llama-2-7b", "hardware": "atlas_800t_a2", "schedule": "serial", "tp": 4}
MOE: dict[str, Any] = {
    "target": "deepseek-v3", "hardware": "h800_sxm", "ep": 64, "pp": 4, "dp": 64, "dispatch_dtype": "fp8",
    "stage_layers": "16-15-15-15", "global_batch_size": 64 * 32, "schedule": "dual_batch",
}  # fmt: skip
HALVES = "-".join(["8"] * 5 + ["7"] * 3)


def answer(**given: Any) -> Answer:
    return estimate(given.pop("target"), **given)


def row(**given: Any) -> Row:
    return answer(**given).rows[-1]


def close(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-9)


# --- every step played, from a whole model on


def one_forward_one_backward(device: int, devices: int, n_mb: int) -> list[Work]:
    warm_up = min(devices - device - 1, n_mb)
    back = [Work(None, 0, 0)]
    steady = [Work(forward=0), *back] * (n_mb - warm_up)
    return [Work(forward=0)] * warm_up + steady + back * warm_up


@pytest.mark.parametrize("n_mb", [1, 3, 4, 9])
@pytest.mark.parametrize("layout", [{"pp": 4}, {"pp": 8, "recompute": "full"}, {"pp": 2, "sp": False}])
def test_1f1b_played_is_the_closed_form(
    monkeypatch: pytest.MonkeyPatch, n_mb: int, layout: dict[str, Any]
) -> None:
    """The head makes the last stage the slowest, where the closed form is exact."""
    asked = {**DENSE, **layout, "dp": 1, "nodes": 4, "global_batch_size": n_mb}
    asked = {**asked, "nodes": max(1, layout["pp"] * 4 // 8), "set": {"host.per_training_launch": "0 us"}}
    in_formula = row(**asked)
    played = Pipeline(meaning="1F1B, played", order=one_forward_one_backward)
    monkeypatch.setitem(pipelines.PIPELINES, "1f1b", played)
    step = row(**asked)
    assert step.total_time == close(in_formula.total_time)
    assert step.compute_time == close(in_formula.compute_time)
    assert step.traffic["pp"] == pytest.approx(in_formula.traffic["pp"])


@pytest.mark.parametrize("pipeline", ["zb-h1", "dualpipev"])
@pytest.mark.parametrize("host", ["eager", "graph"])
def test_one_stage_has_no_pipeline(pipeline: str, host: str) -> None:
    alone = {**DENSE, "tp": 8, "dp": 1, "nodes": 1, "global_batch_size": 8, "host": host}
    assert row(**alone, pipeline=pipeline).total_time == close(row(**alone).total_time)


@pytest.mark.parametrize("pipeline", ["zb-h1", "dualpipe", "dualpipev"])
@pytest.mark.parametrize("schedule", ["serial", "mc2", "coc", "dual_batch"])
def test_steps_of_every_pipeline_add_up(pipeline: str, schedule: str) -> None:
    layout = {**DENSE, "pp": 4, "dp": 2, "global_batch_size": 32, "recompute": "selective"}
    step = row(**{**layout, "schedule": schedule}, pipeline=pipeline)
    busy = step.compute_time + step.compute_stretch
    assert step.total_time == close(busy + step.exposed_comm_time + step.free_time)
    assert sum(comm for comm, _ in step.traffic.values()) == close(step.comm_time)
    assert sum(exposed for _, exposed in step.traffic.values()) == close(step.exposed_comm_time)
    assert all(0.0 <= exposed <= comm * (1 + 1e-12) for comm, exposed in step.traffic.values())


def test_weight_gradients_that_are_put_off_fill_the_bubble() -> None:
    layout = {**DENSE, "pp": 4, "dp": 1, "nodes": 2, "global_batch_size": 16}
    steps = {name: row(**layout, pipeline=name) for name in ("1f1b", "zb-h1", "dualpipe", "dualpipev")}
    idle = {name: step.bubble_share * step.total_time for name, step in steps.items()}
    assert idle["1f1b"] > idle["zb-h1"] > idle["dualpipe"]
    assert idle["1f1b"] > idle["zb-h1"] > idle["dualpipev"]
    layer = row(**DENSE)
    there, back = (sum(of.values()) for of in (layer.segments, layer.backward_segments))
    put_off = sum(time for name, time in layer.backward_segments.items() if name.endswith("wgrad"))
    # (p - 1)(F + B - W) and (p - 1)(F + B + W), embedding and head aside
    assert idle["zb-h1"] / idle["1f1b"] == pytest.approx(1.0 - 2.0 * put_off / (there + back), rel=0.03)


def test_micro_batches_in_columns_are_played_one_by_one() -> None:
    from mc2perf.pipeline_steps import at_each, turns_of

    row_of_counts = np.array([[8.0], [16.0], [8.0]])
    lengths = at_each(row_of_counts, lambda n: float(len(turns_of(PIPELINES["zb-h1"], 4.0, int(n)))))
    assert np.ravel(lengths).tolist() == [96.0, 192.0, 96.0]


# --- forwards beside backwards

times = st.integers(0, 9).map(float)
passes = st.integers(1, 4).flatmap(lambda m: st.tuples(*[st.lists(times, min_size=m, max_size=m)] * 2))


def searched(one: Any, other: Any, f: float, g: float) -> float:
    """Every way through both, tried."""
    a, b = ([(t, i % 2 == 0) for i, t in enumerate(x for turn in zip(*of, strict=True) for x in turn)]
            for of in (one, other))  # fmt: skip

    @cache
    def least(i: int, j: int) -> float:
        ways = [0.0] if i == len(a) and j == len(b) else []
        if i < len(a):
            ways.append(a[i][0] + least(i + 1, j))
        if j < len(b):
            ways.append(b[j][0] + least(i, j + 1))
        if i < len(a) and j < len(b) and a[i][1] != b[j][1]:
            work, sent = (a[i][0], b[j][0]) if a[i][1] else (b[j][0], a[i][0])
            ways.append(float(stretched(work, sent, work, sent, f, g).total) + least(i + 1, j + 1))
        return min(ways)

    return least(0, 0)


@settings(max_examples=80, deadline=None)
@given(passes, passes, st.sampled_from([(1.0, 1.0), (1.2, 1.1), (1.5, 1.5)]))
def test_two_passes_go_the_best_of_all_ways(one: Any, other: Any, slow: tuple[float, float]) -> None:
    found = beside(one, other, *slow)
    compute, comm = (sum(one[at]) + sum(other[at]) for at in (0, 1))
    assert found.total == pytest.approx(searched(one, other, *slow), abs=1e-9)
    assert max(compute, comm) - 1e-9 <= found.total <= compute + comm + 1e-9
    assert compute - 1e-9 <= found.busy_compute <= found.total + 1e-9
    assert found.exposed_comm == pytest.approx(found.total - found.busy_compute)


@settings(max_examples=30, deadline=None)
@given(passes)
def test_long_equal_passes_take_no_more_than_in_lockstep(cycle: Any) -> None:
    """From one length to another: their ends, which have nothing beside them, cancel out."""
    compute, comm = cycle
    long, longer = (beside((n * compute, n * comm), (n * compute, n * comm), 1.0, 1.0).total for n in (8, 16))
    assert longer - long <= 8 * lockstep(compute, comm, 1.0, 1.0).total + 1e-9


def test_rows_of_passes_go_their_own_ways() -> None:
    one, other = np.random.default_rng(11).uniform(0.0, 1.0, (2, 2, 3, 6, 1))

    def both(rows: Any) -> Any:
        a, b = ((list(of[0][:, rows]), list(of[1][:, rows])) for of in (one, other))
        return beside(a, b, 1.2, 1.1)

    together = both(slice(None))
    for row_of_it in range(6):
        alone = both(row_of_it)
        assert np.all(together.total[row_of_it] == alone.total)
        assert np.all(together.busy_compute[row_of_it] == alone.busy_compute)


def test_communication_hides_where_forwards_meet_backwards_only() -> None:
    serial, paired = (
        row(**{**MOE, "schedule": name}, pipeline="dualpipe") for name in ("serial", "dual_batch")
    )
    assert paired.comm_time == close(serial.comm_time)
    assert paired.total_time < serial.total_time
    # at 32 micro-batches 27 pairs of 32 on the device that waits most; what fills and drains stays exposed
    alone = 1.0 - (32 - 4 - 1) / 32
    assert paired.exposed_comm_time / paired.comm_time >= alone - 0.03
    many = row(**{**MOE, "global_batch_size": 64 * 512}, pipeline="dualpipe")
    assert many.exposed_comm_time / many.comm_time < 0.08


def test_many_pairs_take_what_one_takes() -> None:
    """The steady state: step times differ by one pair of passes on the slowest device per micro-batch."""
    asked = {**MOE, "pp": 2, "ep": 64, "stage_layers": "31-30"}
    first, second, third = (
        row(**{**asked, "global_batch_size": 64 * n}, pipeline="dualpipe").total_time for n in (40, 42, 44)
    )
    assert third - second == close(second - first)
    serial = [
        row(**{**asked, "schedule": "serial", "global_batch_size": 64 * n}, pipeline="dualpipe")
        for n in (40, 42)
    ]
    compute = serial[1].compute_time - serial[0].compute_time
    comm = serial[1].comm_time - serial[0].comm_time
    assert max(compute, comm) <= second - first <= compute + comm


@pytest.mark.parametrize("recompute", ["none", "selective", "full", "block:3"])
def test_turns_hold_all_that_a_stage_runs(recompute: str) -> None:
    """Kernel by kernel as much computation, communication and sends as all layers together."""
    given = {name: value for name, value in MOE.items() if name not in ("stage_layers", "target")}
    numbers = {name: value if isinstance(value, str) else float(value) for name, value in given.items()}
    asked: Any = {**numbers, "recompute": recompute, "pipeline": "dualpipev", "stage_layers": HALVES}
    study = study_of(
        Scenario(target="deepseek-v3", **asked), load_machine("h800_sxm"), load_model("deepseek-v3")
    )
    passes = Passes(study, serial_outcome(study).layers, paired=True)
    for i in range(8):
        parts = passes.parts(i)
        backward = parts.backward + parts.weights
        for turns, whole in ((passes.forward_turns(i), parts.forward), (passes.backward_turns(i), backward)):
            assert sum(turns[0]) == close(np.asarray(whole.timing.compute).item())
            assert sum(turns[1]) == close(np.asarray(whole.timing.comm).item())


LLAMA: dict[str, Any] = {
    "hardware": "atlas_800t_a2", "tp": 4.0, "pp": 4.0, "dp": 1.0, "nodes": 2.0, "global_batch_size": 16.0,
}  # fmt: skip


def passes_of(target: str, **asked: Any) -> Passes:
    study = study_of(Scenario(target=target, **asked), load_machine(asked["hardware"]), load_model(target))
    return Passes(study, serial_outcome(study).layers, paired=True)


def test_turns_hold_shares_of_layers() -> None:
    """Kinds of mixers that alternate: of six layers on a stage four and a half are linear."""
    passes = passes_of(
        "qwen3-next-80b-a3b", hardware="h800_sxm", ep=16.0, pp=4.0, dp=16.0, global_batch_size=512.0,
        pipeline="dualpipev",
    )  # fmt: skip
    assert any(count % 1.0 for count in passes.key(1).counts)
    for i in range(8):
        parts = passes.parts(i)
        backward = parts.backward + parts.weights
        for turns, whole in ((passes.forward_turns(i), parts.forward), (passes.backward_turns(i), backward)):
            assert sum(turns[0]) == close(np.asarray(whole.timing.compute).item())
            assert sum(turns[1]) == close(np.asarray(whole.timing.comm).item())


def test_a_pass_sends_at_its_end() -> None:
    """Stage 3 lies on the device of stage 4, and sends nothing forward; stage 1 of as many layers does."""
    passes = passes_of("llama-2-7b", **LLAMA, pipeline="dualpipev")
    sends, stays = (np.array([np.asarray(t).item() for t in passes.forward_turns(i)[1]]) for i in (1, 3))
    sent = np.asarray(passes.parts(1).forward.traffic["pp"].comm).item()
    assert sent > 0.0
    assert sends[-1] - stays[-1] == close(sent)
    assert np.all(sends[:-1] == stays[:-1])


def test_the_heads_weight_gradient_is_put_off() -> None:
    """An inner stage and the last one, of as many layers: nothing else that is put off differs."""
    passes = passes_of("llama-2-7b", **LLAMA, pipeline="zb-h1")
    inner, last = (np.asarray(passes.parts(i).weights.timing.compute).item() for i in (2, 3))
    head = passes.study.costs.matmul("head wgrad", 4096.0, 32000.0 / 4, 4096.0, "bf16", out_size=8.0)
    assert last - inner == pytest.approx(np.asarray(head.time).item(), rel=0.05)


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_dualpipe_meet_over_both_copies(which: int) -> None:
    """Dense and routed ones: two devices of a pipeline hold the same stages."""
    of: Any = {"hardware": "h800_sxm", "ep": 64.0, "pp": 4.0, "dp": 64.0, "global_batch_size": 2048.0}
    layouts = [passes_of("deepseek-v3", **of, pipeline=name, stage_layers=layers).study.layout
               for name, layers in (("zb-h1", "16-15-15-15"), ("dualpipe", "16-15-15-15"))]  # fmt: skip
    once, twice = (data_groups(layout)[which][0] for layout in layouts if layout)
    assert twice == 2 * once


@pytest.mark.parametrize("pipeline", ["1f1b", "zb-h1", "dualpipe", "dualpipev"])
def test_stages_of_idle_layers_hand_on_what_they_get(pipeline: str) -> None:
    """Layers that compute nothing may be a whole stage of their own, as launch scripts have them."""
    whole = load_model("llama-2-7b")
    idle = LayerGroup(count=24, mixer=None, ffn=None)
    model = replace(whole, layers=(replace(whole.layers[0], count=8), idle))
    asked: Any = {"tp": 4.0, "pp": 4.0, "dp": 1.0, "nodes": 2.0, "global_batch_size": 16.0}
    scenario = Scenario(target="llama-2-7b", hardware="atlas_800t_a2", pipeline=pipeline, **asked)
    found = evaluate(scenario, load_machine("atlas_800t_a2"), model)
    assert all(step.total_time > 0.0 and step.bubble_share < 1.0 for step in found.rows if step.legal)


def test_blocks_are_of_a_stage_whatever_it_is_cut_into() -> None:
    layout = {**DENSE, "pp": 2, "dp": 1, "nodes": 1, "global_batch_size": 8}
    for name in ("1f1b", "dualpipe", "dualpipev"):
        none, half, every = (
            row(**layout, pipeline=name, recompute=recompute).compute_time
            for recompute in ("none", "block:8", "full")
        )
        assert half - none == pytest.approx((every - none) / 2, rel=1e-6)


def test_weight_gradients_that_are_put_off_cover_nothing() -> None:
    layout = {**MOE, "hardware": "atlas_800t_a3", "ep": 32, "dp": 32, "global_batch_size": 512}
    steps = [row(**layout, pipeline=name) for name in ("1f1b", "zb-h1")]
    assert steps[1].compute_time == close(steps[0].compute_time)
    assert steps[1].comm_time == close(steps[0].comm_time)
    assert steps[1].traffic["ep"][1] > steps[0].traffic["ep"][1]


@pytest.mark.parametrize("pipeline", ["1f1b", "zb-h1", "dualpipev"])
def test_gradients_travel_beside_the_last_weight_gradients(pipeline: str) -> None:
    layout = {**DENSE, "tp": 1, "pp": 2, "dp": 4, "nodes": 1, "global_batch_size": 64, "grad_overlap": True}
    comm, exposed = row(**layout, pipeline=pipeline).traffic["dp"]
    assert 0.0 < exposed < comm


def test_sends_hide_beside_each_other_as_well() -> None:
    slow = {"set": {"tiers.cluster.link_rate": "x0.1"}}
    steps = [row(**{**MOE, "schedule": name, **slow, "stage_layers": HALVES}, pipeline="dualpipev")
             for name in ("serial", "dual_batch")]  # fmt: skip
    (sent, alone), (same, left) = (step.traffic["pp"] for step in steps)
    assert sent == close(same) and alone == close(sent) and left < sent


def test_the_rate_that_deepseek_prints() -> None:
    """180 thousand H800-hours per trillion tokens on 2048 GPUs, PP16 EP64, up to 15360 sequences of 4K.

    DeepSeek-V3 Technical Report, sections 1, 3.1 and 4.2; nothing here is fitted to it. Its
    multi-token prediction, and what of attention it computes again, are not asked.
    """
    printed = 1e12 / (180e3 * 3600.0)
    layout = {**MOE, "pp": 16, "dp": 128, "stage_layers": "-".join(["4"] * 14 + ["3", "2"]), "dtype": "fp8"}
    layout |= {"combine_dtype": "bf16", "global_batch_size": 15360}
    dualpipe = row(**layout, pipeline="dualpipe").tokens_per_second
    plain = row(**{**layout, "schedule": "serial"}, pipeline="1f1b").tokens_per_second
    assert dualpipe == pytest.approx(printed, rel=0.2)
    assert abs(dualpipe - printed) < 0.5 * abs(plain - printed)


# --- memory


def test_dualpipe_doubles_weights_and_keeps_one_more() -> None:
    layout = {**DENSE, "pp": 4, "dp": 2, "global_batch_size": 32}
    names = ("1f1b", "dualpipe", "dualpipev")
    plain, folded, half = (answer(**layout, pipeline=name).memory for name in names)
    assert plain is not None and folded is not None and half is not None
    model = load_model("llama-2-7b")
    table = model.vocab_size * model.hidden_size
    layer = (model.parameter_count - 2 * table) / 32
    assert plain.parts["weights"] == 2 * (8 * layer + table) / 4
    assert folded.parts["weights"] == 2 * (16 * layer + 2 * table) / 4
    assert half.parts["weights"] == 2 * (8 * layer + 2 * table) / 4
    assert folded.parts["gradients"] == 2 * folded.parts["weights"]
    # both copies are in one group of data parallelism: four ranks share what two share otherwise
    assert folded.parts["optimizer"] == 12 * (16 * layer + 2 * table) / 4 / 4
    assert half.parts["optimizer"] == 12 * (8 * layer + 2 * table) / 4 / 2
    assert folded.parts["activations"] == close(plain.parts["activations"] * 5 / 4)
    assert half.parts["activations"] == close(plain.parts["activations"] * 9 / 8)


def test_half_the_stages_are_offered_where_both_do_not_fit() -> None:
    asked: Any = {"pp": 8.0, "tp": 4.0, "dp": 2.0, "global_batch_size": 64.0, "recompute": "full"}
    scenario = Scenario(target="qwen1.5-110b", hardware="atlas_800t_a2", pipeline="dualpipe", **asked)
    machine, model = load_machine("atlas_800t_a2"), load_model("qwen1.5-110b")
    assert not footprint_of(study_of(scenario, machine, model)).fits
    assert {"pipeline": "dualpipev"} in [fit.change for fit in nearest_fits(scenario, machine, model)]


def test_every_stage_of_zb_h1_keeps_as_many() -> None:
    layout = {**DENSE, "pp": 4, "dp": 1, "nodes": 2, "global_batch_size": 16}
    plain, late = (answer(**layout, pipeline=name).memory for name in ("1f1b", "zb-h1"))
    assert plain is not None and late is not None
    assert late.parts["activations"] == plain.parts["activations"]
    both = [
        answer(**{**layout, "schedule": "dual_batch"}, pipeline=name).memory for name in ("1f1b", "zb-h1")
    ]
    assert both[0] is not None and both[1] is not None
    assert both[1].parts["activations"] == both[0].parts["activations"] > late.parts["activations"]
    # its last stage holds the logits beside as many micro-batches: now the fullest
    assert late.parts["logits or a layer computed again"] > plain.parts["logits or a layer computed again"]


# --- what cannot be


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"pipeline": "dualpipe", "pp": 3, "nodes": 3, "tp": 8, "stage_layers": "11-11-10",
          "global_batch_size": 8},
         "pp: dualpipe feeds stages from both ends, 3 do not halve; write 2 or 4"),
        ({"pipeline": "dualpipe", "pp": 4, "global_batch_size": 6, "dp": 1, "nodes": 2},
         "global_batch_size: dualpipe needs at least 2 x pp = 8 micro-batches, not 6; write 8 or more"),
        ({"pipeline": "dualpipe", "pp": 4, "global_batch_size": 9, "dp": 1, "nodes": 2},
         "global_batch_size: dualpipe feeds half of the micro-batches at each end, 9 do not halve;"
         " write 8 or 10"),
        ({"pipeline": "dualpipev", "pp": 4, "global_batch_size": 14, "dp": 2},
         "global_batch_size: dualpipev needs at least 2 x pp = 8 micro-batches, not 7; write 16 or more"),
        ({"pipeline": "dualpipev", "pp": 32, "global_batch_size": 64, "dp": 1, "tp": 1},
         "pp: 32 layers do not divide by the 2 chunks of pp stages = 64; write divisors"),
        ({"pipeline": "dualpipev", "pp": 4, "global_batch_size": 16, "dp": 2, "stage_layers": "8-8-8-8"},
         "stage_layers: 4 stages are not the 8 half stages of dualpipev"),
        ({"pipeline": "zb-h1", "vpp": 2, "pp": 4, "global_batch_size": 16, "dp": 2},
         "vpp: zb-h1 does not interleave; leave it out, or write --pipeline interleaved"),
        ({"pipeline": "interleaved", "pp": 4, "global_batch_size": 16, "dp": 2},
         "vpp: interleaved cuts a stage into model chunks; write --vpp 2 or more"),
        ({"pipeline": "zb-h1"}, "pipeline: is part of a whole step; write --global-batch-size as well"),
    ],
)  # fmt: skip
def test_refused_with_the_nearest_that_is_not(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        row(**{**DENSE, **given})
    assert problem in refused.value.problems


def test_every_pipeline_is_said() -> None:
    layout = {**DENSE, "pp": 4, "dp": 2, "global_batch_size": 32}
    for name, pipeline in PIPELINES.items():
        found = answer(**layout, pipeline=name, **({"vpp": 2} if pipeline.interleaves else {}))
        assert pipeline.meaning in found.assumptions and found.memory is not None
        assert pipeline.keeps in found.memory.assumptions
