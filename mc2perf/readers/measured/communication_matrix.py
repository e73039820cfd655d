"""``communication_matrix.json`` of one rank and of a cluster: traffic from rank to rank."""

from __future__ import annotations

import re
from typing import Any

from mc2perf.measured import LinkUse, LinkUses, Measured
from mc2perf.readers.measured.source import Format, Source, Tally
from mc2perf.readers.measured.trees import ROLL_UP, Leaf, leaves, size_of, time_of

MARK = "Transport Type"

_PICKED = re.compile(r"(.*)-(?:top\d*|middle|bottom\d*)")

Found = list[tuple[Leaf, LinkUse]]


def read(source: Source) -> Measured:
    """Read traffic between ranks.

    Returns
    -------
    Measured
        `LinkUses`: of an operation's ``-top``, ``-middle``, ``-bottom`` and ``-total`` the total, which adds
        every operation of that kind; copies on the chip (``LOCAL``) are no links.

    Raises
    ------
    InputError
        No JSON, or no link that can be used.
    """
    tally = Tally(source)
    found: Found = []
    for at, node in leaves(source.tree(), MARK, tally):
        try:
            found.append((at, _link(at, node)))
        except ValueError as error:
            tally.aside(str(error), at)
    links = _chosen(found, tally)
    tally.read = len(links)
    tally.note("each rate is of one link, not of the rank")
    return tally.close("communication_matrix.json", "links", LinkUses(links))


def _link(at: Leaf, node: dict[str, Any]) -> LinkUse:
    if not at.pair:
        raise ValueError("is no pair of ranks such as 0-1")
    source, target = map(int, at.pair.split("-"))
    return LinkUse(
        op=at.op, source=source, target=target, transport=str(node[MARK]), size=size_of(node),
        time=time_of(node), step=at.step,
    )  # fmt: skip


def _chosen(found: Found, tally: Tally) -> tuple[LinkUse, ...]:
    """Links without copies on the chip, roll-ups of roll-ups, and single operations that a total holds."""
    totals = {(at.step, at.group, at.op) for at, _ in found if at.op.endswith("-total")}
    links = []
    for at, link in found:
        picked = _PICKED.fullmatch(at.op)
        if link.transport == "LOCAL":
            tally.aside("LOCAL is a copy on the chip", at)
        elif at.op == ROLL_UP:
            tally.aside(f"'{ROLL_UP}' adds the operations up", at)
        elif picked and (at.step, at.group, f"{picked[1]}-total") in totals:
            tally.aside("one operation of those that -total adds up", at)
        else:
            links.append(link)
    return tuple(links)


FORMAT = Format(
    "communication_matrix.json",
    f"JSON with '{MARK}'",
    lambda source: source.head.lstrip().startswith("{") and f'"{MARK}"' in source.head,
    read,
)
