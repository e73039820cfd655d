"""Text trees to frozen dataclasses, strictly, with every problem at once.

The type hints of the dataclass are the schema: there is no second description to keep in step. A field
annotated with a :class:`~mc2perf.units.Dim` is a quantity; below a mapping that states ``kind`` and
``ref``, plain values inherit them.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from mc2perf import reading
from mc2perf.problems import InputError, did_you_mean
from mc2perf.quantity import KINDS, Quantity
from mc2perf.units import Dim, parse

__all__ = [
    "InputError",
    "Place",
    "decode",
    "did_you_mean",
    "parse_yaml",
    "read_text",
    "read_yaml",
    "structure",
]

LARGEST_FILE = 4 * 1024**2
"""Largest text file read as YAML or JSON [B]; a model or profile has a few thousand bytes."""


@dataclass(frozen=True)
class Place:
    """Where in which file we are, what source numbers inherit here, and where problems are collected."""

    file: str
    problems: list[str]
    path: str = ""
    source: tuple[str, str] | None = None
    needs_source: bool = field(default=False)

    def at(self, key: object) -> Place:
        """The same place one level down."""
        return Place(
            self.file, self.problems, f"{self.path}.{key}".lstrip("."), self.source, self.needs_source
        )

    def inherit(self, tree: Mapping[Any, Any]) -> Place:
        """The same place with the source that this mapping states for the numbers below it."""
        if "kind" not in tree or "ref" not in tree or tree["kind"] not in KINDS:
            return self
        source = (str(tree["kind"]), str(tree["ref"]))
        return Place(self.file, self.problems, self.path, source, self.needs_source)

    def wrong(self, message: str) -> Any:
        """Note one problem; the answer ``None`` stands for the value that could not be built."""
        self.problems.append(": ".join(part for part in (self.file, self.path, message) if part))


def structure(cls: Any, tree: object, place: Place) -> Any:
    """Build a value of type ``cls`` from a tree of mappings, lists and scalars; note every problem.

    Parameters
    ----------
    cls : type
        A dataclass, ``dict[str, X]``, ``tuple[X, ...]``, a quantity, ``Literal``, ``str``, ``int``, ``bool``,
        or a union of dataclasses told apart by their ``form``.
    tree : object
        What the YAML or JSON reader returned.
    place : Place
        Where we are; problems are appended to ``place.problems``.

    Returns
    -------
    object
        The value, or ``None`` where a problem was noted.
    """
    origin, args = get_origin(cls), get_args(cls)
    if origin is Annotated:
        return _quantity(args[1], tree, place)
    if is_dataclass(cls):
        return _dataclass(cls, tree, place)
    if origin is dict:
        return _mapping(args, tree, place)
    if origin is tuple:
        return _sequence(args[0], tree, place)
    if origin is Literal:
        return _literal(args, tree, place)
    if origin in (Union, types.UnionType):
        return _union(args, tree, place)
    return _scalar(cls, tree, place)


def _quantity(dim: Dim, tree: object, place: Place) -> Any:
    """Read ``{value, kind, ref}``, or a plain value where the source is inherited or not needed."""
    source, value = place.source, tree
    if isinstance(tree, Mapping):
        for key in tree.keys() - {"value", "kind", "ref"}:
            place.at(key).wrong("unknown key; a number is {value, kind, ref}")
        if "value" not in tree:
            return place.wrong("has no 'value'; a number is {value, kind, ref}")
        value = tree["value"]
        source = (
            (str(tree.get("kind", "")), str(tree.get("ref", ""))) if {"kind", "ref"} & tree.keys() else source
        )
    try:
        number = parse(value, dim)
        if source:
            return Quantity(number, dim.symbol, *source)
        if not place.needs_source:
            return number
        place.wrong("number without a source; write {value, kind, ref}")
    except ValueError as error:
        place.wrong(str(error))
    return None


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Type hints with their annotations, once per class."""
    return get_type_hints(cls, include_extras=True)


def _dataclass(cls: Any, tree: object, place: Place) -> Any:
    """Fill every field; refuse unknown and missing keys."""
    if not isinstance(tree, Mapping):
        return place.wrong(f"expected a mapping with {', '.join(f.name for f in fields(cls))}")
    place = place.inherit(tree)
    known = {f.name: f for f in fields(cls)}
    extra = {"kind", "ref"} if place.needs_source and "kind" not in known else set()
    for key in tree.keys() - known.keys() - extra:
        place.at(key).wrong(f"unknown key{did_you_mean(key, known)}")
    for name, spec in known.items():
        if name not in tree and _required(spec):
            place.at(name).wrong("is missing")
    values = {n: structure(_hints(cls)[n], tree[n], place.at(n)) for n in known if n in tree}
    try:
        return cls(**values) if not any(_required(f) and f.name not in tree for f in fields(cls)) else None
    except ValueError as error:
        return place.wrong(str(error))


def _required(spec: Field[Any]) -> bool:
    return spec.default is MISSING and spec.default_factory is MISSING


def _mapping(args: tuple[Any, ...], tree: object, place: Place) -> Any:
    """``dict[str, X]`` or ``dict[int, X]``."""
    if not isinstance(tree, Mapping):
        return place.wrong("expected a mapping")
    place = place.inherit(tree)
    extra = {"kind", "ref"} if place.needs_source else set()
    items = {key: value for key, value in tree.items() if key not in extra}
    for key in items:
        if not isinstance(key, args[0]) or isinstance(key, bool):
            place.at(key).wrong(f"key is not {'a whole number' if args[0] is int else 'text'}")
    return {key: structure(args[1], value, place.at(key)) for key, value in items.items()}


def _sequence(item: Any, tree: object, place: Place) -> Any:
    if not isinstance(tree, list):
        return place.wrong("expected a list")
    return tuple(structure(item, value, place.at(index)) for index, value in enumerate(tree))


def _literal(choices: tuple[Any, ...], tree: object, place: Place) -> Any:
    if isinstance(tree, bool) or tree not in choices:
        return place.wrong(f"'{tree}' is not known{did_you_mean(tree, map(str, choices))}")
    return tree


def _union(options: tuple[Any, ...], tree: object, place: Place) -> Any:
    """``X | None``, or dataclasses told apart by the literal in their ``form`` field."""
    if type(None) in options:
        rest = next(option for option in options if option is not type(None))
        return None if tree is None else structure(rest, tree, place)
    forms = {get_args(_hints(option)["form"])[0]: option for option in options}
    form = tree.get("form") if isinstance(tree, Mapping) else None
    if not isinstance(form, str) or form not in forms:
        return place.at("form").wrong(f"'{form}' is not known{did_you_mean(form, forms)}")
    return structure(forms[form], tree, place)


def _scalar(cls: Any, tree: object, place: Place) -> Any:
    wanted = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}[cls]
    fits = isinstance(tree, cls) and (cls is bool or not isinstance(tree, bool))
    return tree if fits else place.wrong(f"'{tree}' is not {wanted}")


def _refuse_traps(node: yaml.Node, seen: set[int]) -> None:
    """Refuse aliases (the stuff of YAML bombs) and keys that stand twice (PyYAML keeps the last silently)."""
    if id(node) in seen:
        raise yaml.MarkedYAMLError(
            None, None, "aliases (*name) are not accepted; write it out", node.start_mark
        )
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in keys:
                raise yaml.MarkedYAMLError(None, None, f"{_key_problem(key)}", key.start_mark)
            keys.add(key.value)
            _refuse_traps(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_traps(item, seen)


def _key_problem(key: yaml.Node) -> str:
    return (
        f"key '{key.value}' stands twice; keep one" if isinstance(key, yaml.ScalarNode) else "key is not text"
    )


def read_text(path: Path, name: str | None = None) -> str:
    """Read a small UTF-8 text file, or say in one line why not."""
    name = name or str(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError([f"{name}: larger than {LARGEST_FILE >> 20} MiB; not a file of this kind"])
        reading.note(path)
        return decode(path.read_bytes(), name)
    except OSError as error:
        raise InputError([f"{name}: cannot be read ({error.strerror or error})"]) from None


def decode(raw: bytes, name: str) -> str:
    """Bytes to text: UTF-8 with or without a byte-order mark; anything else is one clear line."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError([f"{name}: is UTF-16; save it as UTF-8"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError([f"{name}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from None
    if text.startswith("version https://git-lfs"):
        raise InputError([f"{name}: is a Git LFS pointer, not the file; run 'git lfs pull'"])
    if not text.strip():
        raise InputError([f"{name}: is empty"])
    return text


_UNREADABLE = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What PyYAML raises for text it cannot read, and for a tag that does not fit its value (``!!int x``)."""


def parse_yaml(text: str, name: str) -> dict[Any, Any]:
    """YAML text to a mapping; syntax errors, duplicate keys and aliases are one line with the place."""
    try:
        loader = yaml.CSafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _refuse_traps(node, set())
        tree = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InputError([f"{name}: {where}{error.problem}"]) from None
    except _UNREADABLE as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError([f"{name}: is not YAML ({said})"]) from None
    if not isinstance(tree, dict):
        raise InputError([f"{name}: expected 'key: value' lines, found {type(tree).__name__}"])
    return tree


def read_yaml(path: Path, name: str | None = None) -> dict[Any, Any]:
    """Read a YAML file strictly."""
    return parse_yaml(read_text(path, name), name or str(path))
