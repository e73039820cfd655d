"""May these operators run here? Every version judged, with the nearest changes that make it legal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from mc2perf.cases import (
    Case,
    ExpertSizes,
    expert_cases,
    framework_cases,
    model_cases,
    operator_case,
    serving_cases,
)
from mc2perf.costs import Costs, Ledger
from mc2perf.degrees import reach
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import MOE_LAYER, OPERATORS
from mc2perf.problems import InputError, did_you_mean
from mc2perf.reasons import said
from mc2perf.resolve import as_columns, machine_problems, model_layout, npus_of
from mc2perf.rules.catalogue import (
    FAMILIES,
    NAMES,
    PIECES,
    SWITCHES,
    UNKNOWN_PIECES,
    Pieces,
    variants_of,
)
from mc2perf.rules.facts import Facts
from mc2perf.rules.rule import Effect, Source, Variant
from mc2perf.scenario import Scenario
from mc2perf.studies.nearest import Asked, Change, Changes, Mend, nearest_mends

Status = Literal["legal", "legal but slow", "cannot tell", "refused"]

NO_DOCUMENT = Source("rules of mc2perf", "no document lists it")
"""Who says that an operator is not offered."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is checked: a scenario on a machine; ``operator`` is one that is judged but not priced."""

    scenario: Scenario
    machine: Machine
    model: Model | None = None
    operator: str = ""
    load: Callable[[str], Machine] | None = None


class Finding(NamedTuple):
    """What a rule found: what follows, in words, and who says so."""

    effect: Effect
    text: str
    source: Source


@dataclass(frozen=True, kw_only=True)
class Check:
    """One version of one operator, or of several that the same rules judge alike."""

    operators: tuple[str, ...]
    version: str
    status: Status
    findings: tuple[Finding, ...] = ()
    needs: tuple[str, ...] = ()
    mends: tuple[Mend, ...] = ()
    pieces: Pieces = UNKNOWN_PIECES
    minds: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it is an operator rather than a framework's switch."""
        return self.operators[0] not in SWITCHES

    @property
    def runs(self) -> bool:
        """Whether it may be used, slow or not."""
        return self.status in ("legal", "legal but slow")


# --- cases ---------------------------------------------------------------------------------------------


def cases_of(question: Question) -> tuple[Case, ...]:
    """Every operator of a question with its facts.

    Raises
    ------
    InputError
        The question contradicts itself.
    """
    machine = question.machine
    costs = Costs(machine, Ledger(), question.scenario.engine, decode=question.scenario.phase == "decode")
    if question.model is not None:
        return tuple(_model_cases(costs, as_columns(question.scenario), question.model))
    scenario = question.scenario
    ranks = ranks_of(question)
    problems = list(machine_problems(scenario, machine))
    if ranks > reach(machine):
        problems.append(f"ranks: links of {machine.name} join {reach(machine):g} ranks, not {said(ranks)}")
    if problems:
        raise InputError(problems)
    return tuple(_target_cases(costs, scenario, question.operator or scenario.target, ranks))


def ranks_of(question: Question) -> float:
    """Ranks of an operator: as asked, else those of the servers."""
    machine, scenario = question.machine, question.scenario
    return scenario.ranks or npus_of(scenario, machine, machine.ranks_per_server)


def _target_cases(costs: Costs, scenario: Scenario, operator: str, ranks: float) -> Iterator[Case]:
    if operator == MOE_LAYER:
        missing = [axis for axis in "mnk" if getattr(scenario, axis) is None]
        if missing:
            raise InputError([f"{axis}: is missing; write -{axis} NUMBER" for axis in missing])
        path = ExpertSizes.of_layer(scenario, ranks)
        yield from expert_cases(costs, scenario, path)
        yield from serving_cases(costs, scenario, path)
        return
    yield operator_case(costs, scenario, operator, ranks)
    if operator in OPERATORS and OPERATORS[operator].collective != "all_to_all":
        rows = scenario.m
        if rows is not None:
            yield from framework_cases(costs, scenario, rows, ranks, None)


def _model_cases(costs: Costs, scenario: Scenario, model: Model) -> Iterator[Case]:
    layout, _, reasons = model_layout(scenario, costs.machine, model)
    if reasons and np.size(layout.tokens) == 1:
        raise InputError([reason.text for reason in reasons])
    yield from model_cases(costs, scenario, model, layout)
    path = ExpertSizes.of_model(model, layout) if model.experts and layout.ep > 1 else None
    if path is not None:
        yield from serving_cases(costs, scenario, path)
    yield from framework_cases(costs, scenario, layout.gathered, layout.tp, path)


def of_one_row(case: Case) -> Case:
    """The same case with its columns of one row as numbers."""
    plain = {
        name: value.item() if isinstance(value, np.ndarray) else value
        for name, value in case.facts.given.items()
    }
    return replace(case, facts=Facts(plain))


# --- verdicts ------------------------------------------------------------------------------------------


def checks(question: Question) -> tuple[Check, ...]:
    """Every version of every operator of a question, judged, with what would make it legal.

    Raises
    ------
    InputError
        The question contradicts itself.
    """
    cases = tuple(map(of_one_row, cases_of(question)))
    judge = _Judge(question)
    operators = dict.fromkeys(case.operator for case in cases)
    return tuple(
        _merged([check for name in operators for check in judge.versions(name, _named(cases, name))])
    )


def _named(cases: Sequence[Case], operator: str) -> tuple[Case, ...]:
    return tuple(case for case in cases if case.operator == operator)


class _Judge:
    """Judges operators of one question; rules and facts that were judged before are not searched again."""

    def __init__(self, question: Question) -> None:
        self.question, self.changes = question, _changes_of(question)
        self._mends: dict[object, tuple[Mend, ...]] = {}

    def versions(self, operator: str, cases: tuple[Case, ...]) -> Iterator[Check]:
        """One operator: a check for every version, or one that says where it is offered."""
        family = self.question.machine.family
        pieces = PIECES.get(operator, UNKNOWN_PIECES)
        for version in variants_of(operator, family):
            findings = tuple(dict.fromkeys(f for case in cases for f in findings_of(version, case)))
            needs = tuple(dict.fromkeys(name for case in cases for name in version.needs(case.facts)))
            status = _status(findings, needs)
            yield Check(
                operators=(operator,), version=version.version, status=status, findings=findings, needs=needs,
                mends=self._mended(version, cases, status), pieces=pieces, minds=version.minds,
            )  # fmt: skip
        if not variants_of(operator, family) and operator not in SWITCHES:
            where = [other for other in FAMILIES if variants_of(operator, other)]
            text = f"is not offered on {family}; it is on {', '.join(where)}"
            yield Check(
                operators=(operator,), version="-", status="refused", pieces=pieces,
                findings=(Finding("refused", text, NO_DOCUMENT),), mends=self._elsewhere(operator, cases),
            )  # fmt: skip

    def _mended(self, version: Variant, cases: tuple[Case, ...], status: Status) -> tuple[Mend, ...]:
        if status not in ("refused", "legal but slow"):
            return ()
        key = (version.rules, _key(cases))
        if key not in self._mends:
            self._mends[key] = nearest_mends(self.changes, version)
        if not self._mends[key] and status == "refused":
            return self._elsewhere(version.operator, cases)
        return self._mends[key]

    def _elsewhere(self, operator: str, cases: tuple[Case, ...]) -> tuple[Mend, ...]:
        every = tuple(variants_of(operator, family) for family in FAMILIES)
        key = (tuple(version.rules for versions in every for version in versions), _key(cases))
        if key not in self._mends:
            self._mends[key] = _on_other_machines(self.question, operator)
        return self._mends[key]


def _key(cases: Sequence[Case]) -> object:
    """What tells cases of one row from others, whatever their operator is called."""
    return tuple(tuple(sorted(case.facts.given.items(), key=lambda item: item[0])) for case in cases)


def _changes_of(question: Question) -> Changes:
    model = question.model
    divided: dict[str, float] = {}
    if model is not None:
        heads = [mixer.heads for mixer in model.mixers.values()]
        divided = {"tp": float(math.gcd(*heads))}
        divided |= {"ep": float(model.experts.count)} if model.experts else {}
    return Changes(
        question.scenario, Asked(lambda scenario: cases_of(replace(question, scenario=scenario))), divided
    )


def _on_other_machines(question: Question, operator: str) -> tuple[Mend, ...]:
    """Another machine on which it is legal, with as few other changes as that takes."""
    found: list[Mend] = []
    for family, name in FAMILIES.items() if question.load else ():
        if family == question.machine.family or not variants_of(operator, family):
            continue
        assert question.load is not None
        scenario = replace(question.scenario, hardware=name)
        changes = _changes_of(replace(question, machine=question.load(name), scenario=scenario))
        for version in variants_of(operator, family):
            ways = ((),) if changes.mended(version, frozenset()) else nearest_mends(changes, version)
            found += ((Change("hardware", name), *way) for way in ways)
    return tuple(sorted(found, key=len))[:1]


def findings_of(version: Variant, case: Case) -> Iterator[Finding]:
    """What a version's rules find in a case of one row."""
    role = f"{case.role}: " if case.role and not case.operator.startswith(("all_to_all", "grouped")) else ""
    for rule in version.failing(case.facts):
        words = rule.words(case.facts, NAMES.get(case.operator, {}))
        yield Finding(rule.effect, role + words, rule.source)


def _status(findings: Sequence[Finding], needs: tuple[str, ...]) -> Status:
    effects = {finding.effect for finding in findings}
    if "refused" in effects:
        return "refused"
    if needs:
        return "cannot tell"
    return "legal but slow" if effects & {"serial", "slow"} else "legal"


def _merged(each: Sequence[Check]) -> Iterator[Check]:
    """Operators that the same rules judge alike, version by version, as one."""
    by_operator: dict[str, list[Check]] = {}
    for check in each:
        by_operator.setdefault(check.operators[0], []).append(check)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for operator, rows in by_operator.items():
        groups.setdefault(tuple(replace(row, operators=()) for row in rows), []).append(operator)
    for alike, operators in groups.items():
        yield from (replace(row, operators=tuple(operators)) for row in alike)


def legal_ones(checked: Sequence[Check]) -> tuple[str, ...]:
    """Operators of which a version runs."""
    return tuple(dict.fromkeys(name for c in checked if c.decides and c.runs for name in c.operators))


def asked_of(checked: Sequence[Check], operators: Sequence[str]) -> tuple[Check, ...]:
    """Only the operators asked for; all of them if none is named.

    Raises
    ------
    InputError
        A name that the question does not use.
    """
    if not operators:
        return tuple(checked)
    known = {name for check in checked for name in check.operators}
    unknown = [name for name in operators if name not in known]
    if unknown:
        raise InputError(
            f"operator: '{name}' is not used here{did_you_mean(name, known)}" for name in unknown
        )
    return tuple(check for check in checked if set(check.operators) & set(operators))
