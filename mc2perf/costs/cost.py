"""What a price consists of, and what an exchange of tokens carries."""

from __future__ import annotations

from typing import NamedTuple

from mc2perf.units import Num


class Cost(NamedTuple):
    """Time that grows with the work, fixed time of a launch, and the part of the work bound by memory. [s]"""

    work: Num
    launch: Num
    memory: Num = 0.0

    @property
    def time(self) -> Num:
        """Both together."""
        return self.work + self.launch


def joined(*costs: Cost) -> Cost:
    """Several kernels in a row, as one segment."""
    return Cost(*(sum(parts, 0.0) for parts in zip(*costs, strict=True)))


class Copies(NamedTuple):
    """What an all-to-all of tokens carries: copies of rows, and shares left where a place gets only one.

    ``per_rank`` is left where no rank gets a token twice, ``per_server`` where no server does.
    """

    rows: Num
    per_rank: Num
    per_server: Num


NO_ROWS = Copies(0.0, 1.0, 1.0)
"""Those of an array that is no tokens."""
