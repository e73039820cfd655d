"""Error bands of answers from the scores of published measurements."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from mc2perf.bands import Band, Like
from mc2perf.studies.validate.asked import RATES, TIMES, TOKEN_TIMES
from mc2perf.studies.validate.scores import Scored

WHOLE = (TIMES.keys() - {"serial_time", "matmul_time", "compute_time"}) | TOKEN_TIMES.keys() | RATES.keys()
"""Quantities that say how long the whole takes; gains and parts of it are off in other ways."""


def bands_of(values: Sequence[Scored]) -> tuple[Band, ...]:
    """A band for everything that open rows measured; a row counts once, by its largest error.

    Parameters
    ----------
    values : sequence of Scored
        Every scored value.
    """
    errors: defaultdict[Like, dict[str, float]] = defaultdict(dict)
    families: defaultdict[Like, set[str]] = defaultdict(set)
    for one in values:
        case = one.case
        if not case.row.open or case.value.quantity not in WHOLE or case.asked is None or not case.asked.like:
            continue
        of_row = errors[case.asked.like]
        of_row[case.row.id] = max(abs(one.error), of_row.get(case.row.id, 0.0))
        families[case.asked.like].add(case.family)
    return tuple(
        Band(
            like=like, rows=len(found), families=tuple(sorted(families[like])),
            median=_digits(median(found.values())), worst=_digits(max(found.values())),
        )
        for like, found in sorted(errors.items())
    )  # fmt: skip


def _digits(error: float) -> float:
    """A tenth of a per cent: more would change with every rounding."""
    return round(error, 3)


def to_json(bands: Sequence[Band]) -> str:
    """The file that is shipped: one line for each band."""
    lines = (json.dumps(vars(band) | {"like": list(band.like)}) for band in bands)
    return "[\n" + ",\n".join(lines) + "\n]\n"
