"""What a collective costs where it was measured: fitted bands over sizes, for each count of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from mc2perf.costs.bands import as_key, band_of, cut_where, ends_of, jumps, of_band, scaled_columns
from mc2perf.costs.setting import Setting
from mc2perf.equations import collectives
from mc2perf.machine.links import Band, Curve, Engine
from mc2perf.units import Num

CLIFF = 1.25
"""A transfer one byte longer that takes so many times as long has outgrown a buffer."""


def on_curve(
    on: Setting,
    label: str,
    path: str,
    engine: Engine,
    curve: Curve,
    fits: Mapping[int, tuple[Band, ...]],
    size: Num,
    ranks: float,
    slower: Num,
) -> Num:
    """A fitted curve, the message cut where that avoids a cliff."""
    price = partial(_in_one_call, on, label, path, engine, curve, fits, ranks=ranks, slower=slower)
    time = price(size=size)
    for edge in _edges(on, path, fits, price, ranks, slower) if on.cuts_messages else ():
        over = np.greater(size, edge)
        if np.any(over):
            time = cut_where(over, time, np.asarray(size, float), edge, price)
    return time


def _edges(
    on: Setting,
    path: str,
    fits: Mapping[int, tuple[Band, ...]],
    price: Callable[..., Num],
    ranks: float,
    slower: Num,
) -> list[Num]:
    """Sizes just above which a curve jumps, found by pricing either side of every band's end. [B]"""
    key = (path, ranks, as_key(slower))
    if key not in on.cliffs:
        recording, on.ledger.recording = on.ledger.recording, False
        at = ends_of(fits, ranks)
        under, over = (np.asarray(price(size=at * x)) for x in (1.0, 1.0 + 1e-9)) if at.size else (at, at)
        on.cliffs[key] = jumps(at, over > CLIFF * under)
        on.ledger.recording = recording
    return on.cliffs[key]


def _in_one_call(
    on: Setting,
    label: str,
    path: str,
    engine: Engine,
    curve: Curve,
    fits: Mapping[int, tuple[Band, ...]],
    size: Num,
    ranks: float,
    slower: Num,
) -> Num:
    """A fitted curve, by its rank rule; ``slower`` is the fitted link bandwidth over the given one."""

    def wire(p: int) -> Num:
        """Least that a byte takes on the fitted links. [s/B]"""
        return (p - 1) / p / engine.fitted_at

    if curve.rank_rule in collectives.RANK_RULES:
        rule = collectives.RANK_RULES[curve.rank_rule]
        on.ledger.use(f"{path}.8", fits[8])
        time = _banded(on, label, fits[8], size * rule.weight(ranks), slower, wire(8))
        return time / rule.divisor(ranks)
    # a server has its own algorithms: counts inside it are not compared with counts beyond it
    inside = ranks <= on.machine.ranks_per_server
    fits = {p: f for p, f in fits.items() if not inside or p <= on.machine.ranks_per_server} or fits
    low = max((p for p in fits if p <= ranks), default=min(fits))
    high = min((p for p in fits if p >= ranks), default=max(fits))
    if not min(fits) <= ranks <= max(fits):
        fitted = f"fitted for {min(fits)}..{max(fits)}"
        on.ledger.extrapolated[f"{path}: {ranks:g} ranks, {fitted}"] = None
    on.ledger.use(f"{path}.{low}", fits[low])
    on.ledger.use(f"{path}.{high}", fits[high])
    by_share = inside and curve.rank_rule == "interpolate_share"
    wider_low, wider_high = (ranks / p if by_share else 1.0 for p in (low, high))
    if ranks > high:
        on.ledger.use(f"{path.split('.curves.')[0]}.latency_growth", engine.latency_growth)
        return _banded(
            on, f"{label}: curve of {high} ranks", fits[high], size,
            slower * collectives.more_traffic(ranks, high), wire(high),
            collectives.more_latency(ranks, high, engine.latency_growth), wider_high,
        )  # fmt: skip
    if low == high:
        return _banded(on, f"{label}: curve of {low} ranks", fits[low], size, slower, wire(low))
    time_low, time_high = (
        _banded(on, f"{label}: curve of {p} ranks", fits[p], size, slower, wire(p), 1.0, wider)
        for p, wider in ((low, wider_low), (high, wider_high))
    )
    between: Num = on.ledger.run(
        f"{label}: between {low} and {high} ranks", collectives.interpolated_over_ranks,
        ranks=ranks, low=low, high=high, time_low=time_low, time_high=time_high,
    )  # fmt: skip
    return between


def _banded(
    on: Setting,
    label: str,
    bands: tuple[Band, ...],
    size: Num,
    slower: Num,
    wire: Num,
    later: Num = 1.0,
    wider: float = 1.0,
) -> Num:
    """The band that the size falls into; factors on slopes, on constants, on the first band's end.

    Slower links need ``slower * wire`` for a byte at least [s/B].
    """
    key = (id(bands), as_key(slower), as_key(wire), as_key(later), wider)
    if key not in on.columns:
        on.columns[key] = scaled_columns(bands, slower, wire, later, wider)
    up_to, constant, slope, quadratic, before, shortest = on.columns[key]
    band = band_of(up_to, size)
    at_least = of_band(before, band)
    if np.any(shortest):
        at_least = np.maximum(at_least, shortest * size)
    time: Num = on.ledger.run(
        label, collectives.band_time, size=size, constant=of_band(constant, band),
        slope=of_band(slope, band), quadratic=of_band(quadratic, band), at_least=at_least,
    )  # fmt: skip
    return time
