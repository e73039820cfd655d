"""What a machine is: cube, memory, link tiers with their engines, launch costs, limits.

Every number is a :class:`mc2perf.quantity.Quantity`: a float in SI that remembers where it comes from. The
classes only hold; the arithmetic is in :mod:`mc2perf.equations`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mc2perf.machine.cube import Cube
from mc2perf.machine.kernels import Kernels
from mc2perf.machine.links import Tier
from mc2perf.units import Bytes, BytesPerSecond, Count, Ratio, Seconds


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Device memory of one rank; ``efficiency`` is the share of the bandwidth that kernels reach."""

    capacity: Bytes
    bandwidth: BytesPerSecond
    efficiency: Ratio
    l2: Bytes


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
