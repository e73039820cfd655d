"""How the parts of a study lie under a schedule, as kernels and transfers that may be written down.

The structure that :mod:`mc2perf.schedules` prices, with its segments kept: what runs in turn, and the
pipelines with one piece of each stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mc2perf.costs import Cost
from mc2perf.problems import InputError
from mc2perf.schedules import Conditions
from mc2perf.study import Study
from mc2perf.units import Num
from mc2perf.workload.parts import (
    ExpertPath,
    Pair,
    Part,
    Segment,
    Segments,
    Tiles,
    all_segments,
    launches_of,
    reads_of,
)


class Rest(NamedTuple):
    """A piece of another length; whether it travels and is computed before or after the others.

    Where computation comes first a pipeline is read backwards: then ``first`` is the last one that runs.
    """

    comm: Segments
    compute: Segments
    first: bool


class Pipeline(NamedTuple):
    """Pieces of two stages, or of three where they are ``combined``.

    ``comm`` and ``compute`` are of one piece, ``beside`` is computed once and needs no communication.
    ``launched`` says that every piece is launched; ``round_cost`` is what a piece adds to its computation, or
    to its transfer where it is ``on_links``. ``rest`` is the one piece of two stages that may differ. [s]
    """

    label: str
    pieces: float
    buffers: float
    on: Conditions
    comm: Segments
    compute: Segments
    beside: Segments = ()
    combined: Segments = ()
    launched: bool = False
    round_cost: float = 0.0
    on_links: bool = False
    rest: Rest | None = None


class Laid(NamedTuple):
    """A part: what runs in turn, pipelines, kernels that the host issues, results that it waits for."""

    name: str
    in_turn: Segments
    launches: float
    pipelines: tuple[Pipeline, ...] = ()
    reads: float = 0.0


Layout = list[tuple[float, Laid]]
"""Every part, and how often it runs."""


def one(number: Num) -> float:
    """The number of a study of one row."""
    return float(np.asarray(number, float).item())


def laid_out(
    study: Study, schedule: str, pieces: float, tiles: Sequence[Tiles]
) -> Iterator[tuple[float, Laid]]:
    """Every part under a schedule, with how often it runs.

    Parameters
    ----------
    study : Study
        Of one row.
    schedule : str
        serial, mc2, micro_batch or coc.
    pieces : float
        Micro-batches, or parts of CoC.
    tiles : sequence of Tiles
        Tiles of every part, for those that mc2 fuses.
    """
    for (count, part), cut in zip(study.parts(), tiles, strict=True):
        if schedule == "mc2" and isinstance(part, ExpertPath) and part.fuses:
            yield count, _experts_mc2(part, study.conditions(part))
        elif schedule == "mc2" and isinstance(part, Pair):
            yield count, _pair_mc2(part, cut, study.conditions(part))
        elif schedule == "micro_batch" and isinstance(part, ExpertPath):
            yield count, _micro_batches(part, pieces, study.conditions(part))
        elif schedule == "coc" and isinstance(part, Pair):
            yield count, _pair_parts(part, pieces, study.conditions(part))
        else:
            yield count, _serial(part)


def transfers(laid: Layout) -> Iterator[Segment]:
    """Everything that communicates, in order."""
    for _, part in laid:
        yield from _on("comm", part.in_turn)
        for pipeline in part.pipelines:
            yield from (*pipeline.comm, *pipeline.combined, *(pipeline.rest.comm if pipeline.rest else ()))


def _on(engine: str, segments: Segments) -> Segments:
    return tuple(segment for segment in segments if segment.engine == engine)


def _launches(segments: Segments) -> Segments:
    return tuple(s._replace(cost=Cost(0.0, s.cost.launch)) for s in segments)


def _serial(part: Part) -> Laid:
    segments = all_segments(part)
    return Laid(part.name, segments, launches_of(segments), reads=reads_of(segments))


def _pair_mc2(pair: Pair, tiles: Tiles, on: Conditions) -> Laid:
    once, pieces = pair.build(1.0, False), one(tiles.pieces)
    local_first = pair.local_first and on.buffers > 1
    in_turn = (*once.prefix, *_launches((once.comm, *once.compute)), *once.after)
    p = once if pieces <= 1.0 else pair.build(one(tiles.whole / tiles.each), local_first)
    rest = None
    if not tiles.equal:
        r = pair.build(one(tiles.whole / tiles.rest), local_first)
        rest = Rest(
            (r.comm,),
            r.compute,
            bool(np.any(np.equal(tiles.rest_first, 1.0))) == (pair.order == "comm_first"),
        )
    pipeline = Pipeline(
        pair.name, pieces, on.buffers, on, (p.comm,), p.compute, p.head,
        round_cost=on.round_cost if pieces > 1.0 else 0.0, rest=rest,
    )  # fmt: skip
    return Laid(pair.name, in_turn, 1.0 + launches_of(once.after), (pipeline,))


def _pair_parts(pair: Pair, pieces: float, on: Conditions) -> Laid:
    once, p = pair.build(1.0, False), pair.build(pieces, False)
    in_turn = (*once.prefix, *once.after)
    pipeline = Pipeline(pair.name, pieces, on.buffers, on, (p.comm,), p.compute, launched=True)
    return Laid(
        pair.name, in_turn, launches_of(in_turn) + pieces * launches_of((*p.compute, p.comm)), (pipeline,)
    )


def _experts_mc2(path: ExpertPath, on: Conditions) -> Laid:
    if np.ndim(path.by_expert):
        raise InputError(["skew: pieces of experts that differ in load have no formula in cells"])
    pieces = float(path.experts_per_rank)
    whole, p = path.build(1.0, False), path.build(pieces, True)
    round_cost, buffers = on.round_cost if pieces > 1 else 0.0, max(pieces, 2.0)
    rest = (*whole.before, *whole.middle, *whole.after, *whole.weight_grads)
    launches = _launches((whole.comm_in, p.first, p.second, whole.comm_out, *whole.beside))
    halves = (
        Pipeline(f"{path.name}: dispatch + {p.first.name}", pieces, buffers, on, (p.comm_in,), (p.first,),
                 whole.beside, round_cost=round_cost, on_links=True),
        Pipeline(f"{path.name}: {p.second.name} + combine", pieces, buffers, on, (p.comm_out,), (p.second,),
                 round_cost=round_cost, on_links=True),
    )  # fmt: skip
    return Laid(path.name, (*launches, *rest), 2.0 + launches_of(rest), halves, reads_of(rest))


def _micro_batches(path: ExpertPath, pieces: float, on: Conditions) -> Laid:
    whole, p = path.build(1.0, False), path.build(pieces, False)
    inner = (*p.before, p.first, *p.middle, p.second, *p.after)
    pipeline = Pipeline(
        path.name, pieces, on.buffers, on, _on("comm", (*p.before, p.comm_in)), _on("compute", inner),
        whole.beside, (p.comm_out,), launched=True, round_cost=on.round_cost if pieces > 1 else 0.0,
    )  # fmt: skip
    each = launches_of((*inner, p.comm_in, p.comm_out))
    launches = pieces * each + launches_of((*whole.beside, *whole.weight_grads))
    return Laid(path.name, whole.weight_grads, launches, (pipeline,), pieces * reads_of(inner))
