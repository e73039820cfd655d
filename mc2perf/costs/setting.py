"""Where prices are asked for: a machine, what a scenario chose of it, and the ledger that notes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.costs.ledger import Ledger
from mc2perf.equations import matmul
from mc2perf.machine import Machine
from mc2perf.machine.cube import MatmulRule, Work
from mc2perf.machine.links import Engine, Sizes, Tier
from mc2perf.units import Num

ROUNDED = 1e-5
"""Limits of a fit are written with six digits."""


@dataclass
class Setting:
    """One machine under the choices of one scenario, and the rates and links that follow.

    ``cuts_messages``: who sends a message that has outgrown the library's buffer sends it in parts that have
    not, as frameworks do; a single call, as in a table of measured collectives, goes over the cliff.
    ``decode``: the engines of decode steps answer where nobody chose one. ``prefill``: kernels run at the
    speed that a whole prefill keeps up. In both, rows of int8 matmuls come and go in bf16.
    While ``watching``, sizes that a fit has not seen are noted; while counts are tried they are not.
    """

    machine: Machine
    ledger: Ledger
    engine: str | None = None
    matmul_rule: str | None = None
    warm_l2: bool = False
    cuts_messages: bool = False
    decode: bool = False
    prefill: bool = False
    watching: bool = False
    cliffs: dict[tuple[Any, ...], list[Num]] = field(default_factory=dict, repr=False)
    columns: dict[tuple[Any, ...], list[NDArray[np.float64]]] = field(default_factory=dict, repr=False)

    @property
    def rule_name(self) -> str:
        """The utilisation rule that answers: the chosen one, else the profile's."""
        return self.matmul_rule or self.machine.cube.rule

    @property
    def rule(self) -> MatmulRule:
        """Its constants."""
        return self.machine.cube.rules[self.rule_name]

    @property
    def speed(self) -> float:
        """Share of the speed of single kernels that the pass keeps up: below 1 in prefill."""
        if not self.prefill:
            return 1.0
        self.ledger.use("cube.served", self.machine.cube.served)
        return self.machine.cube.served

    def peak(self, dtype: str) -> float:
        """Cube peak of an element type, as far as the pass keeps it up. [FLOP/s]"""
        peak = self.machine.cube.peak[dtype]
        self.ledger.use(f"cube.peak.{dtype}", peak)
        return self._kept_up(f"cube peak of {dtype}", peak)

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth of the data sheet, for rules with an efficiency of their own. [B/s]"""
        self.ledger.use("memory.bandwidth", self.machine.memory.bandwidth)
        return self._kept_up("memory bandwidth", self.machine.memory.bandwidth)

    @property
    def memory_rate(self) -> float:
        """Memory bandwidth that kernels reach. [B/s]"""
        self.ledger.use("memory.efficiency", self.machine.memory.efficiency)
        return self.bandwidth * self.machine.memory.efficiency

    def _kept_up(self, name: str, rate: float) -> float:
        """What a whole pass keeps up of a rate; an explanation shows it where that is not all of it."""
        speed = self.speed
        if self.ledger.recording and speed != 1.0:
            self.ledger.once(f"{name} that a prefill keeps up", matmul.kept_up_rate, rate=rate, served=speed)
        return rate * speed

    def on_cube(self, label: str, flops: Num, dtype: str, share: float) -> Num:
        """Time under the cube's roof alone."""
        time: Num = self.ledger.run(
            label, matmul.roofline_time,
            flops=flops, moved=0.0, peak=self.peak(dtype), utilisation=share, memory_rate=1.0,
        )  # fmt: skip
        return time

    def note_unseen(self, path: str, size: Num, seen: Sizes | Work, words: Callable[[float], str]) -> None:
        """Note sizes outside those that a fit has seen."""
        if not self.watching:
            return
        for unseen, far in (
            (float(np.min(size)), np.min(size) < seen.smallest * (1.0 - ROUNDED)),
            (float(np.max(size)), np.max(size) > seen.largest * (1.0 + ROUNDED)),
        ):
            if far:
                fitted = f"fitted for {words(seen.smallest)} to {words(seen.largest)}"
                self.ledger.extrapolated[f"{path}: {words(unseen)}, {fitted}"] = None

    def engine_of(self, tier: Tier, collective: str) -> tuple[str, Engine]:
        """The engine that carries a collective on a tier: the chosen one where the tier has it."""
        for name in (self.engine, tier.decode_engine if self.decode else None):
            engine = tier.engines.get(name) if name else None
            if name and engine and (not engine.carries or collective in engine.carries):
                return name, engine
        return tier.engine, tier.engines[tier.engine]

    def tiers_for(self, ranks: float) -> list[tuple[str, Tier]]:
        """The tiers a group of ranks spans, innermost first."""
        spanned = []
        for name, tier in self.machine.tiers.items():
            spanned.append((name, tier))
            if ranks <= tier.ranks:
                return spanned
        return spanned

    def engines_for(self, ranks: float, collective: str) -> list[tuple[str, Engine]]:
        """The engines that carry a collective of a group of ranks, each with its path in the profile."""
        found = ((name, *self.engine_of(tier, collective)) for name, tier in self.tiers_for(ranks))
        return [(f"tiers.{tier}.engines.{name}", engine) for tier, name, engine in found]

    def sorts_tokens(self, ranks: float) -> bool:
        """Whether an exchange's kernels are made for tokens: they sort, quantise, count and sum them."""
        found = self.engines_for(ranks, "all_to_all")
        return ranks > 1 and all(engine.carries == ("all_to_all",) for _, engine in found)
