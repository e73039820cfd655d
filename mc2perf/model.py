"""What a model is: the sizes that decide FLOPs, bytes and payloads, in the words of config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One kind of token mixer.

    ``softmax`` covers multi-head, grouped-query and sliding-window attention (``window`` > 0);
    ``mla`` is DeepSeek's latent attention; ``linear`` stands for gated linear, delta-rule and
    state-space mixers, whose cost does not grow with the square of the sequence.
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


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """``count`` equal layers: a mixer (by name, or none) and a feed-forward part (or none)."""

    count: int
    mixer: str | None
    ffn: Literal["moe", "dense"] | None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer. ``matrices`` is 3 for a gated FFN, 2 for a plain one."""

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

    @property
    def num_layers(self) -> int:
        """All layers."""
        return sum(group.count for group in self.layers)

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts."""
        return sum(group.count for group in self.layers if group.ffn == "moe")
