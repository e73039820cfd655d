"""Where a model lies on its ranks: layers of pipeline stages, weights of an NPU, ranks that hold the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from mc2perf.degrees import layers_of_stages
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.operators import DTYPES
from mc2perf.pipelines import pipeline_of
from mc2perf.study import Study
from mc2perf.workload.layout import Layout


def stage_counts(study: Study) -> list[list[float]]:
    """Layers of every group on every stage, in the order of the model: dense layers come first.

    Groups that differ in their mixer alone alternate, so that every stage has its share of each.
    """
    assert study.model is not None and study.layout is not None
    bounds = _stage_bounds(study)
    counts = []
    for begin, end in pairwise(bounds):
        stage, at = [], 0.0
        for _, run in groupby(study.model.layers, key=lambda group: group.ffn):
            groups = list(run)
            whole = float(sum(group.count for group in groups))
            here = max(min(at + whole, end) - max(at, begin), 0.0)
            stage += [group.count * here / whole for group in groups]
            at += whole
        counts.append(stage)
    return counts


def _stage_bounds(study: Study) -> list[float]:
    """Layers before every stage, and all of them."""
    assert study.model is not None
    s = study.scenario
    stages, given = pipeline_of(s.pipeline, s.vpp).stages(s.pp), s.stage_layers
    each = layers_of_stages(given) if given else [study.model.num_layers / stages] * stages
    return [0.0, *accumulate(each)]


def held_stages(study: Study) -> list[tuple[int, ...]]:
    """Stages of every NPU of a pipeline that differs from the others."""
    s = study.scenario
    return pipeline_of(s.pipeline, s.vpp).held(s.pp)


def vocabulary_tables(study: Study, held: Sequence[int]) -> int:
    """Embedding and output head among the stages of an NPU; tied, they are one where both are there."""
    assert study.model is not None
    last = max(stage for of in held_stages(study) for stage in of)
    both = 0 in held and last in held
    return (0 in held) + (last in held) - (both and study.model.tied_embeddings)


def weights_of_a_rank(study: Study) -> tuple[float, float]:
    """Weights on an NPU of the fullest stage: outside the routed experts, and of routed experts."""
    model, layout = study.model, study.layout
    assert model is not None and layout is not None
    embedding = float(model.vocab_size * model.hidden_size) / layout.tp
    counts = stage_counts(study)
    found = []
    for held in held_stages(study):
        layers = [sum(of) for of in zip(*(counts[stage] for stage in held), strict=True)]
        each = [(n, weights_of_a_layer(model, layout, g)) for n, g in zip(layers, model.layers, strict=True)]
        other, routed = (sum(n * of[kind] for n, of in each) for kind in (0, 1))
        found.append((other + vocabulary_tables(study, held) * embedding, routed))
    return max(found, key=sum)


def weights_of_a_layer(model: Model, layout: Layout, group: LayerGroup) -> tuple[float, float]:
    """Weights of a layer on an NPU: outside the routed experts, and of routed experts without copies.

    Router, latent projections, and shared experts beside experts with ranks of their own meet a rank's own
    tokens; every rank needs whole latents, and all that an indexer picks: tensor parallelism cuts neither.
    """
    copied = copied_parameters(model, layout, group)
    other, routed = float(model.other_parameters(group)), float(model.routed_parameters(group))
    apart = shared_parameters(model, group) if layout.shared_ranks else 0.0
    # a rank of shared experts alone may hold more than one of routed experts with their copies, which may be
    # narrower: what it holds is said in weights of theirs
    wider = DTYPES[layout.dtype].stored_size / DTYPES[layout.expert_dtype].stored_size
    held = max(routed / (layout.routed_ranks * layout.etp), apart * wider / with_copies(model, layout))
    return (other - apart - copied) / layout.tp + copied, held


def with_copies(model: Model, layout: Layout) -> float:
    """Experts and their copies over experts."""
    return 1.0 + layout.redundant / model.experts.count if model.experts else 1.0


def shared_parameters(model: Model, group: LayerGroup) -> float:
    """Weights of the shared experts of one layer."""
    e = model.experts if group.ffn == "moe" else None
    return float(model.matrices * model.hidden_size * e.shared_width) if e else 0.0


def copied_parameters(model: Model, layout: Layout, group: LayerGroup) -> float:
    """Weights of a layer that every tensor-parallel rank holds whole."""
    hidden, e = float(model.hidden_size), model.experts
    mixer = model.mixers[group.mixer] if group.mixer else None
    copied = float(_copied_of_mixer(mixer, model.hidden_size)) if mixer else 0.0
    if group.ffn != "moe" or e is None:
        return copied
    latent = 2.0 * hidden * e.payload_width if e.payload_width != hidden else 0.0
    shared = shared_parameters(model, group) if layout.ep > 1 and not layout.shared_ranks else 0.0
    return copied + hidden * e.count + latent + shared


def _copied_of_mixer(mixer: Attention, hidden: int) -> int:
    """Its indexer, and the projections down to latents (vLLM: ReplicatedLinear; Megatron-LM: duplicated)."""
    return mixer.indexer_parameters(hidden) + mixer.latent_parameters(hidden)


def data_groups(layout: Layout) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranks that hold the same weights and the distance between them: outside the experts, and of experts."""
    apart = [layout.stride(name) for name in ("cp", "dp") if getattr(layout, name) > 1]
    if layout.copies > 1:
        apart.append(layout.stride("pp"))
    dense = (layout.dp * layout.cp * layout.copies, min(apart, default=layout.tp))
    if layout.ep == 1:
        return dense, dense
    alone = layout.copies > 1 and layout.expert_ranks == 1
    stride = layout.expert_stride("pp" if alone else "dp")
    return dense, (layout.expert_ranks * layout.copies, stride)
