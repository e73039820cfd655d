"""Closed forms of pipelines against pieces played one by one, and against every order of an engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from drawn_stages import CLOSE, close, counts, factors, quick, rings, times
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mc2perf.equations import host, overlap, pipeline, play
from mc2perf.equations import three_stages as stages
from mc2perf.units import MIB


def ring(firsts: list[float], seconds: list[float], buffers: int, head: float = 0.0) -> float:
    """Two engines and a ring, one piece after the other; the second engine is busy until ``head``."""
    first_free, second_free = 0.0, head
    left: list[float] = []
    for i, (a, b) in enumerate(zip(firsts, seconds, strict=True)):
        first_free = max(first_free, left[i - buffers] if i >= buffers else 0.0) + a
        second_free = max(second_free, first_free) + b
        left.append(second_free)
    return left[-1]


def shared_engine(d: float, e: float, c: float, order: str, buffers: int) -> float:
    """Dispatch and combine on one engine in the order given as a word of D and C."""
    engine = cube = 0.0
    computed: list[float] = []
    combined: list[float] = []
    for step in order:
        if step == "D":
            waits = len(computed) - buffers
            engine = max(engine, combined[waits] if waits >= 0 else 0.0) + d
            cube = max(cube, engine) + e
            computed.append(cube)
        else:
            engine = max(engine, computed[len(combined)]) + c
            combined.append(engine)
    return combined[-1]


def ahead(pieces: int, buffers: int) -> str:
    """D1 .. DB C1 D(B+1) C2 ... as a word."""
    depth = min(pieces, buffers)
    return "D" * depth + "CD" * (pieces - depth) + "C" * depth


@cache
def orders(pieces: int, buffers: int) -> tuple[str, ...]:
    """Every order of the engine in which at most ``buffers`` pieces are on their way."""

    def grow(word: str) -> Iterator[str]:
        sent, done = word.count("D"), word.count("C")
        if done == pieces:
            yield word
        if sent < pieces and sent - done < buffers:
            yield from grow(word + "D")
        if done < sent:
            yield from grow(word + "C")

    return tuple(grow(""))


# --- two stages


@quick
@given(times, times, counts, rings)
def test_two_stages_equal_the_pieces_played(a: float, b: float, n: int, buffers: int) -> None:
    assert pipeline.two_stage_time(a, b, n, buffers) == close(ring([a] * n, [b] * n, buffers))


@quick
@given(times, times, counts, st.integers(2, 8), times, times)
def test_a_tail_equals_the_pieces_played(
    a: float, b: float, n: int, buffers: int, tail_a: float, tail_b: float
) -> None:
    tail_a = min(tail_a, max(a, b))
    played = ring([a] * n + [tail_a], [b] * n + [tail_b], buffers)
    assert pipeline.two_stage_tail_time(a, b, n, tail_a, tail_b) == close(played)


@quick
@given(times, times, counts, times, times)
def test_a_tail_of_any_length_with_a_buffer_for_every_piece(
    a: float, b: float, n: int, tail_a: float, tail_b: float
) -> None:
    played = ring([a] * n + [tail_a], [b] * n + [tail_b], n + 1)
    assert pipeline.two_stage_tail_time(a, b, n, tail_a, tail_b) == close(played)


def test_two_stage_bounds_are_named_by_the_critical_stage() -> None:
    bounds = pipeline.two_stage_bounds(1.0, 10.0, 3.0)
    assert (bounds.second_bound, bounds.first_bound) == (31.0, 13.0)
    assert pipeline.two_stage_time(1.0, 10.0, 3.0) == max(bounds)


@pytest.mark.parametrize(
    ("total", "compute", "comm", "ceiling"),
    [(560.9, 371.8, 189.1, 1.509), (698.9, 375.1, 323.8, 1.863), (866.4, 375.1, 491.3, 1.763)],
)
def test_tutel_table_2(total: float, compute: float, comm: float, ceiling: float) -> None:
    """Tutel, MLSys 2023, table 2: the limit of many pieces is the longer of the two."""
    serial = pipeline.serial_time(comm, compute, 1.0)
    assert serial == close(total)
    many = 1e7
    limit = float(pipeline.two_stage_time(comm / many, compute / many, many))
    assert serial / limit == pytest.approx(ceiling, abs=5e-4)


# --- a head, a tail job, per-expert pieces


def alone(comm: float, compute: float, n: int, head: float, buffers: int) -> float:
    """The longest path of engines that do not slow each other down."""
    return float(max(overlap.two_stage_paths(comm, compute, float(n), head, buffers, 1.0, 1.0)[:4]))


@quick
@given(times, times, counts, times)
def test_experts_after_their_exchange_as_cann_loops(c: float, g: float, n: int, h: float) -> None:
    """cann-mc2.md 1.6.3: t = h; for i: C_i = sum of c; t = max(t, C_i) + g."""
    t = h
    for i in range(1, n + 1):
        t = max(t, i * c) + g
    assert alone(c, g, n, h, n + 1) == close(t)


@quick
@given(times, times, counts, times)
def test_experts_before_their_exchange_as_cann_loops(c: float, g: float, n: int, h: float) -> None:
    """cann-mc2.md 1.6.3: e = max(e, G_i) + c; T = max(e, G_last + h)."""
    e = 0.0
    for i in range(1, n + 1):
        e = max(e, i * g) + c
    assert alone(c, g, n, h, n + 1) == close(max(e, n * g + h))


@quick
@example(2.0, 1.0, 10, 10.0, 2)
@given(times, times, counts, times, st.integers(2, 8))
def test_a_head_before_a_short_ring(c: float, g: float, n: int, h: float, buffers: int) -> None:
    assert alone(c, g, n, h, buffers) == close(ring([c] * n, [g] * n, buffers, h))


@quick
@given(times, times, counts, times, st.integers(2, 8))
def test_a_tail_job_after_a_short_ring(c: float, g: float, n: int, h: float, buffers: int) -> None:
    free, left = 0.0, [0.0] * n
    for i in range(n):
        free = max(free, left[i - buffers] if i >= buffers else 0.0) + g
        left[i] = max(left[i - 1] if i else 0.0, free) + c
    assert alone(c, g, n, h, buffers) == close(max(left[-1], free + h))


def test_four_experts_of_deepseek_v3_on_a3() -> None:
    """cann-mc2.md 5.6: EP 8, 4 experts a rank, pure rates."""
    c = 24.5 * MIB / 161.2e9
    g = 2 * 2048 * 7168 * 4096 / (4096 * 2 * 1843.2e6 * 24 * 0.85)
    assert c * 1e6 == pytest.approx(159.4, abs=0.05)
    assert g * 1e6 == pytest.approx(390.4, abs=0.05)
    assert pipeline.serial_time(c, g, 4.0) * 1e6 == pytest.approx(2199.1, abs=0.1)
    assert pipeline.two_stage_time(c, g, 4.0) * 1e6 == pytest.approx(1721.0, abs=0.1)
    assert alone(c, g, 4, c, 4) == close(c + 4.0 * g)


# --- three stages


@quick
@given(times, times, times, counts, rings)
def test_three_stages_equal_the_pieces_played(d: float, e: float, c: float, n: int, buffers: int) -> None:
    played = close(shared_engine(d, e, c, ahead(n, buffers), buffers))
    assert pipeline.three_stage_time(d, e, c, n, buffers) == played
    assert play.three_stage_recurrence(d, e, c, n, buffers) == played


@settings(max_examples=60, deadline=None)
@given(times, times, times, st.integers(1, 5), st.integers(1, 5))
def test_no_order_of_the_engine_is_faster(d: float, e: float, c: float, n: int, buffers: int) -> None:
    best = min(shared_engine(d, e, c, order, buffers) for order in orders(n, buffers))
    assert pipeline.three_stage_time(d, e, c, n, buffers) == close(best)


def test_no_order_of_the_engine_is_faster_on_a_grid() -> None:
    """Whole times hit ties and corners that random ones miss."""
    for d, e, c in itertools.product(
        (0.0, 1.0, 2.0, 5.0), (0.0, 1.0, 2.0, 3.0, 4.0, 9.0), (0.0, 1.0, 2.0, 5.0)
    ):
        for n, buffers in ((3, 2), (4, 2), (4, 3), (5, 2), (5, 4)):
            best = min(shared_engine(d, e, c, order, buffers) for order in orders(n, buffers))
            assert pipeline.three_stage_time(d, e, c, n, buffers) == best


@pytest.mark.parametrize(
    ("n", "buffers", "comm"),
    [
        (4, 2, 16.0 + 7.0 + 9.0),
        (4, 3, 16.0 + 4.0 + 8.0),
        (4, 4, 16.0 + 7.0),
        (4, 9, 23.0),
    ],
)
def test_waits_of_three_stages(n: int, buffers: int, comm: float) -> None:
    """By hand for d = 3, e = 10, c = 1: communication waits as little as it can."""
    paths = stages.three_stage_paths(3.0, 10.0, 1.0, n, min(n, buffers), 0.0, 0.0, 0.0, 1.0)
    waits = (paths.at_start, paths.at_end)
    assert paths.sending + (sum(waits) if buffers < n else max(waits)) == comm
    assert paths.computing == 44.0


def test_rows_with_pieces_and_buffers_of_their_own() -> None:
    n, buffers = (x.ravel().astype(float) for x in np.meshgrid(np.arange(1, 10), np.arange(1, 12)))
    for time in (pipeline.three_stage_time, play.three_stage_recurrence):
        rows = np.asarray(time(1.0, 1.7, 0.4, n, buffers))
        for row, pieces, depth in zip(rows, n, buffers, strict=True):
            assert row == close(shared_engine(1.0, 1.7, 0.4, ahead(int(pieces), int(depth)), int(depth)))


@quick
@given(times, times, times, counts)
def test_one_piece_and_one_buffer_are_serial_exactly(d: float, e: float, c: float, n: int) -> None:
    assert pipeline.three_stage_time(d, e, c, n, 1.0) == n * (d + e + c)
    assert all(pipeline.three_stage_time(d, e, c, 1.0, float(b)) == d + e + c for b in range(1, 5))
    assert pipeline.two_stage_time(d, e, n, 1.0) == n * (d + e)
    assert pipeline.two_stage_time(d, e, 1.0, 4.0) == d + e
    assert pipeline.three_stage_separate_time(d, e, c, 1.0) == d + e + c


@quick
@given(times, times, times, counts)
def test_separate_engines_equal_the_pieces_played(d: float, e: float, c: float, n: int) -> None:
    x = y = z = 0.0
    for _ in range(n):
        x += d
        y = max(x, y) + e
        z = max(y, z) + c
    assert pipeline.three_stage_separate_time(d, e, c, n) == close(z)


# --- laws


Time = Callable[..., Any]
SHARED: list[Time] = [pipeline.three_stage_time, play.three_stage_recurrence]


@pytest.mark.parametrize("time", SHARED)
@quick
@given(d=times, e=times, c=times, n=counts, buffers=rings, more=times)
def test_between_the_longer_engine_and_serial_and_monotone(
    time: Time, d: float, e: float, c: float, n: int, buffers: int, more: float
) -> None:
    slack = 1.0 + CLOSE
    total = float(time(d, e, c, n, buffers))
    assert max(n * e, n * (d + c)) <= total * slack
    assert total <= n * (d + e + c) * slack
    assert time(d, e, c, n, buffers + 1) <= total * slack
    for longer in ((d + more, e, c), (d, e + more, c), (d, e, c + more)):
        assert total <= time(*longer, n, buffers) * slack


@quick
@given(times, times, counts, rings, times)
def test_two_stages_keep_the_same_laws(a: float, b: float, n: int, buffers: int, more: float) -> None:
    slack = 1.0 + CLOSE
    total = float(pipeline.two_stage_time(a, b, n, buffers))
    assert n * max(a, b) <= total * slack <= n * (a + b) * slack * slack
    assert pipeline.two_stage_time(a, b, n, buffers + 1) <= total * slack
    assert total <= min(
        pipeline.two_stage_time(a + more, b, n, buffers), pipeline.two_stage_time(a, b + more, n, buffers)
    )


@quick
@given(times, times, times, counts, rings, factors, factors, st.integers(-30, 30))
def test_a_faster_clock_scales_every_time_to_the_bit(
    d: float, e: float, c: float, n: int, buffers: int, f: float, g: float, power: int
) -> None:
    s = 2.0**power
    for time in SHARED:
        assert time(s * d, s * e, s * c, n, buffers) == s * time(d, e, c, n, buffers)
    assert pipeline.two_stage_time(s * d, s * e, n, buffers) == s * pipeline.two_stage_time(d, e, n, buffers)
    tail = pipeline.two_stage_tail_time
    assert tail(s * d, s * e, n, s * c, s * c) == s * tail(d, e, n, c, c)
    separate = pipeline.three_stage_separate_time
    assert separate(s * d, s * e, s * c, n) == s * separate(d, e, c, n)
    paths = overlap.two_stage_paths(d, e, float(n), c, buffers, f, g)
    scaled = overlap.two_stage_paths(s * d, s * e, float(n), s * c, buffers, f, g)
    assert scaled == tuple(s * path for path in paths)
    work = n * (d + e) + c
    slow = overlap.longest_path(*paths, work=work, comm=n * d)
    assert overlap.longest_path(*scaled, work=s * work, comm=s * n * d) == tuple(s * x for x in slow)


# --- the recurrence itself


@quick
@given(st.lists(st.tuples(times, times), min_size=1, max_size=9), rings)
def test_play_equals_two_engines(pieces: list[tuple[float, float]], buffers: int) -> None:
    played = play.play(np.array(pieces), ["comm", "cube"], play.ring_order(len(pieces), 2, buffers), buffers)
    firsts, seconds = ([piece[k] for piece in pieces] for k in range(2))
    assert played.ends[-1, -1] == close(ring(firsts, seconds, buffers))


@quick
@given(times, times, times, counts, rings)
def test_play_equals_a_shared_engine(d: float, e: float, c: float, n: int, buffers: int) -> None:
    order = play.ring_order(n, 3, buffers)
    played = play.play(np.tile([d, e, c], (n, 1)), ["comm", "cube", "comm"], order, buffers)
    assert played.ends.max() == close(float(pipeline.three_stage_time(d, e, c, n, buffers)))


def test_play_keeps_engines_and_buffers_to_themselves() -> None:
    rng = np.random.default_rng(1)
    durations = rng.uniform(0.1, 2.0, (5, 7, 3))
    starts, ends = play.play(durations, [0, 1, 0], play.ring_order(7, 3, 3), 3)
    np.testing.assert_allclose(ends - starts, durations, rtol=1e-12)
    comm_starts, comm_ends = (x[..., [0, 2]].reshape(5, -1) for x in (starts, ends))
    by_start = np.argsort(comm_starts, axis=-1)
    starts_sorted = np.take_along_axis(comm_starts, by_start, -1)
    assert np.all(starts_sorted[:, 1:] >= np.take_along_axis(comm_ends, by_start, -1)[:, :-1])
    assert np.all(starts[:, 1:, 1] >= ends[:, :-1, 1])
    assert np.all(starts[:, 3:, 0] >= ends[:, :-3, 2])
    assert np.all(starts[..., 1:] >= ends[..., :-1])


def test_play_of_many_equals_play_of_each_and_missing_pieces_are_free() -> None:
    durations = np.random.default_rng(2).uniform(0.1, 2.0, (4, 6, 2))
    durations[2, 4:] = 0.0
    order = play.ring_order(6, 2, 2)
    together = play.play(durations, ["comm", "cube"], order, 2).ends
    for row in range(4):
        assert np.array_equal(together[row], play.play(durations[row], ["comm", "cube"], order, 2).ends)
    short = play.play(durations[2, :4], ["comm", "cube"], play.ring_order(4, 2, 2), 2).ends
    assert together[2].max() == short.max()


def test_a_step_before_what_it_waits_for_is_not_a_number() -> None:
    wrong = [(0, 1), (0, 0)]
    assert math.isnan(play.play(np.ones((1, 2)), [0, 1], wrong, 1).ends[0, 1])


# --- host and lockstep


def test_the_host_may_be_slower() -> None:
    times_ = host.launch_queue_time(np.array([1.0, 3.0]), 4.0, 0.5, 0.0, 1.0)
    assert np.array_equal(times_, [2.0, 3.0])


@quick
@given(st.lists(st.tuples(times, times), min_size=1, max_size=6))
def test_lockstep_equals_two_batches_in_turn(steps: list[tuple[float, float]]) -> None:
    total = 0.0
    for j, (compute, comm) in enumerate(steps):
        total += max(compute, steps[j - 1][1]) + max(compute, comm)
    compute, comm = np.array(steps).T
    cycle = overlap.lockstep(compute, comm, 1.0, 1.0)
    assert cycle.total == close(total)
    assert cycle.busy_compute == close(2.0 * sum(compute))
