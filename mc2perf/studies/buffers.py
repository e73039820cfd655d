"""The HCCL_BUFFSIZE that operators need, the largest batch of one, the symmetric heap of kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mc2perf.cases import Case
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.windows import largest, ring_bytes, scales_bytes
from mc2perf.operators import DTYPES, OPERATORS
from mc2perf.policies.scan import even_cut
from mc2perf.resolve import dispatch_dtype
from mc2perf.rules.catalogue import variants_of
from mc2perf.rules.facts import WINDOWS, Facts
from mc2perf.rules.rule import Rule, Source, Variant, Within
from mc2perf.studies.check import Question, cases_of, of_one_row, ranks_of
from mc2perf.units import MIB

OTHERS = {
    "gathered_mb": "950, CCU: 63 windows of 256 MB",
    "scattered_mb": "950, CCU: 16 windows of 256 MB",
    "mb_per_peer": "a peer's share of the window",
}
"""Facts in MB that are no window of HCCL_BUFFSIZE -> what they are."""

MOST_TOKENS = 2.0**24
"""Batches are not looked for beyond."""

TILES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Tile counts of a heap, where none is asked for."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One formula: MB of 2^20 bytes needed and there; largest batch by it, and by the document's own cap."""

    operators: tuple[str, ...]
    version: str
    title: str
    needed: float
    has: float
    largest: float
    cap: float
    source: Source

    @property
    def fits(self) -> bool:
        """Whether what is there is enough."""
        return self.needed <= self.has


@dataclass(frozen=True, kw_only=True)
class Heap:
    """Symmetric heap of a kernel that sends on its own, cut into so many tiles. [B]"""

    tiles: float
    rows: float
    data: float
    scales: float
    size: float

    @property
    def total(self) -> float:
        """Ring of pieces and scales. [B]"""
        return self.data + self.scales

    @property
    def fits(self) -> bool:
        """Whether the heap holds it."""
        return self.total <= self.size


def buffers_of(question: Question) -> tuple[Buffer, ...]:
    """Every documented formula of the operators of a question on its machine.

    Raises
    ------
    InputError
        The question contradicts itself.
    """
    found: dict[Buffer, list[str]] = {}
    for case in map(of_one_row, cases_of(question)):
        for version in variants_of(case.operator, question.machine.family):
            for buffer in _of_version(version, case):
                found.setdefault(buffer, []).append(case.operator)
    return tuple(
        Buffer(**{**vars(buffer), "operators": tuple(dict.fromkeys(names))})
        for buffer, names in found.items()
    )


def _of_version(version: Variant, case: Case) -> Iterator[Buffer]:
    if version.needs(case.facts):
        return
    for rule in version.rules:
        name = rule.of[0]
        if not isinstance(rule.test, Within) or name not in {**WINDOWS, **OTHERS}:
            continue
        has = float(rule.test.ends(case.facts)[1])
        if math.isfinite(has):
            yield Buffer(
                operators=(), version=version.version,
                title=WINDOWS[name].title if name in WINDOWS else OTHERS[name],
                needed=float(case.facts[name]), has=has, largest=_largest(name, case, has),
                cap=_cap(version.rules), source=rule.source,
            )  # fmt: skip


def _largest(name: str, case: Case, has: float) -> float:
    """Most tokens (rows) of a rank that the formula holds."""
    return largest(lambda m: bool(Facts({**case.facts.given, "m": m})[name] <= has), MOST_TOKENS)


def _cap(rules: Sequence[Rule]) -> float:
    """Most tokens that the document takes, whatever the window."""
    ends = [rule.test.most for rule in rules if rule.of == ("m",) and isinstance(rule.test, Within)]
    return min((float(end) for end in ends if isinstance(end, float)), default=math.inf)


def heaps_of(question: Question) -> tuple[Heap, ...]:
    """The heap of a fused matmul for every tile count; none where no engine of the machine keeps one.

    ``buffers`` pieces of every rank lie in a ring, the scales of all rows beside it.
    """
    s, operator = question.scenario, OPERATORS.get(question.scenario.target)
    if operator is None or operator.grouped or s.m is None or s.n is None or s.k is None:
        return ()
    tier = next(iter(question.machine.tiers.values()))
    answers = Costs(question.machine, Ledger(), s.engine).engine_of(tier, operator.collective)[1]
    keeping = [engine for engine in (answers, *tier.engines.values()) if math.isfinite(engine.shmem)]
    if not keeping:
        return ()
    ranks, rows = ranks_of(question), float(np.asarray(s.m).item())
    width = float(np.asarray(s.k if operator.payload == "input" else s.n).item())
    item = DTYPES[dispatch_dtype(s)]
    gathered = ranks if operator.gathered else 1.0
    asked = TILES if s.tile_cnt is None else (float(np.asarray(s.tile_cnt).item()),)
    block = float(question.machine.cube.base_block.m)
    tiles_of, _, none_left = (row[0].tolist() for row in even_cut(rows, np.array([asked]), block))
    return tuple(
        Heap(
            tiles=tiles,
            rows=tile,
            data=float(ring_bytes(s.buffers, ranks, tile, width * item.size / ranks)),
            scales=float(scales_bytes(ranks, rows, gathered * item.scale_bytes_per_row(width) / ranks)),
            size=float(keeping[0].shmem),
        )
        for tiles, tile, none in zip(asked, tiles_of, none_left, strict=True)
        if not none
    )


def suggested_mb(question: Question) -> float:
    """What HCCL suggests for collectives of this size: one activation, in whole MB; 0 where rows are unknown.

    Examples
    --------
    >>> from mc2perf.checking import ask_question
    >>> suggested_mb(ask_question("deepseek-v3", {"tokens": 4096}, {}))
    56.0
    """
    s = question.scenario
    rows = s.m if question.model is None else (s.tokens if s.phase != "decode" else s.batch_size)
    width = question.model.hidden_size if question.model is not None else s.k
    if rows is None or width is None:
        return 0.0
    item = max(DTYPES[s.dtype].size, 2.0)
    return math.ceil(float(np.asarray(rows).item()) * float(np.asarray(width).item()) * item / MIB) * 1.0
