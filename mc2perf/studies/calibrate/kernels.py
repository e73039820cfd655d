"""Kernels from tables of their times: the numbers of the rule that prices them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mc2perf.equations.routing import distinct_experts
from mc2perf.fitting.robust import Numbers
from mc2perf.kernels import KernelTable
from mc2perf.machine import Machine
from mc2perf.machine.cube import KneeRule, L2StepsRule, PowerRule
from mc2perf.quantity import found
from mc2perf.studies.calibrate.parameters import fit_parameters, leaf, numbers_of, written
from mc2perf.studies.calibrate.plausible import computed, rising
from mc2perf.studies.calibrate.result import (
    Edit,
    Group,
    NotFittedError,
    Origin,
    Outcome,
    Path,
    Quality,
    sourced,
)
from mc2perf.studies.kernels import predicted, work_of_rows
from mc2perf.units import show

LEAST_ROWS = 3
"""Fewer shapes cannot tell a launch from a rate."""
ELSEWHERE = {L2StepsRule: ("rate_per_core", "part_size", "full_size"), PowerRule: ("rate_per_core",)}
"""Numbers of a rule that are no matter of speed: what its shares refer to, where its steps are."""
FIRST = ("utilisation", "launch", "memory_efficiency")
"""What data tell most easily; the rest of a rule's numbers follow in its own order."""


def fit_kernels(machine: Machine, table: KernelTable, origin: Origin) -> Outcome:
    """Fit the rule that prices a table of kernels.

    Parameters
    ----------
    machine : Machine
        The base: the form of the rule, and the values of what the table cannot tell.
    table : KernelTable
        Measured times; not of collectives.
    origin : Origin
        Where it comes from.

    Raises
    ------
    NotFittedError
        Too few shapes, an element type that the cube does not have, or impossible rows.
    """
    path = _rule_of(machine, table)
    flops, moved = _work(table)
    dtype = "int8" if table.dtype == "w8a8" else table.dtype
    if dtype not in machine.cube.peak:
        raise NotFittedError(
            f"the cube of {machine.name} has no {dtype}; it has {', '.join(machine.cube.peak)}"
        )
    possible = computed(machine, dtype, flops, moved - machine.memory.l2, table.time)
    possible &= rising(table.kind.sorted_by, *_by_work(table), table.time)
    aside = int((~possible).sum())
    table, flops = table.where(possible), flops[possible]
    if len(np.unique(flops)) < LEAST_ROWS:
        raise NotFittedError(
            f"{len(np.unique(flops))} shapes; a launch and a rate need at least {LEAST_ROWS}"
        )
    parameters = [leaf(machine, at) for at in _fitted_numbers(machine, path, table, dtype)]
    result = fit_parameters(machine, parameters, lambda m: predicted(table, m), table.time)
    residuals = result.fit.residuals
    quality = Quality.of(table.time, residuals, result.fit.outliers)
    rule = f"rule {'.'.join(path)} ({getattr(found(machine, path), 'form', 'its own')})"
    span = f"{flops.min():.3g} to {flops.max():.3g} FLOP"
    group = Group(
        what=f"{table.kind.name}, {table.dtype}", origin=origin, rows=len(table), span=span,
        form=rule, values=result.values,
        outliers=tuple(_named(table, residuals, i) for i in np.flatnonzero(result.fit.outliers).tolist()),
        left=result.left, notes=(f"{aside} impossible rows set aside",) if aside else (), **vars(quality),
    )  # fmt: skip
    source = sourced(origin, len(table), f"R2 {quality.r2:.4f}, {table.dtype}, {span}")
    edits: list[Edit] = list(written(result, source))
    if path[:2] == ("cube", "rules") and edits:
        range_of_work = {"smallest": float(f"{flops.min():.6g}"), "largest": float(f"{flops.max():.6g}")}
        edits.append((("cube", "fitted_work", path[2]), source | range_of_work))
    return Outcome(group, tuple(edits))


def _rule_of(machine: Machine, table: KernelTable) -> Path:
    """Where the rule of a kind of kernel stands."""
    kind, quantised = table.kind.name, table.dtype == "w8a8"
    own = {
        "matmul": ("kernels", "w8a8") if quantised else ("cube", "rules", machine.cube.rule),
        "moe_ffn": ("kernels", "grouped_w8a8" if quantised else "grouped"),
        "context_attention": ("kernels", "attention"),
        "decode_attention": ("kernels", "decode_attention"),
    }
    if kind == "moe_ffn" and found(machine, own[kind]) is None:
        raise NotFittedError(f"{machine.name} has no {'.'.join(own[kind])} to fit; add it to the profile")
    return own[kind]


def _fitted_numbers(machine: Machine, path: Path, table: KernelTable, dtype: str) -> Sequence[Path]:
    """The rule's numbers, and the memory efficiency that a roof beside it uses."""
    rule = found(machine, path)
    paths = numbers_of(machine, path, dtype, ELSEWHERE.get(type(rule), ()))
    if path[0] == "cube" and not isinstance(rule, KneeRule):
        paths.append(("memory", "efficiency"))
    order = {name: at for at, name in enumerate(FIRST)}
    return sorted(paths, key=lambda p: order.get(p[len(path)] if len(p) > len(path) else p[-1], len(order)))


def _work(table: KernelTable) -> tuple[Numbers, Numbers]:
    """FLOPs and bytes; of a MoE layer the weights of the experts that its tokens touch."""
    flops, moved = work_of_rows(table)
    if table.kind.name == "moe_ffn":
        c = table.columns
        local = c["num_experts"] / c["ep"]
        moved = moved * distinct_experts(local, c["top_k"] / c["ep"], c["num_tokens"]) / local
    return np.asarray(flops, float), np.asarray(moved, float)


def _by_work(table: KernelTable) -> tuple[Numbers, Numbers]:
    """What grows, and a number for each set of the other sizes."""
    grows = table.kind.sorted_by if table.kind.sorted_by in table.columns else "seq_len"
    rest = np.stack([table.columns[name] for name in table.kind.sizes if name != grows], axis=-1)
    _, groups = np.unique(rest, axis=0, return_inverse=True)
    return table.columns[grows], groups.ravel().astype(float)


def _named(table: KernelTable, residuals: Numbers, i: int) -> str:
    measured = float(table.time[i])
    fitted = measured * float(np.exp(residuals[i]))
    return f"{table.row(i)}: {show(measured, 's')} measured, {show(fitted, 's')} fitted"
