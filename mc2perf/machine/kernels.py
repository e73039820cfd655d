"""Rules of the kernels beside the dense matmul: attention, experts, quantised matmuls."""

from __future__ import annotations

from dataclasses import dataclass

from mc2perf.units import Factor, Number, Ratio, Seconds


@dataclass(frozen=True, kw_only=True)
class AttentionRule:
    """Attention over a whole sequence: a share of the cube peak, and what a query costs beside its keys.

    A query costs as much as if it saw ``extra_keys`` more: softmax, masks and tiles that are not full.
    """

    utilisation: Ratio
    extra_keys: Number
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class DecodeAttentionRule:
    """Attention of one new token per sequence: its cache passes memory, or L2 where that holds it.

    ``l2_gain`` is the rate of L2 over that of memory, ``resident`` the share of L2 that a cache may fill.
    A core spends at least ``key_head_time`` on a key head of a sequence, and ``query_head_time`` on a
    query head beside it.
    """

    memory_efficiency: Ratio
    l2_gain: Factor
    resident: Ratio
    key_head_time: Seconds
    query_head_time: Seconds
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class QuantisedMatmulRule:
    """An int8 matmul with bf16 rows in and out: quantise the rows, multiply, scale the results.

    The passes reach shares of the memory bandwidth; ``ramp`` is what they add to the launch once there are
    many more rows than ``ramp_rows``.
    """

    utilisation: Ratio
    memory_efficiency: Ratio
    knee: Factor
    quantise_efficiency: Ratio
    dequantise_efficiency: Ratio
    ramp: Seconds
    ramp_rows: Number
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class GroupedMatmulRule:
    """A matmul per expert in one kernel: two roofs with a rounded corner."""

    utilisation: Ratio
    memory_efficiency: Ratio
    knee: Factor
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Kernels beside the dense matmul; without a rule of their own, experts are priced like dense matmuls.

    ``grouped`` moves rows in the type of the matmul, ``grouped_w8a8`` quantises them on the way.
    ``reorder_efficiency`` is the share of the memory bandwidth that kernels reach which gather or scatter
    rows by an index, as frameworks without a fused permute launch them; ``gather_efficiency`` the share of
    the rate over a cache in order that sparse attention reaches over keys picked one by one.
    """

    attention: AttentionRule
    decode_attention: DecodeAttentionRule
    w8a8: QuantisedMatmulRule
    grouped: GroupedMatmulRule | None = None
    grouped_w8a8: GroupedMatmulRule | None = None
    reorder_efficiency: Ratio = 1.0
    gather_efficiency: Ratio = 1.0
