"""What frameworks ask before they switch a fused path on."""

from __future__ import annotations

from mc2perf.rules.rule import MultipleOf, Rule, Source, Variant, Within, Word

MINDSPEED = Source("MindSpeed docs, feature ascend-mc2", "2026")
COC = Source("MindSpeed docs, feature communication-over-computation", "2026")
MIGRATION = Source("MindSpeed-MM PR 2480, expert-parallel dispatcher", "2026")

_EXCLUDES = Rule(
    of=("schedule",), test=Word(("all", "serial", "mc2", "micro_batch", "dual_batch")), source=COC,
    says="CoC and MC2 exclude each other; the framework refuses both",
)  # fmt: skip
_WHOLE = Rule(of=("experts",), test=MultipleOf("ranks"), source=MIGRATION)


def _dense_mc2(family: str, *more: Rule) -> Variant:
    return Variant(
        operator="mindspeed_mc2", version="--use-ascend-mc2", family=family,
        minds=("CANN 8.0.RC2 or newer; the MoE path is not covered",),
        rules=(
            Rule(of=("sp",), test=Word((True,)), source=MINDSPEED,
                 says="needs sequence parallelism beside tensor parallelism"),
            Rule(of=("tp",), test=Within(2.0), source=MINDSPEED,
                 says="fuses tensor-parallel matmuls; tp is {tp:g}"),
            _EXCLUDES, *more,
        ),
    )  # fmt: skip


_NOT_ON_A3 = Rule(
    of=("family",), test=Word(("a2", "950")), source=MINDSPEED, says="not offered on Atlas 900 A3"
)


def _coc(family: str) -> Variant:
    return Variant(
        operator="coc", version="--use-ascend-coc", family=family,
        minds=("excludes MC2: switch on one of both",),
        rules=(
            Rule(of=("tp",), test=Within(2.0), source=COC,
                 says="CoC cuts tensor-parallel matmuls; tp is {tp:g}"),
            Rule(of=("m",), test=MultipleOf(2.0), source=COC),
            Rule(of=("schedule",), test=Word(("all", "serial", "coc", "micro_batch", "dual_batch")),
                 source=COC, says="CoC and MC2 exclude each other; the framework refuses both"),
        ),
    )  # fmt: skip


def _migration(family: str) -> Variant:
    return Variant(
        operator="mindspeed_mm_dispatcher", version="dispatcher: mc2", family=family,
        minds=(
            "fused operators are switched on, and the EP group is an HCCL group",
            "keep dispatcher: alltoall as base line and fallback; allgather is accepted but not implemented",
            "compare loss slope and largest difference: some models lose precision",
        ),
        rules=(
            _WHOLE,
            Rule(of=("ranks",), test=Within(2.0), source=MIGRATION,
                 says="one EP rank has nothing to exchange"),
            Rule(of=("train",), test=Word((True,)), source=MIGRATION,
                 says="is a training path; write --phase train"),
            _EXCLUDES,
            Rule(of=("experts_per_rank",), test=Within(2.0), effect="slow", source=MIGRATION,
                 says="one local expert is one piece: nothing overlaps"),
        ),
    )  # fmt: skip


FRAMEWORKS = (
    _dense_mc2("a2"),
    _dense_mc2("a3", _NOT_ON_A3),
    *(_coc(family) for family in ("a2", "a3")),
    *(_migration(family) for family in ("a2", "a3", "950")),
)
"""MindSpeed's switches and the migration list of the expert-parallel path."""
