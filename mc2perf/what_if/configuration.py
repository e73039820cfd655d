"""One configuration with its schedule and its pieces chosen, and the sheet that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.mc2 import best_tiles
from mc2perf.outcomes.outcome import Outcome, serial_outcome
from mc2perf.results import Results
from mc2perf.scenario import SCHEDULES, Scenario
from mc2perf.schedules import NOTHING
from mc2perf.studies.rows import SECONDS_PER_HOUR, Plan
from mc2perf.study import Study, study_of
from mc2perf.what_if.laying import Layout, laid_out, one
from mc2perf.what_if.lines import GIGA, Links, links_of
from mc2perf.what_if.pipelines import three_stages, two_stages
from mc2perf.what_if.sheet import Counted, Sheet, literal
from mc2perf.workload.parts import Pair, Tiles
from mc2perf.writers.tables.what_if import Cell, WhatIf

LAID_OUT = ("serial", "mc2", "micro_batch", "coc")
"""Schedules that a sheet can hold."""

LOCKSTEP = "two batches in lockstep have turns of their own for every kernel; sweep over bandwidths instead"
"""Why dual_batch is none of them."""


@dataclass(frozen=True)
class Chosen:
    """A configuration with its schedule and its pieces: how it is laid out, what the tool says of it."""

    study: Study
    schedule: str
    pieces: float
    laid: Layout
    links: Links
    numbers: dict[str, float]


def what_if_of(
    scenario: Scenario,
    machine: Machine,
    model: Model | None = None,
    plan: Plan | None = None,
    schedules: Sequence[str] = SCHEDULES,
) -> WhatIf:
    """One configuration as a calculation to go on with.

    Parameters
    ----------
    scenario : Scenario
        Of one row. Without a schedule the fastest that can be laid out, without a number of pieces the
        fastest; both stay as they are when cells change, and so do the lengths of tiles.
    machine, model : Machine, Model or None
        Where it runs, and what unless it is an operator.
    plan : Plan, optional
        Price of an NPU hour; 0 if it has none.
    schedules : sequence of str
        Those to choose from, where the scenario has none.

    Returns
    -------
    WhatIf
        Inputs, parts, sums, and beside them what the tool computed; only a note where no schedule that
        can be laid out is possible.

    Raises
    ------
    InputError
        Contradictions between scenario, machine and model.

    Notes
    -----
    After a change of a bandwidth the sheet says what the tool says of that machine with the same pieces,
    in the range that its cell names. The factors on speed divide what is bound by cubes or by memory as
    it is now: they do not move the border between both.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> asked = Scenario(target="all_gather_matmul", m=4096.0, n=4096.0, k=8192.0, schedule="mc2")
    >>> sheet = what_if_of(asked, load_machine("atlas_800i_a2"))
    >>> sheet.title
    'all_gather_matmul on atlas_800i_a2: mc2, pieces: 2'
    """
    if scenario.policy not in ("scan", "closed_form"):
        scenario = replace(scenario, policy="scan")
    study = study_of(scenario, machine, model)
    serial = serial_outcome(study)
    names = tuple(schedules) if scenario.schedule == "all" else (scenario.schedule,)
    outcomes = [OUTCOMES[name](study, serial) for name in names]
    possible = [o for o in outcomes if o.schedule in LAID_OUT and not np.all(o.refused_at)]
    if not possible:
        return _nothing(scenario, outcomes)
    best = min(possible, key=lambda outcome: _numbers(study, serial, outcome)["total_time"])
    return _sheet(_chosen(study, serial, best, model), plan or Plan())


def _nothing(scenario: Scenario, outcomes: Sequence[Outcome]) -> WhatIf:
    refused = [reason.text for outcome in outcomes for reason in outcome.refused if np.all(reason.where)]
    why = refused[0] if refused else LOCKSTEP
    return WhatIf(scenario.target, [Cell(name="note", label=f"{outcomes[0].schedule}: {why}", unit="")])


def _numbers(study: Study, serial: Outcome, outcome: Outcome) -> dict[str, float]:
    """What the tool says of a schedule at its best number of pieces."""
    results = Results(study, outcome, Results(study, serial, None))
    best = best_count(results["total_time"], outcome.refused_at)
    return {name: float(at_count(values, best).item()) for name, values in results.items()}


def _chosen(study: Study, serial: Outcome, outcome: Outcome, model: Model | None) -> Chosen:
    numbers = _numbers(study, serial, outcome)
    schedule, pieces = ("serial" if outcome.note else outcome.schedule), numbers["pieces"]
    tiles = _tiles(study, schedule, pieces, numbers)

    def lay(machine: Machine) -> Layout:
        on_it = study_of(study.scenario, machine, model)
        # serial stands last: what every part takes uncut
        return [*laid_out(on_it, schedule, pieces, tiles), *laid_out(on_it, "serial", 1.0, tiles)]

    base = lay(study.costs.machine)
    links = links_of(study.costs.machine, base, lay)
    return Chosen(study, outcome.schedule, pieces, base, links, numbers)


def _tiles(study: Study, schedule: str, pieces: float, numbers: dict[str, float]) -> list[Tiles]:
    """Tiles of every part: fused pairs of a model choose their own."""
    shorter = not np.isnan(numbers["rest_rows"])
    lengths = [numbers[name] for name in ("piece_rows", "rest_rows", "rest_first")] if shorter else ()
    alike = Tiles(pieces, *lengths)
    if schedule != "mc2" or study.model is None:
        return [alike for _ in study.parts()]
    parts = [part for _, part in study.parts()]
    return [best_tiles(study, part)[1] if isinstance(part, Pair) else alike for part in parts]


def _sheet(chosen: Chosen, plan: Plan) -> WhatIf:
    """Inputs, what runs in turn, pipelines, sums, and what the tool says."""
    half = len(chosen.laid) // 2
    ours, serial = chosen.laid[:half], chosen.laid[half:]
    sheet = Sheet(chosen.links)
    _inputs(sheet, chosen, ours, plan)
    issued = _serial_cells(sheet, chosen.study, serial)
    passes = [
        _overlapped_cells(sheet, end, part, _conditions(ours)) for end, part in _passes(chosen.study, ours)
    ]
    _sums(sheet, chosen, passes, ours, issued)
    s = chosen.study.scenario
    title = f"{s.target} on {s.hardware}: {chosen.schedule}, pieces: {chosen.pieces:g}"
    return WhatIf(title, sheet.cells)


def _inputs(sheet: Sheet, chosen: Chosen, laid: Layout, plan: Plan) -> None:
    study, machine = chosen.study, chosen.study.costs.machine
    for name, held in chosen.links.ranges.items():
        rate, label = machine.tiers[name].link_rate / GIGA, f"bandwidth of a link, {name}"
        if held:
            low, high = rate / held[1], rate / held[0]
            note = f"what mc2perf says of {low:.4g} to {high:.4g} GB/s"
            sheet.ask(f"link_{name}", label, "GB/s", rate, note)
        else:
            note = "stays: transfers follow no straight line around it; sweep it instead"
            sheet.put(f"link_{name}", label, "GB/s", rate, note)
    sheet.ask("added_latency", "added to every transfer of a piece", "s", 0.0)
    sheet.ask("matmul_speed", "speed of the cubes", "1", 1.0, "divides kernels that cubes bound now")
    sheet.ask("memory_speed", "speed of the memory", "1", 1.0, "divides kernels that memory bounds now")
    for at, (f, g) in enumerate(_conditions(laid)):
        where = "at least 1; 1/f + 1/g at least 1"
        sheet.ask(f"f{at}", f"f{at}: transfers take longer beside computation", "1", f, where)
        sheet.ask(f"g{at}", f"g{at}: computation takes longer beside transfers", "1", g, where)
    sheet.ask("per_launch", "host time of a launch", "s", study.host_per_launch)
    if _waits(study, laid)[0]:
        sheet.ask("per_read", "host time of a result that it waits for", "s", study.host_per_read)
    if np.any(study.tokens):
        sheet.put("tokens", "tokens per NPU", "1", one(study.tokens), "stays: all times are for these tokens")
        sheet.ask("npus", "NPUs", "1", study.npus, "of the same layout, side by side")
        price = plan.price_per_npu_hour
        sheet.ask("price", "price of an NPU for an hour", "1/h", 0.0 if np.isnan(price) else price)


def _conditions(laid: Layout) -> list[tuple[float, float]]:
    """Slow-down factors of the groups of ranks, each once."""
    found = [
        (float(p.on.comm_slowdown), float(p.on.compute_slowdown)) for _, part in laid for p in part.pipelines
    ]
    return list(dict.fromkeys(found))


def _counted(laid: Layout) -> list[Counted]:
    return [(count, segment) for count, part in laid for segment in part.in_turn]


def _passes(study: Study, laid: Layout) -> list[tuple[str, Layout]]:
    """Queues of the host: one, or where it waits for results one forward and one backward."""
    back = [
        backward
        for layer in study.layers
        for backward, parts in ((False, layer.forward), (True, layer.backward))
        for _ in parts
    ]
    if not _waits(study, laid)[0] or not any(back):
        return [("", laid)]
    there, again = ([x for x, b in zip(laid, back, strict=True) if b == which] for which in (False, True))
    return [("", there), ("_back", again)]


def _waits(study: Study, laid: Layout) -> tuple[float, float]:
    """Results that the host waits for, and kernels that it issues."""
    launches = sum(count * part.launches for count, part in laid)
    reads = sum(count * part.reads for count, part in laid)
    told = study.waits(NOTHING._replace(launches=launches, reads=reads))
    return one(told), launches


def _issued(study: Study, device: str, laid: Layout) -> str:
    """Time of a queue, :func:`mc2perf.equations.host.launch_queue_time`."""
    reads, launches = _waits(study, laid)
    host = f"{literal(launches)}*{{per_launch}}"
    if not reads:
        return f"MAX({device}, {host})"
    waiting = f"{literal(reads)}*{{per_launch}}"
    first = f"{literal(reads / launches)}*{device}"
    return f"(MAX({device} + {waiting}, {host} + {first}) + {literal(reads)}*{{per_read}})"


def _serial_cells(sheet: Sheet, study: Study, serial: Layout) -> str:
    """What everything takes one after the other; the time with the host."""
    sheet.heading("h_serial", "One after the other", "the base line of the speed-up")
    issued = []
    for end, part in _passes(study, serial):
        kernels = sheet.compute(f"serial_compute{end}", "all kernels", _counted(part))
        transfers = sheet.comm(f"serial_comm{end}", "all transfers", _counted(part))
        issued.append(_issued(study, f"({kernels} + {transfers})", part))
    return " + ".join(issued)


class Cells(NamedTuple):
    """A pass under the schedule: what of its communication nothing covers, all the rest, and its parts."""

    end: str
    exposed: str
    busy: str
    laid: Layout


def _overlapped_cells(sheet: Sheet, end: str, laid: Layout, factors: list[tuple[float, float]]) -> Cells:
    """Sums over the parts of a pass: communication that nothing covers, all the rest."""
    sheet.heading(f"h_turn{end}", "In turn under the schedule", "everything outside the pipelines below")
    busy = [sheet.compute(f"turn_compute{end}", "kernels", _counted(laid))]
    exposed = [sheet.comm(f"turn_comm{end}", "transfers", _counted(laid))]
    pipelines = [(count, p) for count, part in laid for p in part.pipelines]
    for at, (count, pipeline) in enumerate(pipelines, start=1):
        key = (float(pipeline.on.comm_slowdown), float(pipeline.on.compute_slowdown))
        name, group = f"p{at}{end}", factors.index(key)
        sheet.heading(f"h_{name}", f"Pipeline {at}: {pipeline.label}", f"{count:g} times")
        stages = three_stages if pipeline.combined else two_stages
        total, alone = stages(sheet, name, pipeline, f"{{f{group}}}", f"{{g{group}}}")
        times = sheet.put(f"{name}_count", "how often", "1", count)
        exposed.append(f"{times}*{alone}")
        busy.append(f"{times}*({total} - {alone})")
    return Cells(end, " + ".join(exposed), " + ".join(busy), laid)


def _sums(sheet: Sheet, chosen: Chosen, passes: list[Cells], ours: Layout, issued: str) -> None:
    """The answer, and beside every number what the tool computed."""
    sheet.heading("h_sums", "Answer")
    study, several = chosen.study, len(passes) > 1
    launches = sum(count * part.launches for count, part in ours)
    sheet.put("host_time", "host, launches x time of a launch", "s", f"{literal(launches)}*{{per_launch}}")
    sheet.put(
        "exposed_comm_time", "communication that nothing covers", "s", " + ".join(p.exposed for p in passes)
    )
    devices = [
        sheet.put(f"device{p.end}", f"device, {'back' if p.end else 'there'}", "s", f"{p.busy} + {p.exposed}")
        for p in passes
        if several
    ] or [f"({passes[0].busy} + {{exposed_comm_time}})"]
    sheet.put("device_time", "device, computing and uncovered communication", "s", " + ".join(devices))
    queues = [
        _issued(study, device if several else "{device_time}", p.laid)
        for device, p in zip(devices, passes, strict=True)
    ]
    sheet.put("total_time", "time", "s", " + ".join(queues), "device and host run side by side, up to a read")
    sheet.put("serial_time", "serial time", "s", issued)
    sheet.put("speedup", "speed-up over serial", "1", "{serial_time}/{total_time}")
    sheet.put("comm_ratio", "uncovered communication of the time", "1", "{exposed_comm_time}/{total_time}")
    shown = ["total_time", "serial_time", "speedup", "comm_ratio", "exposed_comm_time", "host_time"]
    if np.any(chosen.study.tokens):
        sheet.put("tokens_per_second", "tokens per second of an NPU", "1/s", "{tokens}/{total_time}")
        sheet.put("all_tokens_per_second", "tokens per second of all", "1/s", "{npus}*{tokens_per_second}")
        price = f"{{price}}*{1e6 / SECONDS_PER_HOUR!r}/{{tokens_per_second}}"
        sheet.put("cost_per_million_tokens", "cost of a million tokens", "1", price)
        shown.append("tokens_per_second")
    sheet.heading("h_tool", "As computed by mc2perf", "for the values that cells had at first")
    for name in shown:
        unit = next(cell.unit for cell in sheet.cells if cell.name == name)
        sheet.put(f"mc2perf_{name}", name, unit, chosen.numbers[name])
