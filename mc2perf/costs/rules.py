"""Matmuls by the utilisation rule of a machine's cube: one row of a table for each form of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mc2perf.costs.bands import alike, stacked
from mc2perf.costs.setting import Setting
from mc2perf.equations import matmul, utilisation
from mc2perf.machine.cube import ConstantRule, CurveRule, KneeRule, L2StepsRule, LinearRule, PowerRule
from mc2perf.operators import DTYPES
from mc2perf.units import Num


@dataclass(frozen=True)
class Shape:
    """A matmul to be priced: rows of one group, columns, contraction, groups."""

    label: str
    rows: Num
    n: Num
    k: Num
    groups: Num
    dtype: str
    sets: Num = 1.0


def blocks_of(on: Setting, shape: Shape) -> Num:
    """Base blocks of a matmul."""
    block = on.machine.cube.base_block
    on.ledger.use("cube.base_block", block)
    on.ledger.use("cube.cores", on.machine.cube.cores)
    return utilisation.base_blocks(
        shape.groups, shape.rows, shape.n, np.minimum(block.m, shape.rows), block.n
    )


def full_rounds(on: Setting, shape: Shape) -> Num:
    """Occupancy of the cores over whole rounds of whole blocks."""
    block, blocks = on.machine.cube.base_block, blocks_of(on, shape)
    fill = utilisation.block_fill(
        shape.groups, shape.rows, shape.n, blocks, np.minimum(block.m, shape.rows), block.n
    )
    return fill * utilisation.round_occupancy(blocks, on.machine.cube.cores)


def _constant(on: Setting, rule: ConstantRule, shape: Shape) -> tuple[Num, Num]:
    return on.peak(shape.dtype), rule.of_dtype.get(shape.dtype, rule.utilisation) * full_rounds(on, shape)


def _curve(on: Setting, rule: CurveRule, shape: Shape) -> tuple[Num, Num]:
    names = ("work", "utilisation")
    work, share = alike([stacked([getattr(point, name) for point in rule.points]) for name in names])
    # a last round that is not full takes as long as a full one: look up the work of whole rounds
    full = full_rounds(on, shape)
    flops = shape.groups * matmul.matmul_flops(shape.rows, shape.n, shape.k) / full
    return on.peak(shape.dtype), utilisation.curve_utilisation(flops, work, share) * full


def _l2_steps(on: Setting, rule: L2StepsRule, shape: Shape) -> tuple[Num, Num]:
    cube, size = on.machine.cube, DTYPES[shape.dtype].size
    block = cube.base_block
    footprint = utilisation.l2_footprint(shape.rows, shape.n, shape.k, cube.cores, block.m, block.n, size)
    step = utilisation.l2_steps_utilisation(
        footprint, rule.part_size, rule.full_size, rule.part, rule.full, rule.out
    )
    full = utilisation.first_round_occupancy(blocks_of(on, shape), cube.cores)
    # CANN prices fewer rows than a base block as a whole one
    whole = np.minimum(shape.rows / block.m, 1.0)
    return rule.rate_per_core[shape.dtype] * cube.cores, step * full * whole


def _power(on: Setting, rule: PowerRule, shape: Shape) -> tuple[Num, Num]:
    reached = on.ledger.run(
        f"{shape.label}: utilisation", utilisation.power_utilisation,
        m=shape.rows, n=shape.n, k=shape.k, base=rule.base, k_half=rule.k_half, mn_half=rule.mn_half,
        exponent=rule.exponent, gain_cap=rule.gain_cap, cap=rule.cap,
    )  # fmt: skip
    return rule.rate_per_core[shape.dtype] * on.machine.cube.cores, reached


def _linear(on: Setting, rule: LinearRule, shape: Shape) -> tuple[Num, Num]:
    return rule.rate_per_core[shape.dtype] * on.machine.cube.cores, 1.0


UTILISATION: dict[type, Callable[..., tuple[Num, Num]]] = {
    ConstantRule: _constant,
    CurveRule: _curve,
    L2StepsRule: _l2_steps,
    PowerRule: _power,
    LinearRule: _linear,
}
"""Form of a rule -> the rate it refers to and the share of it that is reached."""


def under_roofs(on: Setting, shape: Shape, flops: Num, weights: Num, others: Num) -> tuple[Num, Num]:
    """The longer of computing at a utilisation and moving; whether memory decides."""
    rate, share = UTILISATION[type(on.rule)](on, on.rule, shape)
    work = on.ledger.run(
        f"{shape.label}: time", matmul.roofline_time, flops=flops, moved=weights + others,
        peak=rate, utilisation=share, memory_rate=on.memory_rate,
    )  # fmt: skip
    return work, (weights + others) / on.memory_rate >= work


def under_knee(on: Setting, shape: Shape, flops: Num, weights: Num, others: Num) -> tuple[Num, Num]:
    """Two roofs with a rounded corner; whether memory decides."""
    rule = on.rule
    assert isinstance(rule, KneeRule)
    machine, run = on.machine, on.ledger.run
    on.ledger.use("memory.l2", machine.memory.l2)
    share = rule.utilisation.get(shape.dtype, rule.utilisation["bf16"])
    compute = on.on_cube(f"{shape.label}: computing", flops, shape.dtype, share)
    memory = run(
        f"{shape.label}: streaming", matmul.streaming_time,
        weight_bytes=weights, other_bytes=others, rows=shape.rows, n=shape.n * shape.groups,
        memory_rate=on.bandwidth * rule.memory_efficiency, reread=rule.reread,
        block_rows=rule.block_rows, narrow_columns=rule.narrow_columns,
        resident=rule.resident * machine.memory.l2 / shape.sets,
    )  # fmt: skip
    work = run(f"{shape.label}: time", matmul.knee_time, compute=compute, memory=memory, knee=rule.knee)
    work = run(
        f"{shape.label}: with its contraction", matmul.contracted_time,
        time=work, contraction=rule.contraction, k=shape.k,
    )  # fmt: skip
    return work, memory >= compute
