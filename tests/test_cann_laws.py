"""What every cut of CANN's policies keeps to, whatever the shape; and models that invert and scale."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.policies.cann import CannTiling, cann_tiling
from mc2perf.policies.cann.case import Case
from mc2perf.policies.cann.constants import A2_MESH, A3_RING, FIT_950, MESH_950, HcclFit
from mc2perf.policies.cann.formulaic import Job, cut_continuous, cut_discrete, down, up
from mc2perf.policies.cann.hccl_time import fitted_size, fitted_time
from mc2perf.policies.cann.matmul_time import MatmulTime, footprint, power_use, stepped_use

quick = settings(max_examples=100)
few = settings(max_examples=40)

RANKS = {"a2": (2, 4, 8), "a3": (2, 4, 8, 16, 32), "950": (2, 4, 8, 16, 64)}
DTYPES = {"a2": ("bf16", "int8"), "a3": ("bf16",), "950": ("fp16", "fp8", "mxfp8", "mxfp4")}
MODELLED = [
    ("all_gather_matmul", "a2"),
    ("all_gather_matmul", "a3"),
    ("all_gather_matmul", "950"),
    ("matmul_reduce_scatter", "a2"),
    ("matmul_reduce_scatter", "a3"),
    ("matmul_reduce_scatter", "950"),
    ("matmul_all_reduce", "a2"),
    ("matmul_all_reduce", "950"),
    ("all_to_all_matmul", "a3"),
    ("all_to_all_matmul", "950"),
    ("matmul_all_to_all", "a3"),
    ("matmul_all_to_all", "950"),
]
WIDTHS = st.integers(2, 224).map(lambda blocks: 128 * blocks)


ALIGN = {"a2": 128, "a3": 128, "950": 256}


class Drawn(NamedTuple):
    """Rows that are cut, by how many ranks, and the cut."""

    rows: int
    ranks: int
    cut: CannTiling


@st.composite
def cuts(draw: st.DrawFn, operator: str, family: str, rows: st.SearchStrategy[int]) -> Drawn:
    ranks, cut_rows = draw(st.sampled_from(RANKS[family])), draw(rows)
    m = cut_rows * ranks if operator == "matmul_reduce_scatter" else cut_rows
    result = cann_tiling(
        operator,
        m,
        draw(WIDTHS),
        draw(WIDTHS),
        ranks,
        family=family,
        cores=draw(st.sampled_from((20, 24, 25, 32))),
        dtype=draw(st.sampled_from(DTYPES[family])),
        deterministic=draw(st.booleans()),
        engine=draw(st.sampled_from(("ccu", "aicpu"))),
        keep_exchanged=draw(st.booleans()),
    )
    return Drawn(cut_rows, ranks, result)


def finest(operator: str, family: str) -> int:
    """Shortest short tile an operator may ask for: all-gather halves the alignment."""
    halved = operator == "all_gather_matmul" and family != "a3"
    return ALIGN[family] // 2 if halved else ALIGN[family]


def most_tiles(operator: str, family: str, ranks: int) -> int:
    """Cap of an operator whatever its shape."""
    if operator.startswith("all_to_all") or operator == "matmul_all_to_all":
        fit_balance = family == "950" and ranks in (4, 8) and operator == "matmul_all_to_all"
        return 8 if family == "a3" or fit_balance else 16
    return 16


def same_but_one(tiles: tuple[float, ...], align: int) -> bool:
    """All long tiles are equal; the other one is first or last, and longer by no more than a block."""
    if len(tiles) < 3:
        return True
    first, *middle, last = tiles
    return set(middle) == {middle[0]} and middle[0] in (first, last) and max(first, last) <= middle[0] + align


@pytest.mark.parametrize(("operator", "family"), MODELLED)
@few
@given(data=st.data())
def test_any_rows_are_cut_whole_within_the_cap(operator: str, family: str, data: st.DataObject) -> None:
    rows, ranks, cut = data.draw(cuts(operator, family, st.integers(1, 40000)))
    assert math.fsum(cut.tiles) == rows
    assert min(cut.tiles) > 0
    assert len(cut.tiles) <= most_tiles(operator, family, ranks)
    assert len(cut.tiles) == 1 or rows >= 2 * finest(operator, family)
    assert same_but_one(cut.tiles, ALIGN[family])
    assert cut.why
    assert cut.matmul_time is not None and cut.comm_time is not None
    assert 0 < cut.matmul_time < 1e3 and 0 < cut.comm_time < 1e3
    assert cut.bound == ("compute" if cut.matmul_time >= cut.comm_time else "comm")


@pytest.mark.parametrize(("operator", "family"), MODELLED)
@few
@given(data=st.data())
def test_aligned_rows_give_aligned_tiles(operator: str, family: str, data: st.DataObject) -> None:
    rows, _, cut = data.draw(cuts(operator, family, st.integers(1, 128).map(lambda blocks: 256 * blocks)))
    assert all(tile % finest(operator, family) == 0 for tile in cut.tiles)
    assert rows == sum(cut.tiles)


# --- the common cut alone

jobs = st.builds(
    Job,
    rows=st.integers(1, 20000),
    short=st.integers(128, 1500),
    compute_bound=st.booleans(),
    align=st.sampled_from((128, 256)),
    cap=st.integers(3, 16),
    linear=st.booleans(),
    local_first=st.booleans(),
    deep=st.booleans(),
    align_up=st.booleans(),
    short_last=st.sampled_from((None, True, False)),
)


@quick
@given(jobs, st.floats(1.0, 30000.0))
def test_cut_keeps_rows_cap_and_no_cut(job: Job, long: float) -> None:
    for cut in (cut_discrete(job, long).rows, cut_continuous(job, long).rows):
        assert sum(cut) == job.rows and min(cut) > 0
        assert len(cut) <= job.cap
        assert len(cut) == 1 or job.rows >= 2 * job.short


@quick
@given(jobs, st.floats(1.0, 30000.0))
def test_short_tile_is_where_it_belongs(job: Job, long: float) -> None:
    cut = cut_discrete(job, long).rows
    last = job.compute_bound if job.short_last is None else job.short_last
    if len(cut) > 2:
        odd = cut[-1] if last else cut[0]
        assert set(cut) - {odd} <= {cut[1]}


@quick
@given(st.integers(1, 10**6), st.sampled_from((64, 128, 256)))
def test_rounding_down_and_up_enclose(rows: int, align: int) -> None:
    assert down(rows, align) <= rows <= up(rows, align)
    assert up(rows, align) - down(rows, align) in (0, align)


# --- the models


@quick
@given(st.integers(128, 10**6), st.integers(1, 64), st.floats(1e-4, 10.0))
def test_matmul_rows_invert_matmul_time(rows: int, copies: int, row: float) -> None:
    model = MatmulTime(row, 128.0)
    assert rows - 1 <= model.rows(model.time(rows, copies), copies) <= rows
    assert model.time(2 * rows, copies) == pytest.approx(2 * model.time(rows, copies))
    assert model.time(rows, 2 * copies) == pytest.approx(model.time(2 * rows, copies))
    assert model.time(1) == model.time(128)


@pytest.mark.parametrize("fit", [A3_RING, MESH_950, *FIT_950.values()])
@quick
@given(size=st.floats(2.5, 1e5))
def test_size_inverts_time_on_the_line(fit: HcclFit, size: float) -> None:
    assert fitted_size(fit, fitted_time(fit, size)) == pytest.approx(size)


@quick
@given(st.floats(0.25, 1e5))
def test_size_nearly_inverts_time_on_the_a2(size: float) -> None:
    """The source inverts its parabola with constants of its own: 1 % off at most."""
    assert fitted_size(A2_MESH, fitted_time(A2_MESH, size)) == pytest.approx(size, rel=0.02, abs=0.01)


@pytest.mark.parametrize("fit", [A2_MESH, A3_RING, MESH_950, *FIT_950.values()])
@quick
@given(size=st.floats(1e-3, 1e4), more=st.floats(1.0, 10.0))
def test_more_bytes_never_take_less(fit: HcclFit, size: float, more: float) -> None:
    """Up to the 0.1 us by which the 950's curve jumps down onto its floor or line."""
    assert fitted_time(fit, size * more) >= fitted_time(fit, size) - 0.1


def test_950_mesh_has_no_length_between_floor_and_line() -> None:
    """The source divides by a zero constant there: any length fits."""
    assert fitted_size(MESH_950, 5.6) == MESH_950.b1
    assert math.isinf(fitted_size(MESH_950, 7.0))
    assert fitted_size(MESH_950, 10.0) == pytest.approx((10.0 - 5.8887) / 2.59568)


def shape(rows: int, n: int, k: int, cores: int = 24, family: str = "a2") -> Case:
    return Case(operator="matmul_all_reduce", m=rows, n=n, k=k, ranks=8, family=family, cores=cores)  # type: ignore[arg-type]


@quick
@given(st.integers(1, 200), WIDTHS, WIDTHS, st.sampled_from((20, 24, 32)))
def test_use_of_the_cube_is_a_step_times_busy_cores(blocks: int, n: int, k: int, cores: int) -> None:
    """Counted by hand: rows of blocks times columns of blocks, cut off at the cores."""
    case = shape(128 * blocks, n, k, cores)
    busy = min(blocks * math.ceil(n / 256), cores) / cores
    held = (min(blocks, cores) * 128 + min(math.ceil(n / 256), cores) * 256) * k * 2 // 2**20
    step = 0.85 if held <= 128 else 0.75 if held <= 192 else 0.65
    assert stepped_use(case, 128.0 * blocks, 1.0) == pytest.approx(step * busy)
    assert footprint(case, 128.0 * blocks, 1.0).held == held


@quick
@given(st.integers(1, 20000), WIDTHS, WIDTHS)
def test_power_law_grows_with_the_shape_up_to_its_cap(rows: int, n: int, k: int) -> None:
    used = power_use(shape(rows, n, k, family="950"), 1.0)
    assert 0 < used <= 0.95
    for larger in (shape(2 * rows, n, k), shape(rows, 2 * n, k), shape(rows, n, 2 * k)):
        assert power_use(larger, 1.0) >= used
    assert power_use(shape(rows, n, k), 2.0) == power_use(shape(2 * rows, n, k), 1.0)


def test_power_law_at_its_knees() -> None:
    """K = 1280 and a harmonic half-mean of 820 give 0.75; both beyond 1.4 are capped at 0.95."""
    assert power_use(shape(1640, 1640, 1280), 1.0) == pytest.approx(0.75)
    assert power_use(shape(10**5, 10**5, 10**5), 1.0) == 0.95
