"""The what-if sheet says what the tool says: as it starts, and after its cells change."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace

import numpy as np
import pytest

from mc2perf import schedules
from mc2perf.api import estimate
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.outcomes.mc2 import best_tiles
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.rows import Plan
from mc2perf.study import Study, study_of
from mc2perf.sweeping import about, ask_sweep
from mc2perf.units import Num
from mc2perf.what_if import LAID_OUT, what_if_of
from mc2perf.workload.parts import ExpertPath, Pair, Part, Tiles
from mc2perf.writers.tables.what_if import WhatIf, values

CLOSE = 1e-9
RESULTS = ("total_time", "serial_time", "speedup", "comm_ratio", "exposed_comm_time", "host_time")
MACHINES = ("atlas_800i_a2", "atlas_800t_a2_b2", "atlas_800t_a3", "ascend_950pr", "h100_sxm")

OPERATORS = [
    Scenario(target="all_gather_matmul", m=4096.0, n=4096.0, k=8192.0, ranks=8.0),
    Scenario(target="matmul_reduce_scatter", m=8192.0, n=8192.0, k=2048.0, ranks=8.0, buffers=2.0),
    Scenario(target="all_gather_matmul", m=4096.0, n=2048.0, k=8192.0, ranks=8.0, buffers=1.0),
    Scenario(target="matmul_all_reduce", m=2048.0, n=4096.0, k=4096.0, ranks=8.0),
    Scenario(target="all_to_all_v_grouped_matmul", m=8192.0, n=4096.0, k=4096.0, ranks=8.0,
             experts_per_rank=4.0),
    Scenario(target="moe_layer", m=8192.0, n=2048.0, k=4096.0, ranks=8.0, experts_per_rank=4.0,
             shared_width=2048.0),
    Scenario(target="moe_layer", m=4096.0, n=2048.0, k=4096.0, ranks=32.0, experts_per_rank=2.0, buffers=2.0),
    Scenario(target="moe_layer", m=4096.0, n=2048.0, k=4096.0, ranks=8.0, experts_per_rank=2.0,
             micro_batches=6.0, buffers=3.0),
]  # fmt: skip
MODELS = [
    Scenario(target="mixtral-8x7b"),
    Scenario(target="mixtral-8x7b", ep=2.0, tp=2.0, host="graph"),
    Scenario(target="mixtral-8x7b", phase="prefill", batch_size=1.0, seq_len=1024.0),
    Scenario(target="deepseek-v3", nodes=4.0),
]
# a short ring beside a long head, critical on every machine with MC2
RING = Scenario(
    target="all_gather_matmul", m=16384.0, n=2048.0, k=4096.0, ranks=4.0, buffers=2.0, tile_cnt=8.0
)
SCENARIOS = (*OPERATORS, RING, *MODELS)

QUICK = "FULL" not in os.environ
"""Two machines for every scenario, unless FULL is set."""

RANGE = re.compile(r"[\d.]+(?:e[+-]?\d+)?(?= to| GB/s)")


def sheet_of(scenario: Scenario, machine: Machine, schedule: str = "all") -> WhatIf:
    """The sheet of a scenario under a schedule."""
    asked = replace(scenario, hardware=machine.name, schedule=schedule)
    return what_if_of(asked, machine, model_of(scenario))


def with_values(sheet: WhatIf, **numbers: float) -> dict[str, float]:
    """What the sheet says with other inputs."""
    cells = [replace(c, value=numbers[c.name]) if c.name in numbers else c for c in sheet.cells]
    return values(WhatIf(sheet.title, cells))


def with_links(machine: Machine, tier: str, factor: float) -> Machine:
    """The machine with faster or slower links."""
    changed = replace(machine.tiers[tier], link_rate=machine.tiers[tier].link_rate * factor)
    return replace(machine, tiers={**machine.tiers, tier: changed})


def told(
    scenario: Scenario, machine: Machine, schedule: str, pieces: float, base: Machine
) -> dict[str, float]:
    """What the schedules say of a machine with the pieces chosen on another one."""
    study, first = (study_for(scenario, m) for m in (machine, base))
    times, serials = [schedules.NOTHING] * 2, [schedules.NOTHING] * 2
    back = [way for layer in study.layers for way in [0] * len(layer.forward) + [1] * len(layer.backward)]
    for way, (count, part), (_, before) in zip(back, study.parts(), first.parts(), strict=True):
        tiles = best_tiles(first, before)[1] if schedule == "mc2" and isinstance(before, Pair) else None
        times[way] += priced(study, part, schedule, pieces, tiles).times(count)
        serials[way] += schedules.pair_serial(part).times(count)
    host = sum(float(t.launches) * study.host_per_launch for t in times)
    total, alone = (one(study.issued(*passes)) for passes in (times, serials))
    exposed = sum(one(t.exposed) for t in times)
    numbers = (total, alone, alone / total, exposed / total, exposed, host)
    return dict(zip(RESULTS, numbers, strict=True))


def one(number: Num) -> float:
    """The number of one row."""
    return float(np.asarray(number).item())


def priced(study: Study, part: Part, schedule: str, pieces: Num, tiles: Tiles | None) -> schedules.Timing:
    """A part under a schedule."""
    match schedule, part:
        case "mc2", Pair():
            assert tiles is not None
            return schedules.pair_mc2(part, tiles, study.conditions(part))
        case "coc", Pair():
            return schedules.pair_parts(part, pieces, study.conditions(part))
        case "micro_batch", ExpertPath():
            return schedules.experts_micro_batch(part, pieces, study.conditions(part))
        case "mc2", ExpertPath() if part.fuses:
            return schedules.experts_mc2(part, study.conditions(part))
    return schedules.pair_serial(part)


def model_of(scenario: Scenario) -> Model | None:
    """The model, read once."""
    return None if is_operator(scenario.target) else loaded_model(scenario.target)


loaded_model, loaded_machine = functools.cache(load_model), functools.cache(load_machine)


def study_for(scenario: Scenario, machine: Machine) -> Study:
    """The scenario on a machine."""
    return study_of(replace(scenario, hardware=machine.name), machine, model_of(scenario))


def pieces_of(sheet: WhatIf) -> float:
    """Pieces that the title names."""
    return float(sheet.title.rpartition("pieces: ")[2])


def in_range(sheet: WhatIf) -> list[tuple[str, float, float]]:
    """Bandwidths to try: the cell, its new value, the factor on the old one."""
    found = []
    for cell in sheet.cells:
        if cell.name.startswith("link_") and cell.value is not None:
            low, high = (float(word) for word in RANGE.findall(cell.note))
            new = [(cell.name, cell.value * f, f) for f in ((0.6, 1.7) if QUICK else (0.5, 0.9, 1.3, 2.0))]
            found += [(name, value, f) for name, value, f in new if low <= value <= high]
    return found


@pytest.mark.parametrize("schedule", LAID_OUT)
@pytest.mark.parametrize("at", range(len(SCENARIOS)), ids=[s.target for s in SCENARIOS])
def test_sheet_says_what_the_tool_says_before_and_after_a_change(at: int, schedule: str) -> None:
    scenario = SCENARIOS[at]
    first = at + LAID_OUT.index(schedule)
    for name in (MACHINES[first % 5], MACHINES[(first + 2) % 5]) if QUICK else MACHINES:
        machine = loaded_machine(name)
        sheet = sheet_of(scenario, machine, schedule)
        start = values(sheet)
        if "total_time" not in start:
            continue  # refused
        for result in RESULTS:
            assert start[result] == pytest.approx(start[f"mc2perf_{result}"], rel=CLOSE, abs=1e-15)
        laid = schedule if "h_p1" in {cell.name for cell in sheet.cells} else "serial"
        for cell, value, factor in in_range(sheet):
            other = with_links(machine, cell.removeprefix("link_"), factor)
            want = told(scenario, other, laid, pieces_of(sheet), machine)
            changed = with_values(sheet, **{cell: value})
            for result in RESULTS:
                assert changed[result] == pytest.approx(want[result], rel=CLOSE, abs=1e-15), (name, result)


def test_a_sweep_brings_its_sheet() -> None:
    given: dict[str, object] = {"n": "4K", "k": "8K", "ranks": 8}
    axes = ["tile_cnt=1,2,4,8", "m=4K,8K", "tiers.node.link_rate=14GB/s,28GB/s"]
    sheet = about(ask_sweep("all_gather_matmul", given, {}, axes)).what_if
    assert sheet is not None
    now = values(sheet)
    assert "fastest of these" in sheet.title
    assert now["link_node"] == 14.0
    assert now["total_time"] == pytest.approx(now["mc2perf_total_time"], rel=CLOSE)


def test_a_sweep_of_contradictions_says_why_in_its_sheet() -> None:
    sheet = about(ask_sweep("mixtral-8x7b", {}, {}, ["ep=3,8"])).what_if
    assert sheet is not None
    assert [cell.name for cell in sheet.cells] == ["note"]
    assert "ep" in sheet.cells[0].label


def test_price_npus_and_speeds_follow() -> None:
    machine = loaded_machine("atlas_800i_a2")
    sheet = what_if_of(
        Scenario(target="mixtral-8x7b"), machine, loaded_model("mixtral-8x7b"), Plan(price_per_npu_hour=2.0)
    )
    start = values(sheet)
    assert start["cost_per_million_tokens"] == pytest.approx(
        2.0 / 3600 * 1e6 / start["mc2perf_tokens_per_second"]
    )
    assert with_values(sheet, npus=16.0)["all_tokens_per_second"] == 16.0 * start["tokens_per_second"]
    assert with_values(sheet, matmul_speed=2.0)["total_time"] < start["total_time"]
    assert with_values(sheet, memory_speed=2.0)["serial_time"] < start["serial_time"]
    late = with_values(sheet, added_latency=1e-3)
    assert late["serial_time"] > start["serial_time"] + 1e-3
    assert late["total_time"] > start["total_time"]
    issued = with_values(sheet, per_launch=1.0)
    assert issued["total_time"] == pytest.approx(issued["host_time"], rel=1e-4)


def test_slow_downs_follow_the_schedules() -> None:
    machine = loaded_machine("atlas_800i_a2")
    tier = machine.tiers["node"]
    engines = {n: replace(e, comm_under_compute=1.4, compute_under_comm=1.2) for n, e in tier.engines.items()}
    other = replace(machine, tiers={**machine.tiers, "node": replace(tier, engines=engines)})
    for at, schedule in ((0, "mc2"), (1, "mc2"), (0, "coc"), (5, "mc2"), (7, "micro_batch")):
        sheet = sheet_of(SCENARIOS[at], machine, schedule)
        changed = with_values(sheet, f0=1.4, g0=1.2)
        want = told(SCENARIOS[at], other, schedule, pieces_of(sheet), machine)
        for result in RESULTS:
            assert changed[result] == pytest.approx(want[result], rel=CLOSE), (at, schedule, result)


def test_a_short_ring_is_critical_where_it_is_tried() -> None:
    assert values(sheet_of(RING, loaded_machine("ascend_950pr"), "mc2"))["p1_ring_longer"] == 1.0


def test_lockstep_is_refused_in_words() -> None:
    sheet = sheet_of(Scenario(target="mixtral-8x7b"), loaded_machine("atlas_800i_a2"), "dual_batch")
    assert [cell.name for cell in sheet.cells] == ["note"]
    assert "lockstep" in sheet.cells[0].label


def test_groups_between_fits_keep_their_bandwidth() -> None:
    asked = Scenario(target="all_gather_matmul", m=4096.0, n=4096.0, k=8192.0, ranks=3.0)
    sheet = sheet_of(asked, loaded_machine("atlas_800t_a3"), "serial")
    links = [cell for cell in sheet.cells if cell.name.startswith("link_")]
    assert links
    for cell in links:
        assert (cell.value is None) == ("stays" in cell.note)
    now = values(sheet)
    assert now["total_time"] == pytest.approx(now["mc2perf_total_time"], rel=CLOSE)


def test_most_sheets_have_a_bandwidth_that_moves_the_answer_and_a_range() -> None:
    moved = []
    for at, scenario in enumerate(SCENARIOS[::2]):
        sheet = sheet_of(scenario, loaded_machine(MACHINES[at % 4]))
        start = values(sheet)["total_time"]
        tried = [with_values(sheet, **{cell: value})["total_time"] for cell, value, _ in in_range(sheet)]
        moved.append(any(time > start * 1.001 for time in tried))
    assert sum(moved) > 0.7 * len(moved)


@pytest.mark.parametrize("schedule", ["mc2", "coc"])
def test_a_changed_cell_says_what_an_estimate_with_that_bandwidth_says(schedule: str) -> None:
    sheet = sheet_of(replace(OPERATORS[0], tile_cnt=4.0), loaded_machine("atlas_800i_a2"), schedule)
    changed = with_values(sheet, link_node=20.0)
    pieces = pieces_of(sheet)
    override = {"tiers.node.link_rate": "20GB/s"}
    answer = estimate(
        "all_gather_matmul", set=override, m=4096.0, n=4096.0, k=8192.0, ranks=8.0, schedule=schedule,
        tile_cnt=pieces,
    )  # fmt: skip
    row = next(row for row in answer.rows if row.schedule == schedule)
    for result in RESULTS:
        assert changed[result] == pytest.approx(getattr(row, result), rel=CLOSE), result
