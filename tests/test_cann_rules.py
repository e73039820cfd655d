"""Rules of CANN's policies for which no worked example exists, each followed here on paper."""

from __future__ import annotations

from typing import Any

import pytest

from mc2perf.policies.cann import CannTiling, cann_tiling
from mc2perf.policies.cann.case import Case
from mc2perf.policies.cann.matmul_time import aligned_k, longest_tile, power_use, smallest_tile

US = 1e-6
RATE_A2 = 4096 * 1843.2 * 24 * 0.85
"""24 cores at 0.85. [MAC/us]"""
RATE_950 = 4096 * 1689.6 * 32 * 0.95
"""32 cores at 0.95. [MAC/us]"""


def cut(operator: str, *shape: int, family: str, **more: Any) -> CannTiling:
    cores = 32 if family == "950" else 24
    return cann_tiling(operator, *shape, family=family, cores=cores, **more)


def case(**more: Any) -> Case:
    default: dict[str, Any] = {
        "operator": "matmul_all_reduce",
        "m": 4096,
        "ranks": 8,
        "family": "a2",
        "cores": 24,
    }
    return Case(**default | more)


def totals(result: CannTiling, matmul: float, comm: float) -> None:
    assert result.matmul_time == pytest.approx(matmul * US)
    assert result.comm_time == pytest.approx(comm * US)


# --- all-reduce on the 950


def test_all_reduce_950_strongly_comm_bound_takes_two_tiles() -> None:
    """u = 0.75 (512/1280)^0.7 1.4 gives 140 us beside 889 us; the first tile is a third, up to 256."""
    result = cut("matmul_all_reduce", 4096, 8192, 512, 4, family="950")
    rate = RATE_950 / 0.95 * 0.75 * 1.4 * (512 / 1280) ** 0.7
    totals(result, 4096 * 8192 * 512 / rate, 13.3265 * 64 + 36.1964)
    assert result.tiles == (1536.0, 2560.0)


def test_all_reduce_950_with_large_operands_doubles_its_short_tile() -> None:
    """100 us carry 1353 rows, doubled: 2706 for 160 MiB of operands. Balanced 3759 -> 3840, n = 3;
    a third of what is left, 719 -> 512, joins each."""
    result = cut("matmul_all_reduce", 16384, 4096, 4096, 8, family="950")
    totals(result, 16384 * 4096 * 4096 / RATE_950, 6.1588 * 128 + 34.8712)
    assert result.tiles == (4352.0,) * 3 + (3328.0,)


def test_all_reduce_950_doubles_both_tiles_if_there_would_be_many() -> None:
    """(32768 - 2706) / 3759 >= 4: 5412 and 7518 -> 7424; n = 3, and 1694 -> 1536 more for each."""
    result = cut("matmul_all_reduce", 32768, 4096, 4096, 8, family="950")
    assert result.tiles == (8960.0,) * 3 + (5888.0,)


@pytest.mark.parametrize(
    ("operator", "ranks", "mib", "factor"),
    [
        ("matmul_all_reduce", 2, 64, 2.0517 * 4),
        ("matmul_all_reduce", 16, 64, 2.0517 / 2),
        ("matmul_reduce_scatter", 16, 64, 4 / 16),
        ("all_gather_matmul", 8, 256, 2 * 4 / 8),
        ("all_to_all_matmul", 2, 32, 2),
        ("matmul_all_to_all", 16, 64, 2),
    ],
)
def test_950_falls_back_to_the_formulaic_fit(operator: str, ranks: int, mib: int, factor: float) -> None:
    result = cut(operator, 4096, 8192, 4096, ranks, family="950")
    assert result.comm_time == pytest.approx((2.59568 * mib + 5.8887) * factor * US)


# --- matmul then all-to-all on the 950


def test_matmul_all_to_all_950_takes_at_most_eight_tiles() -> None:
    """256 rows compute in 20.4 us, which send 319 rows -> 256; 32 tiles become 8192 / 8."""
    result = cut("matmul_all_to_all", 8192, 4096, 4096, 4, family="950")
    totals(result, 8192 * 4096 * 4096 / RATE_950, 5.8416 * 64 + 5.8148)
    assert result.tiles == (1024.0,) * 8
    quantised = cut("matmul_all_to_all", 8192, 4096, 4096, 4, family="950", dtype="int8")
    assert quantised.matmul_time == pytest.approx(result.matmul_time * 1.43 / 2)  # type: ignore[operator]


def test_matmul_all_to_all_950_takes_three_tiles_of_a_tall_output() -> None:
    result = cut("matmul_all_to_all", 12288, 1024, 8192, 4, family="950")
    assert result.tiles == (4096.0,) * 3
    assert result.why == "cap of 3 tiles"


def test_matmul_all_to_all_950_wants_a_third_of_few_rows() -> None:
    """S = 1024; its 81.7 us send 1661 rows -> 1536; half of the 512 left, 256, joins the long tile."""
    assert cut("matmul_all_to_all", 3072, 4096, 4096, 4, family="950").tiles == (1792.0, 1280.0)


@pytest.mark.parametrize(("engine", "count"), [("ccu", 3), ("aicpu", 1)])
def test_matmul_all_to_all_950_is_not_cut_by_the_ai_cpu_if_short(engine: str, count: int) -> None:
    """4096 x 2048 x 1024: 43 us of matmul; S = 1366 leaves 2 x 1366 to the long tile's 1280 + alignment."""
    result = cut("matmul_all_to_all", 4096, 2048, 1024, 4, family="950", engine=engine)
    assert result.matmul_time < 80 * US < result.comm_time  # type: ignore[operator]
    assert (len(result.tiles) == 1) == (count == 1)


# --- all-to-all then matmul


def test_all_to_all_matmul_950_lines_of_eight_ranks() -> None:
    """4096 x 512 x 8192 = 512 x 2^25 MAC; int8 adds the quantisation of 32 Mi elements on 64 vector cores."""
    result = cut("all_to_all_matmul", 4096, 512, 8192, 8, family="950", dtype="int8")
    matmul = 0.0993 * 512 + 18.71 + 81.9156 * 32 / 64 + 9.9191
    totals(result, matmul, 2.5386 * 64 + 7.6265)
    half = cut("all_to_all_matmul", 4096, 512, 8192, 8, family="950", dtype="mxfp4")
    totals(half, 0.046137 * 512 + 10.97, 2.5386 * 16 + 7.6265)
    assert half.tiles == (4096.0,)


def test_all_to_all_on_a3_counts_all_ranks_and_inflates() -> None:
    result = cut("all_to_all_matmul", 1024, 4096, 4096, 8, family="a3")
    totals(result, 1024 * 8 * 4096 * 4096 / RATE_A2, 1.35 * (11.38154641 * 64 + 248.151561))


# --- dense operators on A2


def test_all_gather_of_few_rows_strongly_comm_bound_halves_the_block() -> None:
    """16 MiB take 641 us beside 125 us of matmul, N > 2048 and M <= 512: 64 rows a tile."""
    result = cut("all_gather_matmul", 512, 2304, 8192, 2, family="a2")
    totals(result, 1024 * 2304 * 8192 / RATE_A2, (13.58491263 * 16 + 61.508333) * 2 * 1.15)
    assert result.tiles == (64.0,) * 8


def test_deterministic_reduce_scatter_takes_fewer_tiles() -> None:
    """S = 256; its 446 us send 580 rows -> 640; nothing of the 128 left is worth sharing."""
    result = cut("matmul_reduce_scatter", 8192, 4096, 8192, 8, family="a2", deterministic=True)
    totals(result, 8192 * 4096 * 8192 / RATE_A2, (13.58491263 * 64 + 61.508333) / 2 * 1.15 * 1.4)
    assert result.tiles == (640.0, 384.0)


def test_deterministic_changes_reduce_scatter_on_a2_only() -> None:
    for operator, family in (("matmul_all_reduce", "a2"), ("matmul_reduce_scatter", "950")):
        free = cut(operator, 8192, 8192, 8192, 8, family=family)
        assert cut(operator, 8192, 8192, 8192, 8, family=family, deterministic=True) == free


def test_deep_all_reduce_takes_eighths() -> None:
    """K > N. S = 384; its 170 us send 407 rows -> 384 < 2 S, more than 8 times: M / 8 instead."""
    result = cut("matmul_all_reduce", 16384, 8192, 8320, 8, family="a2")
    assert result.tiles == (2048.0,) * 8
    assert result.why == "fewer cuts: deep matmul"


@pytest.mark.parametrize(
    ("dtype", "k", "share"),
    [("bf16", 256, 1), ("bf16", 192, 0.7), ("int8", 512, 1), ("int8", 256, 0.7), ("int8", 384, 0.5)],
)
def test_unaligned_contraction_costs_all_reduce(dtype: str, k: int, share: float) -> None:
    assert aligned_k(case(n=512, k=k, dtype=dtype)) == share
    rate = RATE_A2 * share
    result = cut("matmul_all_reduce", 8192, 8192, k, 8, family="a2", dtype=dtype)
    assert result.matmul_time == pytest.approx(8192 * 8192 * k / rate * US)


@pytest.mark.parametrize(
    ("n", "k", "copies", "family", "rows"),
    [
        (1024, 1024, 1, "a2", 4096 * 1.2),  # 4 Gi MAC on 20 cores, here on 24
        (1024, 1024, 2, "a2", 2048 * 1.2),
        (1024, 1024, 8, "a2", 1280),  # 10 Gi MAC
        (1024, 1024, 8, "950", 640),  # 5 Gi MAC
        (64, 64, 4, "a2", 10 * 2**30 / 4 / 128**2),  # counted as blocks of 128 x 128 at least
    ],
)
def test_smallest_tile_has_enough_work(n: int, k: int, copies: int, family: str, rows: float) -> None:
    assert smallest_tile(case(n=n, k=k, family=family), copies) == int(rows)


def test_longest_tile_stays_in_its_step_of_the_l2() -> None:
    """6272 rows of 21248 B hold 127 MiB; 128 more would leave the step of 128 MiB."""
    assert longest_tile(case(n=8192, k=10624), 128.0, 1.0) == 128.0
    assert longest_tile(case(n=8192, k=10240), 128.0, 1.0) == 4096


def test_own_rows_of_the_950_follow_a_flatter_power() -> None:
    square = case(m=2000, n=2000, k=1280, family="950")
    assert power_use(square, 1.0, 0.6) == pytest.approx(0.75 * (1000 / 820) ** 0.6)
    assert power_use(square, 1.0) == pytest.approx(0.75 * (1000 / 820) ** 0.7)


def test_reduce_scatter_keeps_four_mi_elements_of_output_to_a_tile() -> None:
    """697 us beside 285: S = 4 Mi / 512 / 8 = 1024; its 174 us send 2277 rows -> 2304; half of 768 joins."""
    result = cut("matmul_reduce_scatter", 32768, 512, 6400, 8, family="a2")
    assert 2 <= result.matmul_time / result.comm_time < 3  # type: ignore[operator]
    assert result.tiles == (2688.0, 1408.0)
    assert "output of 4 Mi" in result.why


@pytest.mark.parametrize("operator", ["all_gather_matmul", "all_to_all_matmul", "matmul_all_to_all"])
def test_types_of_one_width_are_cut_alike(operator: str) -> None:
    for one, other in (("int8", "fp8"), ("bf16", "fp16")):
        first, second = (cut(operator, 8192, 4096, 4096, 4, family="950", dtype=d) for d in (one, other))
        assert first == second


@pytest.mark.parametrize(("ranks", "blocks"), [(2, 14), (4, 12), (8, 12)])
def test_a2_rounds_are_blocks_of_128_rows(ranks: int, blocks: int) -> None:
    result = cut("all_to_all_matmul", 8192, 4096, 4096, ranks, family="a2")
    assert set(result.tiles[:-1]) == {128.0 * blocks}
