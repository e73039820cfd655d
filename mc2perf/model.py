"""What a model is: the sizes that decide FLOPs, bytes and payloads, in the words of config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LARGEST = 10_000_000
"""Largest size that is believed; the widest vocabulary has a few hundred thousand words."""


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """What picks the keys of sparse attention: small heads score every key for every query.

    ``heads`` queries of ``head_dim`` meet one key that all of them share. ``weighted``: their scores become
    one by a weight per query and head (the lightning indexer); else every head picks for itself. Of
    ``block`` neighbours the best score stands for all, and all are picked together.
    """

    heads: int
    head_dim: int
    weighted: bool = True
    block: int = 1

    def key_width(self, compression: int) -> int:
        """Columns projected for a key; a compressed one is drawn from two series, each with its gate."""
        return self.head_dim if compression == 1 else 4 * self.head_dim

    @property
    def picks(self) -> int:
        """Scores of a key that are picked from."""
        return 1 if self.weighted else self.heads


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One kind of token mixer.

    ``softmax`` covers multi-head, grouped-query and sliding-window attention (``window`` > 0);
    ``mla`` is DeepSeek's latent attention; ``linear`` stands for gated linear, delta-rule and
    state-space mixers, whose cost does not grow with the square of the sequence.

    ``head_dim`` is the whole width of a query and key head: for ``mla`` it includes ``rope_head_dim``.
    For ``linear``, ``heads`` x ``v_head_dim`` is the width of values, ``kv_heads`` x ``head_dim`` that of
    keys and of queries (B and C of a state-space mixer, whose state size is ``head_dim``).
    ``gated`` says that a gate as wide as the values is projected from the hidden state.
    Sparse mixers see, beyond the window, one key per ``compression`` tokens, of which ``indexer`` picks
    ``top_keys`` (0: all); without an indexer of its own a layer takes what another one picked.
    ``o_lora_rank`` > 0 factors the output projection in ``o_groups`` groups.
    """

    kind: Literal["softmax", "mla", "linear"]
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    gated: bool = False
    compression: int = 1
    top_keys: int = 0
    indexer: Indexer | None = None
    o_lora_rank: int = 0
    o_groups: int = 1

    def parameter_count(self, hidden_size: int) -> int:
        """Weights of the projections: queries, keys and values, gate, output; those of the indexer."""
        query, value = self.heads * self.head_dim, self.heads * self.v_head_dim
        gate = hidden_size * value * self.gated
        own = self._query_key_value(hidden_size, query, value) + gate + self.output_parameters(hidden_size)
        return own + self.indexer_parameters(hidden_size)

    def _query_key_value(self, hidden_size: int, query: int, value: int) -> int:
        keys = self.kv_heads * self.head_dim
        if self.kind == "linear":
            return hidden_size * (2 * keys + value)
        rank = self.q_lora_rank
        queries = rank * (hidden_size + query) if rank else hidden_size * query
        if self.kind == "softmax":
            return queries + hidden_size * self.kv_heads * (self.head_dim + self.v_head_dim)
        down = hidden_size * (self.kv_lora_rank + self.rope_head_dim)
        return queries + down + self.absorbed_parameters

    @property
    def absorbed_parameters(self) -> int:
        """Weights between latents and the keys and values of all heads."""
        return self.kv_lora_rank * self.heads * (self.head_dim - self.rope_head_dim + self.v_head_dim)

    def latent_parameters(self, hidden_size: int) -> int:
        """Weights of the projections down to latents of queries, and of keys and values."""
        keys = self.kv_lora_rank + self.rope_head_dim if self.kind == "mla" else 0
        return hidden_size * (self.q_lora_rank + keys)

    def indexer_parameters(self, hidden_size: int) -> int:
        """Weights of the indexer: queries from the latent of queries, keys, a weight for each head."""
        if self.indexer is None:
            return 0
        i, latent = self.indexer, self.q_lora_rank or hidden_size
        return latent * i.heads * i.head_dim + hidden_size * self.index_columns

    @property
    def index_columns(self) -> int:
        """Columns that the indexer projects from the hidden state: its key, and weights of its heads."""
        i = self.indexer
        return i.key_width(self.compression) + i.heads * i.weighted if i else 0

    def output_parameters(self, hidden_size: int) -> int:
        """Weights of the output projection alone."""
        value = self.heads * self.v_head_dim
        if self.o_lora_rank:
            return self.o_lora_rank * (value + self.o_groups * hidden_size)
        return value * hidden_size


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The routed and shared experts of an MoE layer.

    ``payload_width`` is what the all-to-all carries per token: the hidden size, or the latent width.
    """

    count: int
    top_k: int
    width: int
    shared_width: int
    payload_width: int
    groups: int = 1
    top_groups: int = 1

    def parameter_count(self, hidden_size: int, matrices: int) -> int:
        """Weights of router, routed and shared experts, and of the projections to and from a latent width."""
        latent = 2 * hidden_size * self.payload_width if self.payload_width != hidden_size else 0
        routed = self.count * matrices * self.payload_width * self.width
        return hidden_size * (self.count + matrices * self.shared_width) + routed + latent


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """``count`` equal layers: a mixer (by name, or none) and a feed-forward part (or none)."""

    count: int
    mixer: str | None
    ffn: Literal["moe", "dense"] | None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer. ``matrices`` is 3 for a gated FFN, 2 for a plain one.

    Its source may leave ``notes`` on what had to be guessed, and say as what it stores weights: in words,
    and as the element type that follows it, if any does. None of them changes a number.
    """

    name: str
    source: str
    hidden_size: int
    vocab_size: int
    matrices: Literal[2, 3]
    dense_width: int
    layers: tuple[LayerGroup, ...]
    mixers: dict[str, Attention]
    experts: Experts | None = None
    tied_embeddings: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    stored_as: str = field(default="", compare=False)
    stored_dtype: str = field(default="", compare=False)

    @property
    def num_layers(self) -> int:
        """All layers."""
        return sum(group.count for group in self.layers)

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts."""
        return sum(group.count for group in self.layers if group.ffn == "moe")

    @property
    def parameter_count(self) -> int:
        """Weights of embeddings, mixers and feed-forward parts; no norms, biases, convolutions or MTP."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        return embeddings + sum(group.count * self._layer_parameters(group) for group in self.layers)

    def routed_parameters(self, group: LayerGroup) -> int:
        """Weights of the routed experts of one layer."""
        e = self.experts if group.ffn == "moe" else None
        return e.count * self.matrices * e.payload_width * e.width if e else 0

    def other_parameters(self, group: LayerGroup) -> int:
        """Weights of one layer outside its routed experts."""
        return self._layer_parameters(group) - self.routed_parameters(group)

    @property
    def active_parameters(self) -> float:
        """Weights a token is multiplied with: top-k experts, the head, no look-up of embeddings."""
        share = self.experts.top_k / self.experts.count if self.experts else 0.0
        layers = sum(
            g.count * (self.other_parameters(g) + share * self.routed_parameters(g)) for g in self.layers
        )
        return layers + float(self.vocab_size * self.hidden_size)

    def _layer_parameters(self, group: LayerGroup) -> int:
        mixer = self.mixers[group.mixer].parameter_count(self.hidden_size) if group.mixer else 0
        if group.ffn == "moe" and self.experts:
            return mixer + self.experts.parameter_count(self.hidden_size, self.matrices)
        return mixer + (self.matrices * self.hidden_size * self.dense_width if group.ffn else 0)
