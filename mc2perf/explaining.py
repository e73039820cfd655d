"""Sums under the equations of an explanation: kernels with their launches, parts of a layer, the layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mc2perf.answer import Step
from mc2perf.workload.parts import PairPieces, Segments


def of_part(name: str, segments: Segments) -> Step:
    """Kernels and exchanges of a part one after the other: work of each, and its launch where it has one.

    Examples
    --------
    >>> from mc2perf.costs import Cost
    >>> from mc2perf.workload.parts import Segment
    >>> step = of_part("gate", (Segment("gate", "compute", Cost(3.0, 1.0)),))
    >>> step.formula, step.value
    ('gate + launch_of_gate', 4.0)
    """
    terms = [(s.name, _number(s.cost.work)) for s in segments]
    terms += [(f"launch of {s.name}", _number(s.cost.launch)) for s in segments if np.any(s.cost.launch)]
    return _sum(f"{name}: one after the other, with launches", terms)


def of_fused(name: str, makespan: Step, once: PairPieces) -> Step:
    """A fused kernel: its pipeline, the launch of both sides, what goes before and what follows."""
    total = makespan.value[0] if isinstance(makespan.value, tuple) else makespan.value
    terms = [("makespan", _number(total))]
    terms += [(f"launch of {s.name}", _number(s.cost.launch)) for s in (once.comm, *once.compute)]
    terms += [(s.name, _number(s.cost.time)) for s in (*once.prefix, *once.after)]
    return _sum(f"{name}: fused, with launches and what is not fused", terms)


def of_layer(parts: Sequence[Step]) -> Step:
    """The sums of the parts of a layer together, none of them overlapped."""
    terms = [(step.label.partition(":")[0], _number(step.value)) for step in parts]
    return _sum("all of it, one after the other", terms)


def _sum(label: str, terms: Iterable[tuple[str, float]]) -> Step:
    seen: Counter[str] = Counter()
    numbers: dict[str, float | tuple[float, ...]] = {}
    value = 0.0
    for words, number in terms:
        name = re.sub(r"\W+", "_", words).strip("_")
        seen[name] += 1
        numbers[f"{name}_{seen[name]}" if seen[name] > 1 else name] = number
        value += number
    return Step(label=label, equation="sum", formula=" + ".join(numbers), numbers=numbers, value=value)


def _number(value: object) -> float:
    """A time; of unequal pieces that of all together."""
    return float(np.sum(np.asarray(value, float)))
