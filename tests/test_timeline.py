"""Timelines against closed forms, a recurrence, longest paths, and what defines a fluid schedule."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mc2perf.equations import overlap, pipeline
from mc2perf.equations import three_stages as stages
from mc2perf.equations.play import ring_order
from mc2perf.problems import InputError
from mc2perf.timeline import Span, Timeline
from mc2perf.two_engines import Order, three_stages, two_stages

times = st.one_of(st.integers(0, 12).map(float), st.floats(0.0, 1e3).map(lambda t: round(t, 3)))
positive = st.floats(0.1, 10.0)
counts = st.integers(1, 9)
rings = st.integers(1, 7)
factors = st.floats(1.0, 4.0)
orders = st.sampled_from(get_args(Order))
pairs = st.lists(st.tuples(times, times), min_size=1, max_size=9)
triples = st.lists(st.tuples(times, times, times), min_size=1, max_size=9)
quick = settings(max_examples=100, deadline=None)
ALONE: dict[str, Any] = {"comm_slowdown": 1.0, "compute_slowdown": 1.0}


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


def paying(f: float, share: float) -> float:
    """A slow-down of computation with which overlapping pays: 1/f + 1/g >= 1."""
    most = f / (f - 1.0) if f > 4.0 / 3.0 else 4.0
    return 1.0 + share * (most - 1.0)


def columns(pieces: list[Any]) -> tuple[list[float], ...]:
    return tuple(list(column) for column in zip(*pieces, strict=True))


# --- equal pieces: the closed forms


@quick
@given(orders, times, times, counts, rings, times)
def test_equal_pieces_are_the_closed_form(
    order: Order, a: float, b: float, n: int, buffers: int, head: float
) -> None:
    played = two_stages(order, [a] * n, [b] * n, head=head, buffers=buffers, **ALONE)
    serial = pipeline.serial_time(a, b, n) + head
    longest = max(overlap.two_stage_paths(a, b, float(n), head, buffers, 1.0, 1.0)[:4])
    assert played.total == close(serial if buffers == 1 else float(longest))


@quick
@given(times, times, times, counts, rings)
def test_equal_pieces_in_three_stages_are_the_closed_form(
    d: float, e: float, c: float, n: int, buffers: int
) -> None:
    played = three_stages([d] * n, [e] * n, [c] * n, buffers=buffers, **ALONE)
    assert played.total == close(float(pipeline.three_stage_time(d, e, c, n, buffers)))


@quick
@given(
    orders, positive, positive, counts, st.one_of(st.just(0.0), positive), st.integers(2, 8), factors,
    st.floats(0.0, 1.0),
)  # fmt: skip
def test_the_paths_of_two_stages_are_exact_under_slow_down(
    order: Order, a: float, b: float, n: int, head: float, buffers: int, f: float, share: float
) -> None:
    """Any head, any ring, any slow-down that still pays."""
    g = paying(f, share)
    played = two_stages(
        order, [a] * n, [b] * n, head=head, buffers=buffers, comm_slowdown=f, compute_slowdown=g
    )
    paths = overlap.two_stage_paths(a, b, float(n), head, buffers, f, g)
    closed = overlap.longest_path(*paths, work=n * (a + b) + head, comm=n * a)
    assert played.total == close(float(closed.total))
    if played.total < (n * (a + b) + head) * (1.0 - 1e-6):
        assert played.busy_compute == close(float(closed.busy_compute))
        assert played.exposed_comm == close(float(closed.exposed_comm))


def closed(
    d: float, e: float, c: float, n: int, buffers: int, beside: float, f: float, g: float
) -> overlap.Overlap:
    """Three stages in closed form."""
    depth = min(buffers, n)
    paths = stages.three_stage_paths(
        d, e, c, n, depth, beside, stages.covering_cost(f, g), stages.covering_cost(g, f), g / f
    )
    sent = n * (d + c)
    return stages.three_stage_overlap(*paths, pieces=n, depth=depth, work=sent + n * e + beside, comm=sent)


@quick
@example(3.0, 10.0, 1.0, 3, 2, 1.0, 1.0, 0.0)  # the first dispatch outlasts the work beside
@given(times, times, times, counts, rings, times, factors, st.floats(0.0, 1.0))
def test_three_stages_beside_other_work_are_exact_under_slow_down(
    d: float, e: float, c: float, n: int, buffers: int, beside: float, f: float, share: float
) -> None:
    g = paying(f, share)
    played = three_stages(
        [d] * n, [e] * n, [c] * n, buffers=buffers if n > 1 else 1, comm_slowdown=f, compute_slowdown=g,
        beside=beside,
    )  # fmt: skip
    formula = closed(d, e, c, n, buffers, beside, f, g)
    assert played.total == close(float(formula.total))
    if played.total < (n * (d + e + c) + beside) * (1.0 - 1e-6):
        assert played.busy_compute == close(float(formula.busy_compute))
        assert played.exposed_comm == close(float(formula.exposed_comm))


def test_slow_transfers_fill_the_waits_of_three_stages() -> None:
    """By hand: D1 0-2, D2 and E1 2-6, C1 and E2 6-10, C2 10-12; unslowed, the engine waits 2 of 10."""
    played = three_stages([2.0] * 2, [4.0] * 2, [2.0] * 2, buffers=2, comm_slowdown=2.0, compute_slowdown=1.0)
    assert [(s.name, s.start, s.end) for s in played.spans] == [
        ("dispatch 1", 0.0, 2.0),
        ("dispatch 2", 2.0, 6.0),
        ("experts 1", 2.0, 6.0),
        ("combine 1", 6.0, 10.0),
        ("experts 2", 6.0, 10.0),
        ("combine 2", 10.0, 12.0),
    ]
    assert closed(2.0, 4.0, 2.0, 2, 2, 0.0, 2.0, 1.0) == (12.0, 8.0, 4.0)


# --- unequal pieces without slow-down: the max-plus recurrence


@quick
@given(orders, pairs, rings, times)
def test_unequal_pieces_are_the_recurrence(
    order: Order, pieces: list[tuple[float, float]], buffers: int, head: float
) -> None:
    comm, compute = columns(pieces)
    firsts, seconds = (comm, compute) if order == "comm_first" else (compute, comm)
    buffers = buffers + 1
    first = 0.0
    second = head if order == "comm_first" else 0.0
    left: list[float] = []
    for i, (a, b) in enumerate(zip(firsts, seconds, strict=True)):
        first = max(first, left[i - buffers] if i >= buffers else 0.0) + a
        second = max(second, first) + b
        left.append(second)
    expected = second if order == "comm_first" else max(second, first + head)
    played = two_stages(order, comm, compute, head=head, buffers=buffers, **ALONE)
    assert played.total == close(expected)
    serial = two_stages(order, comm, compute, head=head, buffers=1, **ALONE)
    assert serial.total == close(sum(comm) + sum(compute) + head)
    assert serial.overlapped == 0.0


@quick
@given(orders, pairs, st.integers(0, 3))
def test_deep_rings_take_the_longest_path_of_a_flow_shop(
    order: Order, pieces: list[tuple[float, float]], more: int
) -> None:
    """Johnson 1954: every path through the first stage, one piece, and the second stage."""
    comm, compute = columns(pieces)
    a, b = (comm, compute) if order == "comm_first" else (compute, comm)
    path = max(sum(a[: j + 1]) + sum(b[j:]) for j in range(len(a)))
    assert two_stages(order, comm, compute, buffers=len(a) + more, **ALONE).total == close(path)


@quick
@given(triples, rings, times)
def test_unequal_pieces_in_three_stages_are_the_recurrence(
    pieces: list[tuple[float, float, float]], buffers: int, beside: float
) -> None:
    dispatch, experts, combine = columns(pieces)
    n = len(pieces)
    depth = min(n, buffers)
    word = "D" * depth + "CD" * (n - depth) + "C" * depth
    cube, engine = beside, beside if buffers == 1 else 0.0
    computed: list[float] = []
    sent = done = 0
    for step in word:
        if step == "D":
            engine += dispatch[sent]
            cube = max(cube, engine) + experts[sent]
            computed.append(cube)
            sent += 1
        else:
            engine = max(engine, computed[done]) + combine[done]
            done += 1
    played = three_stages(dispatch, experts, combine, buffers=buffers, beside=beside, **ALONE)
    assert played.total == close(engine)


# --- laws of every timeline


def shared(span: Span, spans: tuple[Span, ...]) -> float:
    """How long the other engine runs within a span."""
    others = (s for s in spans if s.engine != span.engine)
    return sum(max(0.0, min(span.end, s.end) - max(span.start, s.start)) for s in others)


def keeps_its_books(played: Timeline, alone: dict[tuple[str, str], float], f: float, g: float) -> None:
    """Every job runs once, alone on its engine; a span is its stand-alone time, stretched where shared."""
    spans = played.spans
    assert sorted((s.engine, s.name) for s in spans) == sorted(alone)
    for engine, slowdown in (("comm", f), ("compute", g)):
        own = [s for s in spans if s.engine == engine]
        assert all(a.end <= b.start for a, b in pairwise(own))
        for span in own:
            both = shared(span, spans)
            assert span.end - span.start - both + both / slowdown == close(alone[engine, span.name])
    comm, compute = (sum(t for (e, _), t in alone.items() if e == k) for k in ("comm", "compute"))
    assert played.total == played.busy_compute + played.exposed_comm + played.free
    assert played.total == close(max(s.end for s in spans))
    assert played.free == 0.0
    assert played.busy_compute - played.overlapped + played.overlapped / g == close(compute)
    assert played.exposed_comm + played.overlapped / f == close(comm)
    assert played.total >= max(comm, compute) * (1.0 - 1e-12)


@quick
@given(orders, pairs, rings, times, factors, factors)
def test_two_stages_start_as_soon_as_they_may_and_conserve_work(
    order: Order, pieces: list[tuple[float, float]], buffers: int, head: float, f: float, g: float
) -> None:
    """Starts and conserved work together leave only one schedule."""
    comm, compute = columns(pieces)
    n, buffers = len(pieces), buffers + 1
    played = two_stages(order, comm, compute, head=head, buffers=buffers, comm_slowdown=f, compute_slowdown=g)
    alone = {("comm", f"piece {i + 1}"): t for i, t in enumerate(comm)}
    alone |= {("compute", f"piece {i + 1}"): t for i, t in enumerate(compute)}
    alone |= {("compute", "own rows"): head} if head else {}
    keeps_its_books(played, alone, f, g)
    at = {(s.engine, s.piece): s for s in played.spans}
    first, second = ("comm", "compute") if order == "comm_first" else ("compute", "comm")

    def end(engine: str, piece: int) -> float:
        known = (engine, piece) in at and (piece or order == "comm_first")
        return at[engine, piece].end if known else 0.0  # type: ignore[index]

    for i in range(1, n + 1):
        held = end(second, i - buffers) if i > buffers else 0.0
        assert at[first, i].start == max(end(first, i - 1) if i > 1 else 0.0, held)  # type: ignore[index]
        assert at[second, i].start == max(end(second, i - 1), end(first, i))  # type: ignore[index]
    if head:
        assert at["compute", 0].start == (0.0 if order == "comm_first" else end("compute", n))


@quick
@given(triples, rings, times, factors, factors)
def test_three_stages_start_as_soon_as_they_may_and_conserve_work(
    pieces: list[tuple[float, float, float]], buffers: int, beside: float, f: float, g: float
) -> None:
    stages = columns(pieces)
    n = len(pieces)
    played = three_stages(*stages, buffers=buffers, beside=beside, comm_slowdown=f, compute_slowdown=g)
    names = (("comm", "dispatch"), ("compute", "experts"), ("comm", "combine"))
    alone = {
        (engine, f"{name} {i + 1}"): t
        for (engine, name), stage in zip(names, stages, strict=True)
        for i, t in enumerate(stage)
    }
    alone |= {("compute", "shared experts"): beside} if beside else {}
    keeps_its_books(played, alone, f, g)
    at = {s.name: s for s in played.spans}
    ends = {s.name: s.end for s in played.spans}
    engine = ends.get("shared experts", 0.0) if buffers == 1 else 0.0
    for piece, stage in ring_order(n, 3, buffers):
        if stage == 1:
            continue
        name = f"{'combine' if stage else 'dispatch'} {piece + 1}"
        assert at[name].start == max(engine, ends[f"experts {piece + 1}"] if stage else 0.0)
        engine = ends[name]
    cube = ends.get("shared experts", 0.0)
    for i in range(1, n + 1):
        assert at[f"experts {i}"].start == max(cube, ends[f"dispatch {i}"])
        cube = ends[f"experts {i}"]
        if i > buffers:
            assert at[f"dispatch {i}"].start >= ends[f"combine {i - buffers}"]


@quick
@given(triples, rings, times, factors)
def test_equal_slow_downs_stretch_the_shared_time_only(
    pieces: list[tuple[float, float, float]], buffers: int, head: float, f: float
) -> None:
    """Both at 1/f keep their order of events: T = T0 + (f - 1)(W - T0), for any pieces and stages."""
    dispatch, experts, combine = columns(pieces)
    slow: dict[str, Any] = {"comm_slowdown": f, "compute_slowdown": f}
    plays: list[Callable[..., Timeline]] = [
        lambda **how: two_stages("comm_first", dispatch, experts, head=head, buffers=buffers, **how),
        lambda **how: two_stages("compute_first", dispatch, experts, head=head, buffers=buffers, **how),
        lambda **how: three_stages(dispatch, experts, combine, beside=head, buffers=buffers, **how),
    ]
    for play in plays:
        fast, slowed = play(**ALONE), play(**slow)
        assert slowed.total == close(fast.total + (f - 1.0) * fast.overlapped)


@quick
@given(triples, rings, times, factors, factors, st.integers(-30, 30))
def test_a_faster_clock_scales_every_span_to_the_bit(
    pieces: list[tuple[float, float, float]], buffers: int, head: float, f: float, g: float, power: int
) -> None:
    s = 2.0**power
    stages = columns(pieces)
    scaled = tuple([s * t for t in stage] for stage in stages)
    how: dict[str, Any] = {"buffers": buffers, "comm_slowdown": f, "compute_slowdown": g}
    for slow, fast in (
        (
            two_stages("comm_first", scaled[0], scaled[1], head=s * head, **how),
            two_stages("comm_first", stages[0], stages[1], head=head, **how),
        ),
        (three_stages(*scaled, beside=s * head, **how), three_stages(*stages, beside=head, **how)),
    ):
        assert slow.spans == tuple(
            span._replace(start=s * span.start, end=s * span.end) for span in fast.spans
        )
        assert slow.total == s * fast.total


# --- by hand


def test_unequal_slow_downs_by_hand() -> None:
    """0-2 alone; then piece 2 (3) at 1/2 and piece 1 (2) at 1/1.5 until 5; 1.5 left alone; then piece 2."""
    played = two_stages(
        "comm_first", [2.0, 3.0], [2.0, 1.0], buffers=2, comm_slowdown=2.0, compute_slowdown=1.5
    )
    assert [tuple(s[1:]) for s in played.spans] == [
        ("piece 1", 1, 0.0, 2.0),
        ("piece 2", 2, 2.0, 6.5),
        ("piece 1", 1, 2.0, 5.0),
        ("piece 2", 2, 6.5, 7.5),
    ]
    assert (played.total, played.busy_compute, played.exposed_comm, played.overlapped) == (7.5, 4.0, 3.5, 3.0)


def test_time_in_which_neither_runs_is_free() -> None:
    lone = Timeline((Span("compute", "a", 1, 1.0, 2.0), Span("comm", "b", 1, 1.5, 4.0)))
    assert (lone.free, lone.busy_compute, lone.exposed_comm, lone.overlapped) == (1.0, 1.0, 2.0, 0.5)
    assert lone.total == 4.0
    assert Timeline(()).total == 0.0


def test_names_of_the_work_beside() -> None:
    head = two_stages("compute_first", [1.0], [1.0], head=1.0, buffers=2, head_name="shared", **ALONE)
    assert head.spans[-1].name == "shared"
    beside = three_stages([1.0], [1.0], [1.0], beside=1.0, buffers=2, beside_name="gate", **ALONE)
    assert {s.name for s in beside.spans if not s.piece} == {"gate"}


def test_every_problem_at_once() -> None:
    with pytest.raises(InputError) as caught:
        two_stages(
            "sideways",  # type: ignore[arg-type]
            [1.0, -1.0],
            [float("nan")],
            head=float("inf"),
            buffers=0,
            comm_slowdown=0.5,
            compute_slowdown=float("inf"),
        )
    where = [problem.split(":")[0] for problem in caught.value.problems]
    expected = ["order", "comm, compute", "buffers", "comm_slowdown", "compute_slowdown", "comm[1]"]
    assert where == [*expected, "compute", "head"]
    with pytest.raises(InputError, match="dispatch, experts, combine"):
        three_stages([], [], [], buffers=1, **ALONE)
