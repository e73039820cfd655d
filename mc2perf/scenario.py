"""A question: every input that an estimate takes, with its meaning, its dimension and its default.

The fields below are the vocabulary of the whole tool: command-line flags, keys of a scenario file,
inputs in JSON and columns of a CSV bear these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from mc2perf.operators import DTYPES, MOE_LAYER, PAYLOADS, TARGETS, computed_in
from mc2perf.pipelines import PIPELINES
from mc2perf.skew import Skew
from mc2perf.units import CAPACITY, CHANCE, COUNT, EXPONENT, FACTOR, WIDTH, Dim, Num

SCHEDULES = ("serial", "mc2", "micro_batch", "coc", "dual_batch")
"""How communication and computation are laid over each other."""

POLICIES = ("scan", "closed_form", "cann", "uneven")
"""How pieces are cut: the best of all counts and lengths, by formula, as CANN would, in any lengths."""

SPLIT_AXES = ("m", "n", "k")
CP_KINDS = ("ring", "ulysses", "hybrid")
TOKEN_DISPATCHERS = ("all_to_all", "all_gather")
COC_PARTS = (1, 2, 4, 8)

DRAFTS = {"mtp": 1.0, "ngram": 0.0}
"""Who makes drafts -> layers that each of them costs."""

DEFAULT_HARDWARE = "atlas_800i_a2"
"""The machine of an estimate that names none."""


@dataclass(frozen=True)
class Input:
    """How one field is asked for: its dimension or choices, its help, its group and its short flag.

    A ``column`` may hold many values that are priced at once; every other field is one value. Text may end
    in a number: ``numbers`` says of what dimension after which beginning, so that a sweep may step it.
    """

    help: str
    group: str
    dim: Dim | None = None
    choices: tuple[str, ...] = ()
    auto: bool = False
    short: str = ""
    only: str = ""
    column: bool = False
    numbers: Mapping[str, Dim] = field(default_factory=dict)


def _ask(default: Any, help: str, group: str, **how: Any) -> Any:
    return field(default=default, metadata={"input": Input(help, group, **how)})


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One configuration to estimate. ``None`` stands for a default that depends on the target.

    Examples
    --------
    >>> Scenario(target="mixtral-8x7b").hardware
    'atlas_800i_a2'
    """

    target: str

    # what
    phase: str = _ask(
        "train",
        "forward + backward (train), forward of a prompt (prefill), or one step of many sequences (decode)",
        "what",
        choices=("train", "prefill", "decode"),
        only="model",
    )
    m: Num | None = _ask(
        None,
        "rows; 'mc2perf operators' says whose",
        "what",
        dim=COUNT,
        short="-m",
        only="operator",
        column=True,
    )
    n: Num | None = _ask(None, "columns", "what", dim=COUNT, short="-n", only="operator", column=True)
    k: Num | None = _ask(None, "contraction", "what", dim=COUNT, short="-k", only="operator", column=True)
    experts_per_rank: float = _ask(
        1.0, "local experts of a grouped operator", "what", dim=COUNT, only="operator"
    )
    top_k: float = _ask(2.0, "experts per token, for moe_layer", "what", dim=COUNT, only="operator")
    shared_width: float = _ask(
        0.0, "width of the shared expert, for moe_layer", "what", dim=WIDTH, only="operator"
    )
    batch_size: Num | None = _ask(
        None, "samples per model replica (a group of tp NPUs)", "what", dim=COUNT, only="model", column=True
    )
    seq_len: Num | None = _ask(None, "tokens of a sample", "what", dim=COUNT, only="model", column=True)
    tokens: Num | None = _ask(
        None,
        "tokens per NPU; batch_size = tokens x tp / seq_len follows",
        "what",
        dim=COUNT,
        only="model",
        column=True,
    )
    dtype: str = _ask(
        "bf16",
        "type of weights and activations; w4a8: int8 with 4-bit weights, of routed experts alone if any",
        "what",
        choices=tuple(DTYPES),
    )
    dispatch_dtype: str | None = _ask(
        None, "type of what is dispatched or gathered (default: dtype)", "what", choices=PAYLOADS
    )
    combine_dtype: str | None = _ask(
        None,
        "type of what is combined or reduced (default: dtype; bf16 for 1-byte types)",
        "what",
        choices=PAYLOADS,
    )
    context_len: Num | None = _ask(
        None,
        "tokens of every sequence in the KV cache already [default: 0, in decode 4096]",
        "what",
        dim=WIDTH,
        only="model",
        column=True,
    )
    speculative_tokens: float = _ask(
        0.0, "drafts of a decode step, checked in one pass", "what", dim=WIDTH, only="model"
    )
    speculative_method: str = _ask(
        "mtp",
        "who makes drafts: one more layer like the last each (mtp), or a look-up at no cost (ngram)",
        "what",
        choices=tuple(DRAFTS),
        only="model",
    )
    acceptance: float = _ask(
        1.0, "chance that a draft is accepted if those before it were", "what", dim=CHANCE, only="model"
    )
    kv_dtype: str | None = _ask(
        None, "type of the KV cache (default: bf16)", "what", choices=PAYLOADS, only="model"
    )
    attention_dtype: str | None = _ask(
        None,
        "type of attention (default: dtype; bf16 for 1-byte types)",
        "what",
        choices=PAYLOADS,
        only="model",
    )
    global_batch_size: float | None = _ask(
        None,
        "samples of a whole training step, which is then what is estimated: pipeline, gradients, optimizer",
        "what",
        dim=COUNT,
        only="model",
    )
    recompute: str = _ask(
        "none",
        "none, activation, selective (attention), full, or block:N layers of a stage, all if it has fewer",
        "what",
        only="model",
        numbers={"block:": COUNT},
    )
    capacity_factor: float | None = _ask(
        None, "drop what exceeds this multiple of an expert's even share", "what", dim=CAPACITY
    )
    pad_to_capacity: bool = _ask(
        True,
        "with a capacity_factor, pad every expert to it; without, shapes follow the routing",
        "what",
        only="model",
    )
    skew: Skew = _ask(
        Skew(),
        "how tokens are spread over experts: even, random, zipf:EXPONENT, a file of counts, or the busiest"
        " rank's load over the mean",
        "what",
        numbers={"": FACTOR, "zipf:": EXPONENT},
    )
    redundant_experts: float | None = _ask(
        None,
        "copies of experts that a balancer adds; it places all by load, with 0 as well"
        " [default: experts lie as numbered]",
        "what",
        dim=WIDTH,
    )

    shared_expert_ranks: float = _ask(
        0.0,
        "of the ep ranks, those that hold copies of the shared experts and nothing else; the others hold the"
        " routed ones [default: every rank has the shared experts]",
        "what",
        dim=WIDTH,
        only="model",
    )

    # where
    hardware: str = _ask(DEFAULT_HARDWARE, "profile name; 'mc2perf profiles list'", "where")
    nodes: float | None = _ask(None, "servers (default: as many as the ranks need)", "where", dim=COUNT)
    ranks: float | None = _ask(None, "ranks of an operator's group", "where", dim=COUNT, only="operator")
    tp: float = _ask(
        1.0, "tensor-parallel ranks, with sequence parallelism", "where", dim=COUNT, only="model"
    )
    sp: bool = _ask(True, "sequence parallelism beside tp; without it all-reduces", "where", only="model")
    pp: float = _ask(1.0, "pipeline stages", "where", dim=COUNT, only="model")
    vpp: float = _ask(1.0, "model chunks of a pipeline stage, interleaved", "where", dim=COUNT, only="model")
    pipeline: str | None = _ask(
        None,
        "how micro-batches pass the stages (default: 1f1b, interleaved where vpp is above 1)",
        "where",
        choices=tuple(PIPELINES),
        only="model",
    )
    cp: float = _ask(1.0, "context-parallel ranks", "where", dim=COUNT, only="model")
    cp_kind: str = _ask(
        "ring",
        "keys in a ring, heads traded by all-to-alls (ulysses), or heads inside and a ring between (hybrid)",
        "where",
        choices=CP_KINDS,
        only="model",
    )
    ulysses: float | None = _ask(
        None, "ranks that trade heads, of a hybrid cp", "where", dim=COUNT, only="model"
    )
    cp_balanced: bool = _ask(
        True,
        "a ring deals every rank an early and a late stretch of a sequence; without, one stretch each",
        "where",
        only="model",
    )
    dp: float | None = _ask(
        None, "data-parallel ranks (default: NPUs / (tp cp pp))", "where", dim=COUNT, only="model"
    )
    distributed_optimizer: bool = _ask(
        True, "shard optimizer and gradients over dp; without it all-reduce", "where", only="model"
    )
    grad_overlap: bool = _ask(False, "gradients travel beside the last backward pass", "where", only="model")
    ep: float | None = _ask(
        None,
        "expert-parallel ranks (default: most that divide experts and NPUs; 1 under tp)",
        "where",
        dim=COUNT,
        only="model",
    )
    etp: float | None = _ask(
        None,
        "tensor-parallel ranks of an expert (default: tp if ep is 1, else 1)",
        "where",
        dim=COUNT,
        only="model",
    )
    rank_order: str = _ask(
        "tp-cp-ep-dp-pp",
        "parallel groups from neighbouring ranks outwards; experts take etp for tp and no cp",
        "where",
        only="model",
    )
    stage_layers: str | None = _ask(
        None, "layers of each pipeline stage, such as 1-2-2-1 (default: even)", "where", only="model"
    )
    token_dispatcher: str | None = _ask(
        None,
        "how tokens reach experts: sent to each (all_to_all), or all to all ranks (all_gather)"
        " (default: all_gather under tp alone without a capacity_factor)",
        "how",
        choices=TOKEN_DISPATCHERS,
        only="model",
    )
    grouped_matmul: bool = _ask(
        True, "local experts in one kernel; without it one after the other", "how", only="model"
    )
    fused_permute: bool = _ask(
        True, "tokens permuted in one kernel; without it gathered and scattered", "how", only="model"
    )
    gradient_accumulation_fusion: bool = _ask(
        True,
        "weight gradients added up inside their matmuls; without it by passes of their own",
        "how",
        only="model",
    )
    fused_cross_entropy: bool = _ask(
        True, "loss in one kernel; without it pass by pass in float32", "how", only="model"
    )
    engine: str | None = _ask(None, "who drives the links (default: what the profile says answers)", "where")
    matmul_rule: str | None = _ask(
        None, "utilisation rule of the cube (default: what the profile says answers)", "where"
    )
    l2: str = _ask(
        "cold", "weights read from memory (cold) or already in L2 (warm)", "where", choices=("cold", "warm")
    )
    host: str = _ask(
        "eager",
        "host issues every kernel (eager), waits for each (blocking), or issues none (graph)",
        "where",
        choices=("eager", "blocking", "graph"),
    )
    cann: str = _ask("8.5", "CANN version; 8.0 fuses inside one server only", "where", choices=("8.0", "8.5"))
    hccl_buffsize: float = _ask(
        200.0, "HCCL_BUFFSIZE in MB of 2^20 bytes; a communicator holds two", "where", dim=COUNT
    )
    rdma: bool = _ask(True, "RoCE runs RDMA; without it fused operators fall back across servers", "where")

    # how
    schedule: str = _ask("all", "schedule, or all of them side by side", "how", choices=("all", *SCHEDULES))
    split_axis: str = _ask("m", "axis that tiles cut", "how", choices=SPLIT_AXES, only="operator")
    tile_cnt: Num | None = _ask(
        None, "tiles of an operator", "how", dim=COUNT, auto=True, only="operator", column=True
    )
    micro_batches: Num | None = _ask(
        None, "micro-batches of an MoE layer", "how", dim=COUNT, auto=True, column=True
    )
    micro_batch_size: Num | None = _ask(
        None,
        "samples per micro-batch; sets micro_batches = batch_size / it",
        "how",
        dim=COUNT,
        only="model",
        column=True,
    )
    policy: str = _ask(
        "scan",
        "how a fused operator is cut; all compares; 'asked' where a number is given",
        "how",
        choices=("all", *POLICIES),
    )
    buffers: float = _ask(4.0, "pieces in flight between sender and cube", "how", dim=COUNT)

    @property
    def cube_dtype(self) -> str:
        """Element type that the cube multiplies in."""
        return computed_in(self.dtype)


def inputs() -> Iterator[tuple[Field[Any], Input]]:
    """Every field that can be asked for, with how to ask."""
    for spec in fields(Scenario):
        if "input" in spec.metadata:
            yield spec, spec.metadata["input"]


PIECES = ("tile_cnt", "micro_batches", "micro_batch_size")
"""Inputs that say how many pieces; a sweep lays them across, everything else down."""


def pieces_that_vary(scenario: Scenario, axes: Mapping[str, object]) -> tuple[str, ...]:
    """Inputs of a sweep that say how many pieces; of a whole step, micro_batch_size says what it works on.

    Examples
    --------
    >>> pieces_that_vary(Scenario(target="qwen3-8b", global_batch_size=8.0), {"micro_batch_size": (1.0, 2.0)})
    ()
    """
    step = scenario.global_batch_size is not None or "global_batch_size" in axes
    return tuple(name for name in PIECES if name in axes and not (step and name == "micro_batch_size"))


def columns_of(target: str) -> tuple[str, ...]:
    """Inputs of a target that may be columns; the experts of a layer are whole numbers, one at a time."""
    kind = "operator" if is_operator(target) else "model"
    fixed = ("n", "k") if target == MOE_LAYER else ()
    return tuple(
        spec.name
        for spec, how in inputs()
        if how.column and how.only in ("", kind) and spec.name not in fixed
    )


def is_operator(target: str) -> bool:
    """Whether the target is an operator rather than a model."""
    return target in TARGETS
