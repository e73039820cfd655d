"""Pipelines: how micro-batches go through the stages of a training step, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mc2perf.equations.stage_order import Work, dualpipe, zb_h1

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
