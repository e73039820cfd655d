"""Pipelines: how micro-batches go through the stages of a training step, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from mc2perf.equations.stage_order import Work, dualpipe, most_held, zb_h1
from mc2perf.units import Num

if TYPE_CHECKING:  # --help reads the names of pipelines only, and does without NumPy
    from mc2perf.equations.stage_play import Turn

LEAST_PER_DEVICE = 2.0
"""Micro-batches of every device at least, where forwards run beside backwards (deepseek-ai/DualPipe)."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One way through the stages.

    ``order`` gives the steps of a device, played one by one; without, a closed form holds. ``chunks`` cut the
    layers of a stage, ``copies`` are the devices that hold the same ones; ``pairs`` runs forwards beside
    backwards, and ``interleaves`` cuts a stage by ``vpp``.
    """

    meaning: str
    keeps: str = "1F1B: as many micro-batches in flight as stages follow, itself included"
    order: Callable[[int, int, int], list[Work]] | None = None
    chunks: int = 1
    copies: int = 1
    pairs: bool = False
    interleaves: bool = False

    def stages(self, pp: float) -> int:
        """Parts that the layers of the model are cut into, in order."""
        return int(pp) * self.chunks

    def devices(self, pp: float) -> int:
        """Devices that differ in what they do."""
        return int(pp) // self.copies

    def held(self, pp: float) -> list[tuple[int, ...]]:
        """Stages of every device that differs; of a pipeline folded into a V, one of each half.

        Examples
        --------
        >>> PIPELINES["dualpipe"].held(4.0), PIPELINES["dualpipev"].held(2.0), PIPELINES["1f1b"].held(2.0)
        ([(0, 3), (1, 2)], [(0, 3), (1, 2)], [(0,), (1,)])
        """
        last = self.stages(pp) - 1
        return [(i, last - i) if self.chunks * self.copies > 1 else (i,) for i in range(self.devices(pp))]

    def least(self, pp: float) -> float:
        """Micro-batches at least."""
        return LEAST_PER_DEVICE * pp if self.pairs else 1.0

    def legal(self, pp: float, n_mb: float) -> int:
        """The nearest number of micro-batches that it can take, no less than this one."""
        return int(max(-(-n_mb // self.copies) * self.copies, self.least(pp)))


PIPELINES = {
    "1f1b": Pipeline(
        meaning="stages run one forward, one backward; the slowest sets the pace, all fill and drain the"
        " pipeline",
    ),
    "interleaved": Pipeline(
        meaning="stages run one forward, one backward, of their model chunks in turn; the slowest sets the"
        " pace, all fill and drain the pipeline",
        interleaves=True,
    ),
    "zb-h1": Pipeline(
        meaning="zb-h1: stages run one forward, one backward, the i-th one i weight gradients behind; every"
        " step is played",
        keeps="zb-h1: every stage keeps as many micro-batches as the first, until their weight gradients are"
        " done",
        order=zb_h1,
    ),
    "dualpipe": Pipeline(
        meaning="dualpipe: micro-batches enter at both ends, every NPU holds two stages; every step is"
        " played",
        keeps="dualpipe: an NPU keeps pp + 1 micro-batches of a stage, until their weight gradients are done;"
        " its two stages are on another NPU as well",
        order=dualpipe,
        copies=2,
        pairs=True,
    ),
    "dualpipev": Pipeline(
        meaning="dualpipev: every NPU holds two half stages, of a pipeline folded into a V; every step is"
        " played",
        keeps="dualpipev: an NPU keeps 2 pp + 1 micro-batches of half a stage, until their weight gradients"
        " are done",
        order=dualpipe,
        chunks=2,
        pairs=True,
    ),
}
"""Pipelines by name: Qi et al., 2023 (zb-h1, elsewhere ZB1P), DeepSeek-V3 (dualpipe), its folded half."""


def pipeline_of(name: str | None, vpp: float) -> Pipeline:
    """The pipeline of that name; by default one forward, one backward, interleaved where chunks are."""
    return PIPELINES[name or ("interleaved" if vpp > 1 else "1f1b")]


@lru_cache(maxsize=64)
def order_of(pipeline: Pipeline, pp: float, n_mb: int) -> list[list[Work]]:
    """Steps of every device that differs.

    Examples
    --------
    >>> [len(steps) for steps in order_of(PIPELINES["zb-h1"], 2.0, 4)]
    [12, 12]
    """
    assert pipeline.order is not None
    devices = pipeline.devices(pp)
    return [pipeline.order(i, devices, n_mb // pipeline.copies) for i in range(devices)]


@lru_cache(maxsize=64)
def turns_of(pipeline: Pipeline, pp: float, n_mb: int) -> list[Turn]:
    """Steps of all devices, each after those that it waits for."""
    from mc2perf.equations.stage_play import turns

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
    >>> import numpy as np
    >>> at_each(np.array([2.0, 3.0, 2.0]), lambda n: 10.0 * n).tolist()
    [20.0, 30.0, 20.0]
    """
    import numpy as np

    numbers = np.unique(n_mb)
    values = [value(float(n)) for n in numbers]
    if len(values) == 1:
        return values[0]
    picked: Num = np.select([np.asarray(n_mb) == n for n in numbers], values)
    return picked
