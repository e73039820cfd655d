"""Of many counts the best of each row, and which are as good."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.units import Num

FLAT = 0.02
"""Counts whose time is within this share of the best are reported as equally good."""

Numbers = NDArray[np.floating[Any]]


def best_count(time: Numbers, refused: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Index of the smallest time that is not refused, shape (rows, 1); the first of equals."""
    best: NDArray[np.intp] = np.argmin(np.where(refused, np.inf, time), axis=-1, keepdims=True)
    return best


def at_count(values: Num, index: NDArray[np.intp]) -> Numbers:
    """Values of shape (rows or 1, counts or 1) at one count of each row, shape (rows, 1)."""
    values = np.asarray(values)
    if values.ndim < 2 or values.shape[-1] == 1:
        return values
    rows = np.broadcast_to(values, (len(index), values.shape[-1]))
    taken: Numbers = np.take_along_axis(rows, index, axis=-1)
    return taken
