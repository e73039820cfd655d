"""What one matmul, one element-wise pass, one collective costs on a machine.

The one place that unpacks machines into equations. It keeps a ledger of what it used: every sourced
number, every equation with its numbers (for ``--explain``), every step outside a fitted range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.answer import Step
from mc2perf.equations import attention, collectives, matmul, utilisation
from mc2perf.machine import (
    Band,
    ConstantRule,
    Curve,
    CurveRule,
    Engine,
    GroupedMatmulRule,
    KneeRule,
    L2StepsRule,
    LinearRule,
    Machine,
    MatmulRule,
    PowerRule,
    Quantity,
    Sizes,
    Tier,
    Work,
    quantities,
)
from mc2perf.operators import DTYPES
from mc2perf.units import Num, show

ROUNDED = 1e-5
"""Limits of a fit are written with six digits."""
CLIFF = 1.25
"""A transfer one byte longer that takes so many times as long has outgrown a buffer."""


class Cost(NamedTuple):
    """Time that grows with the work, fixed time of a launch, and the part of the work bound by memory. [s]"""

    work: Num
    launch: Num
    memory: Num = 0.0

    @property
    def time(self) -> Num:
        """Both together."""
        return self.work + self.launch


class Copies(NamedTuple):
    """What an all-to-all of tokens carries: copies of rows, and shares left where a place gets only one.

    ``per_rank`` is left where no rank gets a token twice, ``per_server`` where no server does.
    """

    rows: Num
    per_rank: Num
    per_server: Num


NO_ROWS = Copies(0.0, 1.0, 1.0)
"""Those of an array that is no tokens."""


@dataclass
class Ledger:
    """What an estimate used: numbers by path, equations in order, ranges left."""

    parts: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    extrapolated: dict[str, None] = field(default_factory=dict)
    recording: bool = False

    def use(self, path: str, part: Any) -> None:
        """Count every sourced number below a part of the machine as used."""
        self.parts.setdefault(path, part)

    @property
    def used(self) -> dict[str, Quantity]:
        """Every sourced number used, by path."""
        return {
            f"{path}.{name}".rstrip("."): quantity
            for path, part in self.parts.items()
            for name, quantity in quantities(part() if callable(part) else part)
        }

    def run(self, label: str, equation: Callable[..., Any], **numbers: Any) -> Any:
        """Evaluate an equation; write it down when an explanation was asked for."""
        value = equation(**numbers)
        if self.recording:
            plain = {name: _one(number) for name, number in numbers.items()}
            text = getattr(equation, "formula", "")
            result = tuple(map(_one, value)) if isinstance(value, tuple) else _one(value)
            self.steps.append(
                Step(label=label, equation=equation.__name__, formula=text, numbers=plain, value=result)
            )
        return value


def _one(value: Num) -> float | tuple[float, ...]:
    """A number; of unequal pieces one for each."""
    numbers = tuple(np.ravel(value).tolist())
    return numbers if len(numbers) > 1 else float(numbers[0])


def _constant(costs: Costs, rule: ConstantRule, shape: Shape) -> tuple[Num, Num]:
    return costs.peak(shape.dtype), rule.of_dtype.get(shape.dtype, rule.utilisation) * costs.rounds(shape)


def _curve(costs: Costs, rule: CurveRule, shape: Shape) -> tuple[Num, Num]:
    names = ("work", "utilisation")
    work, share = _alike([stacked([getattr(point, name) for point in rule.points]) for name in names])
    # a last round that is not full takes as long as a full one: look up the work of whole rounds
    full = costs.rounds(shape)
    flops = shape.groups * matmul.matmul_flops(shape.rows, shape.n, shape.k) / full
    return costs.peak(shape.dtype), utilisation.curve_utilisation(flops, work, share) * full


def _l2_steps(costs: Costs, rule: L2StepsRule, shape: Shape) -> tuple[Num, Num]:
    cube, size = costs.machine.cube, DTYPES[shape.dtype].size
    block = cube.base_block
    footprint = utilisation.l2_footprint(shape.rows, shape.n, shape.k, cube.cores, block.m, block.n, size)
    step = utilisation.l2_steps_utilisation(
        footprint, rule.part_size, rule.full_size, rule.part, rule.full, rule.out
    )
    full = utilisation.first_round_occupancy(costs.blocks(shape), cube.cores)
    # CANN prices fewer rows than a base block as a whole one
    whole = np.minimum(shape.rows / block.m, 1.0)
    return rule.rate_per_core[shape.dtype] * cube.cores, step * full * whole


def _power(costs: Costs, rule: PowerRule, shape: Shape) -> tuple[Num, Num]:
    reached = costs.ledger.run(
        f"{shape.label}: utilisation", utilisation.power_utilisation,
        m=shape.rows, n=shape.n, k=shape.k, base=rule.base, k_half=rule.k_half, mn_half=rule.mn_half,
        exponent=rule.exponent, gain_cap=rule.gain_cap, cap=rule.cap,
    )  # fmt: skip
    return rule.rate_per_core[shape.dtype] * costs.machine.cube.cores, reached


def _linear(costs: Costs, rule: LinearRule, shape: Shape) -> tuple[Num, Num]:
    return rule.rate_per_core[shape.dtype] * costs.machine.cube.cores, 1.0


UTILISATION: dict[type, Callable[..., tuple[Num, Num]]] = {
    ConstantRule: _constant,
    CurveRule: _curve,
    L2StepsRule: _l2_steps,
    PowerRule: _power,
    LinearRule: _linear,
}
"""Form of a rule -> the rate it refers to and the share of it that is reached."""


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


@dataclass
class Costs:
    """Prices on one machine under the choices of one scenario.

    ``cuts_messages``: who sends a message that has outgrown the library's buffer sends it in parts that have
    not, as frameworks do; a single call, as in a table of measured collectives, goes over the cliff.
    ``decode``: the engines of decode steps answer where nobody chose one. ``prefill``: kernels run at the
    speed that a whole prefill keeps up. In both, rows of int8 matmuls come and go in bf16.
    While ``watching``, sizes that a fit has not seen are noted; while counts are tried they are not.
    """

    machine: Machine
    ledger: Ledger
    engine: str | None = None
    matmul_rule: str | None = None
    warm_l2: bool = False
    cuts_messages: bool = False
    decode: bool = False
    prefill: bool = False
    watching: bool = False
    _cliffs: dict[tuple[Any, ...], list[Num]] = field(default_factory=dict)
    _columns: dict[tuple[Any, ...], list[NDArray[np.float64]]] = field(default_factory=dict)

    @property
    def rule_name(self) -> str:
        """The utilisation rule that answers: the chosen one, else the profile's."""
        return self.matmul_rule or self.machine.cube.rule

    @property
    def rule(self) -> MatmulRule:
        """Its constants."""
        return self.machine.cube.rules[self.rule_name]

    def peak(self, dtype: str) -> float:
        """Cube peak of an element type, as far as the pass keeps it up. [FLOP/s]"""
        peak = self.machine.cube.peak[dtype]
        self.ledger.use(f"cube.peak.{dtype}", peak)
        return peak * self.speed

    @property
    def speed(self) -> float:
        """Share of the speed of single kernels that the pass keeps up: below 1 in prefill."""
        if not self.prefill:
            return 1.0
        self.ledger.use("cube.served", self.machine.cube.served)
        return self.machine.cube.served

    def blocks(self, shape: Shape) -> Num:
        """Base blocks of a matmul."""
        block = self.machine.cube.base_block
        self.ledger.use("cube.base_block", block)
        self.ledger.use("cube.cores", self.machine.cube.cores)
        return utilisation.base_blocks(
            shape.groups, shape.rows, shape.n, np.minimum(block.m, shape.rows), block.n
        )

    def rounds(self, shape: Shape) -> Num:
        """Occupancy of the cores over whole rounds of whole blocks."""
        block, blocks = self.machine.cube.base_block, self.blocks(shape)
        fill = utilisation.block_fill(
            shape.groups, shape.rows, shape.n, blocks, np.minimum(block.m, shape.rows), block.n
        )
        return fill * utilisation.round_occupancy(blocks, self.machine.cube.cores)

    @property
    def memory_rate(self) -> float:
        """Memory bandwidth that kernels reach. [B/s]"""
        memory = self.machine.memory
        self.ledger.use("memory.bandwidth", memory.bandwidth)
        self.ledger.use("memory.efficiency", memory.efficiency)
        return memory.bandwidth * memory.efficiency * self.speed

    def matmul(
        self,
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
            Element type of both operands; results of 1-byte types are written as 2 bytes.
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
        quantised = self.machine.kernels.grouped_w8a8 if touched is not None else np.all(groups == 1.0)
        if dtype == "int8" and (self.prefill or self.decode) and quantised:
            return self.quantised_matmul(label, rows, n, k, touched)
        shape = Shape(label, rows / groups, n, k, groups, dtype, sets)
        self.ledger.use(f"cube.rules.{self.rule_name}.{dtype}", partial(_used_part, self.rule, dtype))
        item = DTYPES[dtype]
        item_size = item.size + item.scale_size / item.scale_block if item.scale_block else item.size
        read = self._weights_read(groups if touched is None else touched, sets, n, k, item_size)
        flops = self.ledger.run(f"{label}: FLOPs", matmul.matmul_flops, m=rows, n=n, k=k)
        seen = self.machine.cube.fitted_work.get(self.rule_name)
        if seen:
            self._note_unseen(f"cube.rules.{self.rule_name}", flops, seen, lambda f: f"{f:.3g} FLOP")
        weights = self.ledger.run(
            f"{label}: weights", matmul.weight_bytes, weights=read, n=n, k=k, item_size=item_size
        )
        others = self.ledger.run(
            f"{label}: rows in and out", matmul.activation_bytes,
            m=rows, n=n, k=k, in_size=item_size, out_size=out_size or max(item.size, 2.0),
        )  # fmt: skip
        kernel = self.machine.kernels.grouped
        if kernel and touched is not None and self.rule_name == self.machine.cube.rule:
            self.ledger.use("kernels.grouped", kernel)
            return self._by_expert(kernel, label, dtype, flops, weights, others)
        price = self._under_knee if isinstance(self.rule, KneeRule) else self._under_roofs
        work, memory = price(shape, flops, weights, others)
        launch = self.rule.launch[dtype] if isinstance(self.rule, LinearRule) else self.rule.launch
        return Cost(work, launch, np.where(memory, work, 0.0))

    def quantised_matmul(self, label: str, rows: Num, n: Num, k: Num, touched: Num | None = None) -> Cost:
        """Price an int8 matmul that quantises its bf16 rows and scales its results to bf16 (w8a8).

        Parameters
        ----------
        label : str
            What it is for.
        rows, n, k : number or array
            Rows of all groups together, columns, contraction.
        touched : number or array, optional
            Weight matrices read by a grouped kernel; one, by a dense one, without it.
        """
        run, kernels = self.ledger.run, self.machine.kernels
        flops = run(f"{label}: FLOPs", matmul.matmul_flops, m=rows, n=n, k=k)
        read = self._weights_read(1.0 if touched is None else touched, 1.0, n, k, 1.0)
        weights = run(f"{label}: weights", matmul.weight_bytes, weights=read, n=n, k=k, item_size=1.0)
        if touched is None:
            return self._quantised(label, rows, n, k, flops, weights)
        if kernels.grouped_w8a8 is None:
            return self.matmul(label, rows, n, k, "int8", touched=touched)
        self.ledger.use("kernels.grouped_w8a8", kernels.grouped_w8a8)
        others = run(
            f"{label}: rows in and out", matmul.activation_bytes, m=rows, n=n, k=k, in_size=1.0, out_size=2.0
        )
        return self._by_expert(kernels.grouped_w8a8, label, "int8", flops, weights, others)

    def _quantised(self, label: str, rows: Num, n: Num, k: Num, flops: Num, weights: Num) -> Cost:
        """Quantise, then multiply while the results are scaled."""
        rule, run, bandwidth = self.machine.kernels.w8a8, self.ledger.run, self.bandwidth
        self.ledger.use("kernels.w8a8", rule)
        compute = self._on_cube(f"{label}: computing", flops, "int8", rule.utilisation)
        others = run(
            f"{label}: rows in and out", matmul.activation_bytes, m=rows, n=n, k=k, in_size=1.0, out_size=2.0
        )
        memory = run(
            f"{label}: streaming", matmul.vector_time,
            moved=weights + others, memory_rate=bandwidth * rule.memory_efficiency,
        )  # fmt: skip
        product = run(f"{label}: matmul", matmul.knee_time, compute=compute, memory=memory, knee=rule.knee)
        scaled = run(
            f"{label}: dequantise", matmul.vector_time,
            moved=matmul.dequantise_bytes(rows, n), memory_rate=bandwidth * rule.dequantise_efficiency,
        )  # fmt: skip
        quantised = run(
            f"{label}: quantise", matmul.vector_time,
            moved=matmul.quantise_bytes(rows, k), memory_rate=bandwidth * rule.quantise_efficiency,
        )  # fmt: skip
        ramp = run(f"{label}: ramp", matmul.ramp_time, rows=rows, ramp=rule.ramp, ramp_rows=rule.ramp_rows)
        work = quantised + run(
            f"{label}: time", matmul.knee_time, compute=product, memory=scaled, knee=rule.knee
        )
        return Cost(work, rule.launch + ramp, np.where(np.maximum(memory, scaled) >= compute, work, 0.0))

    def _by_expert(
        self, rule: GroupedMatmulRule, label: str, dtype: str, flops: Num, weights: Num, others: Num
    ) -> Cost:
        """A grouped kernel: the weights of its experts and its rows stream beside the cube."""
        run = self.ledger.run
        compute = self._on_cube(f"{label}: computing", flops, dtype, rule.utilisation)
        memory = run(
            f"{label}: streaming", matmul.vector_time,
            moved=weights + others, memory_rate=self.bandwidth * rule.memory_efficiency,
        )  # fmt: skip
        work = run(f"{label}: time", matmul.knee_time, compute=compute, memory=memory, knee=rule.knee)
        return Cost(work, rule.launch, np.where(memory >= compute, work, 0.0))

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth of the data sheet, for rules with an efficiency of their own. [B/s]"""
        self.ledger.use("memory.bandwidth", self.machine.memory.bandwidth)
        return self.machine.memory.bandwidth * self.speed

    def _on_cube(self, label: str, flops: Num, dtype: str, share: float) -> Num:
        """Time under the cube's roof alone."""
        time: Num = self.ledger.run(
            label, matmul.roofline_time,
            flops=flops, moved=0.0, peak=self.peak(dtype), utilisation=share, memory_rate=1.0,
        )  # fmt: skip
        return time

    def _under_roofs(self, shape: Shape, flops: Num, weights: Num, others: Num) -> tuple[Num, Num]:
        """The longer of computing at a utilisation and moving; whether memory decides."""
        rate, share = UTILISATION[type(self.rule)](self, self.rule, shape)
        work = self.ledger.run(
            f"{shape.label}: time", matmul.roofline_time, flops=flops, moved=weights + others,
            peak=rate, utilisation=share, memory_rate=self.memory_rate,
        )  # fmt: skip
        return work, (weights + others) / self.memory_rate >= work

    def _under_knee(self, shape: Shape, flops: Num, weights: Num, others: Num) -> tuple[Num, Num]:
        """Two roofs with a rounded corner; whether memory decides."""
        rule = self.rule
        assert isinstance(rule, KneeRule)
        machine, run = self.machine, self.ledger.run
        self.ledger.use("memory.l2", machine.memory.l2)
        share = rule.utilisation.get(shape.dtype, rule.utilisation["bf16"])
        compute = self._on_cube(f"{shape.label}: computing", flops, shape.dtype, share)
        memory = run(
            f"{shape.label}: streaming", matmul.streaming_time,
            weight_bytes=weights, other_bytes=others, rows=shape.rows, n=shape.n * shape.groups,
            memory_rate=self.bandwidth * rule.memory_efficiency, reread=rule.reread,
            block_rows=rule.block_rows, narrow_columns=rule.narrow_columns,
            resident=rule.resident * machine.memory.l2 / shape.sets,
        )  # fmt: skip
        work = run(f"{shape.label}: time", matmul.knee_time, compute=compute, memory=memory, knee=rule.knee)
        return work + rule.contraction * shape.k, memory >= compute

    def _weights_read(self, touched: Num, sets: Num, n: Num, k: Num, item_size: float) -> Num:
        """Weight matrices that come from memory: none if L2 is warm and holds them."""
        if not self.warm_l2:
            return touched
        self.ledger.use("memory.l2", self.machine.memory.l2)
        return np.where(touched * sets * n * k * item_size <= self.machine.memory.l2, 0.0, touched)

    def vector(self, label: str, moved: Num) -> Cost:
        """Price element-wise work by the bytes it moves."""
        self.ledger.use("launch.vector", self.machine.launch.vector)
        work = self.ledger.run(
            f"{label}: time", matmul.vector_time, moved=moved, memory_rate=self.memory_rate
        )
        return Cost(work, self.machine.launch.vector, work)

    def reorder(self, label: str, moved: Num, kernels: float) -> Cost:
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
        machine = self.machine
        self.ledger.use("launch.vector", machine.launch.vector)
        self.ledger.use("kernels.reorder_efficiency", machine.kernels.reorder_efficiency)
        work = self.ledger.run(
            f"{label}: time", matmul.vector_time, moved=kernels * moved,
            memory_rate=self.bandwidth * machine.kernels.reorder_efficiency,
        )  # fmt: skip
        return Cost(work, kernels * machine.launch.vector, work)

    def attention(self, label: str, flops: Num, dtype: str, context: Num = math.inf) -> Cost:
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
        rule = self.machine.kernels.attention
        self.ledger.use("kernels.attention", rule)
        padded = self.ledger.run(
            f"{label}: with overhead", attention.attention_work,
            flops=flops, context=context, extra_keys=rule.extra_keys,
        )  # fmt: skip
        return Cost(self._on_cube(f"{label}: time", padded, dtype, rule.utilisation), rule.launch)

    def decode_attention(
        self,
        label: str,
        sequences: Num,
        context: Num,
        heads: Num,
        kv_heads: Num,
        key_dim: Num,
        value_dim: Num,
        dtype: str,
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

        Notes
        -----
        With a warm L2 the cache was read just before, as in a kernel's benchmark; in a model the layers
        between two reads of a cache leave nothing of it.
        """
        machine, run, rule = self.machine, self.ledger.run, self.machine.kernels.decode_attention
        self.ledger.use("kernels.decode_attention", rule)
        self.ledger.use("kernels.attention.utilisation", machine.kernels.attention.utilisation)
        for name, part in (("cube.cores", machine.cube.cores), ("memory.l2", machine.memory.l2)):
            self.ledger.use(name, part)
        flops = run(
            f"{label}: FLOPs", attention.attention_flops,
            tokens=sequences, context=context, heads=heads, key_dim=key_dim, value_dim=value_dim,
        )  # fmt: skip
        moved = run(
            f"{label}: cache", attention.cache_bytes, sequences=sequences, context=context,
            kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim, item_size=DTYPES[dtype].size,
        )  # fmt: skip
        compute = self._on_cube(f"{label}: computing", flops, dtype, machine.kernels.attention.utilisation)
        memory = run(
            f"{label}: reading", attention.cache_time, moved=moved,
            memory_rate=self.bandwidth * rule.memory_efficiency, l2_gain=rule.l2_gain,
            resident=rule.resident * machine.memory.l2 if self.warm_l2 else 1.0,
        )  # fmt: skip
        work = run(
            f"{label}: time", attention.decode_attention_time, compute=compute, memory=memory,
            sequences=sequences, heads=heads, kv_heads=kv_heads, cores=machine.cube.cores,
            key_head_time=rule.key_head_time, query_head_time=rule.query_head_time,
        )  # fmt: skip
        return Cost(work, rule.launch, np.where(memory >= compute, work, 0.0))

    # --- collectives ---------------------------------------------------------------------------------

    def engine_of(self, tier: Tier, collective: str) -> tuple[str, Engine]:
        """The engine that carries a collective on a tier: the chosen one where the tier has it."""
        for name in (self.engine, tier.decode_engine if self.decode else None):
            engine = tier.engines.get(name) if name else None
            if name and engine and (not engine.carries or collective in engine.carries):
                return name, engine
        return tier.engine, tier.engines[tier.engine]

    def tiers_for(self, ranks: float) -> list[tuple[str, Tier]]:
        """The tiers a group of ranks spans, innermost first."""
        spanned = []
        for name, tier in self.machine.tiers.items():
            spanned.append((name, tier))
            if ranks <= tier.ranks:
                return spanned
        return spanned

    def engines_for(self, ranks: float, collective: str) -> list[tuple[str, Engine]]:
        """The engines that carry a collective of a group of ranks, each with its path in the profile."""
        found = ((name, *self.engine_of(tier, collective)) for name, tier in self.tiers_for(ranks))
        return [(f"tiers.{tier}.engines.{name}", engine) for tier, name, engine in found]

    def sorts_tokens(self, ranks: float) -> bool:
        """Whether an exchange's kernels are made for tokens: they sort, quantise, count and sum them."""
        found = self.engines_for(ranks, "all_to_all")
        return ranks > 1 and all(engine.carries == ("all_to_all",) for _, engine in found)

    def collective(
        self,
        label: str,
        name: str,
        size: Num,
        ranks: float,
        copies: Copies | None = None,
        stride: float = 1.0,
        launched: bool = True,
    ) -> Cost:
        """Price a collective of a whole array over a group of ranks.

        Parameters
        ----------
        label, name : str
            What it is for; ``all_gather``, ``reduce_scatter``, ``all_reduce`` or ``all_to_all``.
        size : number or array
            Bytes of the whole array. [B]
        ranks : float
            Participants; one costs 0.
        copies : Copies, optional
            Of an all-to-all of tokens: its rows, and what engines that de-duplicate leave of them.
        stride : float
            Distance between neighbours of the group: 1 for ranks side by side, tp for data parallelism.
        launched : bool
            Whether the host launches it; inside a kernel what the host adds is not worked out.
        """
        if ranks <= 1:
            return Cost(0.0 * size, 0.0)
        (inner_name, inner), *outer = self.tiers_for(ranks * stride)
        inside = min(ranks, max(float(inner.ranks) // stride, 1.0))
        far_name, far = (outer or list(self.machine.tiers.items()))[-1]
        rows, per_rank, per_server = copies if copies and name == "all_to_all" else NO_ROWS
        near_engine = self.engine_of(inner, name)[1]
        if inside == 1 or near_engine.leaves_server:
            return self._on_wires(label, name, far_name, far, size, ranks, rows=rows)
        near_share: Num = per_rank if near_engine.deduplicates else 1.0
        if inside == ranks:
            near_size, near_rows = size * near_share, rows * near_share
            return self._on_tier(label, name, inner_name, inner, near_size, inside, launched, near_rows)
        servers = math.ceil(ranks / inside)
        far_share: Num = 1.0 if name == "all_to_all" else 1.0 / inside
        if copies and self.engine_of(far, name)[1].deduplicates:
            # a token crosses to a server once; there its copies are spread over the links inside
            far_share = per_server
        elif name == "all_to_all":
            near_share = near_share * inside / ranks
        near = self._on_tier(
            f"{label} inside", name, inner_name, inner, size * near_share, inside, rows=rows * near_share
        )
        across = self._on_wires(
            f"{label} across", name, far_name, far, size * far_share, servers, ranks - inside,
            rows * far_share,
        )  # fmt: skip
        if self.machine.tiers_run == "in_turn":
            return Cost(near.work + across.work, near.launch + across.launch)
        return Cost(np.maximum(near.work, across.work), np.maximum(near.launch, across.launch))

    def send(self, label: str, size: Num, distance: float) -> Cost:
        """Price a message from one rank to another.

        Parameters
        ----------
        label : str
            What it is for.
        size : number or array
            Bytes. [B]
        distance : float
            Ranks between sender and receiver: beyond a server it goes over the outer links.
        """
        at, tier = self.tiers_for(distance + 1.0)[-1]
        engine_name, engine = self.engine_of(tier, "")
        path = f"tiers.{at}"
        for part in ("links", "link_rate"):
            self.ledger.use(f"{path}.{part}", getattr(tier, part))
        self.ledger.use(f"{path}.engines.{engine_name}.host_launch", engine.host_launch)
        # engines known by the curves of their collectives send at the rate of the link
        latency, efficiency = (engine.wires.latency, engine.wires.efficiency) if engine.wires else (0.0, 1.0)
        if engine.wires:
            self.ledger.use(f"{path}.engines.{engine_name}.wires", engine.wires)
        work = self.ledger.run(
            f"{label}: time", collectives.send_time,
            size=size, latency=latency, bandwidth=link_bandwidth(tier, 2.0) * efficiency,
        )  # fmt: skip
        return Cost(work, engine.host_launch)

    def _on_tier(
        self,
        label: str,
        name: str,
        at: str,
        tier: Tier,
        size: Num,
        ranks: float,
        launched: bool = True,
        rows: Num = 0.0,
    ) -> Cost:
        engine_name, engine = self.engine_of(tier, name)
        if name not in engine.curves:
            return self._on_wires(label, name, at, tier, size, ranks, rows=rows)
        path = f"tiers.{at}.engines.{engine_name}"
        curve = engine.curves[name]
        for p, seen in curve.sizes.items():
            if p == ranks:
                self._note_unseen(f"{path}.curves.{name}.ranks.{p}", size, seen, lambda s: show(s, "B"))
        for part in ("links", "link_rate"):
            self.ledger.use(f"tiers.{at}.{part}", getattr(tier, part))
        self.ledger.use(f"{path}.fitted_at", engine.fitted_at)
        slower = engine.fitted_at / (tier.links * tier.link_rate)
        at_path = f"{path}.curves.{name}"
        if not curve.device:
            time = self._on_curve(label, f"{at_path}.ranks", engine, curve, curve.ranks, size, ranks, slower)
            self.ledger.use(f"{path}.host_launch", engine.host_launch)
            launch = np.minimum(engine.host_launch, time)
            return Cost(time - launch, launch)
        on_device, at_device = f"{label} on the device", f"{at_path}.device"
        scaled = self._on_curve(on_device, at_device, engine, curve, curve.device, size, ranks, slower)
        if not launched:
            return Cost(scaled, 0.0)
        # what the host adds was measured on the fitted links and does not change with them
        time = self._on_curve(label, f"{at_path}.ranks", engine, curve, curve.ranks, size, ranks, 1.0)
        device = scaled
        if np.any(np.not_equal(slower, 1.0)):
            device = self._on_curve(on_device, at_device, engine, curve, curve.device, size, ranks, 1.0)
        return Cost(scaled, np.maximum(time - device, 0.0))

    def _note_unseen(self, path: str, size: Num, seen: Sizes | Work, words: Callable[[float], str]) -> None:
        """Note sizes outside those that a fit has seen."""
        if not self.watching:
            return
        for unseen, far in (
            (float(np.min(size)), np.min(size) < seen.smallest * (1.0 - ROUNDED)),
            (float(np.max(size)), np.max(size) > seen.largest * (1.0 + ROUNDED)),
        ):
            if far:
                fitted = f"fitted for {words(seen.smallest)} to {words(seen.largest)}"
                self.ledger.extrapolated[f"{path}: {words(unseen)}, {fitted}"] = None

    def _on_curve(
        self,
        label: str,
        path: str,
        engine: Engine,
        curve: Curve,
        fits: Mapping[int, tuple[Band, ...]],
        size: Num,
        ranks: float,
        slower: Num,
    ) -> Num:
        """A fitted curve, the message cut where that avoids a cliff."""
        price = partial(self._in_one_call, label, path, engine, curve, fits, ranks=ranks, slower=slower)
        time = price(size=size)
        for edge in self._edges(path, fits, price, ranks, slower) if self.cuts_messages else ():
            over = np.greater(size, edge)
            if np.any(over):
                time = _cut_where(over, time, np.asarray(size, float), edge, price)
        return time

    def _edges(
        self,
        path: str,
        fits: Mapping[int, tuple[Band, ...]],
        price: Callable[..., Num],
        ranks: float,
        slower: Num,
    ) -> list[Num]:
        """Sizes just above which a curve jumps, found by pricing either side of every band's end. [B]"""
        key = (path, ranks, _as_key(slower))
        if key not in self._cliffs:
            recording, self.ledger.recording = self.ledger.recording, False
            at = _ends(fits, ranks)
            under, over = (np.asarray(price(size=at * x)) for x in (1.0, 1.0 + 1e-9)) if at.size else (at, at)
            self._cliffs[key] = _jumps(at, over > CLIFF * under)
            self.ledger.recording = recording
        return self._cliffs[key]

    def _in_one_call(
        self,
        label: str,
        path: str,
        engine: Engine,
        curve: Curve,
        fits: Mapping[int, tuple[Band, ...]],
        size: Num,
        ranks: float,
        slower: Num,
    ) -> Num:
        """A fitted curve, by its rank rule; ``slower`` is the fitted link bandwidth over the given one."""

        def wire(p: int) -> Num:
            """Least that a byte takes on the fitted links. [s/B]"""
            return (p - 1) / p / engine.fitted_at

        if curve.rank_rule in collectives.RANK_RULES:
            rule = collectives.RANK_RULES[curve.rank_rule]
            self.ledger.use(f"{path}.8", fits[8])
            time = self._banded(label, fits[8], size * rule.weight(ranks), slower, wire(8))
            return time / rule.divisor(ranks)
        # a server has its own algorithms: counts inside it are not compared with counts beyond it
        inside = ranks <= self.machine.ranks_per_server
        fits = {p: f for p, f in fits.items() if not inside or p <= self.machine.ranks_per_server} or fits
        low = max((p for p in fits if p <= ranks), default=min(fits))
        high = min((p for p in fits if p >= ranks), default=max(fits))
        if not min(fits) <= ranks <= max(fits):
            fitted = f"fitted for {min(fits)}..{max(fits)}"
            self.ledger.extrapolated[f"{path}: {ranks:g} ranks, {fitted}"] = None
        self.ledger.use(f"{path}.{low}", fits[low])
        self.ledger.use(f"{path}.{high}", fits[high])
        by_share = inside and curve.rank_rule == "interpolate_share"
        wider_low, wider_high = (ranks / p if by_share else 1.0 for p in (low, high))
        if ranks > high:
            self.ledger.use(f"{path.split('.curves.')[0]}.latency_growth", engine.latency_growth)
            return self._banded(
                f"{label}: curve of {high} ranks", fits[high], size,
                slower * collectives.more_traffic(ranks, high), wire(high),
                collectives.more_latency(ranks, high, engine.latency_growth), wider_high,
            )  # fmt: skip
        if low == high:
            return self._banded(f"{label}: curve of {low} ranks", fits[low], size, slower, wire(low))
        time_low, time_high = (
            self._banded(f"{label}: curve of {p} ranks", fits[p], size, slower, wire(p), 1.0, wider)
            for p, wider in ((low, wider_low), (high, wider_high))
        )
        between: Num = self.ledger.run(
            f"{label}: between {low} and {high} ranks", collectives.interpolated_over_ranks,
            ranks=ranks, low=low, high=high, time_low=time_low, time_high=time_high,
        )  # fmt: skip
        return between

    def _banded(
        self,
        label: str,
        bands: tuple[Band, ...],
        size: Num,
        slower: Num,
        wire: Num,
        later: Num = 1.0,
        wider: float = 1.0,
    ) -> Num:
        """The band that the size falls into; factors on slopes, on constants, on the first band's end.

        Slower links need ``slower * wire`` for a byte at least [s/B].
        """
        key = (id(bands), _as_key(slower), _as_key(wire), _as_key(later), wider)
        if key not in self._columns:
            self._columns[key] = _columns(bands, slower, wire, later, wider)
        up_to, constant, slope, quadratic, before, shortest = self._columns[key]
        band = _band_of(up_to, size)
        at_least = _of_band(before, band)
        if np.any(shortest):
            at_least = np.maximum(at_least, shortest * size)
        time: Num = self.ledger.run(
            label, collectives.band_time, size=size, constant=_of_band(constant, band),
            slope=_of_band(slope, band), quadratic=_of_band(quadratic, band), at_least=at_least,
        )  # fmt: skip
        return time

    def _on_wires(
        self,
        label: str,
        name: str,
        at: str,
        tier: Tier,
        size: Num,
        ranks: float,
        messages: float = 0.0,
        rows: Num = 0.0,
    ) -> Cost:
        """Latency and bandwidth; ``messages`` overrides the steps of an all-to-all between servers."""
        engine_name, engine = self.engine_of(tier, name)
        wires = engine.wires
        assert wires is not None
        path = f"tiers.{at}"
        for field_name in ("links", "link_rate"):
            self.ledger.use(f"{path}.{field_name}", getattr(tier, field_name))
        self.ledger.use(f"{path}.engines.{engine_name}.wires", engine.wires)
        self.ledger.use(f"{path}.engines.{engine_name}.host_launch", engine.host_launch)
        wiring = "switch" if tier.wiring == "pcie" else tier.wiring
        key = (wiring, collectives.pattern(name))
        bandwidth = link_bandwidth(tier, ranks) * wires.efficiency
        if name == "all_to_all" and np.all(np.isfinite(wires.per_peer)):
            work = self.ledger.run(
                f"{label}: time", collectives.posted_exchange_time,
                size=size, ranks=ranks, messages=messages or ranks - 1.0, rows=rows, latency=wires.latency,
                per_peer=wires.per_peer, per_row=wires.per_row, bandwidth=bandwidth,
            )  # fmt: skip
            # the next piece of a fused kernel is posted while this one is on its way: latency counts once
            return Cost(work - wires.latency, wires.latency + engine.host_launch)
        steps = messages if messages and name == "all_to_all" else collectives.STEPS[key](ranks)
        work = self.ledger.run(
            f"{label}: time", collectives.latency_bandwidth_time,
            size=size, ranks=ranks, passes=collectives.PASSES[name], steps=steps,
            hops=collectives.HOPS.get(key, collectives.one_hop)(ranks), latency=wires.latency,
            bandwidth=bandwidth,
        )  # fmt: skip
        return Cost(work, engine.host_launch)


def _cut_where(
    over: NDArray[np.bool_], time: Num, size: NDArray[np.float64], edge: Num, price: Callable[..., Num]
) -> Num:
    """Times of messages, those over an edge sent in parts if that is faster; only these are priced again."""
    if np.ndim(edge):  # every row has an edge of its own
        whole = np.where(over, np.ceil(size / edge), 1.0)
        return np.where(over, np.minimum(time, whole * price(size=size / whole)), time)
    times = np.array(np.broadcast_to(time, size.shape))
    parts = np.ceil(size[over] / edge)
    times[over] = np.minimum(times[over], parts * price(size=size[over] / parts))
    return times


def _as_key(number: Num) -> object:
    """What a number is remembered by; a column by what it holds."""
    return number.tobytes() if isinstance(number, np.ndarray) else number


def stacked(numbers: Sequence[Num]) -> NDArray[np.float64]:
    """Numbers one after the other, shape (numbers,); columns below each other, shape (numbers, rows, 1)."""
    if any(map(np.ndim, numbers)):
        return np.stack(np.broadcast_arrays(*(np.atleast_2d(number) for number in numbers)))
    return np.array([float(number) for number in numbers])


def _alike(columns: Sequence[NDArray[np.float64]], factors: Sequence[Num] = ()) -> list[NDArray[np.float64]]:
    """Columns of the same number of axes: rows join where one of them, or a factor, has rows."""
    rows = any(column.ndim > 1 for column in columns) or any(map(np.ndim, factors))
    return [c.reshape(-1, 1, 1) if rows and c.ndim == 1 else c for c in columns]


def _ends(fits: Mapping[int, tuple[Band, ...]], ranks: float) -> NDArray[np.float64]:
    """Where the bands of all fits end, shape (ends,) or (rows, ends). [B]"""
    ends = [b.up_to * wider for p, fit in fits.items() for b in fit for wider in (1.0, ranks / p)]
    finite = stacked([end for end in ends if np.all(np.isfinite(end))] or [math.inf])
    if finite.ndim == 1:
        return np.unique(finite[np.isfinite(finite)])
    return np.moveaxis(finite[..., 0], 0, -1)


def _jumps(at: NDArray[np.float64], jump: NDArray[np.bool_]) -> list[Num]:
    """The ends at which a curve jumps; of every row, infinite where only other rows do."""
    if jump.ndim == 1:
        return list(at[jump].tolist())
    edges = np.where(jump, at, np.inf)
    return [edges[:, [i]] for i in np.flatnonzero(jump.any(axis=0))]


def _band_of(up_to: NDArray[np.float64], size: Num) -> NDArray[np.intp]:
    """The band that a size falls into; up to and with its end."""
    return np.asarray(np.searchsorted(up_to, size) if up_to.ndim == 1 else np.sum(up_to < size, axis=0))


def _of_band(column: NDArray[np.float64], band: NDArray[np.intp]) -> Num:
    """The number of a band, of every row where rows differ."""
    if column.ndim == 1:
        return column[band]
    shape = np.broadcast_shapes(column.shape[1:], band.shape)
    laid = np.broadcast_to(column, (len(column), *shape))
    taken: Num = np.take_along_axis(laid, np.broadcast_to(band, shape)[None], axis=0)[0]
    return taken


def _columns(
    bands: tuple[Band, ...], slower: Num, wire: Num, later: Num, wider: float
) -> list[NDArray[np.float64]]:
    """The bands of a curve as columns, scaled to links and ranks, and what the bands before reach.

    The first band ends where the algorithm for small shares does; later ones where bandwidth takes over,
    which is a matter of the whole array. Last comes the time per byte that slower links need at least: short
    messages that wait for the start only would else pass them at any rate.
    """
    names = ("up_to", "constant", "slope", "quadratic")
    columns = _alike([stacked([getattr(band, name) for band in bands]) for name in names], (slower, later))
    columns[1] = columns[1] * later
    columns[0] = np.concatenate([columns[0][:1] * wider, columns[0][1:]])
    columns[0] = np.maximum.accumulate(columns[0])
    # a fit that is faster than the wires say stays so on slower ones
    least = np.minimum(_least_per_byte(columns), wire)
    shortest = np.where(np.greater(slower, 1.0), slower * least, 0.0)
    columns[2:] = [column * slower for column in columns[2:]]
    return [*columns, _reached_before(columns), shortest]


def _reached_before(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """What the bands before each reach. [s]"""
    up_to, constant, slope, quadratic = (column[:-1] for column in columns)
    ends = constant + slope * up_to + quadratic * up_to**2
    return np.maximum.accumulate(np.concatenate([np.zeros((1, *ends.shape[1:])), ends]))


def _least_per_byte(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Time per byte of the size that passes fastest: at the end of a band, or beyond all. [s/B]"""
    ends = _reached_before(columns)[1:] / columns[0][:-1]
    least: NDArray[np.float64] = np.minimum(np.min(ends, axis=0, initial=np.inf), columns[2][-1])
    return least


def _used_part(rule: Any, dtype: str) -> Any:
    """The numbers of a rule that a dtype uses."""
    return {
        name: value.get(dtype) if isinstance(value, dict) else value for name, value in vars(rule).items()
    }


def link_bandwidth(tier: Tier, ranks: float) -> float:
    """Bandwidth of one rank towards a group: on a mesh only the links to its peers. [B/s]"""
    used = (ranks - 1) / (tier.ranks - 1) if tier.wiring == "full_mesh" else 1.0
    return tier.link_rate * tier.links * used
