"""The tool as a Python function: text and files in, an answer out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mc2perf import evaluate
from mc2perf.answer import Answer, Row
from mc2perf.footprint import Footprint, footprint_of
from mc2perf.playback import Playback, playback
from mc2perf.problems import InputError, Problems
from mc2perf.readers.models import load_model, model_of
from mc2perf.readers.profiles import load_machine, named
from mc2perf.readers.scenarios import read_scenario, scenario_tree
from mc2perf.scenario import DEFAULT_HARDWARE, Scenario, is_operator
from mc2perf.studies.fit import Fit, nearest_fits
from mc2perf.study import study_of


def estimate(
    target: str,
    *,
    profiles: Sequence[str | Path] = (),
    set: Mapping[str, str] | None = None,
    explain: bool = False,
    **given: object,
) -> Answer:
    """Estimate one configuration, as ``mc2perf estimate`` does.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    profiles : sequence of path
        Folders with hardware profiles of your own, searched first.
    set : mapping
        Overrides of the hardware profile: dotted path to text with unit.
    explain : bool
        Write down every equation of the best row.
    **given : object
        Fields of :class:`mc2perf.scenario.Scenario`, as values or as text.

    Returns
    -------
    Answer
        Rows, warnings, assumptions, sources.

    Raises
    ------
    InputError
        Every problem of the input, one line each.

    Examples
    --------
    >>> answer = estimate("mixtral-8x7b", schedule="serial")
    >>> answer.best.schedule, answer.best.bound
    ('serial', 'compute')
    """
    return ask(target, given, set or {}, [Path(folder) for folder in profiles], explain)[0]


def ask(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    own: Sequence[Path] = (),
    explain: bool = False,
) -> tuple[Answer, Scenario, dict[str, str]]:
    """Estimate; return the answer with the question as it was read and the overrides of its profile."""
    problems = Problems()
    with problems:
        scenario, from_file = read_scenario(target, given)
    if problems:
        problems.kept(load_machine, str(given.get("hardware") or DEFAULT_HARDWARE), own, overrides)
    problems.refuse()
    both = {**from_file, **overrides}
    return estimate_scenario(scenario, both, own, explain), scenario, both


def memory_of(
    scenario: Scenario, overrides: Mapping[str, str], own: Sequence[Path] = (), fit: bool = False
) -> tuple[Footprint, list[Fit]]:
    """What an NPU holds of a model, and with ``fit`` what would make it fit, the fastest first.

    Raises
    ------
    InputError
        The target is an operator, or the scenario contradicts itself.
    """
    if is_operator(scenario.target):
        raise InputError([f"memory: is of models; '{scenario.target}' is an operator"])
    machine, model = load_machine(scenario.hardware, own, overrides), load_model(scenario.target)
    held = footprint_of(study_of(scenario, machine, model))

    def step_time(changed: Scenario) -> float:
        best = evaluate.estimate(changed, machine, model).best
        if best is None:
            raise InputError(["no schedule is legal"])
        return best.total_time

    return held, nearest_fits(scenario, machine, model, step_time) if fit else []


def playback_of(
    scenario: Scenario, overrides: Mapping[str, str], row: Row, own: Sequence[Path] = ()
) -> Playback:
    """A row of the answer to a scenario, played piece by piece."""
    machine = load_machine(scenario.hardware, own, overrides)
    model = model_of(scenario.target)
    return playback(study_of(scenario, machine, model), row)


def estimate_scenario(
    scenario: Scenario, overrides: Mapping[str, str], own: Sequence[Path] = (), explain: bool = False
) -> Answer:
    """Estimate a scenario that was read already."""
    problems = Problems()
    with problems:
        machine = load_machine(scenario.hardware, own, overrides)
    with problems:
        model = model_of(scenario.target)
    problems.refuse()
    answer = evaluate.estimate(scenario, machine, model, explain)
    return evaluate.with_inputs(answer, scenario_tree(named(scenario, machine), overrides, whole=True))
