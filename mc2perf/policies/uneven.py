r"""The best lengths of pieces, where every piece costs a constant plus its share of the rows.

With a buffer for every piece, two stages take the longest path through them, Johnson's
:math:`\max_j (\sum_{i \le j} a_i + \sum_{i \ge j} b_i)`. Each path is linear in the lengths, so the lengths
that make the longest one shortest are a linear programme. Nothing cut into as many pieces is faster.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

import numpy as np

from mc2perf.problems import InputError

Order = Literal["comm_first", "compute_first"]
TIE = 1e-9
"""Relative difference below which two makespans are one; the solver is asked for a tenth of it."""


class Lengths(NamedTuple):
    """Rows of every piece, in order, and the makespan. [s]"""

    rows: tuple[float, ...]
    time: float


class _Stages(NamedTuple):
    """Affine times of a piece in both stages, and the computation beside them. [s], [s/row]"""

    alpha_first: float
    per_row_first: float
    alpha_second: float
    per_row_second: float
    head: float
    order: str

    def makespan(self, rows: tuple[float, ...]) -> float:
        """The longest path. [s]"""
        first = [self.alpha_first + self.per_row_first * x for x in rows]
        second = [self.alpha_second + self.per_row_second * x for x in rows]
        arrived = accumulate(first)
        remaining = list(accumulate(reversed(second)))[::-1]
        beside = self.head + sum(second if self.order == "comm_first" else first)
        return max(beside, *(a + b for a, b in zip(arrived, remaining, strict=True)))

    def floor(self, total_rows: float, pieces: int, least: float) -> float:
        """Neither stage can end sooner: all of its own, and one least piece of the other. [s]"""
        first = pieces * self.alpha_first + self.per_row_first * total_rows
        second = pieces * self.alpha_second + self.per_row_second * total_rows
        return max(
            first + self.alpha_second + self.per_row_second * least,
            second + self.alpha_first + self.per_row_first * least,
            (second if self.order == "comm_first" else first) + self.head,
        )


def best_lengths(
    total_rows: float,
    pieces: int,
    *,
    alpha_first: float,
    per_row_first: float,
    alpha_second: float,
    per_row_second: float,
    head: float = 0.0,
    order: Order = "comm_first",
    least: float = 0.0,
) -> Lengths:
    r"""Lengths of so many pieces with the smallest makespan of two stages.

    .. math::
        \min T:\quad T \ge \sum_{i \le j} a_i + \sum_{i \ge j} b_i \;\forall j,\quad
        T \ge h + \sum b_i,\quad \sum x_i = R,\quad x_i \ge x_{least}

    with :math:`a_i = \alpha_1 + \beta_1 x_i` and :math:`b_i = \alpha_2 + \beta_2 x_i`.

    Parameters
    ----------
    total_rows : float
        R > 0; what is cut.
    pieces : int
        n >= 1.
    alpha_first, alpha_second : float
        What every piece costs however short, per stage. [s]
    per_row_first, per_row_second : float
        Time of a row, per stage. [s]
    head : float
        Computation that needs no communication: before the pieces in ``comm_first``, after them in
        ``compute_first`` (then ``h + sum of a``). [s]
    order : "comm_first" or "compute_first"
        Which stage the computation is; without a head it makes no difference.
    least : float
        Shortest piece, in rows; at most R / n.

    Returns
    -------
    Lengths
        Not whole numbers (:func:`aligned`). Equal pieces where no other lengths are faster.

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    Needs a buffer for every piece and engines that do not slow each other down. Where the alphas are 0,
    all paths are equally long in a geometric row, each piece :math:`\beta_2/\beta_1` times the one before.

    References
    ----------
    Johnson, "Optimal two- and three-stage production schedules", 1954 (the longest path).

    Examples
    --------
    >>> best_lengths(
    ...     70.0, 3, alpha_first=0.0, per_row_first=1.0, alpha_second=0.0, per_row_second=2.0
    ... ).time
    150.0
    """
    stages = _Stages(alpha_first, per_row_first, alpha_second, per_row_second, head, order)
    _check(total_rows, pieces, stages, least)
    equal = (total_rows / pieces,) * pieces
    time = stages.makespan(equal)
    if time <= stages.floor(total_rows, pieces, least) or pieces == 1:
        return Lengths(equal, time)
    rows = _programme(total_rows, pieces, stages, least)
    found = stages.makespan(rows)
    return Lengths(rows, found) if found < time * (1.0 - TIE) else Lengths(equal, time)


def best_uneven(
    total_rows: float,
    most: int,
    *,
    alpha_first: float,
    per_row_first: float,
    alpha_second: float,
    per_row_second: float,
    head: float = 0.0,
    order: Order = "comm_first",
    least: float = 0.0,
) -> Lengths:
    """The best number of pieces with their best lengths.

    Parameters
    ----------
    total_rows : float
        R > 0; what is cut.
    most : int
        Largest number of pieces allowed, at least 1; never more than R / least.
    alpha_first, per_row_first, alpha_second, per_row_second, head, order, least
        As in :func:`best_lengths`.

    Returns
    -------
    Lengths
        The smallest makespan of 1 .. most pieces; fewer pieces where two tie.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> best = best_uneven(
    ...     70.0, 8, alpha_first=5.0, per_row_first=1.0, alpha_second=5.0, per_row_second=2.0
    ... )
    >>> [round(rows, 6) for rows in best.rows], round(best.time, 6)
    ([4.666667, 9.333333, 18.666667, 37.333333], 169.666667)
    """
    stages = _Stages(alpha_first, per_row_first, alpha_second, per_row_second, head, order)
    _check(total_rows, 1, stages, least, most)
    best = best_lengths(total_rows, 1, **stages._asdict(), least=least)
    for pieces in range(2, most + 1):
        # the floor only rises: no later number can win either
        if pieces * least > total_rows or stages.floor(total_rows, pieces, least) >= best.time:
            break
        found = best_lengths(total_rows, pieces, **stages._asdict(), least=least)
        best = found if found.time < best.time * (1.0 - TIE) else best
    return best


def _programme(total_rows: float, pieces: int, stages: _Stages, least: float) -> tuple[float, ...]:
    """Minimise the longest path over shares of the rows, in units of the equal pieces' makespan."""
    from scipy.optimize import linprog  # slow to import, and only this needs it

    scale = stages.makespan((total_rows / pieces,) * pieces)
    before = np.tri(pieces)  # row j: the pieces up to j; transposed, from j on
    work = (stages.per_row_first * before + stages.per_row_second * before.T) * (total_rows / scale)
    constant = (stages.alpha_first * before + stages.alpha_second * before.T).sum(axis=1) / scale
    # the chain with the head is a constant, since the sum of the rows is
    floor = stages.floor(total_rows, pieces, least) / scale
    solved = linprog(
        c=np.append(np.zeros(pieces), 1.0),
        A_ub=np.column_stack([work, -np.ones(pieces)]),
        b_ub=-constant,
        A_eq=np.append(np.ones(pieces), 0.0)[None],
        b_eq=[1.0],
        bounds=[(least / total_rows, None)] * pieces + [(floor, None)],
        method="highs",
        options={"primal_feasibility_tolerance": TIE / 10.0, "dual_feasibility_tolerance": TIE / 10.0},
    )
    assert solved.x is not None, solved.message  # equal pieces are feasible, and T has a floor
    rows = np.maximum(solved.x[:-1] * total_rows, least)
    rows[np.argmax(rows)] += total_rows - math.fsum(rows)  # what the solver's tolerance left over
    return tuple(rows.tolist())


def aligned(rows: tuple[float, ...], base: int) -> tuple[float, ...]:
    """Lengths rounded to multiples of a block, with the same sum.

    Parameters
    ----------
    rows : tuple of float
        Lengths, at least 0, whose sum is a whole number to rounding.
    base : int
        Rows of a block, at least 1.

    Returns
    -------
    tuple of float
        Whole blocks by the largest remainder, each less than a block from its length; pieces without
        rows are dropped. Rows beyond the last whole block stay together, in the last piece that is as long.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> aligned((100.0, 200.0, 400.0), 128)
    (128.0, 128.0, 444.0)
    """
    _check_aligned(rows, base)
    blocks, odd = divmod(round(math.fsum(rows)), base)
    holder = max((i for i, x in enumerate(rows) if x >= odd), default=rows.index(max(rows)))
    quotas = [max(0.0, x - odd * (i == holder)) / base for i, x in enumerate(rows)]
    whole = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(rows)), key=lambda i: whole[i] - quotas[i])
    for i in by_remainder[: blocks - sum(whole)]:
        whole[i] += 1
    lengths = (float(base * count + odd * (i == holder)) for i, count in enumerate(whole))
    return tuple(length for length in lengths if length > 0.0)


def _check(total_rows: float, pieces: int, stages: _Stages, least: float, most: int = 1) -> None:
    """Every number that is out of range, at once."""
    wrong = [
        f"{name}: {value!r} is out of range; write a finite number of at least 0"
        for name, value in {**stages._asdict(), "least": least}.items()
        if name != "order" and not 0.0 <= value < math.inf
    ]
    if stages.order not in get_args(Order):
        wrong.append(f"order: {stages.order!r} is none; write {' or '.join(get_args(Order))}")
    if not 0.0 < total_rows < math.inf:
        wrong.append(f"total_rows: {total_rows!r} is out of range; write a finite number above 0")
    if min(pieces, most) < 1:
        wrong.append(f"pieces: {min(pieces, most)} is too few; write at least 1")
    if pieces * least > total_rows:
        wrong.append(f"least: {pieces} pieces of {least} rows are more than {total_rows}; write less")
    if wrong:
        raise InputError(wrong)


def _check_aligned(rows: tuple[float, ...], base: int) -> None:
    """Lengths and a block that :func:`aligned` can round."""
    wrong = [] if base >= 1 else [f"base: {base} is no block; write at least 1"]
    wrong += [] if rows else ["rows: no piece; write at least one length"]
    wrong += [
        f"rows[{i}]: {x} is no length; write a finite number of at least 0"
        for i, x in enumerate(rows)
        if not 0.0 <= x < math.inf
    ]
    if wrong:
        raise InputError(wrong)
