"""From the words of a plot to its chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from mc2perf.answer import Answer
from mc2perf.api import ask
from mc2perf.problems import InputError, did_you_mean
from mc2perf.readers.question import read_question
from mc2perf.roofline import roofline
from mc2perf.scenario import DEFAULT_HARDWARE, is_operator
from mc2perf.studies.breakeven import grows
from mc2perf.studies.run import blocks
from mc2perf.study import study_of
from mc2perf.sweeping import ask_sweep
from mc2perf.table import joined
from mc2perf.writers.charts import Chart
from mc2perf.writers.charts.charts import breakdown_chart, pieces_chart, ratio_chart, roofline_chart

SIZES = {"m": "256..64K:x2", "tokens": "256..64K:x2", "batch_size": "1..256:x2", "seq_len": "1K..64K:x2"}
"""Size -> the values that a chart shows."""


class Question(NamedTuple):
    """What is plotted: a target, its inputs, overrides of the profile, folders with profiles, what grows."""

    target: str
    given: Mapping[str, object]
    overrides: Mapping[str, str]
    own: tuple[Path, ...] = ()
    over: str | None = None


def pieces(question: Question) -> Chart:
    """Time against pieces; for single operators the four policies beside."""
    given = dict(question.given)
    if is_operator(question.target) and not given.get("policy") and not given.get("schedule"):
        try:
            return pieces_chart(_answer(question, {**given, "policy": "all", "schedule": "mc2"}))
        except InputError:  # operators whose tiles nobody chooses have no policies
            pass
    return pieces_chart(_answer(question, given))


def breakdown(question: Question) -> Chart:
    """What every schedule's time is made of."""
    return breakdown_chart(_answer(question, question.given))


def _answer(question: Question, given: Mapping[str, object]) -> Answer:
    return ask(question.target, given, question.overrides, question.own)[0]


def ratio(question: Question) -> Chart:
    """Communication against size, on every machine that ``hardware`` lists."""
    machines = [name.strip() for name in str(question.given.get("hardware") or DEFAULT_HARDWARE).split(",")]
    fixed = {name: value for name, value in question.given.items() if name != "hardware"}
    sizes = grows(question.target)
    size = question.over or sizes[0]
    if size not in sizes:
        raise InputError([f"over: '{size}' does not grow here{did_you_mean(size, sizes)}"])
    vary = [f"hardware={','.join(machines)}", f"{size}={SIZES[size]}"]
    asked = ask_sweep(question.target, fixed, question.overrides, vary, None, question.own)
    wanted = ("hardware", "schedule", "legal", size, "total_time", "comm_ratio")
    return ratio_chart(question.target, size, joined(list(blocks(asked.sweep, wanted))), machines)


def roofs(question: Question) -> Chart:
    """Matmuls of the layer shown, under the roofs of the machine."""
    asked = read_question(question.target, question.given, question.overrides, question.own)
    return roofline_chart(roofline(study_of(*asked)))


KINDS: dict[str, Callable[[Question], Chart]] = {
    "pieces": pieces,
    "breakdown": breakdown,
    "ratio": ratio,
    "roofline": roofs,
}
"""Kind -> how its chart is made."""
