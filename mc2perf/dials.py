"""A question with dials: every position answered beforehand, as the command line would print it.

A page that people look at moves over these rows; it holds no equations of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.answer import Answer, Row
from mc2perf.evaluate import estimate
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import OPERATORS
from mc2perf.problems import InputError
from mc2perf.quantity import quantities
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.side_by_side import SideBySide, side_by_side

BANDWIDTHS = (0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0)
LATENCIES = (0.5, 1.0, 2.0, 4.0)
"""Factors on rates of links, and on what a transfer takes however little it sends."""

RATES = ("tiers.*.link_rate",)
FIXED = (
    "tiers.*.engines.*.wires.latency",
    "tiers.*.engines.*.curves.*.ranks.*.*.constant",
    "tiers.*.engines.*.curves.*.device.*.*.constant",
)
"""Where they stand in a profile."""

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Sizes and degrees, as parts of the one asked for."""

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 32)

DEGREES = ("ranks", "ep", "tp")
BATCHES = ("m", "tokens", "batch_size")
ROWS = ("bandwidth", "latency", *BATCHES)
"""Dials that choose a layout, that are sizes, that are rows of one call."""


@dataclass(frozen=True)
class Notch:
    """One position of a dial: what it is called, what the command line takes for it."""

    label: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dial:
    """Positions of one input in order; ``start`` is the one that the question has."""

    name: str
    label: str
    notches: tuple[Notch, ...]
    start: int


@dataclass(frozen=True)
class Panel:
    """Dials, and a row for every combination of their positions, the last dial turning fastest."""

    dials: tuple[Dial, ...]
    rows: tuple[Row, ...]

    def at(self, positions: Sequence[int]) -> Row:
        """The answer at a combination of positions."""
        index = 0
        for dial, position in zip(self.dials, positions, strict=True):
            index = index * len(dial.notches) + position
        return self.rows[index]


@dataclass(frozen=True)
class Question:
    """What was asked, and what it was resolved to."""

    given: Mapping[str, object]
    scenario: Scenario
    machine: Machine
    model: Model | None
    answer: Answer


def panel_of(question: Question) -> Panel:
    """Turn bandwidth, fixed times, parallel degree, batch and pieces; answer every combination.

    Parameters
    ----------
    question : Question
        Answered as it stands.

    Returns
    -------
    Panel
        Each row is the fastest schedule of its combination, to the bit what ``mc2perf estimate`` finds.
    """
    dials = [
        dial
        for dial in (
            _factors("bandwidth", "bandwidth of the links", RATES, BANDWIDTHS, question.machine),
            _factors("latency", "fixed times of transfers", FIXED, LATENCIES, question.machine),
            _degree(question),
            _batch(question),
            _pieces(question),
        )
        if dial is not None
    ]
    return Panel(tuple(dials), tuple(_answers(question, dials)))


# --- dials -------------------------------------------------------------------------------------------------


def _factors(
    name: str, label: str, patterns: Sequence[str], factors: Sequence[float], machine: Machine
) -> Dial | None:
    """A dial that multiplies what the patterns name in this profile."""
    paths = [path for path, _ in quantities(machine)]
    here = [pattern for pattern in patterns if any(_matches(path, pattern) for path in paths)]
    if not here:
        return None
    notches = [Notch(f"x{factor:g}", _settings(here, factor) if factor != 1.0 else ()) for factor in factors]
    return Dial(name, label, tuple(notches), factors.index(1.0))


def _matches(path: str, pattern: str) -> bool:
    names, wanted = path.split("."), pattern.split(".")
    return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


def _settings(patterns: Sequence[str], factor: float) -> tuple[str, ...]:
    return tuple(word for pattern in patterns for word in ("--set", f"{pattern}=x{factor:g}"))


def _degree(question: Question) -> Dial | None:
    """The degree of parallelism whose traffic the question is about."""
    name = (
        "ranks" if is_operator(question.scenario.target) else "tp" if _resolved(question, "ep") <= 1 else "ep"
    )
    return _sizes(
        name, {"ranks": "ranks", "tp": "tensor parallelism", "ep": "expert parallelism"}[name], question
    )


def _batch(question: Question) -> Dial | None:
    if is_operator(question.scenario.target):
        return _sizes("m", "rows", question)
    if question.scenario.tokens is not None:
        return _sizes("tokens", "tokens per NPU", question)
    return _sizes("batch_size", "samples of an NPU", question)


def _sizes(name: str, label: str, question: Question) -> Dial | None:
    """The size asked for, and parts and multiples of it that are whole."""
    here = _resolved(question, name)
    sizes = sorted({here * step for step in STEPS if (here * step).is_integer() and here * step >= 1.0})
    if len(sizes) < 2:
        return None
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    given = question.given.get(name) is not None
    notches = [Notch(f"{size:g}", (flag, f"{size:.0f}") if given or size != here else ()) for size in sizes]
    return Dial(name, label, tuple(notches), sizes.index(here))


def _resolved(question: Question, name: str) -> float:
    value: Any = question.answer.resolved.get(name, getattr(question.scenario, name))
    return 1.0 if value is None else float(value)


def _pieces(question: Question) -> Dial | None:
    """The best number of pieces, or one that is asked for."""
    s = question.scenario
    if s.tile_cnt is not None or s.micro_batches is not None or s.policy != "scan":
        return None
    cut = next((row for row in question.answer.rows if row.legal and len(row.curve) > 1), None)
    if cut is None or s.schedule not in ("all", cut.schedule):
        return None
    flag = "--micro-batches" if cut.schedule == "micro_batch" else "--tile-cnt"
    if cut.schedule == "coc" or (s.target not in OPERATORS and flag == "--tile-cnt"):
        return None
    most = max(cut.curve)
    notches = [Notch("best")]
    notches += [Notch(str(n), ("--schedule", cut.schedule, flag, str(n))) for n in COUNTS if n <= most]
    return Dial("pieces", "tiles" if flag == "--tile-cnt" else "micro-batches", tuple(notches), 0)


# --- answers -----------------------------------------------------------------------------------------------

Place = tuple[int, ...]


def _answers(question: Question, dials: Sequence[Dial]) -> Iterator[Row]:
    """Every combination in order, the last dial turning fastest.

    Factors of the machine and the batch are rows of one call, pieces its counts; each degree of parallelism
    is a layout, and a call, of its own.
    """
    names = [dial.name for dial in dials]
    calls: dict[tuple[int, bool], Call] = {}
    for place in itertools.product(*(range(len(dial.notches)) for dial in dials)):
        at = dict(zip(names, place, strict=True))
        degree = next((at[name] for name in DEGREES if name in at), 0)
        pieces = at.get("pieces", 0)
        key = (degree, pieces > 0)
        if key not in calls:
            calls[key] = Call.of(question, dials, degree, pieces > 0)
        yield calls[key].row(at)


@dataclass(frozen=True)
class Call:
    """All answers of one layout: at the best pieces, or at every number of pieces asked for."""

    question: Question
    dials: Mapping[str, Dial]
    scenario: Scenario
    found: SideBySide | None
    problem: str
    why: dict[tuple[int, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, question: Question, dials: Sequence[Dial], degree: int, cut: bool) -> Call:
        """Price one layout for every factor and batch."""
        by_name = {dial.name: dial for dial in dials}
        scenario = question.scenario
        for name in (name for name in DEGREES if name in by_name):
            scenario = _with(scenario, by_name[name], degree)
        if cut:
            scenario = _cut(scenario, by_name["pieces"])
        rows = _grid(by_name)
        columns = _columns(question.machine, by_name, rows)
        sizes: dict[str, Any] = {}
        for name in (name for name in BATCHES if name in by_name):
            values = [float(by_name[name].notches[at[name]].label) for at in rows]
            sizes[name] = np.array(values).reshape(-1, 1)
        asked = replace(scenario, **sizes)
        try:
            found = side_by_side(asked, question.machine, question.model, columns, len(rows))
        except InputError as error:
            return cls(question, by_name, scenario, None, "; ".join(error.problems))
        return cls(question, by_name, scenario, found, "")

    def row(self, at: Mapping[str, int]) -> Row:
        """The fastest schedule of one combination, or why there is none."""
        if self.found is None:
            return Row(schedule=self.scenario.schedule, legal=False, reason=self.problem)
        place = _place(self.dials, at)
        asked = [self.found.laid[i] for i in self.found.asked]
        counts = [laid.times[place] for laid in asked]
        column = at.get("pieces", 0) - 1
        bests = [min(column, times.size - 1) if column >= 0 else int(np.argmin(times)) for times in counts]
        times = [float(times[best]) for times, best in zip(counts, bests, strict=True)]
        chosen = int(np.argmin(times))
        if not math.isfinite(times[chosen]):
            return Row(schedule=asked[chosen].schedule, legal=False, reason=self._why(at))
        laid, best = asked[chosen], bests[chosen]
        serial = float(self.found.laid[0].times[place].min())
        rate = float(laid.numbers["tokens_per_second"][place, best])
        return Row(
            schedule=laid.schedule, pieces=int(laid.pieces[place, best]), total_time=times[chosen],
            comm_ratio=float(laid.numbers["comm_ratio"][place, best]), speedup=serial / times[chosen],
            tokens_per_second=0.0 if math.isnan(rate) else rate,
        )  # fmt: skip

    def _why(self, at: Mapping[str, int]) -> str:
        """Why a combination cannot run; factors of the machine do not matter."""
        batch = next((at[name] for name in BATCHES if name in at), 0)
        key = (batch, at.get("pieces", 0))
        if key not in self.why:
            scenario = self.scenario
            for name in (name for name in (*BATCHES, "pieces") if name in at):
                scenario = _with(scenario, self.dials[name], at[name])
            self.why[key] = _refusal(scenario, self.question)
        return self.why[key]


def _with(scenario: Scenario, dial: Dial, position: int) -> Scenario:
    """The scenario with one dial turned."""
    if dial.name == "pieces":
        return _cut(scenario, dial, position) if position else scenario
    words = dial.notches[position].words
    changed: dict[str, Any] = {dial.name: float(words[-1])} if words else {}
    return replace(scenario, **changed)


def _cut(scenario: Scenario, dial: Dial, position: int | None = None) -> Scenario:
    """The scenario with pieces asked for: one number of them, or all of the dial, across."""
    _, schedule, flag, _ = dial.notches[-1].words
    labels = (
        [notch.label for notch in dial.notches[1:]] if position is None else [dial.notches[position].label]
    )
    counts: Any = np.array([[float(label) for label in labels]]) if position is None else float(labels[0])
    changed = {"schedule": schedule, flag[2:].replace("-", "_"): counts}
    return replace(scenario, **changed)


def _refusal(scenario: Scenario, question: Question) -> str:
    try:
        answer = estimate(scenario, question.machine, question.model)
    except InputError as error:
        return "; ".join(error.problems)
    return answer.rows[-1].reason


def _grid(dials: Mapping[str, Dial]) -> list[dict[str, int]]:
    """Positions of the dials that are rows of a call."""
    down = [dials[name] for name in ROWS if name in dials]
    places = itertools.product(*(range(len(dial.notches)) for dial in down))
    return [dict(zip((dial.name for dial in down), place, strict=True)) for place in places]


def _place(dials: Mapping[str, Dial], at: Mapping[str, int]) -> int:
    """Which row of a call a combination is."""
    index = 0
    for name in (name for name in ROWS if name in dials):
        index = index * len(dials[name].notches) + at[name]
    return index


def _columns(
    machine: Machine, dials: Mapping[str, Dial], rows: Sequence[Mapping[str, int]]
) -> dict[str, NDArray[np.float64]]:
    """Every value of the machine that a factor multiplies, row by row."""
    columns = {}
    for name, patterns in (("bandwidth", RATES), ("latency", FIXED)):
        if name not in dials:
            continue
        factors = np.array([float(dials[name].notches[at[name]].label[1:]) for at in rows])
        for path, quantity in quantities(machine):
            if any(_matches(path, pattern) for pattern in patterns):
                columns[path] = float(quantity) * factors
    return columns
