"""A fused operator as one part: its payload, its matmul, its pieces along the axis that is cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from mc2perf.costs import Costs
from mc2perf.model import Experts
from mc2perf.operators import DTYPES, Operator, computed_in
from mc2perf.skew import Busiest
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, PairPieces, Segment, Segments
from mc2perf.workload.routing import Routing

ACCUMULATE_BYTES = 8.0
"""A partial sum is read and written once more per piece as float32. [B]"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers that an operator is asked with."""

    m: Num
    n: Num
    k: Num
    ranks: float
    experts: float
    dtype: str
    payload_dtype: str
    split_axis: str
    busiest: Busiest = Busiest()
    redundant: float = 0.0


@dataclass(frozen=True)
class SplitAxis:
    """What cutting an axis n ways does to one piece: the share of the payload and of m, n and k."""

    payload_comm_first: bool
    payload_compute_first: bool
    accumulates: bool


SPLITS = {
    # rows are independent
    "m": SplitAxis(True, True, False),
    # cutting columns: the whole input travels again for every piece, the output is cut
    "n": SplitAxis(False, True, False),
    # cutting the contraction: the input is cut, every piece is a partial sum of the whole output
    "k": SplitAxis(True, False, True),
}
"""Axis -> whether the payload is cut with it (by what comes first), and whether partial sums add up."""


def fused_pair(costs: Costs, operator: Operator, sizes: Sizes) -> Pair:
    """The part that schedules lay out: one collective and one matmul."""
    return Pair(
        name=operator.name,
        order=operator.order,
        ranks=sizes.ranks,
        rows=sizes.m,
        build=partial(_pieces, costs, operator, sizes, True),
        inside=partial(_pieces, costs, operator, sizes, False),
        loads=sizes.busiest.local,
        of_experts=partial(_of_experts, costs, operator, sizes),
        local_first=operator.local_first and sizes.split_axis == "m",
        experts=int(sizes.experts) if operator.grouped else 0,
        piece_bytes=payload_row_bytes(operator, sizes),
        scale_bytes=scale_bytes(operator, sizes),
    )


def payload_row_bytes(operator: Operator, sizes: Sizes) -> Num:
    """Bytes of one row of what travels, without scales. [B]"""
    width = sizes.k if operator.payload == "input" else sizes.n
    return width * DTYPES[sizes.payload_dtype].size


def compute_rows(operator: Operator, sizes: Sizes) -> Num:
    """Rows that the matmul of the busiest rank sees."""
    return sizes.m * sizes.busiest.factor(sizes.m) * (sizes.ranks if operator.gathered else 1.0)


def payload_bytes(operator: Operator, sizes: Sizes) -> Num:
    """Whole array that the collective moves, without scales. [B]"""
    return compute_rows(operator, sizes) * payload_row_bytes(operator, sizes)


def payload_is_cut(operator: Operator, sizes: Sizes) -> bool:
    """Whether a piece sends its share of the payload, or all of it."""
    axis = SPLITS[sizes.split_axis]
    return axis.payload_comm_first if operator.order == "comm_first" else axis.payload_compute_first


def scale_bytes(operator: Operator, sizes: Sizes) -> Num:
    """Scales that travel once, before the first piece. [B]"""
    width = sizes.k if operator.payload == "input" else sizes.n
    return compute_rows(operator, sizes) * DTYPES[sizes.payload_dtype].scale_bytes_per_row(width)


def _pieces(
    costs: Costs, operator: Operator, s: Sizes, launched: bool, pieces: Num, local_first: bool
) -> PairPieces:
    size = payload_bytes(operator, s) / (pieces if payload_is_cut(operator, s) else 1.0)
    comm = costs.collective(operator.collective, operator.collective, size, s.ranks, launched=launched)
    rows = compute_rows(operator, s)
    if not local_first:
        compute = _matmul(costs, operator, s, rows, pieces)
        return PairPieces(_scales(costs, operator, s), Segment(operator.collective, "comm", comm), compute)
    own = _matmul(costs, operator, s, rows / s.ranks, 1.0)
    rest = _matmul(costs, operator, s, rows * (s.ranks - 1.0) / s.ranks, pieces)
    return PairPieces(_scales(costs, operator, s), Segment(operator.collective, "comm", comm), rest, own)


def _of_experts(costs: Costs, operator: Operator, s: Sizes, pieces: Num, experts: float) -> PairPieces:
    """Pieces of so many local experts each, whose shares of the rows differ."""
    size, rows = payload_bytes(operator, s) / pieces, compute_rows(operator, s) / pieces
    comm = costs.collective(operator.collective, operator.collective, size, s.ranks, launched=False)
    cost = costs.matmul("matmul", rows, s.n, s.k, s.dtype, experts, touched=experts, sets=s.experts / experts)
    matmul = Segment("grouped matmul", "compute", cost)
    return PairPieces(_scales(costs, operator, s), Segment(operator.collective, "comm", comm), (matmul,))


def _matmul(costs: Costs, operator: Operator, s: Sizes, rows: Num, pieces: Num) -> Segments:
    """The matmul of one piece; grouped operators cut at experts, others at tiles of the axis."""
    if operator.grouped:
        groups = np.maximum(s.experts / pieces, 1.0)
        cost = costs.matmul(
            "matmul", rows / pieces, s.n, s.k, s.dtype, groups, touched=groups, sets=s.experts / groups
        )
        return (Segment("grouped matmul", "compute", cost),)
    m, n, k = (
        size / (pieces if s.split_axis == axis else 1.0)
        for axis, size in (("m", rows), ("n", s.n), ("k", s.k))
    )
    cost = costs.matmul("matmul", m, n, k, s.dtype)
    segments: Segments = (Segment("matmul", "compute", cost),)
    if SPLITS[s.split_axis].accumulates:
        again = costs.vector(
            "accumulate", np.where(np.greater(pieces, 1.0), rows * s.n * ACCUMULATE_BYTES, 0.0)
        )
        segments += (Segment("accumulate", "compute", again._replace(launch=0.0)),)
    return segments


def _scales(costs: Costs, operator: Operator, s: Sizes) -> Segments:
    scales = DTYPES[s.payload_dtype].scale_size
    if not scales or s.ranks <= 1:
        return ()
    size = scale_bytes(operator, s)
    return (Segment("scales", "comm", costs.collective("scales", operator.collective, size, s.ranks)),)


def moe_layer_routing(s: Sizes, top_k: float, shared_width: float, combine_dtype: str, servers: float,
                      capacity_factor: float | None) -> Routing:  # fmt: skip
    """The operator ``moe_layer`` as an expert path with a gated FFN: m tokens, n expert width, k hidden."""
    hidden_size = float(s.k)
    experts = Experts(
        count=int(s.experts * s.ranks),
        top_k=int(top_k),
        width=int(s.n),
        shared_width=int(shared_width),
        payload_width=int(hidden_size),
    )
    return Routing(
        experts=experts,
        hidden_size=hidden_size,
        matrices=3.0,
        tokens=s.m,
        ep=s.ranks,
        servers=servers,
        dtype=computed_in(s.dtype),
        expert_dtype=s.dtype,
        dispatch_dtype=s.payload_dtype,
        combine_dtype=combine_dtype,
        busiest=s.busiest,
        redundant=s.redundant,
        capacity_factor=capacity_factor,
    )
