"""Where a model lies on its ranks: layers of pipeline stages, weights of an NPU, ranks that hold the same."""

from __future__ import annotations

from itertools import accumulate, groupby, pairwise

from mc2perf.degrees import layers_of_stages
from mc2perf.model import LayerGroup, Model
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
    stages, given = int(study.scenario.pp), study.scenario.stage_layers
    each = layers_of_stages(given) if given else [study.model.num_layers / stages] * stages
    return [0.0, *accumulate(each)]


def weights_of_a_rank(study: Study) -> tuple[float, float]:
    """Weights on an NPU of the fullest stage: outside the routed experts, and of routed experts."""
    model, layout = study.model, study.layout
    assert model is not None and layout is not None
    embedding = float(model.vocab_size * model.hidden_size) / layout.tp
    counts = stage_counts(study)
    found = []
    for i, stage in enumerate(counts):
        held = [(n, weights_of_a_layer(model, layout, g)) for n, g in zip(stage, model.layers, strict=True)]
        ends = (i == 0) + (i == len(counts) - 1 and not (model.tied_embeddings and len(counts) == 1))
        other, routed = (sum(n * of[kind] for n, of in held) for kind in (0, 1))
        found.append((other + ends * embedding, routed))
    return max(found, key=sum)


def weights_of_a_layer(model: Model, layout: Layout, group: LayerGroup) -> tuple[float, float]:
    """Weights of a layer on an NPU: outside the routed experts, and of routed experts.

    Router, latent projections, and shared experts beside experts with ranks of their own meet a rank's own
    tokens, and every rank needs all that an indexer picks: tensor parallelism does not cut them.
    """
    copied = copied_parameters(model, layout, group)
    other, routed = float(model.other_parameters(group)), float(model.routed_parameters(group))
    return (other - copied) / layout.tp + copied, routed / (layout.ep * layout.etp)


def copied_parameters(model: Model, layout: Layout, group: LayerGroup) -> float:
    """Weights of a layer that every tensor-parallel rank holds whole."""
    indexer = float(model.mixers[group.mixer].indexer_parameters(model.hidden_size)) if group.mixer else 0.0
    e = model.experts
    if group.ffn != "moe" or e is None:
        return indexer
    hidden = float(model.hidden_size)
    latent = 2.0 * hidden * e.payload_width if e.payload_width != hidden else 0.0
    shared = model.matrices * hidden * e.shared_width if layout.ep > 1 else 0.0
    return indexer + hidden * e.count + latent + shared


def data_groups(layout: Layout) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranks that hold the same weights and the distance between them: outside the experts, and of experts."""
    apart = [layout.stride(name) for name in ("cp", "dp") if getattr(layout, name) > 1]
    dense = (layout.dp * layout.cp, min(apart, default=layout.tp))
    if layout.ep == 1:
        return dense, dense
    return dense, (layout.expert_ranks, layout.expert_stride("dp"))
