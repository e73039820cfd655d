"""Bands of fitted curves as columns: stacked, scaled, looked up; where a curve jumps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mc2perf.machine.links import Band
from mc2perf.units import Num


def stacked(numbers: Sequence[Num]) -> NDArray[np.float64]:
    """Numbers one after the other, shape (numbers,); columns below each other, shape (numbers, rows, 1)."""
    if any(map(np.ndim, numbers)):
        return np.stack(np.broadcast_arrays(*(np.atleast_2d(number) for number in numbers)))
    return np.array([float(number) for number in numbers])


def alike(columns: Sequence[NDArray[np.float64]], factors: Sequence[Num] = ()) -> list[NDArray[np.float64]]:
    """Columns of the same number of axes: rows join where one of them, or a factor, has rows."""
    rows = any(column.ndim > 1 for column in columns) or any(map(np.ndim, factors))
    return [c.reshape(-1, 1, 1) if rows and c.ndim == 1 else c for c in columns]


def scaled_columns(
    bands: tuple[Band, ...], slower: Num, wire: Num, later: Num, wider: float
) -> list[NDArray[np.float64]]:
    """The bands of a curve as columns, scaled to links and ranks, and what the bands before reach.

    The first band ends where the algorithm for small shares does; later ones where bandwidth takes over,
    which is a matter of the whole array. Last comes the time per byte that slower links need at least: short
    messages that wait for the start only would else pass them at any rate.
    """
    names = ("up_to", "constant", "slope", "quadratic")
    columns = alike([stacked([getattr(band, name) for band in bands]) for name in names], (slower, later))
    columns[1] = columns[1] * later
    columns[0] = np.concatenate([columns[0][:1] * wider, columns[0][1:]])
    columns[0] = np.maximum.accumulate(columns[0])
    # a fit that is faster than the wires say stays so on slower ones
    least = np.minimum(_least_per_byte(columns), wire)
    shortest = np.where(np.greater(slower, 1.0), slower * least, 0.0)
    columns[2:] = [column * slower for column in columns[2:]]
    return [*columns, _reached_before(columns), shortest]


def _reached_before(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """What the bands before each reach. [s]"""
    up_to, constant, slope, quadratic = (column[:-1] for column in columns)
    ends = constant + slope * up_to + quadratic * up_to**2
    return np.maximum.accumulate(np.concatenate([np.zeros((1, *ends.shape[1:])), ends]))


def _least_per_byte(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Time per byte of the size that passes fastest: at the end of a band, or beyond all. [s/B]"""
    ends = _reached_before(columns)[1:] / columns[0][:-1]
    least: NDArray[np.float64] = np.minimum(np.min(ends, axis=0, initial=np.inf), columns[2][-1])
    return least


def band_of(up_to: NDArray[np.float64], size: Num) -> NDArray[np.intp]:
    """The band that a size falls into; up to and with its end."""
    if up_to.ndim == 1:
        return np.asarray(np.searchsorted(up_to, size))
    return np.asarray(np.sum(_beside(up_to, np.ndim(size)) < size, axis=0))


def of_band(column: NDArray[np.float64], band: NDArray[np.intp]) -> Num:
    """The number of a band, of every row where rows differ."""
    if column.ndim == 1:
        return column[band]
    column = _beside(column, band.ndim)
    shape = np.broadcast_shapes(column.shape[1:], band.shape)
    laid = np.broadcast_to(column, (len(column), *shape))
    taken: Num = np.take_along_axis(laid, np.broadcast_to(band, shape)[None], axis=0)[0]
    return taken


def _beside(column: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Bands first, then as many axes as sizes have: those of experts may stand before those of rows."""
    more = (1,) * (axes + 1 - column.ndim)
    return column.reshape(len(column), *more, *column.shape[1:])


def ends_of(fits: Mapping[int, tuple[Band, ...]], ranks: float) -> NDArray[np.float64]:
    """Where the bands of all fits end, shape (ends,) or (rows, ends). [B]"""
    ends = [b.up_to * wider for p, fit in fits.items() for b in fit for wider in (1.0, ranks / p)]
    finite = stacked([end for end in ends if np.all(np.isfinite(end))] or [math.inf])
    if finite.ndim == 1:
        return np.unique(finite[np.isfinite(finite)])
    return np.moveaxis(finite[..., 0], 0, -1)


def jumps(at: NDArray[np.float64], jump: NDArray[np.bool_]) -> list[Num]:
    """The ends at which a curve jumps; of every row, infinite where only other rows do."""
    if jump.ndim == 1:
        return list(at[jump].tolist())
    edges = np.where(jump, at, np.inf)
    return [edges[:, [i]] for i in np.flatnonzero(jump.any(axis=0))]


def cut_where(
    over: NDArray[np.bool_], time: Num, size: NDArray[np.float64], edge: Num, price: Callable[[Num], Num]
) -> Num:
    """Times of messages, those over an edge sent in parts if that is faster; only these are priced again."""
    if np.ndim(edge):  # every row has an edge of its own
        whole = np.where(over, np.ceil(size / edge), 1.0)
        return np.where(over, np.minimum(time, whole * price(size / whole)), time)
    times = np.array(np.broadcast_to(time, size.shape))
    parts = np.ceil(size[over] / edge)
    times[over] = np.minimum(times[over], parts * price(size[over] / parts))
    return times


def as_key(number: Num) -> object:
    """What a number is remembered by; a column by what it holds."""
    return number.tobytes() if isinstance(number, np.ndarray) else number
