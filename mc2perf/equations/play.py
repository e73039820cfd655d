"""Pieces played one by one: the max-plus recurrence behind every closed form, and what timelines draw."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.units import Num


class Played(NamedTuple):
    """When every stage of every piece starts and ends, shape (..., pieces, stages). [s]"""

    starts: NDArray[np.floating[Any]]
    ends: NDArray[np.floating[Any]]


def three_stage_recurrence(dispatch: Num, experts: Num, combine: Num, pieces: Num, buffers: Num) -> Num:
    """The same makespan by playing the pieces: the max-plus recurrence over all rows at once.

    The engine keeps ``min(B, n)`` pieces in flight: D1 .. DB, then C1 D(B+1) C2 D(B+2) ... Checks
    :func:`three_stage_time`, which is equal and has no loop.

    Parameters
    ----------
    dispatch, experts, combine, pieces, buffers : number or array
        As in :func:`three_stage_time`; broadcast together.

    Returns
    -------
    number or array
        Makespan. [s]

    Examples
    --------
    >>> float(three_stage_recurrence(1.0, 4.0, 1.0, 4.0, 2.0))
    18.0
    """
    d, e, c, n, depth = np.broadcast_arrays(dispatch, experts, combine, pieces, np.minimum(buffers, pieces))
    engine = np.zeros(d.shape)
    cube = np.zeros(d.shape)
    most = int(np.max(n))
    computed = np.zeros((most, *d.shape))
    # Steps of the engine: B dispatches, then combine i and dispatch i + B in turn.
    for dispatched in range(most):
        first_ones = dispatched < depth
        combined = np.maximum(dispatched - depth, 0).astype(int)
        done = np.take_along_axis(computed, combined[None], axis=0)[0]
        after_combine = np.maximum(engine, done) + c
        start = np.where(first_ones, engine, after_combine)
        active = dispatched < n
        engine = np.where(active, start + d, engine)
        cube = np.where(active, np.maximum(cube, engine) + e, cube)
        computed[dispatched] = cube
    for left in range(int(np.max(depth))):
        piece = np.clip(n - depth + left, 0, most - 1).astype(int)
        done = np.take_along_axis(computed, piece[None], axis=0)[0]
        engine = np.where(left < depth, np.maximum(engine, done) + c, engine)
    return engine


def ring_order(pieces: int, stages: int, buffers: int) -> list[tuple[int, int]]:
    """Steps in the order of a ring: start a piece as soon as the piece B before it has left.

    Parameters
    ----------
    pieces, stages, buffers : int
        At least 1, 2 and 1.

    Returns
    -------
    list of (piece, stage)
        The last stage of piece i - B, then all but the last stage of piece i.

    Examples
    --------
    >>> [f"{'DEC'[stage]}{piece + 1}" for piece, stage in ring_order(3, 3, 2)]
    ['D1', 'E1', 'D2', 'E2', 'C1', 'D3', 'E3', 'C2', 'C3']
    """
    last, steps = stages - 1, []
    for piece in range(pieces + buffers):
        steps += [(piece - buffers, last)] if 0 <= piece - buffers < pieces else []
        steps += [(piece, stage) for stage in range(last)] if piece < pieces else []
    return steps


def play(
    durations: NDArray[np.floating[Any]],
    engine_of_stage: Sequence[Hashable],
    order: Sequence[tuple[int, int]],
    buffers: int,
) -> Played:
    """Play pieces through stages one by one: the max-plus recurrence behind every closed form.

    A step starts when its engine is free, the piece's stage before has ended and, for a first stage,
    the piece B before has left its last: ``start = max(...)``, ``end = start + duration``.

    Parameters
    ----------
    durations : array, shape (..., pieces, stages)
        Time of every step; leading axes are configurations. A piece that a configuration lacks is 0
        at the end. [s]
    engine_of_stage : sequence
        The engine of each stage; stages that name the same one share it.
    order : sequence of (piece, stage)
        Every step once, after those it waits for (else NaN); each engine serves its steps in it.
    buffers : int
        Ring of B: held from the start of a piece's first stage to the end of its last.

    Returns
    -------
    Played
        Starts and ends; the makespan is the largest end. [s]

    References
    ----------
    Baccelli, Cohen, Olsder, Quadrat, "Synchronization and Linearity", 1992.

    Examples
    --------
    >>> times = np.tile([1.0, 4.0, 1.0], (4, 1))
    >>> float(play(times, ["comm", "cube", "comm"], ring_order(4, 3, 2), 2).ends.max())
    18.0
    """
    ends, starts = np.full(np.shape(durations), np.nan), np.full(np.shape(durations), np.nan)
    free: dict[Hashable, Any] = dict.fromkeys(engine_of_stage, np.zeros(ends.shape[:-2]))
    for piece, stage in order:
        ready = free[engine_of_stage[stage]]
        if stage or piece >= buffers:
            ready = np.maximum(
                ready, ends[..., piece, stage - 1] if stage else ends[..., piece - buffers, -1]
            )
        starts[..., piece, stage] = ready
        free[engine_of_stage[stage]] = ends[..., piece, stage] = ready + durations[..., piece, stage]
    return Played(starts, ends)
