"""Whole steps: schedules played step by step, matmuls and messages counted, figures that papers print."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mc2perf.equations import attention, steps, training

quick = settings(max_examples=80, deadline=None)
times = st.integers(0, 9).map(float)
counts = st.integers(1, 10)
pairs = st.tuples(times, times)


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-12, abs=1e-12)


# --- pipeline parallel: 1F1B and interleaved 1F1B, one event after the other

Event = tuple[str, int, int]


def order(stage: int, pp: int, vpp: int, n_mb: int) -> list[Event]:
    """Forwards and backwards (kind, chunk, micro-batch) of a stage, as Megatron schedules them."""
    turns = [((k % (pp * vpp)) // pp, k // (pp * vpp) * pp + k % pp) for k in range(n_mb * vpp)]
    forwards = [("F", chunk, mb) for chunk, mb in turns] if vpp > 1 else [("F", 0, mb) for mb in range(n_mb)]
    backwards = [("B", vpp - 1 - chunk, mb) for _, chunk, mb in forwards]
    warm_up = min(pp - stage - 1 if vpp == 1 else 2 * (pp - stage - 1) + (vpp - 1) * pp, len(forwards))
    steady = itertools.chain(*zip(forwards[warm_up:], backwards, strict=False))
    return [*forwards[:warm_up], *steady, *backwards[len(forwards) - warm_up :]]


def needed(event: Event, stage: int, pp: int, vpp: int) -> tuple[int, Event] | None:
    """Whose result an event waits for: the chunk before it in the model, or after it on the way back."""
    kind, chunk, mb = event
    place, last = chunk * pp + stage, pp * vpp - 1
    if (kind, place) == ("F", 0):
        return None
    if (kind, place) == ("B", last):
        return stage, ("F", chunk, mb)
    before = place - 1 if kind == "F" else place + 1
    return before % pp, (kind, before // pp, mb)


def played(forward: list[float], backward: list[float], n_mb: int, vpp: int = 1) -> float:
    """Makespan of the schedule; a stage takes forward / vpp and backward / vpp per chunk."""
    pp, ends = len(forward), dict[tuple[int, Event], float]()
    queues = [order(stage, pp, vpp, n_mb) for stage in range(pp)]
    free = [0.0] * pp
    while any(queues):
        before = len(ends)
        for stage, queue in enumerate(queues):
            while queue and ((cause := needed(queue[0], stage, pp, vpp)) is None or cause in ends):
                took = (forward if queue[0][0] == "F" else backward)[stage] / vpp
                free[stage] = max(free[stage], ends[cause] if cause else 0.0) + took
                ends[stage, queue.pop(0)] = free[stage]
        assert len(ends) > before, "the schedule is stuck"
    return max(free)


stages = st.lists(times, min_size=1, max_size=5)


@quick
@given(stages, stages, counts)
def test_unequal_stages_are_exact_where_the_last_is_slowest(
    forward: list[float], backward: list[float], n_mb: int
) -> None:
    """With any backward on any stage."""
    pp = min(len(forward), len(backward))
    f, b = np.array(forward[:pp]), np.array(backward[:pp])
    b[-1] += np.max(f + b) - (f + b)[-1]
    assert steps.pipeline_parallel_time(f + b, n_mb, 1.0) == close(played(f.tolist(), b.tolist(), n_mb))


@quick
@given(stages, st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_the_closed_form_bounds_every_schedule_whose_backward_is_a_multiple(
    forward: list[float], vpp: int, rounds: int, multiple: float
) -> None:
    """And is exact, interleaved too, once the slowest stage is the last."""
    f = np.array(forward)
    n_mb = rounds * len(forward)
    time = steps.pipeline_parallel_time(f * (1 + multiple), n_mb, vpp)
    took = played(forward, (f * multiple).tolist(), n_mb, vpp)
    assert took <= time + 1e-9
    assert took == close(time) or forward[-1] < max(forward)


def test_other_multiples_on_other_stages_can_take_longer_than_the_closed_form() -> None:
    """Where the documentation claims no bound, there is none."""
    f, b = [0.0, 9.0, 0.0], [9.0, 0.0, 9.0]
    assert played(f, b, 6, 2) > steps.pipeline_parallel_time(np.array(f) + np.array(b), 6.0, 2.0)


@quick
@given(stages, stages, counts)
def test_the_lower_bound_holds_for_every_schedule(
    forward: list[float], backward: list[float], n_mb: int
) -> None:
    pp = min(len(forward), len(backward))
    f, b = forward[:pp], backward[:pp]
    assert steps.pipeline_parallel_bound(np.array(f), np.array(b), n_mb) <= played(f, b, n_mb) + 1e-9


@quick
@given(st.integers(1, 6), pairs, pairs, pairs, st.integers(0, 6))
def test_the_lower_bound_is_exact_for_heavy_ends(
    pp: int, inner: tuple[float, float], first: tuple[float, float], last: tuple[float, float], more: int
) -> None:
    """Forward and backward of the ends may be longer by any two times."""
    both = np.tile(inner, (pp, 1))
    both[0] += first
    both[-1] += last
    f, b = both.T
    took = played(f.tolist(), b.tolist(), pp + more)
    assert steps.pipeline_parallel_bound(f, b, pp + more) == close(took)
    assert took <= steps.pipeline_parallel_time(f + b, pp + more, 1.0) + 1e-9


@pytest.mark.parametrize("n_mb", range(1, 9))
@pytest.mark.parametrize("first", [(2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (2.0, 10.0), (10.0, 2.0)])
def test_round_trips_share_their_cover_until_there_are_more_micro_batches_than_stages(
    first: tuple[float, float], n_mb: int
) -> None:
    f, b = np.array([first, *[(2.0, 2.0)] * 4]).T
    assert steps.pipeline_parallel_bound(f, b, n_mb) == close(played(f.tolist(), b.tolist(), n_mb))


@quick
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_equal_stages_have_the_bubble_of_the_paper(pp: int, vpp: int, rounds: int, f: int, b: int) -> None:
    n_mb = rounds * pp
    took = played([f] * pp, [b] * pp, n_mb, vpp)
    idle = 1.0 - n_mb * (f + b) / took
    equal = np.full(pp, f + b)
    assert steps.bubble_share(pp, n_mb, vpp) == close(idle)
    assert steps.idle_share(equal, n_mb, vpp) == close(idle)
    assert took / (n_mb * (f + b)) - 1.0 == close((pp - 1) / (vpp * n_mb))


def test_pipelines_scale_with_time_and_come_in_columns() -> None:
    table = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]])
    n_mb, vpp = np.array([4.0, 6.0]), np.array([1.0, 2.0])
    both = steps.pipeline_parallel_time(table, n_mb, vpp)
    assert np.array_equal(both, [4 * 4 + 3, 6 * 3 + 6 / 2])
    assert np.array_equal(steps.pipeline_parallel_time(10.0 * table, n_mb, vpp), 10.0 * both)
    bound = steps.pipeline_parallel_bound(table, table, n_mb)
    for row, stage_times in enumerate(table):
        assert steps.pipeline_parallel_bound(stage_times, stage_times, n_mb[row]) == np.asarray(bound)[row]
    assert np.all(np.diff([steps.bubble_share(4.0, n, 1.0) for n in range(1, 9)]) < 0)


# --- gradients behind the backward pass


@quick
@given(times, times, st.integers(1, 9), times)
def test_buckets_leave_what_the_played_buckets_leave(w: float, c: float, n: int, latency: float) -> None:
    link = 0.0
    for bucket in range(n):
        link = max(link, (bucket + 1) * w / n) + c / n + latency
    left = steps.exposed_bucket_time(w, c, n, latency)
    assert left == pytest.approx(link - w, rel=1e-9, abs=1e-9)
    assert left >= steps.exposed_time(c + n * latency, w) - 1e-9


@quick
@given(times, times)
def test_buckets_go_from_no_cover_to_full_cover(w: float, c: float) -> None:
    assert steps.exposed_bucket_time(w, c, 1.0, 0.0) == close(c)
    many = steps.exposed_bucket_time(w, c, 1e9, 0.0)
    assert many == pytest.approx(steps.exposed_time(c, w), abs=1e-6)


# --- FLOPs


def gpt_matmuls(s: int, layers: int, h: int, v: int) -> Iterator[tuple[int, int, int]]:
    """Every matmul of a forward pass of one sample, (m, n, k); heads together are one of width h."""
    for _ in range(layers):
        yield from [(s, 3 * h, h), (s, s, h), (s, h, s), (s, h, h), (s, 4 * h, h), (s, h, 4 * h)]
    yield s, v, h


@quick
@given(st.integers(1, 64), st.integers(1, 4), st.integers(1, 64), st.integers(1, 99))
def test_model_flops_are_three_times_the_forward_matmuls(s: int, layers: int, h: int, v: int) -> None:
    forward = sum(2 * math.prod(sizes) for sizes in gpt_matmuls(s, layers, h, v))
    assert training.gpt_model_flops(s, s, layers, h, v) == close(3 * forward)
    weights = 12 * layers * h**2 + v * h
    token = training.model_flops_per_token(weights, layers, s, 1.0, h, h)
    assert s * token == close(3 * forward)
    again = training.recomputed_flops_per_token(12 * layers * h**2, layers, s, 1.0, h, h)
    hardware = 96 * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    assert s * (token + again) == close(hardware), "Narayanan et al. 2021, eq. 3"
    scores_and_values = sum(2 * math.prod(sizes) for sizes in [(s, s, h), (s, h, s)] * layers)
    assert s * training.recomputed_flops_per_token(0.0, layers, s, 1.0, h, h) == close(scores_and_values)


@quick
@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8))
def test_the_causal_half_counts_the_pairs_of_a_mask(s: int, heads: int, width: int) -> None:
    pairs = np.tril(np.ones((s, s))).sum()
    context = attention.mean_causal_context(s, np.inf)
    token = training.model_flops_per_token(0.0, 1.0, context, heads, width, width)
    assert s * token == close(3 * 2 * 2 * pairs * heads * width)
    halved = training.model_flops_per_token(0.0, 1.0, s / 2, heads, width, width)
    assert halved == close(training.model_flops_per_token(0.0, 1.0, s, heads, width, width) / 2)


def test_palm_540b() -> None:
    """Chowdhery et al. 2022, appendix B: 238.3K tokens/s on 6144 TPU v4: 46.2 %, without attention 45.7."""
    palm = (540.35e9, 118.0, 2048.0, 48.0, 256.0, 256.0)
    with_attention, without = (
        training.flops_utilisation(238.3e3 * flops, 1.0, 275e12, 6144.0)
        for flops in (training.model_flops_per_token(*palm), 6 * palm[0])
    )
    assert [round(100 * float(share), 1) for share in (with_attention, without)] == [46.2, 45.7]


@pytest.mark.parametrize(
    ("heads", "h", "layers", "batch", "gpus", "seconds", "mfu", "hfu"),
    [
        (64, 6144, 48, 4, 8, 1.10, 41.5, 43.7),
        (96, 12288, 96, 64, 64, 13.75, 51.4, 52.8),
        (128, 20480, 105, 280, 280, 37.83, 56.0, 57.0),
        (160, 25600, 128, 512, 512, 71.49, 56.3, 57.0),
    ],
    ids=["22B", "175B", "530B", "1T"],
)
def test_utilisation_that_a_paper_prints(
    heads: int, h: int, layers: int, batch: int, gpus: int, seconds: float, mfu: float, hfu: float
) -> None:
    """Korthikanti et al. 2022, tables 3 and 5: A100 (312 TFLOP/s), s 2048, V 51200, selective recompute.

    Their hardware FLOPs charge the core attention a second forward *and* backward (eq. 8), three times what
    is computed again; the tolerance is what the printed digits of time and share leave open.
    """
    tokens = batch * 2048.0
    model = training.gpt_model_flops(tokens, 2048.0, layers, h, 51200.0)
    again = training.recomputed_flops_per_token(0.0, layers, 2048.0, heads, h / heads, h / heads)
    for flops, printed in ((model, mfu), (model + 3 * tokens * again, hfu)):
        share = 100 * training.flops_utilisation(flops, seconds, 312e12, gpus)
        assert share == pytest.approx(printed, abs=0.05 + printed * 0.005 / seconds)


def test_megascale_moe_352b() -> None:
    """MegaScale-MoE (ByteDance, 2025): 272.9k tokens/s on 240 H800 (989 TFLOP/s) are 32.48 %, causal half.

    60 layers, h 4096, 32 heads of 128, 8 key-value heads, top-3 of 32 experts of 14336, V 65536, s 8192; one
    more expert that every token visits is inferred from it.
    """
    h, layers = 4096.0, 60.0
    mixer = 2 * h * 4096 + 2 * h * 8 * 128
    experts = (3 + 1) * 3 * h * 14336 + 32 * h
    active = layers * (mixer + experts) + h * 65536
    token = training.model_flops_per_token(active, layers, 8192 / 2, 32.0, 128.0, 128.0)
    assert round(100 * float(training.flops_utilisation(272.9e3 * token, 1.0, 989e12, 240.0)), 2) == 32.48


@pytest.mark.parametrize(
    ("batch", "seq_len", "seconds", "npus", "printed"),
    [(128, 4096, 31.13, 16, 1053.6), (8, 32768, 16.81, 32, 487.0)],
)
def test_throughput_of_printed_steps(
    batch: int, seq_len: int, seconds: float, npus: int, printed: float
) -> None:
    """Mixtral-8x7B in ModelLink's README, commits 8215e0e and bf2342da."""
    assert steps.train_throughput(batch, seq_len, seconds, npus) == pytest.approx(printed, rel=1e-3)


def test_a_step_is_its_parts_and_one_rank_has_nothing_to_exchange() -> None:
    parts = np.random.default_rng(5).uniform(0.0, 1.0, (4, 100))
    assert steps.training_step_time(*parts) == pytest.approx(np.sum(parts, axis=0), rel=1e-12)
    assert training.shard_exchange_bytes(1e9, 4.0, 1.0) == 0.0


# --- bytes of a training step


@pytest.mark.parametrize("dp", [1, 2, 3, 8])
def test_a_ring_reduce_scatter_sends_what_the_closed_form_says(dp: int) -> None:
    gradients = np.random.default_rng(3).integers(0, 9, (dp, dp, 5)).astype(np.float32)
    sums, sent = gradients.copy(), 0
    for step in range(dp - 1):
        messages = [(rank, (rank - step) % dp, sums[rank, (rank - step) % dp].copy()) for rank in range(dp)]
        for rank, chunk, message in messages:
            sums[(rank + 1) % dp, chunk] += message
            sent += message.nbytes
    owned = [sums[rank, (rank + 1) % dp] for rank in range(dp)]
    assert np.array_equal(owned, [gradients[:, (rank + 1) % dp].sum(axis=0) for rank in range(dp)])
    assert training.shard_exchange_bytes(dp * 5.0, 4.0, dp) == close(sent / dp)


def test_adam_reads_and_writes_its_arrays() -> None:
    dp, size = 4, 32
    gradient, master, mean, variance = np.ones((4, size // dp), np.float32)
    weight, buffer = np.ones(size // dp, np.float16), np.ones(size, np.float32)
    # The gradient is read twice: for its norm and by Adam itself.
    read: list[NDArray[Any]] = [gradient, gradient, master, mean, variance]
    written: list[NDArray[Any]] = [master, mean, variance, weight, buffer]
    moved = sum(array.nbytes for array in read + written)
    assert training.adam_moved_bytes(size, dp, 2.0, 4.0, 12.0, 2.0) == moved


@pytest.mark.parametrize("cp", [1, 2, 4, 5])
def test_a_ring_takes_gradients_home_in_as_many_hops_as_keys_and_values(cp: int) -> None:
    """The sum for block j starts at rank j + 1 and is passed on until it is at j; all have added by then."""
    tokens, heads, width = 3, 2, 4
    added, sent = {block: set[int]() for block in range(cp)}, 0
    for block in range(cp):
        for hop in range(1, cp):
            added[block].add((block + hop) % cp)
            sent += np.empty((2, tokens, heads, width), np.float32).nbytes
        added[block].add(block)
    assert all(len(ranks) == cp for ranks in added.values())
    assert training.ring_attention_bytes(tokens, heads, width, width, 4.0, cp) == close(sent / cp)


@pytest.mark.parametrize(("cp", "kv_heads"), [(1, 4), (2, 4), (4, 4), (4, 2), (8, 8), (8, 1)])
def test_ulysses_sends_what_changes_its_owner(cp: int, kv_heads: int) -> None:
    tokens, heads, width = 3, 8, 16
    copies = max(kv_heads, cp)
    moved = 0
    for stored in (heads, copies, copies, heads):  # queries, keys, values there; the output back
        owner_of_token = np.repeat(np.arange(cp), tokens)[:, None]
        owner_of_head = np.repeat(np.arange(cp), stored // cp)[None, :]
        moved += int(np.sum(owner_of_token != owner_of_head)) * width * 2
    assert training.ulysses_bytes(tokens, heads, kv_heads, width, width, 2.0, cp) == close(moved / cp)
