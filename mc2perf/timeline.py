"""When each engine runs: spans from start to end, which traces and Gantt charts draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

Engine = Literal["comm", "compute", "free"]
WEIGHTS: dict[Engine, int] = {"comm": 1, "compute": 2, "free": 0}
"""Bits of who runs; a span of nobody keeps time in which both engines wait."""


class Span(NamedTuple):
    """One job of an engine; ``piece`` counts from 1, and is 0 for work that is not cut. [s]"""

    engine: Engine
    name: str
    piece: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """When each engine runs, from 0 on; spans of one engine do not overlap.

    Examples
    --------
    >>> Timeline((Span("comm", "piece 1", 1, 0.0, 2.0), Span("compute", "piece 1", 1, 1.0, 4.0))).total
    4.0
    """

    spans: tuple[Span, ...]

    @property
    def total(self) -> float:
        """Makespan, exactly ``busy_compute + exposed_comm + free``. [s]"""
        return self.busy_compute + self.exposed_comm + self.free

    @property
    def busy_compute(self) -> float:
        """How long the compute engine runs, slowed or not. [s]"""
        return self._shares[2] + self._shares[3]

    @property
    def exposed_comm(self) -> float:
        """How long only communication runs. [s]"""
        return self._shares[1]

    @property
    def overlapped(self) -> float:
        """How long both run. [s]"""
        return self._shares[3]

    @property
    def free(self) -> float:
        """How long neither runs before the last end. [s]"""
        return self._shares[0]

    def after(self, start: float) -> Timeline:
        """The same, later. [s]"""
        return Timeline(tuple(s._replace(start=start + s.start, end=start + s.end) for s in self.spans))

    @cached_property
    def end(self) -> float:
        """When the last span ends. [s]"""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def states(self) -> Iterator[tuple[int, float, float]]:
        """Who runs, from when to when: 1 for communication, 2 for computation, 3 for both, 0 for neither."""
        state, before = 0, 0.0
        for time, change in sorted(_edges(self.spans)):
            if time > before:
                yield state, before, time
            state, before = state + change, time

    @cached_property
    def _shares(self) -> tuple[float, ...]:
        """Time in which neither runs, communication only, computation only, both. [s]"""
        shares = [0.0] * 4
        for state, start, end in self.states:
            shares[state] += end - start
        return tuple(shares)


def _edges(spans: Iterable[Span]) -> Iterator[tuple[float, int]]:
    """Starts and ends; at the same time an end comes first, so an engine never runs twice."""
    for span in spans:
        if span.end > span.start:
            yield span.start, WEIGHTS[span.engine]
            yield span.end, -WEIGHTS[span.engine]


def in_turn(spans: Iterable[tuple[Engine, str, float]]) -> Timeline:
    """One after the other: engine, name and time of each; what takes no time is left out.

    Examples
    --------
    >>> in_turn([("comm", "dispatch", 2.0), ("compute", "experts", 1.0)]).exposed_comm
    2.0
    """
    found, now = [], 0.0
    for engine, name, time in spans:
        if time > 0.0:
            found.append(Span(engine, name, 0, now, now + time))
            now += time
    return Timeline(tuple(found))


def joined(timelines: Iterable[Timeline]) -> Timeline:
    """One timeline after the other; equal numbers stay the same piece."""
    spans: list[Span] = []
    now = 0.0
    for timeline in timelines:
        spans += timeline.after(now).spans
        now += timeline.end
    return Timeline(tuple(spans))


def apart(timelines: Iterable[Timeline]) -> Iterator[Timeline]:
    """The same timelines, with pieces numbered on from one to the next: none is taken for another."""
    before = 0
    for timeline in timelines:
        yield Timeline(tuple(s._replace(piece=s.piece + before * (s.piece > 0)) for s in timeline.spans))
        before += max((span.piece for span in timeline.spans), default=0)
