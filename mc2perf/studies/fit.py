"""What would make it fit: the smallest changes of a question whose footprint the machine holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mc2perf.footprint import Footprint, footprint_of
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.pipelines import PIPELINES
from mc2perf.problems import InputError
from mc2perf.reasons import refuse
from mc2perf.resolve import npus_of
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of

MOST_DOUBLINGS = 10
"""A degree is tried up to so many times its double; the machine and the model refuse earlier."""

Change = Mapping[str, Any]
"""Inputs that change, with their new values."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A change that makes a question fit, and what an NPU then holds."""

    change: Change
    footprint: Footprint
    scenario: Scenario
    npus: float
    step_time: float | None = None
    tokens_per_second: float | None = None

    @property
    def words(self) -> str:
        """The change as inputs, such as ``pp=4, recompute=full``."""
        return ", ".join(f"{name}={_plain(value)}" for name, value in self.change.items())


def nearest_fits(
    scenario: Scenario,
    machine: Machine,
    model: Model,
    evaluate: Callable[[Scenario], float] | None = None,
) -> list[Fit]:
    """Changes that make a question fit, each checked by its own footprint.

    Parameters
    ----------
    scenario : Scenario
        The question, one row.
    machine, model : Machine, Model
        Where, and what.
    evaluate : callable, optional
        Estimated time of a scenario [s]; one that it refuses with an InputError is left out.

    Returns
    -------
    list of Fit
        Of every input that alone makes it fit, its first value that does, nearest first: what leaves the
        layout alone, then smaller batches, then more ranks. If no input does alone, pairs of inputs. With
        ``evaluate`` the one of most tokens per second and NPU first. Empty if it fits already, or if nothing
        tried makes it.

    Raises
    ------
    InputError
        If the question contradicts itself.

    Notes
    -----
    Batches are halved and degrees doubled; what lies between is not tried. Inputs that were not given follow
    by their defaults, as they would when asked for: more ``tp``, ``cp`` or ``pp`` may take more NPUs, and
    more NPUs other ``dp`` and ``ep``.
    """
    study = _study(scenario, machine, model)
    if footprint_of(study).fits.all():
        return []
    axes = {name: list(values) for name, values in _axes(study)}
    found: list[Fit] = []
    for many in (1, 2):
        chosen = itertools.combinations(axes.items(), many)
        tried = (_first_fit(scenario, machine, model, dict(some)) for some in chosen)
        found = found or [fit for fit in tried if fit]
    return found if evaluate is None else _by_time(found, evaluate, machine, model)


def _study(scenario: Scenario, machine: Machine, model: Model) -> Study:
    study = study_of(scenario, machine, model)
    refuse(study.reasons)
    return study


def _first_fit(
    scenario: Scenario, machine: Machine, model: Model, axes: Mapping[str, list[Any]]
) -> Fit | None:
    """The nearest combination of these inputs that fits, by steps away from what was asked."""
    steps = itertools.product(*(range(len(values)) for values in axes.values()))
    for chosen in sorted(steps, key=sum):
        change = {name: values[i] for (name, values), i in zip(axes.items(), chosen, strict=True)}
        changed = replace(scenario, **change)
        if changed.pp > npus_of(changed, machine, changed.pp):
            continue
        try:
            study = _study(changed, machine, model)
        except InputError:
            continue
        footprint = footprint_of(study)
        if footprint.fits.all():
            return Fit(change=change, footprint=footprint, scenario=changed, npus=study.npus)
    return None


def _axes(study: Study) -> Iterator[tuple[str, Iterator[Any]]]:
    """Inputs that save memory, each with its values from the nearest on; the least intrusive input first."""
    s, layout = study.scenario, study.layout
    assert layout is not None and study.model is not None
    degrees = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep}
    if s.global_batch_size is not None:
        yield "distributed_optimizer", iter(() if s.distributed_optimizer else (True,))
        yield "recompute", _more_recompute(s.recompute, study.model.num_layers / layout.pp)
        yield "vpp", iter(() if s.vpp == 1 else (1.0,))
        yield "pipeline", _lighter(s.pipeline)
        degrees["pp"] = layout.pp
    yield "sp", iter(() if s.sp or s.tp == 1 else (True,))
    yield _batch_of(s), _halves(study.samples if s.tokens is None else s.tokens)
    nodes = study.npus / study.costs.machine.ranks_per_server
    degrees |= {"nodes": nodes} if s.dp is None else {"dp": s.dp}
    for name, degree in degrees.items():
        yield name, (degree * 2.0**i for i in range(1, MOST_DOUBLINGS + 1))


def _lighter(pipeline: str | None) -> Iterator[str]:
    """Pipelines like this one that hold every stage once, where it holds several copies."""
    held = PIPELINES.get(pipeline or "")
    if held is not None and held.copies > 1:
        yield from (name for name, other in PIPELINES.items() if other.pairs and other.copies == 1)


def _batch_of(s: Scenario) -> str:
    """The input that says how much is worked on at once."""
    if s.tokens is not None:
        return "tokens"
    return "batch_size" if s.global_batch_size is None else "micro_batch_size"


def _more_recompute(asked: str, layers: float) -> Iterator[str]:
    """Selective, then 1, 2, 4, ... layers of a stage, then all of them."""
    if asked == "full":
        return
    if asked == "none":
        yield "selective"
    method, _, number = asked.partition(":")
    least = float(number) if method == "block" else 0.0
    yield from (f"block:{2**i}" for i in range(int(layers).bit_length()) if least < 2**i < layers)
    yield "full"


def _halves(size: Any) -> Iterator[float]:
    """Half of it, a quarter, ..., as long as it is whole."""
    left = np.asarray(size).item() / 2.0
    while left >= 1.0 and left.is_integer():
        yield left
        left /= 2.0


def _by_time(
    found: list[Fit], evaluate: Callable[[Scenario], float], machine: Machine, model: Model
) -> list[Fit]:
    """What does most per NPU first: times of different batches and machines do not compare."""
    timed = []
    for fit in found:
        try:
            time = evaluate(fit.scenario)
        except InputError:
            continue
        tokens = np.asarray(_study(fit.scenario, machine, model).counted_tokens).item()
        timed.append(replace(fit, step_time=time, tokens_per_second=tokens / time))
    return sorted(timed, key=lambda fit: -(fit.tokens_per_second or 0.0))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
