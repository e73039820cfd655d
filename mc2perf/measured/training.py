"""Training runs: their iterations, and the scripts that launched them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from mc2perf.units import show

WARM_UP = 5
"""Iterations at the start of a training run that compile and warm up."""
OUTLIER = 1.5
"""An iteration longer than this multiple of the median is no steady one."""


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration of a training run: time [s], samples and tokens of all ranks where the log says so."""

    number: int
    time: float
    global_batch_size: int | None = None
    tokens: float | None = None
    compute_rate: float | None = None


@dataclass(frozen=True)
class TrainingRun:
    """Iterations of one run, in order."""

    iterations: tuple[Iteration, ...]

    @property
    def steady(self) -> tuple[Iteration, ...]:
        """Iterations after the warm-up that are no outliers.

        Notes
        -----
        A run of more than twice ``WARM_UP`` iterations loses the first ``WARM_UP``; a shorter one its first.
        Of the rest, what takes more than ``OUTLIER`` times their median is left out.
        """
        count = len(self.iterations)
        rest = self.iterations[WARM_UP if count > 2 * WARM_UP else min(1, count - 1) :]
        limit = OUTLIER * median(i.time for i in rest)
        return tuple(i for i in rest if i.time <= limit)

    @property
    def time(self) -> float:
        """Median time of a steady iteration [s]."""
        return median(i.time for i in self.steady)

    @property
    def token_rate(self) -> float | None:
        """Median rate over steady iterations of tokens of all ranks [1/s]; unknown without token counts."""
        rates = [i.tokens / i.time for i in self.steady if i.tokens is not None]
        return median(rates) if rates else None


@dataclass(frozen=True)
class TrainingLog:
    """Runs of a training log."""

    runs: tuple[TrainingRun, ...]

    def takes(self) -> Iterator[str]:
        """One line per run."""
        for run in self.runs:
            rate = f", {run.token_rate:.4g} tokens/s" if run.token_rate else ""
            batch = run.iterations[-1].global_batch_size
            size = f", global batch {batch}" if batch else ""
            yield (
                f"{len(run.iterations)} iterations, {len(run.steady)} of them steady: median "
                f"{show(run.time, 's')}{rate}{size}"
            )


@dataclass(frozen=True)
class Launch:
    """A launch script: inputs of an estimate, sizes of the model, and what could not be resolved.

    ``inputs`` bear the names of a scenario plus ``pp vpp cp etp dp sp global_batch_size recompute``;
    ``sizes`` those of a model; ``other`` are known arguments that are neither.
    """

    inputs: Mapping[str, float | str | bool]
    sizes: Mapping[str, float]
    other: Mapping[str, str] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def accumulation(self) -> float | None:
        """Micro-batches of a step: global batch over micro-batch and data-parallel ranks."""
        names = ("global_batch_size", "micro_batch_size", "dp")
        batch, micro, dp = (self.inputs.get(name) for name in names)
        if not batch or not micro or not dp:
            return None
        return float(batch) / (float(micro) * float(dp))

    def takes(self) -> Iterator[str]:
        """Inputs, sizes, and what is missing."""
        for title, found in (("inputs", self.inputs), ("sizes", self.sizes), ("other", self.other)):
            if found:
                yield f"{title}: " + ", ".join(f"{key} = {_plain(value)}" for key, value in found.items())
        if self.accumulation:
            yield f"micro-batches of a step: {self.accumulation:g}"
        if self.unresolved:
            yield f"not resolved: {', '.join(self.unresolved)}"
        if self.unknown:
            yield f"not used: {', '.join(self.unknown)}"


def _plain(value: float | str | bool) -> str:
    return f"{value:.15g}" if type(value) is float else str(value)
