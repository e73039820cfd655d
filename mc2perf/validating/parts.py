"""Parts of an expert layer that are measured alone: exchanges, the grouped matmul."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from mc2perf.costs import Costs, Ledger
from mc2perf.equations.routing import distinct_experts
from mc2perf.machine import Machine
from mc2perf.measurement import Plain
from mc2perf.problems import InputError
from mc2perf.validating.inputs import operator_inputs
from mc2perf.validating.questions import GROUPED_MATMUL, OF_PARTS, number


def exchange_inputs(question: Mapping[str, Plain], machine: Machine) -> dict[str, Plain]:
    """What the expert layer is asked with for its dispatch or combine, which do not depend on the width.

    Raises
    ------
    InputError
        Ranks of several servers without experts: how many copies cross once depends on them; or inputs
        that the exchange cannot do without.
    """
    missing = [name for name in ("m", "k", "top_k", "ranks") if name not in question]
    ranks = number(question.get("ranks", 1))
    if ranks > float(next(iter(machine.tiers.values())).ranks) and "experts" not in question:
        missing.append("experts, on which the copies between servers depend")
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    # where the source says no experts, those of one server only need to be at least top_k
    experts = question.get("experts", ranks * max(1, ceil(number(question["top_k"]) / ranks)))
    width = {"n": question.get("n", question["k"])}
    asked = {name: value for name, value in question.items() if name not in OF_PARTS}
    return operator_inputs({**asked, **width, "experts": experts, "schedule": "serial"})


def grouped_matmul_time(question: Mapping[str, Plain], machine: Machine) -> float:
    """Time of the matmul of a rank's experts; weights are read of those that are expected to get rows. [s]

    Parameters
    ----------
    question : mapping
        ``m`` rows of all local experts together, ``n``, ``k``, ``experts``, ``experts_per_rank``, ``top_k``.
    machine : Machine
        Where it runs.

    Raises
    ------
    InputError
        What is missing, rows that are not evenly spread, and a type that the machine has no rate for.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> rows = {"m": 1024, "n": 4096, "k": 7168, "experts": 256, "experts_per_rank": 256, "top_k": 8}
    >>> time = grouped_matmul_time({**rows, "dtype": "fp8"}, load_machine("h800_sxm", (), {}))
    >>> 256 * 4096 * 7168 / 3.35e12 < time
    True
    """
    names = ("m", "n", "k", "experts", "experts_per_rank", "top_k")
    dtype, missing = str(question.get("dtype", "bf16")), [name for name in names if name not in question]
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    if dtype not in machine.cube.peak:
        raise InputError([f"dtype: {machine.name} has no peak of {dtype}"])
    if number(question.get("imbalance", 1)) != 1.0:
        raise InputError(["inputs: rows of a grouped matmul are priced evenly spread"])
    m, n, k, experts, local, top_k = (number(question[name]) for name in names)
    touched = distinct_experts(experts, top_k, m * experts / local / top_k) * local / experts
    costs = Costs(machine, Ledger(), cuts_messages=True)
    cost = costs.matmul(GROUPED_MATMUL, m, n, k, dtype, local, touched)
    return float(cost.time)
