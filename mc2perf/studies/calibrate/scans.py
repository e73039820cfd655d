"""What overlapping costs, from measured times over the number of tiles: rounds and mutual slow-down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mc2perf import schedules
from mc2perf.costs import Costs, Ledger
from mc2perf.fitting.robust import Numbers
from mc2perf.machine import Machine
from mc2perf.machine.cube import ConstantRule, CurveRule, KneeRule, L2StepsRule, LinearRule, PowerRule
from mc2perf.machine.links import Band
from mc2perf.operators import OPERATORS
from mc2perf.quantity import found, replaced
from mc2perf.scenario import Scenario
from mc2perf.studies.calibrate.parameters import Parameter, fit_parameters, leaf, text_of, written
from mc2perf.studies.calibrate.result import (
    Edit,
    Group,
    NotFittedError,
    Origin,
    Outcome,
    Path,
    Quality,
    sourced,
)
from mc2perf.study import Study, study_of
from mc2perf.units import show
from mc2perf.workload.parts import Pair

LEAST_CUTS = 2
"""Fewer runs of more than one tile, of all scans together, cannot tell a round's cost from a slow-down."""
FACTORS = ("round_cost", "comm_under_compute", "compute_under_comm")
STARTS = tuple(
    {"comm_under_compute": f, "compute_under_comm": g} for f, g in ((1.1, 1.1), (1.5, 1.2), (1.2, 1.5))
)
"""Slow-downs to start from: where overlapping gains nothing, more of them changes nothing."""
SPEED: dict[type, tuple[str, ...]] = {
    ConstantRule: ("utilisation",), KneeRule: ("utilisation",), L2StepsRule: ("part", "full", "out"),
    PowerRule: ("base", "cap"), LinearRule: ("rate_per_core",), CurveRule: ("points",),
}  # fmt: skip
"""Rule -> the numbers that its speed is proportional to."""


@dataclass(frozen=True)
class Scan:
    """A fused operator measured in several numbers of tiles. [s]"""

    scenario: Scenario
    counts: Numbers
    times: Numbers
    origin: Origin

    @property
    def fits(self) -> tuple[str, str]:
        """What else has to be known of it: its collective on its ranks, its matmul's type."""
        operator = OPERATORS[self.scenario.target]
        return f"{operator.collective}, {self.scenario.ranks:g} ranks", f"matmul, {self.scenario.cube_dtype}"

    @property
    def words(self) -> str:
        """The operator and its sizes."""
        s = self.scenario
        sizes = ", ".join(f"{name} {getattr(s, name):g}" for name in ("m", "n", "k", "ranks"))
        return f"{s.target}, {sizes}, {s.dtype}"


def fit_scans(machine: Machine, scans: Sequence[Scan], known: Collection[str] = ()) -> Outcome:
    """Fit the cost of a round and the two slow-down factors to scans over the number of tiles.

    Parameters
    ----------
    machine : Machine
        The base, with everything that other files told already.
    scans : sequence of Scan
        Of one engine.
    known : collection of str
        Titles of what other files told, such as ``all_gather, 8 ranks``. The speed of a collective or a
        matmul that none of them told is fitted as well: one factor on the base's.

    Raises
    ------
    NotFittedError
        Fewer than two runs of more than one tile, or an operator that the machine cannot run.
    """
    cuts = sum(len(np.unique(scan.counts[scan.counts > 1.0])) for scan in scans)
    if cuts < LEAST_CUTS:
        raise NotFittedError(f"{cuts} runs of more than one tile; a fit needs at least {LEAST_CUTS}")
    measured = np.concatenate([scan.times for scan in scans])
    scale = [*_speeds(machine, scans, known)]
    factors = [leaf(machine, (*_engine_path(machine, scans[0]), name)) for name in FACTORS]
    result = fit_parameters(machine, [*scale, *factors], lambda m: _times_of(m, scans), measured, STARTS)
    result = replace(result, machine=_never_loses(result.machine, _engine_path(machine, scans[0])))
    residuals = np.log(_times_of(result.machine, scans) / measured)
    quality = Quality.of(measured, residuals, result.fit.outliers)
    origin = Origin(", ".join(dict.fromkeys(s.origin.file for s in scans)), scans[0].origin.date)
    names = [f"{scan.words}, {n:g} tiles" for scan in scans for n in scan.counts]
    outliers = tuple(
        f"{names[i]}: {show(float(measured[i]), 's')} measured, "
        f"{show(float(measured[i] * np.exp(residuals[i])), 's')} fitted"
        for i in np.flatnonzero(result.fit.outliers).tolist()
    )
    group = Group(
        what=f"overlap, {len(scans)} scan{'s' * (len(scans) != 1)}", origin=origin, rows=len(measured),
        span=f"{min(s.counts.min() for s in scans):g} to {max(s.counts.max() for s in scans):g} tiles",
        form="two stages in tiles, each slowing the other", values=result.values, outliers=outliers,
        left=result.left, notes=tuple(_best(result.machine, scan) for scan in scans), **vars(quality),
    )  # fmt: skip
    source = sourced(origin, len(measured), f"R2 {quality.r2:.4f}, {group.span}")
    return Outcome(group, tuple(_kept_apart(written(result, source), result.machine, scans[0], source)))


def _times_of(machine: Machine, scans: Sequence[Scan]) -> Numbers:
    return np.concatenate([scan_times(machine, scan) for scan in scans])


def scan_times(machine: Machine, scan: Scan) -> Numbers:
    """Predicted times of a fused operator in the measured numbers of tiles. [s]"""
    study, pair = _pair(machine, scan.scenario)
    timing = schedules.pair_mc2(pair, scan.counts.reshape(1, -1), study.conditions(pair))
    total = study.issued(timing)
    return np.broadcast_to(np.asarray(total, float), (1, len(scan.counts))).ravel()


def _pair(machine: Machine, scenario: Scenario) -> tuple[Study, Pair]:
    study = study_of(scenario, machine, None)
    pairs: list[Pair] = study.of_kind(Pair)
    if not pairs:
        raise NotFittedError(f"{scenario.target}: one rank has nothing to overlap")
    return study, pairs[0]


def _engine_path(machine: Machine, scan: Scan) -> Path:
    """The engine that answers on the outermost tier that the ranks span."""
    costs = Costs(machine, Ledger(), scan.scenario.engine)
    at, tier = costs.tiers_for(float(scan.scenario.ranks or machine.ranks_per_server))[-1]
    name, _ = costs.engine_of(tier, OPERATORS[scan.scenario.target].collective)
    return ("tiers", at, "engines", name)


def _never_loses(machine: Machine, path: Path) -> Machine:
    """Two slow-downs beyond which overlapping would lose say no more than those at which it gains nothing."""
    engine = found(machine, path)
    f, g = float(engine.comm_under_compute), float(engine.compute_under_comm)
    if 1.0 / f + 1.0 / g >= 1.0:
        return machine
    return replaced(machine, (*path, "compute_under_comm"), np.floor(f / (f - 1.0) * 1e6) / 1e6)  # type: ignore[no-any-return]


def _kept_apart(
    edits: Iterable[Edit], machine: Machine, scan: Scan, source: dict[str, str]
) -> Iterator[Edit]:
    """The edits, the second factor as it was limited."""
    path = (*_engine_path(machine, scan), "compute_under_comm")
    for at, tree in edits:
        yield at, (tree | {"value": float(found(machine, path))} if at == path else tree)


def _best(machine: Machine, scan: Scan) -> str:
    """The best measured number of tiles beside the best predicted one."""
    predicted = scan_times(machine, scan)
    medians = {n: float(np.median(scan.times[scan.counts == n])) for n in np.unique(scan.counts).tolist()}
    best = min(medians, key=lambda n: medians[n])
    chosen = float(scan.counts[int(np.argmin(predicted))])
    lost = medians[chosen] / medians[best] - 1.0
    return f"{scan.words}: best {best:g} tiles measured, {chosen:g} predicted" + (
        f", which took {lost:.1%} longer" if chosen != best else ""
    )


# --- speeds that nothing else told ------------------------------------------------------------------------


def _speeds(machine: Machine, scans: Sequence[Scan], known: Collection[str]) -> Iterator[Parameter]:
    """One factor for every collective and matmul that no other file told."""
    seen: set[str] = set(known)
    for scan in scans:
        collective, matmul = scan.fits
        if collective not in seen:
            yield _slower_collective(machine, scan)
        if matmul not in seen:
            yield _faster_matmul(machine, scan.scenario.cube_dtype)
        seen |= {collective, matmul}


def _slower_collective(machine: Machine, scan: Scan) -> Parameter:
    """Times of a collective over the base's: a factor on its curve, or on its wires."""
    op, ranks = OPERATORS[scan.scenario.target].collective, float(scan.scenario.ranks or 0.0)
    costs = Costs(machine, Ledger(), scan.scenario.engine)
    at, tier = costs.tiers_for(ranks)[-1]
    name, engine = costs.engine_of(tier, op)
    path = ("tiers", at, "engines", name)
    curve = engine.curves.get(op)
    if curve is None or at != next(iter(machine.tiers)):
        return _scaled(f"{'.'.join(path)}.wires: time over the base's", machine, _wires_paths(path))
    nearest = min(curve.ranks, key=lambda p: abs(np.log(p / ranks)))
    parts = ("ranks", "device") if curve.device else ("ranks",)
    bands = [((*path, "curves", op, part, nearest), 1.0) for part in parts]
    return _scaled(f"{'.'.join(map(str, bands[0][0]))}: time over the base's", machine, bands)


def _wires_paths(path: Path) -> list[tuple[Path, float]]:
    return [((*path, "wires", "latency"), 1.0), ((*path, "wires", "efficiency"), -1.0)]


def _faster_matmul(machine: Machine, dtype: str) -> Parameter:
    """Speed of matmuls over the base's."""
    path = ("cube", "rules", machine.cube.rule)
    rule, paths = found(machine, path), list[tuple[Path, float]]()
    for name in SPEED[type(rule)]:
        part = getattr(rule, name)
        if isinstance(part, tuple):
            paths += [((*path, name, i, "utilisation"), 1.0) for i in range(len(part))]
        else:
            paths.append(((*path, name, dtype) if isinstance(part, dict) else (*path, name), 1.0))
    return _scaled(f"{'.'.join(path)}: speed of {dtype} over the base's", machine, paths)


def _scaled(name: str, machine: Machine, paths: Sequence[tuple[Path, float]]) -> Parameter:
    """A factor on numbers or bands of a machine, to the given powers."""

    def change(changed: Machine, factor: float) -> Machine:
        for path, power in paths:
            part = found(machine, path)
            bands = isinstance(part, tuple)
            new: Any = _times(part, factor) if bands else _held(part, float(part) * factor**power)
            changed = replaced(changed, path, new)
        return changed

    def edits(factor: float, source: dict[str, str]) -> Iterable[Edit]:
        for path, power in paths:
            part = found(machine, path)
            if isinstance(part, tuple):
                yield path, [_band_text(band, source) for band in _times(part, factor)]
            else:
                value = _held(part, float(part) * factor**power)
                yield path, {"value": text_of(value, part.symbol), **source}

    return Parameter(name, change, 1.0, 0.02, 50.0, "1", edits, 1.0)


def _held(part: Any, value: float) -> float:
    """No share above the whole."""
    return min(value, 1.0) if getattr(part, "symbol", "1") == "1" and part <= 1.0 else value


def _times(bands: tuple[Band, ...], factor: float) -> tuple[Band, ...]:
    return tuple(
        replace(b, constant=b.constant * factor, slope=b.slope * factor, quadratic=b.quadratic * factor)
        for b in bands
    )


def _band_text(band: Band, source: dict[str, str]) -> dict[str, Any]:
    text: dict[str, Any] = {**source, "constant": show(float(band.constant), "s", 6)}
    for name, symbol in (("slope", "s/B"), ("quadratic", "s/B^2")):
        if getattr(band, name):
            text[name] = show(float(getattr(band, name)), symbol, 6)
    return text | ({"up_to": f"{band.up_to:.0f} B"} if band.up_to < np.inf else {})
