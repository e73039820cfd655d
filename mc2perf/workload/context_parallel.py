"""Attention over a sequence that lies on several ranks: keys in a ring, heads traded for tokens, or both.

In a ring every rank keeps its queries and meets the keys of one rank after the other: a kernel for each
block, and a pass that merges its result with those before. Traded by all-to-alls, a rank holds whole
sequences of fewer heads; a hybrid trades inside and passes around between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mc2perf.costs import Cost, Costs, joined
from mc2perf.equations import steps, training
from mc2perf.model import Attention
from mc2perf.units import Num
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import Segment, Segments

MERGE_BYTES = 10.0
"""A block's result of 16 bit is read, the sum so far in float32 read and written. [B]"""


@dataclass(frozen=True)
class Sequence:
    """Attention of one pass over a cut sequence: its pairs of queries and keys, and their elements.

    ``flops`` and ``context`` are those of an even share of the whole sequence; ``backward`` passes around
    keys and values with their gradients.
    """

    costs: Costs
    layout: Layout
    mixer: Attention
    name: str
    flops: Num
    context: Num
    item: float
    backward: bool

    def segments(self, pieces: Num) -> Segments:
        """Heads traded, blocks with the keys of the next one on their way, heads traded back."""
        core = self._blocks(pieces)
        return (*self._traded("in", pieces), core, *self._ring(core, pieces), *self._traded("out", pieces))

    # --- blocks ------------------------------------------------------------------------------------------

    def _blocks(self, pieces: Num) -> Segment:
        """A kernel for the keys of each rank of the ring, merged one after the other."""
        ring, flops = self.layout.ring, self.flops / pieces
        if not self.layout.balanced:
            flops = flops * self.costs.ledger.run(
                f"{self.name}: of the busiest rank", training.contiguous_ring_factor, cp=ring
            )
        one = self.costs.attention(self.name, flops / ring, self.layout.attention_dtype, self.context / ring)
        blocks = Cost(*(ring * part for part in one))
        merges = ring - 1.0
        if not merges:
            return Segment(self.name, "compute", blocks)
        merged = self.costs.vector(f"{self.name} merged", merges * self._merged(pieces))
        merged = merged._replace(launch=merges * merged.launch)
        return Segment(self.name, "compute", joined(blocks, merged), launches=ring + merges)

    def _merged(self, pieces: Num) -> Num:
        """Bytes of merging one block: results forward; backward gradients of queries, keys, values. [B]"""
        m, rows = self.mixer, self.layout.gathered / pieces
        queries = m.heads * (m.head_dim if self.backward else m.v_head_dim) / self.layout.tp
        keys = self._kv_heads * (m.head_dim + m.v_head_dim) if self.backward else 0.0
        return MERGE_BYTES * rows * (queries + keys)

    @property
    def _kv_heads(self) -> float:
        """Key heads of a rank; latent attention unfolds them."""
        m = self.mixer
        return max(float(m.heads if m.kind == "mla" else m.kv_heads) / self.layout.tp, 1.0)

    # --- communication -----------------------------------------------------------------------------------

    def _ring(self, core: Segment, pieces: Num) -> Segments:
        """What is left of keys and values on their way; in backward, of their gradients too."""
        ring = self.layout.ring
        if ring == 1.0:
            return ()
        size = training.ring_attention_bytes(
            self.layout.gathered / pieces, self._kv_heads, float(self.mixer.head_dim),
            float(self.mixer.v_head_dim), self.item * (2.0 if self.backward else 1.0), ring,
        )  # fmt: skip
        distance = self.layout.stride("cp") * self.layout.ulysses
        hop = self.costs.send(f"{self.name} ring", size / (ring - 1.0), distance)
        # the first block is there; every other one travels while the one before is computed
        covered = core.cost.time * (ring - 1.0) / ring
        exposed = steps.exposed_time(hop.time * (ring - 1.0), covered)
        return (Segment(f"{self.name} ring", "comm", Cost(exposed, 0.0), "cp", launches=ring - 1.0),)

    def _traded(self, way: str, pieces: Num) -> Segments:
        """All-to-alls that bring whole sequences of fewer heads: queries, keys, values; the output back."""
        ranks = self.layout.ulysses
        if ranks == 1.0:
            return ()
        m, rows = self.mixer, self.layout.gathered / pieces
        queries, keys = m.heads / self.layout.tp, np.maximum(self._kv_heads, ranks)
        arrays = {
            "in": (queries * m.head_dim, keys * m.head_dim, keys * m.v_head_dim),
            "out": (queries * m.v_head_dim,),
        }[way]
        # backward the gradient of the output goes first, those of queries, keys and values come back
        label = f"{self.name} heads {way}"
        trades = tuple(
            self.costs.collective(
                label, "all_to_all", rows * width * self.item, ranks, stride=self.layout.stride("cp")
            )
            for width in arrays
        )
        return (Segment(label, "comm", joined(*trades), "cp", launches=float(len(trades))),)
