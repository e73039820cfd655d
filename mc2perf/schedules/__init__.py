"""Schedules: how the communication of a part is laid over computation, and what that takes.

Every schedule turns a part into a :class:`Timing`; the number of pieces may be an array.
"""

from __future__ import annotations

from mc2perf.schedules.fused import (
    fused_timing,
    makespan_in_tiles,
    pair_by_expert,
    pair_in_tiles,
    pair_mc2,
    pieces_of_experts,
)
from mc2perf.schedules.fused_experts import experts_mc2
from mc2perf.schedules.separate import dual_batch, experts_micro_batch, pair_parts
from mc2perf.schedules.stages import Conditions
from mc2perf.schedules.timing import NOTHING, Timing, pair_serial, scalar, serial

__all__ = [
    "NOTHING", "Conditions", "Timing", "dual_batch", "experts_mc2", "experts_micro_batch", "fused_timing",
    "makespan_in_tiles", "pair_by_expert", "pair_in_tiles", "pair_mc2", "pair_parts", "pair_serial",
    "pieces_of_experts", "scalar", "serial",
]  # fmt: skip
