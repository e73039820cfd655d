"""What a machine is: cube, memory, link tiers with their engines, launch costs, limits.

Every number is a :class:`Quantity`: a float in SI that remembers where it comes from. The classes only
hold; the arithmetic is in :mod:`mc2perf.equations`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from mc2perf.units import (
    Bytes,
    BytesPerSecond,
    Count,
    Factor,
    FlopsPerSecond,
    Number,
    Ratio,
    Seconds,
    SecondsPerByte,
    SecondsPerByte2,
)

Kind = Literal["datasheet", "vendor_model", "measured", "fitted", "assumed"]
KINDS: tuple[str, ...] = get_args(Kind)


class Quantity(float):
    """A number in SI with its unit, its kind (see ``KINDS``) and its reference.

    Arithmetic gives plain floats: a result is not a quantity with a source.
    """

    symbol: str
    kind: str
    ref: str

    def __new__(cls, value: float, symbol: str, kind: str, ref: str) -> Quantity:
        """Refuse a number without a known kind or without a reference."""
        if kind not in KINDS:
            raise ValueError(f"kind '{kind}' is not one of {', '.join(KINDS)}")
        if not ref.strip():
            raise ValueError("a number needs a reference; write where it comes from in 'ref'")
        made = super().__new__(cls, value)
        made.symbol, made.kind, made.ref = symbol, kind, ref
        return made

    def __reduce__(self) -> tuple[type[Quantity], tuple[float, str, str, str]]:
        return Quantity, (float(self), self.symbol, self.kind, self.ref)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Base block of the cube's tiling: rows, columns, depth [elements]."""

    m: Count
    n: Count
    k: Count


@dataclass(frozen=True, kw_only=True)
class ConstantRule:
    """One utilisation of the cube peak, whatever the size, times block-round occupancy.

    ``of_dtype`` has that of element types that reach another share of their peak.
    """

    form: Literal["constant"]
    utilisation: Ratio
    of_dtype: dict[str, Ratio] = field(default_factory=dict)
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class L2StepsRule:
    """CANN's A2/A3 rule: own rate per core, three utilisations by L2 footprint, ``min(blocks, C)/C``."""

    form: Literal["l2_steps"]
    rate_per_core: dict[str, FlopsPerSecond]
    part_size: Bytes
    full_size: Bytes
    part: Ratio
    full: Ratio
    out: Ratio
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class PowerRule:
    """CANN's first 950 rule: own rate per core, a power law in k and in mn/(m+n)."""

    form: Literal["power"]
    rate_per_core: dict[str, FlopsPerSecond]
    base: Ratio
    k_half: Number
    mn_half: Number
    exponent: Number
    gain_cap: Factor
    cap: Ratio
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class LinearRule:
    """CANN's 950 fit-balance rule: one effective rate per core and dtype, plus a fixed launch."""

    form: Literal["linear"]
    rate_per_core: dict[str, FlopsPerSecond]
    launch: dict[str, Seconds]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a utilisation curve: work [FLOP] and utilisation of the cube peak."""

    work: Number
    utilisation: Ratio


@dataclass(frozen=True, kw_only=True)
class CurveRule:
    """Utilisation interpolated over the work of the matmul, times block-round occupancy."""

    form: Literal["curve"]
    points: tuple[Point, ...]
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class KneeRule:
    """Two roofs with a rounded corner; weights re-read, narrow or small ones stream at other rates.

    ``resident`` is the share of L2 well below which weights arrive faster than from memory;
    ``contraction`` is what one core needs per element of the contraction, however few results there are.
    """

    form: Literal["knee"]
    utilisation: dict[str, Ratio]
    memory_efficiency: Ratio
    knee: Factor
    reread: Ratio
    block_rows: Number
    narrow_columns: Number
    resident: Ratio
    contraction: Seconds
    launch: Seconds


MatmulRule = ConstantRule | L2StepsRule | PowerRule | LinearRule | CurveRule | KneeRule


@dataclass(frozen=True, kw_only=True)
class Work:
    """Least and most work that a fit has seen. [FLOP]"""

    smallest: Number
    largest: Number


@dataclass(frozen=True, kw_only=True)
class Cube:
    """The matrix engine of one rank: cores, peak by dtype, base block and the utilisation rules.

    ``served`` is the same for the prefill of a served model, whose kernels are issued one by one;
    ``sustained`` is the share of the speed of single kernels that whole training steps keep up: clocks under
    load, gaps between kernels. It is fitted to step times, and never mixed with the speed of one matmul.
    ``fitted_work`` is the work of the matmuls that a rule was fitted to, where it says so.
    """

    cores: Count
    peak: dict[str, FlopsPerSecond]
    base_block: Block
    rule: str
    rules: dict[str, MatmulRule]
    sustained: Ratio = 1.0
    served: Ratio = 1.0
    fitted_work: dict[str, Work] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttentionRule:
    """Attention over a whole sequence: a share of the cube peak, and what a query costs beside its keys.

    A query costs as much as if it saw ``extra_keys`` more: softmax, masks and tiles that are not full.
    """

    utilisation: Ratio
    extra_keys: Number
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class DecodeAttentionRule:
    """Attention of one new token per sequence: its cache passes memory, or L2 where that holds it.

    ``l2_gain`` is the rate of L2 over that of memory, ``resident`` the share of L2 that a cache may fill.
    A core spends at least ``key_head_time`` on a key head of a sequence, and ``query_head_time`` on a
    query head beside it.
    """

    memory_efficiency: Ratio
    l2_gain: Factor
    resident: Ratio
    key_head_time: Seconds
    query_head_time: Seconds
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class QuantisedMatmulRule:
    """An int8 matmul with bf16 rows in and out: quantise the rows, multiply, scale the results.

    The passes reach shares of the memory bandwidth; ``ramp`` is what they add to the launch once there are
    many more rows than ``ramp_rows``.
    """

    utilisation: Ratio
    memory_efficiency: Ratio
    knee: Factor
    quantise_efficiency: Ratio
    dequantise_efficiency: Ratio
    ramp: Seconds
    ramp_rows: Number
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class GroupedMatmulRule:
    """A matmul per expert in one kernel: two roofs with a rounded corner."""

    utilisation: Ratio
    memory_efficiency: Ratio
    knee: Factor
    launch: Seconds


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Kernels beside the dense matmul; without a rule of their own, experts are priced like dense matmuls.

    ``grouped`` moves rows in the type of the matmul, ``grouped_w8a8`` quantises them on the way.
    ``reorder_efficiency`` is the share of the memory bandwidth that kernels reach which gather or scatter
    rows by an index, as frameworks without a fused permute launch them.
    """

    attention: AttentionRule
    decode_attention: DecodeAttentionRule
    w8a8: QuantisedMatmulRule
    grouped: GroupedMatmulRule | None = None
    grouped_w8a8: GroupedMatmulRule | None = None
    reorder_efficiency: Ratio = 1.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Device memory of one rank; ``efficiency`` is the share of the bandwidth that kernels reach."""

    capacity: Bytes
    bandwidth: BytesPerSecond
    efficiency: Ratio
    l2: Bytes


@dataclass(frozen=True, kw_only=True)
class Band:
    """``constant + slope S + quadratic S^2`` for whole-array sizes S up to ``up_to``."""

    constant: Seconds
    slope: SecondsPerByte = 0.0
    quadratic: SecondsPerByte2 = 0.0
    up_to: Bytes = math.inf


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Smallest and largest size that a fit has seen."""

    smallest: Bytes
    largest: Bytes


RankRule = Literal["interpolate", "interpolate_share", "mesh_half", "mesh_peers", "ring", "ring_half"]
"""``interpolate`` compares rank counts at the same array. With ``interpolate_share`` the first band ends at
the same share of a rank, as long as the ranks fit into a server."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Cost of one collective: bands per number of ranks, and the rule for other numbers of ranks.

    ``device`` is what the device alone needs where ``ranks`` holds host-launched times: a kernel that
    sends many pieces pays the difference once. ``sizes`` are those that the fit of a rank count has seen.
    """

    rank_rule: RankRule
    ranks: dict[int, tuple[Band, ...]]
    sizes: dict[int, Sizes] = field(default_factory=dict)
    device: dict[int, tuple[Band, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Latency of one step, and the share of the link rate that this engine reaches.

    Kernels that post the messages of an all-to-all without waiting for the one before say what one more
    peer costs, ``per_peer``, and what one more row of tokens, ``per_row``, however short it is.
    """

    latency: Seconds
    efficiency: Ratio
    per_peer: Seconds = math.inf
    per_row: Seconds = 0.0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Who drives the wires: a curve per collective, else latency per step and a share of the link rate.

    ``interleaves`` says whether a kernel can compute between two of its pieces. ``host_launch`` is what
    one host launch costs (contained in fitted curves, added to ``wires``): a kernel that sends many pieces
    pays it once. ``carries`` names the collectives it is made for; none means all.
    ``round_cost`` is the flag, notify or barrier between two pieces. The two slow-down factors say how
    much longer each side takes while both run. ``deduplicates``: a token crosses these links once to each
    distinct rank, between servers once to each distinct server, however many of its experts live there.
    ``leaves_server`` says that it uses the outer links also between ranks of one server.
    ``put`` and ``shmem`` bound the bytes of one put and the symmetric heap that holds the pieces in flight,
    ``flags`` the pieces of one rank's rows. ``fitted_at`` is the bandwidth of a rank's links where the
    curves were fitted: on other links their slopes scale with it. Beyond the fitted rank counts constants
    grow with the power ``latency_growth`` of the ranks.
    """

    note: str
    interleaves: bool
    carries: tuple[str, ...] = ()
    deduplicates: bool = False
    leaves_server: bool = False
    host_launch: Seconds = 0.0
    round_cost: Seconds
    comm_under_compute: Factor
    compute_under_comm: Factor
    put: Bytes = math.inf
    shmem: Bytes = math.inf
    flags: Count = math.inf
    wires: Wires | None = None
    fitted_at: BytesPerSecond = math.inf
    latency_growth: Ratio = 0.0
    curves: dict[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Links that reach up to ``ranks`` ranks: wiring, links per rank, rate of one link in one direction.

    ``engine`` answers by default, ``decode_engine`` in decode steps, for what it carries.
    """

    link: str
    wiring: Literal["full_mesh", "switch", "ring", "pcie"]
    ranks: Count
    links: Count
    link_rate: BytesPerSecond
    needs_rdma: bool = False
    engine: str
    decode_engine: str | None = None
    engines: dict[str, Engine]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Fixed device-side cost of a kernel without its own measured launch."""

    vector: Seconds


@dataclass(frozen=True, kw_only=True)
class Host:
    """How fast the host issues kernels; runs beside the device until it waits for a result of it.

    ``per_read`` is what such a wait takes beyond the work before it: the copy, and waking up.
    ``per_training_launch`` is a launch of a training framework in eager mode, which stands for the small
    kernels and the bookkeeping around a kernel that is priced; 0 where it was not fitted.
    """

    per_launch: Seconds
    per_read: Seconds = 0.0
    per_training_launch: Seconds = 0.0

    def launch(self, phase: str) -> tuple[str, Seconds]:
        """What issuing a kernel takes in a phase, and the name of that number."""
        if phase == "train" and np.any(self.per_training_launch):
            return "per_training_launch", self.per_training_launch
        return "per_launch", self.per_launch


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds the pieces of fused operators: bytes per peer, number of pieces, HCCL's open handles."""

    peer_window_min: Bytes = 0.0
    peer_window_max: Bytes = math.inf
    pieces: Count = math.inf
    handles: Count = math.inf


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine: what a rank is, how many share a server, and everything below."""

    profile_version: Literal[1]
    name: str
    title: str
    family: Literal["a2", "a3", "950", "gpu"]
    rank: Literal["npu", "die", "gpu"]
    ranks_per_server: Count
    tiers_run: Literal["in_turn", "together"]
    cube: Cube
    kernels: Kernels
    memory: Memory
    tiers: dict[str, Tier]
    launch: Launch
    host: Host
    limits: Limits
    notes: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything the profile says, after overrides: equal ones answer the same."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]


def quantities(part: Any) -> Iterator[tuple[str, Quantity]]:
    """Walk every sourced number below ``part`` with its dotted path.

    Examples
    --------
    >>> [(path, q.kind) for path, q in quantities({"a": Quantity(1.0, "1", "assumed", "a guess")})]
    [('a', 'assumed')]
    """
    if isinstance(part, Quantity):
        yield "", part
        return
    for name, child in _children(part):
        for path, quantity in quantities(child):
            yield f"{name}.{path}".rstrip("."), quantity


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of everything directly inside a dataclass, a dict or a tuple."""
    if is_dataclass(part):
        yield from ((f.name, getattr(part, f.name)) for f in fields(part))
    elif isinstance(part, dict):
        yield from ((str(key), value) for key, value in part.items())
    elif isinstance(part, tuple):
        yield from ((str(index), value) for index, value in enumerate(part))


def replaced(part: Any, path: tuple[Any, ...], value: float) -> Any:
    """The same part of a machine with one number changed.

    Parameters
    ----------
    part : dataclass, dict, tuple or number
        Where the path begins.
    path : tuple
        Names of fields, keys and indices; empty for the number itself.
    value : float
        In SI.

    Raises
    ------
    LookupError
        The path leads nowhere.

    Examples
    --------
    >>> replaced({"a": (1.0, 2.0)}, ("a", 1), 3.0)
    {'a': (1.0, 3.0)}
    """
    if not path:
        return value
    name, *rest = path
    if is_dataclass(part) and not isinstance(part, type):
        if name not in vars(part):
            raise LookupError(name)
        return replace(part, **{name: replaced(getattr(part, name), tuple(rest), value)})
    if isinstance(part, dict):
        return {**part, name: replaced(part[name], tuple(rest), value)}
    if not isinstance(part, tuple):
        raise LookupError(name)
    return (*part[:name], replaced(part[name], tuple(rest), value), *part[name + 1 :])


def found(part: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path, as in `replaced`.

    Examples
    --------
    >>> found({"a": (1.0, 2.0)}, ("a", 1))
    2.0
    """
    for name in path:
        part = getattr(part, name) if is_dataclass(part) else part[name]
    return part
