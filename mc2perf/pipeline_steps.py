"""The steps of a pipeline: what every device does in order, what waits for what, what is kept at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from mc2perf.equations.stage_order import Work, most_held
from mc2perf.equations.stage_play import Turn, turns
from mc2perf.pipelines import LEAST_PER_DEVICE, Pipeline
from mc2perf.units import Num


@lru_cache(maxsize=64)
def order_of(pipeline: Pipeline, pp: float, n_mb: int) -> list[list[Work]]:
    """Steps of every device that differs.

    Examples
    --------
    >>> from mc2perf.pipelines import PIPELINES
    >>> [len(steps) for steps in order_of(PIPELINES["zb-h1"], 2.0, 4)]
    [12, 12]
    """
    assert pipeline.order is not None
    devices = pipeline.devices(pp)
    return [pipeline.order(i, devices, n_mb // pipeline.copies) for i in range(devices)]


@lru_cache(maxsize=64)
def turns_of(pipeline: Pipeline, pp: float, n_mb: int) -> list[Turn]:
    """Steps of all devices, each after those that it waits for."""
    held = pipeline.held(pp)
    route = {stage: (device, chunk) for device, of in enumerate(held) for chunk, stage in enumerate(of)}
    return turns(order_of(pipeline, pp, n_mb), [route[stage] for stage in sorted(route)])


@lru_cache(maxsize=1024)
def held_at_once(pipeline: Pipeline, pp: float, device: int, n_mb: float) -> list[tuple[int, int]]:
    """Micro-batches of each chunk that a device keeps at once; more do not change it from two a device on."""
    few = min(n_mb, LEAST_PER_DEVICE * pp)
    return most_held(order_of(pipeline, pp, pipeline.legal(pp, few))[device])


def at_each(n_mb: Num, value: Callable[[float], Num]) -> Num:
    """A value for every number of micro-batches, row by row.

    Examples
    --------
    >>> at_each(np.array([2.0, 3.0, 2.0]), lambda n: 10.0 * n).tolist()
    [20.0, 30.0, 20.0]
    """
    numbers = np.unique(n_mb)
    values = [value(float(n)) for n in numbers]
    if len(values) == 1:
        return values[0]
    picked: Num = np.select([np.asarray(n_mb) == n for n in numbers], values)
    return picked
