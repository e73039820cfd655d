"""How far the numbers of a profile may be off, and what that makes of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.machine import Quantity
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


class Spread(NamedTuple):
    """The tenth, the middle and the ninetieth of a hundred."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def of(cls, values: Numbers) -> Spread:
        """Of values that are equally likely."""
        return cls(*np.percentile(values, [10.0, 50.0, 90.0]).tolist())


def relative_uncertainty(quantity: Quantity, kinds: Mapping[str, float]) -> float:
    """One standard deviation over the value: what the profile states, else what its kind stands for."""
    stated = getattr(quantity, "uncertainty", None)
    return float(stated) if stated is not None else kinds[quantity.kind]


def sampled(
    found: Sequence[Parameter], kinds: Mapping[str, float], count: int, seed: int = 0
) -> dict[str, Numbers]:
    """Values of uncertain parameters: log-normal around the profile's, each on its own.

    Parameters
    ----------
    found : sequence of Parameter
        Parameters; those that are exact are left out.
    kinds : mapping
        Kind of a number to its relative uncertainty.
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
    widths = [np.log1p(relative_uncertainty(p.quantity, kinds)) for p in uncertain]
    return {
        p.path: np.asarray(p.within(p.quantity * np.exp(width * z)))
        for p, width, z in zip(uncertain, widths, normal.T, strict=True)
    }
