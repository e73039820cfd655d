"""What a schedule does, second by second: every part of an answer played piece by piece.

The closed forms say how long a schedule takes; here the same pieces run one by one, so that they can be
drawn. Both give the same times, which the tests hold against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mc2perf.answer import Row
from mc2perf.playback.players import PASSES, Passes, whole_batches
from mc2perf.study import Study, main_layer
from mc2perf.timeline import Span, Timeline, in_turn, joined
from mc2perf.workload.layer import LayerParts

MOST_SPANS = 200_000
"""Repetitions of layers beyond so many spans are drawn as one block each, with the same totals."""


class Scene(NamedTuple):
    """One pass through a layer, or what follows the layers; ``start`` in the whole. [s]"""

    name: str
    start: float
    timeline: Timeline


@dataclass(frozen=True)
class Playback:
    """A schedule from start to end.

    ``batches`` micro-batches run through it: two half a step apart for training in ``dual_batch``, whose
    reported times are per micro-batch, else one. ``close_up`` are the passes of one layer, to be looked at.
    """

    schedule: str
    scenes: tuple[Scene, ...]
    close_up: tuple[Scene, ...]
    batches: int = 1

    @property
    def timeline(self) -> Timeline:
        """All scenes, one after the other."""
        return joined(scene.timeline for scene in self.scenes)


def playback(study: Study, row: Row) -> Playback:
    """Play a row of an answer.

    Parameters
    ----------
    study : Study
        The study that the row answers, of one row.
    row : Row
        A legal schedule at its number of pieces.

    Returns
    -------
    Playback
        ``timeline.busy_compute``, ``.exposed_comm`` and ``.free`` over ``batches`` are those of the row.

    Examples
    --------
    >>> from mc2perf.api import estimate, playback_of
    >>> from mc2perf.scenario import Scenario
    >>> scenario = Scenario(target="mixtral-8x7b", phase="prefill")
    >>> row = estimate("mixtral-8x7b", phase="prefill").best
    >>> played = playback_of(scenario, {}, row)
    >>> bool(abs(played.timeline.exposed_comm / row.exposed_comm_time - 1) < 1e-9)
    True
    """
    schedule = "serial" if row.reason else row.schedule
    batches = 2 if schedule == "dual_batch" and whole_batches(study) else 1
    if study.scenario.global_batch_size is not None:
        scenes = _scenes([("step", joined(_step(study, row)))])
        return Playback(schedule, scenes, scenes)
    passes = PASSES[schedule](study, row)
    host = in_turn([("free", "waits for the host", batches * row.free_time)])
    close_up = _scenes(
        (f"one {main_layer(study).name}, {direction}" if study.model else study.scenario.target, played)
        for direction, played in _directions(main_layer(study), passes)
        if played.spans
    )
    return Playback(
        schedule, _scenes([*_in_order(study, passes, batches), ("host", host)]), close_up, batches
    )


def _scenes(passes: Any) -> tuple[Scene, ...]:
    """Passes one after the other."""
    scenes, now = [], 0.0
    for name, played in passes:
        if played.spans:
            scenes.append(Scene(name, now, played))
            now += played.end
    return tuple(scenes)


# --- the order of passes -----------------------------------------------------------------------------------


def _directions(layer: LayerParts, passes: Passes) -> Iterator[tuple[str, Timeline]]:
    yield "forward", passes(layer.forward, layer.ends)
    yield "backward", passes(layer.backward, layer.ends)


def _in_order(study: Study, passes: Passes, batches: int) -> Iterator[tuple[str, Timeline]]:
    """Embedding, layers, head; then the same backward."""
    ends = {layer.name: layer for layer in study.layers if layer.ends}
    groups = [layer for layer in study.layers if not layer.ends]
    first, last = ends.get("embedding"), ends.get("head")
    order = [layer for layer in (first, *groups, last) if layer is not None]
    played = {layer.name: dict(_directions(layer, passes)) for layer in order}
    budget = MOST_SPANS / max(sum(_count(layer) for layer in order), 1)
    for direction, layers in (("forward", order), ("backward", order[::-1])):
        for layer in layers:
            once = played[layer.name][direction]
            times = _count(layer) * (batches if layer.ends else 1)
            again = once if len(once.spans) <= budget else as_blocks(once, layer.name)
            for i in range(times):
                number = f" {i + 1}" if times > 1 else ""
                yield f"{layer.name}{number}, {direction}", again if i else once


def _count(layer: LayerParts) -> int:
    return round(float(np.asarray(layer.count).item()))


def as_blocks(played: Timeline, name: str) -> Timeline:
    """One span for each engine, with the same busy, exposed and overlapped time."""
    return blocks(name, played.busy_compute, played.exposed_comm, played.overlapped, played.free)


def blocks(name: str, busy: float, exposed: float, overlapped: float, free: float = 0.0) -> Timeline:
    """Computation, then communication that ends after it, then nothing. [s]"""
    total = busy + exposed
    spans = (
        Span("compute", name, 0, 0.0, busy),
        Span("comm", name, 0, busy - overlapped, total),
        Span("free", name, 0, total, total + free),
    )
    return Timeline(tuple(span for span in spans if span.end > span.start))


# --- whole steps -------------------------------------------------------------------------------------------

MOST_MICRO_BATCHES = 512
"""More micro-batches of a step than this are drawn as one block."""


def _step(study: Study, row: Row) -> Iterator[Timeline]:
    """A training step of the slowest stage: micro-batches as blocks, gradients and weights, what waits.

    Blocks, since a step has as many layers as layers times micro-batches; leave out the global batch to see
    the layers.
    """
    groups = {name: t for name, t in row.traffic.items() if name != "dp"}
    exposed = {name: t[1] for name, t in groups.items()}
    busy = row.compute_time + row.compute_stretch
    n = round(float(np.asarray(study.resolved["micro_batches_of_a_step"]).item()))
    n = n if n <= MOST_MICRO_BATCHES else 1
    hidden = min(max(sum(t[0] - t[1] for t in groups.values()), 0.0), busy)
    for i in range(n):
        yield blocks(f"micro-batch {i + 1}", busy / n, 0.0, hidden / n)
        yield in_turn(("comm", f"{name} of micro-batch {i + 1}", time / n) for name, time in exposed.items())
    after = row.exposed_comm_time - sum(exposed.values())
    yield in_turn(
        [
            ("comm", "gradients and weights (dp)", max(after, 0.0)),
            ("free", "pipeline and host", row.free_time),
        ]
    )
