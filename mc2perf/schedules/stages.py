"""Pieces through two or three stages under the engines of a machine: equal ones, or unequal ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import numpy as np

from mc2perf.equations import overlap as overlapping
from mc2perf.equations import three_stages
from mc2perf.equations.overlap import Overlap, Paths
from mc2perf.equations.three_stages import ThreeStagePaths
from mc2perf.equations.unequal import unequal_pieces
from mc2perf.machine.links import Engine
from mc2perf.units import Num


@dataclass(frozen=True)
class Conditions:
    """What the engines under a schedule say: slow-down factors, cost of a round; buffers; who runs."""

    comm_slowdown: float
    compute_slowdown: float
    round_cost: float
    buffers: float
    run: Callable[..., Any]

    @classmethod
    def of(cls, engines: Sequence[Engine], buffers: float, run: Callable[..., Any]) -> Conditions:
        """The worst of every engine that a group of ranks uses."""
        return cls(
            _worst([e.comm_under_compute for e in engines]),
            _worst([e.compute_under_comm for e in engines]),
            _worst([e.round_cost for e in engines]),
            buffers,
            run,
        )


def _worst(numbers: Sequence[float]) -> float:
    """The largest number; row by row where the numbers of a machine are columns."""
    if not any(map(np.ndim, numbers)):
        return max(numbers)
    largest: Any = reduce(np.maximum, numbers)
    return cast(float, largest)


def in_two_stages(
    name: str, comm: Num, compute: Num, pieces: Num, beside: Num, buffers: float, on: Conditions
) -> Overlap:
    """Pieces through communication and computation; ``beside`` needs no communication.

    Whichever comes first: read backwards, one order is the other.
    """
    if on.buffers <= 1:
        return Overlap(pieces * (comm + compute) + beside, pieces * compute + beside, pieces * comm)
    paths: Paths = on.run(
        f"{name}: paths", overlapping.two_stage_paths,
        comm=comm, compute=compute, pieces=pieces, head=beside, buffers=buffers,
        comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
    )  # fmt: skip
    sent = pieces * comm
    overlap: Overlap = on.run(
        f"{name}: makespan", overlapping.longest_path,
        **paths._asdict(), work=sent + pieces * compute + beside, comm=sent,
    )  # fmt: skip
    return overlap


def in_three_stages(
    dispatch: Num, experts: Num, combine: Num, pieces: Num, beside: Num, on: Conditions
) -> Overlap:
    """Pieces through dispatch, experts and combine; ``beside`` needs no communication."""
    depth = np.minimum(on.buffers, pieces)
    f, g = on.comm_slowdown, on.compute_slowdown
    paths: ThreeStagePaths = on.run(
        "experts: paths", three_stages.three_stage_paths,
        dispatch=dispatch, experts=experts, combine=combine, pieces=pieces, depth=depth, beside=beside,
        covered_comm=on.run("cost of covered transfers", three_stages.covering_cost,
                            slowdown=f, slowdown_of_critical=g),
        covered_compute=on.run("cost of covered computation", three_stages.covering_cost,
                               slowdown=g, slowdown_of_critical=f),
        pace=g / f,
    )  # fmt: skip
    sent = pieces * (dispatch + combine)
    overlap: Overlap = on.run(
        "experts: makespan", three_stages.three_stage_overlap,
        **paths._asdict(), pieces=pieces, depth=depth, work=sent + pieces * experts + beside, comm=sent,
    )  # fmt: skip
    return overlap


def in_unequal_pieces(
    name: str, sent: Num, compute: Num, memory: Num, head: Num, on: Conditions, order: int
) -> tuple[Overlap, Num, Num, Num]:
    """Makespan of unequal pieces; sums of computation, transfers and memory-bound time.

    Every piece, along the first axis, has its buffer. ``order`` is -1 where transfers come last.
    """
    compute, sent, memory = np.broadcast_arrays(compute, sent, memory)
    sums = compute.sum(axis=0) + head, sent.sum(axis=0), memory.sum(axis=0)
    if on.buffers <= 1:
        return Overlap(sums[0] + sums[1], sums[0], sums[1]), *sums
    overlap: Overlap = on.run(
        f"{name}: makespan of unequal pieces", unequal_pieces,
        comm=sent[::order], compute=compute[::order], head=head,
        comm_slowdown=on.comm_slowdown, compute_slowdown=on.compute_slowdown,
    )  # fmt: skip
    return overlap, *sums
