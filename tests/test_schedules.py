"""Schedules of made-up costs against pieces played one by one, and against two fluids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf import schedules
from mc2perf.costs import Cost
from mc2perf.equations import overlap
from mc2perf.schedules import Conditions, Timing
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, ExpertPieces, Pair, PairPieces, Plain, Segment, Segments

quick = settings(max_examples=150, deadline=None)
times = st.floats(0.0, 100.0).map(lambda t: round(t, 3))
counts = st.integers(1, 12)
rings = st.integers(1, 8)
COMM_FIRST, COMPUTE_FIRST = "comm_first", "compute_first"


def run(label: str, equation: Callable[..., Any], **numbers: Any) -> Any:
    return equation(**numbers)


def conditions(buffers: int, round_cost: float = 0.0, f: float = 1.0, g: float = 1.0) -> Conditions:
    return Conditions(f, g, round_cost, float(buffers), run)


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-11, abs=1e-11)


def comm(work: Num, launch: Num = 0.0, name: str = "comm") -> Segment:
    return Segment(name, "comm", Cost(work, launch))


def compute(work: Num, launch: Num = 0.0, name: str = "compute") -> Segment:
    return Segment(name, "compute", Cost(work, launch))


def check(timing: Timing, total: float, busy: float) -> None:
    """The parts add up exactly, and to what was played."""
    assert timing.total == timing.busy + timing.exposed
    assert timing.total == close(total)
    assert timing.busy == close(busy)


# --- one collective and one matmul


def pair(
    order: str, transfer: float, work: float, *, send: float = 0.0, launch: float = 0.0, own: float = 0.0,
    prefix: float = 0.0, after: float = 0.0,
) -> Pair:  # fmt: skip
    """Affine pieces: work is shared out evenly, launches are not; ``own`` of the work is local."""

    def build(n: Num, local_first: bool) -> PairPieces:
        rest, head = (work - own, (compute(own),)) if local_first else (work, ())
        return PairPieces(
            (comm(prefix),) if prefix else (),
            comm(transfer / n, send),
            (compute(rest / n, launch),),
            head,
            (compute(after),) if after else (),
        )

    return Pair("pair", order, 8.0, 64.0, build, local_first=own > 0.0)  # type: ignore[arg-type]


def play_two(firsts: list[float], seconds: list[float], buffers: int, second_free: float = 0.0) -> float:
    """Engines serve pieces in order; a buffer is held from the start of a piece to its end."""
    first_free = 0.0
    done: list[float] = []
    for i, (a, b) in enumerate(zip(firsts, seconds, strict=True)):
        start = max(first_free, done[i - buffers] if i >= buffers else 0.0)
        first_free = start + a
        second_free = max(second_free, first_free) + b
        done.append(second_free)
    return second_free


@pytest.mark.parametrize("order", [COMM_FIRST, COMPUTE_FIRST])
@quick
@given(times, times, times, times, times, times, times, counts, rings)
def test_pair_mc2_equals_the_tiles_played(
    order: str, transfer: float, work: float, send: float, launch: float, round_cost: float, prefix: float,
    after: float, n: int, buffers: int,
) -> None:  # fmt: skip
    """One launch each, n tiles with a round between them, scales before, the rest behind."""
    p = pair(order, transfer, work, send=send, launch=launch, prefix=prefix, after=after)
    timing = schedules.pair_mc2(p, float(n), conditions(buffers, round_cost))
    a = transfer / n
    b = work / n + (round_cost if n > 1 else 0.0)
    first, second = (a, b) if order == COMM_FIRST else (b, a)
    total = play_two([first] * n, [second] * n, buffers) + send + launch + prefix + after
    check(timing, total, n * b + launch + after)
    assert timing.compute == close(n * b + launch + after)
    assert timing.comm == close(transfer + send + prefix)


@quick
@given(times, st.floats(0.0, 50.0), times, times, counts, st.integers(2, 8))
def test_own_rows_first(
    transfer: float, own: float, more: float, round_cost: float, n: int, buffers: int
) -> None:
    """Two buffers or more and two tiles or more: the rank's own rows run while the first tile travels."""
    p = pair(COMM_FIRST, transfer, own + more, own=own)
    timing = schedules.pair_mc2(p, float(n), conditions(buffers, round_cost))
    if n == 1:
        assert timing.total == close(transfer + own + more)
        return
    b = more / n + round_cost
    free, arrived = own, 0.0
    done: list[float] = []
    for i in range(n):
        arrived = max(arrived, done[i - buffers] if i >= buffers else 0.0) + transfer / n
        free = max(free, arrived) + b
        done.append(free)
    check(timing, free, own + n * b)


@pytest.mark.parametrize("order", [COMM_FIRST, COMPUTE_FIRST])
@quick
@given(times, times, times, times, times, times, st.sampled_from([1, 2, 4, 8]), rings)
def test_pair_parts_equals_the_kernels_played(
    order: str, transfer: float, work: float, send: float, launch: float, prefix: float, after: float,
    n: int, buffers: int,
) -> None:  # fmt: skip
    """CoC: every part pays its launches, the host issues two kernels each."""
    p = pair(order, transfer, work, send=send, launch=launch, prefix=prefix, after=after)
    timing = schedules.pair_parts(p, float(n), conditions(buffers, 7.0))
    a, b = transfer / n + send, work / n + launch
    first, second = (a, b) if order == COMM_FIRST else (b, a)
    total = play_two([first] * n, [second] * n, buffers) + prefix + after
    check(timing, total, n * b + after)
    assert timing.launches == 2 * n + bool(prefix) + bool(after)


def test_pair_serial_is_the_sum() -> None:
    timing = schedules.pair_serial(pair(COMM_FIRST, 5.0, 7.0, send=1.0, launch=2.0, prefix=3.0, after=4.0))
    assert timing == Timing(22.0, 13.0, 9.0, 13.0, 9.0, 0.0, 4.0)


# --- two stages that slow each other down


@dataclass
class Fluid:
    """One engine's queue of equal pieces and how far the current one is."""

    pieces: int
    size: float
    done: int = 0
    left: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.size

    def flow(self, amount: float) -> None:
        self.left -= amount
        while self.done < self.pieces and self.left <= 1e-10 * self.size:
            self.done += 1
            self.left = self.size


def play_fluid(a: float, b: float, n: int, buffers: int, slow_a: float, slow_b: float) -> tuple[float, float]:
    """Makespan, and the time the second engine runs: at 1/f and 1/g of their pace while both do."""
    first, second = Fluid(n, a), Fluid(n, b)
    now = busy = 0.0
    while second.done < n:
        can = first.done < n and first.done - second.done < buffers, second.done < first.done
        pace_a = (1.0 / slow_a if can[1] else 1.0) * can[0]
        pace_b = (1.0 / slow_b if can[0] else 1.0) * can[1]
        step = min(q.left / pace for q, pace in ((first, pace_a), (second, pace_b)) if pace)
        now += step
        busy += step * can[1]
        first.flow(step * pace_a)
        second.flow(step * pace_b)
    return now, busy


@pytest.mark.parametrize("order", [COMM_FIRST, COMPUTE_FIRST])
@pytest.mark.parametrize("schedule", ["mc2", "parts"])
@quick
@given(st.floats(0.1, 50.0), st.floats(0.1, 50.0), counts, rings, st.floats(1.0, 1.9), st.floats(1.0, 1.9))
def test_two_stages_equal_two_fluids(
    order: str, schedule: str, transfer: float, work: float, n: int, buffers: int, f: float, g: float
) -> None:
    """While 1/f + 1/g >= 1: overlapping pays."""
    price = schedules.pair_mc2 if schedule == "mc2" else schedules.pair_parts
    timing = price(pair(order, transfer, work), float(n), conditions(buffers, 0.0, f, g))
    a, b = transfer / n, work / n
    if order == COMM_FIRST:
        total, busy = play_fluid(a, b, n, buffers, f, g)
    else:
        total, busy = play_fluid(b, a, n, buffers, g, f)[0], None
    assert timing.total == pytest.approx(total, rel=1e-7)
    if busy is not None and total < (transfer + work) * (1 - 1e-6):
        assert timing.busy == pytest.approx(busy, rel=1e-6)
    assert timing.total == timing.busy + timing.exposed
    assert max(transfer, work) * (1 - 1e-12) <= timing.total <= (transfer + work) * (1 + 1e-12)


# --- the expert path


@dataclass(frozen=True)
class Stages:
    """Works and launches of an expert path: each a pair of what is shared out and what every piece pays."""

    gate: tuple[float, float]
    counts: float
    dispatch: tuple[float, float]
    ffn1: tuple[float, float]
    activation: float
    ffn2: tuple[float, float]
    combine: tuple[float, float]
    unpermute: float
    shared: tuple[float, float]
    wgrads: float


affine = st.tuples(times, st.floats(0.0, 5.0).map(lambda t: round(t, 3)))
stages = st.builds(
    Stages, gate=affine, counts=times, dispatch=affine, ffn1=affine, activation=times, ffn2=affine,
    combine=affine, unpermute=times, shared=affine, wgrads=times,
)  # fmt: skip


def communicating(s: Stages) -> Stages:
    """Experts about as long as one of the transfers: the number of buffers then decides."""
    work = s.gate[0] + s.ffn1[0] + s.activation + s.ffn2[0] + s.unpermute
    less = 1.2 * max(s.dispatch[0], s.combine[0]) / work if work else 1.0
    return replace(
        s, gate=(s.gate[0] * less, 0.0), ffn1=(s.ffn1[0] * less, 0.0), ffn2=(s.ffn2[0] * less, 0.0),
        activation=s.activation * less, unpermute=s.unpermute * less, counts=0.0, shared=(0.0, 0.0),
    )  # fmt: skip


def path(s: Stages, experts: int = 4) -> ExpertPath:
    def build(n: Num, by_expert: bool) -> ExpertPieces:
        share = 1.0 if by_expert else n
        beside: Segments = (compute(s.shared[0] / share, s.shared[1]),) if s.shared[0] else ()
        return ExpertPieces(
            before=(compute(s.gate[0] / share, s.gate[1]), comm(s.counts / share)),
            comm_in=comm(s.dispatch[0] / n, s.dispatch[1]),
            first=compute(s.ffn1[0] / n, s.ffn1[1]),
            middle=(compute(s.activation / share),),
            second=compute(s.ffn2[0] / n, s.ffn2[1]),
            comm_out=comm(s.combine[0] / n, s.combine[1]),
            after=(compute(s.unpermute / share),),
            weight_grads=(compute(s.wgrads / share),) if s.wgrads else (),
            beside=beside,
        )

    return ExpertPath("experts", 8.0, experts, 64.0, build, by_expert=float(experts))


@quick
@given(stages, st.integers(1, 16), times, rings)
def test_experts_mc2_equals_its_two_halves_played(
    s: Stages, experts: int, round_cost: float, buffers: int
) -> None:
    """Dispatch and FFN1 by expert, shared experts in the fill; then FFN2 and combine; a launch per half.

    Every exchange is issued up front, so any ring of two or more does, and rounds cost the links, not the
    cube; one buffer overlaps nothing.
    """
    timing = schedules.experts_mc2(path(s, experts), conditions(buffers, round_cost))
    rounds = round_cost if experts > 1 else 0.0
    one, two = s.ffn1[0] / experts, s.ffn2[0] / experts
    sent, back = s.dispatch[0] / experts + rounds, s.combine[0] / experts + rounds
    halves = play_two([sent] * experts, [one] * experts, experts, s.shared[0])
    halves += play_two([two] * experts, [back] * experts, experts)
    if buffers == 1:
        halves = experts * (sent + back + one + two) + s.shared[0]
    launches = s.dispatch[1] + s.ffn1[1] + s.ffn2[1] + s.combine[1] + (s.shared[1] if s.shared[0] else 0.0)
    alone = sum(s.gate) + s.activation + s.unpermute + s.wgrads
    assert timing.total == timing.busy + timing.exposed
    assert timing.total == close(halves + launches + alone + s.counts)
    assert timing.comm == close(sum(s.dispatch) + sum(s.combine) + 2 * experts * rounds + s.counts)
    shared = sum(s.shared) if s.shared[0] else 0.0
    matmuls = experts * (one + two) + s.ffn1[1] + s.ffn2[1]
    assert timing.compute == close(matmuls + alone + shared)
    assert timing.busy == close(timing.compute)


def play_three(d: float, e: float, c: float, n: int, buffers: int, beside: float) -> float:
    """One engine for both communications: as many dispatches ahead as buffers allow, then in turn.

    Other work of the cube comes before the first experts.
    """
    engine, cube = 0.0, beside
    computed: list[float] = []
    combined = 0
    while combined < n:
        if len(computed) < n and len(computed) - combined < buffers:
            engine += d
            cube = max(cube, engine) + e
            computed.append(cube)
        else:
            engine = max(engine, computed[combined]) + c
            combined += 1
    return engine


@quick
@given(st.one_of(stages, stages.map(communicating)), counts, st.sampled_from([0.0, 0.1, 5.0]), rings)
def test_micro_batches_equal_their_pieces_played(s: Stages, n: int, round_cost: float, buffers: int) -> None:
    """Counts travel with the dispatch; shared experts fill the first dispatch; weight gradients come last."""
    timing = schedules.experts_micro_batch(path(s), float(n), conditions(buffers, round_cost))
    d = s.counts / n + s.dispatch[0] / n + s.dispatch[1]
    c = s.combine[0] / n + s.combine[1]
    fixed = s.gate[1] + s.ffn1[1] + s.ffn2[1] + (round_cost if n > 1 else 0.0)
    e = (s.gate[0] + s.ffn1[0] + s.activation + s.ffn2[0] + s.unpermute) / n + fixed
    shared = sum(s.shared) if s.shared[0] else 0.0
    compute_sum = n * e + shared + s.wgrads
    expected = play_three(d, e, c, n, buffers, shared) + s.wgrads
    if buffers == 1 or n == 1:  # nothing overlaps: everything in a row
        expected = n * (d + e + c) + shared + s.wgrads
    assert timing.total == timing.busy + timing.exposed
    assert timing.total == close(expected)
    assert timing.comm == close(n * (d + c))
    assert timing.compute == close(compute_sum)
    assert timing.busy == close(compute_sum)


@quick
@given(stages)
def test_one_micro_batch_is_serial(s: Stages) -> None:
    """But for the launches of shared experts and weight gradients, which are the same."""
    one = schedules.experts_micro_batch(path(s), 1.0, conditions(4, 3.0))
    serial = schedules.pair_serial(path(s))
    assert one.total == close(float(serial.total))
    assert one.launches == serial.launches


@quick
@given(stages, counts, st.integers(2, 8), st.floats(1.0, 1.9), st.floats(1.0, 1.9))
def test_slow_down_never_helps_and_never_exceeds_serial(
    s: Stages, n: int, buffers: int, f: float, g: float
) -> None:
    p = path(s)
    for build in (partial(schedules.experts_micro_batch, p, float(n)), partial(schedules.experts_mc2, p)):
        free, slow = build(conditions(buffers)), build(conditions(buffers, 0.0, f, g))
        assert free.total * (1 - 1e-12) <= slow.total <= (slow.compute + slow.comm) * (1 + 1e-12)
        assert slow.busy >= slow.compute * (1 - 1e-12)
        assert slow.exposed >= -1e-9


# --- two batches half a step apart


@st.composite
def walks(draw: st.DrawFn) -> list[tuple[str, float]]:
    """Computations and communications in any order, from a computation to a communication."""
    kinds = st.lists(st.sampled_from(["compute", "comm"]), max_size=8)
    return [(kind, draw(st.floats(0.001, 100.0))) for kind in ["compute", *draw(kinds), "comm"]]


def merged(steps: list[tuple[str, float]]) -> list[list[float]]:
    """Neighbours on one engine together: [computation, communication after it]."""
    turns: list[list[float]] = [[0.0, 0.0]]
    for kind, time in steps:
        if kind == "compute" and turns[-1][1] > 0.0:
            turns.append([0.0, 0.0])
        turns[-1][kind == "comm"] += time
    return turns


def parts_of(steps: list[tuple[str, float]]) -> list[Plain]:
    def build(segments: Segments, n: Num) -> Segments:
        return tuple(x._replace(cost=Cost(x.cost.work / n, x.cost.launch / n)) for x in segments)

    return [
        Plain(kind, partial(build, ((comm if kind == "comm" else compute)(time, 0.0),)))
        for kind, time in steps
    ]


@pytest.mark.parametrize("share", [1.0, 2.0])
@quick
@given(walks())
def test_dual_batch_equals_two_batches_in_turn(share: float, steps: list[tuple[str, float]]) -> None:
    """While one computes step j, the other sends what came before, and the other way round."""
    timing = schedules.dual_batch(parts_of(steps), share, conditions(2))
    turns = merged(steps)
    total = sum(
        max(turn[0], turns[j - 1][1]) + max(turn[0], turn[1]) for j, turn in enumerate(turns)
    )  # both batches, whole; halves take half as long and there are as many
    computing, sending = (sum(time for kind, time in steps if kind == k) for k in ("compute", "comm"))
    assert timing.total == timing.busy + timing.exposed
    assert timing.total == close(total / 2.0)
    assert timing.compute == close(computing)
    assert timing.comm == close(sending)
    assert max(computing, sending) * (1 - 1e-12) <= timing.total <= (computing + sending) * (1 + 1e-12)


# --- that these tests can fail


def test_a_wrong_pipeline_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = overlap.longest_path

    def wrong(**numbers: Any) -> Any:
        found = real(**numbers)
        return found._replace(total=found.total * 1.01, exposed_comm=found.exposed_comm + 0.01 * found.total)

    monkeypatch.setattr("mc2perf.equations.overlap.longest_path", wrong)
    p = pair(COMM_FIRST, 8.0, 12.0)
    on = replace(conditions(2), run=run)
    with pytest.raises(AssertionError):
        check(schedules.pair_mc2(p, 4.0, on), play_two([2.0] * 4, [3.0] * 4, 2), 12.0)
