r"""A message-size curve from its points: how many bands, of which form, where they end.

A band is a floor, a line or a quadratic ramp over sizes. Every way to cut the sizes into up to three bands
is fitted (in one batch), and the one with the least Bayesian information criterion is kept, then refined
on the logarithm of times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.fitting.robust import Fit, Mask, Numbers, fit

MOST_BANDS = 3
"""Up to two cliffs; a third would need more points than benchmarks have."""
BREAK = 2.0
"""What a place to cut counts as, in parameters: Zhang and Siegmund, Biometrics 63, 2007."""
CURVED = 0.5
"""What a curvature counts as beside its one parameter: it is looked for in several bands."""
SPREADS = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Usual sizes of residuals that are tried; the likeliest one counts."""
WILD, WIDE = 0.02, 6.0
"""Share of rows that are anything, and how far they may be off [log]: no outlier may buy a band."""
FREE = 3
"""Rows beyond its parameters that a curve of several bands must have."""
FORMS = {"floor": 1, "line": 2, "ramp": 3}
"""Form -> its number of terms: constant, linear, quadratic."""
SIZES_NEEDED = {"floor": 2, "line": 3, "ramp": 5}
"""Distinct sizes below which a form would follow noise."""
MOST_MARKS = 28
"""Places looked at for cuts; of more sizes than that, all those near the best places are looked at again."""
_ROUNDS = 7
"""Times that the weights of the batch are renewed."""


@dataclass(frozen=True)
class Piece:
    """One band: its form, its sizes up to ``up_to`` (inf for the last), its three coefficients.

    ``between`` are the sizes between which it ends, as far as the points tell. [B]
    """

    form: str
    coefficients: Numbers
    up_to: float
    between: tuple[float, float]
    fit: Fit

    def __call__(self, size: Numbers) -> Numbers:
        """Time of sizes inside. [s]"""
        c, s, q = self.coefficients
        return np.asarray(c + s * size + q * size**2)


@dataclass(frozen=True)
class Pieces:
    """A whole curve: its bands, what choosing them cost and what a single line would have."""

    bands: tuple[Piece, ...]
    criterion: float
    criterion_of_a_line: float

    def __call__(self, size: Numbers) -> Numbers:
        """Time of any size; it never falls with size. [s]"""
        ends = np.array([band.up_to for band in self.bands[:-1]])
        at = np.searchsorted(ends, size)
        reached = [0.0, *itertools.accumulate((float(b(np.array(b.up_to))) for b in self.bands[:-1]), max)]
        times = np.choose(at, [np.maximum(b(size), r) for b, r in zip(self.bands, reached, strict=True)])
        return np.asarray(times)

    @property
    def words(self) -> str:
        """The forms in order, such as ``floor, ramp, line``."""
        return ", ".join(band.form for band in self.bands)


def fit_bands(size: Numbers, time: Numbers, forms: Sequence[str] = ()) -> Pieces:
    """Choose and fit the bands of a curve.

    Parameters
    ----------
    size, time : array, shape (n,)
        Points of at least three distinct sizes, in any order; a size may stand several times. [B], [s]
    forms : sequence of str
        The forms of the bands where they are known, such as CANN's floor, ramp, line; else the data choose.

    Returns
    -------
    Pieces
        Bands from small to large. A band ends where it meets the next one, if that is between the sizes on
        either side; else at its last size, the largest known to be as fast.

    Raises
    ------
    ValueError
        Fewer than three distinct sizes, or too few for the given forms.

    References
    ----------
    Schwarz, "Estimating the dimension of a model", 1978.

    Examples
    --------
    >>> size = 2.0 ** np.arange(12, 31)
    >>> time = np.where(size <= 2.0**22, 2e-5 + size / 1e11, 1.2e-4 + size / 1.5e11)
    >>> curve = fit_bands(size, time)
    >>> curve.words, curve.bands[0].up_to == 2.0**22, f"{1 / curve.bands[1].coefficients[1]:.3g}"
    ('line, line', True, '1.5e+11')
    """
    order = np.argsort(size, kind="stable")
    size, time = np.asarray(size, float)[order], np.asarray(time, float)[order]
    sizes, first = np.unique(size, return_index=True)
    if len(sizes) < 3:
        raise ValueError("a curve needs at least three sizes")
    edges = np.append(first, len(size))
    marks = _marks(len(sizes), ())
    choice, line = _chosen(_Table(size, time, sizes, edges, marks), tuple(forms))
    if len(marks) <= len(sizes):  # look at every size near the cuts
        marks = _marks(len(sizes), choice.cut[1:-1])
        choice, line = _chosen(_Table(size, time, sizes, edges, marks), tuple(forms))
    return Pieces(_refined(size, time, sizes, edges, choice), choice.criterion, line.criterion)


@dataclass(frozen=True)
class _Choice:
    """Forms of bands and the sizes, by number, at which they begin and end; what they cost."""

    criterion: float
    cut: tuple[int, ...]
    forms: tuple[str, ...]


def _marks(sizes: int, near: tuple[int, ...]) -> NDArray[np.intp]:
    """Numbers of the sizes at which a band may begin: all, or `MOST_MARKS` of them and all ``near`` some."""
    step = max(1, math.ceil(sizes / MOST_MARKS))
    close = {n for cut in near for n in range(max(cut - step, 0), min(cut + step, sizes))}
    return np.array(sorted({*range(0, sizes, step), *close, sizes}))


def _chosen(table: _Table, forms: tuple[str, ...]) -> tuple[_Choice, _Choice]:
    """The best choice, or the best cuts of given forms; and a single line."""
    choices = [choice for spread in SPREADS for choice in table.choices(spread)]
    wanted = [choice for choice in choices if not forms or choice.forms == forms]
    if not wanted:
        raise ValueError(f"too few sizes for {', '.join(forms)}, or no form that a curve may end with")
    lines = [choice for choice in choices if len(choice.forms) == 1]
    return min(wanted, key=lambda choice: choice.criterion), min(lines, key=lambda choice: choice.criterion)


class _Table:
    """Every stretch of sizes between two marks under every form, fitted in one batch."""

    def __init__(
        self,
        size: Numbers,
        time: Numbers,
        sizes: Numbers,
        edges: NDArray[np.intp],
        marks: NDArray[np.intp],
    ) -> None:
        self.rows, self.marks = len(size), marks
        self.starts, self.ends = np.triu_indices(len(marks) - 1)
        self.ends = self.ends + 1
        self.sizes_in = marks[self.ends] - marks[self.starts]
        rows = np.arange(self.rows)
        first, last = edges[marks[self.starts]], edges[marks[self.ends]]
        self.inside: Mask = (rows >= first[:, None]) & (rows < last[:, None])
        self.size, self.time = size, time
        self.usual = _usual(time, edges)
        self.largest = sizes[marks[self.ends] - 1]
        self.residuals = {form: self._fitted(form) for form in FORMS}

    def _fitted(self, form: str) -> Numbers:
        """Relative residuals of all stretches, shape (stretches, rows); infinite where a form cannot be."""
        x = self.size / self.largest[:, None]
        best, cost = np.full(x.shape, np.inf), np.full(len(x), np.inf)
        for kept in _subsets(FORMS[form]):
            basis = np.stack([x**power for power in kept], axis=-1) / self.usual[:, None]
            coefficients, left = _reweighted(basis, self.time / self.usual, self.inside)
            allowed = _allowed(coefficients, kept) & (self.sizes_in >= SIZES_NEEDED[form])
            total = np.where(allowed, _unlikely(left, 0.05, self.inside), np.inf)
            better = total < cost
            best[better], cost[better] = left[better], total[better]
        return best

    def choices(self, spread: float) -> Iterator[_Choice]:
        """The best cuts for every sequence of forms, a single line first."""
        costs = {form: self._costs(form, spread) for form in FORMS}
        end = len(self.marks) - 1
        for many in range(MOST_BANDS):
            for forms in itertools.product(FORMS, repeat=many):
                terms = sum(FORMS[form] for form in (*forms, "line"))
                if forms.count("ramp") > 1 or (many and self.rows < terms + many + FREE):
                    continue
                total, at = _cheapest([costs[form] for form in forms], costs["line"][:, end])
                if math.isfinite(total):
                    price = (terms + CURVED * forms.count("ramp") + BREAK * many) * math.log(self.rows)
                    cut = tuple(self.marks[[0, *at, end]].tolist())
                    yield _Choice(total + price, cut, (*forms, "line"))

    def _costs(self, form: str, spread: float) -> Numbers:
        """What every stretch costs, as a square over its ends."""
        square = np.full((len(self.marks),) * 2, np.inf)
        square[self.starts, self.ends] = _unlikely(self.residuals[form], spread, self.inside)
        return square


def _cheapest(inner: list[Numbers], last: Numbers) -> tuple[float, list[int]]:
    """Least sum of stretches from mark 0 on, and the marks between them."""
    reached, back = np.where(np.arange(len(last)) == 0, 0.0, np.inf), []
    for costs in inner:
        sums = reached[:, None] + costs
        back.append(np.argmin(sums, axis=0))
        reached = np.min(sums, axis=0)
    at = [int(np.argmin(reached + last))]
    total = float((reached + last)[at[0]])
    for came in back[:0:-1]:
        at.insert(0, int(came[at[0]]))
    return total, at if inner else []


def _usual(time: Numbers, edges: NDArray[np.intp]) -> Numbers:
    """A time that no single row decides: the median around each size."""
    middle = [
        np.median(time[edges[max(i - 1, 0)] : edges[min(i + 2, len(edges) - 1)]])
        for i in range(len(edges) - 1)
    ]
    return np.repeat(np.array(middle), np.diff(edges))


def _subsets(terms: int) -> list[tuple[int, ...]]:
    """Powers of size that are kept: all, and those of a line that would be negative left out."""
    return [(0,)] if terms == 1 else [(0, 1), (1,), (0,)] if terms == 2 else [(0, 1, 2)]


def _allowed(coefficients: Numbers, kept: tuple[int, ...]) -> Mask:
    """Constant and slope are not negative, and time rises up to the end (x = 1)."""
    fine = np.all(coefficients[:, : min(len(kept), 2)] >= 0.0, axis=-1)
    if len(kept) == 3:
        fine &= coefficients[:, 1] + 2.0 * coefficients[:, 2] >= 0.0
    return np.asarray(fine)


def _reweighted(basis: Numbers, wanted: Numbers, inside: Mask) -> tuple[Numbers, Numbers]:
    """Iteratively reweighted least squares of many stretches at once, weights of the soft-L1 loss.

    ``basis`` has shape (stretches, rows, terms); returns coefficients and residuals.
    """
    weights = inside.astype(float)
    basis = np.broadcast_to(basis, (*inside.shape, basis.shape[-1]))
    eye = 1e-12 * np.eye(basis.shape[-1])
    for _ in range(_ROUNDS):
        weighted: Any = basis * weights[..., None]
        normal = np.swapaxes(weighted, -1, -2) @ basis
        size = np.trace(normal, axis1=-2, axis2=-1)[:, None, None]
        right = np.swapaxes(weighted, -1, -2) @ wanted[:, None]
        coefficients = np.linalg.solve(normal + eye * size, right)[..., 0]
        left = np.einsum("srt,st->sr", basis, coefficients) - wanted
        weights = inside / np.sqrt(1.0 + (left / 0.05) ** 2)
    return coefficients, left


def _unlikely(left: Numbers, spread: float, inside: Mask) -> Numbers:
    """Twice the negative log-likelihood of residuals, normal but for a few; infinite without a fit."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        normal = np.exp(-0.5 * (left / spread) ** 2) / (spread * math.sqrt(2.0 * math.pi))
        total = -2.0 * np.sum(np.log((1.0 - WILD) * normal + WILD / WIDE), axis=-1, where=inside)
    return np.where(np.isinf(left).any(axis=-1), np.inf, total)


# --- the chosen bands, each on the logarithm of its times


def _refined(
    size: Numbers, time: Numbers, sizes: Numbers, edges: NDArray[np.intp], choice: _Choice
) -> tuple[Piece, ...]:
    cut, found = choice.cut, []
    for form, start, end in zip(choice.forms, cut, cut[1:], strict=False):
        rows = slice(int(edges[start]), int(edges[end]))
        found.append((form, *fit_form(form, size[rows], time[rows])))
    pieces = []
    for at, (form, coefficients, fitted) in enumerate(found):
        between, up_to = (float(sizes[cut[at + 1] - 1]), math.inf), math.inf
        if at + 1 < len(found):
            between = (between[0], float(sizes[cut[at + 1]]))
            up_to = _meeting(found[at + 1][1] - coefficients, between) or between[0]
        pieces.append(Piece(form, coefficients, up_to, between, fitted))
    return tuple(pieces)


def fit_form(form: str, size: Numbers, time: Numbers) -> tuple[Numbers, Fit]:
    """Fit one band on the logarithm of its times.

    Parameters
    ----------
    form : str
        ``floor``, ``line`` or ``ramp``.
    size, time : array, shape (n,)
        Its points. [B], [s]

    Returns
    -------
    tuple
        Its constant [s], slope [s/B] and curvature [s/B^2], and the fit of those it has.
    """
    terms, largest = FORMS[form], float(size.max())
    powers = np.arange(terms)
    unit = largest**powers
    x = (size[:, None] / largest) ** powers
    start = _start(x, time)
    least, most = np.zeros(terms), np.full(terms, np.inf)
    if terms == 3:
        least[2] = -np.inf
    fitted = fit(lambda p: x @ p, time, start, least, most)
    told = np.where(np.abs(fitted.values) < 1e-6 * time.min(), 0.0, fitted.values)  # the solver keeps off 0
    scaled = replace(
        fitted, values=told / unit, low=fitted.low / unit, high=fitted.high / unit, half=fitted.half / unit
    )
    coefficients = np.zeros(3)
    coefficients[:terms] = scaled.values
    return coefficients, scaled


def _start(x: Numbers, time: Numbers) -> Numbers:
    """The reweighted solution, kept positive."""
    everything = np.ones((1, len(time)), bool)
    coefficients, _ = _reweighted(x[None] / time[:, None], np.ones(len(time)), everything)
    floor = 1e-3 * float(np.median(time))
    return np.concatenate([np.maximum(coefficients[0][:2], floor), coefficients[0][2:]])


def _meeting(difference: Numbers, between: tuple[float, float]) -> float | None:
    """The size inside ``between`` where two bands agree."""
    c, s, q = difference
    roots = np.roots([q, s, c]) if np.any(difference) else np.array([])
    real = [float(root.real) for root in np.atleast_1d(roots) if abs(root.imag) <= 1e-9 * abs(root.real)]
    return next((root for root in real if between[0] <= root < between[1]), None)
