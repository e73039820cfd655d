"""The numbers CANN's tiling code is written with: its choices, not facts about a machine.

Sizes in MiB (2^20 B), times in us, work in multiply-accumulates (MAC), as in the integer arithmetic of
the source. All from the public repository hicann/ops-transformer: tree c29bc106 (2025-11-15) unless a
table names another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MIB = 2.0**20
MI = 2.0**20
GI = 2.0**30
US = 1e-6
"""One microsecond. [s]"""


class Soc(NamedTuple):
    """What the matmul model knows of a family: MAC/cycle/core by dtype, clock [cycles/us], base block [rows].

    ``align`` rounds tile lengths; ``many_ranks_work`` is the least work of a tile for more than two ranks.
    """

    mac_rate: dict[str, float]
    clock: float
    base_m: float
    base_n: float
    base_k: float
    align: float
    many_ranks_work: float


# mc2/common/inc/tiling/matmul_performance.h:21-33 (rates, clocks), matmul_formulaic_tiling.h:37-39 (base
# block), mc2/common/src/matmul_performance.cpp:50-91 (least work). int8 on A2 is not treated as
# quantised (matmul_performance.h:85-87) and stays at the rate of fp16.
# 950: base block and fp4 rate from the arch35 files, commit 0892d120; reduce-scatter has an fp4 rate of its
# own there, which is not known here.
_CUBE = {"bf16": 4096.0, "fp16": 4096.0, "int8": 4096.0}
_CUBE_950 = {
    "bf16": 4096.0,
    "fp16": 4096.0,
    "int8": 8192.0,
    "fp8": 8192.0,
    "mxfp8": 8192.0,
    "mxfp4": 16384.0,
}
SOCS = {
    "a2": Soc(_CUBE, 1.8 * 1024, 128.0, 256.0, 64.0, 128.0, 10 * GI),
    "a3": Soc(_CUBE, 1.8 * 1024, 128.0, 256.0, 64.0, 128.0, 10 * GI),
    "950": Soc(_CUBE_950, 1.65 * 1024, 256.0, 256.0, 128.0, 256.0, 5 * GI),
}

# mc2/common/src/matmul_performance.cpp:31-33: footprint of the running blocks [MiB] -> share of the peak
L2_PART, L2_FULL = 128.0, 192.0
USE_PART, USE_FULL, USE_OUT = 0.85, 0.75, 0.65

# mc2/common/src/matmul_performance.cpp:132-154, 217-238 and .h:49-55: the 950's power law
POWER_CAP, POWER_SCALE, POWER_TOP = 0.95, 0.75, 1.4
POWER_K, POWER_H = 1280.0, 820.0
POWER_WHOLE, POWER_FRONT = 0.7, 0.6

# mc2/common/src/matmul_performance.cpp:50-91: least work for one or two ranks, on the 20 cores it was
# measured with
FEW_RANKS_WORK, FEW_RANKS_TRAFFIC, FEW_RANKS_CORES = 4 * GI, 6 * MI, 20.0


class HcclFit(NamedTuple):
    """Time of a collective over its size: a line beyond ``b2``, a parabola down to ``b1``, then a floor."""

    slope: float
    offset: float
    b1: float = 0.0
    b2: float = 0.0
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    floor: float = 0.0
    inverse_from: float = 0.0
    """Time above which the line is inverted; below it, ``inverse_vertex``. [us]"""
    inverse_vertex: tuple[float, float, float] | None = None
    """(x0, s, t0) of x = x0 - sqrt(s (t0 - t)), as the source inverts its parabola."""


# mc2/common/src/hccl_performance.cpp:29-45, 183-209
A2_MESH = HcclFit(
    13.58491263,
    61.508333,
    1 / 16,
    8.0,
    -0.9698202,
    27.0622573,
    14.769,
    18.0,
    170.0,
    (13.9522034, 1.03111896, 203.558059),
)
A3_RING = HcclFit(11.38154641, 248.151561, 2.0, 2.0, floor=250.0, inverse_from=250.0)
# cpp:190-192: between floor and line the source divides by a zero constant, so any length fits
MESH_950 = HcclFit(
    2.59568,
    5.8887,
    0.032,
    1.371,
    0.0,
    2.86702,
    5.608,
    5.6997,
    9.448,
    (math.inf, 0.0, 0.0),
)

# mc2/common/.../hccl_performance_arch35.cpp, commit 0892d120: (collective, ranks) -> line
FIT_950 = {
    ("all_gather", 4): HcclFit(5.841842, 8.590666),
    ("reduce_scatter", 4): HcclFit(5.8087, 5.6810),
    ("reduce_scatter", 8): HcclFit(2.642023, 7.700559),
    ("all_to_all", 4): HcclFit(5.8416, 5.8148),
    ("all_to_all", 8): HcclFit(2.5386, 7.6265),
    ("all_reduce", 4): HcclFit(13.3265, 36.1964),
    ("all_reduce", 8): HcclFit(6.1588, 34.8712),
}


class Inflation(NamedTuple):
    """Factors on communication beside a busy cube: L2 overflows, K and N are large, always, and on A3."""

    overflow: float
    large: float
    always: float
    a3: float


# mc2/all_gather_matmul/op_host/op_tiling/all_gather_formulaic_tiling.cpp:71-94,
# mc2/matmul_reduce_scatter/op_host/reduce_scatter_formulaic_tiling.cpp:19-35
INFLATION = {
    "all_gather": Inflation(3.0, 1.5, 1.15, 0.6),
    "reduce_scatter": Inflation(1.5, 1.2, 1.15, 0.6),
}
LARGE_K, LARGE_N = 8192.0, 5120.0
# mc2/matmul_all_reduce/op_host/op_tiling/all_reduce_formulaic_tiling.cpp:20-31, hccl_formulaic_tiling.h:40-41
ALL_REDUCE_A2, ALL_REDUCE_950, ALL_GATHER_950 = 1.15, 2.0517, 2.0
# mc2/matmul_allto_all/op_host/op_tiling/common/allto_all_formulaic_tiling.cpp, commit 0892d120
ALL_TO_ALL_A3, ALL_TO_ALL_950, ALL_TO_ALL_950_MATMUL = 1.35, 2.0, 1.5

# mc2/common/src/hccl_formulaic_tiling.cpp, h:24-42, h:131; hccl_performance.h:21
MAX_TILES, FEW_TILES = 16, 8
SHORT_RATIO = 0.75
SMALL_SHAPE = 2048.0
LARGE_NK = 32 * MI
LARGE_TILE = 1024.0
LEAST_MESSAGE = 64 * 1024.0
"""Smallest efficient message. [B]"""
LEAST_OUTPUT = 4 * MI
"""Elements of output below which a matmul loses efficiency."""
LARGE_OPERANDS = 128.0
"""Both matmul inputs together, above which the 950 takes longer tiles. [MiB]"""


class ExchangeFit(NamedTuple):
    """Lines of all-to-all + matmul on the 950: matmul [us per MiMAC and core; us], bytes that travel."""

    slope: float
    offset: float
    size: float


# mc2/matmul_allto_all/.../arch35/allto_all_matmul_fit_balance_tiling.cpp, commits 0892d120 and 0f8615d.
# int8 and fp8 are quantised per token after the exchange, so bf16 travels.
EXCHANGE_950 = {
    "bf16": ExchangeFit(0.1792226, 15.095, 2.0),
    "fp16": ExchangeFit(0.1792226, 15.095, 2.0),
    "int8": ExchangeFit(0.0993, 18.71, 2.0),
    "fp8": ExchangeFit(0.0993, 18.71, 2.0),
    "mxfp8": ExchangeFit(0.0894435, 15.14, 1.0),
    "mxfp4": ExchangeFit(0.046137, 10.97, 0.5),
}
PERMUTE_SLOPE, PERMUTE_OFFSET = 26.75, 9.85
QUANTISE = {4: (88.6523, 9.6494), 8: (81.9156, 9.9191)}
"""Ranks -> line of the per-token quantisation [us per Mi elements and vector core; us]."""
ROUND_COST = {"ccu": (1.0, 10.0), "aicpu": (1.5, 30.0)}
"""Engine -> (factor on communication time, us of it that a round must be worth)."""

# mc2/matmul_allto_all/op_host/op_tiling/arch22/allto_all_matmul_tiling_910b.cpp, commit 0892d120: defaults
# of the look-up table
A2_ROUND_BLOCK = 128.0
A2_ROUND_BLOCKS = {2: 14.0, 4: 12.0, 8: 12.0}
