"""The cube of a machine: cores, peaks, and the rules that say how much of a peak a dense matmul reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mc2perf.units import Bytes, Count, Factor, FlopsPerSecond, Number, Ratio, Seconds


@dataclass(frozen=True, kw_only=True)
class Block:
    """Base block of the cube's tiling: rows, columns, depth [elements]."""

    m: Count
    n: Count
    k: Count


@dataclass(frozen=True, kw_only=True)
class ConstantRule:
    """One utilisation of the cube peak, whatever the size, times block-round occupancy.

    ``of_dtype`` has that of element types that reach another share of their peak.
    """

    form: Literal["constant"]
    utilisation: Ratio
    of_dtype: dict[str, Ratio] = field(default_factory=dict)
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class L2StepsRule:
    """CANN's A2/A3 rule: own rate per core, three utilisations by L2 footprint, ``min(blocks, C)/C``."""

    form: Literal["l2_steps"]
    rate_per_core: dict[str, FlopsPerSecond]
    part_size: Bytes
    full_size: Bytes
    part: Ratio
    full: Ratio
    out: Ratio
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class PowerRule:
    """CANN's first 950 rule: own rate per core, a power law in k and in mn/(m+n)."""

    form: Literal["power"]
    rate_per_core: dict[str, FlopsPerSecond]
    base: Ratio
    k_half: Number
    mn_half: Number
    exponent: Number
    gain_cap: Factor
    cap: Ratio
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class LinearRule:
    """CANN's 950 fit-balance rule: one effective rate per core and dtype, plus a fixed launch."""

    form: Literal["linear"]
    rate_per_core: dict[str, FlopsPerSecond]
    launch: dict[str, Seconds]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a utilisation curve: work [FLOP] and utilisation of the cube peak."""

    work: Number
    utilisation: Ratio


@dataclass(frozen=True, kw_only=True)
class CurveRule:
    """Utilisation interpolated over the work of the matmul, times block-round occupancy."""

    form: Literal["curve"]
    points: tuple[Point, ...]
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class KneeRule:
    """Two roofs with a rounded corner; weights re-read, narrow or small ones stream at other rates.

    ``resident`` is the share of L2 well below which weights arrive faster than from memory;
    ``contraction`` is what one core needs per element of the contraction, however few results there are.
    """

    form: Literal["knee"]
    utilisation: dict[str, Ratio]
    memory_efficiency: Ratio
    knee: Factor
    reread: Ratio
    block_rows: Number
    narrow_columns: Number
    resident: Ratio
    contraction: Seconds
    launch: Seconds


MatmulRule = ConstantRule | L2StepsRule | PowerRule | LinearRule | CurveRule | KneeRule


@dataclass(frozen=True, kw_only=True)
class Work:
    """Least and most work that a fit has seen. [FLOP]"""

    smallest: Number
    largest: Number


@dataclass(frozen=True, kw_only=True)
class Cube:
    """The matrix engine of one rank: cores, peak by dtype, base block and the utilisation rules.

    ``served`` is the same for the prefill of a served model, whose kernels are issued one by one;
    ``sustained`` is the share of the speed of single kernels that whole training steps keep up: clocks under
    load, gaps between kernels. It is fitted to step times, and never mixed with the speed of one matmul.
    ``fitted_work`` is the work of the matmuls that a rule was fitted to, where it says so.
    """

    cores: Count
    peak: dict[str, FlopsPerSecond]
    base_block: Block
    rule: str
    rules: dict[str, MatmulRule]
    sustained: Ratio = 1.0
    served: Ratio = 1.0
    fitted_work: dict[str, Work] = field(default_factory=dict)
