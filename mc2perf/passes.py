"""What a stage of a training step takes for a micro-batch: forward, backward, both beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mc2perf import pass_turns, schedules
from mc2perf.equations.beside import beside
from mc2perf.outcomes.batches import batches_meet
from mc2perf.outcomes.outcome import Traffic
from mc2perf.pass_turns import Key, Turns
from mc2perf.pipelines import Pipeline, pipeline_of
from mc2perf.placement import stage_counts
from mc2perf.schedules import Timing
from mc2perf.study import LaidLayer, Study
from mc2perf.units import Num
from mc2perf.workload.parts import Part, Segment, all_segments, is_weight_gradient

AGAIN = {"selective": "attention", "activation": "activation"}
"""Recompute of single kernels -> theirs: the core of the attention, or the activation function."""

T = TypeVar("T")

Groups = dict[str, Timing]
"""Timings apart by the parallel group that communicates in them."""


@dataclass(frozen=True)
class Pass:
    """What a device runs in one go: its time alone and with the host, and its traffic. [s]"""

    timing: Timing
    issued: Num
    traffic: dict[str, Traffic]

    def __add__(self, other: Pass) -> Pass:
        traffic = dict(self.traffic)
        for name, more in other.traffic.items():
            had = traffic.get(name, Traffic(0.0, 0.0))
            traffic[name] = Traffic(had.comm + more.comm, had.exposed + more.exposed)
        return Pass(self.timing + other.timing, self.issued + other.issued, traffic)

    def times(self, count: Num) -> Pass:
        """The same, so many times."""
        traffic = {name: Traffic(count * t.comm, count * t.exposed) for name, t in self.traffic.items()}
        return Pass(Timing(*(count * value for value in self.timing)), count * self.issued, traffic)


class Stage(NamedTuple):
    """One micro-batch on a stage: forward, backward with what is computed again, weight gradients in it."""

    forward: Groups
    backward: Groups
    weights: Timing


class Parts(NamedTuple):
    """A micro-batch on a stage where weight gradients are put off: forward, input gradients, those."""

    forward: Pass
    backward: Pass
    weights: Pass


class Passes:
    """Prices the passes of stages; equal ones once.

    Parameters
    ----------
    study : Study
        Layout, batch and machine.
    layers : tuple of LaidLayer
        Every group of equal layers under a schedule, then embedding and head.
    paired : bool
        Whether a forward and a backward that meet on a device hide each other's communication.
    """

    def __init__(self, study: Study, layers: tuple[LaidLayer, ...], paired: bool) -> None:
        self.study, self.layers = study, layers
        self.pipeline: Pipeline = pipeline_of(study.scenario.pipeline, study.scenario.vpp)
        self.paired = paired and self.pipeline.pairs
        self._known: dict[tuple[str, object], Any] = {}

    def _once(self, what: str, key: object, price: Callable[[], T]) -> T:
        if (what, key) not in self._known:
            self._known[what, key] = price()
        found: T = self._known[what, key]
        return found

    @cached_property
    def counts(self) -> list[list[float]]:
        """Layers of every group on every stage."""
        return stage_counts(self.study)

    @cached_property
    def _again(self) -> tuple[LaidLayer, ...]:
        """Layers of nothing but the kernels that are computed again."""
        name = AGAIN.get(self.study.scenario.recompute)
        return self.study.laid(partial(_only, lambda s: s.name == name)) if name else ()

    @cached_property
    def _put_off(self) -> tuple[LaidLayer, ...]:
        """Layers of nothing but weight gradients."""
        return self.study.laid(partial(_only, is_weight_gradient))

    def key(self, i: int) -> Key:
        """What makes a stage differ from others."""
        return Key(tuple(self.counts[i]), i == 0, i == len(self.counts) - 1)

    def whole(self, i: int) -> Pass:
        """Forward and backward of a stage, one after the other, and what it sends."""
        return self._once("whole", self.key(i), partial(self._whole, i))

    def parts(self, i: int) -> Parts:
        """Forward, input gradients and weight gradients of a stage, each with what it sends."""
        return self._once("parts", (self.key(i), *self._hands_on(i)), partial(self._parts, i))

    def both(self, i: int, j: int) -> Pass:
        """The forward of a stage and the whole backward of another one, on the same device."""
        if not self.paired:
            return self.parts(i).forward + self.parts(j).backward + self.parts(j).weights
        keys = (self.key(i), self.key(j), self._hands_on(i)[0], self._hands_on(j)[1])
        return self._once("both", keys, partial(self._both, i, j))

    def backward_time(self, i: int) -> Num:
        """The backward pass of a stage, its share of what a micro-batch waits for the host included. [s]"""
        there, back = self._both_ways(self._stage(i))
        return self._issued(there, back)[1]

    # --- one after the other -----------------------------------------------------------------------------

    def _stage(self, i: int) -> Stage:
        return self._once("stage", self.key(i), partial(self._price, self.key(i)))

    def _price(self, key: Key) -> Stage:
        counts, first, last = key
        *groups, embedding, head = self.layers
        layers = list(zip(counts, groups, strict=True))
        ends = [(1.0, end) for end in [embedding] * first + [head] * last]
        inner = _sum_of((n, g.forward) for n, g in layers)
        repeated = self._recomputed(inner, counts)
        weights: list[tuple[float, Groups]] = []
        if self.pipeline.order is not None:
            *inside, _, last_one = self._put_off
            weights = [(n, g.backward) for n, g in zip(counts, inside, strict=True)]
            weights += [(1.0, last_one.backward)] * last
        return Stage(
            _sum_of([(1.0, inner), *((n, g.forward) for n, g in ends)]),
            _sum_of([*((n, g.backward) for n, g in (*layers, *ends)), (1.0, repeated)]),
            _together(_sum_of(weights)),
        )

    def _recomputed(self, forward: Groups, counts: tuple[float, ...]) -> Groups:
        """What the backward pass computes once more."""
        if self._again:
            return _sum_of((n, g.forward) for n, g in zip(counts, self._again, strict=False))
        share = self._share(counts)
        return {group: timing.times(share) for group, timing in forward.items()} if share else {}

    def _share(self, counts: tuple[float, ...]) -> float:
        """Share of a stage's layers that are computed again; ``block`` counts those of all its chunks."""
        method, _, number = self.study.scenario.recompute.partition(":")
        if method == "block":
            return min(float(number) / (self.pipeline.chunks * sum(counts)), 1.0)
        return float(method == "full")

    def _sustained(self, timing: Timing) -> Timing:
        """Whole steps compute slower than single kernels: clocks under load, gaps between kernels."""
        more = (self._slower - 1.0) * timing.compute
        total, compute, busy = (more + value for value in (timing.total, timing.compute, timing.busy))
        return timing._replace(total=total, compute=compute, busy=busy)

    @cached_property
    def _slower(self) -> float:
        sustained = self.study.costs.machine.cube.sustained
        self.study.costs.ledger.use("cube.sustained", sustained)
        return 1.0 / sustained

    def _whole(self, i: int) -> Pass:
        stage, (_, first, last) = self._stage(i), self.key(i)
        there, back = self._both_ways(stage)
        alone = Pass(there + back, self.study.issued(there, back), _traffic(stage.forward, stage.backward))
        if self.study.scenario.pp == 1:
            return alone
        # a chunk hands on its activations and returns its gradients; the very first and last only one of both
        return alone + self._send.times(2.0 * self.study.scenario.vpp - first - last)

    def _parts(self, i: int) -> Parts:
        stage, hands_on = self._stage(i), self._hands_on(i)
        weights = self._sustained(stage.weights)
        there, back = self._both_ways(stage)
        timings = (there, back + weights.times(-1.0), weights)
        traffic = (_traffic(stage.forward), _traffic(stage.backward), dict[str, Traffic]())
        issued = self._issued(*timings)
        passes = [Pass(*of) for of in zip(timings, issued, traffic, strict=True)]
        sends = [self._send.times(float(hands)) for hands in hands_on]
        return Parts(passes[0] + sends[0], passes[1] + sends[1], passes[2])

    def _both_ways(self, stage: Stage) -> tuple[Timing, Timing]:
        """Forward and backward on the device; what is computed again runs between layers of the backward."""
        return self._sustained(_together(stage.forward)), self._sustained(_together(stage.backward))

    def _issued(self, there: Timing, *back: Timing) -> list[Num]:
        """Times of a micro-batch's passes, where the host runs ahead from one into the next. [s]"""
        alone = [self.study.issued(timing) for timing in (there, *back)]
        whole: Num = sum(alone)
        together = self.study.issued(there, sum(back, schedules.NOTHING))
        share = together / np.where(np.greater(whole, 0.0), whole, 1.0)
        return [share * time for time in alone]

    # --- what a stage sends ------------------------------------------------------------------------------

    def _hands_on(self, i: int) -> tuple[bool, bool]:
        """Whether activations go on to another device, and gradients go back to another one."""
        inside = int(self.study.scenario.pp) if self.pipeline.chunks > 1 else 0
        last = len(self.counts) - 1
        return i < last and i + 1 != inside, i > 0 and i != inside

    @cached_property
    def _send(self) -> Pass:
        """Activations to the next stage, or gradients to the one before."""
        layout, model = self.study.layout, self.study.model
        assert layout is not None and model is not None
        size = layout.between * float(model.hidden_size) * 2.0
        time = self.study.costs.send("pipeline send", size, layout.stride("pp")).time
        return Pass(Timing(time, 0.0, time, 0.0, time, 0.0, 0.0), time, {"pp": Traffic(time, time)})

    # --- beside each other -------------------------------------------------------------------------------

    def _both(self, i: int, j: int) -> Pass:
        """Every communication of one behind the computation of the other; sends come last in their pass."""
        on = batches_meet(self.study)
        one, other = self._stage(i).forward, self._stage(j).backward
        sends = self._send.times(float(self._hands_on(i)[0]) + self._hands_on(j)[1])
        alone = self._sustained(_together(one) + _together(other)) + sends.timing
        together = beside(
            self.forward_turns(i), self.backward_turns(j), on.comm_slowdown, on.compute_slowdown
        )
        timing = alone._replace(
            total=together.total, busy=together.busy_compute, exposed=together.exposed_comm
        )
        left = together.exposed_comm / np.where(np.greater(alone.comm, 0.0), alone.comm, 1.0)
        sent = Pass(alone, 0.0, _traffic(one, other)) + sends
        shared = {name: Traffic(t.comm, left * t.comm) for name, t in sent.traffic.items()}
        return Pass(timing, self.study.issued(timing), shared)

    def forward_turns(self, i: int) -> Turns:
        """The forward of a stage as computations and communication in alternation, its send last. [s]"""
        key, send = self.key(i), self._hands_on(i)[0]
        return self._once("forward", (key, send), lambda: pass_turns.turns_of(
            pass_turns.forward(self.study.layers, key), self._slower, self._send.issued * send
        ))  # fmt: skip

    def backward_turns(self, i: int) -> Turns:
        """The whole backward of a stage in the same way. [s]"""
        key, send = self.key(i), self._hands_on(i)[1]
        name = AGAIN.get(self.study.scenario.recompute)
        segments = pass_turns.backward(
            self.study.layers, key, lambda s: name in (None, s.name), 1.0 if name else self._share(key.counts)
        )
        return self._once("backward", (key, send), lambda: pass_turns.turns_of(
            segments, self._slower, self._send.issued * send
        ))  # fmt: skip


def _only(kept: Callable[[Segment], bool], part: Part) -> Timing:
    """Some kernels of a part, one after the other."""
    return schedules.serial(tuple(s for s in all_segments(part) if kept(s)))


def _together(groups: Groups) -> Timing:
    return sum(groups.values(), schedules.NOTHING)


def _sum_of(parts: Iterable[tuple[float, Groups]]) -> Groups:
    """Layers added up, apart by group."""
    found: Groups = {}
    for count, timings in parts:
        for group, timing in timings.items():
            if count:
                found[group] = found.get(group, schedules.NOTHING) + timing.times(count)
    return found


def _traffic(*passes: Groups) -> dict[str, Traffic]:
    """Communication of passes by group."""
    return {
        group: Traffic(
            sum((p[group].comm for p in passes if group in p), 0.0),
            sum((p[group].exposed for p in passes if group in p), 0.0),
        )
        for group in ("tp", "ep", "cp")
        if any(group in p for p in passes)
    }
