"""Weight gradients of many micro-batches summed: by the matmul that makes them, or by a pass of its own."""

from __future__ import annotations

from mc2perf.costs import Costs
from mc2perf.units import Num
from mc2perf.workload.parts import Segment, Segments

FUSED_GRADIENT_BYTES = 8.0
"""A matmul that adds to a float32 gradient reads and writes it. [B]"""


APART_GRADIENT_BYTES = 10.0
"""A gradient of 16 bit is read again, one of float32 read and written (Megatron-LM, without fusion). [B]"""


def summed_apart(costs: Costs, fused: bool, name: str, weights: Num) -> Segments:
    """A pass that adds a weight gradient to those of the micro-batches before."""
    if fused:
        return ()
    label = f"{name} added"
    return (Segment(label, "compute", costs.vector(label, weights * APART_GRADIENT_BYTES)),)
