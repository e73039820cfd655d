"""Models of other sizes: a shipped model with what a row states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mc2perf.measurement import Plain
from mc2perf.model import Attention, Experts, LayerGroup, Model
from mc2perf.problems import InputError
from mc2perf.validating.questions import EXPERT_SIZES, MIXER_SIZES, SIZES, number


def sized(model: Model, sizes: Mapping[str, Plain]) -> Model:
    """A shipped model with the sizes that a row states.

    Parameters
    ----------
    model : Model
        The shipped one.
    sizes : mapping
        Such as ``num_layers`` or ``experts``; other names are passed over.

    Returns
    -------
    Model
        Groups of layers are scaled where a model is cut, dense ones to ``dense_layers`` if given. Head
        widths follow hidden size over heads where they do so in the shipped model.

    Raises
    ------
    InputError
        Experts of a dense model, or none of another.

    Examples
    --------
    >>> from mc2perf.readers.models import load_model
    >>> cut = sized(load_model("deepseek-v3"), {"num_layers": 4, "dense_layers": 1})
    >>> [(group.count, group.ffn) for group in cut.layers]
    [(1, 'dense'), (3, 'moe')]
    """
    given = {name: int(number(value)) for name, value in sizes.items() if name in SIZES}
    hidden = given.get("hidden_size", model.hidden_size)
    return replace(
        model,
        hidden_size=hidden,
        vocab_size=given.get("vocab_size", model.vocab_size),
        dense_width=given.get("dense_width", model.dense_width),
        mixers={
            name: _mixer(mixer, given, model.hidden_size, hidden) for name, mixer in model.mixers.items()
        },
        experts=_experts(model, given, hidden),
        layers=_layers(model, given),
    )


def _mixer(mixer: Attention, given: Mapping[str, int], shipped: int, hidden: int) -> Attention:
    if mixer.kind == "linear":
        return mixer
    own = {name: given[name] for name in MIXER_SIZES & given.keys()}
    if not mixer.window:
        own.pop("window", None)
    heads = own.get("heads", mixer.heads)
    if mixer.kv_heads == mixer.heads:
        own.setdefault("kv_heads", heads)
    if mixer.heads * mixer.head_dim == shipped and "head_dim" not in own:
        own |= {"head_dim": hidden // heads, "v_head_dim": hidden // heads}
    kept: dict[str, Any] = own
    return replace(mixer, **kept)


def _experts(model: Model, given: Mapping[str, int], hidden: int) -> Experts | None:
    own = {ours: given[word] for word, ours in EXPERT_SIZES.items() if word in given}
    if model.experts is None:
        if own.get("count"):
            raise InputError([f"experts: {model.name} is dense and the row has {own['count']}"])
        return None
    if own.get("count") == 0:
        raise InputError([f"experts: {model.name} has experts and the row none"])
    if model.experts.payload_width == model.hidden_size:
        own["payload_width"] = hidden
    return replace(model.experts, **own)


def _layers(model: Model, given: Mapping[str, int]) -> tuple[LayerGroup, ...]:
    """Groups of layers, as many as stated; one that drafts is one more, in the place of an idle one."""
    drafting, idle = given.get("mtp_layers", 0), given.get("no_op_layers", 0)
    total = given.get("num_layers", model.num_layers) + drafting
    filling = (LayerGroup(count=idle - drafting, mixer=None, ffn=None),) if idle > drafting else ()
    if "dense_layers" not in given or model.experts is None:
        return (*_scaled(model.layers, total), *filling)
    dense = tuple(group for group in model.layers if group.ffn == "dense")
    other = tuple(group for group in model.layers if group.ffn != "dense")
    first = dense or (LayerGroup(count=1, mixer=other[0].mixer, ffn="dense"),)
    return (*_scaled(first, given["dense_layers"]), *_scaled(other, total - given["dense_layers"]), *filling)


def _scaled(groups: Sequence[LayerGroup], total: int) -> tuple[LayerGroup, ...]:
    """The same groups with ``total`` layers in all, in proportion; ends are rounded, none is made up."""
    whole, end, made = sum(group.count for group in groups), 0, []
    for group in groups:
        begin, end = end, end + group.count
        count = round(end * total / whole) - round(begin * total / whole)
        made.append(replace(group, count=count))
    return tuple(group for group in made if group.count)
