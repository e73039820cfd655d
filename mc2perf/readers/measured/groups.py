"""``communication_group.json`` of ``cluster_analysis_output``: who talks to whom, and for what."""

from __future__ import annotations

import re
from typing import Any

from mc2perf.measured import CommGroup, CommGroups, Measured
from mc2perf.readers.measured.source import Format, Source, Tally

KINDS = ("collective", "p2p")
NAMED = "comm_group_parallel_info"
MOST_RANKS = 1_000_000

_LIST = re.compile(r'"(collective|p2p)"\s*:\s*\[')


def read(source: Source) -> Measured:
    """Read groups of ranks; newer files name what a group is for.

    Raises
    ------
    InputError
        No JSON, or no group that can be used.
    """
    tree, tally = source.tree(), Tally(source)
    groups = []
    for kind, ranks, purpose, name, where in _entries(tree, tally):
        try:
            groups.append(CommGroup(kind, _ranks(ranks), purpose, name))
        except ValueError as error:
            tally.aside(str(error), where)
    tally.read = len(groups)
    return tally.close("communication_group.json", "groups", CommGroups(tuple(groups)))


def _entries(tree: Any, tally: Tally) -> list[tuple[str, Any, str, str, str]]:
    """Kind, ranks, purpose, name and place of each group; plain lists repeat the named ones."""
    named = tree.get(NAMED)
    lists = [(kind, index, item) for kind in KINDS for index, item in enumerate(_list(tree.get(kind)))]
    if not _list(named):
        return [(kind, item, "", "", f"{kind}.{index}") for kind, index, item in lists]
    for kind, index, _ in lists:
        tally.aside(f"{NAMED} holds the same group with its name", f"{kind}.{index}")
    return [
        (str(i.get("type", "")), i.get("rank_set"), str(i.get("pg_name", "")), str(i.get("group_name", "")),
         f"{NAMED}.{index}")
        for index, i in enumerate(_list(named)) if isinstance(i, dict)
    ]  # fmt: skip


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _ranks(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not found:
        raise ValueError("is no list of ranks")
    fits = all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in found)
    if not fits or len(set(found)) < len(found):
        raise ValueError("a rank is no whole number, out of range, or stands twice")
    return tuple(sorted(found))


FORMAT = Format(
    "communication_group.json",
    f"JSON with lists of ranks below collective and p2p, or {NAMED}",
    lambda source: (
        source.head.lstrip().startswith("{")
        and (_LIST.search(source.head) is not None or f'"{NAMED}"' in source.head)
    ),
    read,
)
