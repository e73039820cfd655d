"""Kernels that stay apart: a pair in parts (CoC), micro-batches of experts, two batches half a step apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mc2perf.equations import overlap as overlapping
from mc2perf.schedules.stages import Conditions, in_three_stages, in_two_stages
from mc2perf.schedules.timing import Timing, exact, memory_of, serial
from mc2perf.units import Num
from mc2perf.workload.parts import (
    ExpertPath,
    Pair,
    Part,
    all_segments,
    in_turns,
    is_weight_gradient,
    launches_of,
    reads_of,
    time_of,
)


def pair_parts(pair: Pair, pieces: Num, on: Conditions) -> Timing:
    """CoC: the same pipeline of separate kernels, every piece launched by the host."""
    once, p = pair.build(1.0, False), pair.build(pieces, False)
    compute, comm = time_of(p.compute, "compute"), p.comm.cost.time
    overlap = in_two_stages(pair.name, comm, compute, pieces, 0.0, on.buffers, on)
    fused = Timing(
        overlap.total,
        pieces * compute,
        pieces * comm,
        overlap.busy_compute,
        overlap.exposed_comm,
        pieces * memory_of(p.compute),
        pieces * launches_of((*p.compute, p.comm)),
    )
    return exact(serial(once.prefix) + fused + serial(once.after))


def experts_micro_batch(path: ExpertPath, pieces: Num, on: Conditions) -> Timing:
    """Micro-batches through dispatch, experts, combine; both communications share one engine.

    Weight gradients need nothing of the path's order: they are computed once, for the whole batch, after it.
    """
    whole, p = path.build(1.0, False), path.build(pieces, False)
    shared = time_of(whole.beside, "compute")
    inner = (*p.before, p.first, *p.middle, p.second, *p.after)
    dispatch = time_of((*p.before, p.comm_in), "comm")
    combine = p.comm_out.cost.time
    experts = time_of(inner, "compute") + np.where(np.greater(pieces, 1.0), on.round_cost, 0.0)
    overlap = in_three_stages(dispatch, experts, combine, pieces, shared, on)
    count = launches_of((*inner, p.comm_in, p.comm_out))
    memory = pieces * memory_of(inner) + memory_of(whole.beside)
    timing = Timing(
        overlap.total, pieces * experts + shared, pieces * (dispatch + combine), overlap.busy_compute,
        overlap.exposed_comm, memory, pieces * count + launches_of(whole.beside),
        reads=pieces * reads_of(inner),
    )  # fmt: skip
    return exact(timing + serial(whole.weight_grads))


def dual_batch(parts: Sequence[Part], share: float, on: Conditions, put_off: bool = False) -> Timing:
    """Two batches half a step apart through the parts of a layer, per one whole batch.

    ``share`` is 1 for two whole micro-batches (training), 2 for the two halves of one batch (prefill).
    Weight gradients that are ``put_off`` cover nothing.
    """
    every = tuple(s for part in parts for s in all_segments(part, share))
    segments = tuple(s for s in every if not (put_off and is_weight_gradient(s)))
    later = serial(tuple(s for s in every if put_off and is_weight_gradient(s)))
    compute, comm = (
        [sum((s.cost.time for s in turn), 0.0) for turn in turns] for turns in in_turns(segments)
    )
    overlap = overlapping.lockstep(compute, comm, on.comm_slowdown, on.compute_slowdown)
    per_batch = share / 2.0
    timing = Timing(
        overlap.total, 2.0 * sum(compute), 2.0 * sum(comm), overlap.busy_compute, overlap.exposed_comm,
        2.0 * memory_of(segments), 2.0 * launches_of(segments), reads=2.0 * reads_of(segments),
    )  # fmt: skip
    return exact(timing.times(per_batch) + later.times(share))
