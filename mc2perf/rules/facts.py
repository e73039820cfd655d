"""Facts that rules ask about: what is given, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mc2perf.equations import windows
from mc2perf.operators import DTYPES, computed_in
from mc2perf.units import MIB, Num


class UnknownError(KeyError):
    """A fact that was not given."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Facts(Mapping[str, Any]):
    """Given facts by name; others follow from them."""

    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        value = self.given.get(name)
        if value is not None:
            return value
        if name in WINDOWS:
            return WINDOWS[name].needed(self)
        if name in DERIVED:
            return DERIVED[name](self)
        raise UnknownError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.given, **DERIVED, **WINDOWS})

    def __len__(self) -> int:
        return len(list(iter(self)))


DERIVED: dict[str, Callable[[Facts], Any]] = {
    "experts": lambda f: f["experts_per_rank"] * f["routed_ranks"],
    "experts_per_rank": lambda f: f["experts"] / f["routed_ranks"],
    "routed_ranks": lambda f: f["ranks"] - f.given.get("shared_ranks", 0.0),
    "shared_copies": lambda f: np.greater(f["shared_ranks"], 0.0) * 1.0,
    "item_size": lambda f: DTYPES[computed_in(f["dtype"])].size,
    "result_size": lambda f: max(DTYPES[computed_in(f["dtype"])].size, 2.0),
    "k_per_rank": lambda f: f["k"] / f["ranks"],
    "mb_per_peer": lambda f: f["m"] * f["payload_width"] * f["item_size"] / f["ranks"] / MIB,
    "across": lambda f: np.greater(f["tiers"], 1.0),
    "gathered_mb": lambda f: f["m"] * f["k"] * f["item_size"] * f["ranks"] / MIB,
    "scattered_mb": lambda f: f["m"] * f["n"] * f["result_size"] / MIB,
}
"""What follows from the facts given."""


@dataclass(frozen=True)
class Window:
    """The HCCL_BUFFSIZE that an operator needs: an equation and the facts that are its parameters."""

    equation: Callable[..., Num]
    parameters: Mapping[str, str]
    title: str

    def needed(self, facts: Facts) -> Num:
        """Window in MB of 2^20 bytes."""
        numbers = {name: facts[fact] for name, fact in self.parameters.items()}
        return self.equation(**numbers) / MIB


_MESH = {"tokens": "m", "ep": "ranks", "local_experts": "experts_per_rank", "top_k": "top_k",
         "hidden_size": "k"}  # fmt: skip
_LEVELS = {"tokens": "m", "experts": "experts", "top_k": "top_k", "hidden_size": "k"}

WINDOWS = {
    "a2_mesh_mb": Window(windows.a2_mesh_window, _MESH, "A2, full mesh"),
    "a2_hierarchy_mb": Window(
        windows.a2_hierarchy_window, {**_LEVELS, "item_size": "result_size"}, "A2, hierarchy"
    ),
    "a2_hierarchy_v4_mb": Window(
        windows.a2_hierarchy_window_v4, {**_LEVELS, "ep": "ranks"}, "A2, hierarchy of V4"
    ),
    "a3_v1_mb": Window(windows.a3_window_v1, _MESH, "A3, first version"),
    "a3_v3_mb": Window(windows.a3_window_v3, {**_MESH, "shared": "shared_copies"}, "A3, fullmesh_v1"),
    "a3_v3_split_mb": Window(
        windows.a3_window_v3_split, {**_MESH, "shared": "shared_copies"}, "A3, fullmesh_v2"
    ),
    "ffn_combine_mb": Window(
        windows.ffn_combine_window, {"tokens": "m", "top_k": "top_k", "hidden_size": "k"},
        "dispatch_ffn_combine",
    ),
    "combine_normal_mb": Window(
        windows.combine_normal_window, {"tokens": "m", "top_k": "top_k", "token_bytes": "row_bytes"},
        "combine of long prompts",
    ),
}  # fmt: skip
"""Fact of a rule on HCCL_BUFFSIZE -> the window's equation."""

DERIVED["row_bytes"] = lambda f: f["k"] * f["result_size"]
