"""Pieces of any length on two engines that slow each other down, played event by event.

The closed forms hold for equal pieces; here every piece has times of its own. Each engine serves its jobs
in a fixed order. A job starts when the one before it on its engine has ended, and as many jobs of the other
engine as it needs. While both engines run, each goes at its slowed pace: between two events both paces are
constant, so stepping from event to event is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

from mc2perf.equations.play import ring_order
from mc2perf.problems import InputError
from mc2perf.timeline import Engine, Span, Timeline, in_turn

Order = Literal["comm_first", "compute_first"]


class Job(NamedTuple):
    """Work for one engine: stand-alone time [s], and how many jobs of the other must have ended."""

    name: str
    piece: int
    time: float
    needs: int


def two_stages(
    order: Order,
    comm: Sequence[float],
    compute: Sequence[float],
    *,
    head: float = 0.0,
    buffers: int,
    comm_slowdown: float,
    compute_slowdown: float,
    head_name: str = "own rows",
) -> Timeline:
    """Play pieces that travel and are then computed, or are computed and then travel.

    Parameters
    ----------
    order : "comm_first" or "compute_first"
        Which stage comes first.
    comm, compute : sequence of n >= 1 numbers
        Stand-alone time of every piece in each stage; need not be equal. [s]
    head : float
        Computation that needs no communication. It is computed first, beside the first transfers; in
        ``compute_first`` last, beside the last ones, which is the mirror image. [s]
    buffers : int
        Ring of B >= 1: the first stage of piece i starts when the second of piece i - B has ended. With
        one buffer nothing overlaps, not even the head (a single piece with a head beside it takes two).
    comm_slowdown, compute_slowdown : float
        f and g, at least 1: while both run, communication goes at 1/f and computation at 1/g of its pace.
    head_name : str
        What the head is called.

    Returns
    -------
    Timeline
        Spans by their start; ``free`` is 0.

    Raises
    ------
    InputError
        If a number is out of range, or the pieces of the stages differ in number.

    Notes
    -----
    Without slow-down the max-plus recurrence; for n buffers Johnson's longest path. Overlaps even where
    that loses (1/f + 1/g < 1).

    References
    ----------
    Johnson, "Optimal two- and three-stage production schedules", 1954.

    Examples
    --------
    >>> played = two_stages(
    ...     "comm_first", [1.0, 2.0], [2.0, 4.0], buffers=2, comm_slowdown=1.0, compute_slowdown=1.0
    ... )
    >>> played.total, played.exposed_comm
    (7.0, 1.0)
    """
    times = {"comm": comm, "compute": compute, "head": [head]}
    _check(times, buffers, comm_slowdown, compute_slowdown, order)
    beside = [Job(head_name, 0, head, 0)] if head > 0.0 else []
    if order == "comm_first":
        seconds = beside + _seconds(compute)
        return _play(_firsts(comm, buffers, len(beside)), seconds, comm_slowdown, compute_slowdown)
    last = [job._replace(needs=len(comm) if buffers == 1 else 0) for job in beside]
    return _play(_seconds(comm), _firsts(compute, buffers, 0) + last, comm_slowdown, compute_slowdown)


def _firsts(times: Sequence[float], buffers: int, before: int) -> list[Job]:
    """Jobs of the first stage, where ``before`` other jobs precede the pieces in the second."""
    return [
        Job(f"piece {i + 1}", i + 1, time, before + i + 1 - buffers if i >= buffers or buffers == 1 else 0)
        for i, time in enumerate(times)
    ]


def _seconds(times: Sequence[float]) -> list[Job]:
    """Jobs of the second stage: each needs its piece from the first."""
    return [Job(f"piece {i}", i, time, i) for i, time in enumerate(times, start=1)]


def three_stages(
    dispatch: Sequence[float],
    experts: Sequence[float],
    combine: Sequence[float],
    *,
    buffers: int,
    comm_slowdown: float,
    compute_slowdown: float,
    beside: float = 0.0,
    beside_name: str = "shared experts",
) -> Timeline:
    """Play pieces through dispatch, experts, combine, with one engine for both communications.

    Parameters
    ----------
    dispatch, experts, combine : sequence of n >= 1 numbers
        Stand-alone time of every piece in each stage; need not be equal. [s]
    buffers : int
        B >= 1: a piece holds one from the start of its dispatch to the end of its combine. With one
        buffer nothing overlaps, not even the work beside.
    comm_slowdown, compute_slowdown : float
        As in :func:`two_stages`.
    beside : float
        Computation that needs no communication, done first, beside the first dispatches. [s]
    beside_name : str
        What that computation is called.

    Returns
    -------
    Timeline
        Spans by their start; ``free`` is 0.

    Raises
    ------
    InputError
        If a number is out of range, or the pieces of the stages differ in number.

    Notes
    -----
    The engine serves D1 .. DB C1 D(B+1) C2 ... Cn, as in
    :func:`mc2perf.equations.pipeline.three_stage_bounds`; for unequal pieces other orders may be faster.

    Examples
    --------
    >>> three_stages(
    ...     [1.0] * 4, [4.0] * 4, [1.0] * 4, buffers=2, comm_slowdown=1.0, compute_slowdown=1.0
    ... ).total
    18.0
    """
    times = {"dispatch": dispatch, "experts": experts, "combine": combine, "beside": [beside]}
    _check(times, buffers, comm_slowdown, compute_slowdown)
    first = [Job(beside_name, 0, beside, 0)] if beside > 0.0 else []
    steps = [step for step in ring_order(len(dispatch), 3, min(buffers, len(dispatch))) if step[1] != 1]
    comm = [_transfer(dispatch, combine, *step, len(first), buffers) for step in steps]
    arrivals = [at for at, (_, stage) in enumerate(steps, start=1) if stage == 0]
    computed = [
        Job(f"experts {i}", i, time, needs)
        for i, (time, needs) in enumerate(zip(experts, arrivals, strict=True), start=1)
    ]
    return _play(comm, first + computed, comm_slowdown, compute_slowdown)


def _transfer(
    dispatch: Sequence[float], combine: Sequence[float], piece: int, stage: int, before: int, buffers: int
) -> Job:
    """A dispatch, held back by nothing but its engine, or a combine, which needs its experts."""
    if stage:
        return Job(f"combine {piece + 1}", piece + 1, combine[piece], before + piece + 1)
    return Job(f"dispatch {piece + 1}", piece + 1, dispatch[piece], before if buffers == 1 else 0)


def if_it_pays(play: Callable[[int], Timeline], buffers: int) -> Timeline:
    """A pipeline played with so many buffers, or with one where slow-down makes overlapping lose."""
    overlapped, serial = play(buffers), play(1)
    return overlapped if overlapped.total < serial.total else serial


def side_by_side(comm: Job, compute: Job, comm_slowdown: float, compute_slowdown: float) -> Timeline:
    """Play one job of each engine from the same moment on, or in turn if that takes less.

    Examples
    --------
    >>> side_by_side(Job("send", 1, 2.0, 0), Job("work", 1, 3.0, 0), 1.0, 1.0).total
    3.0
    """
    jobs = [job for job in (comm,) if job.time > 0.0], [job for job in (compute,) if job.time > 0.0]
    both = _play(*jobs, comm_slowdown, compute_slowdown)
    alone = in_turn([("comm", comm.name, comm.time), ("compute", compute.name, compute.time)])
    return both if both.total < alone.total else alone


@dataclass(slots=True)
class _Queue:
    """One engine: its jobs, how many have ended, when the present one started, what is left of it."""

    engine: Engine
    jobs: list[Job]
    done: int = 0
    start: float | None = None
    left: float = 0.0
    spans: list[Span] = field(default_factory=list)

    def ready(self, ended: int, now: float) -> bool:
        """Whether a job may run, now that so many of the other engine have ended."""
        if self.start is None and self.done < len(self.jobs) and self.jobs[self.done].needs <= ended:
            self.start, self.left = now, self.jobs[self.done].time
        return self.start is not None

    def run(self, until: float, step: float, slowdown: float) -> None:
        """Run the present job for ``step``, perhaps to its end."""
        if self.left * slowdown > step:
            self.left -= step / slowdown
            return
        assert self.start is not None
        name, piece, _, _ = self.jobs[self.done]
        self.spans.append(Span(self.engine, name, piece, self.start, until))
        self.done, self.start = self.done + 1, None


def _play(comm: list[Job], compute: list[Job], comm_slowdown: float, compute_slowdown: float) -> Timeline:
    """Step from event to event; at each, at least one job ends."""
    one, other, now = _Queue("comm", comm), _Queue("compute", compute), 0.0
    while True:
        sends, computes = one.ready(other.done, now), other.ready(one.done, now)
        if sends and computes:
            step = min(one.left * comm_slowdown, other.left * compute_slowdown)
            one.run(now + step, step, comm_slowdown)
            other.run(now + step, step, compute_slowdown)
        elif sends or computes:
            alone = one if sends else other
            step = alone.left
            alone.run(now + step, step, 1.0)
        else:
            return Timeline(tuple(sorted(one.spans + other.spans, key=attrgetter("start"))))
        now += step


def _check(
    times: dict[str, Sequence[float]],
    buffers: int,
    comm_slowdown: float,
    compute_slowdown: float,
    order: str = "comm_first",
) -> None:
    """Every number that is out of range, at once; the last of ``times`` is no stage."""
    *stages, _ = times
    counts = [len(times[stage]) for stage in stages]
    names, orders = ", ".join(stages), get_args(Order)
    wrong = [] if order in orders else [f"order: {order!r} is none; write {' or '.join(orders)}"]
    wrong += [f"{names}: {counts} pieces; write as many in each, at least 1"] * (
        min(counts) < 1 or len(set(counts)) > 1
    )
    wrong += [f"buffers: {buffers} is too few; write at least 1"] * (buffers < 1)
    factors = {"comm_slowdown": [comm_slowdown], "compute_slowdown": [compute_slowdown]}
    wrong += _outside(factors, 1.0) + _outside(times, 0.0)
    if wrong:
        raise InputError(wrong)


def _outside(values: Mapping[str, Sequence[float]], least: float) -> list[str]:
    """One line for every number that is less, infinite or none."""
    return [
        f"{name}{f'[{i}]' * (len(numbers) > 1)}: {value} is out of range; "
        f"write a finite number of at least {least:g}"
        for name, numbers in values.items()
        for i, value in enumerate(numbers)
        if not least <= value < math.inf
    ]
