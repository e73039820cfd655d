"""A difference as a waterfall: what each change moves, from one answer to the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from mc2perf.studies.diff import Difference, Share
from mc2perf.table import Block, Column, block_of
from mc2perf.units import show

UNITS = {"total_time": "s", "comm_time": "s", "compute_time": "s", "tokens_per_second": "1/s"}
"""Units of what may be compared; everything else is a ratio."""

WIDTH = 40
"""Characters of a bar that spans the whole scale."""

NOTHING = 1e-12
"""Shares below this part of the answer are rounding."""


def columns_of(found: Difference) -> tuple[Column, ...]:
    """What is said of every change."""
    return (
        Column("change", "", "input, path of the profile, or what changes together"),
        Column("before", "", "what it is in the first question"),
        Column("after", "", "what it is in the second one"),
        Column("share", UNITS.get(found.of, "1"), f"what it moves {found.of} by: its Shapley value"),
        Column("relative", "1", "that over the answer of the first question"),
    )


def as_block(found: Difference) -> Block:
    """Every change as a row of a table."""
    rows = [SimpleNamespace(**vars(share), relative=_relative(found, share.share)) for share in found.shares]
    return block_of(columns_of(found), rows)


def to_tree(found: Difference) -> dict[str, Any]:
    """Everything, for JSON."""
    return vars(found) | {
        "names": list(found.names),
        "together": list(found.together),
        "shares": [vars(share) for share in found.shares],
    }


def _relative(found: Difference, share: float) -> float:
    return share / found.before if found.before else 0.0


def to_text(found: Difference) -> str:
    """Plain text: the largest changes first, each where the ones before it have led."""
    from tabulate import tabulate  # costs 40 ms

    moved = [share for share in found.shares if abs(share.share) > NOTHING * abs(found.before)]
    head = [_verdict(found), f"from: {found.names[0]}", f"to:   {found.names[1]}"]
    blocks = ["\n".join(head)]
    if moved:
        bars = _bars(found, moved)
        first, *between, last = bars
        rows = [["from", "", "", _number(found, found.before), "", first]]
        for share, bar in zip(moved, between, strict=True):
            relative = f"{_relative(found, share.share):+.1%}"
            rows.append([share.change, share.before, share.after, _signed(found, share.share), relative, bar])
        rows.append(["to", "", "", _number(found, found.after), "", last])
        headers = ["change", "before", "after", found.of, "relative", "waterfall"]
        align = ("left", "right", "right", "right", "right", "left")
        blocks.append(str(tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True)))
    blocks.append("\n".join(_notes(found, moved)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verdict(found: Difference) -> str:
    if not found.shares:
        return f"Nothing differs: {found.of} {_number(found, found.before)}"
    change = f" ({found.after / found.before - 1.0:+.1%})" if found.before else ""
    return f"{found.of} {_number(found, found.before)} -> {_number(found, found.after)}{change}"


def _notes(found: Difference, moved: list[Share]) -> Iterator[str]:
    idle = [share.change for share in found.shares if share not in moved]
    if idle:
        yield f"no effect: {', '.join(idle)}"
    for names in found.together:
        yield f"legal only together, moved as one: {names}"
    if len(moved) > 1:
        how = f"{found.orders} of them, drawn and each also backwards" if found.orders else "all of them"
        yield f"shares are averages over the orders of the changes, {how} ({found.sets} sets priced)"


def _number(found: Difference, value: float) -> str:
    unit = UNITS.get(found.of, "1")
    if unit == "s":
        return show(value, "s")
    return f"{value:,.0f}".replace(",", " ") if unit == "1/s" else f"{value:.1%}"


def _signed(found: Difference, value: float) -> str:
    return f"{'-' if value < 0 else '+'}{_number(found, abs(value))}"


def _bars(found: Difference, moved: list[Share]) -> list[str]:
    """The first answer, every change where the ones before it have led, the last answer."""
    levels = list(itertools.accumulate((share.share for share in moved), initial=found.before))
    low, high = min(levels), max(levels)
    low = 0.0 if low < 0.5 * high or low == high else low - 0.2 * (high - low)

    def place(level: float) -> int:
        return round(WIDTH * (level - low) / (high - low)) if high > low else 0

    def bar(begin: float, end: float, mark: str) -> str:
        first, last = sorted((place(begin), place(end)))
        filled = mark * max(last - first, 1)
        return f"|{' ' * min(first, WIDTH - 1)}{filled}".ljust(WIDTH + 1)[: WIDTH + 1] + "|"

    steps = [bar(a, b, "+" if b > a else "-") for a, b in itertools.pairwise(levels)]
    return [bar(low, found.before, "#"), *steps, bar(low, found.after, "#")]
