"""Passes of a stage as turns: computations and communications in alternation, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mc2perf.units import Num
from mc2perf.workload.layer import LayerParts
from mc2perf.workload.parts import Part, Segment, Segments, all_segments, in_turns, time_of

Turns = tuple[list[Num], list[Num]]
"""Computations of a pass, and the communication after each. [s]"""


class Key(NamedTuple):
    """What tells stages apart: layers of every group, whether it holds the embedding, whether the head."""

    counts: tuple[float, ...]
    first: bool
    last: bool


def turns_of(segments: Iterable[Segment], slower: float, send: Num) -> Turns:
    """A pass as turns: computations so much slower, and what it sends at its end. [s]"""
    compute, comm = (
        [time_of(tuple(turn), engine) for turn in turns]
        for turns, engine in zip(in_turns(segments), ("compute", "comm"), strict=True)
    )
    comm[-1] = comm[-1] + send
    return [slower * time for time in compute], comm


def forward(layers: Sequence[LayerParts], key: Key) -> Iterator[Segment]:
    """Kernels of a forward pass: embedding, layers, head."""
    *groups, embedding, head = layers
    yield from _repeated(_segments(embedding.forward), float(key.first))
    for count, layer in zip(key.counts, groups, strict=True):
        yield from _repeated(_segments(layer.forward), count)
    yield from _repeated(_segments(head.forward), float(key.last))


def backward(
    layers: Sequence[LayerParts], key: Key, again: Callable[[Segment], bool], share: float
) -> Iterator[Segment]:
    """Kernels of a backward pass; before those of a layer, by their share, those computed ``again``."""
    *groups, embedding, head = layers
    yield from _repeated(_segments(head.backward), float(key.last))
    for count, layer in reversed(list(zip(key.counts, groups, strict=True))):
        repeated = [_scaled(s, share) for s in _segments(layer.forward) if share and again(s)]
        yield from _repeated((*repeated, *_segments(layer.backward)), count)
    yield from _repeated(_segments(embedding.backward), float(key.first))


def _segments(parts: Iterable[Part]) -> Segments:
    return tuple(s for part in parts for s in all_segments(part))


def _scaled(segment: Segment, share: float) -> Segment:
    cost = segment.cost
    return segment._replace(cost=type(cost)(*(share * value for value in cost)))


def _repeated(segments: Segments, count: float) -> Iterator[Segment]:
    """A layer so many times; of what is left over, its share of every kernel."""
    for _ in range(int(count)):
        yield from segments
    if count % 1.0:
        yield from (_scaled(segment, count % 1.0) for segment in segments)
