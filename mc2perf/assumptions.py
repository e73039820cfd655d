"""Every assumption behind an answer, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mc2perf.cutting import CUTS
from mc2perf.operators import DTYPES, unquantised
from mc2perf.pipelines import pipeline_of
from mc2perf.scenario import Scenario
from mc2perf.skew import Drawn
from mc2perf.study import Study
from mc2perf.workload.parts import Pair

NOISE = 1.02
"""A fullest rank below this times the mean is not worth saying."""

DRAWN = Drawn("random")


def assumptions_of(study: Study) -> tuple[str, ...]:
    """Everything taken for granted, in words."""
    scenario, model = study.scenario, study.model
    weights = (
        "read from memory once per matmul (cold L2)" if scenario.l2 == "cold" else "in L2 where they fit"
    )
    said = [
        *_pieces(study),
        f"{_routing(study)}no congestion; no jitter between ranks, so a ring deeper than 2 changes little",
        f"weights are {weights}",
        *_widened(study),
        *_kept_up(study),
    ]
    if model is not None:
        said += [*_reading_assumptions(study), *_step_assumptions(scenario)]
        between = "with" if scenario.sp else "without"
        said += [
            f"tensor parallelism {between} sequence parallelism",
            "routed experts are cut by ep and etp",
            *_sparse_assumptions(study),
            *_software_assumptions(study),
        ]
        if model.experts and model.experts.shared_width:
            said.append(_where_shared_experts_run(study))
        said += _kept_wide(study)
    if scenario.phase == "train" and model is not None:
        said.append(
            "dual_batch overlaps two whole micro-batches of this size, as gradient accumulation has them"
        )
    return tuple(said)


def _reading_assumptions(study: Study) -> Iterator[str]:
    """What the reader of the model had to guess, and weights that are stored as something else."""
    model, dtype = study.model, study.scenario.dtype
    assert model is not None
    yield from model.notes
    if model.stored_as and dtype == unquantised(dtype):
        told = model.stored_dtype
        follows = f"--dtype {told} would follow it" if told else "write the nearest type as --dtype"
        yield f"priced in {dtype}; quantization_config says {model.stored_as}: {follows}"


def _kept_wide(study: Study) -> Iterator[str]:
    """What a model of small elements computes in wider ones."""
    layout = study.layout
    assert layout is not None
    wide = unquantised(layout.dtype)
    if wide != layout.dtype:
        passes = "of all three passes " if study.scenario.phase == "train" else ""
        yield (
            f"{layout.dtype} in matmuls {passes}but gate and output head, which are {wide}; "
            f"attention in {layout.attention_dtype}"
        )


def _widened(study: Study) -> Iterator[str]:
    """Whose weights are narrower than the rows, what their scales take, and at which rate they compute."""
    dtype, cube = study.scenario.dtype, study.scenario.cube_dtype
    if dtype == cube:
        return
    item, has_experts = DTYPES[dtype], study.group is not None
    whose = "routed experts alone" if has_experts else "its matmuls"
    yield (
        f"{dtype}: {8.0 * item.size:g}-bit weights of {whose}; a {8.0 * item.scale_size:g}-bit scale for"
        f" {item.scale_block:g} of them; widened to {cube} on the way to the cube, as fast as {cube} kernels"
    )


def _kept_up(study: Study) -> Iterator[str]:
    """What a whole pass keeps up of the speed of single kernels; not every machine has such a share."""
    used = study.costs.ledger.used
    for path, whole in {"cube.served": "prefill", "cube.sustained": "training step"}.items():
        share = used.get(path)
        if share is not None and share != 1.0:
            yield (
                f"kernels of a {whole} run at {share:.3g} of the speed that they reach alone"
                f" ({path}, {share.kind}); machines without such a measurement at 1"
            )


def _where_shared_experts_run(study: Study) -> str:
    layout = study.layout
    if layout is None or not layout.shared_ranks:
        return "shared experts run on a rank's own tokens, beside the first dispatch where overlapped"
    return (
        f"{layout.shared_ranks:g} of {layout.ep:g} ranks hold shared experts alone, each for the tokens of"
        f" {np.ceil(layout.ep / layout.shared_ranks):g} ranks; the slower kind of rank sets the pace"
    )


def _pieces(study: Study) -> Iterator[str]:
    """How work is taken to be cut: rows of tiles, and everything else."""
    parts = [part for _, part in study.parts()]
    in_tiles = [part for part in parts if isinstance(part, Pair) and part.ranks > 1 and not part.experts]
    if len(in_tiles) < len(parts):
        yield "pieces are equal; a remainder counts as a full share of a piece"
    if in_tiles and study.scenario.policy not in CUTS:
        even = ", as even as they can be" if study.scenario.tile_cnt is not None else ""
        yield f"tiles are whole base blocks of one length{even}; the first or last one holds what is left"


def _routing(study: Study) -> str:
    """How tokens are taken to be spread, and what even routing leaves out."""
    skew, group = study.scenario.skew, study.group
    if group is None:
        return ""
    if not skew.even or group.copies is not None:
        return f"{skew.said(group)}; "
    rows = np.asarray(study.rows * group.top_k).item()
    drawn = float(np.asarray(DRAWN.busiest(group).factor(rows)))
    by_chance = f"; drawn at random the fullest of {group.ranks} ranks would carry {drawn:.3g} x the mean"
    return f"even routing{by_chance if drawn > NOISE else ''}; "


def _sparse_assumptions(study: Study) -> Iterator[str]:
    """How keys are taken to be picked, and what meeting them takes."""
    model, layout = study.model, study.layout
    assert model is not None and layout is not None
    sparse = [mixer for mixer in model.mixers.values() if mixer.top_keys]
    if not sparse:
        return
    if any(mixer.indexer for mixer in sparse):
        ranks = "; every tensor-parallel rank runs all of it" if layout.tp > 1 else ""
        yield (
            f"the indexer scores every key in {layout.attention_dtype} as fast as attention kernels multiply;"
            f" its float32 scores are written once and read twice to pick the best{ranks}"
        )
    share = study.costs.machine.kernels.gather_efficiency
    rate = "the full rate" if share == 1.0 else f"{share:.3g} of the rate"
    yield f"picked keys are gathered at {rate} of a cache in order; queries pick apart"
    if study.scenario.phase != "decode":
        yield "a prompt's attention is over all keys under a mask where that takes fewer FLOPs than its picks"
    if layout.cp > 1:
        yield "context parallelism: what the indexer's keys take on their way to other ranks is not counted"


def _software_assumptions(study: Study) -> Iterator[str]:
    """What the framework is taken to do in training, switch by switch."""
    s, layout, model = study.scenario, study.layout, study.model
    assert layout is not None and model is not None
    if s.cp > 1:
        kinds = {"ring": "keys pass around a ring", "ulysses": "heads are traded by all-to-alls"}
        dealt = "an early and a late stretch of each sequence" if s.cp_balanced else "one stretch of each"
        ring = f"; a rank holds {dealt}" if layout.ring > 1 else ""
        yield f"context parallelism: {kinds.get(s.cp_kind, 'heads are traded inside, keys between')}{ring}"
    if s.phase != "train":
        return
    switches = SWITCHES | (EXPERT_SWITCHES if model.experts else {})
    yield "; ".join(text[getattr(s, name)] for name, text in switches.items())
    if model.experts:
        sent = {"all_to_all": "sent to the ranks of their experts", "all_gather": "gathered by all ranks"}
        yield f"tokens are {sent[layout.dispatcher]}"
        if layout.dynamic and s.host != "graph":
            yield "the host reads where tokens go before it issues the experts, in every forward pass"


SWITCHES = {
    "gradient_accumulation_fusion": {
        True: "weight gradients are added up inside their matmuls",
        False: "weight gradients are added up by passes of their own",
    },
    "fused_cross_entropy": {True: "the loss is one kernel", False: "the loss is computed pass by pass"},
}
"""Switch of training software -> what it means on and off."""

EXPERT_SWITCHES = {
    "grouped_matmul": {
        True: "local experts are one grouped matmul",
        False: "local experts run one after the other",
    },
    "fused_permute": {
        True: "tokens are permuted by one kernel",
        False: "tokens are gathered and scattered by an index",
    },
}
"""The same of experts."""


def _step_assumptions(scenario: Scenario) -> Iterator[str]:
    """What a training time holds beside its layers."""
    if scenario.global_batch_size is None:
        yield "no pipeline parallelism, no recompute, no gradient exchange, no optimizer step"
        return
    shards = "sharded over" if scenario.distributed_optimizer else "whole on"
    beside = "beside the last backward pass" if scenario.grad_overlap else "after the backward pass"
    gathered = "; new weights in bf16 after the optimizer step" if scenario.distributed_optimizer else ""
    yield f"Adam in float32, {shards} the data-parallel ranks; gradients travel in float32 {beside}{gathered}"
    order = scenario.rank_order.replace("-", ", ")
    yield f"ranks lie {order} from neighbours outwards, experts without cp; sends between stages are exposed"
    pipeline = pipeline_of(scenario.pipeline, scenario.vpp)
    yield pipeline.meaning
    if pipeline.order is not None:
        yield "weight gradients of router and shared experts are not put off, they share kernels with others"
    if pipeline.pairs and scenario.schedule in ("all", "dual_batch"):
        yield (
            "dual_batch: communication and sends hide where a forward meets a backward on an NPU, in the best"
            " order of whole turns; passes that fill and drain the pipeline hide nothing"
        )
