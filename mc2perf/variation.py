"""A machine with other numbers in it: one other value, or a column of values, one for every row.

A column has shape (rows, 1), as sizes of a sweep have, so that hundreds of machines that differ in numbers
only are priced at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np

from mc2perf.machine import Machine
from mc2perf.quantity import Quantity
from mc2perf.units import Dim, Num

LIMITS = ("limits.", ".put", ".shmem", ".flags", "memory.capacity")
"""Numbers that say what is allowed, not how fast it is."""

REFERENCES = (".fitted_at",)
"""Numbers that others are stated at: choices, not measurements."""

STRUCTURE = ("cube.base_block.", "ranks_per_server", ".ranks")
"""Numbers that say how a machine is built; one tenth more of them is no machine."""


@dataclass(frozen=True)
class Parameter:
    """A sourced number of a machine: where it stands, its value, and what values it may take."""

    path: str
    quantity: Quantity
    dim: Dim

    @property
    def whole(self) -> bool:
        """Counts and limits: whole numbers, or numbers that decide what may run."""
        return self.dim.whole or _is_one_of(LIMITS, self.path)

    @property
    def exact(self) -> bool:
        """Known without uncertainty."""
        return self.whole or self.fixed or _is_one_of(REFERENCES, self.path)

    @property
    def fixed(self) -> bool:
        """How a machine is built."""
        return is_structure(self.path)

    def within(self, value: Num) -> Num:
        """The nearest value that it may take: a ratio stays at most 1, a factor at least 1."""
        if self.dim.signed:
            return value
        least = 1.0 if self.dim.whole else self.dim.at_least
        near = np.clip(np.round(value) if self.dim.whole else value, least, self.dim.at_most)
        return near if np.ndim(value) else float(near)


def is_structure(path: str) -> bool:
    """Whether a number says how a machine is built.

    Examples
    --------
    >>> is_structure("tiers.node.ranks"), is_structure("tiers.node.link_rate")
    (True, False)
    """
    return _is_one_of(STRUCTURE, path)


def _is_one_of(names: Sequence[str], path: str) -> bool:
    return any(path.startswith(name) or path.endswith(name) for name in names)


def parameters(machine: Machine) -> list[Parameter]:
    """Every sourced number of a machine.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> {p.path: p.dim.what for p in parameters(load_machine("atlas_800i_a2"))}["memory.efficiency"]
    'a ratio in (0, 1]'
    """
    return [Parameter(path, quantity, dim) for path, quantity, dim in _typed(machine, Machine)]


def _typed(part: Any, hint: Any) -> Iterator[tuple[str, Quantity, Dim]]:
    """Walk every sourced number with its dotted path and its dimension, as the type hints state it."""
    if isinstance(part, Quantity):
        yield "", part, get_args(hint)[1]
        return
    for name, child, child_hint in _children(part, hint):
        for path, quantity, dim in _typed(child, child_hint):
            yield f"{name}.{path}".rstrip("."), quantity, dim


def _children(part: Any, hint: Any) -> Iterator[tuple[str, Any, Any]]:
    """Everything directly inside a part, with its type hint."""
    hints = _hints(type(part)) if is_dataclass(part) and not isinstance(part, type) else None
    for name, child in _parts(part):
        yield name, child, hints[name] if hints else get_args(hint)[isinstance(part, dict)]


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def varied(machine: Machine, changes: Mapping[str, Any]) -> Machine:
    """The machine with other values at some dotted paths.

    Parameters
    ----------
    machine : Machine
        Stays as it is.
    changes : mapping
        Dotted path to a number, a column of shape (rows, 1), or any part of a machine.

    Raises
    ------
    KeyError
        A path that is no place of this machine.

    Examples
    --------
    >>> from mc2perf.readers.profiles import load_machine
    >>> varied(load_machine("atlas_800i_a2"), {"cube.cores": 24.0}).cube.cores
    24.0
    """
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = _Value(value)
    changed: Machine = _with(machine, tree)
    return changed


@dataclass(frozen=True)
class _Value:
    """What takes a place, told from places further down."""

    value: Any


def _with(part: Any, tree: Any) -> Any:
    if isinstance(tree, _Value):
        return tree.value
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{name: _with(getattr(part, name), below) for name, below in tree.items()})
    if isinstance(part, dict):
        names = {str(key): key for key in part}
        return part | {names[name]: _with(part[names[name]], below) for name, below in tree.items()}
    if isinstance(part, tuple):
        return tuple(_with(value, tree[str(i)]) if str(i) in tree else value for i, value in enumerate(part))
    raise KeyError(", ".join(tree))


@dataclass(frozen=True)
class Unlike:
    """A place at which two machines differ: numbers of the same kind there, or whole parts."""

    path: str
    one: Any
    other: Any

    @property
    def numbers(self) -> bool:
        """Whether both are plain numbers."""
        return all(isinstance(x, float) and not isinstance(x, bool) for x in (self.one, self.other))


NAMES = ("name", "title", "notes", "note", "link", "profile_version")
"""Fields that only say what a machine is called."""


def differences(one: Any, other: Any, path: str = "") -> Iterator[Unlike]:
    """Places at which two machines differ, as deep as they have the same build.

    Examples
    --------
    >>> [found.path for found in differences({"a": 1.0, "b": (1.0, 2.0)}, {"a": 1.0, "b": (1.0, 3.0)})]
    ['b.1']
    """
    children = dict(_parts(one)), dict(_parts(other))
    if type(one) is not type(other) or children[0].keys() != children[1].keys() or not children[0]:
        if one != other:
            yield Unlike(path, one, other)
        return
    for name, child in children[0].items():
        if name not in NAMES:
            yield from differences(child, children[1][name], f"{path}.{name}".lstrip("."))


def _parts(part: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(part):
        yield from ((spec.name, getattr(part, spec.name)) for spec in fields(part))
    elif isinstance(part, dict):
        yield from ((str(key), value) for key, value in part.items())
    elif isinstance(part, tuple):
        yield from ((str(index), value) for index, value in enumerate(part))
