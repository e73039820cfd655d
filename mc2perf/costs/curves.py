"""What a collective costs where it was measured: fitted bands over sizes, for each count of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mc2perf.costs.bands import as_key, band_of, cut_where, ends_of, jumps, of_band, scaled_columns
from mc2perf.costs.setting import Setting
from mc2perf.equations import collectives
from mc2perf.machine.links import Band, Engine, RankRule
from mc2perf.units import Num

CLIFF = 1.25
"""A transfer one byte longer that takes so many times as long has outgrown a buffer."""


@dataclass(frozen=True)
class Fitted:
    """Fits of one collective on one engine, for some ranks on links that may be slower than the fitted ones.

    ``path`` is where the fits stand in the profile, ``slower`` the fitted link bandwidth over the given one.
    """

    on: Setting
    label: str
    path: str
    engine: Engine
    rank_rule: RankRule
    fits: Mapping[int, tuple[Band, ...]]
    ranks: float
    slower: Num

    def time(self, size: Num) -> Num:
        """Time of a transfer, the message cut where that avoids a cliff. [s]"""
        time = self._in_one_call(size)
        for edge in self._edges() if self.on.cuts_messages else ():
            over = np.greater(size, edge)
            if np.any(over):
                time = cut_where(over, time, np.asarray(size, float), edge, self._in_one_call)
        return time

    def _edges(self) -> list[Num]:
        """Sizes just above which the time jumps, found by pricing either side of every band's end. [B]"""
        key = (self.path, self.ranks, as_key(self.slower))
        if key not in self.on.cliffs:
            ledger = self.on.ledger
            recording, ledger.recording = ledger.recording, False
            at = ends_of(self.fits, self.ranks)
            under, over = (
                np.asarray(self._in_one_call(at * x)) if at.size else at for x in (1.0, 1.0 + 1e-9)
            )
            self.on.cliffs[key] = jumps(at, over > CLIFF * under)
            ledger.recording = recording
        return self.on.cliffs[key]

    def _in_one_call(self, size: Num) -> Num:
        """By the rank rule: scaled from one count of ranks, or interpolated between two."""
        if self.rank_rule in collectives.RANK_RULES:
            return self._scaled(size)
        low, high = self._neighbours()
        self.on.ledger.use(f"{self.path}.{low}", self.fits[low])
        self.on.ledger.use(f"{self.path}.{high}", self.fits[high])
        if self.ranks > high:
            return self._beyond(size, high)
        if low == high:
            return self._banded(f"{self.label}: curve of {low} ranks", low, size, self.slower)
        return self._between(size, low, high)

    def _scaled(self, size: Num) -> Num:
        rule, fitted = collectives.RANK_RULES[self.rank_rule], collectives.REFERENCE_RANKS
        self.on.ledger.use(f"{self.path}.{fitted}", self.fits[fitted])
        time = self._banded(self.label, fitted, size * rule.weight(self.ranks), self.slower)
        return time / rule.divisor(self.ranks)

    @property
    def _inside(self) -> bool:
        """Whether the ranks fit into a server."""
        return self.ranks <= self.on.machine.ranks_per_server

    def _neighbours(self) -> tuple[int, int]:
        """The fitted counts on either side; a count outside all of them is noted."""
        # a server has its own algorithms: counts inside it are not compared with counts beyond it
        near = [p for p in self.fits if not self._inside or p <= self.on.machine.ranks_per_server]
        counts = near or list(self.fits)
        least, most = min(counts), max(counts)
        if not least <= self.ranks <= most:
            unseen = f"{self.path}: {self.ranks:g} ranks, fitted for {least}..{most}"
            self.on.ledger.extrapolated[unseen] = None
        low = max((p for p in counts if p <= self.ranks), default=least)
        return low, min((p for p in counts if p >= self.ranks), default=most)

    def _wider(self, p: int) -> float:
        """How much later the first band of a fit ends: at the same share of a rank, or the same array."""
        return self.ranks / p if self._inside and self.rank_rule == "interpolate_share" else 1.0

    def _beyond(self, size: Num, most: int) -> Num:
        """More ranks than any fit has: more traffic, and more latency."""
        growth = self.engine.latency_growth
        self.on.ledger.use(f"{self.path.split('.curves.')[0]}.latency_growth", growth)
        return self._banded(
            f"{self.label}: curve of {most} ranks", most, size,
            self.slower * collectives.more_traffic(self.ranks, most),
            collectives.more_latency(self.ranks, most, growth), self._wider(most),
        )  # fmt: skip

    def _between(self, size: Num, low: int, high: int) -> Num:
        time_low, time_high = (
            self._banded(f"{self.label}: curve of {p} ranks", p, size, self.slower, wider=self._wider(p))
            for p in (low, high)
        )
        time: Num = self.on.ledger.run(
            f"{self.label}: between {low} and {high} ranks", collectives.interpolated_over_ranks,
            ranks=self.ranks, low=low, high=high, time_low=time_low, time_high=time_high,
        )  # fmt: skip
        return time

    def _banded(
        self, label: str, p: int, size: Num, slower: Num, later: Num = 1.0, wider: float = 1.0
    ) -> Num:
        """The band of a fit that the size falls into; factors on slopes, constants, the first band's end."""
        bands = self.fits[p]
        wire = (p - 1) / p / self.engine.fitted_at  # least that a byte takes on the fitted links [s/B]
        key = (id(bands), as_key(slower), as_key(wire), as_key(later), wider)
        if key not in self.on.columns:
            self.on.columns[key] = scaled_columns(bands, slower, wire, later, wider)
        up_to, constant, slope, quadratic, before, shortest = self.on.columns[key]
        band = band_of(up_to, size)
        at_least = of_band(before, band)
        if np.any(shortest):
            at_least = np.maximum(at_least, shortest * size)
        time: Num = self.on.ledger.run(
            label, collectives.band_time, size=size, constant=of_band(constant, band),
            slope=of_band(slope, band), quadratic=of_band(quadratic, band), at_least=at_least,
        )  # fmt: skip
        return time
