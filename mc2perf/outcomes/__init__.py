"""Schedules laid over the rows of a study, one file for each family of them.

Each becomes an :class:`mc2perf.outcomes.outcome.Outcome`, whose arrays broadcast to (rows, counts); a single
estimate is a study of one row.
"""

from __future__ import annotations

from collections.abc import Callable

from mc2perf.outcomes.batches import dual_batch, micro_batch
from mc2perf.outcomes.coc import coc
from mc2perf.outcomes.mc2 import mc2
from mc2perf.outcomes.outcome import Outcome
from mc2perf.study import Study

OUTCOMES: dict[str, Callable[[Study, Outcome], Outcome]] = {
    "serial": lambda study, serial: serial,
    "mc2": mc2,
    "micro_batch": micro_batch,
    "coc": coc,
    "dual_batch": dual_batch,
}
"""Schedule -> how it is laid over a study."""
