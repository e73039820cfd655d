"""Does it fit? What an NPU of the fullest pipeline stage holds, against the memory of the machine.

Training keeps, for every micro-batch in flight, what the backward pass reads again; prefill keeps the cache
of its batch and one layer at work. Numbers that may be columns have shape (rows, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations import activations, memory
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.operators import DTYPES, unquantised
from mc2perf.pipeline_steps import at_each, held_at_once
from mc2perf.pipelines import Pipeline, pipeline_of
from mc2perf.placement import (
    data_groups,
    held_stages,
    stage_counts,
    vocabulary_tables,
    weights_of_a_layer,
    with_copies,
)
from mc2perf.problems import InputError
from mc2perf.resolve import cache_of
from mc2perf.step import GRADIENT_BYTES, STATE_BYTES
from mc2perf.study import Study
from mc2perf.units import MIB, Num
from mc2perf.workload.keys import cache_of_layer
from mc2perf.workload.layer import routing_of
from mc2perf.workload.layout import Layout

BUFFERS_OF_A_COMMUNICATOR = 2.0
"""A communicator of HCCL holds two buffers of HCCL_BUFFSIZE (HCCL, HCCL_BUFFSIZE)."""

STATISTIC_BYTES = {"gpu": 4.0}
"""What flash attention keeps per query and head: one float32 log-sum-exp on GPUs (FlashAttention-2). [B]"""

CANN_STATISTIC_BYTES = 64.0
"""CANN keeps maximum and sum, each eight float32 wide (aclnnFlashAttentionScore, softmaxMaxOut). [B]"""

LOGIT_BYTES = 4.0
"""Logits reach the loss, and the router's scores its softmax, in float32. [B]"""

ROUTED_TENSORS = 2.0
"""Rows that the experts keep: their input, and their output, which routing weights multiply afterwards."""


class Part(NamedTuple):
    """One kind of what is held. [B]"""

    name: str
    bytes: Num


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What an NPU of the fullest stage holds, part by part, and what it may. [B]"""

    parts: tuple[Part, ...]
    capacity: float
    stage: NDArray[np.intp]
    stages: int
    assumptions: tuple[str, ...]

    @property
    def total(self) -> Num:
        """All parts together. [B]"""
        return sum((part.bytes for part in self.parts), 0.0)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where the machine's memory holds it."""
        return np.less_equal(self.total, self.capacity)

    def __getitem__(self, name: str) -> Num:
        """Bytes of one part; 0 where the phase has none. [B]"""
        return sum((part.bytes for part in self.parts if part.name == name), 0.0)


def footprint_of(study: Study) -> Footprint:
    """Memory of a model under a layout, on the NPU that holds most.

    Parameters
    ----------
    study : Study
        A scenario resolved against a machine; its numbers may be columns.

    Returns
    -------
    Footprint
        Parts of the stage that is fullest in each row: under 1F1B the first stages keep more micro-batches,
        the first holds the embedding, the last the head and the logits.

    Raises
    ------
    InputError
        If the target is an operator.

    Notes
    -----
    A whole step (``global_batch_size``) holds its optimizer; a training estimate without one times the
    layers of one micro-batch and counts no optimizer, so that it is a lower bound.

    References
    ----------
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022; Rajbhandari
    et al., "ZeRO", SC 2020; Megatron-LM, distributed optimizer; HCCL, environment variable HCCL_BUFFSIZE.

    Examples
    --------
    >>> from mc2perf.readers.models import load_model
    >>> from mc2perf.readers.profiles import load_machine
    >>> from mc2perf.scenario import Scenario
    >>> from mc2perf.study import study_of
    >>> machine, model = load_machine("atlas_800i_a2"), load_model("llama-2-7b")
    >>> held = footprint_of(study_of(Scenario(target="llama-2-7b", phase="prefill"), machine, model))
    >>> float(held["KV cache"].item()) / 2**30, held.fits.item()
    (2.0, True)
    """
    if study.model is None or study.layout is None:
        raise InputError(["memory: is of a model; write a model as target"])
    machine = study.costs.machine
    study.costs.ledger.use("memory.capacity", machine.memory.capacity)
    holding = _Holding(study, study.model, study.layout)
    counts = stage_counts(study)
    parts, stage = _fullest([holding.device(held, counts) for held in held_stages(study)])
    return Footprint(
        parts=parts,
        capacity=float(machine.memory.capacity),
        stage=stage,
        stages=int(study.scenario.pp),
        assumptions=tuple(_assumptions(study, study.model)),
    )


def shortfall(footprint: Footprint) -> str:
    """Say what takes how much, largest first; for a footprint of one row.

    Examples
    --------
    >>> parts = (Part("KV cache", np.array(6e9)), Part("weights", np.array(70e9)))
    >>> held = Footprint(parts=parts, capacity=64e9, stage=np.array(0), stages=4, assumptions=())
    >>> shortfall(held)
    '76 of 64 GB on the first of 4 stages: weights 70, KV cache 6'
    """
    sizes = sorted(((np.asarray(size).item(), name) for name, size in footprint.parts), reverse=True)
    named = ", ".join(f"{name} {size / 1e9:.4g}" for size, name in sizes if size)
    total = sum(size for size, _ in sizes)
    return f"{total / 1e9:.4g} of {footprint.capacity / 1e9:.4g} GB{_where(footprint)}: {named}"


def _where(footprint: Footprint) -> str:
    stage, last = footprint.stage.item(), footprint.stages - 1
    if last == 0:
        return " per NPU"
    word = {0: "the first", last: "the last"}.get(stage, f"number {stage + 1}")
    return f" on {word} of {last + 1} stages"


def _fullest(stages: Sequence[dict[str, Num]]) -> tuple[tuple[Part, ...], NDArray[np.intp]]:
    """The stage that holds most, row by row."""
    totals = [sum(held.values(), 0.0) for held in stages]
    at = np.argmax(np.stack(np.broadcast_arrays(*totals), axis=-1), axis=-1)

    def pick(name: str) -> Num:
        column = np.stack([np.broadcast_to(held[name], at.shape) for held in stages], axis=-1)
        picked: NDArray[np.float64] = np.take_along_axis(column, at[..., None], axis=-1)[..., 0]
        return picked

    return tuple(Part(name, pick(name)) for name in stages[0]), at


class _Layer(NamedTuple):
    """What one layer of a group holds on an NPU: weights, activations of a micro-batch, cache."""

    dense: float
    routed: float
    kept: Num
    statistics: Num
    boundary: Num
    cache: Num


_Layers = list[tuple[float, _Layer]]
"""How many layers of which kind."""


def _most(held: Sequence[tuple[int, int]], kept: Sequence[Num], more: float, n_mb: float) -> Num:
    """The most that a device keeps, of so many micro-batches of each of its chunks and some ``more``. [B]"""
    sums = [sum((min(n + more, n_mb) * size for n, size in zip(of, kept, strict=False)), 0.0) for of in held]
    most: Num = np.max(np.stack(np.broadcast_arrays(*sums)), axis=0)
    return most


@dataclass(frozen=True)
class _Holding:
    """Counts the bytes of one layer of every kind, then of a stage."""

    study: Study
    model: Model
    layout: Layout

    @property
    def hidden(self) -> float:
        return float(self.model.hidden_size)

    @property
    def item(self) -> float:
        """Activations and caches are kept in 16 bit where matmuls run in fewer. [B]"""
        return max(DTYPES[self.layout.dtype].size, 2.0)

    @property
    def split(self) -> float:
        """Ranks over which tensors between the matmuls are cut."""
        return self.layout.tp if self.layout.sp else 1.0

    @property
    def train(self) -> bool:
        return self.study.scenario.phase == "train"

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.study.scenario.pipeline, self.study.scenario.vpp)

    @property
    def whole_step(self) -> bool:
        return self.study.scenario.global_batch_size is not None

    # --- a stage -----------------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> list[_Layer]:
        """One layer of every group."""
        return [self._layer(group) for group in self.model.layers]

    def device(self, held: Sequence[int], counts: Sequence[Sequence[float]]) -> dict[str, Num]:
        """Everything that an NPU of some stages holds."""
        chunks = [
            [(n, layer) for n, layer in zip(counts[stage], self.layers, strict=True) if n] for stage in held
        ]
        here = [pair for chunk in chunks for pair in chunk]
        tables = vocabulary_tables(self.study, held)
        embedded = tables * float(self.model.vocab_size) * self.hidden / self.layout.tp
        dense = sum(n * layer.dense for n, layer in here)
        routed = sum(n * layer.routed for n, layer in here)
        head = self._head() if len(counts) - 1 in held else 0.0
        if self.train:
            kept = self._training(held[0], chunks, (embedded + dense, routed), head)
        else:
            kept = self._served(here, embedded, (dense, routed), head)
        window = BUFFERS_OF_A_COMMUNICATOR * self.study.scenario.hccl_buffsize * MIB
        return kept | {"communication windows": window * len(communicators(self.study))}

    def _training(
        self, device: int, chunks: Sequence[_Layers], weights: tuple[float, float], head: Num
    ) -> dict[str, Num]:
        again = [self._recomputed(layer, here) for here in chunks for _, layer in here]
        kept = [sum((n * self._between_passes(layer, here) for n, layer in here), 0.0) for here in chunks]
        working = np.max(np.broadcast_arrays(head, *again), axis=0)
        return {
            "weights": self._state(weights, (self.item, self.item)),
            "gradients": self._state(weights, gradient=GRADIENT_BYTES),
            "optimizer": self._state(weights, optimizer=STATE_BYTES) if self.whole_step else 0.0,
            "activations": self._in_flight(device, kept),
            "logits or a layer computed again": working,
        }

    def _served(
        self, here: _Layers, embedded: float, weights: tuple[float, float], head: Num
    ) -> dict[str, Num]:
        one = [layer.kept for _, layer in here]
        tables = embedded * DTYPES[unquantised(self.layout.dtype)].size
        return {
            "weights": tables + self._state(weights, self._stored),
            "KV cache": sum((n * layer.cache for n, layer in here), 0.0),
            "activations of one layer": np.max(np.broadcast_arrays(head, *one), axis=0),
        }

    @property
    def _stored(self) -> tuple[float, float]:
        """Bytes of a weight that is served: outside the routed experts, and of these. [B]"""
        layout = self.layout
        return DTYPES[layout.dtype].stored_size, DTYPES[layout.expert_dtype].stored_size

    def _state(
        self,
        weights: tuple[float, float],
        sizes: tuple[float, float] = (0.0, 0.0),
        gradient: float = 0.0,
        optimizer: float = 0.0,
    ) -> float:
        """Weights, gradients or optimizer; the latter is shared by the ranks of the same weights."""
        shared = self.study.scenario.distributed_optimizer
        total = 0.0
        for parameters, size, (ranks, _) in zip(weights, sizes, data_groups(self.layout), strict=True):
            total += self.study.costs.ledger.run(
                "memory: model state", memory.model_state_bytes,
                parameters=parameters, weight_size=size, weight_shards=1.0,
                gradient_size=gradient, gradient_shards=1.0,
                optimizer_size=optimizer, optimizer_shards=ranks if shared else 1.0,
            )  # fmt: skip
        return total

    def _in_flight(self, device: int, kept: Sequence[Num]) -> Num:
        """Micro-batches whose backward pass has not ended, of each chunk of a device that keeps so much. [B]

        Two batches half a step apart are one more.
        """
        s, pipeline = self.study.scenario, self.pipeline
        one_more = float(s.schedule == "dual_batch")
        if s.global_batch_size is None:
            return (1.0 + one_more) * kept[0]
        n_mb = s.global_batch_size / (self.layout.dp * self.study.samples)
        if pipeline.order is not None:
            more = 0.0 if pipeline.pairs else one_more
            return at_each(n_mb, lambda n: _most(held_at_once(pipeline, s.pp, device, n), kept, more, n))
        chunks = activations.chunks_in_flight(self.layout.pp, float(device), n_mb, s.vpp)
        return np.minimum(chunks + one_more, n_mb * s.vpp) / s.vpp * kept[0]

    # --- recompute ---------------------------------------------------------------------------------------

    def _share(self, here: _Layers) -> float:
        """Share of the layers of a chunk of which only the input is kept."""
        method, _, number = self.study.scenario.recompute.partition(":")
        if method == "block":
            return min(float(number) / (self.pipeline.chunks * sum(n for n, _ in here)), 1.0)
        return float(method == "full")

    def _between_passes(self, layer: _Layer, here: _Layers) -> Num:
        """What a layer keeps from its forward to its backward pass."""
        if self.study.scenario.recompute == "selective":
            return layer.kept - layer.statistics
        share = self._share(here)
        return share * layer.boundary + (1.0 - share) * layer.kept

    def _recomputed(self, layer: _Layer, here: _Layers) -> Num:
        """What stands there once more while a layer is computed again; its input is there already."""
        if self.study.scenario.recompute == "selective":
            return layer.statistics
        return layer.kept - layer.boundary if self._share(here) else 0.0

    # --- a layer -----------------------------------------------------------------------------------------

    def _layer(self, group: LayerGroup) -> _Layer:
        mixer = self.model.mixers[group.mixer] if group.mixer else None
        dense, routed = weights_of_a_layer(self.model, self.layout, group)
        rows = self.layout.gathered
        between = activations.residual_activation_bytes(rows, self.hidden, self.item, 0.0, self.split)
        statistics = self._statistics(mixer) if mixer else 0.0
        # the residual path has a norm and a matmul's input for the mixer, and as much for the feed-forward
        kept = between * (bool(group.mixer) + bool(group.ffn)) / 2.0 + statistics
        kept = kept + (self._mixer(mixer) if mixer else 0.0) + self._feed_forward(group)
        return _Layer(
            dense=dense,
            routed=routed * with_copies(self.model, self.layout),
            kept=kept,
            statistics=statistics,
            boundary=activations.boundary_bytes(rows, self.hidden, self.item, self.split),
            cache=self._cache(mixer) if mixer and not self.train else 0.0,
        )

    def _wide(self, rows: Num, tensors: float, width: float, ranks: float, item: float | None = None) -> Num:
        """Tensors of one width, cut over ranks. [B]"""
        return activations.ffn_activation_bytes(rows, tensors, width, item or self.item, ranks)

    def _statistics(self, mixer: Attention) -> Num:
        if mixer.kind == "linear":
            return 0.0
        size = STATISTIC_BYTES.get(self.study.costs.machine.family, CANN_STATISTIC_BYTES)
        return activations.statistic_bytes(self.layout.gathered, float(mixer.heads), size, self.layout.tp)

    def _mixer(self, m: Attention) -> Num:
        """Queries, keys, values, output; gates, latents before and after their norms; an indexer's own."""
        rows, tp, heads, value = self.layout.gathered, self.layout.tp, float(m.heads), float(m.v_head_dim)
        held = activations.attention_activation_bytes
        gate = self._wide(rows, 2.0 * m.gated, heads * value, tp)
        latents = self._wide(rows, 2.0, float(m.q_lora_rank + m.kv_lora_rank), self.split)
        output = self._wide(rows, 1.0, float(m.o_groups * m.o_lora_rank), tp)
        index = m.indexer.heads * m.indexer.head_dim + m.index_columns if m.indexer else 0
        around = gate + latents + output + self._wide(rows, 1.0, float(index), 1.0)
        if m.kind == "linear":
            keys = held(rows, m.kv_heads, m.kv_heads, float(m.head_dim), 0.0, self.item, tp)
            return keys + held(rows, heads, heads, 0.0, value, self.item, tp) + around
        unfolded = m.heads if m.kind == "mla" else m.kv_heads
        return held(rows, heads, float(unfolded), float(m.head_dim), value, self.item, tp) + around

    def _feed_forward(self, group: LayerGroup) -> Num:
        """A dense feed-forward part, or router, routed and shared experts."""
        rows, tp, tensors = self.layout.gathered, self.layout.tp, float(self.model.matrices)
        if group.ffn == "dense":
            return self._wide(rows, tensors, float(self.model.dense_width), tp)
        e = self.model.experts if group.ffn == "moe" else None
        if e is None:
            return 0.0
        own, payload = self.layout.tokens, float(e.payload_width)
        routing, held = routing_of(self.model, self.layout), activations.expert_activation_bytes
        width = float(e.width)
        routed = held(routing.rows(1.0), ROUTED_TENSORS, payload, tensors, width, self.layout.etp, self.item)
        router = self._wide(own, 1.0, float(e.count), 1.0, LOGIT_BYTES)
        latent = self._wide(own, float(payload != self.hidden), payload, 1.0)
        shared = float(e.shared_width)
        if self.layout.shared_ranks:
            alone = held(own * routing.served, ROUTED_TENSORS, payload, tensors, shared, 1.0, self.item)
            return np.maximum(routed, alone) + router
        return routed + router + latent + self._wide(rows, tensors, shared, tp)

    def _head(self) -> Num:
        """Inputs of the last norm and of the head, logits of all tokens, or in prefill of the last ones."""
        rows = self.layout.gathered if self.layout.logit_rows is None else self.layout.logit_rows
        return activations.head_activation_bytes(
            rows, self.hidden, float(self.model.vocab_size), self.item, LOGIT_BYTES, self.layout.tp,
            self.split,
        )  # fmt: skip

    # --- cache -------------------------------------------------------------------------------------------

    def _cache(self, m: Attention) -> Num:
        """Keys and values of a layer for the whole batch, or the states of a linear mixer."""
        cache = cache_of(self.study.scenario)
        context = (self.layout.seq_len + (cache.context if cache else 0.0)) / self.layout.cp
        item = DTYPES[cache.kv_dtype].size if cache else self.item
        return self.study.samples * cache_of_layer(m, context, item, self.layout.tp)


def communicators(study: Study) -> tuple[str, ...]:
    """Parallel groups that communicate in what is estimated, each with buffers of its own."""
    layout, model = study.layout, study.model
    assert layout is not None and model is not None
    if study.costs.machine.family == "gpu":  # the buffers are HCCL's
        return ()
    ranks = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep, "pp": layout.pp}
    if study.scenario.global_batch_size is not None:
        (dense, _), (experts, _) = data_groups(layout)
        ranks |= {"dp": dense, "dp of experts": experts if layout.ep > 1 else 1.0}
    return tuple(name for name, degree in ranks.items() if degree > 1)


def _assumptions(study: Study, model: Model) -> Iterator[str]:
    """What is taken for granted, in words."""
    kinds = {mixer.kind for mixer in model.mixers.values()}
    if kinds - {"linear"}:
        yield "flash attention keeps no scores"
    if "linear" in kinds:
        yield "linear mixers compute the states of their chunks again"
    yield "no dropout; nothing for driver, kernels' workspaces and fragmentation"
    used = communicators(study)
    if used:
        yield f"communicators of {', '.join(used)} hold two buffers of 200 MB each"
    if study.scenario.phase != "train":
        cache = cache_of(study.scenario)
        kept = cache.kv_dtype if cache else "16 bit"
        yield f"KV cache in {kept}, of every token so far"
        yield "one layer at work holds what training would keep of it"
        return
    gated = "3 tensors (gate, up, product)" if model.matrices == 3 else "2 tensors"
    yield f"the feed-forward part keeps {gated}; logits stand there once, in float32"
    yield "weights and activations in 16 bit, gradients in float32 and whole on every rank"
    yield from _of_training(study, model)


def _of_training(study: Study, model: Model) -> Iterator[str]:
    s = study.scenario
    if model.experts:
        yield "experts keep their input and output rows, and every row has arrived: no dispatch in pieces"
    if s.recompute == "selective":
        yield "with flash attention, selective recompute saves its softmax statistics only"
    if s.global_batch_size is None:
        yield "all layers of one micro-batch, no optimizer: give global_batch_size for a whole step"
        return
    shared = "shared by dp" if s.distributed_optimizer else "whole on every rank"
    yield f"Adam keeps master weights and two moments in float32, {shared}"
    yield pipeline_of(s.pipeline, s.vpp).keeps
