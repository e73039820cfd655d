"""How far off an answer may be: the errors of validated answers like it.

The bands are data, made from all published measurements by ``python scripts/bands.py``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.scenario import Scenario

SHIPPED = "data/error_bands.json"

STEPS = {"train": "training step", "prefill": "prefill", "decode": "decode step"}
"""Phase -> what is timed."""


class Like(NamedTuple):
    """What answers have in common that are off alike: what is timed, of which layers, on which machines."""

    what: str
    layers: str
    machine: str

    def __str__(self) -> str:
        of = f" of {self.layers} models" if self.layers else ""
        return f"{self.what}{of} on {self.machine}"


@dataclass(frozen=True, kw_only=True)
class Band:
    """Errors of measured rows like an answer: how many, of which families, median and largest size [1]."""

    like: Like
    rows: int = 0
    families: tuple[str, ...] = ()
    median: float = math.nan
    worst: float = math.nan

    def __str__(self) -> str:
        if not self.rows:
            return f"unknown error: no measured {self.like} was ever validated{_elsewhere(self.like)}"
        rows = f"{self.rows} row{'s' * (self.rows > 1)}"
        return (
            f"within {self.median:.0%} (median) / {self.worst:.0%} (worst) of measurements like this one: "
            f"{self.like} ({', '.join(self.families)}, {rows})"
        )


def like(scenario: Scenario, machine: Machine, model: Model | None) -> Like:
    """What an answer is like."""
    if model is None:
        return Like(scenario.target, "", machine.family)
    layers_alone = scenario.phase == "train" and scenario.global_batch_size is None
    what = "training layers" if layers_alone else STEPS[scenario.phase]
    return Like(what, "MoE" if model.experts else "dense", machine.family)


def band_of(scenario: Scenario, machine: Machine, model: Model | None) -> Band:
    """How far off an answer may be.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> print(band_of(Scenario(target="matmul_all_reduce"), load_machine("ascend_950pr"), None))
    unknown error: no measured matmul_all_reduce on 950 was ever validated
    """
    wanted = like(scenario, machine, model)
    return shipped().get(wanted, Band(like=wanted))


@cache
def shipped() -> dict[Like, Band]:
    """Every band, by what it is of."""
    tree = json.loads((files("mc2perf") / SHIPPED).read_text(encoding="utf-8"))
    bands = (
        Band(**{**entry, "like": Like(*entry["like"]), "families": tuple(entry["families"])})
        for entry in tree
    )
    return {band.like: band for band in bands}


def _elsewhere(wanted: Like) -> str:
    """The same on other machines, if that was validated."""
    others = [band for band in shipped().values() if band.like[:2] == wanted[:2]]
    said = (f"{band.like.machine} {band.median:.0%} / {band.worst:.0%}" for band in others)
    return f" (elsewhere: {', '.join(said)})" if others else ""
