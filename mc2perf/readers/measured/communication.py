"""``communication.json`` of one rank and ``cluster_communication.json`` of all, old and new nesting."""

from __future__ import annotations

from typing import Any

from mc2perf.measured import CommOp, CommOps, Measured, Traffic
from mc2perf.readers.measured.source import Format, Source, Tally
from mc2perf.readers.measured.trees import ROLL_UP, Leaf, leaves, size_of, time_of

TIMES, LINKS = "Communication Time Info", "Communication Bandwidth Info"
SUM = "SDMA"
"""What the profiler adds up from ``PARTS``."""
PARTS = ("HCCS", "PCIE", "SIO")
TOLERANCE = 1e-2


def read(source: Source) -> Measured:
    """Read communication operations.

    Parameters
    ----------
    source : Source
        JSON; operations may lie below step, kind, group of ranks and rank in any of the known orders.

    Returns
    -------
    Measured
        `CommOps`. Rates come from the bytes on the wire over the transit time of the operation:
        elapsed time includes waiting, and the file's own bandwidths are of single links.

    Raises
    ------
    InputError
        No JSON, or no operation that can be used.
    """
    tally, ops = Tally(source), []
    for at, node in leaves(source.tree(), TIMES, tally):
        if at.op == ROLL_UP:
            tally.aside(f"'{ROLL_UP}' adds the operations up", at)
            continue
        try:
            ops.append(_op(at, node, tally))
        except ValueError as error:
            tally.aside(str(error), at)
    tally.read = len(ops)
    tally.insist("operations")
    untimed = sum(op.size > 0 and not op.transit for op in ops)
    if untimed:
        tally.note(f"{untimed} operations moved bytes in no transit time: their rate is unknown")
    tally.note("rate = bytes on the wire / transit time of the operation; elapsed time includes waiting")
    tally.note("the file's Bandwidth(GB/s) is of one link (times of parallel links added); not used")
    return tally.close("communication.json", "operations", CommOps(tuple(ops)))


def _op(at: Leaf, node: dict[str, Any], tally: Tally) -> CommOp:
    times = node[TIMES]
    links = node.get(LINKS, {})
    if not isinstance(times, dict) or not isinstance(links, dict):
        raise ValueError(f"{TIMES} or {LINKS} is no mapping")
    elapsed, transit, wait, idle = (time_of(times, f"{word} Time(ms)") for word in _WORDS)
    if transit > elapsed * (1 + TOLERANCE):
        raise ValueError("Transit Time is longer than Elapse Time")
    if abs(elapsed - transit - wait - idle) > TOLERANCE * elapsed:
        tally.note(f"{at}: Idle is not Elapse - Transit - Wait")
    return CommOp(
        name=at.op, group=at.group, step=at.step, kind=at.kind, rank=at.rank, elapsed=elapsed,
        transit=transit, wait=wait, idle=idle, traffic=_traffic(links, at, tally),
    )  # fmt: skip


_WORDS = ("Elapse", "Transit", "Wait", "Idle")


def _traffic(links: dict[str, Any], at: Leaf, tally: Tally) -> tuple[Traffic, ...]:
    """Bytes by transport; the roll-up only where none of its parts has bytes."""
    if not all(isinstance(link, dict) for link in links.values()):
        raise ValueError("a transport is no mapping")
    found = {name: Traffic(name, size_of(link), time_of(link)) for name, link in links.items()}
    total = found.pop(SUM, None)
    parts = sum(found[name].size for name in PARTS if name in found)
    if total and total.size and not parts:
        tally.note(f"{at}: {SUM} has bytes that none of {', '.join(PARTS)} shows; taken")
        found[SUM] = total
    elif total and total.size:
        tally.aside(f"{SUM} adds {', '.join(PARTS)} up", at)
        if abs(total.size - parts) > TOLERANCE * parts:
            tally.note(f"{at}: {SUM} is not the sum of {', '.join(PARTS)}")
    return tuple(traffic for traffic in found.values() if traffic.size)


FORMAT = Format(
    "communication.json",
    f"JSON with '{TIMES}'",
    lambda source: source.head.lstrip().startswith("{") and f'"{TIMES}"' in source.head,
    read,
)
