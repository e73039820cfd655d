"""The catalogue of fused operators: one row each says what travels, in which order, and what m, n, k mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mc2perf.units import Num


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A collective fused with a matmul.

    ``order`` is what comes first. ``payload`` is the matrix that travels, the input (m x k) or the output
    (m x n). ``gathered`` says that m counts the rows of one rank while the matmul sees those of all ranks.
    ``pieces`` are tiles of a chosen axis or one per local expert; ``local_first`` computes the rank's own
    rows while the first ones travel. ``backward`` is the operator that computes the input's gradient.
    """

    name: str
    order: Literal["comm_first", "compute_first"]
    collective: str
    payload: Literal["input", "output"]
    gathered: bool = False
    grouped: bool = False
    local_first: bool = False
    backward: str
    m: str
    n: str
    k: str

    @property
    def pieces(self) -> str:
        """What one piece is."""
        return "expert" if self.grouped else "tile"


_EXPERT_ROWS = "rows of one rank after the exchange, summed over its local experts"

_CATALOGUE = (
    Operator(
        name="all_gather_matmul",
        order="comm_first",
        collective="all_gather",
        payload="input",
        gathered=True,
        local_first=True,
        backward="matmul_reduce_scatter",
        m="rows per rank; the matmul sees ranks x m",
        n="columns of one rank's weight shard",
        k="full contraction",
    ),
    Operator(
        name="matmul_reduce_scatter",
        order="compute_first",
        collective="reduce_scatter",
        payload="output",
        backward="all_gather_matmul",
        m="rows of all ranks together; each keeps m / ranks",
        n="full columns",
        k="contraction of one rank's shard",
    ),
    Operator(
        name="matmul_all_reduce",
        order="compute_first",
        collective="all_reduce",
        payload="output",
        backward="matmul_all_reduce",
        m="all rows, on every rank",
        n="full columns",
        k="contraction of one rank's shard",
    ),
    Operator(
        name="all_to_all_matmul",
        order="comm_first",
        collective="all_to_all",
        payload="input",
        backward="matmul_all_to_all",
        m="rows of one rank after the exchange (batch x sequence / ranks)",
        n="columns of the weight",
        k="full contraction after the exchange (hidden x ranks)",
    ),
    Operator(
        name="matmul_all_to_all",
        order="compute_first",
        collective="all_to_all",
        payload="output",
        backward="all_to_all_matmul",
        m="rows of one rank before the exchange",
        n="columns computed and sent",
        k="contraction",
    ),
    Operator(
        name="all_to_all_v_grouped_matmul",
        order="comm_first",
        collective="all_to_all",
        payload="input",
        grouped=True,
        backward="grouped_matmul_all_to_all_v",
        m=_EXPERT_ROWS,
        n="columns of one expert's weight",
        k="contraction (hidden size)",
    ),
    Operator(
        name="grouped_matmul_all_to_all_v",
        order="compute_first",
        collective="all_to_all",
        payload="output",
        grouped=True,
        backward="all_to_all_v_grouped_matmul",
        m=_EXPERT_ROWS,
        n="columns of one expert's weight (hidden size)",
        k="contraction (expert width)",
    ),
)

OPERATORS = {operator.name: operator for operator in _CATALOGUE}
"""Name -> fused operator."""

MOE_LAYER = "moe_layer"
"""The whole expert path as one target: m tokens of one rank, k hidden size, n expert width."""

MOE_LAYER_MEANING = {
    "m": "tokens of one rank, before each is sent to its top_k experts",
    "n": "width of one expert",
    "k": "hidden size",
}

TARGETS = (*OPERATORS, MOE_LAYER)
"""Every operator that can be estimated by name."""


@dataclass(frozen=True)
class ElementType:
    """Bytes of an element, and of the scales that go with ``block`` elements (0: one per row).

    ``widened_to`` is the type of the rows beside weights of this one: they are widened on the way to the
    cube, which multiplies in it.
    """

    size: float
    scale_size: float = 0.0
    scale_block: float = 0.0
    widened_to: str = ""

    @property
    def stored_size(self) -> float:
        """Bytes of a weight in memory, with its share of the scale of its block. [B]

        Examples
        --------
        >>> DTYPES["int8"].stored_size, DTYPES["w4a8"].stored_size
        (1.0, 0.5625)
        """
        return self.size + (self.scale_size / self.scale_block if self.scale_block else 0.0)

    def scale_bytes_per_row(self, width: Num) -> Num:
        """Bytes of the scales of one row. [B]"""
        if not self.scale_block:
            return self.scale_size
        return self.scale_size * -(-width // self.scale_block)


DTYPES = {
    "bf16": ElementType(2.0),
    "fp16": ElementType(2.0),
    "fp32": ElementType(4.0),
    # one float32 scale per token, as the dynamic per-token quantisation of CANN's dispatch
    "int8": ElementType(1.0, scale_size=4.0),
    "fp8": ElementType(1.0, scale_size=4.0),
    # OCP microscaling: one e8m0 byte for 32 elements
    "mxfp8": ElementType(1.0, scale_size=1.0, scale_block=32.0),
    "mxfp4": ElementType(0.5, scale_size=1.0, scale_block=32.0),
    # weights of 4 bit with a 16-bit scale for 32 of them (config.json of Kimi-K2.5: group_size 32), rows int8
    "w4a8": ElementType(0.5, scale_size=2.0, scale_block=32.0, widened_to="int8"),
}
"""Element types that matrices may have."""

PAYLOADS = tuple(name for name, item in DTYPES.items() if not item.widened_to)
"""Those that rows, what is sent, and caches may have."""


def computed_in(dtype: str) -> str:
    """The type of the rows and of the arithmetic of matmuls whose weights are of a type.

    Examples
    --------
    >>> computed_in("w4a8"), computed_in("mxfp4")
    ('int8', 'mxfp4')
    """
    return DTYPES[dtype].widened_to or dtype


def unquantised(dtype: str) -> str:
    """Type of what a model of small elements leaves as it was: attention, gate, embedding, output head.

    DeepSeek-V3 report, 2024, section 3.3.1; its published FP8 weights, and W8A8 made of them, do the same.

    Examples
    --------
    >>> unquantised("fp8"), unquantised("fp16")
    ('bf16', 'fp16')
    """
    return dtype if DTYPES[dtype].size >= 2.0 else "bf16"
