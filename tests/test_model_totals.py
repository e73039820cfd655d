"""Every shipped model against its published totals, and its FLOPs against a count tensor by tensor.

The count reads the YAML file itself and knows nothing of :mod:`mc2perf.model`; the FLOPs it is compared with
are those that the workload hands to the machine, added up by a machine that takes a second per FLOP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import yaml

from mc2perf.costs import Cost, Costs, Ledger
from mc2perf.equations.training import model_flops_per_token
from mc2perf.readers.models import load_model, model_names
from mc2perf.workload.layer import layers_of
from mc2perf.workload.layout import Layout
from mc2perf.workload.mixers import BACKWARD_ATTENTION
from mc2perf.workload.parts import Part, all_segments


class Published(NamedTuple):
    """Printed 1e9 weights in all and per token, and what each of the two counts.

    ``all`` is every matrix with look-up and head, ``head`` leaves the look-up out (tied matrices count once),
    ``body`` both. ``margin`` is wider than 1 % where ``why`` says why.
    """

    total: str
    source: str
    active: str = ""
    counts: str = "all"
    active_counts: str = "all"
    margin: float = 0.01
    why: str = ""


def card(total: str, active: str = "", active_counts: str = "all") -> Published:
    """A figure on the model card, in the text or as its number of weights."""
    return Published(total, "model card on huggingface.co", active, active_counts=active_counts)


CARDS = {
    "baichuan2-13b": "13.9", "chatglm3-6b": "6.24", "codellama-34b": "33.7", "internlm2-20b": "19.86",
    "llama-2-13b": "13.02", "llama-2-70b": "68.98", "llama-2-7b": "6.74", "llama-3.1-405b": "405.85",
    "llama-3.1-70b": "70.55", "llama-3.1-8b": "8.03", "llama-3.2-3b": "3.21", "mistral-7b": "7.25",
    "qwen1.5-110b": "111.2", "qwen1.5-14b": "14.17", "qwen1.5-32b": "32.5", "qwen1.5-72b": "72.3",
    "qwen1.5-7b": "7.72", "qwen2-72b": "72.7", "qwen2-7b": "7.62", "qwen2-moe": "14.3",
    "qwen3-32b": "32.8", "qwen3-8b": "8.2", "yi-34b": "34.4",
}  # fmt: skip
"""Printed totals of model cards that count every matrix and say nothing of active weights."""

PUBLISHED = {
    **{name: card(total) for name, total in CARDS.items()},
    "deepseek-v2": Published("236", "arXiv 2405.04434", "21"),
    "deepseek-v2-60b": Published("60", "Ascend/MindSpeed-LLM, name of the script", counts="body"),
    "deepseek-v2-lite": Published("15.7", "arXiv 2405.04434", "2.4", active_counts="head"),
    "deepseek-v3": Published("671", "arXiv 2412.19437, without MTP", "37"),
    "deepseek-v3.2": Published(
        "671", "as deepseek-v3; the indexer adds 0.85", "37", active_counts="head"
    ),
    "deepseek-v4-flash": card("284", "13"),
    "deepseek-v4-pro": card("1600", "49")._replace(margin=0.02, why="printed as 1.6T, two digits"),
    "gemma-2-27b": Published("26.047", "arXiv 2408.00118, non-embedding", counts="body"),
    "gemma-4-26b-a4b": card("25.2", "3.8"),
    "glm-4.5": Published("355", "arXiv 2508.06471", "32", active_counts="body"),
    "glm-4.5-air": Published("106", "arXiv 2508.06471", "12", active_counts="body"),
    "glm-5": card("744", "40", "head"),
    "glm-5.2": Published("744", "as glm-5, of which 57 indexers are left out", "40", active_counts="head"),
    "gpt-oss-120b": Published("116.83", "arXiv 2508.10925, table 1", "5.13", active_counts="head"),
    "gpt-oss-20b": Published("20.91", "arXiv 2508.10925, table 1", "3.61", active_counts="head"),
    "grok-1": Published("314", "xai-org/grok-1 README.md", counts="body"),
    "kimi-k2": Published(
        "1040", "arXiv 2507.20534", "32.6", margin=0.014, why="its config makes 1026, its card says 1T"
    ),
    "llama-4-maverick": card("400", "17"),
    "llama-4-scout": card("109", "17")._replace(margin=0.012, why="with the vision part, about 0.9"),
    "megascale-352b": Published("352", "MegaScale-MoE; the shared expert is inferred from it"),
    "mimo-v2-flash": card("309", "15"),
    "minicpm-2b": Published("2.442057984", "arXiv 2404.06395, non-embedding", counts="body"),
    "minicpm-8x2b": Published("13.6", "arXiv 2404.06395, non-embedding", "4", "body", "body"),
    "minimax-m2.5": card("229", "10", "head"),
    "mixtral-8x22b": card("141", "39"),
    "mixtral-8x7b": Published("46.7", "arXiv 2401.04088 and model card", "12.9"),
    "nemotron-3-nano-30b": Published("31.6", "technical report", "3.2", active_counts="head"),
    "nemotron-3-super-120b": Published("120.6", "technical report", "12.7"),
    "phi-3.5-moe": card("41.9", "6.6"),
    "qwen2-57b-a14b": card("57.4", "14"),
    "qwen3-235b-a22b": card("235", "22"),
    "qwen3-30b-a3b": card("30.5", "3.3"),
    "qwen3-coder-480b-a35b": card("480", "35"),
    "qwen3-next-80b-a3b": card("80", "3", "body"),
    "qwen3.5-122b-a10b": card("122", "10"),
    "qwen3.5-35b-a3b": card("35", "3"),
    "qwen3.5-397b-a17b": card("397", "17"),
}  # fmt: skip

COUNTED_ONLY = {"grok-1-40b", "kimi-k3", "minimax-m3", "step-3.7-flash"}
"""No total that is certain was published; the 40B of Grok1-40B is where its two matrices come from."""


class Tensor(NamedTuple):
    """Equal matrices: inputs x outputs, how many there are and how many a token is multiplied with."""

    inputs: int
    outputs: int
    held: int = 1
    used: int = 1


def read(name: str) -> dict[str, Any]:
    text = (files("mc2perf") / "data" / "models" / f"{name}.yaml").read_text(encoding="utf-8")
    return cast(dict[str, Any], yaml.safe_load(text))


def mixer_tensors(h: int, m: dict[str, Any]) -> Iterator[Tensor]:
    """Projections of one layer, as the papers of the three kinds draw them."""
    heads, kv_heads, key, value = m["heads"], m["kv_heads"], m["head_dim"], m["v_head_dim"]
    rank, rope = m.get("kv_lora_rank", 0), m.get("rope_head_dim", 0)
    if m["kind"] == "linear":
        yield from (Tensor(h, kv_heads * key), Tensor(h, kv_heads * key), Tensor(h, heads * value))
    elif q_rank := m.get("q_lora_rank", 0):
        yield from (Tensor(h, q_rank), Tensor(q_rank, heads * key))
    else:
        yield Tensor(h, heads * key)
    if m["kind"] == "softmax":
        yield from (Tensor(h, kv_heads * key), Tensor(h, kv_heads * value))
    if m["kind"] == "mla":
        yield from (Tensor(h, rank), Tensor(h, rope))
        yield from (Tensor(rank, key - rope, heads, heads), Tensor(rank, value, heads, heads))
    if m.get("indexer"):
        yield from index_tensors(h, m)
    if m.get("gated", False):
        yield Tensor(h, heads * value)
    if o_rank := m.get("o_lora_rank", 0):
        groups = m["o_groups"]
        yield from (Tensor(heads * value // groups, o_rank, groups, groups), Tensor(groups * o_rank, h))
    else:
        yield Tensor(heads * value, h)


def index_tensors(h: int, m: dict[str, Any]) -> Iterator[Tensor]:
    """Projections of an indexer: transformers 5.24.0, models deepseek_v32, deepseek_v4 and minimax_m3_vl."""
    index = m["indexer"]
    yield Tensor(m.get("q_lora_rank", 0) or h, index["heads"] * index["head_dim"])
    if m.get("compression", 1) == 1:
        yield Tensor(h, index["head_dim"])
    else:
        yield from (Tensor(h, 2 * index["head_dim"]), Tensor(h, 2 * index["head_dim"]))
    if index.get("weighted", True):
        yield Tensor(h, index["heads"])


def expert_tensors(h: int, matrices: int, e: dict[str, Any]) -> Iterator[Tensor]:
    """Router, routed experts between the two projections of a latent width, shared experts."""
    width = e["payload_width"]
    yield Tensor(h, e["count"])
    yield Tensor(width, e["width"], matrices * e["count"], matrices * e["top_k"])
    yield Tensor(h, e["shared_width"], matrices, matrices)
    if width != h:
        yield from (Tensor(h, width), Tensor(width, h))


def body_tensors(tree: dict[str, Any]) -> Iterator[Tensor]:
    h, matrices = tree["hidden_size"], tree["matrices"]
    for group in tree["layers"]:
        layer: list[Tensor] = []
        if group["mixer"]:
            layer += mixer_tensors(h, tree["mixers"][group["mixer"]])
        if group["ffn"] == "moe":
            layer += expert_tensors(h, matrices, tree["experts"])
        if group["ffn"] == "dense":
            layer += [Tensor(h, tree["dense_width"], matrices, matrices)]
        yield from (t._replace(held=t.held * group["count"], used=t.used * group["count"]) for t in layer)


def parameters(tree: dict[str, Any], counts: str, used: bool = False) -> int:
    """Weights that are there, or that a token uses, under one of the three conventions."""
    body = sum(t.inputs * t.outputs * (t.used if used else t.held) for t in body_tensors(tree))
    copies = {"body": 0, "head": 1, "all": 1 if tree.get("tied_embeddings") else 2}[counts]
    return body + copies * int(tree["vocab_size"]) * int(tree["hidden_size"])


def keys_seen(m: dict[str, Any], seq_len: int) -> float:
    """Keys per query on average, counted query by query."""
    before = np.arange(1, seq_len + 1)
    near = np.minimum(before, m.get("window", 0) or seq_len)
    if m.get("compression", 1) == 1 and not m.get("top_keys", 0):
        return float(near.mean())
    far = np.minimum(before // m.get("compression", 1), m.get("top_keys", 0) or seq_len)
    return float(np.minimum(before, far + near if m.get("window", 0) else far).mean())


def core_flops(tree: dict[str, Any], seq_len: int) -> float:
    """Scores and weighted values, or one update and one read of a linear state, per token."""
    total = 0.0
    for group in tree["layers"]:
        if not group["mixer"]:
            continue
        m = tree["mixers"][group["mixer"]]
        key, value = m["head_dim"], m["v_head_dim"]
        if m["kind"] == "linear":
            per_head = 2 * key * value + 2 * key * value
        elif m["kind"] == "mla" and m.get("top_keys", 0):
            rank, rope = m["kv_lora_rank"], m["rope_head_dim"]
            latents = keys_seen(m, seq_len) * (2 * (rank + rope) + 2 * rank)
            per_head = min((seq_len + 1) / 2 * (2 * key + 2 * value), latents)
        else:
            per_head = keys_seen(m, seq_len) * (2 * key + 2 * value)
        total += group["count"] * m["heads"] * per_head
    return total


def index_flops(tree: dict[str, Any], seq_len: int, picked: bool = False) -> float:
    """Scores of every key, or of those that are picked, per token."""
    total, before = 0.0, np.arange(1, seq_len + 1)
    for group in tree["layers"]:
        m = tree["mixers"][group["mixer"]] if group["mixer"] else {}
        if index := m.get("indexer"):
            keys = before // m.get("compression", 1)
            keys = np.minimum(keys, m["top_keys"]) if picked else keys
            total += group["count"] * 2 * index["heads"] * index["head_dim"] * float(keys.mean())
    return total


def index_weights(tree: dict[str, Any]) -> int:
    """Weights of all indexers."""
    mixers = [(g["count"], tree["mixers"][g["mixer"]]) for g in tree["layers"] if g["mixer"]]
    found = [(n, index_tensors(tree["hidden_size"], m)) for n, m in mixers if m.get("indexer")]
    return sum(n * t.inputs * t.outputs for n, tensors in found for t in tensors)


class Tally:
    """A machine that takes one second per FLOP of the cube and no time for anything else."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def matmul(self, label: str, rows: float, n: float, k: float, *_: object, **how: object) -> Cost:
        return Cost(2.0 * rows * n * k, 0.0)

    def attention(self, label: str, flops: float, dtype: str, context: float) -> Cost:
        return Cost(flops, 0.0)

    def vector(self, *_: object) -> Cost:
        return Cost(0.0, 0.0)

    def gather(self, *_: object) -> Cost:
        return Cost(0.0, 0.0)

    def reorder(self, *_: object) -> Cost:
        return Cost(0.0, 0.0)

    def collective(self, *_: object, **how: object) -> Cost:
        return Cost(0.0, 0.0)

    def sorts_tokens(self, ranks: float) -> bool:
        return False


def priced(name: str, seq_len: int, tp: int = 1, ep: int = 1) -> tuple[float, float]:
    """FLOPs per token that the workload prices, forward and backward, for all ranks that share a token."""
    layout = Layout(
        tokens=float(seq_len), seq_len=float(seq_len), logit_rows=None, tp=float(tp), ep=float(ep),
        servers=1.0, dtype="bf16", expert_dtype="bf16", dispatch_dtype="bf16", combine_dtype="bf16",
        attention_dtype="bf16",
        capacity_factor=None, etp=float(tp) if ep == 1 else 1.0,
    )  # fmt: skip
    layers = layers_of(cast(Costs, Tally()), load_model(name), layout)
    forward = sum(layer.count * flops(layer.forward) for layer in layers)
    backward = sum(layer.count * flops(layer.backward) for layer in layers)
    return forward / seq_len, backward / seq_len


def flops(parts: tuple[Part, ...]) -> float:
    return sum(float(segment.cost.work) for part in parts for segment in all_segments(part))


def test_every_shipped_model_is_checked() -> None:
    assert not PUBLISHED.keys() & COUNTED_ONLY
    assert sorted({*PUBLISHED, *COUNTED_ONLY}) == model_names()


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(name: str) -> None:
    published, tree = PUBLISHED[name], read(name)
    embeddings = parameters(tree, "all") - parameters(tree, published.counts)
    total = load_model(name).parameter_count - embeddings
    assert total / 1e9 == pytest.approx(float(published.total), rel=published.margin)
    assert bool(published.why) == (published.margin != 0.01)


@pytest.mark.parametrize("name", [name for name, published in PUBLISHED.items() if published.active])
def test_active_weights_are_the_published_ones(name: str) -> None:
    """Within 1 %, or what the printed digits leave open: some are rounded, some cut."""
    active = PUBLISHED[name].active
    digit = 10.0 ** -len(active.partition(".")[2])
    found = parameters(read(name), PUBLISHED[name].active_counts, used=True) / 1e9
    assert abs(found - float(active)) < max(0.01 * found, digit)


def test_a_cut_model_differs_in_its_layers_only() -> None:
    whole, cut = load_model("deepseek-v2"), load_model("deepseek-v2-60b")
    assert replace(whole, name=cut.name, source=cut.source, layers=cut.layers) == cut


@pytest.mark.parametrize("name", model_names())
def test_parameters_are_those_of_the_tensors(name: str) -> None:
    assert load_model(name).parameter_count == parameters(read(name), "all")


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize(("seq_len", "tp", "ep"), [(1024, 1, 1), (4096, 2, 1), (32768, 1, 2)])
def test_forward_flops_are_those_of_the_tensors(name: str, seq_len: int, tp: int, ep: int) -> None:
    tree = read(name)
    counted = 2 * parameters(tree, "head", used=True) + core_flops(tree, seq_len)
    # every tensor-parallel rank runs the whole indexer
    index = 2 * index_weights(tree) + index_flops(tree, seq_len)
    counted += index_flops(tree, seq_len) + (tp - 1) * index
    assert priced(name, seq_len, tp, ep)[0] == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 1), (1, 2)])
def test_backward_flops_are_twice_the_matmuls_and_more_attention(name: str, tp: int, ep: int) -> None:
    tree = read(name)
    counted = 4 * parameters(tree, "head", used=True) + BACKWARD_ATTENTION * core_flops(tree, 1024)
    # an indexer learns on its own: no gradient flows on to the layer, and scores of unpicked keys have none
    counted += tp * (2 * index_weights(tree) + 2 * index_flops(tree, 1024, picked=True))
    counted -= 4 * index_weights(tree)
    assert priced(name, 1024, tp, ep)[1] == pytest.approx(counted, rel=0.01)


def test_model_flops_charge_three_times_the_forward_pass() -> None:
    for name in model_names():
        tree = read(name)
        if len(tree["mixers"]) > 1 or (mixer := tree["mixers"]["full"]).get("top_keys", 0):
            continue
        forward = 2 * parameters(tree, "head", used=True) + core_flops(tree, 4096)
        charged = model_flops_per_token(
            active_parameters=parameters(tree, "head", used=True),
            layers=sum(group["count"] for group in tree["layers"]),
            context=keys_seen(mixer, 4096), heads=mixer["heads"],
            key_dim=mixer["head_dim"], value_dim=mixer["v_head_dim"],
        )  # fmt: skip
        assert charged == pytest.approx(3 * forward, rel=1e-9)
