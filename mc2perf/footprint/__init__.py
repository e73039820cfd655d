"""Does it fit? What an NPU of the fullest pipeline stage holds, against the memory of the machine.

Training keeps, for every micro-batch in flight, what the backward pass reads again; prefill keeps the cache
of its batch and one layer at work. Numbers that may be columns have shape (rows, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.footprint.stages import StageBytes, communicators
from mc2perf.footprint.stated import assumptions_of
from mc2perf.placement import held_stages, stage_counts
from mc2perf.problems import InputError
from mc2perf.study import Study
from mc2perf.units import Num

__all__ = ["Footprint", "Part", "communicators", "footprint_of", "shortfall"]


class Part(NamedTuple):
    """One kind of what is held. [B]"""

    name: str
    bytes: Num


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What an NPU of the fullest stage holds, part by part, and what it may. [B]"""

    parts: tuple[Part, ...]
    capacity: float
    stage: NDArray[np.intp]
    stages: int
    assumptions: tuple[str, ...]

    @property
    def total(self) -> Num:
        """All parts together. [B]"""
        return sum((part.bytes for part in self.parts), 0.0)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where the machine's memory holds it."""
        return np.less_equal(self.total, self.capacity)

    def __getitem__(self, name: str) -> Num:
        """Bytes of one part; 0 where the phase has none. [B]"""
        return sum((part.bytes for part in self.parts if part.name == name), 0.0)


def footprint_of(study: Study) -> Footprint:
    """Memory of a model under a layout, on the NPU that holds most.

    Parameters
    ----------
    study : Study
        A scenario resolved against a machine; its numbers may be columns.

    Returns
    -------
    Footprint
        Parts of the stage that is fullest in each row: under 1F1B the first stages keep more micro-batches,
        the first holds the embedding, the last the head and the logits.

    Raises
    ------
    InputError
        If the target is an operator.

    Notes
    -----
    A whole step (``global_batch_size``) holds its optimizer; a training estimate without one times the
    layers of one micro-batch and counts no optimizer, so that it is a lower bound.

    References
    ----------
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022; Rajbhandari
    et al., "ZeRO", SC 2020; Megatron-LM, distributed optimizer; HCCL, environment variable HCCL_BUFFSIZE.

    Examples
    --------
    >>> from mc2perf.readers.models import load_model
    >>> from mc2perf.readers.profiles import load_machine
    >>> from mc2perf.scenario import Scenario
    >>> from mc2perf.study import study_of
    >>> machine, model = load_machine("atlas_800i_a2"), load_model("llama-2-7b")
    >>> held = footprint_of(study_of(Scenario(target="llama-2-7b", phase="prefill"), machine, model))
    >>> float(held["KV cache"].item()) / 2**30, held.fits.item()
    (2.0, True)
    """
    if study.model is None or study.layout is None:
        raise InputError(["memory: is of a model; write a model as target"])
    machine = study.costs.machine
    study.costs.ledger.use("memory.capacity", machine.memory.capacity)
    holding = StageBytes(study, study.model, study.layout)
    counts = stage_counts(study)
    parts, stage = _fullest([holding.device(held, counts) for held in held_stages(study)])
    return Footprint(
        parts=parts,
        capacity=float(machine.memory.capacity),
        stage=stage,
        stages=int(study.scenario.pp),
        assumptions=tuple(assumptions_of(study, study.model)),
    )


def shortfall(footprint: Footprint) -> str:
    """Say what takes how much, largest first; for a footprint of one row.

    Examples
    --------
    >>> parts = (Part("KV cache", np.array(6e9)), Part("weights", np.array(70e9)))
    >>> held = Footprint(parts=parts, capacity=64e9, stage=np.array(0), stages=4, assumptions=())
    >>> shortfall(held)
    '76 of 64 GB on the first of 4 stages: weights 70, KV cache 6'
    """
    sizes = sorted(((np.asarray(size).item(), name) for name, size in footprint.parts), reverse=True)
    named = ", ".join(f"{name} {size / 1e9:.4g}" for size, name in sizes if size)
    total = sum(size for size, _ in sizes)
    return f"{total / 1e9:.4g} of {footprint.capacity / 1e9:.4g} GB{_where(footprint)}: {named}"


def _where(footprint: Footprint) -> str:
    stage, last = footprint.stage.item(), footprint.stages - 1
    if last == 0:
        return " per NPU"
    word = {0: "the first", last: "the last"}.get(stage, f"number {stage + 1}")
    return f" on {word} of {last + 1} stages"


def _fullest(stages: Sequence[dict[str, Num]]) -> tuple[tuple[Part, ...], NDArray[np.intp]]:
    """The stage that holds most, row by row."""
    totals = [sum(held.values(), 0.0) for held in stages]
    at = np.argmax(np.stack(np.broadcast_arrays(*totals), axis=-1), axis=-1)

    def pick(name: str) -> Num:
        column = np.stack([np.broadcast_to(held[name], at.shape) for held in stages], axis=-1)
        picked: NDArray[np.float64] = np.take_along_axis(column, at[..., None], axis=-1)[..., 0]
        return picked

    return tuple(Part(name, pick(name)) for name in stages[0]), at
