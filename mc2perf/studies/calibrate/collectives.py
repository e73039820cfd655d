"""Collectives from their points: a curve inside a server, latency and rate of the wires across servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mc2perf.costs import Costs, Ledger
from mc2perf.equations.collectives import PASSES, RANK_RULES
from mc2perf.fitting.bands import Piece, Pieces, fit_bands
from mc2perf.fitting.robust import Fit, Numbers, fit
from mc2perf.machine import Machine
from mc2perf.machine.links import Engine, Tier
from mc2perf.studies.calibrate.parameters import Parameter, fit_parameters, leaf, written
from mc2perf.studies.calibrate.plausible import varied, wired
from mc2perf.studies.calibrate.result import (
    UNSURE,
    Edit,
    Group,
    NotFittedError,
    Origin,
    Outcome,
    Path,
    Quality,
    Value,
    sourced,
)
from mc2perf.units import show

LARGE = 2.0**28
"""A message whose rate no latency disturbs. [B]"""


GRID = 30
"""Sizes at which a curve is looked at again."""


@dataclass(frozen=True)
class Points:
    """Times of one collective on one number of ranks; sizes of the whole array. [B], [s]"""

    op: str
    ranks: int
    size: Numbers
    time: Numbers
    origin: Origin

    @property
    def what(self) -> str:
        """Operation and ranks."""
        return f"{self.op}, {self.ranks} ranks"


def fit_collective(
    machine: Machine, points: Points, engine: str | None = None, forms: Sequence[str] = ()
) -> Outcome:
    """Fit a collective.

    Parameters
    ----------
    machine : Machine
        The base: its links, and the values of what the points cannot tell.
    points : Points
        At least three sizes.
    engine : str, optional
        Whose curve it is; default what the profile says answers.
    forms : sequence of str
        Forms of the bands, if known.

    Returns
    -------
    Outcome
        Inside the first tier a curve in bands, beyond it latency and efficiency of the outer wires.

    Raises
    ------
    NotFittedError
        Impossible or too few points.
    """
    if points.op not in PASSES:
        raise NotFittedError(f"{points.op} is not modelled; only {', '.join(PASSES)} are")
    reach = float(list(machine.tiers.values())[-1].ranks)
    if not 2 <= points.ranks <= reach:
        raise NotFittedError(f"{machine.name} joins 2 to {reach:g} ranks")
    varied(points.size, points.time)
    possible = wired(machine, points.op, points.ranks, points.size, points.time)
    aside = int((~possible).sum())
    points = replace(points, size=points.size[possible], time=points.time[possible])
    notes = (f"{aside} rows set aside: faster than the wires",) if aside else ()
    varied(points.size, points.time)
    inside = points.ranks <= next(iter(machine.tiers.values())).ranks
    outcome = _curve(machine, points, engine, forms) if inside else _wires(machine, points, engine)
    return replace(outcome, group=replace(outcome.group, notes=(*notes, *outcome.group.notes)))


# --- inside a server: bands -------------------------------------------------------------------------------


def _curve(machine: Machine, points: Points, chosen: str | None, forms: Sequence[str]) -> Outcome:
    costs = Costs(machine, Ledger(), chosen)
    at, tier = next(iter(machine.tiers.items()))
    name, engine = costs.engine_of(tier, points.op)
    try:
        pieces = fit_bands(points.size, points.time, forms)
    except ValueError as error:
        raise NotFittedError(str(error)) from None
    known = _Known(costs, points)
    bands, left = known.settled(pieces)
    curve = replace(pieces, bands=bands)
    residuals = np.log(curve(points.size) / points.time)
    outliers = np.concatenate([band.fit.outliers for band in pieces.bands])
    outliers = outliers[np.argsort(np.argsort(points.size, kind="stable"), kind="stable")]
    quality = Quality.of(points.time, residuals, outliers)
    group = Group(
        what=points.what, origin=points.origin, rows=len(points.size), span=_span(points.size),
        form=_chosen_because(pieces), values=tuple(_values(points, curve, known)),
        outliers=tuple(_named(points, residuals, i) for i in np.flatnonzero(outliers).tolist()),
        left=tuple(left), **vars(quality),
    )  # fmt: skip
    source = sourced(points.origin, len(points.size), f"R2 {quality.r2:.4f}, {_span(points.size)}")
    path = ("tiers", at, "engines", name)
    edits, notes = _curve_edits(engine, tier, path, points, curve, source, known)
    return Outcome(replace(group, notes=tuple(notes)), tuple(edits))


def _chosen_because(pieces: Pieces) -> str:
    """The form, and how much worse one line would be."""
    worse = pieces.criterion_of_a_line - pieces.criterion
    return f"{pieces.words} (BIC {worse:.0f} below one line)" if len(pieces.bands) > 1 else pieces.words


@dataclass(frozen=True)
class _Known:
    """What the base says where the points are silent."""

    costs: Costs
    points: Points

    def time(self, size: float) -> float:
        """The base's time. [s]"""
        p = self.points
        return float(np.asarray(self.costs.collective(p.op, p.op, size, float(p.ranks)).time).item())

    def device_share(self, size: Numbers) -> Numbers:
        """What the device alone takes of a launched collective. [1]"""
        p = self.points
        launched, alone = (
            np.asarray(self.costs.collective(p.op, p.op, size, float(p.ranks), launched=on).time, float)
            for on in (True, False)
        )
        return np.asarray(np.minimum(alone / launched, 1.0))

    @property
    def latency(self) -> float:
        """Time of next to nothing. [s]"""
        return self.time(1.0)

    @property
    def slope(self) -> float:
        """Time of one more byte, of many. [s/B]"""
        return (self.time(2.0 * LARGE) - self.time(LARGE)) / LARGE

    def settled(self, pieces: Pieces) -> tuple[tuple[Piece, ...], list[str]]:
        """Bands whose first latency and last rate are the base's if the points do not tell them."""
        bands, left = list(pieces.bands), []
        first = bands[0]
        if first.form != "floor" and first.fit.width[0] > UNSURE and self.latency < self.points.time.min():
            bands[0] = self._with_latency(first)
            left.append(f"latency: sizes from {show(float(self.points.size.min()), 'B')} on do not tell it")
        if bands[-1].fit.width[-1] > UNSURE and bands[-1].form == "line":
            bands[-1] = self._with_slope(bands[-1], bands[-2].between[0] if len(bands) > 1 else 0.0)
            left.append(f"rate: sizes up to {show(float(self.points.size.max()), 'B')} do not tell it")
        return tuple(bands), left

    def _with_latency(self, band: Piece) -> Piece:
        """The first band again, as a line from the base's latency on."""
        here, held = self.points.size <= band.between[0], self.latency
        size, start = self.points.size[here], max(band.coefficients[1], 1e-15)
        found = fit(
            lambda p: held + p[0] * size, self.points.time[here],
            np.array([start]), np.zeros(1), np.full(1, np.inf),
        )  # fmt: skip
        return _line(band, found, [held, found.values[0]], [held, found.low[0]], [held, found.high[0]])

    def _with_slope(self, band: Piece, after: float) -> Piece:
        """The last band again, as a line at the base's rate."""
        here, held = self.points.size > after, self.slope
        size, time = self.points.size[here], self.points.time[here]
        start = max(float(np.median(time - held * size)), 1e-3 * float(time.min()))
        found = fit(lambda p: p[0] + held * size, time, np.array([start]), np.zeros(1), np.full(1, np.inf))
        return _line(band, found, [found.values[0], held], [found.low[0], held], [found.high[0], held])


def _line(band: Piece, found: Fit, values: list[float], low: list[float], high: list[float]) -> Piece:
    low_, high_ = np.array(low), np.array(high)
    both = replace(found, values=np.array(values), low=low_, high=high_, half=(high_ - low_) / 2.0)
    return replace(band, form="line", coefficients=np.array([*values, 0.0]), fit=both)


def _values(points: Points, curve: Pieces, known: _Known) -> list[Value]:
    """Latency of the first band and bus rate of the last, then every band's numbers."""
    found = []
    first, last = curve.bands[0], curve.bands[-1]
    if first.form != "ramp" or first.coefficients[0] > 0.0:
        found.append(_value("latency", first, 0, known.latency, "s"))
    carried = PASSES[points.op] * (points.ranks - 1.0) / points.ranks
    low, high = (carried / max(slope, 1e-30) for slope in (last.fit.high[1], last.fit.low[1]))
    base = carried / known.slope if known.slope > 0.0 else None
    rate = carried / max(float(last.coefficients[1]), 1e-30)
    found.append(Value("bus rate", rate, float(low), float(high), base, "B/s"))
    for number, band in enumerate(curve.bands, 1) if len(curve.bands) > 1 else ():
        where = f"band {number}, {band.form}"
        for i, (name, symbol) in enumerate((("constant", "s"), ("slope", "s/B"), ("curvature", "s/B^2"))):
            if i < len(band.fit.values):
                found.append(_value(f"{where}: {name}", band, i, None, symbol))
        if math.isfinite(band.up_to):
            found.append(Value(f"{where}: up to", band.up_to, *band.between, None, "B"))
    return found


def _value(name: str, band: Piece, i: int, base: float | None, symbol: str) -> Value:
    return Value(
        name, float(band.coefficients[i]), float(band.fit.low[i]), float(band.fit.high[i]), base, symbol
    )


def _curve_edits(
    engine: Engine,
    tier: Tier,
    path: Path,
    points: Points,
    curve: Pieces,
    source: dict[str, str],
    known: _Known,
) -> tuple[list[Edit], list[str]]:
    """What the curve writes: its bands, the sizes it has seen, and what no longer fits beside it."""
    at, notes = (*path, "curves", points.op), []
    edits: list[Edit] = []
    here = float(tier.links) * float(tier.link_rate)
    if engine.fitted_at == math.inf:
        links = f"{tier.links:g} links of {show(float(tier.link_rate), 'B/s')}, as in the base"
        edits.append(((*path, "fitted_at"), {"value": show(here, "B/s", 9), "kind": "assumed", "ref": links}))
    old = engine.curves.get(points.op)
    if old is None or old.rank_rule in RANK_RULES:
        edits.append(((*at, "rank_rule"), "interpolate"))
        gone = [p for p in (old.ranks if old else ()) if p != points.ranks]
        edits += [((*at, "ranks", p), None) for p in gone]
        edits += [((*at, "device"), None)] if old and old.device else []
        if gone:
            notes.append(f"replaces the base's curve, which was fitted on {gone[0]} ranks alone")
        old = None
    elif others := [p for p in old.ranks if p != points.ranks]:
        notes.append(f"beside the base's curves for {', '.join(map(str, others))} ranks")
    slower = engine.fitted_at / here if math.isfinite(engine.fitted_at) else 1.0
    edits.append(((*at, "ranks", points.ranks), [_band(piece, slower, source) for piece in curve.bands]))
    edits.append(((*at, "sizes", points.ranks), source | _sizes(points.size)))
    if old is not None and old.device:
        edits.append(((*at, "device", points.ranks), _on_device(curve, known, slower, source)))
        notes.append("launched by the host, as in the base: the device's share is left at the base's value")
    return edits, notes


def _band(piece: Piece, slower: float, source: dict[str, str]) -> dict[str, Any]:
    """A band as text."""
    c, s, q = piece.coefficients
    text: dict[str, Any] = {**source, "constant": show(float(c), "s", 6)}
    if s:
        text["slope"] = show(float(s) / slower, "s/B", 6)
    if q:
        text["quadratic"] = show(float(q) / slower, "s/B^2", 6)
    if math.isfinite(piece.up_to):
        text["up_to"] = f"{piece.up_to:.0f} B"
    return text


def _on_device(curve: Pieces, known: _Known, slower: float, source: dict[str, str]) -> list[dict[str, Any]]:
    """The fitted curve times the device's share of a launched collective in the base, size by size."""
    seen = known.points.size
    sizes = np.unique(np.concatenate([seen, np.geomspace(seen.min(), seen.max(), GRID)]))
    bands = fit_bands(sizes, curve(sizes) * known.device_share(sizes)).bands
    assumed = {"kind": "assumed", "ref": f"{source['ref']}; the device's share of it as in the base"}
    return [_band(piece, slower, assumed) for piece in bands]


def _sizes(size: Numbers) -> dict[str, str]:
    return {"smallest": f"{size.min():.0f} B", "largest": f"{size.max():.0f} B"}


def _span(size: Numbers) -> str:
    return f"{show(float(size.min()), 'B')} to {show(float(size.max()), 'B')}"


def _named(points: Points, residuals: Numbers, i: int) -> str:
    measured = points.time[i]
    return (
        f"{show(float(points.size[i]), 'B')}: {show(float(measured), 's')} measured, "
        f"{show(float(measured * np.exp(residuals[i])), 's')} fitted"
    )


# --- across servers: the outer wires ----------------------------------------------------------------------


def _wires(machine: Machine, points: Points, chosen: str | None) -> Outcome:
    costs = Costs(machine, Ledger(), chosen)
    at, tier = costs.tiers_for(points.ranks)[-1]
    name, _ = costs.engine_of(tier, points.op)
    path = ("tiers", at, "engines", name, "wires")
    parameters = [leaf(machine, (*path, which)) for which in ("latency", "efficiency")]

    def predict(changed: Machine) -> Numbers:
        priced = Costs(changed, Ledger(), chosen)
        time = priced.collective(points.op, points.op, points.size, float(points.ranks)).time
        return np.broadcast_to(np.asarray(time, float), points.size.shape)

    return _group_of_wires(machine, points, parameters, predict)


def _group_of_wires(machine: Machine, points: Points, parameters: list[Parameter], predict: Any) -> Outcome:
    found = fit_parameters(machine, parameters, predict, points.time)
    residuals = found.fit.residuals
    quality = Quality.of(points.time, residuals, found.fit.outliers)
    source = f"R2 {quality.r2:.4f}, {points.what}, {_span(points.size)}"
    group = Group(
        what=f"{points.what} (across servers)", origin=points.origin, rows=len(points.size),
        span=_span(points.size), form="inner collective as in the base, then the outer wires",
        values=found.values,
        outliers=tuple(_named(points, residuals, i) for i in np.flatnonzero(found.fit.outliers).tolist()),
        left=found.left, **vars(quality),
    )  # fmt: skip
    return Outcome(group, tuple(written(found, sourced(points.origin, len(points.size), source))))
