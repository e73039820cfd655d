"""Tensor- and sequence-parallel operators: a collective fused with one matmul."""

from __future__ import annotations

from mc2perf.rules.rule import MultipleOf, Rule, Source, Variant, Within, Word
from mc2perf.rules.shared import EVERYWHERE, buffsize_at_least, dtypes, rank_list, ranks_of

GATHER = Source("aclnnAllGatherMatmul.md 262-270, all_gather_matmul_tiling.cpp 30", "c29bc106, 2025-11")
SCATTER = Source(
    "aclnnMatmulReduceScatter.md 211-223, matmul_reduce_scatter_tiling.cpp 36", "c29bc106, 2025-11"
)
REDUCE = Source("aclnnMatmulAllReduce.md 247-255, matmul_all_reduce_tiling.cpp 500-508", "c29bc106, 2025-11")
V2 = Source("aclnnAllGatherMatmulV2.md, aclnnMatmulReduceScatterV2.md", "2026")
README = Source("ops-transformer mc2 READMEs", "2025-11")

ONE_COMMUNICATOR = "all MC2 operators of a model share one communicator, and nothing else runs on it"

K_RANGE = Within(256.0, 65534.0)

CCU_GATHER_MB, CCU_SCATTER_MB = 63.0 * 256.0, 16.0 * 256.0
"""What the CCU addresses: 63 and 16 windows of 256 MB."""


def _mesh(source: Source) -> Rule:
    """HCCS full mesh; guidance beside the document names PCIe as well."""
    return Rule(
        of=("wiring",), test=Word(("full_mesh",)), effect="note", code="WIRING_UNDOCUMENTED", source=source,
        says="the document lists an HCCS full mesh only, not {wiring}",
    )  # fmt: skip


def _even_rows(source: Source) -> Rule:
    return Rule(of=("m",), test=MultipleOf("ranks"), source=source)


def _pair(operator: str, source: Source, own: tuple[Rule, ...], ccu: Rule) -> tuple[Variant, ...]:
    """All-gather + matmul, or its mirror: the same documents but for a rule or two."""
    first = (dtypes(source, "bf16", "fp16"), Rule(of=("k",), test=K_RANGE, source=source), *own, *EVERYWHERE)
    aiv = (
        *ranks_of(rank_list(2, 4, 8), V2),
        dtypes(V2, "bf16", "fp16", "int8"),
        buffsize_at_least(200.0, V2),
        *own,
        *EVERYWHERE,
    )
    types_950 = dtypes(V2, "bf16", "fp16", "fp8", "mxfp8", "mxfp4")
    ranks_950 = rank_list(2, 4, 8, 16, 32, 64)
    one_server = Rule(
        of=("tiers",), test=Within(most=1.0), source=V2, says="the CCU joins the ranks of one server only"
    )
    mx = "with MX types x2 has to be transposed"
    return (
        Variant(
            operator=operator, version="v1", family="a2", minds=(ONE_COMMUNICATOR,),
            rules=(*ranks_of(rank_list(2, 4, 8), source), _mesh(source), *first),
        ),
        Variant(
            operator=operator, version="v1", family="a3",
            rules=(*ranks_of(rank_list(2, 4, 8, 16, 32), source), *first),
        ),
        *(Variant(operator=operator, version="v2 aiv", family=family, rules=aiv) for family in ("a2", "a3")),
        Variant(
            operator=operator, version="v2 ai_cpu", family="950", minds=(mx,),
            rules=(*ranks_of(ranks_950, V2), types_950, *own, *EVERYWHERE),
        ),
        Variant(
            operator=operator, version="v2 ccu", family="950", minds=(mx,),
            rules=(*ranks_of(ranks_950, V2), types_950, *own, ccu, one_server, *EVERYWHERE),
        ),
    )  # fmt: skip


def _all_reduce(family: str, *ranks: float, mesh: bool) -> Variant:
    rules = (
        *ranks_of(rank_list(*ranks), REDUCE),
        *((_mesh(REDUCE),) if mesh else ()),
        *(Rule(of=(axis,), test=Within(1.0, 65535.0), source=REDUCE) for axis in ("n", "k")),
        Rule(
            of=("decode",), test=Word((False,)), effect="serial", source=REDUCE,
            says="incremental inference does not enable MC2: the operator runs unfused in decode",
            code="DECODE_UNFUSED",
        ),
        *EVERYWHERE,
    )  # fmt: skip
    minds = (ONE_COMMUNICATOR, "sums only; long sequences may run out of memory or time")
    return Variant(operator="matmul_all_reduce", version="v1..v3", family=family, rules=rules, minds=minds)


DENSE = (
    *_pair(
        "all_gather_matmul", GATHER, (),
        Rule(of=("gathered_mb",), test=Within(most=CCU_GATHER_MB), source=V2),
    ),
    Variant(
        operator="all_gather_matmul", version="v1 full mesh", family="a3",
        rules=(
            *ranks_of(rank_list(2, 4, 8, 16, 32, 64), README), dtypes(GATHER, "bf16", "fp16"),
            Rule(of=("k",), test=K_RANGE, source=GATHER), *EVERYWHERE,
        ),
    ),
    *_pair(
        "matmul_reduce_scatter", SCATTER, (_even_rows(SCATTER),),
        Rule(of=("scattered_mb",), test=Within(most=CCU_SCATTER_MB), source=V2),
    ),
    _all_reduce("a2", 2, 4, 8, mesh=True),
    _all_reduce("950", 2, 4, 8, 16, 32, 64, mesh=False),
)  # fmt: skip
"""All-gather + matmul, matmul + reduce-scatter, matmul + all-reduce (which A3 does not list)."""
