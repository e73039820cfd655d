"""What matmuls cost: dense, grouped, and of rows that are quantised on the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mc2perf.costs.cost import Cost
from mc2perf.costs.rules import Shape, under_knee, under_roofs
from mc2perf.costs.setting import Setting
from mc2perf.equations import matmul as equations
from mc2perf.machine.cube import KneeRule, LinearRule
from mc2perf.machine.kernels import GroupedMatmulRule
from mc2perf.operators import DTYPES, computed_in
from mc2perf.units import Num


def matmul(
    on: Setting,
    label: str,
    rows: Num,
    n: Num,
    k: Num,
    dtype: str,
    groups: Num = 1.0,
    touched: Num | None = None,
    sets: Num = 1.0,
    out_size: float | None = None,
) -> Cost:
    """Price ``groups`` matmuls with ``rows`` rows in all; ``touched`` weight matrices are read.

    Parameters
    ----------
    label : str
        What it is for.
    rows, n, k : number or array
        Rows of all groups together, columns, contraction.
    dtype : str
        Element type of both operands, or of the weights alone where these are widened to that of the rows;
        results of 1-byte types are written as 2 bytes.
    groups : number or array
        Groups that the rows fall into evenly.
    touched : number or array, optional
        Groups with rows; default all. Who says it means a grouped kernel, which a profile may price by
        a rule of its own.
    sets : number or array
        How many such sets of weights pass in a row (the experts of a rank, computed one by one): only
        all of them together may count as small or stay in L2.
    out_size : float, optional
        Bytes moved per result; default one write. [B]

    Notes
    -----
    An int8 matmul takes int8 rows as they came; in a served model they come and go in bf16.
    """
    quantised = on.machine.kernels.grouped_w8a8 if touched is not None else np.all(groups == 1.0)
    weight_size, dtype = DTYPES[dtype].stored_size, computed_in(dtype)
    if dtype == "int8" and (on.prefill or on.decode) and quantised:
        return quantised_matmul(on, label, rows, n, k, touched, weight_size)
    shape = Shape(label, rows / groups, n, k, groups, dtype, sets)
    on.ledger.use(f"cube.rules.{on.rule_name}.{dtype}", partial(_used_part, on.rule, dtype))
    item = DTYPES[dtype]
    read = _weights_read(on, groups if touched is None else touched, sets, n, k, weight_size)
    flops = on.ledger.run(f"{label}: FLOPs", equations.matmul_flops, m=rows, n=n, k=k)
    seen = on.machine.cube.fitted_work.get(on.rule_name)
    if seen:
        on.note_unseen(f"cube.rules.{on.rule_name}", flops, seen, lambda f: f"{f:.3g} FLOP")
    weights = on.ledger.run(
        f"{label}: weights", equations.weight_bytes, weights=read, n=n, k=k, item_size=weight_size
    )
    others = on.ledger.run(
        f"{label}: rows in and out", equations.activation_bytes,
        m=rows, n=n, k=k, in_size=item.stored_size, out_size=out_size or max(item.size, 2.0),
    )  # fmt: skip
    kernel = on.machine.kernels.grouped
    if kernel and touched is not None and on.rule_name == on.machine.cube.rule:
        on.ledger.use("kernels.grouped", kernel)
        return _by_expert(on, kernel, label, dtype, flops, weights, others)
    price = under_knee if isinstance(on.rule, KneeRule) else under_roofs
    work, memory = price(on, shape, flops, weights, others)
    launch = on.rule.launch[dtype] if isinstance(on.rule, LinearRule) else on.rule.launch
    return Cost(work, launch, np.where(memory, work, 0.0))


def quantised_matmul(
    on: Setting, label: str, rows: Num, n: Num, k: Num, touched: Num | None = None, weight_size: float = 1.0
) -> Cost:
    """Price an int8 matmul that quantises its bf16 rows and scales its results to bf16 (w8a8, w4a8).

    Parameters
    ----------
    label : str
        What it is for.
    rows, n, k : number or array
        Rows of all groups together, columns, contraction.
    touched : number or array, optional
        Weight matrices read by a grouped kernel; one, by a dense one, without it.
    weight_size : float
        Bytes of a weight in memory, below 1 where it is widened to int8 on the way to the cube. [B]
    """
    run, kernels = on.ledger.run, on.machine.kernels
    flops = run(f"{label}: FLOPs", equations.matmul_flops, m=rows, n=n, k=k)
    read = _weights_read(on, 1.0 if touched is None else touched, 1.0, n, k, weight_size)
    weights = run(f"{label}: weights", equations.weight_bytes, weights=read, n=n, k=k, item_size=weight_size)
    if touched is None:
        return _quantised(on, label, rows, n, k, flops, weights)
    if kernels.grouped_w8a8 is None:
        return matmul(on, label, rows, n, k, "int8", touched=touched)
    on.ledger.use("kernels.grouped_w8a8", kernels.grouped_w8a8)
    others = run(
        f"{label}: rows in and out", equations.activation_bytes, m=rows, n=n, k=k, in_size=1.0, out_size=2.0
    )
    return _by_expert(on, kernels.grouped_w8a8, label, "int8", flops, weights, others)


def _quantised(on: Setting, label: str, rows: Num, n: Num, k: Num, flops: Num, weights: Num) -> Cost:
    """Quantise, then multiply while the results are scaled."""
    rule, run, bandwidth = on.machine.kernels.w8a8, on.ledger.run, on.bandwidth
    on.ledger.use("kernels.w8a8", rule)
    compute = on.on_cube(f"{label}: computing", flops, "int8", rule.utilisation)
    others = run(
        f"{label}: rows in and out", equations.activation_bytes, m=rows, n=n, k=k, in_size=1.0, out_size=2.0
    )
    memory = run(
        f"{label}: streaming", equations.vector_time,
        moved=weights + others, memory_rate=bandwidth * rule.memory_efficiency,
    )  # fmt: skip
    product = run(f"{label}: matmul", equations.knee_time, compute=compute, memory=memory, knee=rule.knee)
    scaled = run(
        f"{label}: dequantise", equations.vector_time,
        moved=equations.dequantise_bytes(rows, n), memory_rate=bandwidth * rule.dequantise_efficiency,
    )  # fmt: skip
    quantised = run(
        f"{label}: quantise", equations.vector_time,
        moved=equations.quantise_bytes(rows, k), memory_rate=bandwidth * rule.quantise_efficiency,
    )  # fmt: skip
    ramp = run(f"{label}: ramp", equations.ramp_time, rows=rows, ramp=rule.ramp, ramp_rows=rule.ramp_rows)
    work = quantised + run(
        f"{label}: time", equations.knee_time, compute=product, memory=scaled, knee=rule.knee
    )
    return Cost(work, rule.launch + ramp, np.where(np.maximum(memory, scaled) >= compute, work, 0.0))


def _by_expert(
    on: Setting, rule: GroupedMatmulRule, label: str, dtype: str, flops: Num, weights: Num, others: Num
) -> Cost:
    """A grouped kernel: the weights of its experts and its rows stream beside the cube."""
    run = on.ledger.run
    compute = on.on_cube(f"{label}: computing", flops, dtype, rule.utilisation)
    memory = run(
        f"{label}: streaming", equations.vector_time,
        moved=weights + others, memory_rate=on.bandwidth * rule.memory_efficiency,
    )  # fmt: skip
    work = run(f"{label}: time", equations.knee_time, compute=compute, memory=memory, knee=rule.knee)
    return Cost(work, rule.launch, np.where(memory >= compute, work, 0.0))


def _weights_read(on: Setting, touched: Num, sets: Num, n: Num, k: Num, item_size: float) -> Num:
    """Weight matrices that come from memory: none if L2 is warm and holds them."""
    if not on.warm_l2:
        return touched
    on.ledger.use("memory.l2", on.machine.memory.l2)
    return np.where(touched * sets * n * k * item_size <= on.machine.memory.l2, 0.0, touched)


def _used_part(rule: Any, dtype: str) -> Any:
    """The numbers of a rule that a dtype uses."""
    return {
        name: value.get(dtype) if isinstance(value, dict) else value for name, value in vars(rule).items()
    }
