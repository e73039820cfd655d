"""Rules that several operators share: where links lead, rank counts inside one server and across."""

from __future__ import annotations

from mc2perf.rules.rule import OneOf, Rule, Source, Test, Within, Word

CANN_8_5 = Source("CANN release notes as told in the MC2 introduction", "8.0 and 8.5")

EVERYWHERE = (
    Rule(
        of=("interleaves",),
        test=Word((True,)),
        says="engine {engine} cannot be interleaved inside a kernel",
        source=Source("hardware profile, engines: interleaves", "of the profile"),
    ),
    Rule(
        of=("cann",),
        test=Word(("8.5",)),
        when=(("across", True),),
        effect="serial",
        says="CANN 8.0 fuses inside one server only; across servers it stays serial",
        code="CANN_8_0",
        source=CANN_8_5,
    ),
    Rule(
        of=("rdma",),
        test=Word((True,)),
        when=(("across", True), ("needs_rdma", True)),
        effect="serial",
        says="without RDMA the fused operator falls back to serial across servers",
        code="NO_RDMA",
        source=CANN_8_5,
    ),
)
"""What holds for every operator that fuses communication with computation."""


def ranks_of(test: Test, source: Source) -> tuple[Rule, ...]:
    """Rank counts that a document lists; across servers CANN 8.5 fuses what it does not list, too."""
    return (
        Rule(of=("ranks",), test=test, when=(("across", False),), source=source),
        Rule(
            of=("ranks",),
            test=test,
            when=(("across", True),),
            effect="note",
            code="RANKS_UNDOCUMENTED",
            source=source,
        ),
    )


def rank_list(*counts: float) -> OneOf:
    """A list of rank counts; one rank has nothing to send and is always fine."""
    return OneOf((1.0, *counts))


def dtypes(source: Source, *names: str) -> Rule:
    """Element types of a document."""
    return Rule(of=("dtype",), test=Word(names), source=source)


def buffsize_at_least(megabytes: float, source: Source) -> Rule:
    """A window that has to be there whatever the sizes."""
    return Rule(of=("hccl_buffsize",), test=Within(megabytes), source=source)


def window(fact: str, source: Source) -> Rule:
    """The window of these sizes, in MB of 2^20 bytes, against HCCL_BUFFSIZE."""
    says = f"needs {{{fact}:.1f}} MB of HCCL_BUFFSIZE, has {{hccl_buffsize:.0f}}"
    return Rule(of=(fact,), test=Within(most="hccl_buffsize"), says=says, source=source)
