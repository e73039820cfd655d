"""Nested JSON of the profiler: every generation nests the same leaves in another order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mc2perf.readers.measured.source import Tally, scaled
from mc2perf.units import SIZE, TIME

MEGABYTE = 1e6
DEEPEST = 8
ROLL_UP = "Total Op Info"

_STEP = re.compile(r"step\d*")
_PAIR = re.compile(r"\d{1,9}-\d{1,9}")
_RANKS = re.compile(r"\(.*\)")


@dataclass(frozen=True)
class Leaf:
    """Where a leaf hangs: step, kind, operation and its group, rank or pair of ranks."""

    step: str = ""
    kind: str = ""
    op: str = ""
    group: str = ""
    rank: str = ""
    pair: str = ""

    def below(self, key: str) -> Leaf:
        """The place one level down; what a level means is seen from its key."""
        if _STEP.fullmatch(key):
            return replace(self, step=key.removeprefix("step"))
        if key in ("collective", "p2p"):
            return replace(self, kind=key)
        if _RANKS.fullmatch(key):
            return replace(self, group=key)
        if key.isdigit():
            return replace(self, rank=key)
        if _PAIR.fullmatch(key):
            return replace(self, pair=key)
        op, _, group = key.partition("@")
        return replace(self, op=op, group=group or self.group)

    def __str__(self) -> str:
        """The place as a dotted path."""
        step = f"step{self.step}" if self.step else ""
        return ".".join(part for part in (step, self.kind, self.op, self.rank, self.pair) if part)


def leaves(
    tree: Any, mark: str, tally: Tally, at: Leaf = Leaf(), depth: int = 0
) -> Iterator[tuple[Leaf, Any]]:
    """Every mapping with the key ``mark``; what is no mapping is set aside."""
    if not isinstance(tree, dict) or depth > DEEPEST:
        tally.aside("is no mapping" if depth <= DEEPEST else "is nested too deeply", at)
    elif mark in tree:
        yield at, tree
    else:
        for key, below in tree.items():
            yield from leaves(below, mark, tally, at.below(key), depth + 1)


def size_of(node: Any, name: str = "Transit Size(MB)") -> float:
    """A size in megabytes of 1e6 bytes [B]."""
    return _needed(node, name, scaled(node.get(name), SIZE, MEGABYTE))


def time_of(node: Any, name: str = "Transit Time(ms)") -> float:
    """A time in milliseconds [s]."""
    return _needed(node, name, scaled(node.get(name), TIME, 1e-3))


def _needed(node: Any, name: str, found: float | None) -> float:
    if found is None:
        raise ValueError(f"{name}: {'is missing' if name in node else 'is not there'}")
    return found
