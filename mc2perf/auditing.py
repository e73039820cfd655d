"""From the words of an audit to its answers: claims, their machine and model, every problem at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mc2perf.answer import Answer
from mc2perf.claims import Claims
from mc2perf.problems import InputError, Problems
from mc2perf.readers.claims import claims_names, load_claims, parse_claims
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, named
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import Scenario, is_operator
from mc2perf.studies.audit import Audit, beside_model, different_work, judged, together
from mc2perf.studies.layouts import candidates_for
from mc2perf.study import Study

ASSUMPTIONS = (
    "overlap leaves all other work as it is; rounding of printed numbers counts in favour of a claim",
    "layouts, unless stated: experts or matmuls apart over all NPUs, one server or two; 4096 tokens or 256, "
    "in decode 1, 32 or 256 sequences",
    "training: layers alone, or a whole step of one sample per replica with gradients and optimizer",
    "without RDMA fused operators run serial; the rate of TCP itself is not priced",
)
"""What stands beside predictions."""


def ask_audit(
    names: Sequence[str],
    texts: Sequence[str],
    given: Mapping[str, object],
    overrides: Mapping[str, str] | None = None,
    own: Sequence[Path] = (),
) -> list[Audit]:
    """Audit sets of claims.

    Parameters
    ----------
    names : sequence of str
        Shipped sets or YAML files; every shipped set if there are no texts either.
    texts : sequence of str
        Claims as ``name:comm_ratio=47%,tokens_per_second=580``, together one more set.
    given : mapping
        ``target`` and inputs of a scenario that hold for all; a claim's own inputs win.
    overrides : mapping
        Overrides of the hardware profile.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> audit, = ask_audit([], ["a:comm_ratio=50%", "b:comm_ratio=20%,speedup=1.6x"], {})
    >>> [judgement.verdict for judgement in audit.judgements]
    ['base', 'holds']
    """
    problems = Problems()
    sets: list[Claims] = []
    for name in names or ([] if texts else claims_names()):
        with problems:
            sets.append(load_claims(name))
    with problems:
        sets += [parse_claims(texts)] if texts else []
    stated = {key: value for key, value in given.items() if value is not None}
    audits = []
    for claims in sets:
        with problems:
            audits.append(_audit(claims, stated, overrides or {}, own))
    problems.refuse()
    return audits


def _audit(
    claims: Claims, given: Mapping[str, object], overrides: Mapping[str, str], own: Sequence[Path]
) -> Audit:
    """One set by arithmetic, and beside the model where it names one."""
    judgements = judged(claims)
    target = str(given.get("target") or claims.target)
    remarks = tuple(different_work(judgements))
    if not target:
        return Audit(claims=claims, judgements=tuple(judgements), remarks=remarks)
    if is_operator(target):
        raise InputError([f"target: '{target}' is an operator; claims of tokens are of models"])
    common = {**claims.inputs, **{key: value for key, value in given.items() if key != "target"}}
    model = load_model(target)
    beside, hardware = [], ""
    known: dict[str, dict[Scenario, tuple[Answer, Study]]] = defaultdict(dict)
    for judgement in judgements:
        stated = {**common, **judgement.claim.inputs}
        scenario, from_file = read_scenario(target, stated)
        machine = load_machine(scenario.hardware, own, {**from_file, **overrides})
        hardware = named(scenario, machine).hardware
        overlapped = judgement.base is not None
        found = candidates_for(scenario, stated, overlapped, machine, model, known[machine.fingerprint])
        beside.append(beside_model(judgement, found))
    return replace(
        Audit(claims=claims, judgements=tuple(beside), remarks=remarks),
        layout=together(beside), target=target, hardware=hardware, assumptions=ASSUMPTIONS,
    )  # fmt: skip
