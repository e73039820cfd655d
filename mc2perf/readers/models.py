"""Models by name, by YAML file, or by Hugging Face ``config.json``; nothing is ever downloaded."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mc2perf.model import LARGEST, Attention, Experts, Model
from mc2perf.readers.kinds import MODEL, keys_of, refuse_other
from mc2perf.readers.structure import (
    LARGEST_FILE,
    InputError,
    Place,
    decode,
    did_you_mean,
    parse_yaml,
    read_text,
    structure,
)
from mc2perf.scenario import is_operator

VERSION = 1
"""The ``model_version`` of YAML files that this reader knows."""

MAY_BE_ZERO = {
    "dense_width",
    "shared_width",
    "window",
    "top_keys",
    "rope_head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "o_lora_rank",
}
"""Sizes that are 0 where a model has no such part; all others are at least 1."""


def _shipped() -> Path:
    return Path(__file__).parent.parent / "data" / "models"


def model_names() -> list[str]:
    """Every shipped model, sorted; without aliases.

    Examples
    --------
    >>> "mixtral-8x7b" in model_names()
    True
    """
    return sorted(file.stem for file in _shipped().glob("*.yaml"))


@cache
def model_aliases() -> dict[str, str]:
    """Other names of shipped models, such as ``deepseek-r1``, and the model each stands for."""
    trees = {name: parse_yaml(read_text(_shipped() / f"{name}.yaml"), name) for name in model_names()}
    return {alias: name for name, tree in trees.items() for alias in tree.get("aliases", ())}


def load_model(name_or_path: str) -> Model:
    """Load a model.

    Parameters
    ----------
    name_or_path : str
        A shipped name or alias in any case, a YAML model file, a ``config.json`` of Hugging Face or the
        folder that holds one, or ``-`` for a ``config.json`` on standard input. A shipped name wins over
        a file of the same name; write ``./name`` for the file.

    Returns
    -------
    Model
        Its ``name`` is the shipped one, or that of the file or its folder.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> load_model("mixtral-8x7b").experts.top_k
    2
    """
    if name_or_path == "-":
        text = decode(sys.stdin.buffer.read(LARGEST_FILE + 1), "standard input")
        return _from_config(parse_json(text, "standard input"), "standard input", "standard input")
    name = name_or_path.lower()
    if name in model_names():
        return _model_from_yaml(_shipped() / f"{name}.yaml")
    if name in model_aliases():
        return _model_from_yaml(_shipped() / f"{model_aliases()[name]}.yaml")
    return _load_file(_existing_file(name_or_path))


def model_of(target: str) -> Model | None:
    """The model that a target is; none of an operator."""
    return None if is_operator(target) else load_model(target)


def _existing_file(given: str) -> Path:
    """The file a path leads to: itself, or the ``config.json`` in a folder."""
    path, shown = Path(given), given if len(given) <= 200 else f"{given[:200]}..."
    try:
        if path.is_dir():
            path = path / "config.json"
            shown = str(path)
        if path.exists() and not path.is_file():
            raise InputError([f"{shown}: is not a regular file; pipe it in and write -"])
        if path.is_file():
            return path
    except OSError as error:
        raise InputError([f"{shown}: cannot be read ({error.strerror})"]) from None
    if _is_path(given):
        raise InputError([f"{shown}: no such file{_or_shipped(path.name)}"])
    known = did_you_mean(given.lower(), _known(), "mc2perf models list")
    raise InputError([f"model: {shown!r} is unknown{known}"])


def _known() -> list[str]:
    return [*model_names(), *model_aliases()]


def _is_path(given: str) -> bool:
    return "/" in given or "\\" in given or given.endswith((".json", ".yaml", ".yml")) or Path(given).is_dir()


def _or_shipped(name: str) -> str:
    """What to write instead of a hub id such as ``deepseek-ai/DeepSeek-V3``: nothing is downloaded."""
    hint = "; models are not downloaded, give a config.json"
    return f"{hint} or write '{name.lower()}'" if name.lower() in _known() else hint


def _load_file(path: Path) -> Model:
    if path.suffix in (".yaml", ".yml"):
        return _model_from_yaml(path)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    text = read_text(path)
    refuse_other(keys_of(text), str(path), MODEL)
    if path.suffix != ".json" and not text.lstrip().startswith("{"):
        raise InputError([f"{path}: is no model and no scenario; 'mc2perf inspect {path}' says what it is"])
    return _from_config(parse_json(text, str(path)), name, str(path))


def _from_config(tree: Any, name: str, source: str) -> Model:
    """Build a model from a ``config.json``; its reader is imported when there is one to read."""
    from mc2perf.readers.hf_config import model_from_config

    return model_from_config(tree, name, source)


def parse_json(text: str, name: str) -> Any:
    """JSON text to a tree; syntax errors and keys that stand twice are one line each.

    ``NaN`` and ``Infinity`` are read, for real configs have them where nobody looks; no size may be one.

    Parameters
    ----------
    text, name : str
        The text, and the name of its file for messages.

    Returns
    -------
    object
        Objects as dicts, arrays as lists.

    Raises
    ------
    InputError
        The place of the first syntax error, or every key that stands twice.

    Examples
    --------
    >>> parse_json('{"hidden_size": 64}', "config.json")
    {'hidden_size': 64}
    """
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        tree = dict(pairs)
        if len(tree) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice.extend(
                f"{name}: key {key[:40]!r} stands twice; keep one" for key in tree if counts[key] > 1
            )
        return tree

    try:
        tree = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        end = "the text ends too early" if cut else error.msg
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError([f"{name}: {where}: is not JSON ({end}); fetch the file again"]) from None
    except RecursionError:
        raise InputError([f"{name}: is nested too deeply; not a config.json"]) from None
    except ValueError:
        raise InputError([f"{name}: holds a number of thousands of digits; not a config.json"]) from None
    if twice:
        raise InputError(twice)
    return tree


def _model_from_yaml(path: Path) -> Model:
    """Build a model from our own YAML; all problems at once, those of meaning after those of form."""
    tree, problems = parse_yaml(read_text(path), str(path)), list[str]()
    refuse_other(tree, str(path), MODEL)
    place = Place(str(path), problems)
    version = tree.pop("model_version", None)
    if version != VERSION or isinstance(version, bool):
        place.at("model_version").wrong(f"'{version}' is not known; write {VERSION}")
    structure(tuple[str, ...], tree.pop("aliases", []), place.at("aliases"))
    model = structure(Model, tree, place)
    if not problems:
        _note_bad_sizes(model, place)
    if not problems:
        _note_contradictions(model, place)
    if problems:
        raise InputError(problems)
    assert isinstance(model, Model)
    return model


def _note_bad_sizes(node: Any, place: Place) -> None:
    """Note every whole number that is too small or too large, in the model and all its parts."""
    for key, value in _parts(node).items():
        least = 0 if key in MAY_BE_ZERO else 1
        if type(value) is int and not least <= value <= LARGEST:
            place.at(key).wrong(f"{value} is out of range; write a whole number from {least} to {LARGEST}")
        elif isinstance(value, dict | tuple) or is_dataclass(value):
            _note_bad_sizes(value, place.at(key))


def _parts(node: Any) -> Mapping[Any, Any]:
    """What a mapping, a sequence or a dataclass consists of, by key, position or field."""
    if is_dataclass(node):
        return vars(node)
    return node if isinstance(node, dict) else dict(enumerate(node))


def _note_contradictions(model: Model, place: Place) -> None:
    """What each field allows but together makes no sense."""
    if not model.layers:
        place.at("layers").wrong("is empty; write at least one group of layers")
    for index, group in enumerate(model.layers):
        at = place.at(f"layers.{index}")
        if group.mixer is not None and group.mixer not in model.mixers:
            at.at("mixer").wrong(f"'{group.mixer}' is not known{did_you_mean(group.mixer, model.mixers)}")
        if group.ffn == "moe" and not model.experts:
            at.at("ffn").wrong("is moe, but the model has no experts; write them or 'dense'")
        if group.ffn == "dense" and not model.dense_width:
            at.at("ffn").wrong("is dense, but dense_width is 0; write the width")
    for name, mixer in model.mixers.items():
        _note_mixer_contradictions(mixer, place.at(f"mixers.{name}"))
    if model.experts:
        _note_expert_contradictions(model.experts, place.at("experts"))


def _note_mixer_contradictions(mixer: Attention, place: Place) -> None:
    if mixer.heads % mixer.kv_heads:
        place.at("kv_heads").wrong(f"does not divide {mixer.heads} heads; write a divisor")
    if mixer.kind == "mla" and not (mixer.kv_lora_rank and mixer.head_dim > mixer.rope_head_dim):
        place.wrong("mla needs kv_lora_rank, and a head_dim that includes rope_head_dim; write both")
    if mixer.indexer and mixer.kind == "linear":
        place.at("indexer").wrong("picks keys, which linear mixers have none of; leave it out")
    elif mixer.indexer and not mixer.top_keys:
        place.at("top_keys").wrong("is 0, but an indexer picks keys; write how many")


def _note_expert_contradictions(experts: Experts, place: Place) -> None:
    if experts.top_k > experts.count:
        place.at("top_k").wrong(f"{experts.top_k} is more than the {experts.count} experts; write fewer")
    elif experts.top_groups > experts.groups or experts.count % experts.groups:
        place.at("groups").wrong("must divide count and be at least top_groups; write both")
    elif experts.top_k * experts.groups > experts.count * experts.top_groups:
        place.at("top_groups").wrong(f"hold fewer than top_k = {experts.top_k} experts; write more groups")
