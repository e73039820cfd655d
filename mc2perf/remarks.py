"""What an answer must say beside its numbers: warnings with stable codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.answer import Remark, Row
from mc2perf.footprint import footprint_of
from mc2perf.legality import Said
from mc2perf.operators import OPERATORS
from mc2perf.outcomes.outcome import Outcome
from mc2perf.results import Results
from mc2perf.scenario import Scenario
from mc2perf.study import Study

Codes = NDArray[np.integer[Any]]

CLEARLY = 1.001
"""Times this close are equal: the rest is rounding."""

HIGH_COMM = 0.30
"""Above this share of communication the answer says so."""

CODES = {
    "COMM_HIGH": "communication is a large part of the time",
    "EXTRAPOLATED": "a fitted curve is used outside its range",
    "NO_RDMA": "without RDMA fused operators fall back across servers",
    "CANN_8_0": "CANN 8.0 fuses inside one server only",
    "COC_EXCLUDES_MC2": "CoC and MC2 cannot be switched on together",
    "TILE_CNT_IS_CANN_S": "the library chooses the tile count",
    "RANKS_UNDOCUMENTED": "fused across servers with more ranks than the operator's document lists",
    "TILE_REFUSED": "some tile counts break a limit of the machine",
    "PEER_WINDOW": "bytes per peer are outside the operator's window",
    "WIRING_UNDOCUMENTED": "fused over links that the operator's document does not list",
    "DTYPE_UNDOCUMENTED": "an element type that the operator's documents do not list",
    "DECODE_UNFUSED": "the operator runs unfused in decode",
    "MEMORY_EXCEEDED": "an NPU holds more than its memory",
    "SLOWER_THAN_SERIAL": "what was asked for loses against serial",
    "BEYOND_OVERLAP": "pieces cost less than the whole: the gain is not overlap alone",
    "DROPS_TOKENS": "a capacity factor pads or drops tokens",
}
"""Stable codes of warnings."""


def remarks_of(
    study: Study,
    scenario: Scenario,
    rows: tuple[Row, ...],
    refused_tiles: dict[int, str],
    shortfall: str,
) -> Iterator[Remark]:
    """Every warning that applies, most important first; the scenario is as it was asked, without columns."""
    legal = [row for row in rows if row.legal]
    best = min(legal, key=lambda row: row.total_time)
    if best.comm_ratio > HIGH_COMM:
        yield Remark(
            "COMM_HIGH",
            f"communication is {best.comm_ratio:.0%} of the best schedule's time, above {HIGH_COMM:.0%}",
        )
    if best.speedup > best.ceiling * CLEARLY:
        yield Remark("BEYOND_OVERLAP", _beyond(best))
    yield from _slower(rows)
    yield from _software(scenario, rows)
    yield from _ruled(study, rows)
    yield from _limits(refused_tiles)
    if shortfall:
        yield Remark("MEMORY_EXCEEDED", shortfall)
    for what in study.costs.ledger.extrapolated:
        yield Remark("EXTRAPOLATED", what)
    if scenario.capacity_factor is not None:
        yield Remark(
            "DROPS_TOKENS", f"every expert computes {scenario.capacity_factor:g} x its even share of rows"
        )


def warning_codes(results: Results) -> tuple[Codes, tuple[str, ...]]:
    """Codes of the warnings of every row, as one word each: an index, and the words.

    Returns
    -------
    tuple
        Indices, shape (rows, counts), and for each index the codes joined by blanks.
    """
    r = results
    masks = {
        "COMM_HIGH": r.timing.exposed > HIGH_COMM * r.total,
        "BEYOND_OVERLAP": r.serial > r.ceiling * CLEARLY * r.total,
        "SLOWER_THAN_SERIAL": r.total > r.serial * CLEARLY,
        "MEMORY_EXCEEDED": r.study.model is not None and ~footprint_of(r.study).fits,
    }
    for said in _said_of(r.study, r.outcome):
        masks[said.code] = masks.get(said.code, False) | np.asarray(said.where)
    index: Codes = np.zeros((1, 1), np.intp)
    for bit, mask in enumerate(masks.values()):
        index = index | (np.asarray(mask) * (1 << bit))
    common = _common_codes(r.study, r.outcome)
    combinations = (
        (code for bit, code in enumerate(masks) if chosen >> bit & 1) for chosen in range(1 << len(masks))
    )
    return index, tuple(" ".join((*codes, *common)) for codes in combinations)


def _common_codes(study: Study, outcome: Outcome) -> list[str]:
    """Warnings that every row of a schedule shares."""
    scenario = study.scenario
    said = {
        "EXTRAPOLATED": bool(study.costs.ledger.extrapolated),
        "DROPS_TOKENS": scenario.capacity_factor is not None,
    }
    return [code for code, holds in said.items() if holds]


def _said_of(study: Study, outcome: Outcome) -> tuple[Said, ...]:
    """What the rules say of a row's schedule under a code: why it runs unfused, or what to know of it."""
    if outcome.schedule != "mc2":
        return ()
    if not outcome.note:
        return tuple(said for said in study.verdict.remarks if said.code)
    return study.verdict.serial if outcome.note == study.verdict.fallback else ()


def _beyond(best: Row) -> str:
    """Why pieces gain more than overlap can."""
    gain = f"{best.speedup:.2f}x is more than overlap can give ({best.ceiling:.2f}x)"
    return (
        f"{gain}: the pieces stay below a cliff of a message-size curve that the whole message does not; "
        "cutting the unfused work would gain most of it as well"
    )


def _slower(rows: tuple[Row, ...]) -> Iterator[Remark]:
    """Name the cause when pieces cost more than they hide."""
    serial = rows[0]
    for row in rows[1:]:
        if not row.legal or row.total_time <= serial.total_time * CLEARLY:
            continue
        extra = row.compute_time - serial.compute_time
        sent = row.comm_time - serial.comm_time
        causes = {
            "weights read again and emptier tiles per piece": extra,
            "launch and latency of every transfer": sent,
            "host launches": row.free_time - serial.free_time,
            "mutual slow-down of the engines": row.compute_stretch,
        }
        named = ", ".join(
            f"{name} +{value * 1e3:.3g} ms"
            for name, value in sorted(causes.items(), key=lambda c: -c[1])
            if value > 0
        )
        yield Remark(
            "SLOWER_THAN_SERIAL",
            f"{row.schedule} in {row.pieces} pieces takes {1 / row.speedup:.2f}x serial: {named}",
        )


def _software(scenario: Scenario, rows: tuple[Row, ...]) -> Iterator[Remark]:
    by_name = {row.schedule: row for row in rows}
    mc2, coc = by_name.get("mc2"), by_name.get("coc")
    if mc2 and coc and mc2.legal and coc.legal and not mc2.reason and not coc.reason:
        yield Remark("COC_EXCLUDES_MC2", "switch on one of coc and mc2; the framework refuses both")
    if scenario.target in OPERATORS and scenario.tile_cnt and scenario.schedule in ("all", "mc2"):
        yield Remark(
            "TILE_CNT_IS_CANN_S",
            "CANN's operator chooses the tile count; it is a knob in CoC and in kernels of your own",
        )


ADVICE = {
    "NO_RDMA": "; check each NPU with: hccn_tool -i eth0 -roce -s",
    "CANN_8_0": "; CANN 8.5 fuses across servers over RoCE as well",
    "RANKS_UNDOCUMENTED": "; taken as legal because CANN 8.5 fuses over RoCE",
}
"""Code of a rule -> what to add to its words."""


def _ruled(study: Study, rows: tuple[Row, ...]) -> Iterator[Remark]:
    """What the rules of the fused operators say, where mc2 is laid at all."""
    mc2 = next((row for row in rows if row.schedule == "mc2" and row.legal), None)
    if mc2 is None:
        return
    verdict = study.verdict
    falls_back = bool(mc2.reason) and mc2.reason == verdict.fallback
    for said in verdict.serial if falls_back else () if mc2.reason else verdict.remarks:
        if said.code:
            yield Remark(said.code, said.text + ADVICE.get(said.code, ""))


def _limits(refused_tiles: dict[int, str]) -> Iterator[Remark]:
    too_large = {n: why for n, why in refused_tiles.items() if "put" in why or "heap" in why}
    if too_large:
        n, why = next(iter(too_large.items()))
        yield Remark("TILE_REFUSED", f"{len(too_large)} tile counts, first {n}: {why}")
