"""What of a row of published measurements can be asked, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from mc2perf.measurement import Plain, Row, Value
from mc2perf.problems import InputError
from mc2perf.scenario import inputs, is_operator
from mc2perf.skew import Skew
from mc2perf.studies.validate.asked import GAINS, PHASES, QUANTITIES, YIELDS

MIXER_SIZES = frozenset(
    ("heads", "kv_heads", "head_dim", "v_head_dim", "rope_head_dim", "q_lora_rank", "kv_lora_rank", "window")
)
EXPERT_SIZES = {
    "experts": "count",
    "top_k": "top_k",
    "expert_width": "width",
    "shared_width": "shared_width",
    "top_groups": "top_groups",
}
"""Words of rows -> those of a model's experts."""
SIZES = MIXER_SIZES | EXPERT_SIZES.keys() | {
    "hidden_size", "vocab_size", "dense_width", "num_layers", "dense_layers", "mtp_layers", "no_op_layers",
}  # fmt: skip
"""Inputs of rows that are sizes of a model."""

UNPRICED = frozenset(
    (
        "chip", "peak", "tuned", "version", "system", "swap_optimizer",
    )
)  # fmt: skip
"""How the software does the same work, which no equation prices: such rows are scored, and say so."""

OF_MODELS = frozenset(
    (
        "npus", "dies", "cards", "per", "requests", "prompt_len", "batch_tokens", "tokens_per_npu",
        "optimizer", "flash_attention", "fused_operator", "prefill_micro_batches", "baseline_throughput",
        "dispatcher", "launch_blocking", "recompute_parts",
    )
)  # fmt: skip
"""Inputs of models that are turned into others, or compared with them."""

OF_DECODE = frozenset(
    (
        "batch_per_npu", "batch_per_die", "output_len", "mtp", "mtp_acceptance", "mtp_accepted",
        "tokens_per_request",
    )
)  # fmt: skip
"""Inputs of a decode step that are turned into others."""

OF_OPERATORS = frozenset(("experts", "local_first", "baseline_throughput"))
"""The same of operators."""

DECIDES = frozenset(
    (
        "hardware", "ranks", "m", "n", "k", "experts", "experts_per_rank", "top_k", "tokens", "seq_len",
        "prompt_len", "context_len", "batch_size", "global_batch_size", "micro_batch_size", "batch_per_npu",
        "npus", "dp", "pp", "tp", "ep", "parallel", "model", "time_unit",
    )
)  # fmt: skip
"""Inputs without which there is no prediction, only a guess; every other one has the default of software."""

ONLY: dict[str, Plain] = {
    "flash_attention": True,
    "optimizer": "zero1",
    "local_first": True,
    "fused_operator": "matmul_all_reduce",
}
"""Inputs that are priced in one way: another one is another question."""

EXCHANGES = {
    "moe_dispatch": ("dispatch",),
    "moe_combine": ("combine",),
    "moe_dispatch_combine": ("dispatch", "combine"),
}
"""Exchanges of an expert layer that are asked alone -> its segments."""

GROUPED_MATMUL = "grouped_matmul"
"""The matmul of the local experts, asked alone."""

OF_PARTS = frozenset(("experts", "tokens", "ep", "mode", "tier", "top_groups", "expert_groups"))
"""Inputs of parts that no scenario has, or that say again what m and experts_per_rank do."""

OF_PARTS_ALONE = ("time", "rate")
"""What is predicted of a part alone."""

UNPRICED_IN_PARTS = frozenset(("kernel",))
"""Kernels of one matmul, which no equation tells apart."""


def refuse(problems: Iterator[str]) -> None:
    """Raise all problems, if there are any."""
    if found := list(problems):
        raise InputError(found)


def why_not(row: Row, value: Value, question: Mapping[str, Plain]) -> Iterator[str]:
    """Why a value is not asked, as far as its row tells."""
    if row.outside:
        yield f"outside: {row.outside}"
        return
    needed = [name for name in row.needs if name in question.values()]
    if needed:
        yield from (f"needs {name}: {row.needs[name]}" for name in needed)
        return
    if value.quantity not in (OF_PARTS_ALONE if is_part(question) else QUANTITIES):
        yield f"quantity: nothing predicts {value.quantity} yet"
    if question.get("phase") != PHASES.get(value.quantity, question.get("phase")):
        yield f"quantity: {value.quantity} is of {PHASES[value.quantity]}"
    if (
        value.quantity in YIELDS
        and {"mtp", "tokens_per_request"} & question.keys()
        and not {"mtp_acceptance", "mtp_accepted"} & set(question)
    ):
        yield f"unstated: mtp_acceptance, on which {value.quantity} depends"
    if value.quantity in GAINS and schedule_of(question) == "serial":
        yield f"quantity: {value.quantity} of serial over itself, or of something that is no schedule"
    known = question.keys() | ({"parallel"} if is_decode(question) else set())
    left_out = [name for name in row.unstated if name in DECIDES and name not in known]
    if left_out:
        yield f"unstated: {', '.join(left_out)}"
    yield from _unasked(question)


def _unasked(question: Mapping[str, Plain]) -> Iterator[str]:
    """Inputs that no scenario has, and those that are priced in another way."""
    own = OF_OPERATORS if is_operator(str(question["target"])) else SIZES | OF_MODELS
    own = OF_PARTS if is_part(question) else own | (OF_DECODE if is_decode(question) else frozenset())
    unknown = sorted(question.keys() - (defaults().keys() | own | unpriced(question) | {"target"}))
    if unknown:
        yield f"inputs: {', '.join(unknown)} cannot be asked yet"
    for name, only in ONLY.items():
        if question.get(name, only) != only:
            yield f"inputs: {name} {question[name]} is not what is priced"
    if "system" in question and "schedule" not in question:
        yield f"inputs: how {question['system']} overlaps is none of the schedules"
    batches = 2 if schedule_of(question) == "dual_batch" else 1
    if question.get("prefill_micro_batches", batches) != batches:
        yield f"inputs: prefill_micro_batches is not the {batches} of {schedule_of(question)}"


def unpriced(question: Mapping[str, Plain]) -> frozenset[str]:
    """Inputs that are known and not priced."""
    return UNPRICED | UNPRICED_IN_PARTS if is_part(question) else UNPRICED


def is_part(question: Mapping[str, Plain]) -> bool:
    """Whether it is a part of an expert layer alone."""
    return question["target"] in (*EXCHANGES, GROUPED_MATMUL)


def is_decode(question: Mapping[str, Plain]) -> bool:
    """Whether it is a decode step of a model."""
    return question.get("phase") == "decode" and not is_operator(str(question["target"]))


def schedule_of(question: Mapping[str, Plain]) -> str:
    """The schedule: serial unless stated, or MC2 where a fused operator is named."""
    return str(question.get("schedule", "mc2" if "fused_operator" in question else "serial"))


@cache
def defaults() -> dict[str, object]:
    """Every input of a scenario with its default, as a row would write it."""
    return {s.name: str(s.default) if isinstance(s.default, Skew) else s.default for s, _ in inputs()}


def number(value: object) -> float:
    """A number among plain values; lists and ranges are words."""
    if not isinstance(value, int | float):
        raise InputError([f"inputs: '{value}' is not one number"])
    return float(value)
