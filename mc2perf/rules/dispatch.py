"""MoE dispatch and combine as operators of their own, and kernels that hold the whole expert path."""

from __future__ import annotations

from mc2perf.rules.rule import MultipleOf, OneOf, Rule, Source, Test, Variant, Within
from mc2perf.rules.shared import window

README = Source("moe_distribute_dispatch, moe_distribute_combine READMEs", "2025-11")
README_V2 = Source("moe_distribute_dispatch_v2, moe_distribute_combine_v2 READMEs", "2025-11")
V3 = Source("aclnnMoeDistributeDispatchV3.md 424-460", "c29bc106, 2025-11")
V4 = Source("aclnnMoeDistributeDispatchV4.md", "2026")

DEDICATED = "the EP communicator is its own: no other operator may use it, all ranks agree on HCCL_BUFFSIZE"
ONE_GROUP = "one MC2 group per model"

NAMES = ("moe_distribute_dispatch", "moe_distribute_combine")


def _asks(source: Source, **tests: Test) -> tuple[Rule, ...]:
    """A rule for each fact."""
    return tuple(Rule(of=(fact,), test=test, source=source) for fact, test in tests.items())


_WHOLE = Rule(of=("experts",), test=MultipleOf("routed_ranks"), source=README)
_ROWS_OF_32 = Rule(of=("k",), test=MultipleOf(32.0), source=README)
_RANKS_OF_8 = Rule(of=("ranks",), test=MultipleOf(8.0), source=README)


def _variant(operator: str, version: str, family: str, *rules: Rule, minds: tuple[str, ...] = ()) -> Variant:
    return Variant(
        operator=operator, version=version, family=family, rules=(*rules, _WHOLE), minds=(DEDICATED, *minds)
    )


def _a2_mesh(operator: str, version: str, source: Source, *more: Rule) -> Variant:
    return _variant(
        operator, version, "a2", *_asks(README, ranks=Within(16.0, 256.0)), _RANKS_OF_8, _ROWS_OF_32,
        *more, window("a2_mesh_mb", V3),
        *_asks(source, m=Within(1.0, 256.0), k=Within(32.0, 7168.0), top_k=Within(1.0, 16.0),
               experts_per_rank=Within(1.0, 24.0)),
        minds=(ONE_GROUP,),
    )  # fmt: skip


def _a2_levels(operator: str, version: str, source: Source, tokens: float, buffer: str) -> Variant:
    return _variant(
        operator, version, "a2", _RANKS_OF_8, _ROWS_OF_32, window(buffer, source),
        *_asks(README_V2, ranks=Within(16.0, 64.0), experts=Within(2.0, 512.0)),
        *_asks(source, m=Within(1.0, tokens), k=Within(32.0, 10240.0), top_k=Within(1.0, 16.0)),
    )  # fmt: skip


def _a3(operator: str, version: str, buffer: str) -> Variant:
    return _variant(
        operator, version, "a3", window(buffer, V3),
        *_asks(README_V2, ranks=Within(2.0, 768.0), experts=Within(1.0, 1024.0)),
        *_asks(V3, m=Within(1.0, 512.0), k=Within(1024.0, 8192.0), top_k=Within(1.0, 16.0)),
    )  # fmt: skip


def _versions(operator: str) -> tuple[Variant, ...]:
    return (
        _a2_mesh(operator, "v1", README),
        _a2_mesh(operator, "v2, v3 fullmesh", README_V2, *_asks(README_V2, experts=Within(2.0, 512.0))),
        _a2_levels(operator, "v2, v3 hierarchy", V3, 256.0, "a2_hierarchy_mb"),
        _a2_levels(operator, "v4 hierarchy", V4, 512.0, "a2_hierarchy_v4_mb"),
        _variant(
            operator, "v1", "a3", window("a3_v1_mb", README),
            *_asks(README, ranks=OneOf((8.0, 16.0, 32.0, 64.0, 128.0, 144.0, 256.0, 288.0)),
                   k=OneOf((7168.0,)), m=Within(1.0, 512.0), top_k=Within(1.0, 8.0)),
            minds=(ONE_GROUP,),
        ),
        _a3(operator, "v2, v3 fullmesh_v1", "a3_v3_mb"),
        _a3(operator, "v2, v3 fullmesh_v2", "a3_v3_split_mb"),
        _variant(
            operator, "v4", "950",
            *_asks(V4, m=Within(1.0, 512.0), k=Within(1024.0, 8192.0)),
            minds=("UB memory semantics; the window it needs of 2 x HCCL_BUFFSIZE - 1 MB is not documented",),
        ),
    )  # fmt: skip


# --- the whole expert path in one kernel --------------------------------------------------------------------

FFN = Source("dispatch_ffn_combine README; vllm-ascend ascend_forward_context.py", "2025-11; 2026-08")
SELECTOR = Source("vllm_ascend/ascend_forward_context.py", "2026-08")

FUSED = (
    Variant(
        operator="dispatch_ffn_combine", version="v1", family="a3", minds=(DEDICATED,),
        rules=(
            *_asks(FFN, ranks=Within(2.0, 32.0), m=Within(1.0, 512.0)), _WHOLE, window("ffn_combine_mb", FFN),
        ),
    ),
    Variant(
        operator="dispatch_ffn_combine", version="v1", family="a2", minds=(DEDICATED,),
        rules=(
            *_asks(Source("vllm-ascend PR 13426, PR 7779", "2026"), ranks=Within(2.0, 8.0)),
            *_asks(FFN, m=Within(1.0, 512.0)), _WHOLE, window("ffn_combine_mb", FFN),
        ),
    ),
    Variant(
        operator="moe_combine_normal", version="v1", family="a3", minds=(DEDICATED,),
        rules=(window("combine_normal_mb", README),),
    ),
    Variant(
        operator="mega_moe", version="v1", family="a3", minds=(DEDICATED,),
        rules=(
            *_asks(SELECTOR, ranks=Within(2.0, 64.0), mega_moe_max_tokens=Within(1.0, 4096.0)),
            Rule(of=("m",), test=Within(1.0, "mega_moe_max_tokens"), source=SELECTOR),
            Rule(of=("m",), test=Within(1.0, 4096.0), source=SELECTOR),
            _WHOLE,
        ),
    ),
)  # fmt: skip
"""Dispatch, experts and combine in one kernel."""

DISPATCH = (*(variant for name in NAMES for variant in _versions(name)), *FUSED)
"""Every version of dispatch, combine, and what holds both."""
