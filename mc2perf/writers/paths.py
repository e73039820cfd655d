"""Paths of an MoE layer as a table: what is taken, what is fastest, where they cross; text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from mc2perf.rules.selector import PATHS, VLLM_ASCEND
from mc2perf.scenario import Scenario
from mc2perf.studies.paths import ASSUMPTIONS, Paths, crossings
from mc2perf.units import counted, show
from mc2perf.version import VERSION

SCHEMA_VERSION = 1
LITTLE = 0.005
"""A smaller loss is none."""


def sentence(found: Paths) -> str:
    """What is taken and what is fastest, by tokens of a tensor-parallel group."""
    taken = "nothing: no selector is known for this machine"
    if any(found.taken):
        taken = _runs(found, found.taken)
    return f"Taken: {taken}. Fastest: {_runs(found, found.fastest)}.{_slower(found)}"


def _slower(found: Paths) -> str:
    """What the path taken costs beside the fastest."""
    if not any(found.taken):
        return ""
    worst = int(np.nanargmax(found.loss))
    if found.loss[worst] < LITTLE:
        return " The path taken is the fastest everywhere."
    count = counted(float(found.tokens[worst]), "token")
    instead = f"at {count} ({found.taken[worst]}, not {_best(found, worst)})"
    often = f"The path taken is {np.nanmedian(found.loss):.0%} slower than the fastest in the median"
    return f" {often}, {found.loss[worst]:.0%} {instead}."


def _best(found: Paths, place: int) -> str:
    return min(found.times, key=lambda name: float(found.times[name][place]))


def _runs(found: Paths, names: tuple[str, ...]) -> str:
    runs = crossings(found.tokens, names)
    if len(runs) == 1:
        return f"{runs[0][0]} at every number of tokens"
    return ", ".join(f"{name} {_span(first, last, last == found.tokens[-1])}" for name, first, last in runs)


def _span(first: float, last: float, ends: bool) -> str:
    if ends:
        return f"from {first:g}"
    return f"at {first:g}" if first == last else f"from {first:g} to {last:g}"


def to_paths_text(scenario: Scenario, found: Paths) -> str:
    """Sentence, limits that are broken, a row for powers of two, what it rests on."""
    from tabulate import tabulate  # costs 40 ms

    rows = list(_rows(found))
    headers = ["tokens", "per rank", "taken", "fastest", *found.times, "loss"]
    table = tabulate(
        rows, headers, tablefmt="simple", disable_numparse=True,
        colalign=("right", "right", "left", "left", *("right",) * (len(found.times) + 1)),
    )  # fmt: skip
    about = (
        f"{scenario.target} on {scenario.hardware}: ep {found.ep:g}, tp {found.tp:g}, "
        f"capacity {found.capacity:g} tokens of a tensor-parallel group"
    )
    refused = "\n".join(f"refused at start: {text}" for text in found.refusals)
    notes = [f"selector: {VLLM_ASCEND}", *(f"assumes: {text}" for text in ASSUMPTIONS)]
    blocks = [sentence(found), about, refused, table, "\n".join(notes)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _shown(found: Paths) -> list[int]:
    """Places of powers of two ranks, and of the counts where something changes."""
    last = len(found.tokens) - 1
    places = {min(2**power - 1, last) for power in range(64) if 2**power - 1 <= last} | {last}
    for names in (found.taken, found.fastest):
        places |= {i for i in range(1, last + 1) if names[i] != names[i - 1]}
    return sorted(places)


def _rows(found: Paths) -> Iterator[list[str]]:
    fastest = found.fastest
    for i in _shown(found):
        times = {name: float(column[i]) for name, column in found.times.items()}
        loss = found.loss[i]
        yield [
            f"{found.tokens[i]:g}", f"{np.ceil(found.tokens[i] / found.tp):g}", found.taken[i], fastest[i],
            *(show(time, "s") for time in times.values()), "" if np.isnan(loss) else f"{loss:.0%}",
        ]  # fmt: skip


def paths_document(inputs: dict[str, object], found: Paths) -> dict[str, Any]:
    """The same as a tree, every number of tokens in it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "inputs": inputs,
        "capacity": found.capacity,
        "ep": found.ep,
        "refused_at_start": list(found.refusals),
        "taken": _spans(found, found.taken),
        "fastest": _spans(found, found.fastest),
        "paths": dict(PATHS),
        "tokens": found.tokens.tolist(),
        "loss": [None if np.isnan(loss) else float(loss) for loss in found.loss],
        "times": {name: times.tolist() for name, times in found.times.items()},
        "source": str(VLLM_ASCEND),
        "assumptions": list(ASSUMPTIONS),
    }


def _spans(found: Paths, names: tuple[str, ...]) -> list[dict[str, object]]:
    return [{"path": name, "from": first, "to": last} for name, first, last in crossings(found.tokens, names)]


def to_paths_json(inputs: dict[str, object], found: Paths) -> str:
    """The tree as text."""
    return json.dumps(paths_document(inputs, found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
