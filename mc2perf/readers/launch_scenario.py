"""A launch script as a scenario: its sizes a shipped model or one of its own, its arguments inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from mc2perf.measured import Launch
from mc2perf.model import LayerGroup, Model
from mc2perf.problems import InputError
from mc2perf.readers.hf_config import model_from_config
from mc2perf.readers.models import VERSION, load_model, model_names
from mc2perf.readers.scenarios import read_scenario, scenario_tree
from mc2perf.scenario import inputs

CONFIG = {
    "num_layers": ("num_hidden_layers", "--num-layers"),
    "hidden_size": ("hidden_size", "--hidden-size"),
    "dense_width": ("intermediate_size", "--ffn-hidden-size"),
    "heads": ("num_attention_heads", "--num-attention-heads"),
    "kv_heads": ("num_key_value_heads", "--num-query-groups"),
    "head_dim": ("head_dim", "--kv-channels"),
    "nope_head_dim": ("qk_nope_head_dim", "--qk-nope-head-dim"),
    "rope_head_dim": ("qk_rope_head_dim", "--qk-rope-head-dim"),
    "v_head_dim": ("v_head_dim", "--v-head-dim"),
    "q_lora_rank": ("q_lora_rank", "--q-lora-rank"),
    "kv_lora_rank": ("kv_lora_rank", "--kv-lora-rank"),
    "experts": ("n_routed_experts", "--num-experts"),
    "top_k": ("num_experts_per_tok", "--moe-router-topk"),
    "expert_width": ("moe_intermediate_size", "--moe-ffn-hidden-size"),
    "shared_width": ("shared_expert_intermediate_size", "--moe-shared-expert-intermediate-size"),
    "groups": ("n_group", "--moe-router-num-groups"),
    "top_groups": ("topk_group", "--moe-router-group-topk"),
    "vocab_size": ("vocab_size", "--padded-vocab-size"),
}
"""Size of a launch -> its key in a ``config.json``, and the argument that gives it."""

PADDED = 1.02
"""A vocabulary is padded to a multiple of a few hundred words: so many times as long is the same one."""

SERVING = "a server's arguments: phase decode; write 'phase: prefill' for prompts"

_REPEATED = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?")


@dataclass(frozen=True)
class Asked:
    """The tree of a scenario, the tree of a model file that goes with it, and what was taken for granted."""

    scenario: dict[str, object]
    model: dict[str, object] | None
    notes: tuple[str, ...]


def asked_by(launch: Launch, name: str, target: str | None, model_file: str) -> Asked:
    """Turn a launch into a scenario that ``estimate`` reads.

    Parameters
    ----------
    launch : Launch
        What the script says.
    name : str
        The script, for problems.
    target : str, optional
        The model, where the user names one.
    model_file : str
        What a model file would be called if the sizes are those of no shipped model.

    Returns
    -------
    Asked
        Trees to be written as YAML.

    Raises
    ------
    InputError
        Sizes that are missing or make no model, arguments that no estimate takes.

    Examples
    --------
    >>> launch = Launch({"tp": 2.0, "seq_len": 4096.0, "dtype": "bf16"}, {})
    >>> asked_by(launch, "run.sh", "llama-2-7b", "").scenario["sp"]
    False
    """
    notes: list[str] = []
    chosen, model = _model(launch, name, target, model_file, notes)
    try:  # a model of its own is not written yet; any other takes the same inputs
        scenario, _ = read_scenario(model_names()[0] if model else chosen, dict(_inputs(launch, notes)))
    except InputError as error:
        raise InputError([f"{name}: {problem}" for problem in error.problems]) from None
    tree = scenario_tree(replace(scenario, target=chosen), {})
    notes += [f"not resolved, so not in the scenario: {text}" for text in launch.unresolved]
    notes.append("a script does not name its machine: estimate with --hardware")
    return Asked(tree, _tree(model) if model else None, tuple(notes))


# --- the model ---------------------------------------------------------------------------------------------


def _model(
    launch: Launch, name: str, target: str | None, file: str, notes: list[str]
) -> tuple[str, Model | None]:
    """What to estimate, and its file where it is no shipped model as it stands."""
    chosen, made = (target, None) if target else _described(launch, name, file, notes)
    idle = _idle_layers(launch, notes)
    if not idle:
        return chosen, made
    model = made or load_model(chosen)
    notes.append(f"{len(idle)} no-op layers stand in the model: they cost nothing and fill pipeline stages")
    return file, replace(model, name=_stem(file), layers=_with_idle(model, idle))


def _described(launch: Launch, name: str, file: str, notes: list[str]) -> tuple[str, Model | None]:
    """The shipped model that has these sizes; else one of these sizes."""
    missing = list(_missing(launch))
    alike = [shipped for shipped in model_names() if _agrees(launch, load_model(shipped))]
    if missing:
        if len(alike) == 1 and launch.sizes:
            notes.append(
                f"target: {alike[0]} is the one model of these sizes; {', '.join(missing)} not given"
            )
            return alike[0], None
        fits = f" (these sizes fit {', '.join(alike)})" if 1 < len(alike) < 8 else ""
        raise InputError(
            [f"{name}: model: {', '.join(missing)} not given; add them, or name it with --target{fits}"]
        )
    made = model_from_config(_config(launch), _stem(file), name)
    same = next((shipped for shipped in alike if _equal(made, load_model(shipped))), None)
    if same is None and "swiglu" not in launch.other:
        notes.append("no --swiglu: feed-forward parts of two matrices")
    return (same, None) if same else (file, made)


def _idle_layers(launch: Launch, notes: list[str]) -> frozenset[int]:
    """Numbers of the layers that compute nothing."""
    text = launch.other.get("noop-layers", "")
    if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", text):
        return frozenset()
    idle = frozenset(map(int, text.split(",")))
    if "num_layers" in launch.sizes and max(idle) < launch.sizes["num_layers"] + len(idle):
        return idle
    notes.append(f"--noop-layers {text} are not among the layers; left out")
    return frozenset()


def _with_idle(model: Model, idle: frozenset[int]) -> tuple[LayerGroup, ...]:
    """The layers of a model with idle ones between them."""
    working = iter([(group.mixer, group.ffn) for group in model.layers for _ in range(group.count)])
    count = model.num_layers + len(idle)
    layers = [(None, None) if i in idle else next(working, (None, None)) for i in range(count)]
    return tuple(
        LayerGroup(count=len(list(run)), mixer=mixer, ffn=ffn) for (mixer, ffn), run in groupby(layers)
    )


def _config(launch: Launch) -> dict[str, Any]:
    """The sizes as a ``config.json`` would say them."""
    sizes = dict(launch.sizes)
    if "group-query-attention" not in launch.other:
        sizes.pop("kv_heads", None)
    if not _latent(launch):  # plain attention has none of these, whatever a script leaves standing
        for key in ("nope_head_dim", "rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank"):
            sizes.pop(key, None)
    config: dict[str, Any] = {CONFIG[key][0]: int(value) for key, value in sizes.items()}
    config["hidden_act"] = "silu" if "swiglu" in launch.other else "relu"
    config["tie_word_embeddings"] = "untie-embeddings-and-output-weights" not in launch.other
    if "experts" in sizes:
        config |= _moe_layers(launch)
    return config


def _latent(launch: Launch) -> bool:
    return "kv_lora_rank" in launch.sizes


def _moe_layers(launch: Launch) -> dict[str, Any]:
    """Which layers have experts: the first few have none, or every so many have, or a list says it."""
    found: dict[str, Any] = {}
    first, often = launch.other.get("first-k-dense-replace"), launch.other.get("moe-layer-freq")
    if first is not None:
        found["first_k_dense_replace"] = max(int(first), 0) if re.fullmatch(r"-?\d{1,5}", first) else first
    if often is not None:
        listed = listed_layers(often)
        found["moe_layer_freq"] = listed or (int(often) if often.isdecimal() else often)
        if first == "-1" and found["moe_layer_freq"] == -1:
            found.pop("moe_layer_freq")
    return found


def listed_layers(text: str) -> list[int]:
    """A list of layers as Megatron spells it.

    Examples
    --------
    >>> listed_layers("([0]*1+[1]*3)"), listed_layers("[1,0]*2"), listed_layers("1")
    ([0, 1, 1, 1], [1, 0, 1, 0], [])
    """
    parts = re.sub(r"\s|^\(|\)$", "", text.strip()).split("+")
    found = [_REPEATED.fullmatch(part) for part in parts]
    return [int(one) for part in found if part for one in part[1].split(",") * int(part[2] or 1)] * all(found)


def _missing(launch: Launch) -> Iterator[str]:
    """Arguments without which no model can be made."""
    needed = ["num_layers", "hidden_size", "heads", "vocab_size"]
    needed += ["nope_head_dim", "rope_head_dim", "v_head_dim"] if _latent(launch) else []
    needed += ["top_k"] if "experts" in launch.sizes else []
    yield from (CONFIG[key][1] for key in needed if key not in launch.sizes)
    if not {"dense_width", "expert_width"} & launch.sizes.keys():
        yield CONFIG["dense_width"][1]


def _agrees(launch: Launch, model: Model) -> bool:
    """Whether nothing that the script says of a model is otherwise in this one."""
    e = model.experts
    has: Mapping[str, float | None] = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "experts": e.count if e else 0,
        "top_k": e.top_k if e else None,
        "expert_width": e.width if e else None,
        "shared_width": e.shared_width if e else None,
        "dense_width": model.dense_width or (e.width if e else None),
        "heads": max(mixer.heads for mixer in model.mixers.values()),
    }
    said = {"experts": 0.0, **launch.sizes}
    if "expert_width" not in said and e and "dense_width" in said:
        said["expert_width"] = said["dense_width"]
    return all(said[key] == has[key] for key in said.keys() & has.keys())


def _equal(made: Model, shipped: Model) -> bool:
    """Whether two models differ in nothing but their names and the padding of the vocabulary."""
    if not shipped.vocab_size <= made.vocab_size <= PADDED * shipped.vocab_size:
        return False
    return made == replace(shipped, name=made.name, source=made.source, vocab_size=made.vocab_size)


def _stem(file: str) -> str:
    return re.sub(r"(\.model)?\.ya?ml$", "", file.replace("\\", "/").rpartition("/")[2])


def _tree(model: Model) -> dict[str, object]:
    """A model as its own YAML file would say it."""
    tree = {key: value for key, value in asdict(model).items() if value is not None}
    return {"model_version": VERSION, **tree, "layers": [dict(group) for group in tree["layers"]]}


# --- the inputs --------------------------------------------------------------------------------------------


def _inputs(launch: Launch, notes: list[str]) -> Iterator[tuple[str, object]]:
    """Inputs of an estimate; a switch that is not there is off, as the framework takes it."""
    known = {spec.name for spec, _ in inputs()}
    said = dict(launch.inputs)
    left = [key for key in said if key not in known and said[key] != 1.0]
    if left:
        notes.append(f"no input of an estimate, left out: {', '.join(left)}")
    yield from ((key, value) for key, value in said.items() if key in known and key not in _OWN)
    if "dtype" not in said:
        notes.append("dtype is not given; estimated as bf16")
    yield from (_serving if _serves(launch) else _training)(launch, notes)


_OWN = ("recompute", "micro_batch_size")


def _serves(launch: Launch) -> bool:
    words = {"max-num-seqs", "max-num-batched-tokens", "enable-expert-parallel", "additional-config"}
    return bool(words & launch.other.keys())


def _serving(launch: Launch, notes: list[str]) -> Iterator[tuple[str, object]]:
    notes.append(SERVING)
    yield "phase", "decode"
    if launch.other.get("max-num-seqs", "").isdecimal():
        yield "batch_size", launch.other["max-num-seqs"]


def _training(launch: Launch, notes: list[str]) -> Iterator[tuple[str, object]]:
    said = launch.inputs
    if "sp" not in said:
        yield "sp", False
    whole_step = "global_batch_size" in said
    if whole_step and "distributed_optimizer" not in said:
        yield "distributed_optimizer", False
    if "micro_batch_size" in said:
        yield "micro_batch_size" if whole_step else "batch_size", said["micro_batch_size"]
    if launch.other.get("moe-token-dispatcher-type") == "mc2" and "schedule" not in said:
        yield "schedule", "mc2"
    if "recompute" in said:
        yield "recompute", _recompute(launch)
    if whole_step:
        yield from _pipeline(launch, notes)
    yield from _software(launch)


PIPELINES = {"dualpipev": "dualpipev"}
"""Value of MindSpeed's ``--schedules-method`` -> pipeline."""

PAIRS = ("moe-fb-overlap", "overlap-moe-expert-parallel-comm")
"""Switches of MindSpeed and of Megatron-LM that run a forward beside a backward of another micro-batch."""


def _pipeline(launch: Launch, notes: list[str]) -> Iterator[tuple[str, object]]:
    """How micro-batches pass the stages, and whether they hide each other's communication."""
    method = launch.other.get("schedules-method", "")
    if method in PIPELINES:
        yield "pipeline", PIPELINES[method]
    pairs = [switch for switch in PAIRS if switch in launch.other]
    if not pairs:
        return
    yield "schedule", "dual_batch"
    other = launch.inputs.get("schedule")
    if other:
        notes.append(f"--{pairs[0]} beside {other}: estimated as dual_batch, of the two schedules the wider")


SWITCHES = {"fused_cross_entropy": "cross-entropy-loss-fusion"}
"""Input -> the switch of Megatron-LM that turns it on."""

EXPERT_SWITCHES = {"grouped_matmul": "moe-grouped-gemm", "fused_permute": "moe-permute-fusion"}
"""The same of experts."""

DISPATCHERS = {"allgather": "all_gather", "alltoall": "all_to_all", "alltoall_seq": "all_to_all"}
"""Value of ``--moe-token-dispatcher-type`` -> token_dispatcher."""

CONTEXT = {"megatron_cp_algo": "ring", "ulysses_cp_algo": "ulysses", "hybrid_cp_algo": "hybrid"}
"""Value of MindSpeed's ``--context-parallel-algo`` -> cp_kind."""


def _software(launch: Launch) -> Iterator[tuple[str, object]]:
    """How the framework does it: what no switch turns on is off."""
    kind = launch.other.get("moe-token-dispatcher-type", "")
    switches = SWITCHES | (EXPERT_SWITCHES if "experts" in launch.sizes else {})
    if kind == "mc2":  # its operators multiply in groups
        switches.pop("grouped_matmul", None)
    yield from ((name, False) for name, switch in switches.items() if switch not in launch.other)
    if "no-gradient-accumulation-fusion" in launch.other:
        yield "gradient_accumulation_fusion", False
    if "capacity_factor" in launch.inputs and "moe-pad-expert-input-to-capacity" not in launch.other:
        yield "pad_to_capacity", False
    if kind in DISPATCHERS and "capacity_factor" not in launch.inputs:
        yield "token_dispatcher", DISPATCHERS[kind]
    cut = CONTEXT.get(launch.other.get("context-parallel-algo", ""))
    if cut and launch.inputs.get("cp", 1.0) != 1.0:
        yield "cp_kind", cut
        if cut == "hybrid":
            yield "ulysses", launch.other.get("ulysses-degree-in-cp", "1")


def _recompute(launch: Launch) -> object:
    """``full`` by blocks recomputes so many layers of a stage; uniform ones all of them."""
    layers = launch.other.get("recompute-num-layers", "")
    by_block = launch.inputs["recompute"] == "full" and launch.other.get("recompute-method") == "block"
    return f"block:{layers}" if by_block and layers.isdecimal() else launch.inputs["recompute"]
