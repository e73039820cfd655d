"""Units: every accepted spelling against a number written out here, what is refused, and printing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mc2perf.units import (
    COMPUTE,
    COUNT,
    CURVATURE,
    FACTOR,
    NUMBER,
    RATE,
    RATIO,
    SIZE,
    SLOPE,
    SPELLINGS,
    TIME,
    WIDTH,
    Dim,
    parse,
    show,
)

TIMES = {"s": 1.0, "ms": 0.001, "us": 0.000001, "µs": 0.000001, "ns": 0.000000001}
SIZES = {
    "B": 1.0, "kB": 1000.0, "KB": 1000.0, "MB": 1000000.0, "GB": 1000000000.0, "TB": 1000000000000.0,
    "PB": 1000000000000000.0, "KiB": 1024.0, "MiB": 1048576.0, "GiB": 1073741824.0, "TiB": 1099511627776.0,
}  # fmt: skip
RATES = {
    "B/s": 1.0, "kB/s": 1000.0, "KB/s": 1000.0, "MB/s": 1000000.0, "GB/s": 1000000000.0,
    "TB/s": 1000000000000.0, "PB/s": 1000000000000000.0,
    "KiB/s": 1024.0, "MiB/s": 1048576.0, "GiB/s": 1073741824.0, "TiB/s": 1099511627776.0,
    "kbit/s": 125.0, "Mbit/s": 125000.0, "Gbit/s": 125000000.0, "Tbit/s": 125000000000.0,
    "kbps": 125.0, "Mbps": 125000.0, "Gbps": 125000000.0, "Tbps": 125000000000.0,
    "Kb/s": 125.0, "Mb/s": 125000.0, "Gb/s": 125000000.0, "Tb/s": 125000000000.0,
}  # fmt: skip
COMPUTES = {
    "FLOP/s": 1.0, "FLOPS": 1.0, "OP/s": 1.0, "OPS": 1.0,
    "GFLOP/s": 1000000000.0, "GFLOPS": 1000000000.0, "GOP/s": 1000000000.0, "GOPS": 1000000000.0,
    "TFLOP/s": 1000000000000.0, "TFLOPS": 1000000000000.0, "TOP/s": 1000000000000.0, "TOPS": 1000000000000.0,
    "PFLOP/s": 1000000000000000.0, "PFLOPS": 1000000000000000.0, "POP/s": 1000000000000000.0,
    "POPS": 1000000000000000.0,
}  # fmt: skip
ALL: list[tuple[Dim, dict[str, float]]] = [
    (TIME, TIMES),
    (SIZE, SIZES),
    (RATE, RATES),
    (COMPUTE, COMPUTES),
    (SLOPE, {f"{time}/{size}": t / s for time, t in TIMES.items() for size, s in SIZES.items()}),
    (CURVATURE, {f"{time}/{size}^2": t / s / s for time, t in TIMES.items() for size, s in SIZES.items()}),
]


def test_the_literals_here_name_every_spelling_and_no_other() -> None:
    assert {dim.symbol: set(units) for dim, units in ALL} | {"1": set()} == {
        symbol: set(units) for symbol, units in SPELLINGS.items()
    }


@pytest.mark.parametrize(
    ("dim", "spelling", "value"),
    [(dim, spelling, value) for dim, units in ALL for spelling, value in units.items()],
    ids=str,
)
def test_every_spelling(dim: Dim, spelling: str, value: float) -> None:
    for text in (f"0.5 {spelling}", f"0.5{spelling}", f" .5  {spelling} ", f"5e-1 {spelling}"):
        assert parse(text, replace(dim, tiny=0.0)) == pytest.approx(0.5 * value, rel=1e-15, abs=0)


@pytest.mark.parametrize(
    ("text", "dim", "value"),
    [
        ("28 GB/s", RATE, 28e9),
        ("200 Gbit/s", RATE, 25e9),
        ("353.9 TFLOP/s", COMPUTE, 353.9e12),
        ("64 GiB", SIZE, 68719476736.0),
        ("13.58491263 us/MiB", SLOPE, 13.58491263e-6 / 1048576),
        ("-0.97 us/MiB^2", CURVATURE, -0.97e-6 / 1048576**2),
        ("0 us", TIME, 0.0),
        (0.85, RATIO, 0.85),
        (1, RATIO, 1.0),
        ("+8", COUNT, 8.0),
        (8, COUNT, 8.0),
        (np.int64(8), COUNT, 8.0),
        (np.float32(0.5), RATIO, 0.5),
        ("1e3", COUNT, 1000.0),
        (0, WIDTH, 0.0),
        ("1.5", FACTOR, 1.5),
    ],
)
def test_values(text: object, dim: Dim, value: float) -> None:
    assert parse(text, dim) == pytest.approx(value, rel=1e-15, abs=0)


BITS = "write GB/s (bytes) or Gbit/s (bits)"
REFUSED = [
    ("28 gb/s", RATE, f"'28 gb/s': unit 'gb/s' is unknown or ambiguous; {BITS}"),
    ("28 GB/S", RATE, f"'28 GB/S': unit 'GB/S' is unknown or ambiguous; {BITS}"),
    ("28 mb/s", RATE, "'28 mb/s': unit 'mb/s' is unknown or ambiguous; write MB/s (bytes) or Mbit/s (bits)"),
    ("2 tb/s", RATE, "'2 tb/s': unit 'tb/s' is unknown or ambiguous; write TB/s (bytes) or Tbit/s (bits)"),
    ("28 G", RATE, "'28 G': unit 'G' is unknown or ambiguous; write GB, GB/s or GFLOP/s"),
    ("28 M", SIZE, "'28 M': unit 'M' is unknown or ambiguous; write MB, MB/s or ms"),
    ("28 T", COMPUTE, "'28 T': unit 'T' is unknown or ambiguous; write TB/s or TFLOP/s"),
    ("28 k", SIZE, "'28 k': unit 'k' is unknown or ambiguous; write KiB or kB"),
    ("28 furlong", SIZE, "'28 furlong': unit 'furlong' is unknown or ambiguous; write for example 64 GiB"),
    ("28 GB", RATE, "'28 GB' is in B, expected B/s"),
    ("28 us", SIZE, "'28 us' is in s, expected B"),
    ("28 GB/s", COMPUTE, "'28 GB/s' is in B/s, expected FLOP/s"),
    ("28 us/MiB", CURVATURE, "'28 us/MiB' is in s/B, expected s/B^2"),
    ("28", RATE, "'28' has no unit; write for example 28 GB/s"),
    (28, TIME, "'28' has no unit; write for example 1.5 us"),
    ("fast", RATE, "'fast' is not a bandwidth; write for example 28 GB/s"),
    ("", TIME, "'' is not a time; write for example 1.5 us"),
    ("1.2.3 s", TIME, "'1.2.3 s' is not a time; write for example 1.5 us"),
    ("1_000", COUNT, "'1_000' is not a whole number of at least 1; write a bare number such as 8"),
    ("1\n2", COUNT, "'1\\n2' is not a whole number of at least 1; write for example 8"),
    (None, COUNT, "None is not a whole number of at least 1; write for example 8"),
    (True, COUNT, "True is not a whole number of at least 1; write for example 8"),
    ([1], COUNT, "[1] is not a whole number of at least 1; write for example 8"),
    ("nan", RATIO, "'nan' is not a finite number"),
    ("inf GB/s", RATE, "'inf GB/s' is not a finite number"),
    ("-inf us/MiB^2", CURVATURE, "'-inf us/MiB^2' is not a finite number"),
    ("1e999 B", SIZE, "'1e999 B' is not a finite number"),
    (math.nan, COUNT, "'nan' is not a finite number"),
    ("-1 us", TIME, "'-1 us' is too small for a time; write 0, or 1e-06 ns to 1e+06 s"),
    ("0 GB/s", RATE, "'0 GB/s' is too small for a bandwidth; write 1000 B/s to 1e+06 TB/s"),
    ("0", NUMBER, "'0' is too small for a positive number; write 1e-09 to 1e+18"),
    (0.99, FACTOR, "'0.99' is too small for a factor of at least 1"),
    ("1e9 s", TIME, "'1e9 s' is too large for a time; write 0, or 1e-06 ns to 1e+06 s"),
    ("1e9 GB/s", RATE, None),
    ("1e10 GB/s", RATE, "'1e10 GB/s' is too large for a bandwidth; write 1000 B/s to 1e+06 TB/s"),
    (1.5, COUNT, "'1.5' is not a whole number of at least 1"),
    (1e13, COUNT, "'10000000000000.0' is too large for a whole number of at least 1"),
    (-1, WIDTH, "'-1' is too small for a whole number of at least 0"),
    # percentages
    (85, RATIO, "'85' is too large for a ratio in (0, 1]; write 0.85, not per cent"),
    (1.5, RATIO, "'1.5' is too large for a ratio in (0, 1]; write 0.015, not per cent"),
    (150, RATIO, "'150' is too large for a ratio in (0, 1]; write 1e-06 to 1"),
    ("80 %", RATIO, "'80 %' is not a ratio in (0, 1]; write a ratio between 0 and 1, such as 0.8"),
    ("150%", FACTOR, "'150%' is not a factor of at least 1; write a factor such as 1.5"),
    ("50 %", COUNT, "'50 %' is not a whole number of at least 1; write a bare number such as 8"),
    ("50 %", NUMBER, "'50 %' is not a positive number; write a bare number such as 1.5"),
    ("8 GB", COUNT, "'8 GB' is not a whole number of at least 1; write a bare number such as 8"),
]


@pytest.mark.parametrize(("value", "dim", "message"), REFUSED, ids=lambda part: repr(part)[:40])
def test_refusals(value: object, dim: Dim, message: str | None) -> None:
    if message is None:
        parse(value, dim)
        return
    with pytest.raises(ValueError) as refused:
        parse(value, dim)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("value", "symbol", "text"),
    [
        (0.0, "s", "0 s"),
        (1.7118, "s", "1.712 s"),
        (0.00159, "s", "1.59 ms"),
        (5e-6, "s", "5 us"),
        (2e-9, "s", "2 ns"),
        (2e-12, "s", "0.002 ns"),
        (-0.002, "s", "-2 ms"),
        (2.8e10, "B/s", "28 GB/s"),
        (1.6e12, "B/s", "1.6 TB/s"),
        (353.9e12, "FLOP/s", "353.9 TFLOP/s"),
        (1048576.0, "B", "1 MiB"),
        (512.0, "B", "512 B"),
        (1e-6 / 1048576, "s/B", "1 us/MiB"),
        (-1e-6 / 1048576**2, "s/B^2", "-1 us/MiB^2"),
        (0.85, "1", "0.85"),
    ],
)
def test_show(value: float, symbol: str, text: str) -> None:
    assert show(value, symbol) == text


@given(value=st.floats(1e-9, 1e5), dim=st.sampled_from([TIME, SIZE, RATE, COMPUTE]))
def test_what_is_shown_reads_back(value: float, dim: Dim) -> None:
    assert parse(show(value, dim.symbol, 17), replace(dim, tiny=0.0)) == pytest.approx(value, rel=1e-14)
