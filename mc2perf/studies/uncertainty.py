"""How far the numbers of a profile may be off, and what that makes of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.quantity import Quantity
from mc2perf.units import Dim, parse
from mc2perf.variation import Parameter

Numbers = NDArray[np.float64]

UNCERTAINTY: dict[str, float] = {
    "datasheet": 0.02,
    "measured": 0.05,
    "fitted": 0.10,
    "vendor_model": 0.15,
    "assumed": 0.30,
}
"""Kind of a number -> how far it is off, one standard deviation, relative: assumptions of this tool."""

PROBABLE, TWO_SIDED = 0.6745, 1.96
"""Standard deviations of a normal error: its median size, and the ends of 95 %."""

_MEDIAN = re.compile(r"median error ([\d.]+) %")
_INTERVAL = re.compile(r"95 %: (\S+(?: \S+)?) to (\S+(?: [^\s;,]+)?)")


class Spread(NamedTuple):
    """The tenth, the middle and the ninetieth of a hundred."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def of(cls, values: Numbers) -> Spread:
        """Of values that are equally likely."""
        return cls(*np.percentile(values, [10.0, 50.0, 90.0]).tolist())


@dataclass(frozen=True)
class Uncertainty:
    """One standard deviation of the numbers of each kind, relative.

    What a fitted number states of itself in its reference goes before its kind, unless its kind was ``asked``
    for: a 95 % interval, or the median error of the fit.
    """

    kinds: Mapping[str, float] = field(default_factory=lambda: UNCERTAINTY)
    asked: frozenset[str] = frozenset()

    def of(self, quantity: Quantity) -> float:
        """One standard deviation over the value."""
        stated = None if quantity.kind in self.asked else stated_uncertainty(quantity)
        return self.kinds[quantity.kind] if stated is None else stated


def stated_uncertainty(quantity: Quantity) -> float | None:
    """One standard deviation over the value, as a fitted number's reference states it.

    Examples
    --------
    >>> stated_uncertainty(Quantity(1e-5, "s", "fitted", "a.txt; 95 %: 9 us to 11 us"))
    0.0510204...
    >>> stated_uncertainty(Quantity(0.8, "1", "fitted", "39 kernels: median error 3 %, 90 % within 15 %"))
    0.0444773...
    >>> stated_uncertainty(Quantity(0.8, "1", "assumed", "another part: median error 3 %"))
    """
    if quantity.kind != "fitted":
        return None
    if found := _MEDIAN.search(quantity.ref):
        return float(found[1]) / 100.0 / PROBABLE
    if (found := _INTERVAL.search(quantity.ref)) and quantity > 0.0:
        dim = Dim(quantity.symbol, "an end", signed=True, example="1")
        with suppress(ValueError):
            low, high = parse(found[1], dim), parse(found[2], dim)
            return abs(high - low) / (2.0 * TWO_SIDED) / quantity
    return None


def sampled(
    found: Sequence[Parameter], uncertainty: Uncertainty, count: int, seed: int = 0
) -> dict[str, Numbers]:
    """Values of uncertain parameters: log-normal around the profile's, each on its own.

    Parameters
    ----------
    found : sequence of Parameter
        Parameters; those that are exact are left out.
    uncertainty : Uncertainty
        How far numbers are off.
    count : int
        Samples, a Latin hypercube: every parameter passes its whole distribution evenly.
    seed : int
        The same seed gives the same samples.

    Returns
    -------
    dict
        Path to values, shape (count,); a value outside its range becomes the nearest inside.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    uncertain = [p for p in found if not p.exact]
    if not uncertain:
        return {}
    chance = qmc.LatinHypercube(len(uncertain), seed=np.random.default_rng(seed)).random(count)
    normal = ndtri(np.clip(chance, 1e-12, 1.0 - 1e-12))
    widths = [np.log1p(uncertainty.of(p.quantity)) for p in uncertain]
    return {
        p.path: np.asarray(p.within(p.quantity * np.exp(width * z)))
        for p, width, z in zip(uncertain, widths, normal.T, strict=True)
    }
