"""The path of an MoE layer that a serving stack takes, as its selector says: the first row that holds.

Capacity is what the dispatch buffers are made for: tp x min(ceil(T / tp), cap), T being the most tokens of a
tensor-parallel group that a step may have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mc2perf.rules.facts import Facts
from mc2perf.rules.rule import Rule, Source, Within, Word

VLLM_ASCEND = Source("vllm_ascend/ascend_forward_context.py", "2026-08")

PATHS = {
    "all_gather": "every rank gathers all tokens and keeps its experts' part",
    "all_to_all": "tokens travel to their experts, everything one after the other",
    "mc2": "operators moe_distribute_dispatch and moe_distribute_combine",
    "fused_mc2": "dispatch, experts and combine in one kernel",
}
"""Paths of an MoE layer."""

CAPS = {"off": 512.0, "dispatch_ffn_combine": 512.0, "mega_moe": 4096.0}
"""Fused kernel -> tokens per rank that its buffers hold; without one, those of mc2."""


@dataclass(frozen=True)
class Choice:
    """A path and what has to hold for it."""

    path: str
    rules: tuple[Rule, ...]

    def holds(self, facts: Facts) -> bool:
        """Whether every rule does."""
        return not any(bool(rule.broken(facts)) for rule in self.rules)


def _asks(fact: str, test: Within | Word) -> Rule:
    return Rule(of=(fact,), test=test, source=VLLM_ASCEND)


_IN_CAPACITY = _asks("tokens", Within(most="capacity"))
_ANYWHERE = (
    Choice("all_gather", (_asks("ep", Within(most=1.0)),)),
    Choice("all_to_all", (_asks("lora", Word((True,))),)),
)

SELECTOR = {
    "a2": (
        *_ANYWHERE,
        Choice(
            "mc2", (_asks("experts_per_rank", Within(most=24.0)), _asks("ep", Within(16.0)), _IN_CAPACITY)
        ),
        Choice("all_gather", ()),
    ),
    "a3": (
        *_ANYWHERE,
        Choice("fused_mc2", (_asks("fused", Word(("mega_moe",))), _asks("ep", Within(most=64.0)))),
        Choice(
            "fused_mc2", (_asks("fused", Word(("dispatch_ffn_combine",))), _asks("ep", Within(most=32.0)))
        ),
        Choice("mc2", (_IN_CAPACITY,)),
        Choice("all_to_all", ()),
    ),
    "950": (
        *_ANYWHERE,
        Choice("mc2", (_IN_CAPACITY, _asks("world", Within(2.0)))),
        Choice("all_gather", (_asks("world", Within(most="top_k")),)),
        Choice("all_to_all", ()),
    ),
}
"""Family of machines -> rows in order; the last one always holds."""


def selected(family: str, facts: Facts) -> str:
    """The path that vllm-ascend takes; empty where it does not run.

    Examples
    --------
    >>> given = {"ep": 16.0, "lora": False, "experts_per_rank": 8.0, "tokens": 64.0, "capacity": 512.0}
    >>> selected("a2", Facts(given)), selected("a2", Facts({**given, "ep": 8.0})), selected("gpu", Facts({}))
    ('mc2', 'all_gather', '')
    """
    return next((choice.path for choice in SELECTOR.get(family, ()) if choice.holds(facts)), "")


def capacity(tp: float, most_tokens: float, cap: float) -> float:
    """Tokens of a tensor-parallel group that the dispatch buffers hold.

    Examples
    --------
    >>> capacity(8.0, 8192.0, 512.0)
    4096.0
    """
    return tp * min(math.ceil(most_tokens / tp), cap)
