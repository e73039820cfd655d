"""Tables of measured kernels: what was run, on which sizes, how long each took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A kind of kernel: the columns that give its sizes, and the one that sorts them into classes.

    ``bounds`` are the inclusive upper ends of all classes of ``sorted_by`` but the last.
    """

    name: str
    sizes: tuple[str, ...]
    sorted_by: str
    bounds: tuple[float, ...]

    def classes(self) -> list[str]:
        """Names of the classes, smallest first.

        Examples
        --------
        >>> KINDS["matmul"].classes()
        ['m <= 16', 'm <= 256', 'm > 256']
        """
        return [*(f"{self.sorted_by} <= {bound:g}" for bound in self.bounds),
                f"{self.sorted_by} > {self.bounds[-1]:g}"]  # fmt: skip


_ATTENTION = ("batch", "seq_len", "heads", "kv_heads", "head_dim")
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("matmul", ("m", "n", "k"), "m", (16.0, 256.0)),
        Kind(
            "moe_ffn",
            ("num_tokens", "hidden_size", "width", "num_experts", "top_k", "ep"),
            "num_tokens",
            (4.0, 256.0),
        ),
        Kind("context_attention", _ATTENTION, "seq_len", (512.0, 2048.0)),
        Kind("decode_attention", _ATTENTION, "cache_bytes", (2.0**20, 2.0**27)),
        Kind("collective", ("ranks", "size"), "size", (1e6,)),
    )
}
"""Every kind of kernel that can be read and scored."""


@dataclass(frozen=True)
class KernelTable:
    """Measurements of one kind of kernel with one element type.

    ``columns`` hold the sizes by name (SI: bytes), ``words`` the collective of each row where there is one,
    ``time`` the measured times [s].
    """

    name: str
    kind: Kind
    dtype: str
    columns: Mapping[str, Numbers]
    words: tuple[str, ...]
    time: Numbers

    def __len__(self) -> int:
        return len(self.time)

    def where(self, at: NDArray[np.bool_]) -> KernelTable:
        """Some of the rows."""
        words = tuple(word for word, here in zip(self.words, at, strict=False) if here)
        columns = {name: values[at] for name, values in self.columns.items()}
        return KernelTable(self.name, self.kind, self.dtype, columns, words, self.time[at])

    def row(self, index: int) -> str:
        """One row in words, to name it in a report."""
        sizes = ", ".join(f"{name} {self.columns[name][index]:g}" for name in self.kind.sizes)
        return f"{self.words[index]}, {sizes}" if self.words else sizes
