r"""Least squares on the logarithm of times, with a loss that outliers cannot dominate.

Times span orders of magnitude and their noise grows with them, so what is fitted is
:math:`\log(\text{predicted} / \text{measured})`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONFIDENCE = 0.95
"""Chance that an interval covers the true value."""
OUTLYING = 4.0
"""A residual of so many times the usual spread is an outlier."""
LEAST_SPREAD = 0.002
"""Printed times are rounded; smaller residuals say nothing about noise."""
_TINY = 1e-300


@dataclass(frozen=True)
class Fit:
    """Parameters with intervals, and what the fit leaves.

    ``low`` and ``high`` bound each parameter at the confidence of `CONFIDENCE` and within what it may be;
    ``half`` is half of the interval without these bounds. ``residuals`` are log(predicted / measured),
    ``spread`` their usual size.
    """

    values: Numbers
    low: Numbers
    high: Numbers
    half: Numbers
    residuals: Numbers
    spread: float

    @property
    def outliers(self) -> Mask:
        """Rows that the fit does not explain."""
        return np.asarray(np.abs(self.residuals) > OUTLYING * self.spread)

    @property
    def width(self) -> Numbers:
        """Half of each interval over the value: above 1 a parameter may as well be nothing."""
        return np.asarray(self.half / np.maximum(np.abs(self.values), _TINY))


def fit(
    predict: Callable[[Numbers], Numbers],
    measured: Numbers,
    start: Numbers,
    least: Numbers,
    most: Numbers,
) -> Fit:
    """Find the parameters whose predicted times are nearest to measured ones.

    Parameters
    ----------
    predict : callable
        Parameters, shape (p,), to times, shape (n,), all above 0. [s]
    measured : array, shape (n,)
        Measured times, above 0. [s]
    start, least, most : array, shape (p,)
        Where to start, and the bounds; a start outside is moved inside.

    Returns
    -------
    Fit
        With fewer rows than parameters plus one, intervals are infinite.

    Notes
    -----
    SciPy's ``least_squares`` with soft-L1 loss, twice: the second time its scale is the spread of the
    residuals of the first. The covariance is that of M-estimators: Huber, "Robust Statistics", 1981, 7.6.

    Examples
    --------
    >>> size = np.geomspace(1e3, 1e8, 16)
    >>> time = 2e-5 + size / 1e11
    >>> time[3] *= 30.0
    >>> found = fit(lambda p: p[0] + size / p[1], time, *np.array([[1e-6, 1e9], [0.0, 1e6], [1.0, 1e15]]))
    >>> [f"{value:.4g}" for value in found.values], np.flatnonzero(found.outliers).tolist()
    (['2.004e-05', '1.001e+11'], [3])
    """
    from scipy.optimize import least_squares

    unit = np.where(start != 0.0, np.abs(start), 1.0)

    def residuals(x: Numbers) -> Numbers:
        return np.asarray(np.log(np.maximum(predict(x * unit), _TINY) / measured))

    inside = np.clip(start, least, most) / unit
    bounds = (least / unit, most / unit)
    x, scale = _nudged(inside, *bounds), 0.1
    for _ in range(2):
        found = least_squares(
            residuals,
            x,
            bounds=bounds,
            loss="soft_l1",
            f_scale=scale,
            x_scale="jac",
            ftol=1e-7,
            xtol=1e-7,
            max_nfev=100,
        )
        x = found.x
        left = residuals(x)
        scale = spread_of(left, len(x))
    half = _half_widths(_jacobian(residuals, x, *bounds), left, scale) * unit
    values = x * unit
    return Fit(values, np.maximum(values - half, least), np.minimum(values + half, most), half, left, scale)


def _nudged(x: Numbers, least: Numbers, most: Numbers) -> Numbers:
    """Off the bounds, where the solver could not see a slope."""
    span = np.where(np.isfinite(most - least), most - least, 1.0)
    return np.clip(x, least + 1e-9 * span, most - 1e-9 * span)


def spread_of(residuals: Numbers, parameters: int) -> float:
    """Usual size of residuals, whatever the outliers: the median deviation, scaled to a normal one.

    Examples
    --------
    >>> round(spread_of(np.array([-0.1, -0.05, 0.0, 0.05, 0.1, 9.0]), 0), 3)
    0.111
    """
    free = max(len(residuals) - parameters, 1)
    usual = 1.4826 * float(np.median(np.abs(residuals)))
    return max(usual * math.sqrt(len(residuals) / free), LEAST_SPREAD)


def _jacobian(residuals: Callable[[Numbers], Numbers], x: Numbers, least: Numbers, most: Numbers) -> Numbers:
    """Central differences, one-sided at a bound."""
    columns = []
    for i, value in enumerate(x):
        step = 1e-5 * max(abs(value), 1e-6)
        up, down = x.copy(), x.copy()
        up[i], down[i] = min(value + step, most[i]), max(value - step, least[i])
        columns.append((residuals(up) - residuals(down)) / max(up[i] - down[i], _TINY))
    return np.stack(columns, axis=-1)


def _half_widths(jacobian: Numbers, residuals: Numbers, scale: float) -> Numbers:
    """Half of the intervals of an M-estimator with soft-L1 loss."""
    from scipy.special import stdtrit

    n, p = jacobian.shape
    if n <= p:
        return np.full(p, np.inf)
    bent = 1.0 + (residuals / scale) ** 2
    influence, slope = residuals / np.sqrt(bent), bent**-1.5
    variance = np.sum(influence**2) / (n - p) / max(float(np.mean(slope)), 0.05) ** 2
    norms = np.linalg.norm(jacobian, axis=0)
    told = norms > 1e-9
    width = np.full(p, np.inf)
    if told.any():
        scaled: Any = jacobian[:, told] / norms[told]
        information = scaled.T @ scaled
        regular = np.linalg.cond(information) < 1e14
        inverse = np.linalg.pinv(information, hermitian=True) if not regular else np.linalg.inv(information)
        deviation = np.sqrt(np.maximum(np.diag(inverse), 0.0) * variance) / norms[told]
        width[told] = deviation * float(stdtrit(n - p, 0.5 + CONFIDENCE / 2.0))
        if not regular:
            width[told] = np.inf
    return width


def explained(measured: Numbers, residuals: Numbers) -> float:
    """R2 of the logarithm of times: share of their variance that a fit explains.

    Examples
    --------
    >>> explained(np.array([1.0, 10.0, 100.0]), np.zeros(3))
    1.0
    """
    logs = np.log(measured)
    around = float(np.sum((logs - logs.mean()) ** 2))
    return 1.0 - float(np.sum(residuals**2)) / around if around > 0.0 else 0.0
