"""Hugging Face ``config.json`` to a Model: one reader for the field names of every family."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Literal

from mc2perf.model import Attention, Experts, Indexer, LayerGroup, Model
from mc2perf.readers.hf_config.config import Config, flat, shown
from mc2perf.readers.hf_config.names import (
    ACTIVATIONS,
    FULL_LAYERS,
    GATES,
    INTERVALS,
    LETTERS,
    MIXER_LISTS,
    MOE_LISTS,
    MOE_RULES,
    MOST_LAYERS,
    PLAIN_ACTIVATIONS,
    SOFTMAX_MIXERS,
    Sight,
)
from mc2perf.readers.hf_config.notes import notes_on, stored_as
from mc2perf.readers.structure import InputError, Place

__all__ = ["model_from_config"]


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
        raise InputError([f"{source}: expected the object of a config.json; the file {shown(tree)}"])
    config = flat(tree, Place(source, []))
    model = _model(config, name, source)
    if not config.place.problems:
        _note_contradictions(config, model)
    if config.place.problems:
        raise InputError(config.place.problems)
    stored, dtype = stored_as(config)
    return replace(model, notes=notes_on(config, model), stored_as=stored, stored_dtype=dtype)


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
    dense = config.indices("mlp_only_layers", layers + config.size("mtp_layers", 0))
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
