"""What a footprint takes for granted, in words."""

from __future__ import annotations

from collections.abc import Iterator

from mc2perf.footprint.stages import communicators
from mc2perf.model import Model
from mc2perf.pipelines import pipeline_of
from mc2perf.resolve import cache_of
from mc2perf.study import Study


def assumptions_of(study: Study, model: Model) -> Iterator[str]:
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
