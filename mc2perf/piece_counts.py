"""How many pieces may be tried: numbers of tiles, how rows are cut at each, what the machine refuses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.policies import scan
from mc2perf.reasons import Reason
from mc2perf.study import Study, collective_of
from mc2perf.units import Num
from mc2perf.workload.parts import Pair, Tiles

FRACTAL = 16.0
"""The cube multiplies so many rows at a time: shorter tiles are never tried on their own."""

MOST_TILES = 1024
"""More tiles than this are never tried on their own; any number may be asked for."""


class Counts(NamedTuple):
    """Numbers of pieces, shape (rows or 1, counts), and why some rows cannot have some of them.

    Numbers that were ``asked`` for keep their place even if no row can have them. ``tiles`` says how rows
    are cut where pieces may differ in length.
    """

    pieces: NDArray[np.floating[Any]]
    refused: tuple[Reason, ...] = ()
    asked: bool = False
    tiles: Tiles | None = None

    @property
    def cut(self) -> Tiles:
        """How rows are cut: into equal pieces unless it is said."""
        return self.tiles or Tiles(self.pieces)

    def worth_trying(self) -> Counts:
        """Without the numbers that no row can have."""
        if self.asked:
            return self
        refused = refused_at(self.refused)
        some = ~np.all(np.broadcast_to(refused, (len(refused), self.pieces.shape[-1])), axis=0)
        return self.mapped(lambda values: np.broadcast_to(values, refused.shape)[:, some])._replace(
            pieces=self.pieces[:, some]
        )

    def mapped(self, pick: Callable[[Num], NDArray[Any]]) -> Counts:
        """Other counts, each picked from these."""
        refused = tuple(Reason(reason.text, pick(np.asarray(reason.where))) for reason in self.refused)
        tiles = Tiles(*map(pick, self.tiles)) if self.tiles else None
        return Counts(pick(self.pieces), refused, self.asked, tiles)


def refused_at(reasons: tuple[Reason, ...]) -> NDArray[np.bool_]:
    """Where any of the reasons holds."""
    return functools.reduce(np.logical_or, (reason.where for reason in reasons), np.zeros((1, 1), bool))


def tile_counts(study: Study, pair: Pair) -> Counts:
    """Tile counts, each cut as evenly as whole base blocks allow: what was asked, else 1, 2, ..."""
    asked = study.scenario.tile_cnt if study.model is None else None
    if pair.experts:
        return _counts_of_experts(study, pair, asked)
    whole, base, axis = cut_axis(study, pair)
    if asked is not None:
        counts = np.asarray(asked)
        lengths = scan.even_cut(whole, counts, base)
        few = Reason(f"{axis} leaves nothing for the last of so many tiles", lengths.none_left)
        reasons = (few, *limits_of(study, pair, counts, lengths.longest))
        return Counts(counts, reasons, asked=True, tiles=Tiles(counts, *lengths[:2]))
    study.costs.ledger.use("limits.pieces", study.costs.machine.limits.pieces)
    most = min(study.costs.machine.limits.pieces, math.ceil(np.max(whole) / FRACTAL), MOST_TILES)
    return cut_into(study, pair, np.arange(1.0, most + 1.0).reshape(1, -1))


def _counts_of_experts(study: Study, pair: Pair, asked: Num | None) -> Counts:
    """Grouped operators are cut at experts: one by one, or so many pieces of as many."""
    if asked is None:
        return Counts(np.full((1, 1), float(pair.experts)))
    counts = np.asarray(asked)
    return Counts(counts, tuple(limits_of(study, pair, counts, pair.rows / counts)), asked=True)


def cut_axis(study: Study, pair: Pair) -> tuple[NDArray[np.floating[Any]], float, str]:
    """What tiles cut, the base block along it, and its name."""
    axis = study.scenario.split_axis if study.model is None else "m"
    whole = np.asarray(pair.rows if axis == "m" else getattr(study.scenario, axis), float)
    return whole, float(getattr(study.costs.machine.cube.base_block, axis)), axis


def cut_into(study: Study, pair: Pair, counts: NDArray[np.floating[Any]], longer: Num = 0.0) -> Counts:
    """So many tiles of whole base blocks, even ones or longer ones, as far as the limits allow.

    Even ones are of whole rows where there are too few blocks.
    """
    whole, base, axis = cut_axis(study, pair)
    lengths = scan.cut(whole, counts, base, longer).where(
        np.greater(longer, 0.0), scan.even_cut(whole, counts, base)
    )
    text = f"tiles of whole base blocks ({base:g}) leave nothing of {axis} for the last one"
    short = Reason(f"the cube multiplies {FRACTAL:g} rows at a time", counts > np.ceil(whole / FRACTAL))
    reasons = (Reason(text, lengths.none_left), short, *limits_of(study, pair, counts, lengths.longest))
    # one piece is the operator uncut: always possible
    refused = tuple(Reason(text, where & (counts > 1.0)) for text, where in reasons)
    return Counts(counts, refused, tiles=Tiles(counts, *lengths[:2]))


def limits_of(study: Study, pair: Pair, counts: Num, rows: Num) -> Iterator[Reason]:
    """What machine and engine refuse: too many pieces, or pieces too large for a put or for the buffers."""
    machine, scenario = study.costs.machine, study.scenario
    _, engine = study.costs.engine_of(next(iter(machine.tiers.values())), collective_of(pair))
    for what, most in (
        (f"{machine.name} takes", machine.limits.pieces),
        (f"{engine.flags:g} flags for each rank's rows allow", engine.flags * pair.ranks),
    ):
        if math.isfinite(most):
            yield Reason(f"{what} {most:g} tiles at most", np.greater(counts, most))
    cut, piece = np.greater(counts, 1.0), rows * pair.piece_bytes
    if math.isfinite(engine.put):
        put = f"a put is above the limit of {engine.put / 1024:g} KiB"
        yield Reason(put, cut & np.greater(piece / pair.ranks, engine.put))
    if math.isfinite(engine.shmem):
        # the ring holds the pieces in flight; scales are sent once and stay
        held = scenario.buffers * piece + pair.scale_bytes
        yield Reason("buffers and scales do not fit the symmetric heap", cut & np.greater(held, engine.shmem))
