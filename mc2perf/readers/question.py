"""A question at once: the scenario of a target, the machine it names, the model unless it is an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.readers.models import model_of
from mc2perf.readers.profiles import load_machine, named
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import Scenario


def read_question(
    target: str, given: Mapping[str, object], overrides: Mapping[str, str], own: Sequence[Path] = ()
) -> tuple[Scenario, Machine, Model | None]:
    """Read what is asked, where it runs, and what runs.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    given : mapping
        Inputs, as text or values.
    overrides : mapping
        Overrides of the hardware profile; they win over those of a scenario file.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem of the first of the three that has any, one line each.

    Examples
    --------
    >>> scenario, machine, model = read_question("mixtral-8x7b", {"ep": 4}, {})
    >>> scenario.ep, machine.name, model.num_layers
    (4.0, 'atlas_800i_a2', 32)
    """
    scenario, from_file = read_scenario(target, given)
    machine = load_machine(scenario.hardware, own, {**from_file, **overrides})
    return named(scenario, machine), machine, model_of(scenario.target)
