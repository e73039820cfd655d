"""From rows of published measurements to questions, and from their answers to predictions.

A row is asked only where its target and every input that decides are expressible; whatever is not is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mc2perf.measurement import Family, Plain, Row, Value
from mc2perf.problems import InputError
from mc2perf.readers.kernels import read_kernels
from mc2perf.readers.measurements import load_measurements, load_neighbours
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import DEFAULT_HARDWARE
from mc2perf.studies.kernels import Score as KernelScore
from mc2perf.studies.kernels import score as score_kernels
from mc2perf.studies.neighbours import Neighbour, Ratio
from mc2perf.studies.validate.asked import Case
from mc2perf.studies.validate.relations import Check, checks
from mc2perf.studies.validate.scores import Score, Scored, scored, scores
from mc2perf.validating.asking import Asking
from mc2perf.validating.questions import defaults, refuse, unpriced, why_not


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Every value as a case, those with scores, the scores of groups, and the relations."""

    families: tuple[Family, ...]
    cases: tuple[Case, ...]
    scored: tuple[Scored, ...]
    scores: tuple[Score, ...]
    checks: tuple[Check, ...]

    @property
    def listed(self) -> tuple[Case, ...]:
        """Every value without a score."""
        return tuple(case for case in self.cases if case.why_not)


def validate(
    family: str | None = None, values: Mapping[str, float] | None = None, own: Sequence[Path] = ()
) -> Validation:
    """Score the model against published measurements.

    Parameters
    ----------
    family : str, optional
        Such as ``T1``; all families without it.
    values : mapping, optional
        Values of held-out rows, see `mc2perf.readers.measurements.read_values`; scored apart.
    own : sequence of path
        Folders with hardware profiles of your own, searched first.

    Returns
    -------
    Validation
        Every value of every row, scored or with the reason why not.

    Raises
    ------
    InputError
        An unknown family or unknown values, one line each.

    Examples
    --------
    >>> found = validate("T2")
    >>> [score.values for score in found.scores if score.by == "all"]
    [5]
    """
    families = load_measurements(family, values)
    load_machine(DEFAULT_HARDWARE, own, {})  # a folder that is not there is said once, not for every row
    ask = Asking(tuple(own))
    cases = tuple(
        case_of(found, row, value, ask) for found in families for row in found.rows for value in row.values
    )
    pairs = scored(cases)
    return Validation(
        families=families, cases=cases, scored=pairs, scores=scores(pairs), checks=checks(families, cases)
    )


def kernels(path: Path, hardware: str, own: Sequence[Path] = ()) -> list[KernelScore]:
    """Score one machine against tables of measured kernels.

    Parameters
    ----------
    path : Path
        A table or a folder with tables, see `mc2perf.readers.kernels.read_kernels`.
    hardware : str
        Profile of the machine they were measured on.
    own : sequence of path
        Folders with hardware profiles of your own, searched first.
    """
    return score_kernels(read_kernels(path), load_machine(hardware, own, {}))


def neighbours(own: Sequence[Path] = ()) -> tuple[Neighbour, ...]:
    """Ask the model what other simulators were asked; the answers are in no score.

    Parameters
    ----------
    own : sequence of path
        Folders with hardware profiles of your own, searched first.
    """
    load_machine(DEFAULT_HARDWARE, own, {})
    ask = Asking(tuple(own))
    return tuple(
        Neighbour(
            simulator=found,
            ratios=tuple(
                Ratio(case=case_of(found, row, value, ask)) for row in found.rows for value in row.values
            ),
        )
        for found in load_neighbours()
    )


def case_of(family: Family, row: Row, value: Value, ask: Asking) -> Case:
    """One value, asked if it can be. The measured number is never looked at."""
    question = row.question(value)
    left_out = tuple(sorted((question.keys() & unpriced(question)) - value.at.keys()))
    case = Case(
        family=family.family, row=row, value=value, assumed=_assumed(row, question), unpriced=left_out
    )
    try:
        refuse(why_not(row, value, question))
        left = ask.chosen(question)
        asked = ask({**question, **left})
        return replace(case, asked=asked, assumed={**case.assumed, **left})
    except InputError as error:
        return replace(case, reason="; ".join(error.problems))


def _assumed(row: Row, question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Inputs behind a prediction that no source states: of the row, and defaults that stand in."""
    found = dict(row.assumed)
    for name, default in {**defaults(), "schedule": "serial"}.items():
        stands_in = name == "schedule" or name in row.unstated
        if stands_in and name not in question and isinstance(default, Plain):
            found[name] = default
    return found
