"""Which path an MoE layer takes in a serving stack, which one is fastest, and where each gives way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mc2perf import schedules
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import DTYPES
from mc2perf.problems import InputError
from mc2perf.rules.facts import Facts
from mc2perf.rules.selector import CAPS, capacity, selected
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of
from mc2perf.units import Num
from mc2perf.workload.experts import expert_path
from mc2perf.workload.layer import routing_of
from mc2perf.workload.parts import Segments, time_of
from mc2perf.workload.routing import Routing

Times = NDArray[np.float64]

CLEARLY = 1.01
"""A path takes over where it is faster by this factor: steps of the kernels' occupancy are not crossings."""

IN_THE_KERNEL = ("counts", "permute", "unpermute")
"""Steps of the all-to-all path that the dispatch and combine operators do themselves."""

ASSUMPTIONS = (
    "one MoE layer, forward: from the gate to the sum of the experts' results",
    "mc2: exchanges counts and orders rows inside its two operators, nothing overlaps",
    "fused_mc2: exchange and experts overlap per local expert, as in all_to_all_v_grouped_matmul",
    "all_gather: every rank gathers the tokens of all, computes its experts, partial sums are scattered",
    "device time: all_to_all also waits for its counts on the host, which no public measurement prices",
    "a path is called the fastest from where it is 1 % faster",
)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a serving stack is started with.

    ``fused`` is off, dispatch_ffn_combine or mega_moe. The most tokens that a step may have follow from
    ``max_num_batched_tokens`` if prompts may use mc2, else from the largest captured graph, else from
    sequences x query length.
    """

    max_num_batched_tokens: float = 8192.0
    max_num_seqs: float = 256.0
    graph_size: float | None = None
    query_len: float = 1.0
    prefill_mc2: bool = False
    fused: str = "off"
    mega_moe_max_tokens: float = 4096.0
    lora: bool = False

    @property
    def most_tokens(self) -> float:
        """Tokens T of a tensor-parallel group that the buffers are made for."""
        if self.prefill_mc2:
            return self.max_num_batched_tokens
        return self.graph_size or self.max_num_seqs * self.query_len

    def capacity(self, tp: float) -> float:
        """Tokens of a tensor-parallel group up to which mc2 is taken."""
        return capacity(tp, self.most_tokens, CAPS[self.fused])

    def refusals(self, tp: float) -> tuple[str, ...]:
        """Limits of the fused kernel that the start breaks, every one of them."""
        cap, rank = CAPS[self.fused], -(-self.max_num_batched_tokens // tp)
        said = []
        if self.fused == "mega_moe" and self.mega_moe_max_tokens > cap:
            said.append(
                f"mega_moe_max_tokens {self.mega_moe_max_tokens:g} is above the kernel's {cap:g} per rank"
            )
        most = min(cap, self.mega_moe_max_tokens) if self.fused == "mega_moe" else cap
        if self.fused != "off" and rank > most:
            asked = f"max_num_batched_tokens {self.max_num_batched_tokens:g} / tp {tp:g} = {rank:g}"
            said.append(f"{asked} tokens per rank are above the {most:g} of {self.fused}")
        return tuple(said)


@dataclass(frozen=True, kw_only=True)
class Paths:
    """For token counts of a tensor-parallel group, what is taken and what every path takes. [s]"""

    tokens: Times
    taken: tuple[str, ...]
    times: dict[str, Times]
    capacity: float
    ep: float
    tp: float
    refusals: tuple[str, ...]

    @property
    def fastest(self) -> tuple[str, ...]:
        """The fastest path of every count; one stays the fastest until another is clearly faster."""
        names, best = list(self.times), ""
        found = []
        for row in np.stack([self.times[name] for name in names], axis=-1).tolist():
            first = names[row.index(min(row))]
            if not best or row[names.index(first)] * CLEARLY < row[names.index(best)]:
                best = first
            found.append(best)
        return tuple(found)

    @property
    def loss(self) -> Times:
        """How much longer than the fastest the path takes that is taken; not-a-number where none is known."""
        least = np.min(np.stack(list(self.times.values())), axis=0)
        of = [self.times[name][i] if name else np.nan for i, name in enumerate(self.taken)]
        loss: Times = np.array(of) / least - 1.0
        return loss


def paths_of(scenario: Scenario, machine: Machine, model: Model, serving: Serving, tokens: Times) -> Paths:
    """Price every path at every token count.

    Parameters
    ----------
    scenario : Scenario
        Layout and types; its tokens are not looked at.
    machine, model : Machine, Model
        Where, and what.
    serving : Serving
        How the stack was started.
    tokens : array, shape (counts,)
        Tokens of a tensor-parallel group, rising.

    Raises
    ------
    InputError
        A dense model, or a scenario that contradicts itself.
    """
    if model.experts is None:
        raise InputError([f"paths: {model.name} is dense and has no expert path"])
    rows = np.ceil(tokens / scenario.tp).reshape(-1, 1)
    asked = replace(
        scenario, phase="prefill", tokens=rows, seq_len=None, batch_size=None, context_len=None,
        micro_batch_size=None, speculative_tokens=0.0, acceptance=1.0,
    )  # fmt: skip
    study = study_of(asked, machine, model)
    assert study.layout is not None
    routing, shape = routing_of(model, study.layout), rows.shape
    times = {name: _column(price(study, routing), shape) for name, price in PRICES.items()}
    experts = float(model.experts.count) + study.layout.redundant
    limit = serving.capacity(scenario.tp)
    known = {
        "ep": study.layout.ep,
        "world": study.npus,
        "experts": experts,
        "experts_per_rank": experts / study.layout.routed_ranks,
        "top_k": float(model.experts.top_k),
        "lora": serving.lora,
        "fused": serving.fused,
        "capacity": limit,
    }
    taken = tuple(selected(machine.family, Facts(known | {"tokens": t})) for t in tokens.tolist())
    return Paths(
        tokens=tokens, taken=taken, times=times, capacity=limit, ep=study.layout.ep, tp=scenario.tp,
        refusals=serving.refusals(scenario.tp),
    )  # fmt: skip


def _column(times: Num, shape: tuple[int, ...]) -> Times:
    return np.broadcast_to(np.asarray(times, float), shape)[:, 0]


def _all_to_all(study: Study, r: Routing) -> Num:
    return schedules.pair_serial(expert_path(study.costs, r)).total


def _fused(study: Study, r: Routing) -> Num:
    path = expert_path(study.costs, r)
    return schedules.experts_mc2(path, study.conditions(path)).total if r.ep > 1 else _all_to_all(study, r)


def _in_operators(study: Study, r: Routing) -> Num:
    """Dispatch and combine on the engine that they have where a profile knows one: that of decode."""
    p = expert_path(replace(study.costs, decode=True), r).build(1.0, False)
    around = tuple(s for s in (*p.before, *p.after) if s.name not in IN_THE_KERNEL)
    every = (*p.beside, *around, p.comm_in, p.first, *p.middle, p.second, p.comm_out)
    return _sum(every)


def _all_gather(study: Study, r: Routing) -> Num:
    p = expert_path(study.costs, r).build(1.0, False)
    size = r.tokens * r.ep * r.hidden_size
    gathered = study.costs.collective("gather", "all_gather", size * DTYPES[r.dispatch_dtype].size, r.ep)
    scattered = study.costs.collective("scatter", "reduce_scatter", size * DTYPES[r.combine_dtype].size, r.ep)
    around = tuple(s for s in (*p.before, *p.after) if s.engine == "compute")
    every = (*p.beside, *around, p.first, *p.middle, p.second)
    return _sum(every) + gathered.time + scattered.time


def _sum(segments: Segments) -> Num:
    return time_of(segments, "compute") + time_of(segments, "comm")


PRICES: dict[str, Callable[[Study, Routing], Num]] = {
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "mc2": _in_operators,
    "fused_mc2": _fused,
}
"""Path -> what a layer takes on it. [s]"""


def crossings(tokens: Times, names: Sequence[str]) -> list[tuple[str, float, float]]:
    """Runs of the same path: its name, its first and its last token count.

    Examples
    --------
    >>> crossings(np.array([1.0, 2.0, 4.0]), ["mc2", "mc2", "all_to_all"])
    [('mc2', 1.0, 2.0), ('all_to_all', 4.0, 4.0)]
    """
    runs: list[tuple[str, float, float]] = []
    for count, name in zip(tokens.tolist(), names, strict=True):
        first = runs.pop()[1] if runs and runs[-1][0] == name else count
        runs.append((name, first, count))
    return runs
