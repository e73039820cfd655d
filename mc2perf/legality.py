"""May it run here? Cases judged by the rules of :mod:`mc2perf.rules`: legal where one version is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.cases import Case
from mc2perf.rules.catalogue import NAMES, variants_of
from mc2perf.rules.rule import Mask, Variant


class Said(NamedTuple):
    """What a rule says, where, and the stable code under which an estimate warns."""

    text: str
    where: bool | NDArray[np.bool_] = True
    code: str = ""


@dataclass(frozen=True)
class Verdict:
    """What rules say of a case: where it is refused, whether it runs unfused, what else to know."""

    refused: tuple[Said, ...] = ()
    serial: tuple[Said, ...] = ()
    remarks: tuple[Said, ...] = ()

    @property
    def refusal(self) -> str:
        """Why no row is legal; empty if some are."""
        everywhere = [said.text for said in self.refused if np.all(said.where)]
        return "; ".join(dict.fromkeys(everywhere))

    @property
    def fallback(self) -> str:
        """Why it runs unfused; empty if it does not."""
        return "; ".join(dict.fromkeys(said.text for said in self.serial))


COC_OPERATORS = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")
"""What MindSpeed's CoC cuts (its feature page: tensor-parallel matmuls, no MoE)."""

NO_CANN = "MC2 is part of CANN; this machine is not an Ascend"
NO_SERIAL_COC = "CoC cuts tensor-parallel matmuls only; this is an exchange of experts or heads"


def coc_refusal(operator: str) -> str:
    """Why CoC does not cut this operator; empty if it does."""
    return "" if operator in COC_OPERATORS else NO_SERIAL_COC


# --- verdicts ------------------------------------------------------------------------------------------


def judged(case: Case) -> Verdict:
    """What the versions of an operator say: refused where every one of them refuses.

    Words come from the version that refuses least, the newest of equals.
    """
    family = str(case.facts["family"])
    if family == "gpu":
        return Verdict((Said(NO_CANN),))
    versions = variants_of(case.operator, family)
    if not versions:
        return Verdict((Said(f"{case.operator} is not offered on {family}"),))
    masks = [version.refused(case.facts) for version in versions]
    least = min(range(len(versions)), key=lambda i: (float(np.mean(masks[i])), -i))
    everywhere: Mask = np.logical_and.reduce(np.broadcast_arrays(*masks))
    return _said(case, versions[least], everywhere)


def _said(case: Case, version: Variant, refused: Mask) -> Verdict:
    """A version's failing rules in words."""
    said: dict[str, list[Said]] = {"refused": [], "serial": [], "slow": [], "note": []}
    for rule in version.failing(case.facts):
        where = np.asarray(rule.broken(case.facts))
        where = where & refused if rule.effect == "refused" else where
        if np.any(where):
            words = rule.words(case.facts, NAMES.get(case.operator, {}))
            text = words if rule.says else f"{case.operator} {version.version}: {words}"
            said[rule.effect].append(Said(text, where, rule.code))
    return Verdict(tuple(said["refused"]), tuple(said["serial"]), (*said["slow"], *said["note"]))


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """What several operators say together: each has to run."""
    return Verdict(
        tuple(said for verdict in verdicts for said in verdict.refused),
        tuple(said for verdict in verdicts for said in verdict.serial),
        tuple(said for verdict in verdicts for said in verdict.remarks),
    )
