"""What an NPU of a pipeline stage holds: model state, micro-batches in flight, caches, windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mc2perf.equations import activations, memory
from mc2perf.footprint.layers import Layer, LayerBytes
from mc2perf.model import Model
from mc2perf.operators import DTYPES, unquantised
from mc2perf.pipeline_steps import at_each, held_at_once
from mc2perf.pipelines import Pipeline, pipeline_of
from mc2perf.placement import data_groups, vocabulary_tables
from mc2perf.step import GRADIENT_BYTES, STATE_BYTES
from mc2perf.study import Study
from mc2perf.units import MIB, Num
from mc2perf.workload.layout import Layout

BUFFERS_OF_A_COMMUNICATOR = 2.0
"""A communicator of HCCL holds two buffers of HCCL_BUFFSIZE (HCCL, HCCL_BUFFSIZE)."""

Layers = list[tuple[float, Layer]]
"""How many layers of which kind."""


def _most(held: Sequence[tuple[int, int]], kept: Sequence[Num], more: float, n_mb: float) -> Num:
    """The most that a device keeps, of so many micro-batches of each of its chunks and some ``more``. [B]"""
    sums = [sum((min(n + more, n_mb) * size for n, size in zip(of, kept, strict=False)), 0.0) for of in held]
    most: Num = np.max(np.stack(np.broadcast_arrays(*sums)), axis=0)
    return most


@dataclass(frozen=True)
class StageBytes:
    """Counts the bytes of a stage from those of its layers."""

    study: Study
    model: Model
    layout: Layout

    @cached_property
    def one(self) -> LayerBytes:
        """Counts one layer."""
        return LayerBytes(self.study, self.model, self.layout)

    @property
    def pipeline(self) -> Pipeline:
        """In which order stages take micro-batches."""
        return pipeline_of(self.study.scenario.pipeline, self.study.scenario.vpp)

    @property
    def whole_step(self) -> bool:
        """Whether a step with its optimizer is estimated."""
        return self.study.scenario.global_batch_size is not None

    @cached_property
    def layers(self) -> list[Layer]:
        """One layer of every group."""
        return [self.one.of(group) for group in self.model.layers]

    def device(self, held: Sequence[int], counts: Sequence[Sequence[float]]) -> dict[str, Num]:
        """Everything that an NPU of some stages holds."""
        chunks = [
            [(n, layer) for n, layer in zip(counts[stage], self.layers, strict=True) if n] for stage in held
        ]
        here = [pair for chunk in chunks for pair in chunk]
        tables = vocabulary_tables(self.study, held)
        embedded = tables * float(self.model.vocab_size) * self.one.hidden / self.layout.tp
        dense = sum(n * layer.dense for n, layer in here)
        routed = sum(n * layer.routed for n, layer in here)
        head = self.one.head() if len(counts) - 1 in held else 0.0
        if self.one.train:
            kept = self._training(held[0], chunks, (embedded + dense, routed), head)
        else:
            kept = self._served(here, embedded, (dense, routed), head)
        window = BUFFERS_OF_A_COMMUNICATOR * self.study.scenario.hccl_buffsize * MIB
        return kept | {"communication windows": window * len(communicators(self.study))}

    def _training(
        self, device: int, chunks: Sequence[Layers], weights: tuple[float, float], head: Num
    ) -> dict[str, Num]:
        again = [self._recomputed(layer, here) for here in chunks for _, layer in here]
        kept = [sum((n * self._between_passes(layer, here) for n, layer in here), 0.0) for here in chunks]
        working = np.max(np.broadcast_arrays(head, *again), axis=0)
        return {
            "weights": self._state(weights, (self.one.item, self.one.item)),
            "gradients": self._state(weights, gradient=GRADIENT_BYTES),
            "optimizer": self._state(weights, optimizer=STATE_BYTES) if self.whole_step else 0.0,
            "activations": self._in_flight(device, kept),
            "logits or a layer computed again": working,
        }

    def _served(
        self, here: Layers, embedded: float, weights: tuple[float, float], head: Num
    ) -> dict[str, Num]:
        one = [layer.kept for _, layer in here]
        tables = embedded * DTYPES[unquantised(self.layout.dtype)].size
        wider = sum(n * layer.wider for n, layer in here)
        return {
            "weights": tables + wider + self._state(weights, self._stored),
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

    def _share(self, here: Layers) -> float:
        """Share of the layers of a chunk of which only the input is kept."""
        method, _, number = self.study.scenario.recompute.partition(":")
        if method == "block":
            return min(float(number) / (self.pipeline.chunks * sum(n for n, _ in here)), 1.0)
        return float(method == "full")

    def _between_passes(self, layer: Layer, here: Layers) -> Num:
        """What a layer keeps from its forward to its backward pass."""
        if self.study.scenario.recompute == "selective":
            return layer.kept - layer.statistics
        share = self._share(here)
        return share * layer.boundary + (1.0 - share) * layer.kept

    def _recomputed(self, layer: Layer, here: Layers) -> Num:
        """What stands there once more while a layer is computed again; its input is there already."""
        if self.study.scenario.recompute == "selective":
            return layer.statistics
        return layer.kept - layer.boundary if self._share(here) else 0.0


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
