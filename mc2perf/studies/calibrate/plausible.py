"""Rows that cannot be true on a machine: faster than its wires, its cube or its memory, or all the same."""

from __future__ import annotations

import numpy as np

from mc2perf.costs import link_bandwidth
from mc2perf.equations.collectives import PASSES
from mc2perf.fitting.robust import Mask, Numbers
from mc2perf.machine import Machine
from mc2perf.studies.calibrate.result import NotFittedError
from mc2perf.units import counted, show

SLACK = 1.02
"""Data sheets and clocks are rounded."""
FEW = 0.1
"""Up to this share of impossible rows are single errors, set aside; more, and the table is something else."""
CONSTANT_TIME, CONSTANT_SPAN = 1.001, 16.0
"""Times this close over sizes this far apart come from an emulator."""


def ideal_rate(machine: Machine, ranks: float) -> float:
    """Most that the links of one rank carry towards its group, over all tiers it spans. [B/s]"""
    inner, *outer = machine.tiers.values()
    inside = min(ranks, float(inner.ranks))
    rate = link_bandwidth(inner, inside) if inside > 1 else 0.0
    spanned = [tier for before, tier in zip((inner, *outer), outer, strict=False) if ranks > before.ranks]
    return rate + sum(float(tier.links) * float(tier.link_rate) for tier in spanned)


def wired(machine: Machine, op: str, ranks: float, size: Numbers, time: Numbers) -> Mask:
    """Which times the wires allow.

    Raises
    ------
    NotFittedError
        More than a few are too fast, or all times are the same.
    """
    ideal = ideal_rate(machine, ranks)
    least = PASSES[op] * (ranks - 1.0) / ranks * size / ideal
    reached, has = (show(rate, "B/s") for rate in (float(np.max(least / time)) * ideal, ideal))
    return _few(
        time * SLACK >= least,
        f"faster than the wires: {reached} on the links of a rank, {machine.name} has {has}; "
        "is the size that of the whole array, the number of ranks right?",
    )


def computed(machine: Machine, dtype: str, flops: Numbers, read: Numbers, time: Numbers) -> Mask:
    """Which times cube and memory allow; ``read`` are bytes that L2 cannot hold.

    Raises
    ------
    NotFittedError
        More than a few are too fast.
    """
    peak, bandwidth = float(machine.cube.peak[dtype]), float(machine.memory.bandwidth)
    fastest = show(float(np.max(flops / time)), "FLOP/s")
    streamed = show(float(np.max(read / time)), "B/s")
    on_cube = _few(
        time * SLACK * peak >= flops,
        f"faster than the cube: {fastest}; {machine.name} has {show(peak, 'FLOP/s')} in {dtype}",
    )
    return on_cube & _few(
        time * SLACK * bandwidth >= np.where(read > machine.memory.l2, read, 0.0),
        f"faster than memory: {streamed} of weights; {machine.name} has {show(bandwidth, 'B/s')}",
    )


def varied(size: Numbers, time: Numbers) -> None:
    """Refuse tables of one constant time, and those of fewer than three sizes.

    Raises
    ------
    NotFittedError
        Either of them.
    """
    sizes = len(np.unique(size))
    if sizes < 3:
        raise NotFittedError(f"{counted(sizes, 'size')}; a latency and a rate need at least 3")
    if time.max() <= CONSTANT_TIME * time.min() and size.max() >= CONSTANT_SPAN * size.min():
        raise NotFittedError("every size takes the same time; an emulator printed it")


def rising(what: str, size: Numbers, groups: Numbers, time: Numbers) -> Mask:
    """Which times do not fall far while the work grows.

    Parameters
    ----------
    what : str
        What grows.
    size, groups, time : array, shape (n,)
        What grows, which rows are alike otherwise, and their times. [s]

    Raises
    ------
    NotFittedError
        More than a few take less than half the time of two rows or more with less work.
    """
    less = (groups[:, None] == groups[None, :]) & (size[None, :] < size[:, None])
    slower = less & (time[None, :] > 2.0 * time[:, None])
    fallen = slower.sum(axis=1) >= 2
    at = int(np.argmax(np.where(fallen, size, -np.inf)))
    before = int(np.argmax(np.where(slower[at], time, -np.inf)))
    return _few(
        ~fallen,
        f"faster the more they do: {show(float(time[at]), 's')} at {what} {size[at]:g}, "
        f"{show(float(time[before]), 's')} at {size[before]:g}; they are not what their header says",
    )


def _few(possible: Mask, why: str) -> Mask:
    """The mask, if few rows are impossible."""
    impossible = int((~possible).sum())
    if impossible > max(1.0, FEW * len(possible)):
        raise NotFittedError(f"{impossible} of {len(possible)} rows are {why}")
    return possible
