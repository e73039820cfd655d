"""The keys of a config read one by one: numbers in their range, flags, lists; every problem noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mc2perf.model import LARGEST
from mc2perf.readers.hf_config.names import IMPLICIT, NESTED_MODELS, NESTED_PARTS, SIZES
from mc2perf.readers.structure import Place, did_you_mean


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
        self.wrong(key, f"{shown(value)}; write a whole number from {at_least} to {at_most}")
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
                self.wrong(key, f"{shown(self.values[key])}; write true or false")
        return any(self.values.get(key) is True for key in keys)

    def entries(self, key: str, table: Mapping[Any, Any], layers: int) -> list[Any]:
        """A list with an entry per layer, looked up in a table; MTP layers may stand behind."""
        value = self.values[key]
        if not isinstance(value, list | str):
            self.wrong(key, f"{shown(value)}; write a list with one entry per layer")
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

    def indices(self, key: str, layers: int | None = None) -> frozenset[int]:
        """A list of layer numbers; of so many layers from 0 on where that is given."""
        value = self.values.get(key, [])
        if isinstance(value, list) and all(type(entry) is int for entry in value):
            if layers is not None and (outside := [entry for entry in value if not 0 <= entry < layers]):
                self.wrong(key, f"{shown(outside[0])}; write numbers from 0 to {layers - 1}")
            return frozenset(value)
        self.wrong(key, "is not a list of layer numbers; write one such as [1, 2]")
        return frozenset()


def shown(value: object) -> str:
    """What is wrong with a value, briefly: it may be a nested bomb or a number of a thousand digits."""
    if isinstance(value, str):
        return f"{value[:40]!r} is text"
    if isinstance(value, dict | list):
        return f"is {'a list' if isinstance(value, list) else 'an object'}"
    if value is None:
        return "is null"
    if type(value) is int:
        return f"{value} is out of range" if abs(value) < 10**20 else "is out of range"
    return f"{str(value).lower()} is not a whole number"


def _unknown(entry: object, known: Iterable[str]) -> str:
    if isinstance(entry, str):
        return f"{entry[:40]!r} is not known{did_you_mean(entry[:40], known)}"
    return f"{shown(entry)}; write one of {', '.join(known)}"


def flat(tree: Mapping[str, Any], place: Place) -> Config:
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
