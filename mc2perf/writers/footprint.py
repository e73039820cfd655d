"""Memory of an NPU as a table: every part, its share, whether it fits, and what would make it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mc2perf.footprint import Footprint, shortfall
from mc2perf.studies.fit import Fit


def to_memory_table(footprint: Footprint, fits: Sequence[Fit] = (), style: str = "simple") -> str:
    """Text of a footprint of one row.

    Parameters
    ----------
    footprint : Footprint
        What is held.
    fits : sequence of Fit
        Changes to list below, if it does not fit.
    style : str
        ``simple`` for people, ``github`` for Markdown.

    Returns
    -------
    str
        A verdict, the parts with their share of the memory, the changes, the assumptions.

    Examples
    --------
    >>> from mc2perf.footprint import Part
    >>> parts = (Part("weights", np.array([[48e9]])), Part("KV cache", np.array([[8e9]])))
    >>> held = Footprint(parts=parts, capacity=64e9, stage=np.array([[0]]), stages=1, assumptions=())
    >>> print(to_memory_table(held))
    Fits: 56 of 64 GB per NPU: weights 48, KV cache 8
    <BLANKLINE>
    memory      size    share
    --------  ------  -------
    weights    48 GB    75.0%
    KV cache    8 GB    12.5%
    total      56 GB    87.5%
    free        8 GB    12.5%
    """
    from tabulate import tabulate  # costs 40 ms

    def table(rows: list[list[str]], headers: list[str]) -> str:
        align = ("left", *("right",) * (len(headers) - 1))
        return tabulate(rows, headers, tablefmt=style, colalign=align, disable_numparse=True)

    verdict = "Fits" if footprint.fits.all() else "Does not fit"
    blocks = [
        f"{verdict}: {shortfall(footprint)}",
        table(list(_parts(footprint)), ["memory", "size", "share"]),
    ]
    if fits:
        rate = ["tokens/s/NPU"] if fits[0].tokens_per_second else []
        blocks.append(
            table([_change(fit) for fit in fits], ["would fit with", "NPUs", "total", "share", *rate])
        )
    blocks.append("\n".join(f"assumes: {text}" for text in footprint.assumptions))
    return "\n\n".join(block for block in blocks if block)


def _parts(footprint: Footprint) -> Iterator[list[str]]:
    """Parts that hold something, their sum, what is left."""
    total, capacity = np.asarray(footprint.total).item(), footprint.capacity
    held = [(name, np.asarray(size).item()) for name, size in footprint.parts]
    left = ("free", capacity - total) if total <= capacity else ("missing", total - capacity)
    for name, size in (*(row for row in held if row[1]), ("total", total), left):
        yield [name, _gigabytes(size), f"{size / capacity:.1%}"]


def _change(fit: Fit) -> list[str]:
    total = np.asarray(fit.footprint.total).item()
    row = [fit.words, f"{fit.npus:g}", _gigabytes(total), f"{total / fit.footprint.capacity:.1%}"]
    rate = fit.tokens_per_second
    return [*row, f"{rate:,.0f}".replace(",", " ")] if rate else row


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.4g} GB"
