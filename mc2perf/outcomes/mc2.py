"""Fused operators wherever they are legal; the tile count or the local experts decide the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf import cutting, schedules
from mc2perf.operators import OPERATORS
from mc2perf.outcomes.best import at_count, best_count
from mc2perf.outcomes.outcome import ONE, Outcome, equal_to_serial, refused_outcome
from mc2perf.piece_counts import refused_at, tile_counts
from mc2perf.problems import InputError
from mc2perf.reasons import Reason
from mc2perf.schedules import Timing
from mc2perf.study import LaidLayer, Study
from mc2perf.units import Num
from mc2perf.workload.parts import ExpertPath, Pair, Part, Tiles


def mc2(study: Study, serial: Outcome) -> Outcome:
    """Fused operators wherever they are legal; the tile count or the local experts decide the pieces."""
    pairs: list[Pair] = study.of_kind(Pair)
    every: list[ExpertPath] = study.of_kind(ExpertPath)
    paths = [path for path in every if path.fuses]
    if not pairs and not paths:
        alone = (
            "no operator fuses this dispatch" if every else "nothing to communicate: one rank in every group"
        )
        return equal_to_serial(serial, "mc2", alone)
    if study.verdict.refusal:
        return refused_outcome("mc2", study.verdict.refusal)
    if study.verdict.serial:
        return equal_to_serial(serial, "mc2", study.verdict.fallback)
    if not pairs and all(path.experts_per_rank == 1 for path in paths) and not _shared(paths):
        return equal_to_serial(serial, "mc2", "one local expert: one piece, equals serial")
    if study.scenario.target in OPERATORS:
        return _fused_operator(study, pairs[0])
    return _fused_model(study, paths)


def _shared(paths: list[ExpertPath]) -> bool:
    return any(path.build(1.0, False).beside for path in paths)


def _illegal_rows(study: Study) -> tuple[Reason, ...]:
    """Rows that the rules of the fused operators refuse."""
    return tuple(Reason(said.text, said.where) for said in study.verdict.refused)


def _fused_operator(study: Study, pair: Pair) -> Outcome:
    tried = tile_counts(study, pair)
    if study.scenario.policy in cutting.CUTS and not tried.asked and not pair.experts:
        return _fused_in_tiles(study, pair)
    if pair.loads:
        timing, counts = _at_counts(study, pair, tried.pieces), tried
    else:
        timing, counts = cutting.fused(study, pair, tried)
    return Outcome(
        schedule="mc2",
        layers=_one_part(timing),
        pieces=counts.pieces,
        refused=(*study.reasons, *_illegal_rows(study), *counts.refused),
        tried=tried,
        **({"piece_rows": pair.rows / counts.pieces} if pair.experts else _lengths(counts.cut)),
    )


def _lengths(tiles: Tiles) -> dict[str, Any]:
    """What an outcome says of its tiles."""
    return {"piece_rows": tiles.each, "rest_rows": tiles.rest, "rest_first": tiles.rest_first}


def _at_counts(study: Study, pair: Pair, counts: Num) -> Timing:
    """A fused pair for every count of pieces, one by one: its experts differ in load."""
    on = study.conditions(pair)
    # counts that do not divide the experts are refused: any answer will do
    whole = np.gcd(np.asarray(counts, int), len(pair.loads))
    each = {count: schedules.pair_by_expert(pair, count, on) for count in np.unique(whole).tolist()}
    at = np.searchsorted(np.array(list(each)), whole)
    columns = zip(*each.values(), strict=True)
    return Timing(*(_picked(values, at) for values in columns))


def _picked(values: Sequence[Num], at: NDArray[np.intp]) -> Num:
    """Of values that are columns of rows, one for each count."""
    stacked = np.concatenate(np.broadcast_arrays(*map(np.atleast_2d, values)), axis=-1)
    rows = np.broadcast_to(at, (max(len(stacked), len(at)), at.shape[-1]))
    taken: Num = np.take_along_axis(np.broadcast_to(stacked, (len(rows), stacked.shape[-1])), rows, axis=-1)
    return taken


def _fused_in_tiles(study: Study, pair: Pair) -> Outcome:
    """A fused operator in tiles that may differ in length; the study has one row."""
    try:
        cut = cutting.CUTS[study.scenario.policy](study, pair)
    except InputError as error:
        return refused_outcome("mc2", "; ".join(error.problems))
    refused = cutting.refused_tiles(study, pair, cut.tiles)
    timing, _ = cutting.priced(study, pair, cut.tiles)
    return Outcome(
        schedule="mc2",
        layers=_one_part(timing),
        pieces=len(cut.tiles) * ONE,
        piece_rows=max(cut.tiles) * ONE,
        rest_rows=min(cut.tiles) * ONE,
        rest_first=float(cut.tiles[0] < cut.tiles[-1]),
        refused=(*study.reasons, *((refused,) if refused else ())),
        tiles=cut.tiles,
        why=cut.why,
    )


def _one_part(timing: Timing) -> tuple[LaidLayer, ...]:
    """An operator: one layer of one part."""
    return (LaidLayer(1.0, {"tp": timing}, {}),)


def _fused_model(study: Study, paths: list[ExpertPath]) -> Outcome:
    most = Tiles(ONE, study.rows, study.rows)

    def price(part: Part) -> Timing:
        nonlocal most
        if isinstance(part, ExpertPath) and part.fuses:
            return schedules.experts_mc2(part, study.conditions(part))
        if isinstance(part, Pair):
            timing, chosen = best_tiles(study, part)
            most = _more_of(most, chosen.scaled(study.rows / part.rows))
            return timing
        return schedules.pair_serial(part)

    layers = study.laid(price)
    pieces = float(paths[0].experts_per_rank) * ONE if paths else most.pieces
    return Outcome(
        schedule="mc2",
        layers=layers,
        pieces=pieces,
        refused=(*study.reasons, *_illegal_rows(study)),
        **({"piece_rows": study.rows / pieces} if paths else _lengths(most)),
    )


def _more_of(one: Tiles, other: Tiles) -> Tiles:
    """Whichever has more pieces, row by row; the first of equals."""
    more = np.greater(other.pieces, one.pieces)
    return Tiles(*(np.where(more, b, a) for a, b in zip(one, other, strict=True)))


def best_tiles(study: Study, pair: Pair) -> tuple[Timing, Tiles]:
    """A fused pair at its best tile count, row by row."""
    timing, counts = cutting.fused(study, pair, tile_counts(study, pair))
    best = best_count(np.asarray(timing.total), refused_at(counts.refused))
    tiles = Tiles(*(at_count(value, best) for value in counts.cut))
    return Timing(*(at_count(value, best) for value in timing)), tiles
