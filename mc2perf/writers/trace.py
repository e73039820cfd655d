"""A played schedule as a Chrome trace, as Perfetto and MindStudio Insight open it.

Only complete events (``X``) and flows: one lane for each engine, none of them overlapping, and the lanes
of Ascend's own overlap analysis, so that a predicted trace stands beside a measured one. Times are whole
nanoseconds from 0, so that neighbours touch and never overlap after rounding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mc2perf.playback import Playback
from mc2perf.timeline import Span, Timeline
from mc2perf.version import VERSION

INSIGHT = re.compile(r"(trace_view|trace|msprof(_slice)?(_[0-9]{1,15}){1,4})\.json")
"""File names that MindStudio Insight takes for a timeline."""

Event = dict[str, Any]

ENGINES = {"compute": (1, "Compute"), "comm": (2, "Communication")}
"""Engine -> thread of the process of engines, and its name."""

ANALYSIS = {
    "Computing": (1, (2, 3)),
    "Communication": (2, (1, 3)),
    "Communication(Not Overlapped)": (3, (1,)),
    "Free": (4, (0,)),
}
"""Lane of Ascend's overlap analysis -> its thread, and who runs in it (1: communication, 2: computation)."""

PROCESSES = {1: "mc2perf engines (predicted)", 2: "Overlap Analysis"}


def to_trace(played: Playback, title: str) -> str:
    """The trace as JSON text.

    Parameters
    ----------
    played : Playback
        What ran.
    title : str
        What was asked, for the trace's own notes.
    """
    whole = played.timeline
    notes = {
        "title": title,
        "schedule": played.schedule,
        "predicted_by": f"mc2perf {VERSION}",
        "micro_batches": played.batches,
        "total_time_s": whole.total,
        "busy_compute_s": whole.busy_compute,
        "exposed_comm_time_s": whole.exposed_comm,
        "free_time_s": whole.free,
    }
    events = [*_names(), *_engines(played), *_analysis(whole)]
    tree = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": notes}
    return json.dumps(tree, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n"


def _names() -> Iterator[Event]:
    """Names and order of processes and lanes."""
    for pid, name in PROCESSES.items():
        yield _meta(pid, 0, "process_name", {"name": name})
        yield _meta(pid, 0, "process_labels", {"labels": "predicted"})
        yield _meta(pid, 0, "process_sort_index", {"sort_index": pid})
    lanes = [(1, tid, name) for tid, name in ENGINES.values()]
    lanes += [(2, tid, name) for name, (tid, _) in ANALYSIS.items()]
    for pid, tid, name in lanes:
        yield _meta(pid, tid, "thread_name", {"name": name})
        yield _meta(pid, tid, "thread_sort_index", {"sort_index": tid})


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}


def _engines(played: Playback) -> Iterator[Event]:
    """Every span on the lane of its engine, and an arrow from each piece's span to its next."""
    flow = 0
    for scene in played.scenes:
        chains: dict[int, list[Span]] = {}
        for span in scene.timeline.after(scene.start).spans:
            if span.engine not in ENGINES:
                continue
            yield _complete(
                1, ENGINES[span.engine][0], span.name, span.start, span.end, _args(span, scene.name)
            )
            if span.piece:
                chains.setdefault(span.piece, []).append(span)
        for chain in chains.values():
            flow += 1
            yield from _flow(flow, chain)


def _args(span: Span, scene: str) -> dict[str, Any]:
    return {"pass": scene, **({"piece": span.piece} if span.piece else {})}


def _flow(number: int, chain: list[Span]) -> Iterator[Event]:
    """Start, steps and finish of an arrow through the spans of one piece, each bound to its span."""
    for i, span in enumerate(chain if len(chain) > 1 else ()):
        phase = "s" if i == 0 else "f" if i == len(chain) - 1 else "t"
        tid, bound = ENGINES[span.engine][0], {"bp": "e"} if phase == "f" else {}
        named = {"ph": phase, "id": number, "cat": "piece", "name": "piece"}
        yield {**named, "pid": 1, "tid": tid, "ts": _us(_ns(span.start)), **bound}


def _analysis(whole: Timeline) -> Iterator[Event]:
    """The lanes of Ascend's overlap analysis: neighbours in the same lane are one event."""
    for name, (tid, states) in ANALYSIS.items():
        runs: list[list[float]] = []
        for state, start, end in whole.states:
            if state not in states:
                continue
            if runs and runs[-1][1] == start:
                runs[-1][1] = end
            else:
                runs.append([start, end])
        for start, end in runs:
            yield _complete(2, tid, name, start, end, {})


def _complete(pid: int, tid: int, name: str, start: float, end: float, args: dict[str, Any]) -> Event:
    begin = _ns(start)
    event: Event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": _us(begin)}
    event["dur"] = _us(_ns(end) - begin)
    if args:
        event["args"] = args
    return event


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1e3
