"""A played schedule drawn in characters, and listed."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mc2perf.playback import Playback, Scene
from mc2perf.timeline import Span, Timeline
from mc2perf.units import show

PIECES = string.digits[1:] + string.ascii_lowercase
"""What pieces are drawn as, over and over."""

NUMBER = re.compile(r"[0-9]+$")

LANES = {"communication": "comm", "compute": "compute"}
EXPOSED, WHOLE, NOBODY = "=", "#", " "


def to_gantt(played: Playback, width: int = 100) -> str:
    """Every pass of the layer looked at: a line of characters for each engine, then its work in a list.

    Parameters
    ----------
    played : Playback
        What ran.
    width : int
        Columns of the drawing, at least 20.
    """
    scenes = "\n".join(_scene(scene, max(width, 20)) for scene in played.close_up)
    return f"{scenes}\n{LEGEND}\n"


LEGEND = (
    f"timeline: {PIECES[:3]}.. pieces in turn, A and B batches, {WHOLE} work that is not cut, "
    f"{EXPOSED} communication that nothing covers; a column shows what fills most of it"
)


def _scene(scene: Scene, width: int) -> str:
    from tabulate import tabulate

    played = scene.timeline
    columns = width - 16
    lines = [f"{scene.name}: {show(played.end, 's')}"]
    lines += [f"{lane:<13} |{_lane(played, engine, columns)}|" for lane, engine in LANES.items()]
    lines.append(f"{'exposed':<13} |{_exposed(played, columns)}|")
    lines.append(f"{'':<13}  {_axis(played.end, columns)}")
    rows = [
        (
            work.lane,
            work.name,
            work.pieces or "",
            show(work.start, "s"),
            show(work.end, "s"),
            show(work.busy, "s"),
        )
        for work in _works(played.spans)
    ]
    listed = tabulate(
        rows, headers=["engine", "work", "pieces", "from", "to", "runs for"],
        colalign=("left", "left", "right", "right", "right", "right"), disable_numparse=True,
    )  # fmt: skip
    return "\n".join([*lines, "", listed, ""])


def _lane(played: Timeline, engine: str, columns: int) -> str:
    """For every column, what runs longest on an engine in it, if anything fills half of it."""
    spans = [span for span in played.spans if span.engine == engine]
    return "".join(_mark(spans, start, end) for start, end in _columns(played.end, columns))


def _columns(total: float, columns: int) -> Iterator[tuple[float, float]]:
    for i in range(columns):
        yield total * i / columns, total * (i + 1) / columns


def _mark(spans: Sequence[Span], start: float, end: float) -> str:
    shares = {span: min(span.end, end) - max(span.start, start) for span in spans}
    inside = {span: share for span, share in shares.items() if share > 0.0}
    if sum(inside.values()) < 0.5 * (end - start):
        return NOBODY
    return mark_of(max(inside, key=lambda span: inside[span]))


def mark_of(span: Span) -> str:
    """A character for a piece by its number, for a batch by its letter, else for whole work."""
    if number := NUMBER.search(span.name) if span.piece else None:
        return PIECES[(int(number.group()) - 1) % len(PIECES)]
    return span.name[0] if span.name[1:2] == ":" else WHOLE


def _exposed(played: Timeline, columns: int) -> str:
    alone = [(start, end) for state, start, end in played.states if state == 1]
    return "".join(
        EXPOSED
        if sum(max(min(b, end) - max(a, start), 0.0) for a, b in alone) >= 0.5 * (end - start)
        else NOBODY
        for start, end in _columns(played.end, columns)
    )


def _axis(total: float, columns: int) -> str:
    """Times at quarters, the last one at the right end."""
    quarters = "".join(f"{show(total * i / 4, 's'):<{columns // 4}}" for i in range(4))
    last = show(total, "s")
    return quarters[: max(columns - len(last), 0)] + last


class Work(NamedTuple):
    """Spans of one kind on one engine: how many pieces, from when to when, how long in all. [s]"""

    lane: str
    name: str
    pieces: int
    start: float
    end: float
    busy: float


def _works(spans: Sequence[Span]) -> list[Work]:
    """Pieces of the same work together, in the order they start."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        name = NUMBER.sub("", span.name).rstrip() if span.piece else span.name
        found.setdefault((span.engine, name), []).append(span)
    lanes = {engine: lane for lane, engine in LANES.items()}
    return [
        Work(
            lanes.get(engine, engine),
            name,
            sum(1 for s in same if s.piece),
            min(s.start for s in same),
            max(s.end for s in same),
            sum(s.end - s.start for s in same),
        )
        for (engine, name), same in found.items()
    ]
