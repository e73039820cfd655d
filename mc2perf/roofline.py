"""Kernels of a layer under the roofs of a machine: what each computes, moves and reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mc2perf.answer import Step
from mc2perf.study import Study, main_layer
from mc2perf.workload.parts import Part, all_segments


class Kernel(NamedTuple):
    """A matmul: FLOPs, bytes to and from memory, time of its work without the launch [s]."""

    name: str
    flops: float
    moved: float
    time: float

    @property
    def intensity(self) -> float:
        """FLOPs for every byte. [FLOP/B]"""
        return self.flops / self.moved

    @property
    def reached(self) -> float:
        """Rate that it reaches. [FLOP/s]"""
        return self.flops / self.time


@dataclass(frozen=True)
class Roofline:
    """Roofs of a machine, by datasheet, and the matmuls of one layer under them."""

    hardware: str
    dtype: str
    peak: float
    bandwidth: float
    kernels: tuple[Kernel, ...]

    @property
    def ridge(self) -> float:
        """FLOPs for every byte from which on the cube bounds. [FLOP/B]"""
        return self.peak / self.bandwidth


FLOPS, TIME = ": FLOPs", ": time"
MOVED = (": weights", ": rows in and out")
"""What the steps of a matmul's price are called."""


def roofline(study: Study) -> Roofline:
    """The matmuls of the layer that a study shows, forward and backward.

    Parameters
    ----------
    study : Study
        Of one row.

    Returns
    -------
    Roofline
        Attention cores and vector kernels are left out: their bytes are not priced apart.

    References
    ----------
    Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 2009.

    Examples
    --------
    >>> from mc2perf.readers.models import load_model
    >>> from mc2perf.readers.profiles import load_machine
    >>> from mc2perf.scenario import Scenario
    >>> from mc2perf.study import study_of
    >>> machine = load_machine("atlas_800t_a2")
    >>> roofs = roofline(study_of(Scenario(target="mixtral-8x7b"), machine, load_model("mixtral-8x7b")))
    >>> all(kernel.reached <= roofs.peak for kernel in roofs.kernels)
    True
    """
    machine, layer = study.costs.machine, main_layer(study)
    dtype = study.scenario.cube_dtype
    kernels = [
        kernel
        for parts in (layer.forward, layer.backward)
        for part in parts
        for kernel in _kernels(study, part)
    ]
    return Roofline(
        machine.name, dtype, float(machine.cube.peak[dtype]), float(machine.memory.bandwidth), tuple(kernels)
    )


def _kernels(study: Study, part: Part) -> Iterator[Kernel]:
    """What the price of a part says of its matmuls."""
    priced = {step.label: _number(step) for step in _steps(study, part)}
    for label, flops in priced.items():
        name = label.removesuffix(FLOPS)
        if name == label or f"{name}{TIME}" not in priced:
            continue
        moved = sum(priced.get(f"{name}{what}", 0.0) for what in MOVED)
        if moved:
            yield Kernel(name, flops, moved, priced[f"{name}{TIME}"])


def _steps(study: Study, part: Part) -> list[Step]:
    """The equations under a part's price, as an explanation writes them down."""
    ledger = study.costs.ledger
    before, ledger.recording = len(ledger.steps), True
    all_segments(part)
    ledger.recording = False
    steps = ledger.steps[before:]
    del ledger.steps[before:]
    return steps


def _number(step: Step) -> float:
    value = step.value[0] if isinstance(step.value, tuple) else step.value
    return value[0] if isinstance(value, tuple) else value
