"""What is known of the field names of Hugging Face configs, as tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mc2perf.model import LARGEST

MOST_LAYERS = 10_000

NESTED_MODELS = ("text_config", "llm_config", "language_config")
"""Where the language model of a multimodal config stands; its keys win over those at the top."""

NESTED_PARTS = ("linear_attn_config", "sparse_attention_config")
"""Parts whose keys are read as ``part.key``."""


@dataclass(frozen=True)
class Size:
    """A whole number of a config: its field names, first found wins, and the range it must lie in."""

    names: str
    at_least: int = 1
    at_most: int = LARGEST
    agree: bool = False


SIZES = {
    "hidden_size": Size("hidden_size"),
    "layers": Size("num_hidden_layers", at_most=MOST_LAYERS),
    "vocab_size": Size("vocab_size"),
    "experts": Size("n_routed_experts num_routed_experts num_experts num_local_experts", 0, agree=True),
    "top_k": Size(
        "num_experts_per_tok experts_per_token num_experts_per_token top_k_experts moe_topk", agree=True
    ),
    "expert_width": Size("moe_intermediate_size intermediate_size"),
    "dense_width": Size("dense_intermediate_size intermediate_size_mlp intermediate_size"),
    "shared_width": Size(
        "shared_expert_intermediate_size share_expert_dim moe_shared_expert_intermediate_size"
        " shared_intermediate_size",
        0,
    ),
    "shared_experts": Size("n_shared_experts num_shared_experts", 0, 1000),
    "payload_width": Size("moe_latent_size routed_expert_hidden_size"),
    "groups": Size("n_group num_expert_group"),
    "top_groups": Size("topk_group"),
    "full_heads": Size("num_attention_heads"),
    "full_kv_heads": Size("num_global_key_value_heads num_key_value_heads num_attention_groups"),
    "full_head_dim": Size("global_head_dim head_dim"),
    "full_v_head_dim": Size("v_head_dim"),
    "sliding_heads": Size("swa_num_attention_heads num_attention_heads"),
    "sliding_kv_heads": Size("swa_num_key_value_heads num_key_value_heads num_attention_groups"),
    "sliding_head_dim": Size("swa_head_dim head_dim"),
    "sliding_v_head_dim": Size("swa_v_head_dim v_head_dim"),
    "linear_heads": Size("linear_num_value_heads mamba_num_heads linear_attn_config.num_heads"),
    "linear_kv_heads": Size("linear_num_key_heads n_groups linear_attn_config.num_heads"),
    "linear_head_dim": Size("linear_key_head_dim ssm_state_size linear_attn_config.head_dim"),
    "linear_v_head_dim": Size("linear_value_head_dim mamba_head_dim linear_attn_config.head_dim"),
    "nope_head_dim": Size("qk_nope_head_dim"),
    "rope_head_dim": Size("qk_rope_head_dim", 0),
    "q_lora_rank": Size("q_lora_rank", 0),
    "kv_lora_rank": Size("kv_lora_rank"),
    "o_lora_rank": Size("o_lora_rank", 0),
    "o_groups": Size("o_groups"),
    "sliding_window": Size("sliding_window sliding_window_size"),
    "chunk": Size("attention_chunk_size"),
    "index_top_keys": Size("index_topk"),
    "index_step": Size("index_topk_freq"),
    "index_first": Size("index_skip_topk_offset", 0, MOST_LAYERS),
    "index_heads": Size("index_n_heads"),
    "index_head_dim": Size("index_head_dim"),
    "block_heads": Size("sparse_attention_config.sparse_num_index_heads"),
    "block_head_dim": Size("sparse_attention_config.sparse_index_dim"),
    "top_blocks": Size("sparse_attention_config.sparse_topk_blocks"),
    "block_size": Size("sparse_attention_config.sparse_block_size"),
    "mtp_layers": Size("num_nextn_predict_layers", 0, MOST_LAYERS),
}
"""What is read -> where it may stand."""

IMPLICIT: dict[object, dict[str, Any]] = {
    "llama4": {"num_shared_experts": 1, "no_rope_layer_interval": 4},
    "llama4_text": {"num_shared_experts": 1, "no_rope_layer_interval": 4},
    "qwen3_next": {"attn_output_gate": True},
    "gemma2": {"sliding_window_pattern": 2, "tie_word_embeddings": True},
    "gemma3_text": {"sliding_window_pattern": 6, "tie_word_embeddings": True},
    "gemma4_text": {"tie_word_embeddings": True},
}
"""``model_type`` -> what its code does and its config need not say."""

KNOWN_TYPES = frozenset({
    "baichuan", "chatglm", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "gemma2", "gemma3",
    "gemma3_text", "gemma4", "gemma4_text", "glm4_moe", "glm_moe_dsa", "gpt_oss", "internlm2", "kimi_k2",
    "kimi_k25", "kimi_k3", "kimi_linear", "llama", "llama4", "llama4_text", "mimo_v2_flash", "minicpm",
    "minimax_m2", "minimax_m3", "mistral", "mixtral", "nemotron_h", "phimoe", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next", "step3p5", "step3p7",
})  # fmt: skip
"""``model_type`` of the families that these tables were written for."""

SAME_WIDTH = frozenset({"gpt_oss", "llama4", "llama4_text", "minimax_m2", "mixtral", "phimoe"})
"""``model_type`` of families whose experts are as wide as ``intermediate_size``."""

ELEMENTS = frozenset({
    "auto", "bfloat16", "float", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "half",
    "int8",
})  # fmt: skip
"""What ``torch_dtype`` may be."""

QUANTISED = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "float-quantized": "fp8",
    "int-quantized": "int8",
    "w8a8_int8": "int8",
    "mxfp4": "mxfp4",
    "mxfp4-pack-quantized": "mxfp4",
    "mxfp8": "mxfp8",
}
"""Method or format of ``quantization_config`` -> the element type that follows it."""

GATES = ("attn_output_gate", "attention_output_gate", "mla_use_output_gate")
ACTIVATIONS = ("mlp_hidden_act", "hidden_act", "hidden_activation")
PLAIN_ACTIVATIONS = ("relu2", "relu", "relu_squared", "squared_relu")
"""Feed-forward parts of two matrices; all others are gated and have three."""

LETTERS: dict[Any, tuple[str | None, Literal["moe", "dense"] | None]] = {
    "M": ("linear", None),
    "*": ("full", None),
    "E": (None, "moe"),
    "-": (None, "dense"),
}
"""Letters of ``hybrid_override_pattern`` -> mixer and feed-forward part."""

MIXER_LISTS: dict[str, dict[Any, str]] = {
    "indexer_types": {"full": "full", "shared": "shared"},
    "index_topk_pattern": {"F": "full", "S": "shared"},
    "compress_ratios": {0: "sliding", 4: "compressed_4", 128: "compressed_128"},
    "layer_types": {
        "full_attention": "full",
        "sliding_attention": "sliding",
        "chunked_attention": "chunked",
        "linear_attention": "linear",
        "indexed_attention": "full",
        "compressed_sparse_attention": "compressed_4",
        "heavily_compressed_attention": "compressed_128",
    },
    "hybrid_layer_pattern": {0: "full", 1: "sliding"},
    "no_rope_layers": {0: "full", 1: "chunked"},
    "sparse_attention_config.sparse_attention_freq": {0: "full", 1: "sparse"},
}
"""Lists with an entry per layer -> the mixer an entry stands for; first found wins."""

FULL_LAYERS = "linear_attn_config.full_attn_layers"
"""Numbers, from 1, of the layers with full attention; the others are linear (Kimi)."""

INTERVALS = {
    "full_attention_interval": "linear",
    "sliding_window_pattern": "sliding",
    "no_rope_layer_interval": "chunked",
}
"""Every so many layers one is full -> the mixer of the others."""

MOE_LISTS: dict[str, dict[Any, bool]] = {
    "moe_layer_freq": {0: False, 1: True},
    "mlp_layer_types": {"dense": False, "sparse": True},
}
MOE_RULES: dict[str, tuple[int, Callable[[int, int], bool]]] = {
    "first_k_dense_replace": (0, lambda layer, first: layer >= first),
    "moe_layer_freq": (1, lambda layer, step: layer % step == 0),
    "decoder_sparse_step": (1, lambda layer, step: (layer + 1) % step == 0),
    "interleave_moe_layer_step": (1, lambda layer, step: (layer + 1) % step == 0),
}
"""Keys with one number -> its least value, and whether a layer is MoE; every rule must hold."""


@dataclass(frozen=True)
class Sight:
    """Whose head sizes a softmax mixer has, its window, how the keys beyond are thinned, and who picks them.

    ``index`` names heads and width of an indexer; one that picks blocks has no weights of its heads.
    """

    scope: str = "full"
    window: str = ""
    compression: int = 1
    top_keys: tuple[str, ...] = ()
    index: tuple[str, ...] = ()


LIGHTNING = ("index_heads", "index_head_dim")

SOFTMAX_MIXERS = {
    "full": Sight(top_keys=("index_top_keys",), index=LIGHTNING),
    "shared": Sight(top_keys=("index_top_keys",)),
    "sliding": Sight("sliding", "sliding_window"),
    "chunked": Sight(window="chunk"),
    "sparse": Sight(top_keys=("top_blocks", "block_size"), index=("block_heads", "block_head_dim")),
    "compressed_4": Sight(
        window="sliding_window", compression=4, top_keys=("index_top_keys",), index=LIGHTNING
    ),
    "compressed_128": Sight(window="sliding_window", compression=128),
}
