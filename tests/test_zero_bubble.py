"""Pipelines that put off weight gradients: played by a clock, against closed forms and against tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.equations.stage_order import Work, dualpipe, most_held, zb_h1
from mc2perf.equations.stage_play import makespan, turns
from mc2perf.equations.steps import pipeline_parallel_time
from mc2perf.equations.zero_bubble import dualpipe_time, zb_h1_time

quick = settings(max_examples=60, deadline=None)
times = st.integers(1, 6)

Times = dict[Work, int]


def of_kinds(f: int, b: int, w: int, both: int | None = None) -> Times:
    """Time of every kind of step of a device with two equal chunks."""
    both = f + b + w if both is None else both
    one = {c: {Work(c): f, Work(None, c): b, Work(None, None, c): w, Work(None, c, c): b + w} for c in (0, 1)}
    return {**one[0], **one[1], Work(0, 1, 1): both, Work(1, 0, 0): both}


def by_clock(orders: list[list[Work]], routes: list[list[tuple[int, int]]], times: list[Times]) -> int:
    """Makespan by a clock that ticks: each tick a free device looks whether its next step may begin.

    Micro-batches of every route come in their own order; a step that begins takes whole ticks.
    """
    place = {key: (way, at) for way, route in enumerate(routes) for at, key in enumerate(route)}
    done: set[tuple[str, int, int, int]] = set()  # direction, route, place, micro-batch
    begun: Counter[tuple[str, int, int]] = Counter()
    running: dict[int, tuple[int, list[tuple[str, int, int, int]]]] = {}
    queues = [order[::-1] for order in orders]
    now = 0
    while any(queues) or running:
        for device in [d for d, (end, _) in running.items() if end == now]:
            done.update(running.pop(device)[1])
        for device, queue in enumerate(queues):
            if device in running or not queue:
                continue
            work, results, ready = queue[-1], [], True
            for kind, chunk in (("F", work.forward), ("B", work.backward)):
                if chunk is None:
                    continue
                way, at = place[device, chunk]
                mb, end = begun[kind, way, at], len(routes[way]) - 1
                before = {"F": ("F", at - 1), "B": ("B", at + 1) if at < end else ("F", end)}[kind]
                ready &= before[1] < 0 or (before[0], way, before[1], mb) in done
                results.append((kind, way, at, mb))
            if ready:
                begun.update((kind, way, at) for kind, way, at, _ in results)
                running[device] = (now + times[device][queue.pop()], results)
        assert running or not any(queues), "the schedule is stuck"
        now = min((end for end, _ in running.values()), default=now)
    return now


def line(devices: int) -> list[tuple[int, int]]:
    return [(device, 0) for device in range(devices)]


def fold(devices: int) -> list[tuple[int, int]]:
    return line(devices) + [(device, 1) for device in reversed(range(devices))]


def one_way(p: int, n: int, each: list[Times]) -> int:
    return by_clock([zb_h1(i, p, n) for i in range(p)], [line(p)], each)


def from_both_ends(p: int, n: int, each: list[Times]) -> int:
    """DualPipe as it stands: p devices, half of the micro-batches enter at each end.

    Chunk 0 of the first half of devices serves the batches that enter at the first device; the other half
    sees them with its chunk 1.
    """
    orders = [dualpipe(min(i, p - 1 - i), p // 2, n // 2) for i in range(p)]
    there = [(i, 0 if i < p // 2 else 1) for i in range(p)]
    back = [(i, 0 if i >= p // 2 else 1) for i in reversed(range(p))]
    return by_clock(orders, [there, back], each)


# --- the player


@quick
@given(st.integers(1, 6), st.integers(1, 12), st.data())
def test_zb_h1_of_any_stages_is_what_a_clock_shows(p: int, n: int, data: st.DataObject) -> None:
    each = [of_kinds(*data.draw(st.tuples(times, times, times))) for _ in range(p)]
    played = makespan(turns([zb_h1(i, p, n) for i in range(p)], line(p)), each)
    assert played == one_way(p, n, each)


@quick
@given(st.integers(1, 4), st.integers(0, 5), st.data())
def test_dualpipe_of_any_stages_folds(devices: int, more: int, data: st.DataObject) -> None:
    """Devices i and p - 1 - i hold the same stages and do the same: half of them tell it all."""
    one = st.fixed_dictionaries(dict.fromkeys(of_kinds(1, 1, 1), times))
    half = [data.draw(one) for _ in range(devices)]
    n = 2 * devices + more
    played = makespan(turns([dualpipe(i, devices, n) for i in range(devices)], fold(devices)), half)
    assert played == from_both_ends(2 * devices, 2 * n, half + half[::-1])


def test_devices_that_wait_for_each_other_are_told() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        turns([[Work(None, 0, 0), Work(0)]], line(1))


def test_rows_are_played_at_once() -> None:
    rng = np.random.default_rng(7)
    columns = [{work: rng.uniform(1.0, 2.0, (5, 1)) for work in of_kinds(1, 1, 1)} for _ in range(3)]
    plan = turns([dualpipe(i, 3, 8) for i in range(3)], fold(3))
    together = makespan(plan, columns)
    for row in range(5):
        alone = makespan(plan, [{w: t[row, 0] for w, t in device.items()} for device in columns])
        assert np.asarray(together)[row, 0] == alone


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
def test_every_device_does_everything_once(devices: int) -> None:
    n = 2 * devices + 3
    for i in range(devices):
        for order, chunks in ((zb_h1(i, devices, n), (0,)), (dualpipe(i, devices, n), (0, 1))):
            for chunk in chunks:
                assert [sum(work[kind] == chunk for work in order) for kind in range(3)] == [n] * 3


def as_published(rank: int, ranks: int, n: int) -> list[Work]:
    """``DualPipeV.step`` of deepseek-ai/DualPipe, line by line; weight gradients wait in a queue."""
    steps: list[Work] = []
    queue: list[int] = []

    def backward(chunk: int, put_off: bool) -> None:
        queue.extend([chunk] * put_off)
        steps.append(Work(None, chunk, None if put_off else chunk))

    steps += [Work(0)] * ((ranks - rank - 1) * 2)
    steps += [Work(0), Work(1)] * (rank + 1)
    for _ in range(ranks - rank - 1):
        backward(1, True)
        steps += [Work(None, None, queue.pop(0)), Work(1)]
    for i in range(n - 2 * ranks + rank + 1):
        apart = i == 0 and rank == ranks - 1
        steps += [Work(0), Work(None, 1, 1)] if apart else [Work(0, 1, 1)]
        steps.append(Work(1, 0, 0))
    for _ in range(ranks - rank - 1):
        backward(1, False)
        steps.append(Work(1, 0, 0))
    put_off = False
    for i in range(rank + 1):
        put_off |= i == (rank + 1) // 2 and rank % 2 == 1
        backward(1, put_off)
        put_off |= i == (rank + 1) // 2 and rank % 2 == 0
        backward(0, put_off)
    for _ in range(ranks - rank - 1):
        steps.append(Work(None, None, queue.pop(0)))
        backward(0, True)
    steps += [Work(None, None, queue.pop(0)) for _ in range(rank + 1)]
    assert not queue
    return steps


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_the_order_is_the_published_one(devices: int) -> None:
    for i in range(devices):
        for n in (2 * devices, 2 * devices + 5):
            assert dualpipe(i, devices, n) == as_published(i, devices, n)


# --- closed forms


@quick
@given(st.integers(1, 8), st.integers(1, 20), times, times, st.integers(0, 6))
def test_zb_h1_of_equal_stages(p: int, n: int, f: int, b: int, w: int) -> None:
    played, form = one_way(p, n, [of_kinds(f, b, w)] * p), zb_h1_time(f, b, w, p, n)
    assert form <= played
    assert form == played or w > b


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize(("f", "b", "w"), [(3, 3, 3), (3, 4, 2), (4, 5, 4), (2, 2, 0)])
def test_the_bubble_of_the_zero_bubble_paper(p: int, f: int, b: int, w: int) -> None:
    """Table 2 of Qi et al., where B is the input gradient; DeepSeek-V3's table 2, where it is all of it."""
    bubble = one_way(p, 3 * p, [of_kinds(f, b, w)] * p) - 3 * p * (f + b + w)
    whole = b + w
    assert bubble == (p - 1) * (f + b - w) == (p - 1) * (f + whole - 2 * w)


@quick
@given(st.integers(1, 4), st.integers(0, 6), times, times, st.integers(0, 6), st.integers(0, 6))
def test_dualpipe_of_equal_stages(half: int, more: int, f: int, b: int, w: int, hidden: int) -> None:
    p, n = 2 * half, 2 * (2 * half + more)
    both = max(f + b + w - hidden, f, b + w)
    played = from_both_ends(p, n, [of_kinds(f, b, w, both)] * p)
    form = dualpipe_time(f, b, w, both, p, n)
    assert form <= played
    assert form == played or not f >= b >= w


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize(("f", "w", "both"), [(3, 3, 9), (3, 3, 7), (4, 2, 8), (5, 0, 6)])
def test_the_bubble_of_the_deepseek_report(p: int, f: int, w: int, both: int) -> None:
    """Table 2: (PP/2 - 1)(F&B + B - 3 W) of the device that waits most, where input gradients take F."""
    n, orders = 3 * p, [dualpipe(i, p // 2, 3 * p // 2) for i in range(p // 2)]
    kinds = of_kinds(f, f, w, both)
    waits = [from_both_ends(p, n, [kinds] * p) - sum(kinds[work] for work in order) for order in orders]
    assert max(waits) == (p // 2 - 1) * (both + (f + w) - 3 * w)


def test_input_gradients_longer_than_forwards_cost_more_than_the_table_says() -> None:
    """What the table leaves out; a step is therefore played."""
    f, b, w, both, p, n = 2, 6, 1, 9, 4, 8
    assert from_both_ends(p, n, [of_kinds(f, b, w, both)] * p) > dualpipe_time(f, b, w, both, p, n)


# --- limits and memory


@quick
@given(st.integers(1, 6), st.integers(1, 12), times, times)
def test_without_weight_gradients_zb_h1_is_1f1b(p: int, n: int, f: int, b: int) -> None:
    plain = pipeline_parallel_time(np.full(p, float(f + b)), float(n), 1.0)
    assert one_way(p, n, [of_kinds(f, b, 0)] * p) == plain


@pytest.mark.parametrize("order", [zb_h1, dualpipe])
def test_one_device_never_waits(order: Any) -> None:
    kinds, n = of_kinds(2, 3, 1, 5), 6
    steps = order(0, 1, n)
    route = fold(1) if order is dualpipe else line(1)
    assert makespan(turns([steps], route), [kinds]) == sum(kinds[work] for work in steps)


def test_many_micro_batches_take_as_long_as_the_steady_state() -> None:
    kinds, p = of_kinds(3, 4, 2, 7), 4
    times = [float(makespan(turns([dualpipe(i, p, n) for i in range(p)], fold(p)), [kinds] * p))
             for n in (40, 41, 400)]  # fmt: skip
    assert times[1] - times[0] == 2 * 7
    assert times[2] / 400 == pytest.approx(2 * 7, rel=0.02)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_kept_micro_batches_are_those_of_the_tables(p: int) -> None:
    """PP of ZB1P; PP + 1 of DualPipe, on each of its PP devices, half of the stages of each kind."""
    assert {most_held(zb_h1(i, p, 3 * p))[0] for i in range(p)} == {(p, 0)}
    for i in range(p):
        assert {sum(kept) for kept in most_held(dualpipe(i, p, 3 * p))} == {2 * p + 1}
