"""Which chart shows what: pieces, schedules, communication against size, kernels under roofs."""

from __future__ import annotations

from collections.abc import Sequence

from mc2perf.answer import Answer, Row
from mc2perf.problems import InputError
from mc2perf.roofline import Roofline
from mc2perf.table import Block, Words
from mc2perf.units import show
from mc2perf.writers.charts import Axis, Band, Bars, Chart, Line

BREAKDOWN = ("computing", "communication that nothing covers", "neither runs")
"""Parts of a time: they add up to it."""


def pieces_chart(answer: Answer) -> Chart:
    """Time against the number of pieces, for every schedule that is cut; policies as marks, the flat region.

    Raises
    ------
    InputError
        No schedule of the answer has a number of pieces to choose.
    """
    curves = [row for row in answer.rows if row.legal and len(row.curve) > 1]
    if not curves:
        raise InputError(["kind: no schedule here has a number of pieces to choose; write --kind breakdown"])
    best = min(curves, key=lambda row: row.total_time)
    policies = tuple(
        Line(f"policy {cut.policy}", (float(len(cut.tiles)),), (cut.total_time,), joined=False)
        for cut in answer.policies
        if not cut.reason
    )
    serial = answer.rows[0].total_time
    ends = (1.0, float(max(max(row.curve) for row in curves)))
    return Chart(
        f"{_asked(answer)}: time against pieces",
        Axis("pieces", scale="log2"),
        Axis("time", "s"),
        (
            *map(_curve, curves),
            Line("best", (float(best.pieces),), (best.total_time,), joined=False),
            Line("serial", ends, (serial, serial), marked=False),
            *policies,
        ),
        (Band("within 2 % of the best", *map(float, best.flat_region)),),
        note=f"best: {best.schedule}, {best.pieces} pieces, {show(best.total_time, 's')}",
    )


def _curve(row: Row) -> Line:
    counts = sorted(row.curve)
    return Line(row.schedule, tuple(map(float, counts)), tuple(row.curve[n] for n in counts))


def _asked(answer: Answer) -> str:
    return f"{answer.inputs['target']}, {answer.inputs['hardware']}"


def breakdown_chart(answer: Answer) -> Chart:
    """What every schedule's time is made of.

    Raises
    ------
    InputError
        No schedule is legal.
    """
    rows = answer.legal_rows
    if not rows:
        raise InputError(["kind: every schedule is refused; there is nothing to draw"])
    times = zip(*((row.total_time - row.exposed_comm_time - row.free_time, row.exposed_comm_time,
                   row.free_time) for row in rows), strict=True)  # fmt: skip
    return Chart(
        f"{_asked(answer)}: time of each schedule",
        Axis("schedule"),
        Axis("time", "s"),
        bars=Bars(tuple(row.schedule for row in rows), dict(zip(BREAKDOWN, times, strict=True))),
    )


def ratio_chart(target: str, size: str, block: Block, machines: Sequence[str]) -> Chart:
    """Share of communication that nothing covers, against size, for every machine: best schedule and serial.

    Parameters
    ----------
    target, size : str
        What was asked, and the input that grows.
    block : Block
        Columns hardware, schedule, legal, ``size``, total_time and comm_ratio; a row for every schedule.
    machines : sequence of str
        In the order to draw them.
    """
    lines = [
        line
        for machine in machines
        for line in (
            _ratios(block, size, machine, machine, serial=False),
            _ratios(block, size, machine, f"{machine}, serial", serial=True),
        )
        if line.x
    ]
    return Chart(
        f"{target}: communication that nothing covers",
        Axis(size, scale="log2"),
        Axis("share of the time", "1"),
        tuple(lines),
        note="dashed: nothing overlapped",
    )


def _ratios(block: Block, size: str, machine: str, label: str, serial: bool) -> Line:
    """At every size the fastest schedule of a machine, or serial."""
    texts = {name: list(values) for name, values in block.items() if isinstance(values, Words)}
    numbers = {name: values for name, values in block.items() if not isinstance(values, Words)}
    fastest: dict[float, tuple[float, float]] = {}
    for i, name in enumerate(texts["hardware"]):
        wanted = not serial or texts["schedule"][i] == "serial"
        if name != machine or not wanted or texts["legal"][i] != "yes":
            continue
        time, x, y = (float(numbers[what][i]) for what in ("total_time", size, "comm_ratio"))
        fastest[x] = min(fastest.get(x, (time, y)), (time, y))
    x_values = tuple(sorted(fastest))
    return Line(label, x_values, tuple(fastest[x][1] for x in x_values), of=machine if serial else "")


def roofline_chart(roofs: Roofline) -> Chart:
    """Matmuls of a layer under the roofs of the machine.

    Raises
    ------
    InputError
        The layer has no matmul.
    """
    if not roofs.kernels:
        raise InputError(["kind: no matmul is priced here; there is nothing to draw"])
    spread = [kernel.intensity for kernel in roofs.kernels]
    ends = (min(*spread, roofs.ridge) / 4.0, roofs.ridge, max(*spread, roofs.ridge) * 4.0)
    roof = Line("roof", ends, tuple(min(roofs.peak, x * roofs.bandwidth) for x in ends), marked=False)
    names = tuple(dict.fromkeys(kernel.name for kernel in roofs.kernels))
    points = tuple(
        Line(
            name,
            tuple(k.intensity for k in roofs.kernels if k.name == name),
            tuple(k.reached for k in roofs.kernels if k.name == name),
            joined=False,
        )
        for name in names
    )
    peak, rate = show(roofs.peak, "FLOP/s"), show(roofs.bandwidth, "B/s")
    return Chart(
        f"{roofs.hardware}: matmuls of one layer, {roofs.dtype}",
        Axis("operational intensity (FLOP/B)", "FLOP/B", "log"),
        Axis("rate", "FLOP/s", "log"),
        (roof, *points),
        note=f"peak {peak}, memory {rate}, ridge {roofs.ridge:.0f} FLOP/B",
    )
