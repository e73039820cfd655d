"""Tokens by expert, and by layer where the file says so: a table with a header."""

from __future__ import annotations

from mc2perf.measured import ExpertLoad, Measured
from mc2perf.readers.measured.cells import Column, has, rows
from mc2perf.readers.measured.source import Format, Source, Tally
from mc2perf.units import WIDTH

MOST_EXPERTS = 100_000
"""A larger number of an expert is none."""

COLUMNS = {
    "expert": Column(("expert", "expert_id"), WIDTH),
    "tokens": Column(("tokens", "num_tokens", "count"), WIDTH),
    "layer": Column(("layer", "layer_id"), WIDTH, needed=False),
}


def read(source: Source) -> Measured:
    """Read token counts; rows of an expert that stands twice in a layer add up.

    Returns
    -------
    Measured
        `ExpertLoad`: layers by number, experts from 0 on; an expert without a row has no tokens.

    Raises
    ------
    InputError
        Missing columns, and no row that can be used.
    """
    tally, counts = Tally(source), dict[int, dict[int, float]]()
    for line, row in rows(source, COLUMNS, tally):
        expert, layer = int(row["expert"]), int(row["layer"] or 0)
        if expert >= MOST_EXPERTS:
            tally.aside("no number of an expert", f"line {line}")
            continue
        found = counts.setdefault(layer, {})
        found[expert] = found.get(expert, 0.0) + row["tokens"]
        tally.read += 1
    last = max((expert for found in counts.values() for expert in found), default=0)
    layers = [
        tuple(found.get(expert, 0.0) for expert in range(last + 1))
        for _, found in sorted(counts.items())
        if any(found.values())
    ]
    tally.insist("rows")
    tally.note("experts are numbered from 0")
    if not layers:
        tally.read = 0
        tally.aside("no tokens at all", "every row")
    return tally.close("expert_counts", "rows", ExpertLoad(tuple(layers)))


FORMAT = Format(
    "expert_counts",
    "a CSV with columns expert and tokens",
    lambda source: has(source, COLUMNS["expert"].names, COLUMNS["tokens"].names),
    read,
)
