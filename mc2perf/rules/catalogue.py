"""Every operator there are rules for: its versions, what its numbers are called, who chooses its pieces."""

from __future__ import annotations

from dataclasses import dataclass

from mc2perf.rules.dense import DENSE
from mc2perf.rules.dispatch import DISPATCH
from mc2perf.rules.exchange import EXCHANGES
from mc2perf.rules.frameworks import FRAMEWORKS
from mc2perf.rules.rule import Variant

VARIANTS: tuple[Variant, ...] = (*DENSE, *EXCHANGES, *DISPATCH, *FRAMEWORKS)
"""Every version of every operator on every family of machines."""

FAMILIES = {"a2": "atlas_800t_a2", "a3": "atlas_800t_a3", "950": "ascend_950pr"}
"""Family of machines with rules -> a profile of it."""

_DENSE = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")
_DISPATCH = ("moe_distribute_dispatch", "moe_distribute_combine")
_GROUPED = ("all_to_all_v_grouped_matmul", "grouped_matmul_all_to_all_v")


@dataclass(frozen=True)
class Pieces:
    """How an operator is cut, and whether a user can say so."""

    knob: bool
    words: str


PIECES = {
    **dict.fromkeys(_DENSE, Pieces(False, "CANN's tiling chooses the tile count (commTurn accepts only 0)")),
    **dict.fromkeys(
        ("all_to_all_matmul", "matmul_all_to_all"),
        Pieces(False, "CANN's tiling chooses the tile count; a kernel of your own chooses headMSize"),
    ),
    **dict.fromkeys(_GROUPED, Pieces(False, "one piece per local expert; ep decides how many")),
    **dict.fromkeys(_DISPATCH, Pieces(False, "not cut along computation; frameworks may chunk tokens")),
    "coc": Pieces(True, "--coc-parallel-num 1, 2, 4 or 8"),
    "mindspeed_mc2": Pieces(False, "CANN's tiling chooses the tile count"),
    "mindspeed_mm_dispatcher": Pieces(False, "one piece per local expert; ep decides how many"),
    "dispatch_ffn_combine": Pieces(False, "the kernel chooses"),
    "mega_moe": Pieces(False, "the kernel chooses"),
    "moe_combine_normal": Pieces(False, "not cut along computation"),
}
"""Operator -> knob or outcome."""

UNKNOWN_PIECES = Pieces(False, "CANN's tiling chooses")

_EXPERT_PATH = {"m": "tokens per rank", "k": "hidden size", "ranks": "EP ranks"}
_NAMED: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    ((*_DISPATCH, "moe_combine_normal", "dispatch_ffn_combine", "mega_moe"), _EXPERT_PATH),
    (("all_to_all_matmul",), {"k_per_rank": "k / ranks"}),
    (_GROUPED, {"m": "rows per rank", "mb_per_peer": "MB per peer"}),
)
NAMES = {operator: names for operators, names in _NAMED for operator in operators}
"""Operator -> what its facts are called, where that is not their name."""

SWITCHES = tuple(dict.fromkeys(variant.operator for variant in FRAMEWORKS))
"""Switches of frameworks: no operators, and none of them decides whether something fused runs."""

OPERATORS = tuple(dict.fromkeys(v.operator for v in VARIANTS if v.operator not in SWITCHES))
"""Every operator there are rules for."""


def variants_of(operator: str, family: str) -> tuple[Variant, ...]:
    """Versions of an operator on a family of machines, oldest first.

    Examples
    --------
    >>> [variant.version for variant in variants_of("moe_distribute_dispatch", "a3")]
    ['v1', 'v2, v3 fullmesh_v1', 'v2, v3 fullmesh_v2']
    >>> variants_of("moe_distribute_dispatch", "gpu")
    ()
    """
    return tuple(v for v in VARIANTS if v.operator == operator and v.family == family)
