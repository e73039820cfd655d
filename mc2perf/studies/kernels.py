"""How well a machine's rules meet tables of measured kernels, next to a naive roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.costs import Costs, Ledger
from mc2perf.equations import matmul, routing
from mc2perf.equations.attention import attention_flops, cache_bytes
from mc2perf.equations.collectives import PASSES
from mc2perf.kernels import KernelTable, Numbers
from mc2perf.machine import Machine

ALL = "all"
"""The size class of all rows of a table."""

_EFFICIENCIES = np.geomspace(0.02, 50.0, 161)
"""Candidates for the two constants of the naive roofline; above 1 it cheats, which only helps it."""


@dataclass(frozen=True)
class Score:
    """Relative errors of the predicted times of some rows, and of the naive roofline on the same rows.

    ``bias`` is the median of the signed errors, ``worst_row`` the row with the largest one.
    """

    table: str
    kind: str
    dtype: str
    size_class: str
    count: int
    median: float
    p90: float
    worst: float
    bias: float
    worst_row: str
    naive_median: float
    naive_p90: float


def score(tables: Iterable[KernelTable], machine: Machine) -> list[Score]:
    """Score a machine against measured kernels, by table and size class.

    Parameters
    ----------
    tables : iterable of KernelTable
        What was measured on this machine.
    machine : Machine
        Whose rules are scored; collectives are those of its default engines.

    Returns
    -------
    list of Score
        For each table all rows first, then its size classes that have rows.

    Notes
    -----
    Kernels run back to back on the same data, so what fits may stay in L2: caches of decode attention are
    priced warm, matmuls by the rule that was fitted with L2 flushed. The naive roofline is FLOPs / (peak x
    one share) + bytes / (bandwidth x another), with the two shares that give its least median error on
    the very table; its MoE layer reads all experts of a rank.
    """
    return [one for table in tables for one in _scores(table, machine)]


def predicted(table: KernelTable, machine: Machine) -> Numbers:
    """Predicted times of all rows of a table. [s]"""
    costs = Costs(machine, Ledger(), warm_l2=table.kind.name == "decode_attention")
    return np.asarray(PRICES[table.kind.name](costs, table), float)


def outliers(table: KernelTable, machine: Machine, beyond: float) -> list[str]:
    """Name the rows whose error is larger than ``beyond``, worst first.

    Parameters
    ----------
    table : KernelTable
        What was measured on this machine.
    machine : Machine
        Whose rules are scored.
    beyond : float
        Relative error.
    """
    errors = predicted(table, machine) / table.time - 1.0
    worst = np.argsort(-np.abs(errors), kind="stable")
    return [f"{table.row(i)}: {errors[i]:+.0%}" for i in worst.tolist() if abs(errors[i]) > beyond]


def _scores(table: KernelTable, machine: Machine) -> Iterable[Score]:
    errors = predicted(table, machine) / table.time - 1.0
    naive = _naive(table, machine) / table.time - 1.0
    sizes = _class_sizes(table)
    classes = np.searchsorted(table.kind.bounds, sizes)
    yield _score(table, ALL, errors, naive, np.ones(len(table), bool))
    for code, name in enumerate(table.kind.classes()):
        if np.any(classes == code):
            yield _score(table, name, errors, naive, classes == code)


def _score(
    table: KernelTable, size_class: str, errors: Numbers, naive: Numbers, at: NDArray[np.bool_]
) -> Score:
    absolute, here = np.abs(errors), np.flatnonzero(at)
    worst = here[np.argmax(absolute[here])]
    return Score(
        table=table.name,
        kind=table.kind.name,
        dtype=table.dtype,
        size_class=size_class,
        count=len(here),
        median=float(np.median(absolute[here])),
        p90=float(np.quantile(absolute[here], 0.9)),
        worst=float(absolute[worst]),
        bias=float(np.median(errors[here])),
        worst_row=table.row(int(worst)),
        naive_median=float(np.median(np.abs(naive[here]))),
        naive_p90=float(np.quantile(np.abs(naive[here]), 0.9)),
    )


def _class_sizes(table: KernelTable) -> Numbers:
    if table.kind.sorted_by == "cache_bytes":
        return np.asarray(work_of_rows(table)[1])
    return table.columns[table.kind.sorted_by]


# --- prices by kind of kernel


def _matmul(costs: Costs, table: KernelTable) -> Any:
    m, n, k = (table.columns[name] for name in "mnk")
    if table.dtype == "w8a8":
        return costs.quantised_matmul("matmul", m, n, k).time
    return costs.matmul("matmul", m, n, k, table.dtype).time


def _moe_ffn(costs: Costs, table: KernelTable) -> Any:
    """Both grouped matmuls of a gated layer on one rank, the activation, and the sorting of all rows.

    The rank sorts the rows of its whole group before it keeps its own.
    """
    c = table.columns
    rows, local = c["num_tokens"] * c["top_k"] / c["ep"], c["num_experts"] / c["ep"]
    touched = routing.distinct_experts(local, c["top_k"] / c["ep"], c["num_tokens"])
    up, down = (2.0 * c["width"], c["hidden_size"]), (c["hidden_size"], c["width"])
    total = costs.vector("activation", rows * 3.0 * c["width"] * 2.0).time
    total = total + costs.vector("permute", rows * c["ep"] * 2.0 * c["hidden_size"] * 2.0).time
    for n, k in (up, down):
        if table.dtype == "w8a8":
            total = total + costs.quantised_matmul("experts", rows, n, k, touched).time
        else:
            total = total + costs.matmul("experts", rows, n, k, table.dtype, local, touched).time
    return total


def _context(costs: Costs, table: KernelTable) -> Any:
    seq_len = table.columns["seq_len"]
    return costs.attention("attention", work_of_rows(table)[0], table.dtype, seq_len).time


def _decode(costs: Costs, table: KernelTable) -> Any:
    c = table.columns
    return costs.decode_attention(
        "attention", c["batch"], c["seq_len"], c["heads"], c["kv_heads"], c["head_dim"], c["head_dim"],
        table.dtype,
    ).time  # fmt: skip


def _collective(costs: Costs, table: KernelTable) -> Any:
    ops, ranks, size = np.array(table.words), table.columns["ranks"], table.columns["size"]
    times = np.empty(len(table))
    for op in dict.fromkeys(table.words):
        for p in np.unique(ranks[ops == op]):
            at = (ops == op) & (ranks == p)
            times[at] = costs.collective(op, op, size[at], float(p)).time
    return times


PRICES: dict[str, Callable[[Costs, KernelTable], Any]] = {
    "matmul": _matmul,
    "moe_ffn": _moe_ffn,
    "context_attention": _context,
    "decode_attention": _decode,
    "collective": _collective,
}
"""Kind of kernel -> the times of its rows."""


# --- the naive roofline


def work_of_rows(table: KernelTable) -> tuple[Any, Any]:
    """FLOPs of the rows of a table, and bytes that have to move."""
    c, item = table.columns, 1.0 if table.dtype == "w8a8" else 2.0
    flops: Any = np.zeros(len(table))
    if table.kind.name == "matmul":
        flops = matmul.matmul_flops(c["m"], c["n"], c["k"])
        moved = matmul.weight_bytes(1.0, c["n"], c["k"], item)
        moved = moved + matmul.activation_bytes(c["m"], c["n"], c["k"], item, 2.0)
    elif table.kind.name == "moe_ffn":
        rows, weights = c["num_tokens"] * c["top_k"] / c["ep"], 3.0 * c["hidden_size"] * c["width"]
        flops = 2.0 * rows * weights
        moved = c["num_experts"] / c["ep"] * weights * item
    elif table.kind.name == "collective":
        passes = np.array([PASSES[op] for op in table.words])
        moved = passes * (c["ranks"] - 1.0) / c["ranks"] * c["size"]
    else:
        decode = table.kind.name == "decode_attention"
        queries = c["batch"] if decode else c["batch"] * c["seq_len"]
        dims = (c["head_dim"], c["head_dim"])
        flops = attention_flops(queries, c["seq_len"], c["heads"], *dims)
        moved = cache_bytes(c["batch"], c["seq_len"], c["kv_heads"], *dims, item)
        if not decode:
            moved = moved + cache_bytes(c["batch"], c["seq_len"], c["heads"], *dims, item)
    return flops, moved


def _naive(table: KernelTable, machine: Machine) -> Numbers:
    """The roofline with the two shares that suit the table best."""
    flops, moved = work_of_rows(table)
    peak = machine.cube.peak["int8" if table.dtype == "w8a8" else "bf16"]
    bandwidth = machine.memory.bandwidth
    if table.kind.name == "collective":
        tier = next(iter(machine.tiers.values()))
        bandwidth = tier.links * tier.link_rate
    compute, memory = flops / peak, moved / bandwidth
    best, least = compute + memory, np.inf
    for share in _EFFICIENCIES if np.any(flops) else (1.0,):
        guesses = compute / share + memory / _EFFICIENCIES[:, None]
        medians = np.median(np.abs(guesses / table.time - 1.0), axis=1)
        if medians.min() < least:
            best, least = guesses[np.argmin(medians)], medians.min()
    return np.asarray(best)
