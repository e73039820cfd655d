"""Operators around an all-to-all: with one matmul, with grouped matmuls, with a second collective."""

from __future__ import annotations

from mc2perf.rules.rule import MultipleOf, OneOf, Rule, Source, Variant, Within, Word
from mc2perf.rules.shared import EVERYWHERE, buffsize_at_least, dtypes, rank_list, ranks_of

EXCHANGE = Source("aclnnAlltoAllMatmul.md, aclnnAlltoAllQuantMatmulV2.md", "2026")
GROUPED = Source(
    "aclnnAlltoAllvGroupedMatMul.md 281-292, aclnnGroupedMatMulAlltoAllv.md 264-275, tiling 57-63, 405-480",
    "c29bc106, 2025-11",
)
GROUPED_V2 = Source("aclnnAlltoAllvGroupedMatMulV2.md, aclnnGroupedMatMulAlltoAllvV2.md", "2026")
README = Source("ops-transformer mc2 READMEs", "2025-11")

ALONE = "no other MC2 operator may run at the same time; not across super-pods"
HOST_COUNTS = "send and receive counts are lists on the host"

# --- all-to-all + matmul -------------------------------------------------------------------------------

_MX = (
    Rule(of=("k_per_rank",), test=MultipleOf(64.0), when=(("dtype", "mxfp8"),), source=EXCHANGE),
    Rule(of=("k_per_rank",), test=MultipleOf(64.0), when=(("dtype", "mxfp4"),), source=EXCHANGE),
)


def _exchange(operator: str) -> tuple[Variant, ...]:
    """All-to-all + matmul or its mirror; only the input that travels has a limited width."""
    width = {"a2": 35000.0, "950": 65535.0} if operator == "all_to_all_matmul" else {}

    def rules(family: str) -> tuple[Rule, ...]:
        limit = width.get(family)
        return (Rule(of=("k",), test=Within(1.0, limit), source=EXCHANGE),) if limit else ()

    return (
        Variant(
            operator=operator, version="v1 aiv", family="a2", minds=(ALONE,),
            rules=(
                *ranks_of(rank_list(2, 4, 8), EXCHANGE), *rules("a2"), buffsize_at_least(200.0, EXCHANGE),
                *EVERYWHERE,
            ),
        ),
        Variant(
            operator=operator, version="v1", family="a3", minds=(ALONE,),
            rules=(*ranks_of(rank_list(2, 4, 8, 16), EXCHANGE), *EVERYWHERE),
        ),
        Variant(
            operator=operator, version="v2", family="950",
            minds=(ALONE, "with MX types x2 is transposed, groups are [1, 1, 32], scales e8m0"),
            rules=(
                *ranks_of(rank_list(2, 4, 8, 16), EXCHANGE), *rules("950"),
                *(_MX if operator == "all_to_all_matmul" else ()), *EVERYWHERE,
            ),
        ),
    )  # fmt: skip


# --- all-to-all-v + grouped matmul ---------------------------------------------------------------------

_WIDTHS = tuple(Rule(of=(axis,), test=Within(1.0, 65535.0), source=GROUPED) for axis in ("n", "k"))
_SHARED = Rule(of=("shared_hidden",), test=Within(0.0, 12288.0), source=GROUPED)
_TOP_K = Rule(of=("top_k",), test=Within(2.0, 8.0), source=GROUPED)
_BELOW_PEER_WINDOW = Rule(
    of=("mb_per_peer",),
    test=Within("peer_window_min_mb"),
    effect="slow",
    code="PEER_WINDOW",
    source=GROUPED_V2,
)


def _local(most: float, source: Source) -> Rule:
    return Rule(of=("experts_per_rank",), test=Within(1.0, most), source=source)


def _all_experts(most: float, source: Source) -> Rule:
    return Rule(of=("experts_per_rank", "ranks"), test=Within(1.0, most), source=source)


def _rows(most: float, source: Source) -> Rule:
    return Rule(of=("m",), test=Within(1.0, most), source=source)


_DTYPES_V2 = Rule(
    of=("dtype",), test=Word(("bf16", "fp16")), effect="note", code="DTYPE_UNDOCUMENTED", source=GROUPED,
    says="the documents read list bf16 and fp16 only, not {dtype}",
)  # fmt: skip
_HANDLES = Rule(
    of=("experts_per_rank",), test=Within(1.0, "handles"), source=Source("mc2_tiling_utils.h", "2026"),
    says="{experts_per_rank:g} local experts; HCCL has {handles:g} handles, one for each",
)  # fmt: skip


def _grouped(operator: str) -> tuple[Variant, ...]:
    shapes = (*_WIDTHS, _SHARED, _TOP_K, *EVERYWHERE)
    in_window = Rule(
        of=("mb_per_peer",), test=Within("peer_window_min_mb", "peer_window_max_mb"), source=GROUPED
    )
    above = Rule(
        of=("mb_per_peer",), test=Within(most="peer_window_max_mb"), effect="slow", code="PEER_WINDOW",
        source=README,
    )  # fmt: skip
    cpu = (
        _local(48.0, GROUPED_V2), _all_experts(384.0, GROUPED_V2), _rows(52428799.0, GROUPED),
        _DTYPES_V2, *shapes,
    )  # fmt: skip
    aiv = (
        _local(512.0, GROUPED_V2), _all_experts(1024.0, GROUPED_V2), _rows(5e6, GROUPED_V2),
        _DTYPES_V2, *shapes,
    )  # fmt: skip
    a3, a950 = rank_list(2, 4, 8, 16, 32, 64, 128), rank_list(2, 4, 8, 16, 32, 64)
    refused_above = Rule(of=("mb_per_peer",), test=Within(most="peer_window_max_mb"), source=GROUPED)
    return (
        Variant(
            operator=operator, version="v1", family="a3", minds=(HOST_COUNTS,),
            rules=(
                *ranks_of(OneOf((8.0, 16.0, 32.0, 64.0)), GROUPED), dtypes(GROUPED, "bf16", "fp16"),
                _local(32.0, GROUPED), _all_experts(256.0, GROUPED), _rows(52428799.0, GROUPED),
                in_window, *shapes,
            ),
        ),
        Variant(
            operator=operator, version="v2 ai_cpu", family="a3", minds=(HOST_COUNTS,),
            rules=(*ranks_of(a3, GROUPED_V2), _BELOW_PEER_WINDOW, refused_above, *cpu),
        ),
        Variant(
            operator=operator, version="v2 aiv", family="a3",
            rules=(*ranks_of(a3, GROUPED_V2), _BELOW_PEER_WINDOW, above, *aiv),
        ),
        Variant(
            operator=operator, version="v2 aiv", family="a2",
            rules=(*ranks_of(rank_list(2, 4, 8), GROUPED_V2), *aiv),
        ),
        Variant(
            operator=operator, version="v2 ai_cpu, ccu", family="950", minds=(HOST_COUNTS,),
            rules=(*ranks_of(a950, GROUPED_V2), _HANDLES, *cpu),
        ),
    )  # fmt: skip


# --- all-to-all + all-gather + batched matmul ----------------------------------------------------------

BATCHED = Source("aclnnAlltoAllAllGatherBatchMatMul.md, aclnnBatchMatMulReduceScatterAlltoAll.md", "2026")
_DEGREES = rank_list(2, 4, 8, 16, 32)


def _batched(operator: str) -> Variant:
    return Variant(
        operator=operator, version="v1", family="a3",
        rules=(
            Rule(of=("ranks",), test=OneOf(_DEGREES.numbers[1:]), source=BATCHED),
            Rule(of=("tp",), test=OneOf(_DEGREES.numbers[1:]), source=BATCHED),
            Rule(of=("experts",), test=Within(2.0, 512.0), source=BATCHED),
            Rule(of=("experts",), test=MultipleOf("ranks"), source=BATCHED),
            _local(32.0, BATCHED),
            Rule(of=("k",), test=Within(1.0, 65535.0), source=BATCHED),
            Rule(of=("n",), test=Within(1.0, 65535.0), source=BATCHED),
            *EVERYWHERE,
        ),
    )  # fmt: skip


EXCHANGES = (
    *_exchange("all_to_all_matmul"),
    *_exchange("matmul_all_to_all"),
    *_grouped("all_to_all_v_grouped_matmul"),
    *_grouped("grouped_matmul_all_to_all_v"),
    _batched("all_to_all_all_gather_batch_matmul"),
    _batched("batch_matmul_reduce_scatter_all_to_all"),
)
"""Operators around an all-to-all."""
