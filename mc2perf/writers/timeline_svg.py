"""A played schedule as a drawing: SVG without scripts, readable without colour, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from mc2perf.playback import Playback, Scene
from mc2perf.timeline import Span, Timeline
from mc2perf.units import show
from mc2perf.writers.gantt import LANES, mark_of

WIDTH, LEFT, LANE, GAP, HEAD, AXIS = 1000, 130, 30, 6, 30, 26
"""Sizes in pixels: the drawing, its labels, a lane, between lanes, above and below the lanes."""

LETTER = 7
"""Width of a character. [px]"""

TICKS = 5

STYLE = """\
:root { --ink: #1b1b1b; --paper: #ffffff; --compute: #cfe3f7; --comm: #f6d9b8; --exposed: #d9d9d9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --paper: #17191c; --compute: #1f4468; --comm: #6b4517; --exposed: #4c4c4c; }
}
.paper { fill: var(--paper); }
text { fill: var(--ink); font: 12px sans-serif; }
.title { font-weight: bold; }
.compute, .comm, .exposed { stroke: var(--ink); stroke-width: 0.5; }
.compute { fill: var(--compute); }
.comm { fill: var(--comm); }
.exposed { fill: url(#hatch); }
.hatch { stroke: var(--ink); stroke-width: 1.5; }
.tick { stroke: var(--ink); stroke-width: 0.5; }
"""


def to_svg(played: Playback) -> str:
    """Every pass of the layer looked at, lane by lane.

    Parameters
    ----------
    played : Playback
        What ran.
    """
    each = HEAD + 3 * (LANE + GAP) + AXIS
    svg = ET.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=str(WIDTH), height=str(each * len(played.close_up)),
        role="img",
    )  # fmt: skip
    svg.set("viewBox", f"0 0 {WIDTH} {each * len(played.close_up)}")
    ET.SubElement(svg, "title").text = f"{played.schedule}: predicted timeline"
    ET.SubElement(svg, "style").text = STYLE
    svg.append(_hatch())
    ET.SubElement(svg, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    for i, scene in enumerate(played.close_up):
        group = ET.SubElement(svg, "g", transform=f"translate(0 {i * each})")
        group.extend(_scene(scene))
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _hatch() -> ET.Element:
    """Stripes: what nothing covers is seen without colour too."""
    defs = ET.Element("defs")
    pattern = ET.SubElement(
        defs, "pattern", id="hatch", width="6", height="6", patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )  # fmt: skip
    ET.SubElement(pattern, "line", {"class": "hatch", "x1": "0", "y1": "0", "x2": "0", "y2": "6"})
    return defs


def _scene(scene: Scene) -> Iterator[ET.Element]:
    """Title, lanes, axis of one pass."""
    played = scene.timeline
    yield _text(f"{scene.name}: {show(played.end, 's')}", 8, 20, "title")
    lanes = [(lane, [s for s in played.spans if s.engine == engine]) for lane, engine in LANES.items()]
    lanes.append(("exposed", list(_alone(played))))
    for i, (lane, spans) in enumerate(lanes):
        top = HEAD + i * (LANE + GAP)
        yield _text(lane, 8, top + 20)
        for span in spans:
            yield from _bar(span, top, played.end, lane == "exposed")
    yield from _axis(played.end, HEAD + 3 * (LANE + GAP))


def _alone(played: Timeline) -> Iterator[Span]:
    for state, start, end in played.states:
        if state == 1:
            yield Span("comm", "exposed communication", 0, start, end)


def _bar(span: Span, top: float, total: float, exposed: bool) -> Iterator[ET.Element]:
    """A rectangle that tells its work when pointed at, and as much of its name as fits."""
    x, width = LEFT + _px(span.start, total), _px(span.end - span.start, total)
    bar = ET.Element(
        "rect", {"class": "exposed" if exposed else span.engine, "x": f"{x:.2f}", "y": str(top),
                 "width": f"{width:.2f}", "height": str(LANE)},
    )  # fmt: skip
    ET.SubElement(bar, "title").text = f"{span.name}: {show(span.start, 's')} to {show(span.end, 's')}"
    yield bar
    label = _label(span, int((width - 8) / LETTER))
    if label and not exposed:
        yield _text(label, x + 4, top + 20)


def _label(span: Span, letters: int) -> str:
    """The name, as much of it as says something, or the mark of a piece."""
    if len(span.name) <= letters:
        return span.name
    if letters >= 8:
        return f"{span.name[: letters - 1]}…"
    return mark_of(span) if letters >= 1 else ""


def _px(seconds: float, total: float) -> float:
    return (WIDTH - LEFT - 60) * seconds / total if total else 0.0


def _axis(total: float, top: float) -> Iterator[ET.Element]:
    for i in range(TICKS + 1):
        x = LEFT + _px(total * i / TICKS, total)
        yield ET.Element(
            "line", {"class": "tick", "x1": f"{x:.2f}", "y1": str(top), "x2": f"{x:.2f}", "y2": str(top + 5)}
        )
        yield _text(show(total * i / TICKS, "s"), x - 12, top + 18)


def _text(content: str, x: float, y: float, kind: str = "label") -> ET.Element:
    text = ET.Element("text", {"class": kind, "x": f"{x:.2f}", "y": f"{y:.2f}"})
    text.text = content
    return text
