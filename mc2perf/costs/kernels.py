"""What element-wise passes, reordering and attention cost."""

from __future__ import annotations

import math

import numpy as np

from mc2perf.costs.cost import Cost
from mc2perf.costs.setting import Setting
from mc2perf.equations import attention as equations
from mc2perf.equations import sparse
from mc2perf.equations.matmul import vector_time
from mc2perf.operators import DTYPES
from mc2perf.units import Num


def vector(on: Setting, label: str, moved: Num) -> Cost:
    """Price element-wise work by the bytes it moves."""
    on.ledger.use("launch.vector", on.machine.launch.vector)
    work = on.ledger.run(f"{label}: time", vector_time, moved=moved, memory_rate=on.memory_rate)
    return Cost(work, on.machine.launch.vector, work)


def reorder(on: Setting, label: str, moved: Num, kernels: float) -> Cost:
    """Price kernels that gather or scatter rows by an index, one after the other.

    Parameters
    ----------
    label : str
        What it is for.
    moved : number or array
        Rows read and written by one of them. [B]
    kernels : float
        How many.
    """
    machine = on.machine
    on.ledger.use("launch.vector", machine.launch.vector)
    on.ledger.use("kernels.reorder_efficiency", machine.kernels.reorder_efficiency)
    work = on.ledger.run(
        f"{label}: time", vector_time, moved=kernels * moved,
        memory_rate=on.bandwidth * machine.kernels.reorder_efficiency,
    )  # fmt: skip
    return Cost(work, kernels * machine.launch.vector, work)


def attention(on: Setting, label: str, flops: Num, dtype: str, context: Num = math.inf) -> Cost:
    """Price a fused attention kernel over whole sequences.

    Parameters
    ----------
    label : str
        What it is for.
    flops : number or array
        Scores and weighted values of the pairs that are computed, or a multiple of them. [FLOP]
    dtype : str
        Element type.
    context : number or array
        Keys a query sees on average; infinite for mixers that have none.
    """
    rule = on.machine.kernels.attention
    on.ledger.use("kernels.attention", rule)
    padded = on.ledger.run(
        f"{label}: with overhead", equations.attention_work,
        flops=flops, context=context, extra_keys=rule.extra_keys,
    )  # fmt: skip
    return Cost(on.on_cube(f"{label}: time", padded, dtype, rule.utilisation), rule.launch)


def decode_attention(
    on: Setting,
    label: str,
    sequences: Num,
    context: Num,
    heads: Num,
    kv_heads: Num,
    key_dim: Num,
    value_dim: Num,
    dtype: str,
    own_keys: Num | None = None,
) -> Cost:
    """Price attention of one new token per sequence over its cache.

    Parameters
    ----------
    label : str
        What it is for.
    sequences, context : number or array
        Sequences of the batch, keys in the cache of each.
    heads, kv_heads, key_dim, value_dim : number or array
        Query heads, key heads (latent attention has one), and the two widths of a head.
    dtype : str
        Element type of the cache and of the matmuls.
    own_keys : number or array, optional
        Given where queries gather keys that they picked: those that a sequence reads over those of one query.

    Notes
    -----
    With a warm L2 the cache was read just before, as in a kernel's benchmark; in a model the layers
    between two reads of a cache leave nothing of it.
    """
    machine, run, rule = on.machine, on.ledger.run, on.machine.kernels.decode_attention
    on.ledger.use("kernels.decode_attention", rule)
    on.ledger.use("kernels.attention.utilisation", machine.kernels.attention.utilisation)
    for name, part in (("cube.cores", machine.cube.cores), ("memory.l2", machine.memory.l2)):
        on.ledger.use(name, part)
    flops = run(
        f"{label}: FLOPs", equations.attention_flops,
        tokens=sequences, context=context, heads=heads, key_dim=key_dim, value_dim=value_dim,
    )  # fmt: skip
    moved = run(
        f"{label}: cache", equations.cache_bytes, sequences=sequences, context=context,
        kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim, item_size=DTYPES[dtype].size,
    )  # fmt: skip
    moved = moved if own_keys is None else moved * own_keys
    compute = on.on_cube(f"{label}: computing", flops, dtype, machine.kernels.attention.utilisation)
    memory = run(
        f"{label}: reading", equations.cache_time, moved=moved,
        memory_rate=_cache_rate(on, own_keys is not None), l2_gain=rule.l2_gain,
        resident=rule.resident * machine.memory.l2 if on.warm_l2 else 1.0,
    )  # fmt: skip
    work = run(
        f"{label}: time", equations.decode_attention_time, compute=compute, memory=memory,
        sequences=sequences, heads=heads, kv_heads=kv_heads, cores=machine.cube.cores,
        key_head_time=rule.key_head_time, query_head_time=rule.query_head_time,
    )  # fmt: skip
    return Cost(work, rule.launch, np.where(memory >= compute, work, 0.0))


def gather(on: Setting, label: str, moved: Num, held: Num) -> Cost:
    """Price what the queries of a prompt read of the keys that each of them picked.

    Parameters
    ----------
    label : str
        What it is for.
    moved : number or array
        All picks. [B]
    held : number or array
        The keys that are picked from, which L2 may hold. [B]
    """
    machine, rule = on.machine, on.machine.kernels.decode_attention
    on.ledger.use("memory.l2", machine.memory.l2)
    work = on.ledger.run(
        f"{label}: gathering", sparse.gather_time, moved=moved, held=held,
        memory_rate=_cache_rate(on, True), l2_gain=rule.l2_gain, resident=rule.resident * machine.memory.l2,
    )  # fmt: skip
    return Cost(work, 0.0, work)


def _cache_rate(on: Setting, gathered: bool) -> Num:
    """Memory bandwidth that attention reaches over a cache in order, or key by key. [B/s]"""
    kernels = on.machine.kernels
    on.ledger.use("kernels.decode_attention", kernels.decode_attention)
    rate = on.bandwidth * kernels.decode_attention.memory_efficiency
    if not gathered:
        return rate
    on.ledger.use("kernels.gather_efficiency", kernels.gather_efficiency)
    return rate * kernels.gather_efficiency
