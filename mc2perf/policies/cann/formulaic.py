"""The cut all of CANN's cost models share: many long tiles and one short one, first or last.

A long tile should take its engine as long as the short one takes the other. Then lengths are aligned, the
number of tiles is capped, and what is left over is tidied up.

References
----------
hicann/ops-transformer c29bc106, ``mc2/common/src/hccl_formulaic_tiling.cpp`` and its header.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from mc2perf.policies.cann import constants as c


@dataclass(frozen=True, kw_only=True)
class Job:
    """Rows to cut, and the limits of the cut.

    ``deep`` is K > N; ``linear`` says that matmul time follows the tile's rows; ``longest`` limits a tile;
    ``short_last`` places the short tile (None: last if computation is the bound).
    """

    rows: float
    short: float
    compute_bound: bool
    align: float
    cap: int = c.MAX_TILES
    longest: float = math.inf
    linear: bool = False
    local_first: bool = False
    deep: bool = False
    align_up: bool = False
    short_last: bool | None = None


class Cut(NamedTuple):
    """``number`` tiles of ``long`` rows and one of what is left, and the rule that decided."""

    long: float
    number: int
    rule: str = "balance"


class Tiles(NamedTuple):
    """Rows of the tiles in order of execution, and the rule that decided."""

    rows: tuple[float, ...]
    rule: str


NO_CUT = "no cut: fewer rows than two smallest tiles"


def rounds(rows: float, long: float) -> tuple[float, ...]:
    """Tiles of one length, and what is left last.

    Examples
    --------
    >>> rounds(5.0, 2.0)
    (2.0, 2.0, 1.0)
    """
    whole = int(rows // long)
    left = float(rows - whole * long)
    return (long,) * whole + ((left,) if left else ())


def down(rows: float, align: float) -> float:
    """Largest multiple not above.

    Examples
    --------
    >>> down(300.0, 128.0)
    256.0
    """
    return align * math.floor(rows / align)


def up(rows: float, align: float) -> float:
    """Smallest multiple not below.

    Examples
    --------
    >>> up(300.0, 128.0)
    384.0
    """
    return align * math.ceil(rows / align)


def cut_discrete(job: Job, long: float) -> Tiles:
    """Tiles of operators whose communication may be cut anywhere (all-gather, reduce-scatter, all-to-all).

    Parameters
    ----------
    job : Job
        Rows and limits.
    long : float
        Long tile that balances the short one.

    Returns
    -------
    Tiles
        Rows of the tiles in order, and the rule that decided.

    Examples
    --------
    >>> cut_discrete(Job(rows=1024, short=128, compute_bound=True, align=128, local_first=True), 238).rows
    (256.0, 256.0, 256.0, 256.0)
    """
    if job.rows < 2 * job.short:
        return Tiles((float(job.rows),), NO_CUT)
    cut = _capped(job, _shared(job, _first(job, long)), exact=True)
    return _tiles(job, _tidied(job, _aligned_short(job, cut)))


def cut_continuous(job: Job, long: float) -> Tiles:
    """Tiles of all-reduce.

    Parameters
    ----------
    job : Job
        Rows and limits.
    long : float
        Long tile that balances the short one.

    Returns
    -------
    Tiles
        Rows of the tiles in order, and the rule that decided.

    Examples
    --------
    >>> cut_continuous(Job(rows=4096, short=384, compute_bound=False, align=128), 750).rows
    (512.0, 896.0, 896.0, 896.0, 896.0)
    """
    if job.rows < 2 * job.short:
        return Tiles((float(job.rows),), NO_CUT)
    cut = _evened(job, _capped(job, _fewer(job, _redistributed(job, _first(job, long)))))
    if not job.compute_bound and cut.number == 1:
        short = min(up(job.rows - cut.long, job.align), job.rows - job.align)
        cut = Cut(job.rows - short, 1, "short tile aligned") if short > 0 else cut
    return _tiles(job, cut)


def _count(job: Job, long: float) -> int:
    return max(1, math.floor((job.rows - math.floor(c.SHORT_RATIO * job.short)) / long))


def _first(job: Job, long: float) -> Cut:
    """Limit and align the long tile; it is rounded up only if little is missing."""
    long = min(max(long, job.short), job.rows - job.short)
    kept = down(long, job.align)
    spare = job.align * (0.5 if job.compute_bound else 0.75)
    if long - kept > (0.0 if job.align_up else spare):
        kept += job.align
    long = max(job.align, min(kept, job.longest))
    return Cut(long, _count(job, long))


def _shared(job: Job, cut: Cut) -> Cut:
    """Share out what is left beside the tiles: equal tiles, or two longer ones, or one more long tile."""
    left = job.rows - cut.number * cut.long - job.short
    if left >= job.short and 2 * job.short >= cut.long and cut.number <= 2 and job.linear:
        long = up(job.short, job.align)
        return Cut(long, _count(job, long), "equal tiles")
    if cut.number == 1 and not job.local_first:
        return Cut(cut.long + max(0.0, down(left / 2, job.align)), 1, "two tiles")
    # "big" is read as: at least a short tile
    if left >= job.short and cut.long <= job.short + left:
        return Cut(cut.long, cut.number + 1, "one more long tile")
    return cut


def _capped(job: Job, cut: Cut, exact: bool = False) -> Cut:
    """At most ``cap`` tiles: equal ones if ``exact`` ones are wanted and aligned, else a short one again."""
    tiles = cut.number + (job.rows > cut.number * cut.long)
    if tiles <= job.cap:
        return cut
    equal = job.rows / job.cap
    long = equal if exact and equal % job.align == 0 else up(job.rows / (job.cap - 1), job.align)
    return Cut(long, math.floor(job.rows / long), f"cap of {job.cap} tiles")


def _aligned_short(job: Job, cut: Cut) -> Cut:
    """With tiles above 1024 rows the short one is aligned too, and the long ones follow.

    Read so: long tiles follow in whole rows, rounded up, whatever their alignment, and the short one is
    what is then left (gives 2036 + 13 x 2039 of 28543 rows on the 950). Aligned rows stay as they are.
    """
    short = job.rows - cut.number * cut.long
    if cut.long <= c.LARGE_TILE or short <= 0:
        return cut
    return cut._replace(long=math.ceil((job.rows - up(short, job.align)) / cut.number))


def _tidied(job: Job, cut: Cut) -> Cut:
    """No tail longer than a long tile: one more of them, or longer ones at the cap."""
    while job.rows - cut.number * cut.long > cut.long:
        if cut.number + 2 <= job.cap:
            cut = cut._replace(number=cut.number + 1)
        else:
            long = cut.long + job.align
            cut = Cut(long, math.floor(job.rows / long), cut.rule)
    return cut


def _redistributed(job: Job, cut: Cut) -> Cut:
    """Share what is left among the long tiles in whole blocks; the short one keeps the rest."""
    left = job.rows - cut.number * cut.long - job.short
    return cut._replace(long=cut.long + max(0.0, down(left / cut.number, job.align)))


def _fewer(job: Job, cut: Cut) -> Cut:
    """Tiles close to the matmul's minimum cost more than they hide."""
    many = job.rows > 8 * cut.long and cut.long < 2 * job.short
    if not (job.compute_bound and job.deep and many):
        return cut
    long = down(max(2 * job.short, job.rows / 8), job.align)
    return Cut(long, math.floor(job.rows / long), "fewer cuts: deep matmul")


def _evened(job: Job, cut: Cut) -> Cut:
    """A tail longer than a long tile and a block is shared by all tiles.

    Read so: the equal length of as many tiles, aligned up (gives 8 x 512 of 9 x 384 + 640 rows).
    """
    if job.rows - cut.number * cut.long <= cut.long + job.align:
        return cut
    long = up(job.rows / (cut.number + 1), job.align)
    return Cut(long, math.floor(job.rows / long), "long tail evened out")


def _tiles(job: Job, cut: Cut) -> Tiles:
    """Spell the tiles out; a tail below half a block joins its neighbour."""
    long, number = float(cut.long), cut.number
    short = float(job.rows - number * long)
    if 0 < short < job.align / 2:
        number, short = number - 1, short + long
    longs = (long,) * number
    if short <= 0:
        return Tiles(longs, cut.rule)
    last = job.compute_bound if job.short_last is None else job.short_last
    return Tiles((*longs, short) if last else (short, *longs), cut.rule)
