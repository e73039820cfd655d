"""The expert path as two fused halves: dispatch with the first matmul, the second with combine."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.overlap import Overlap
from mc2perf.schedules.stages import Conditions, in_two_stages, in_unequal_pieces
from mc2perf.schedules.timing import Timing, exact, memory_of, serial
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, Segment, launch_of, work_of


def experts_mc2(path: ExpertPath, on: Conditions) -> Timing:
    """Two fused halves, one piece per local expert: dispatch + FFN1, then FFN2 + combine."""
    whole, one = path.build(1.0, False), path.build(path.by_expert, True)
    shared = work_of(whole.beside)
    half = _half if np.ndim(path.by_expert) == 0 else _unequal_half
    first = half(whole.comm_in, one.comm_in, one.first, path.experts_per_rank, shared, on, 1)
    second = half(whole.comm_out, one.comm_out, one.second, path.experts_per_rank, 0.0, on, -1)
    rest = serial((*whole.before, *whole.middle, *whole.after, *whole.weight_grads))
    beside = Timing(
        *(launch_of(whole.beside),) * 2, 0.0, launch_of(whole.beside), 0.0, memory_of(whole.beside), 0.0
    )
    return exact(first + second + rest + beside)


def _half(
    whole: Segment, comm: Segment, matmul: Segment, pieces: int, head: Num, on: Conditions, order: int
) -> Timing:
    """One fused half of the expert path; read backwards (``order`` -1) it is the same."""
    # all exchanges of the local experts are issued up front: every piece has its buffer, so that no barrier
    # keeps the cube waiting, and what a round costs lies on the links
    sent = comm.cost.work + (on.round_cost if pieces > 1 else 0.0)
    compute = matmul.cost.work
    overlap = in_two_stages(matmul.name, sent, compute, float(pieces), head, float(max(pieces, 2)), on)
    sums = pieces * compute + head, pieces * sent, pieces * matmul.cost.memory
    return _launched_half(overlap, *sums, matmul.cost.launch, whole.cost.launch)


def _unequal_half(
    whole: Segment, comm: Segment, matmul: Segment, pieces: int, head: Num, on: Conditions, order: int
) -> Timing:
    """A half whose experts differ in load: the pieces of each are its own, along the first axis."""
    # what a round costs lies on the links, as in `_half`
    sent = comm.cost.work + (on.round_cost if np.shape(matmul.cost.work)[0] > 1 else 0.0)
    sums = in_unequal_pieces(matmul.name, sent, matmul.cost.work, matmul.cost.memory, head, on, order)
    return _launched_half(*sums, matmul.cost.launch, whole.cost.launch)


def _launched_half(overlap: Overlap, compute: Num, comm: Num, memory: Num, launch: Num, send: Num) -> Timing:
    """The host launches a fused half once, and the whole exchange once."""
    return Timing(
        overlap.total + launch + send,
        compute + launch,
        comm + send,
        overlap.busy_compute + launch,
        overlap.exposed_comm + send,
        memory,
        1.0,
    )
