"""From the words of a question to its report: the answer, pictures of it, what it hangs on, what if."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from mc2perf.answer import Answer
from mc2perf.api import ask, playback_of
from mc2perf.dials import Panel, Question, panel_of
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.problems import InputError
from mc2perf.quantity import quantities
from mc2perf.readers.models import model_of
from mc2perf.readers.profiles import load_machine
from mc2perf.roofline import roofline
from mc2perf.scenario import Scenario, inputs
from mc2perf.sensing import ask_sensitivity
from mc2perf.study import study_of
from mc2perf.units import show
from mc2perf.writers.charts import Chart
from mc2perf.writers.charts.charts import breakdown_chart, pieces_chart, roofline_chart
from mc2perf.writers.charts.drawn import draw
from mc2perf.writers.report import Figure, Report, Source
from mc2perf.writers.sensitivity import said_of_choice, tables
from mc2perf.writers.timeline_svg import to_svg

STEPS = ("the answer", "what if", "pictures", "what it hangs on")
"""What takes time, in order."""


def ask_report(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    own: Sequence[Path] = (),
    done: Callable[[str], None] = lambda step: None,
) -> Report:
    """Everything that a report shows.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    given : mapping
        Inputs, as text or values.
    overrides : mapping
        Overrides of the hardware profile.
    own : sequence of path
        Folders with profiles of your own.
    done : callable
        Told of each of ``STEPS`` when it is done.

    Raises
    ------
    InputError
        Every problem of the question, one line each; or an extra that is not installed.
    """
    missing = [module for module in ("jinja2", "matplotlib") if find_spec(module) is None]
    if missing:
        raise InputError([f"report: needs {' and '.join(missing)}; pip install 'mc2perf[report]'"])
    answer, scenario, overrides = ask(target, given, overrides, own)
    machine = load_machine(scenario.hardware, own, overrides)
    model = model_of(scenario.target)
    done(STEPS[0])
    panel = panel_of(Question(given, scenario, machine, model, answer))
    done(STEPS[1])
    figures = list(_figures(answer, scenario, machine, model))
    timeline = ""
    if answer.best:
        timeline = _inline(to_svg(playback_of(scenario, overrides, answer.best, own)))
    done(STEPS[2])
    found = ask_sensitivity(target, given, overrides, own=own)
    done(STEPS[3])
    return Report(
        answer, _command(target, _fixed(given, panel), overrides), panel, figures, timeline,
        list(_sources(scenario, machine, model)), [table for table, _ in tables(found)],
        list(said_of_choice(found)),
    )  # fmt: skip


def _fixed(given: Mapping[str, object], panel: Panel) -> dict[str, object]:
    """Inputs that no dial turns."""
    turned = {dial.name for dial in panel.dials}
    return {name: value for name, value in given.items() if name not in turned}


def _command(target: str, given: Mapping[str, object], overrides: Mapping[str, str]) -> list[str]:
    """The command line of the question as it stands."""
    short = {spec.name: how.short for spec, how in inputs() if how.short}
    words = ["mc2perf", "estimate", target]
    for name, value in given.items():
        if value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [short.get(name, flag), str(value)]
    return [*words, *(word for path, value in overrides.items() for word in ("--set", f"{path}={value}"))]


def _figures(answer: Answer, scenario: Scenario, machine: Machine, model: Model | None) -> Iterator[Figure]:
    """Schedules side by side, time over pieces, kernels under roofs; what cannot be drawn is left out."""
    makers: dict[str, Callable[[], Chart]] = {
        "Time of every schedule: computing, exposed communication, waiting.": lambda: breakdown_chart(answer),
        "Time over the number of pieces.": lambda: pieces_chart(answer),
        "Matmuls of one layer under the roofs of the machine.": lambda: roofline_chart(
            roofline(study_of(scenario, machine, model))
        ),
    }
    for caption, make in makers.items():
        try:
            chart = make()
        except InputError:
            continue
        yield Figure(caption, *(_inline(draw(chart, "svg", theme).decode()) for theme in ("light", "dark")))


def _inline(svg: str) -> str:
    """An SVG as part of a page: no prologue."""
    return svg[svg.index("<svg") :]


def _sources(scenario: Scenario, machine: Machine, model: Model | None) -> Iterator[Source]:
    """Every number of the profile that the answer rests on."""
    from mc2perf.studies.side_by_side import side_by_side

    used = {id(quantity) for quantity in side_by_side(scenario, machine, model, {}, 1).used.values()}
    for path, quantity in quantities(machine):
        if id(quantity) in used:
            yield Source(path, show(quantity, quantity.symbol), quantity.kind, quantity.ref)
