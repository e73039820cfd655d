"""A measured run beside its prediction: what is left over, and what may be said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mc2perf.machine.links import Tier
from mc2perf.studies.compare import Prediction
from mc2perf.studies.observed import Observed


@dataclass(frozen=True)
class Evidence:
    """What the files say: for, against, or nothing."""

    word: str
    text: str = ""


@dataclass(frozen=True)
class Price:
    """How much a cause could explain [s], and what would have to be true for it."""

    time: float
    text: str = ""


@dataclass(frozen=True)
class Pair:
    """A measured run beside its prediction; ``residual`` is what is left over, by part of the step. [s]"""

    seen: Observed
    told: Prediction

    def residual(self, part: str) -> float:
        """Measured less predicted; the whole step's where the part was not measured."""
        row, told = self.told.row, self.told
        parts = {
            "compute": self.seen.compute - row.compute_time - row.compute_stretch,
            "exposed": self.seen.exposed - row.exposed_comm_time - told.bubble,
            "free": self.seen.free - row.free_time + told.bubble,
        }
        if self.fused and part in ("compute", "exposed"):
            return parts["compute"] + parts["exposed"] if self.in_parts else self.residual("step")
        left = parts.get(part, math.nan)
        return self.seen.step - row.total_time if math.isnan(left) else left

    @property
    def fused(self) -> bool:
        """Whether kernels hold communication, which a profiler counts as computing."""
        return self.told.fused

    @property
    def in_parts(self) -> bool:
        """Whether the step was measured in parts."""
        return not math.isnan(self.seen.compute)

    @property
    def unexplained(self) -> float:
        """What asks for an explanation: everything above the prediction, part by part. [s]"""
        if not self.in_parts:
            return self.residual("step")
        parts = ("compute", "free") if self.fused else ("compute", "exposed", "free")
        return sum(max(self.residual(part), 0.0) for part in parts)

    @property
    def exchanges(self) -> bool:
        """Whether there is communication in it."""
        return self.told.row.comm_time > 0.0

    def tiers(self) -> list[tuple[str, Tier]]:
        """Links that the groups of ranks use."""
        resolved = self.told.answer.resolved
        ranks = max(float(str(resolved.get(name, 1.0))) for name in ("ep", "tp", "cp", "ranks"))
        npus = float(str(resolved["npus"])) if self.told.scenario.global_batch_size else 1.0
        return self.told.study.costs.tiers_for(max(ranks, npus))
