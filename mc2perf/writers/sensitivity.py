"""What an answer hangs on, for people, for files, and as a tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from mc2perf.scenario import is_operator
from mc2perf.studies.bandwidth import SIGNS, Reach
from mc2perf.studies.sensitivity import OFF, Change, Choice, Effect, Off, Sensitivity
from mc2perf.studies.uncertainty import Spread
from mc2perf.table import Block, Column, block_of
from mc2perf.units import show
from mc2perf.writers.verdict import UNIT

LITTLE = 0.0005
"""Changes below this are counted, not listed."""

RARE = 0.01
"""Counts that are best in fewer samples are not listed."""

COLUMNS = (
    Column("parameter", "", "path in the profile, as --set takes it"),
    Column("value", "", "its value"),
    Column("kind", "", "where it comes from"),
    Column("less", "", "the smaller value tried"),
    Column("more", "", "the larger value tried"),
    Column("change_less", "1", "relative change of tokens/s (of an operator: time) with the smaller value"),
    Column("change_more", "1", "the same with the larger value"),
    Column("schedule_less", "", "fastest schedule with the smaller value"),
    Column("schedule_more", "", "fastest schedule with the larger value"),
    Column("pieces_less", "1", "its best number of pieces with the smaller value"),
    Column("pieces_more", "1", "its best number of pieces with the larger value"),
    Column("elasticity", "1", "relative change of time over relative change of the parameter"),
    Column("uncertainty", "1", "one standard deviation of the parameter, relative"),
    Column("share", "1", "what that contributes to the variance of the time, to first order"),
    Column("ref", "", "source of the value"),
)
"""What is said of every parameter."""


def as_block(found: Sensitivity) -> Block:
    """Every parameter as a row of a table."""
    return block_of(COLUMNS, [_record(effect) for effect in found.effects])


def _record(e: Effect) -> SimpleNamespace:
    value, less, more = (show(v, e.quantity.symbol, 6) for v in (e.quantity, e.less.value, e.more.value))
    return SimpleNamespace(
        parameter=e.path, value=value, kind=e.quantity.kind, ref=e.quantity.ref, less=less, more=more,
        change_less=e.less.change, change_more=e.more.change, schedule_less=e.less.schedule,
        schedule_more=e.more.schedule, pieces_less=e.less.pieces, pieces_more=e.more.pieces,
        elasticity=e.elasticity, uncertainty=e.uncertainty, share=e.share,
    )  # fmt: skip


# --- for people --------------------------------------------------------------------------------------------


def to_text(found: Sensitivity) -> str:
    """Plain text: the choice, parameters by effect, intervals, break-even rates, the price of the choice."""
    from tabulate import tabulate  # costs 40 ms

    def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
        align = ["left" if i in left else "right" for i in range(len(headers))]
        return str(tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True))

    (effects, left), (spread, _), *reaches = tables(found)
    blocks = [_title(found), table(*effects, left), "\n".join(_not_listed(found)), table(*spread)]
    blocks.append("\n".join(said_of_choice(found)))
    blocks += [table(*reach, left) for reach, left in reaches]
    blocks.append("\n".join(_assumes(found)))
    return "\n\n".join(block for block in blocks if block) + "\n"


Table = tuple[list[str], list[list[str]]]
"""Headers and rows."""


def tables(found: Sensitivity) -> Iterator[tuple[Table, tuple[int, ...]]]:
    """Parameters by effect, intervals, break-even rates; the columns that are words."""
    yield (_effect_headers(found), list(_effect_rows(found))), (0, 5)
    yield (_spread_headers(found), list(_spread_rows(found))), (0,)
    if found.reaches:
        headers = ["communication is hidden", "now", "where", "link_rate now", "from"]
        yield (headers, list(_reach_rows(found))), (0, 2, 4)


def _title(found: Sensitivity) -> str:
    s, c = found.scenario, found.choice
    rate = f", {_grouped(c.tokens_per_second)} tokens/s/NPU" if c.tokens_per_second else ""
    return (
        f"{s.target} on {s.hardware}: {_called(c.schedule, c.pieces)}, {show(c.total_time, 's')}{rate}, "
        f"communication {c.comm_ratio:.1%}"
    )


def _grouped(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _called(schedule: str, pieces: float) -> str:
    """A schedule with its pieces.

    Examples
    --------
    >>> _called("mc2", 4.0), _called("serial", 1.0)
    ('mc2 in 4 tiles', 'serial')
    """
    if pieces <= 1.0 or math.isnan(pieces):
        return schedule
    return f"{schedule} in {pieces:.0f} {UNIT.get(schedule, 'pieces')}"


def _effect_headers(found: Sensitivity) -> list[str]:
    what = "time" if is_operator(found.scenario.target) else "tokens/s"
    step = f"{found.by * 100:g} %"
    return [
        f"change of {what} with",
        "value",
        f"-{step}",
        f"+{step}",
        "of the uncertainty",
        "kind; best then",
    ]


def _effect_rows(found: Sensitivity) -> Iterator[list[str]]:
    for e in found.effects:
        if e.size >= LITTLE:
            changes = [_percent(side.change) for side in (e.less, e.more)]
            share = f"{e.share:.0%}" if e.share >= 0.005 else ""
            yield [e.path, show(e.quantity, e.quantity.symbol), *changes, share, _note(found, e)]


def _percent(change: float) -> str:
    return "refused" if math.isnan(change) else f"{change:+.1%}"


def _note(found: Sensitivity, e: Effect) -> str:
    """Kind, values that are not the ones of the header, and what else would be chosen."""
    said = [e.quantity.kind]
    for side, factor in ((e.less, 1.0 - found.by), (e.more, 1.0 + found.by)):
        sign = "-" if side is e.less else "+"
        if side.value == e.quantity:
            said.append(f"cannot be {'less' if side is e.less else 'more'}")
        elif abs(side.value / (e.quantity * factor) - 1.0) > 1e-6:
            said.append(f"{sign}: {show(side.value, e.quantity.symbol)}")
        if _differs(found.choice, side):
            said.append(f"{sign}: {_called(side.schedule, side.pieces)}")
    return "; ".join(said)


def _differs(choice: Choice, side: Change | Off) -> bool:
    return (side.schedule, side.pieces) != (choice.schedule, choice.pieces) and side.pieces == side.pieces


def _not_listed(found: Sensitivity) -> Iterator[str]:
    small = sum(0.0 < e.size < LITTLE for e in found.effects)
    none = sum(e.size == 0.0 for e in found.effects)
    yield f"{small} more parameters change it by less than {LITTLE:.2%}, {none} not at all"
    if found.fixed:
        yield f"as they are, for they say how the machine is built: {', '.join(found.fixed)}"


def _spread_headers(found: Sensitivity) -> list[str]:
    return [f"{found.confidence.samples} samples", "p10", "median", "p90"]


def _spread_rows(found: Sensitivity) -> Iterator[list[str]]:
    c = found.confidence
    yield ["time of the choice", *(show(value, "s") for value in c.total_time)]
    if found.choice.tokens_per_second:
        yield ["tokens/s/NPU", *map(_grouped, c.tokens_per_second)]
    yield ["comm_ratio", *(f"{value:.1%}" for value in c.comm_ratio)]
    yield ["slower than the best choice", *(f"{max(value, 0.0):.1%}" for value in c.regret)]


def said_of_choice(found: Sensitivity) -> Iterator[str]:
    """How sure the choice is, and what it costs if rates are off."""
    c, choice = found.confidence, found.choice
    yield f"{choice.schedule} is the fastest schedule in {c.schedule_best:.0%} of the samples"
    if c.count_best is not None and c.count_within is not None:
        others = ", ".join(
            f"{count}: {share:.0%}"
            for count, share in sorted(c.counts.items(), key=lambda item: -item[1])
            if share >= RARE
        )
        yield (
            f"{choice.pieces:.0f} is its best count in {c.count_best:.0%} of them, within 2 % of it in "
            f"{c.count_within:.0%} (best count {others})"
        )
    else:
        yield f"{choice.schedule} leaves no number of pieces to choose here"
    yield from _said_of_rates(found)


def _said_of_rates(found: Sensitivity) -> Iterator[str]:
    costly = [off for off in found.off if off.regret >= LITTLE]
    if not costly:
        yield f"links, or cube and memory, {OFF:.0%} slower or faster: the choice stays within {LITTLE:.2%}"
    for off in sorted(costly, key=lambda off: -off.regret):
        yield (
            f"links x{off.comm:g}, cube and memory x{off.compute:g}: {_called(off.schedule, off.pieces)} is "
            f"best, the choice costs {off.regret:.1%}"
        )


def _reach_rows(found: Sensitivity) -> Iterator[list[str]]:
    for reach in found.reaches:
        sign = SIGNS[reach.sign]
        least, most = math.isfinite(sign.least), f"at most {sign.most:.0%}"
        text = f"{sign.text}: {f'at least {sign.least:.0%}' if least else most}"
        yield [text, f"{reach.number:.1%}", reach.tier, show(reach.now, "B/s"), _reached(reach)]


def _reached(reach: Reach) -> str:
    if math.isinf(reach.rate):
        return f"never: {reach.nearest:.1%} at best"
    if reach.rate == 0.0:
        return "always"
    return f"{show(reach.rate, 'B/s')} ({reach.rate / reach.now:.3g}x)"


def _assumes(found: Sensitivity) -> Iterator[str]:
    kinds = ", ".join(f"{kind} {share * 100:g} %" for kind, share in found.kinds.items())
    yield f"assumes: one standard deviation of a number, where its fit states no error: {kinds}"
    yield "assumes: numbers are off independently of each other, log-normal, within range; counts are exact"
    yield "assumes: each profile has its own best schedule and count; the samples keep the choice of this one"


# --- as a tree ---------------------------------------------------------------------------------------------


def to_tree(found: Sensitivity) -> dict[str, Any]:
    """Everything, for JSON: SI values, null where there is none or the rate is beyond all tried."""
    c = found.confidence
    return {
        "target": found.scenario.target,
        "hardware": found.scenario.hardware,
        "by": found.by,
        "choice": vars(found.choice),
        "parameters": [_plain(vars(_record(effect))) for effect in found.effects],
        "fixed": list(found.fixed),
        "uncertainty": dict(found.kinds),
        "confidence": {
            name: value._asdict() if isinstance(value, Spread) else value for name, value in vars(c).items()
        },
        "hidden": [_plain(vars(reach)) | {"meaning": SIGNS[reach.sign].text} for reach in found.reaches],
        "rates_off": [vars(off) for off in found.off],
    }


def _plain(tree: dict[str, Any]) -> dict[str, Any]:
    def finite(value: Any) -> bool:
        return not isinstance(value, float) or math.isfinite(value)

    return {name: value if finite(value) else None for name, value in tree.items()}
