"""The links of a machine: tiers of wires, the engines that drive them, what a collective costs on each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from mc2perf.units import (
    Bytes,
    BytesPerSecond,
    Count,
    Factor,
    Ratio,
    Seconds,
    SecondsPerByte,
    SecondsPerByte2,
)


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
