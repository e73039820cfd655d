"""Relations between measured values, such as faster than or a sum: whether predictions keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mc2perf.measurement import Family, Relation, numbers
from mc2perf.studies.validate.asked import Case


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a relation holds on measured values and on predictions; None where some are missing."""

    family: str
    relation: Relation
    measured: bool | None
    predicted: bool | None


def checks(families: Iterable[Family], cases: Sequence[Case]) -> tuple[Check, ...]:
    """Every relation of these families, on measured values and on predictions."""
    families = tuple(families)
    known, said = numbers(families), _predictions(families, cases)
    return tuple(
        Check(
            family=family.family,
            relation=relation,
            measured=_holds(relation, known),
            predicted=_holds(relation, said) if _of_values(relation) else None,
        )
        for family in families
        for relation in family.relations
    )


def _predictions(families: Iterable[Family], cases: Iterable[Case]) -> dict[str, float]:
    """Inputs as they are, and predictions in the place of values."""
    found = {case.address: case.predicted for case in cases if case.predicted is not None}
    for row in (row for family in families for row in family.rows):
        first = f"{row.id}/{row.values[0].key}"
        if first in found:
            found[row.id] = found[first]
    inputs = {name: number for name, number in numbers(families).items() if ":" in name}
    return {**inputs, **found}


def _of_values(relation: Relation) -> bool:
    """Whether it says anything of values; those of inputs alone predict nothing."""
    return any(":" not in name for name in relation.references())


def _holds(relation: Relation, known: Mapping[str, float]) -> bool | None:
    """Whether it holds; one that divides by a predicted 0 does not."""
    try:
        return relation.holds(known)
    except ValueError:
        return False
