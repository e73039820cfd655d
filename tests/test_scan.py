"""Tiles of whole blocks and a rest: brute force, played pieces, CANN's tiles, neighbouring rows."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from mc2perf import cutting, schedules
from mc2perf.api import estimate
from mc2perf.equations import pipeline
from mc2perf.equations.overlap import longest_path, two_stage_paths
from mc2perf.equations.three_stages import covering_cost
from mc2perf.equations.unequal import Pieces, better_end, rest_at, rest_first, rest_last, unequal_pieces
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.mc2 import best_tiles
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.piece_counts import tile_counts
from mc2perf.policies.scan import SPREAD, cut, even_cut, lengths_to_try
from mc2perf.readers.profiles import load_machine
from mc2perf.results import Results
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of
from mc2perf.timeline import Timeline
from mc2perf.two_engines import if_it_pays, two_stages
from mc2perf.workload.parts import Pair, Tiles

MACHINES = ("atlas_800t_a2_b2", "ascend_950pr")
TARGETS = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce", "all_to_all_matmul")
WHERE = [(hardware, target) for hardware in MACHINES for target in TARGETS]


def study(hardware: str, target: str, m: Any, **given: Any) -> Study:
    sizes: dict[str, Any] = {"n": 4096.0, "k": 4096.0, "ranks": 8.0, "schedule": "mc2", **given}
    return study_of(Scenario(target=target, m=m, **sizes), load_machine(hardware), None)


def pair_of(of: Study) -> Pair:
    pair: Pair
    (pair,) = of.of_kind(Pair)
    return pair


def scan_time(of: Study) -> float:
    return float(np.asarray(best_tiles(of, pair_of(of))[0].total).item())


def scan_times(hardware: str, target: str, rows: list[float], **given: Any) -> np.ndarray[Any, Any]:
    """The best time for every number of rows, in one call. [s]"""
    of = study(hardware, target, np.array(rows).reshape(-1, 1), **given)
    return np.asarray(best_tiles(of, pair_of(of))[0].total)[:, 0]


# --- makespan ----------------------------------------------------------------------------------------------


def play(comm: list[float], compute: list[float], at: dict[str, Any], buffers: int) -> Timeline:
    return two_stages("comm_first", comm, compute, buffers=buffers, **at)


@pytest.mark.parametrize("first", [False, True])
def test_the_makespan_is_that_of_the_pieces_played(first: bool) -> None:
    """Random times, a rest up to twice as long, rings shorter than the pieces, own rows, mutual slow-down."""
    rng = np.random.default_rng(1)
    for _ in range(1500):
        n, buffers = int(rng.integers(2, 9)), int(rng.integers(2, 7))
        a, b = rng.uniform(0.0, 1.0, 2) * rng.choice([1.0, 3.0], 2)
        x, y = a * rng.uniform(0.0, 2.0), b * rng.uniform(0.0, 2.0)
        head = rng.choice([0.0, rng.uniform(0.0, 4.0)])
        f = rng.choice([1.0, rng.uniform(1.0, 2.0)])
        g = 1.0 + rng.uniform() * ((min(f / (f - 1.0), 3.0) if f > 1.0 else 3.0) - 1.0)
        comm, compute = ([x, *[a] * (n - 1)], [y, *[b] * (n - 1)])
        if not first:
            comm, compute = comm[::-1], compute[::-1]

        at = {"head": head, "comm_slowdown": f, "compute_slowdown": g}
        played = if_it_pays(functools.partial(play, comm, compute, at), buffers)
        found = (rest_first if first else rest_last)(
            a, b, x, y, sum(comm), sum(compute), float(n), head, float(buffers), covering_cost(f, g),
            covering_cost(g, f), g / f,
        )  # fmt: skip
        assert float(found.total) == pytest.approx(played.total, rel=1e-12)
        assert float(found.exposed_comm) == pytest.approx(played.exposed_comm, rel=1e-9, abs=1e-12)


def test_a_rest_that_is_no_other_is_an_equal_piece_to_the_last_bit() -> None:
    """A row does not depend on whether tiles differ in other rows of its block."""
    rng = np.random.default_rng(2)
    a, b, h = rng.uniform(0.0, 1.0, (3, 20000))
    n, buffers = (rng.integers(low, 20, 20000).astype(float) for low in (1, 2))
    f = rng.uniform(1.0, 2.0, 20000)
    g = 1.0 + rng.random(20000) * (np.minimum(f / (f - 1.0), 3.0) - 1.0)
    equal = longest_path(*two_stage_paths(a, b, n, h, buffers, f, g), work=n * a + n * b + h, comm=n * a)
    for equation in (rest_first, rest_last):
        found = equation(
            a, b, a, b, n * a, n * b, n, h, buffers, covering_cost(f, g), covering_cost(g, f), g / f
        )
        for one, other in zip(found, equal, strict=True):
            np.testing.assert_array_equal(one, other)


def test_without_slow_down_and_own_rows_it_is_the_formula_of_a_tail() -> None:
    rng = np.random.default_rng(3)
    a, b, share = rng.uniform(0.0, 1.0, (3, 1000))
    n = rng.integers(1, 12, 1000).astype(float)
    x, y = a * share, b * share
    found = rest_last(a, b, x, y, n * a + x, n * b + y, n + 1.0, 0.0, n + 1.0, 0.0, 0.0, 1.0)
    np.testing.assert_allclose(found.total, pipeline.two_stage_tail_time(a, b, n, x, y), rtol=1e-12)


# --- lengths -----------------------------------------------------------------------------------------------


def test_all_rows_are_in_the_tiles() -> None:
    """Whole blocks but one, which is less than a block longer; nothing is added, nothing left out."""
    rows = np.arange(1.0, 3000.0, 7.0).reshape(-1, 1)
    counts, longer = lengths_to_try(np.arange(1.0, 17.0).reshape(1, -1))
    each, rest, none_left = cut(rows, counts, 128.0, longer)
    np.testing.assert_array_equal(
        ((counts - 1.0) * each + rest)[~none_left], (rows + 0.0 * counts)[~none_left]
    )
    cuts = ~none_left & (counts > 1.0)
    assert np.all(each[cuts] % 128.0 == 0.0)
    assert np.all((rest > 0.0)[cuts] & (rest < each + 128.0)[cuts])
    assert not none_left[:, 0].any()


def test_whole_rows_are_left_where_whole_blocks_are_not() -> None:
    """16 tiles of 1000 rows are legal; 600 would leave nothing for the last one."""
    assert even_cut(1000.0, np.array([[3.0, 16.0, 600.0]]), 128.0).none_left.tolist() == [
        [False, False, True]
    ]


def test_pieces_that_slow_each_other_down_run_one_after_the_other() -> None:
    """Nothing is then covered, and no end is better than the other."""
    p = Pieces(2.0, 4.0, 1.0, 2.0, 5.0, 10.0, 3.0, 0.0, 4.0, 2.0, 2.0)
    total, first = better_end(p)
    assert (float(total), float(first)) == (15.0, 0.0)
    alone = unequal_pieces(np.array([2.0, 2.0, 1.0]), np.array([4.0, 4.0, 2.0]), 0.0, 3.0, 3.0)
    for found in (rest_at(p, 0.0, 1.0), rest_at(p, 1.0, 1.0), alone):
        assert (float(found.total), float(found.exposed_comm), float(found.busy_compute)) == (15.0, 5.0, 10.0)


def test_a_count_that_divides_the_blocks_has_equal_tiles() -> None:
    counts = np.array([[2.0, 3.0, 4.0, 6.0, 8.0, 12.0]])
    each, rest, _ = even_cut(24 * 128.0, counts, 128.0)
    np.testing.assert_array_equal(each, 24 * 128.0 / counts)
    np.testing.assert_array_equal(rest, each)


@pytest.mark.parametrize("blocks", [1.5, 2.0, 3.5, 7.0, 12.25, SPREAD + 0.9, float(SPREAD)])
def test_every_length_is_tried_of_few_blocks(blocks: float) -> None:
    """Each length of whole blocks, in as many tiles as it takes."""
    most = int(np.ceil(blocks))
    counts, longer = lengths_to_try(np.arange(1.0, most + 1.0).reshape(1, -1))
    each, _, none_left = cut(blocks * 128.0, counts, 128.0, longer)
    tried = ~none_left & (counts > 1.0)
    expected = {(len(tiles), tiles[0]) for tiles in every_cut(blocks * 128.0, 128.0, most)[1::2]}
    assert {*zip(counts[tried].tolist(), each[tried].tolist(), strict=True)} == expected


# --- the scan ----------------------------------------------------------------------------------------------


def every_cut(m: float, base: float, most: int) -> list[tuple[float, ...]]:
    """All tiles of one length in whole blocks with what is left first or last."""
    found: list[tuple[float, ...]] = [(m,)]
    for each in np.arange(base, m, base).tolist():
        for count in range(1, most):
            rest = m - count * each
            if 0.0 < rest < each + base:
                found += [(*(each,) * count, rest), (rest, *(each,) * count)]
    return found


@pytest.mark.parametrize(("hardware", "target"), WHERE)
@pytest.mark.parametrize("m", [1000.0, 1536.0, 2056.0])
def test_brute_force(hardware: str, target: str, m: float) -> None:
    """The fastest of all cuts of the form, each played piece by piece, is what the scan finds."""
    of = study(hardware, target, m)
    base = float(of.costs.machine.cube.base_block.m)
    every = [cutting.priced(of, pair_of(of), tiles)[0].total for tiles in every_cut(m, base, 16)]
    assert scan_time(of) == pytest.approx(min(every), rel=1e-12)


@pytest.mark.parametrize(("hardware", "target"), WHERE)
def test_every_count_of_a_row_is_its_tiles_played(hardware: str, target: str) -> None:
    row = estimate(target, m=5000, n=4096, k=4096, ranks=8, hardware=hardware, schedule="mc2").rows[-1]
    of = study(hardware, target, 5000.0)
    assert len(row.cuts) > 3
    for tiles in (*row.cuts.values(), row.tiles):
        assert sum(tiles) == 5000.0
        played, spans = cutting.priced(of, pair_of(of), tiles)
        assert float(played.total) == pytest.approx(row.curve[len(tiles)], rel=1e-12)
        assert len([span for span in spans.spans if span.engine == "comm"]) == len(tiles)
    assert sum(row.tiles) == (row.pieces - 1) * row.piece_rows + row.rest_rows
    assert row.tiles[0 if row.rest_first else -1] == row.rest_rows


@pytest.mark.parametrize(("hardware", "target"), WHERE)
def test_never_worse_than_equal_tiles_of_whole_blocks(hardware: str, target: str) -> None:
    """What the scan tried before; the same times, to the last bit, for a count that is asked for."""
    blocks = np.arange(1.0, 130.0).reshape(-1, 1)
    base = float(load_machine(hardware).cube.base_block.m)
    of = study(hardware, target, base * blocks)
    counts = np.arange(1.0, 17.0).reshape(1, -1)
    pair, on = pair_of(of), of.conditions(pair_of(of))
    equal = schedules.pair_mc2(pair, counts, on)
    divides = blocks % counts == 0.0
    best = np.min(np.where(divides, equal.total, np.inf), axis=-1)
    assert np.all(np.asarray(best_tiles(of, pair)[0].total)[:, 0] <= best)
    each, rest, _ = even_cut(base * blocks, counts, base)
    asked = schedules.pair_mc2(pair, Tiles(counts, each, rest), on)
    for name in ("total", "busy", "exposed", "compute", "comm"):
        one, other = (np.broadcast_to(getattr(t, name), divides.shape) for t in (asked, equal))
        np.testing.assert_array_equal(one[divides], other[divides])


@pytest.mark.parametrize(("hardware", "target"), WHERE)
def test_never_worse_than_cann_where_its_tiles_are_of_the_form(hardware: str, target: str) -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for _ in range(40):
        m, n, k = (128.0 * rng.integers(4, top) for top in (33, 65, 65))
        of = study(hardware, target, m + 8.0 * rng.integers(0, 16), n=n, k=k)
        pair, base = pair_of(of), float(of.costs.machine.cube.base_block.m)
        tiles = cutting.cut_by_cann(of, pair).tiles
        if not of_the_form(tiles, base) or cutting.refused_tiles(of, pair, tiles):
            continue
        compared += 1
        assert scan_time(of) <= cutting.priced(of, pair, tiles)[0].total * (1.0 + 1e-12), (m, n, k, tiles)
    assert compared > 10


def of_the_form(tiles: tuple[float, ...], base: float) -> bool:
    """Whole blocks of one length but for a rest at an end, few enough that a scan tries all."""
    return sum(tiles) < (SPREAD + 1.0) * base and tiles in every_cut(sum(tiles), base, 16)


SMOOTH = 0.012
"""More rows take less time by at most this share: fits step down, and not every length of many is tried."""

ROWS = {
    "neighbours": sorted({*range(3968, 4480, 8), 4224, 4352}),
    "far": sorted(8 * round(m / 8) for m in np.geomspace(1024, 32768, 150).tolist()),
}


@pytest.mark.parametrize(("hardware", "target"), WHERE)
@pytest.mark.parametrize("rows", list(ROWS.values()), ids=list(ROWS))
@pytest.mark.parametrize("n", [4096.0, 8192.0])
def test_more_rows_take_longer(hardware: str, target: str, rows: list[int], n: float) -> None:
    times = scan_times(hardware, target, [float(m) for m in rows], n=n)
    later = np.minimum.accumulate(times[::-1])[::-1]
    assert np.max(times / later) <= 1.0 + SMOOTH, rows[int(np.argmax(times / later))]


@pytest.mark.parametrize("hardware", MACHINES)
def test_an_odd_row_more_is_a_little_longer(hardware: str) -> None:
    """4097 rows are no multiple of anything; they were left uncut once, 28 % slower than 4096."""
    even, odd = scan_times(hardware, "all_gather_matmul", [4096.0, 4097.0])
    assert even <= odd <= even * 1.005


# --- what is said ------------------------------------------------------------------------------------------


def test_a_row_of_many_is_the_row_alone() -> None:
    """To the last bit, also beside rows whose tiles are all equal."""
    rows = [1024.0, 1025.0, 2048.0, 4096.0, 4097.0, 9999.0]
    of = study("ascend_950pr", "all_to_all_matmul", np.array(rows).reshape(-1, 1))
    outcome = OUTCOMES["mc2"](of, serial_outcome(of))
    results = Results(of, outcome, None)
    best = best_count(results["total_time"], outcome.refused_at)
    for at, m in enumerate(rows):
        row = estimate(
            "all_to_all_matmul", m=m, n=4096, k=4096, ranks=8, hardware="ascend_950pr", schedule="mc2"
        ).rows[-1]
        for name in ("total_time", "pieces", "piece_rows", "rest_rows", "rest_first", "exposed_comm_time"):
            found = np.broadcast_to(at_count(results[name], best), (len(rows), 1))[at, 0]
            assert np.nan_to_num(found) == getattr(row, name), (m, name)


@pytest.mark.parametrize(("axis", "tiles"), [*itertools.product("mnk", (3, 5))])
def test_a_count_that_is_asked_for_is_cut_evenly(axis: str, tiles: int) -> None:
    given = {"m": 4096.0, "n": 4096.0, "k": 8192.0}
    of = study("ascend_950pr", "all_to_all_matmul", 4096.0, k=8192.0, split_axis=axis, tile_cnt=float(tiles))
    counts = tile_counts(of, pair_of(of))
    lengths = counts.cut._replace(rest_first=0.0).in_order()
    assert sum(lengths) == given[axis] and len(lengths) == tiles
    played, _ = cutting.priced(of, pair_of(of), lengths)
    timing = schedules.pair_mc2(pair_of(of), counts.cut._replace(rest_first=0.0), of.conditions(pair_of(of)))
    assert float(np.asarray(timing.total).item()) == pytest.approx(float(played.total), rel=1e-12)


def test_the_answer_names_the_lengths() -> None:
    asked: dict[str, Any] = {"m": 4097, "n": 8192, "k": 4096, "ranks": 8, "hardware": "atlas_800t_a2_b2"}
    answer = estimate("matmul_all_reduce", schedule="mc2", **asked)
    assert answer.rows[-1].tiles == (513.0, *(896.0,) * 4)
    assert not any("remainder" in text for text in answer.assumptions)
    assert any("holds what is left" in text for text in answer.assumptions)
    of_layers = estimate("mixtral-8x7b", schedule="micro_batch").assumptions
    assert "pieces are equal; a remainder counts as a full share of a piece" in of_layers


@pytest.mark.parametrize("hardware", ["ascend_950pr", "atlas_350", "atlas_800t_a2"])
@pytest.mark.parametrize("m", [100.0, 256.0, 512.0, 2048.0])
def test_no_given_count_of_long_tiles_beats_the_scan(hardware: str, m: float) -> None:
    """Where there are too few blocks for a count, scan cuts whole rows, as a given count is cut."""
    asked: dict[str, Any] = {
        "m": m,
        "n": 4096,
        "k": 8192,
        "ranks": 8,
        "hardware": hardware,
        "schedule": "mc2",
    }
    for target in ("all_gather_matmul", "matmul_all_reduce"):
        best = estimate(target, **asked).rows[-1].total_time
        given = [estimate(target, tile_cnt=n, **asked).rows[-1] for n in range(1, 17) if n * 16 <= m]
        assert best <= min(row.total_time for row in given if row.legal)
