"""The answer for people: verdict, schedules side by side, breakdown of a layer, what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mc2perf.answer import Answer, Cut, Row
from mc2perf.units import show
from mc2perf.writers.verdict import UNIT, verdict

TENSOR_PARALLEL = ("all_gather", "reduce_scatter", "regather")
"""How the names of tensor-parallel transfers end."""

SHARES = {
    "attention": ("norms", "attention"),
    "gate": ("gate", "latent", "counts", "permute", "unpermute", "slices"),
    "dispatch": ("dispatch",),
    "FFN": ("ffn", "activation", "shared"),
    "combine": ("combine",),
}
"""Groups of a layer's segments, by how their names start."""


def to_table(answer: Answer) -> str:
    """Plain text."""
    return _render(answer, "simple")


def to_markdown(answer: Answer) -> str:
    """The same with Markdown tables."""
    return _render(answer, "github")


def _render(answer: Answer, style: str) -> str:
    from tabulate import tabulate  # costs 40 ms; JSON and CSV do without

    def table(rows: list[list[str]], headers: list[str]) -> str:
        clean = [[cell.replace("|", "\\|") for cell in row] for row in rows] if style == "github" else rows
        align = ("left", *("right",) * (len(headers) - 2), "left")
        return tabulate(clean, headers, tablefmt=style, colalign=align, disable_numparse=True)

    blocks = [verdict(answer), where(answer)]
    blocks += [table(rows, headers) for headers, rows in tables(answer)]
    blocks.append("\n".join(_rests_on(answer)))
    return "\n\n".join(block for block in blocks if block) + "\n"


Table = tuple[list[str], list[list[str]]]
"""Headers and rows."""


def tables(answer: Answer) -> Iterator[Table]:
    """Schedules side by side, traffic of a step, policies, a layer in its parts, curves."""
    yield schedule_headers(answer), [schedule_row(answer, row) for row in answer.rows]
    yield from _step_traffic(answer)
    if answer.policies:
        headers = ["policy", "time", "speed-up", "above bound", "tiles"]
        yield headers, [_policy_row(cut) for cut in answer.policies]
    yield from _breakdowns(answer)


def where(answer: Answer) -> str:
    """Target, machine, layout, and what m, n, k mean."""
    given = answer.inputs
    hardware = given.get("hardware", "atlas_800i_a2")
    resolved = ", ".join(f"{name} {_plain(value)}" for name, value in answer.resolved.items())
    lines = [f"{given['target']} on {hardware}: {resolved}"]
    lines += [f"{axis} = {meaning}" for axis, meaning in answer.meaning.items()]
    if "flops_per_byte" in answer.facts:
        ratio = f"{answer.facts['flops_per_byte']:.0f} FLOP per byte sent and returned in bf16"
        lines.append(f"experts, shared ones included: {ratio}")
        sent, back = (show(answer.facts[way], "B") for way in ("dispatch_bytes", "combine_bytes"))
        lines.append(f"a token's copies in a layer, scales included: {sent} to its experts, {back} back")
    return "\n".join(lines)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def schedule_headers(answer: Answer) -> list[str]:
    """Heads of the table of schedules."""
    rate = ["tokens/s/NPU"] if answer.rows[0].tokens_per_second else []
    return ["schedule", "pieces", "time", "comm_ratio", *rate, "speed-up", "note"]


def schedule_row(answer: Answer, row: Row) -> list[str]:
    """One schedule in that table."""
    rate = bool(answer.rows[0].tokens_per_second)
    if not row.legal:
        return [row.schedule, *["-"] * (4 + rate), f"refused: {row.reason}"]
    speed = f"{row.tokens_per_second:,.0f}".replace(",", " ")
    cells = [row.schedule, str(row.pieces), show(row.total_time, "s"), f"{row.comm_ratio:.1%}"]
    return [*cells, *([speed] if rate else []), f"{row.speedup:.2f}x", _note(row)]


def _step_traffic(answer: Answer) -> Iterator[Table]:
    """Communication of a whole step by parallel group, for the best schedule."""
    best = answer.best
    if best is None or not best.traffic or "global_batch_size" not in answer.inputs:
        return
    rows = [
        [group, show(comm, "s"), show(exposed, "s"), f"{exposed / best.total_time:.1%}", ""]
        for group, (comm, exposed) in best.traffic.items()
    ]
    rows.append(
        ["bubble", "", show(best.bubble_share * best.total_time, "s"), f"{best.bubble_share:.1%}", ""]
    )
    yield [f"step, {best.schedule}", "communication", "exposed", "of the step", f"MFU {best.mfu:.1%}"], rows


def _policy_row(cut: Cut) -> list[str]:
    if cut.reason:
        return [cut.policy, "-", "-", "-", f"{cut.reason} {tiles(cut.tiles)}".strip()]
    numbers = [show(cut.total_time, "s"), f"{cut.speedup:.2f}x", f"{cut.above_bound:.1%}"]
    return [cut.policy, *numbers, f"{tiles(cut.tiles)} ({cut.why})"]


def tiles(lengths: Sequence[float]) -> str:
    """Tiles in the order they run, equal neighbours counted.

    Examples
    --------
    >>> tiles((512.0, 896.0, 896.0))
    '512 + 2x896'
    """
    runs = ((len(list(same)), length) for length, same in groupby(lengths))
    return " + ".join(f"{count}x{length:g}" if count > 1 else f"{length:g}" for count, length in runs)


def _note(row: Row) -> str:
    """The reason, or the best count's neighbours and the field's default."""
    if row.reason:
        return row.reason
    parts = []
    if row.flat_region[1] > row.flat_region[0]:
        parts.append(f"within 2 %: {row.flat_region[0]}..{row.flat_region[1]}")
    if row.default_pieces:
        gain = row.serial_time / row.default_time
        parts.append(f"default {row.default_pieces} (number of experts): {gain:.2f}x")
    return "; ".join(parts)


def _breakdowns(answer: Answer) -> Iterator[Table]:
    """Stand-alone times of a layer's segments, serial; then the curve over the counts."""
    serial = answer.rows[0]
    for name, segments in (("forward", serial.segments), ("backward", serial.backward_segments)):
        if segments and answer.kind == "model":
            whole = sum(segments.values())
            rows = [
                [group, show(time, "s"), f"{time / whole:.1%}", what]
                for group, time, what in _grouped(segments)
            ]
            yield [f"one layer, {name}", "time", "share", "segments"], rows
    for row in answer.rows:
        if row.legal and len(row.curve) > 1 and answer.kind == "operator":
            cells = [
                [str(n), show(t, "s"), f"{row.serial_time / t:.2f}x", tiles(row.cuts.get(n, ()))]
                for n, t in row.curve.items()
            ]
            yield [f"{row.schedule} {UNIT[row.schedule]}", "time", "speed-up", ""], cells[:12]


def _grouped(segments: dict[str, float]) -> Iterator[tuple[str, float, str]]:
    """Segments summed by group; what belongs to none keeps its name."""
    left = dict(segments)
    sent = [name for name in left if name.endswith(TENSOR_PARALLEL)]
    if sent:
        yield "tensor-parallel", sum(left.pop(name) for name in sent), ", ".join(sent)
    for group, starts in SHARES.items():
        members = [name for name in left if name.startswith(starts)]
        if members:
            yield group, sum(left.pop(name) for name in members), ", ".join(members)
    for name, time in left.items():
        yield name, time, ""


def _rests_on(answer: Answer) -> Iterator[str]:
    """Sources, assumptions, warnings."""
    total = sum(answer.sources.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in answer.sources.items())
    yield f"rests on {total} parameters: {kinds} ('mc2perf profiles show' gives each with its source)"
    if answer.expect:
        yield f"expect: {answer.expect.text}"
    yield from (f"assumes: {text}" for text in answer.assumptions)
    yield from (f"warning {remark.code}: {remark.text}" for remark in answer.warnings)
