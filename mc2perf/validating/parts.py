"""Parts of an expert layer that are measured alone: exchanges, the grouped matmul."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from mc2perf.costs import Costs, Ledger
from mc2perf.equations.routing import dispatch_bytes, distinct_experts
from mc2perf.machine import Machine
from mc2perf.machine.links import Tier
from mc2perf.measurement import Plain
from mc2perf.model import Experts
from mc2perf.operators import DTYPES
from mc2perf.problems import InputError
from mc2perf.readers.skew import read_skew
from mc2perf.skew import Busiest, Group, Skew
from mc2perf.validating.questions import EXCHANGES, GROUPED_MATMUL, number
from mc2perf.workload.dispatch import arrival
from mc2perf.workload.routing import Routing

EVEN = str(Skew())


class Alone(NamedTuple):
    """A part alone: its time, the work and the bytes of the naive model at peak [s], bytes exchanged. [B]"""

    time: float
    work_time: float
    bytes_time: float = 0.0
    exchanged: float = 0.0


def part_alone(question: Mapping[str, Plain], machine: Machine) -> Alone:
    """Price a part of an expert layer.

    Raises
    ------
    InputError
        What is missing or priced in another way.
    """
    if question["target"] == GROUPED_MATMUL:
        return grouped_matmul(question, machine)
    found = [exchanged(question, machine, name) for name in EXCHANGES[str(question["target"])]]
    return Alone(*(sum(parts) for parts in zip(*found, strict=True)))


def exchanged(question: Mapping[str, Plain], machine: Machine, name: str) -> Alone:
    """One dispatch or combine, by the kernels of its ``mode`` where the machine has them.

    Parameters
    ----------
    question : mapping
        ``m`` tokens of a rank, ``k`` hidden size, ``top_k``, ``ranks``; ``experts`` where copies are dropped.
    machine : Machine
        Where it runs.
    name : str
        ``dispatch`` or ``combine``.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> asked = {"m": 128, "k": 7168, "top_k": 8, "ranks": 8, "dispatch_dtype": "fp8"}
    >>> found = exchanged(asked, load_machine("h800_sxm", (), {}), "dispatch")
    >>> found.exchanged, found.time > 7 / 8 * found.exchanged / 200e9
    (7344128.0, True)
    """
    engine = engine_of_mode(question, machine)
    costs = Costs(machine, Ledger(), engine, cuts_messages=True)
    tiers = [tier for _, tier in costs.tiers_for(number(question.get("ranks", 1)))]
    drops = [tier for tier in tiers if costs.engine_of(tier, "all_to_all")[1].deduplicates]
    routing = _routing(question, tiers[0], must_say_experts=bool(drops))
    dtype = str(
        question.get(f"{name}_dtype", question.get("dtype", "bf16") if name == "dispatch" else "bf16")
    )
    time = float(arrival(costs, routing, name, dtype, 1.0).cost.time)
    item, width = DTYPES[dtype], routing.hidden_size
    copies = _counted_copies(question, routing, bool(drops))
    size = float(dispatch_bytes(routing.tokens, copies, width, item.size, item.scale_bytes_per_row(width)))
    inner = tiers[0]
    return Alone(time, work_time=size / (inner.links * inner.link_rate), exchanged=size)


def engine_of_mode(question: Mapping[str, Plain], machine: Machine) -> str | None:
    """The engine that is asked for, or the one for the kernels of a mode where the machine has it."""
    if "engine" in question:
        return str(question["engine"])
    name = f"ep_{question.get('mode')}"
    return name if any(name in tier.engines for tier in machine.tiers.values()) else None


def _routing(question: Mapping[str, Plain], server: Tier, must_say_experts: bool) -> Routing:
    """The expert path that the exchange belongs to; the width of experts is no matter of it."""
    missing = [name for name in ("m", "k", "top_k", "ranks") if name not in question]
    if must_say_experts and "experts" not in question:
        missing.append("experts, on which the copies of a token depend")
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    m, k, top_k, ranks = (number(question[name]) for name in ("m", "k", "top_k", "ranks"))
    groups = number(question.get("expert_groups", 1))
    # where no copies are dropped, experts only need to be at least top_k
    experts = Experts(
        count=int(number(question.get("experts", ranks * max(1, ceil(top_k / ranks))))),
        top_k=int(top_k),
        width=1,
        shared_width=0,
        payload_width=int(k),
        groups=int(groups),
        top_groups=int(number(question.get("top_groups", groups))),
    )
    return Routing(
        experts=experts,
        hidden_size=k,
        matrices=3.0,
        tokens=m,
        ep=ranks,
        servers=float(ceil(ranks / min(ranks, server.ranks))),
        dtype="bf16",
        expert_dtype="bf16",
        dispatch_dtype="bf16",
        combine_dtype="bf16",
        busiest=_busiest(question, experts, ranks),
    )


def _busiest(question: Mapping[str, Plain], experts: Experts, ranks: float) -> Busiest:
    """The busiest rank under the skew that is stated."""
    try:
        skew = read_skew(question.get("skew", EVEN))
    except ValueError as error:
        raise InputError([f"skew: {error}"]) from None
    group = Group(experts.count, int(ranks), experts.top_k)
    if problems := list(skew.problems(group)):
        raise InputError(problems)
    return skew.busiest(group)


def _counted_copies(question: Mapping[str, Plain], routing: Routing, drops: bool) -> float:
    """Copies of a token that a printed rate counts, those that stay included: on the slowest tier of all.

    Kernels that drop copies count what is left of them: one for each server, or inside one for each rank.
    """
    places = routing.servers if routing.servers > 1.0 else routing.ep
    return routing.experts.top_k * (routing.kept(places) if drops else 1.0)


def grouped_matmul(question: Mapping[str, Plain], machine: Machine) -> Alone:
    """The matmul of a rank's experts; weights are read of those that are expected to get rows.

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
    >>> found = grouped_matmul({**rows, "dtype": "fp8"}, load_machine("h800_sxm", (), {}))
    >>> 256 * 4096 * 7168 / 3.35e12 < found.time
    True
    """
    names = ("m", "n", "k", "experts", "experts_per_rank", "top_k")
    dtype, missing = str(question.get("dtype", "bf16")), [name for name in names if name not in question]
    if missing:
        raise InputError([f"unstated: {', '.join(missing)}"])
    if dtype not in machine.cube.peak:
        raise InputError([f"dtype: {machine.name} has no peak of {dtype}"])
    if question.get("skew", EVEN) != EVEN:
        raise InputError(["inputs: rows of a grouped matmul are priced evenly spread"])
    m, n, k, experts, local, top_k = (number(question[name]) for name in names)
    touched = distinct_experts(experts, top_k, m * experts / local / top_k) * local / experts
    cost = Costs(machine, Ledger(), cuts_messages=True).matmul(GROUPED_MATMUL, m, n, k, dtype, local, touched)
    weights = local * n * k * DTYPES[dtype].size
    return Alone(
        float(cost.time), 2.0 * m * n * k / machine.cube.peak[dtype], weights / machine.memory.bandwidth
    )
