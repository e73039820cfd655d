"""Sparse attention: an indexer scores every key for every query, attention meets those it picks.

The lightning indexer adds what its small heads find, ``I(t, s) = sum_j w(t, j) ReLU(q(t, j) . k(s))``; its
work still grows with the square of a sequence, that of attention no longer does. Picked latents are met in
their absorbed form, as each query has keys of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.costs import Cost
from mc2perf.equations import attention
from mc2perf.equations.sparse import top_k_bytes
from mc2perf.model import Attention, Indexer
from mc2perf.units import Num
from mc2perf.workload.keys import Widths, kept_keys, key_bytes, keys_picked, keys_scored, keys_seen
from mc2perf.workload.parts import Part, Plain, Segment, Segments
from mc2perf.workload.tensor_parallel import TensorParallel, shared_out

SCORE_BYTES = 4.0
"""Scores are added up, and compared, in float32. [B]"""

SCORE_PASSES = 3.0
"""Radix selection: scores are written once and read twice."""


class Core(NamedTuple):
    """Scores and values of a prompt on a tensor-parallel group, and where every query picks its keys."""

    flops: Num
    context: Num
    picks: NDArray[np.bool_]


@dataclass(frozen=True)
class Sparse(TensorParallel):
    """Builds indexers, and decides how attention meets the keys of a prompt."""

    @property
    def kernel_dtype(self) -> str:
        """Element type of attention kernels."""
        return self.layout.attention_dtype

    @property
    def kv_size(self) -> float:
        """Bytes of an element of keys and values. [B]"""
        return self.item

    @property
    def tokens_before(self) -> Num:
        """Tokens of every sequence that were there before."""
        return 0.0

    # --- indexer -----------------------------------------------------------------------------------------

    def indexer(self, mixer: Attention) -> list[Part]:
        """Queries of its heads, key and weights, scores of every key, the pick.

        Every rank of a tensor-parallel group runs all of it, as each needs every pick.

        References
        ----------
        DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1, equation 1, and its ``inference/model.py``.
        """
        index = mixer.indexer
        if index is None:
            return []
        scored = self._scored(mixer)
        return [
            self._every_row("index queries", *self._query_projection(mixer, index)),
            self._every_row("index keys", float(mixer.index_columns), self.hidden),
            Plain("index scores", partial(self._scores, mixer, index, scored)),
            Plain("index top-k", partial(self._pick, index, scored)),
        ]

    def indexer_backward(self, mixer: Attention) -> list[Part]:
        """Its own loss compares the scores of picked keys with attention's; nothing flows on to the layer.

        References
        ----------
        DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1.1, equation 4: sparse training.
        """
        index = mixer.indexer
        if index is None:
            return []
        picked = keys_picked(mixer, self.tokens_before, self.layout.seq_len)
        return [
            Plain(
                "index scores backward", partial(self._over_keys, "index scores backward", 2.0, index, picked)
            ),
            self._gradient("index queries", *self._query_projection(mixer, index)),
            self._gradient("index keys", float(mixer.index_columns), self.hidden),
        ]

    def _context(self, mixer: Attention) -> Num:
        """Keys that a query sees on average."""
        return keys_seen(mixer, self.tokens_before, self.layout.seq_len, self.costs.ledger.run)

    def _scored(self, mixer: Attention) -> Num:
        """Keys that its indexer scores for a query on average."""
        return keys_scored(mixer, self.tokens_before, self.layout.seq_len)

    def _query_projection(self, mixer: Attention, index: Indexer) -> tuple[float, float]:
        """Columns and contraction of the queries' projection: from the latent of queries, if there is one."""
        return float(index.heads * index.head_dim), float(mixer.q_lora_rank) or self.hidden

    def _every_row(self, name: str, n: float, k: float) -> Plain:
        """A matmul of all rows of a tensor-parallel group, whose weights are not cut."""
        return Plain(name, partial(self._alone, name, n, k, ()))

    def _gradient(self, name: str, n: float, k: float) -> Plain:
        return Plain(f"{name} wgrad", lambda pieces: shared_out(self._wgrad(name, n, k), pieces))

    def _scores(self, mixer: Attention, index: Indexer, scored: Num, pieces: Num) -> Segments:
        """Scores of all keys; a prompt's are few beside its queries."""
        return self._over_keys("index scores", 1.0, index, scored, pieces)

    def _over_keys(self, name: str, times: float, index: Indexer, keys: Num, pieces: Num) -> Segments:
        """A matmul of every query of the heads with so many keys, or several."""
        flops = times * self.costs.ledger.run(
            f"{name}: FLOPs", attention.attention_flops,
            tokens=self.layout.gathered / pieces, context=keys, heads=float(index.heads),
            key_dim=float(index.head_dim), value_dim=0.0,
        )  # fmt: skip
        return (Segment(name, "compute", self.costs.attention(name, flops, self.kernel_dtype, keys)),)

    def _pick(self, index: Indexer, scored: Num, pieces: Num) -> Segments:
        moved = self.costs.ledger.run(
            "index top-k: bytes", top_k_bytes,
            queries=self.layout.gathered / pieces, keys=scored, picks=float(index.picks),
            block=float(index.block), score_size=SCORE_BYTES, passes=SCORE_PASSES,
        )  # fmt: skip
        return (Segment("index top-k", "compute", self.costs.vector("index top-k", moved)),)

    # --- attention of a prompt ---------------------------------------------------------------------------

    def _core_of(self, mixer: Attention) -> Core:
        """Whichever takes fewer FLOPs: all keys under a mask, cached ones unfolded, or those picked.

        References
        ----------
        DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1: on latents in their absorbed form, and short
        sequences under a mask.
        """
        if not mixer.top_keys:
            every = self._context(mixer)
            return Core(self._flops_over(mixer, every, Widths.unfolded(mixer)), every, np.array(False))
        every, picked = self._context(replace(mixer, top_keys=0)), self._context(mixer)
        masked = self._flops_over(mixer, every, Widths.unfolded(mixer))
        gathered = self._flops_over(mixer, picked, Widths.of(mixer))
        picks = np.asarray(np.less(gathered, masked + self._unfolding(mixer)))
        return Core(np.where(picks, gathered, masked), np.where(picks, picked, every), picks)

    def _unfolding(self, mixer: Attention) -> Num:
        """FLOPs in which latents that were there before become keys and values."""
        return 0.0

    def _flops_over(self, mixer: Attention, context: Num, widths: Widths) -> Num:
        flops: Num = self.costs.ledger.run(
            "attention: FLOPs", attention.attention_flops,
            tokens=self.layout.gathered, context=context, heads=float(mixer.heads),
            key_dim=widths.key, value_dim=widths.value,
        )  # fmt: skip
        return flops

    def _attend(self, mixer: Attention, name: str, core: Core, times: float, pieces: Num) -> Cost:
        """The kernel of a prompt: computing pairs of queries and keys, or gathering what was picked."""
        flops = times * core.flops / self.layout.tp / pieces
        cost = self.costs.attention(name, flops, self.kernel_dtype, core.context)
        if not np.any(core.picks):
            return cost
        one = key_bytes(mixer, self.kv_size, self.layout.tp)
        picked = times * self.layout.gathered / pieces * core.context * one
        held = kept_keys(mixer, self.tokens_before + self.layout.seq_len) * one
        return longer(cost, self.costs.gather(f"{name}: picked keys", picked, held), core.picks)


def longer(cost: Cost, read: Cost, where: NDArray[np.bool_]) -> Cost:
    """A kernel that computes and reads at once, where it reads."""
    work = np.where(where, np.maximum(cost.work, read.work), cost.work)
    return Cost(
        work, cost.launch, np.where(where & np.greater_equal(read.work, cost.work), work, cost.memory)
    )
