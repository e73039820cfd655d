"""Hugging Face ``config.json`` to a Model: one reader; what it knows of field names stands in tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mc2perf.model import LARGEST, Attention, Experts, Indexer, LayerGroup, Model
from mc2perf.readers.structure import InputError, Place, did_you_mean

MOST_LAYERS = 10_000

NESTED_MODELS = ("text_config", "llm_config", "language_config")
"""Where the language model of a multimodal config stands; its keys win over those at the top."""
NESTED_PARTS = ("linear_attn_config", "sparse_attention_config")
"""Parts whose keys are read as ``part.key``."""


@dataclass(frozen=True)
class Size:
    """A whole number of a config: its field names, first found wins, and the range it must lie in."""

    names: str
    at_least: int = 1
    at_most: int = LARGEST
    agree: bool = False


SIZES = {
    "hidden_size": Size("hidden_size"),
    "layers": Size("num_hidden_layers", at_most=MOST_LAYERS),
    "vocab_size": Size("vocab_size"),
    "experts": Size("n_routed_experts num_routed_experts num_experts num_local_experts", 0, agree=True),
    "top_k": Size(
        "num_experts_per_tok experts_per_token num_experts_per_token top_k_experts moe_topk", agree=True
    ),
    "expert_width": Size("moe_intermediate_size intermediate_size"),
    "dense_width": Size("dense_intermediate_size intermediate_size_mlp intermediate_size"),
    "shared_width": Size(
        "shared_expert_intermediate_size share_expert_dim moe_shared_expert_intermediate_size"
        " shared_intermediate_size",
        0,
    ),
    "shared_experts": Size("n_shared_experts num_shared_experts", 0, 1000),
    "payload_width": Size("moe_latent_size routed_expert_hidden_size"),
    "groups": Size("n_group num_expert_group"),
    "top_groups": Size("topk_group"),
    "full_heads": Size("num_attention_heads"),
    "full_kv_heads": Size("num_global_key_value_heads num_key_value_heads num_attention_groups"),
    "full_head_dim": Size("global_head_dim head_dim"),
    "full_v_head_dim": Size("v_head_dim"),
    "sliding_heads": Size("swa_num_attention_heads num_attention_heads"),
    "sliding_kv_heads": Size("swa_num_key_value_heads num_key_value_heads num_attention_groups"),
    "sliding_head_dim": Size("swa_head_dim head_dim"),
    "sliding_v_head_dim": Size("swa_v_head_dim v_head_dim"),
    "linear_heads": Size("linear_num_value_heads mamba_num_heads linear_attn_config.num_heads"),
    "linear_kv_heads": Size("linear_num_key_heads n_groups linear_attn_config.num_heads"),
    "linear_head_dim": Size("linear_key_head_dim ssm_state_size linear_attn_config.head_dim"),
    "linear_v_head_dim": Size("linear_value_head_dim mamba_head_dim linear_attn_config.head_dim"),
    "nope_head_dim": Size("qk_nope_head_dim"),
    "rope_head_dim": Size("qk_rope_head_dim", 0),
    "q_lora_rank": Size("q_lora_rank", 0),
    "kv_lora_rank": Size("kv_lora_rank"),
    "o_lora_rank": Size("o_lora_rank", 0),
    "o_groups": Size("o_groups"),
    "sliding_window": Size("sliding_window sliding_window_size"),
    "chunk": Size("attention_chunk_size"),
    "index_top_keys": Size("index_topk"),
    "index_step": Size("index_topk_freq"),
    "index_first": Size("index_skip_topk_offset", 0, MOST_LAYERS),
    "index_heads": Size("index_n_heads"),
    "index_head_dim": Size("index_head_dim"),
    "block_heads": Size("sparse_attention_config.sparse_num_index_heads"),
    "block_head_dim": Size("sparse_attention_config.sparse_index_dim"),
    "top_blocks": Size("sparse_attention_config.sparse_topk_blocks"),
    "block_size": Size("sparse_attention_config.sparse_block_size"),
    "mtp_layers": Size("num_nextn_predict_layers", 0, MOST_LAYERS),
}
"""What is read -> where it may stand."""

IMPLICIT: dict[object, dict[str, Any]] = {
    "llama4": {"num_shared_experts": 1, "no_rope_layer_interval": 4},
    "llama4_text": {"num_shared_experts": 1, "no_rope_layer_interval": 4},
    "qwen3_next": {"attn_output_gate": True},
    "gemma2": {"sliding_window_pattern": 2, "tie_word_embeddings": True},
    "gemma3_text": {"sliding_window_pattern": 6, "tie_word_embeddings": True},
    "gemma4_text": {"tie_word_embeddings": True},
}
"""``model_type`` -> what its code does and its config need not say."""

GATES = ("attn_output_gate", "attention_output_gate", "mla_use_output_gate")
ACTIVATIONS = ("mlp_hidden_act", "hidden_act", "hidden_activation")
PLAIN_ACTIVATIONS = ("relu2", "relu", "relu_squared", "squared_relu")
"""Feed-forward parts of two matrices; all others are gated and have three."""

LETTERS: dict[Any, tuple[str | None, Literal["moe", "dense"] | None]] = {
    "M": ("linear", None),
    "*": ("full", None),
    "E": (None, "moe"),
    "-": (None, "dense"),
}
"""Letters of ``hybrid_override_pattern`` -> mixer and feed-forward part."""

MIXER_LISTS: dict[str, dict[Any, str]] = {
    "indexer_types": {"full": "full", "shared": "shared"},
    "index_topk_pattern": {"F": "full", "S": "shared"},
    "compress_ratios": {0: "sliding", 4: "compressed_4", 128: "compressed_128"},
    "layer_types": {
        "full_attention": "full",
        "sliding_attention": "sliding",
        "chunked_attention": "chunked",
        "linear_attention": "linear",
        "indexed_attention": "full",
        "compressed_sparse_attention": "compressed_4",
        "heavily_compressed_attention": "compressed_128",
    },
    "hybrid_layer_pattern": {0: "full", 1: "sliding"},
    "no_rope_layers": {0: "full", 1: "chunked"},
    "sparse_attention_config.sparse_attention_freq": {0: "full", 1: "sparse"},
}
"""Lists with an entry per layer -> the mixer an entry stands for; first found wins."""

FULL_LAYERS = "linear_attn_config.full_attn_layers"
"""Numbers, from 1, of the layers with full attention; the others are linear (Kimi)."""

INTERVALS = {
    "full_attention_interval": "linear",
    "sliding_window_pattern": "sliding",
    "no_rope_layer_interval": "chunked",
}
"""Every so many layers one is full -> the mixer of the others."""

MOE_LISTS: dict[str, dict[Any, bool]] = {
    "moe_layer_freq": {0: False, 1: True},
    "mlp_layer_types": {"dense": False, "sparse": True},
}
MOE_RULES: dict[str, tuple[int, Callable[[int, int], bool]]] = {
    "first_k_dense_replace": (0, lambda layer, first: layer >= first),
    "moe_layer_freq": (1, lambda layer, step: layer % step == 0),
    "decoder_sparse_step": (1, lambda layer, step: (layer + 1) % step == 0),
    "interleave_moe_layer_step": (1, lambda layer, step: (layer + 1) % step == 0),
}
"""Keys with one number -> its least value, and whether a layer is MoE; every rule must hold."""


@dataclass(frozen=True)
class Sight:
    """Whose head sizes a softmax mixer has, its window, how the keys beyond are thinned, and who picks them.

    ``index`` names heads and width of an indexer; one that picks blocks has no weights of its heads.
    """

    scope: str = "full"
    window: str = ""
    compression: int = 1
    top_keys: tuple[str, ...] = ()
    index: tuple[str, ...] = ()


LIGHTNING = ("index_heads", "index_head_dim")

SOFTMAX_MIXERS = {
    "full": Sight(top_keys=("index_top_keys",), index=LIGHTNING),
    "shared": Sight(top_keys=("index_top_keys",)),
    "sliding": Sight("sliding", "sliding_window"),
    "chunked": Sight(window="chunk"),
    "sparse": Sight(top_keys=("top_blocks", "block_size"), index=("block_heads", "block_head_dim")),
    "compressed_4": Sight(
        window="sliding_window", compression=4, top_keys=("index_top_keys",), index=LIGHTNING
    ),
    "compressed_128": Sight(window="sliding_window", compression=128),
}


@dataclass(frozen=True)
class Config:
    """The keys of a config in one flat mapping, where each stands, and where problems are noted."""

    values: dict[str, Any]
    paths: dict[str, str]
    place: Place

    def wrong(self, key: str, message: str, entry: str = "") -> None:
        """Note a problem of a key, or of one entry of its list."""
        self.place.at(self.paths.get(key, key) + entry).wrong(message)

    def number(self, key: str, at_least: int = 1, at_most: int = LARGEST) -> int:
        """The whole number at a key; after a problem, a small one stands in for it."""
        value = self.values[key]
        if type(value) is int and at_least <= value <= at_most:
            return value
        self.wrong(key, f"{_shown(value)}; write a whole number from {at_least} to {at_most}")
        return max(at_least, 1)

    def given(self, name: str) -> list[str]:
        """The keys that give a size."""
        return [key for key in SIZES[name].names.split() if key in self.values]

    def size(self, name: str, default: int | None = None) -> int:
        """The size of this name in :data:`SIZES`; required where there is no default."""
        size, found = SIZES[name], self.given(name)
        if not found:
            if default is None:
                names = size.names.split()
                self.wrong(names[0], f"is missing; write a whole number as {' or '.join(names)}")
            return 1 if default is None else default
        value = self.number(found[0], size.at_least, size.at_most)
        for other in found[1:] if size.agree else ():
            if self.number(other, size.at_least, size.at_most) != value:
                self.wrong(other, f"differs from {found[0]} ({value}); keep one of them")
        return value

    def flag(self, *keys: str) -> bool:
        """Whether any of the keys is true."""
        for key in keys:
            if not isinstance(self.values.get(key, False), bool):
                self.wrong(key, f"{_shown(self.values[key])}; write true or false")
        return any(self.values.get(key) is True for key in keys)

    def entries(self, key: str, table: Mapping[Any, Any], layers: int) -> list[Any]:
        """A list with an entry per layer, looked up in a table; MTP layers may stand behind."""
        value = self.values[key]
        if not isinstance(value, list | str):
            self.wrong(key, f"{_shown(value)}; write a list with one entry per layer")
        elif not layers <= len(value) <= layers + self.size("mtp_layers", 0):
            self.wrong(key, f"has {len(value)} entries; write one for each of the {layers} layers")
        else:
            odd = (
                i for i, entry in enumerate(value) if not isinstance(entry, str | int) or entry not in table
            )
            first = next(odd, None)
            if first is None:
                return [table[entry] for entry in value[:layers]]
            self.wrong(key, _unknown(value[first], map(str, table)), f".{first}")
        return []

    def indices(self, key: str) -> frozenset[int]:
        """A list of layer numbers."""
        value = self.values.get(key, [])
        if isinstance(value, list) and all(type(entry) is int for entry in value):
            return frozenset(value)
        self.wrong(key, "is not a list of layer numbers; write one such as [1, 2]")
        return frozenset()


def _shown(value: object) -> str:
    """What is wrong with a value, briefly: it may be a nested bomb or a number of a thousand digits."""
    if isinstance(value, str):
        return f"{value[:40]!r} is text"
    if isinstance(value, dict | list):
        return f"is {'a list' if isinstance(value, list) else 'an object'}"
    if type(value) is int:
        return f"{value} is out of range" if abs(value) < 10**20 else "is out of range"
    return f"{str(value).lower()} is not a whole number"


def _unknown(entry: object, known: Iterable[str]) -> str:
    if isinstance(entry, str):
        return f"{entry[:40]!r} is not known{did_you_mean(entry[:40], known)}"
    return f"{_shown(entry)}; write one of {', '.join(known)}"


def _flat(tree: Mapping[str, Any], place: Place) -> Config:
    """Keys of the nested language model over those at the top over what the model type implies; no nulls."""
    config = Config({}, {}, place)
    nested = next((key for key in NESTED_MODELS if isinstance(tree.get(key), dict)), None)
    layers = [("", tree)] + ([(f"{nested}.", tree[nested])] if nested else [])
    for prefix, part in layers:
        for name in NESTED_PARTS:
            inner = part.get(name)
            if isinstance(inner, dict):
                layers.append((prefix, {f"{name}.{key}": value for key, value in inner.items()}))
        config.values.update({key: value for key, value in part.items() if value not in (None, [])})
        config.paths.update({key: prefix + key for key in part})
    kind = config.values.get("model_type")
    implied = IMPLICIT.get(kind, {}) if isinstance(kind, str) else {}
    config.values.update({key: value for key, value in implied.items() if key not in config.values})
    return config


def model_from_config(tree: object, name: str, source: str) -> Model:
    """Build a Model from the tree of a Hugging Face ``config.json``.

    Parameters
    ----------
    tree : object
        What the JSON reader returned.
    name : str
        Name of the model.
    source : str
        Where the config comes from; every problem begins with it.

    Returns
    -------
    Model
        The language model, without multi-token-prediction layers.

    Raises
    ------
    InputError
        Every problem, each ``source: key: what is wrong; what to write``.

    Examples
    --------
    >>> sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
    >>> model_from_config(sizes | {"intermediate_size": 128}, "tiny", "config.json").mixers["full"].head_dim
    16
    """
    if not isinstance(tree, dict):
        raise InputError([f"{source}: expected the object of a config.json; the file {_shown(tree)}"])
    config = _flat(tree, Place(source, []))
    model = _model(config, name, source)
    if not config.place.problems:
        _note_contradictions(config, model)
    if config.place.problems:
        raise InputError(config.place.problems)
    return model


def _model(config: Config, name: str, source: str) -> Model:
    hidden = config.size("hidden_size")
    kinds = Counter(_layer_kinds(config))
    mixers = dict.fromkeys(mixer for mixer, _ in kinds if mixer)
    feed_forward = {ffn for _, ffn in kinds}
    return Model(
        name=name,
        source=source,
        hidden_size=hidden,
        vocab_size=config.size("vocab_size"),
        matrices=2 if any(config.values.get(key) in PLAIN_ACTIVATIONS for key in ACTIVATIONS) else 3,
        dense_width=config.size("dense_width") if "dense" in feed_forward else 0,
        layers=tuple(LayerGroup(count=n, mixer=mixer, ffn=ffn) for (mixer, ffn), n in kinds.items()),
        mixers={mixer: _mixer(config, mixer, hidden) for mixer in mixers},
        experts=_experts(config, hidden) if "moe" in feed_forward else None,
        tied_embeddings=config.flag("tie_word_embeddings"),
    )


def _layer_kinds(config: Config) -> list[tuple[str | None, Literal["moe", "dense"] | None]]:
    """Mixer and feed-forward part of every layer."""
    lists = [key for key in ("hybrid_override_pattern", *MIXER_LISTS) if key in config.values]
    listed = config.values[lists[0]] if lists else None
    known = min(len(listed), MOST_LAYERS) if isinstance(listed, list | str) else None
    layers = config.size("layers", known)
    if "hybrid_override_pattern" in config.values:
        return config.entries("hybrid_override_pattern", LETTERS, layers)
    moe = _moe_layers(config, layers)
    return [(mixer, "moe" if moe[i] else "dense") for i, mixer in enumerate(_mixer_names(config, layers))]


def _mixer_names(config: Config, layers: int) -> list[str]:
    for key, table in MIXER_LISTS.items():
        if key in config.values:
            return config.entries(key, table, layers) or ["full"] * layers
    if FULL_LAYERS in config.values:
        full = config.indices(FULL_LAYERS)
        return ["full" if layer + 1 in full else "linear" for layer in range(layers)]
    for key, other in INTERVALS.items():
        if key in config.values:
            step = config.number(key)
            return ["full" if (layer + 1) % step == 0 else other for layer in range(layers)]
    if config.given("index_step"):
        step, first = config.size("index_step"), config.size("index_first", 2)
        return ["shared" if max(layer - first + 1, 0) % step else "full" for layer in range(layers)]
    if not config.given("sliding_window") or config.values.get("use_sliding_window") is False:
        return ["full"] * layers
    partly = config.flag("use_sliding_window") and "max_window_layers" in config.values
    first = config.number("max_window_layers", 0) if partly else 0
    return ["sliding" if layer >= first else "full" for layer in range(layers)]


def _moe_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has routed experts: every rule must agree."""
    moe = [config.size("experts", 0) > 0] * layers
    if not all(moe):
        return moe
    listed = [key for key in MOE_LISTS if isinstance(config.values.get(key), list)]
    for key in listed:
        entries = config.entries(key, MOE_LISTS[key], layers) or moe
        moe = [old and new for old, new in zip(moe, entries, strict=True)]
    for key, (least, rule) in MOE_RULES.items():
        if key in config.values and key not in listed:
            number = config.number(key, least)
            moe = [old and rule(layer, number) for layer, old in enumerate(moe)]
    dense = config.indices("mlp_only_layers")
    return [old and layer not in dense for layer, old in enumerate(moe)]


def _mixer(config: Config, name: str, hidden: int) -> Attention:
    if name == "linear":
        return Attention(kind="linear", gated=True, indexer=None, **_head_sizes(config, name, hidden))
    sight = SOFTMAX_MIXERS[name]
    latent = bool(config.given("kv_lora_rank"))
    heads = _latent_sizes(config) if latent else _head_sizes(config, sight.scope, hidden)
    optional = {key: config.size(key, 0) for key in ("q_lora_rank", "rope_head_dim", "o_lora_rank")}
    return Attention(
        kind="mla" if latent else "softmax",
        window=config.size(sight.window, 0 if name == "chunked" else None) if sight.window else 0,
        gated=config.flag(*GATES),
        compression=sight.compression,
        top_keys=math.prod(config.size(key, 0) for key in sight.top_keys) if sight.top_keys else 0,
        indexer=_indexer(config, sight),
        o_groups=config.size("o_groups", 1),
        **(optional | heads),
    )


def _indexer(config: Config, sight: Sight) -> Indexer | None:
    """The indexer of a mixer, where the config gives its heads."""
    if not sight.index or not config.given(sight.index[0]):
        return None
    heads, head_dim = (config.size(name) for name in sight.index)
    blocks = "block_size" in sight.top_keys
    return Indexer(
        heads=heads, head_dim=head_dim, weighted=not blocks, block=config.size("block_size") if blocks else 1
    )


def _head_sizes(config: Config, scope: str, hidden: int) -> dict[str, int]:
    heads = config.size(f"{scope}_heads")
    if hidden % heads and hidden > 1 and not config.given(f"{scope}_head_dim"):
        config.wrong("head_dim", f"is missing, and {heads} heads do not divide hidden_size; write it")
    head_dim = config.size(f"{scope}_head_dim", max(hidden // heads, 1))
    return {
        "heads": heads,
        "kv_heads": config.size(f"{scope}_kv_heads", heads),
        "head_dim": head_dim,
        "v_head_dim": config.size(f"{scope}_v_head_dim", head_dim),
    }


def _latent_sizes(config: Config) -> dict[str, int]:
    heads = config.size("full_heads")
    return {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": config.size("nope_head_dim") + config.size("rope_head_dim"),
        "v_head_dim": config.size("full_v_head_dim"),
        "kv_lora_rank": config.size("kv_lora_rank"),
    }


def _experts(config: Config, hidden: int) -> Experts:
    width = config.size("expert_width")
    return Experts(
        count=config.size("experts"),
        top_k=config.size("top_k"),
        width=width,
        shared_width=_shared_width(config, width),
        payload_width=config.size("payload_width", hidden),
        groups=config.size("groups", 1),
        top_groups=config.size("top_groups", 1),
    )


def _shared_width(config: Config, width: int) -> int:
    """A width of its own, else that of the parallel dense MLP (Gemma-4), else a number of experts."""
    if config.given("shared_width"):
        return config.size("shared_width")
    if config.flag("enable_moe_block"):
        return config.size("dense_width")
    return config.size("shared_experts", 0) * width


def _note_contradictions(config: Config, model: Model) -> None:
    """What each key allows but together makes no sense."""
    sizes = model.experts
    if sizes:
        _note_expert_contradictions(config, sizes)
    for name, mixer in model.mixers.items():
        if mixer.heads % mixer.kv_heads:
            message = f"{mixer.kv_heads} do not divide the {mixer.heads} heads of {name} layers"
            config.wrong("num_key_value_heads", f"{message}; write a divisor")
        if mixer.indexer and not mixer.top_keys:
            config.wrong("index_topk", "is missing, but an indexer picks keys; write how many")


def _note_expert_contradictions(config: Config, sizes: Experts) -> None:
    key = config.given("top_k")[0]
    if sizes.top_k > sizes.count:
        config.wrong(key, f"{sizes.top_k} is more than the {sizes.count} experts; write fewer")
    elif sizes.top_groups > sizes.groups or sizes.count % sizes.groups:
        message = f"{sizes.top_groups} of {sizes.groups} groups of {sizes.count} experts"
        config.wrong("topk_group", f"{message} are not possible; check n_group")
    elif sizes.top_k * sizes.groups > sizes.count * sizes.top_groups:
        message = f"{sizes.top_groups} groups hold fewer than {sizes.top_k} experts"
        config.wrong("topk_group", f"{message}; write more, or check {key}")
