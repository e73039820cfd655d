"""Every quirk of config.json in a small synthetic file; every kind of nonsense in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mc2perf.model import Experts, Indexer, Model
from mc2perf.readers.hf_config import model_from_config
from mc2perf.readers.hf_config.names import IMPLICIT, MIXER_LISTS, MOE_RULES, SIZES
from mc2perf.readers.models import load_model
from mc2perf.readers.structure import InputError

DENSE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}
MOE = DENSE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def read(config: dict[str, Any]) -> Model:
    return model_from_config(config, "tiny", "config.json")


def experts_of(config: dict[str, Any]) -> Experts:
    experts = read(config).experts
    assert experts is not None
    return experts


def layers_of(config: dict[str, Any]) -> list[tuple[int, str | None, str | None]]:
    return [(group.count, group.mixer, group.ffn) for group in read(config).layers]


def problems_of(config: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        model_from_config(config, "tiny", "config.json")
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def test_a_dense_model() -> None:
    model = read(DENSE)
    assert (model.experts, model.dense_width, model.matrices) == (None, 128, 3)
    assert layers_of(DENSE) == [(4, "full", "dense")]
    assert model.mixers["full"].head_dim == model.mixers["full"].v_head_dim == 16


@pytest.mark.parametrize("key", SIZES["experts"].names.split())
@pytest.mark.parametrize("top", SIZES["top_k"].names.split())
def test_every_alias_of_experts_and_top_k(key: str, top: str) -> None:
    experts = experts_of(DENSE | {key: 8, top: 2})
    assert (experts.count, experts.top_k, experts.width) == (8, 2, 128)


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "language_config"])
def test_nested_sizes_win_over_those_at_the_top(nest: str) -> None:
    config = {"hidden_size": 9, "tie_word_embeddings": True, "quantization_config": {}, nest: MOE}
    assert read(config).hidden_size == 64
    assert read(config).tied_embeddings
    assert problems_of({nest: MOE | {"hidden_size": 0}}) == [
        f"config.json: {nest}.hidden_size: 0 is out of range; write a whole number from 1 to 10000000"
    ]


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({"n_shared_experts": None}, 0),
        ({"n_shared_experts": 2}, 64),
        ({"num_shared_experts": 1}, 32),
        ({"shared_expert_intermediate_size": 0}, 0),
        ({"shared_expert_intermediate_size": 48}, 48),
        ({"share_expert_dim": 48, "n_shared_experts": 1}, 48),
        ({"moe_shared_expert_intermediate_size": 40, "n_shared_experts": 1}, 40),
        ({"enable_moe_block": True}, 128),
        ({"model_type": "llama4_text"}, 32),
    ],
)
def test_shared_experts(change: dict[str, Any], shared: int) -> None:
    assert experts_of(MOE | change).shared_width == shared


@pytest.mark.parametrize(
    ("change", "moe"),
    [
        ({}, 4),
        ({"first_k_dense_replace": 1}, 3),
        ({"first_k_dense_replace": 3, "moe_layer_freq": 1}, 1),
        ({"moe_layer_freq": 2}, 2),
        ({"moe_layer_freq": [0, 1, 1, 1]}, 3),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, 1),
        ({"mlp_only_layers": [0, 2]}, 2),
        ({"interleave_moe_layer_step": 2}, 2),
        ({"decoder_sparse_step": 4, "mlp_only_layers": [0, 1, 2]}, 1),
        ({"interleave_moe_layer_step": 4, "mlp_only_layers": [0, 1, 2]}, 1),
        ({"moe_layer_freq": 4, "mlp_only_layers": [1, 2, 3]}, 1),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, 3),
    ],
)
def test_which_layers_are_moe(change: dict[str, Any], moe: int) -> None:
    model = read(MOE | change)
    assert (model.num_moe_layers, model.num_layers) == (moe, 4)
    assert model.dense_width == (0 if moe == 4 else 128)


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"sliding_window": 8}, [(4, "sliding", "dense")]),
        ({"sliding_window": 8, "use_sliding_window": False}, [(4, "full", "dense")]),
        (
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
            [(3, "full", "dense"), (1, "sliding", "dense")],
        ),
        (
            {"sliding_window": 8, "layer_types": ["full_attention"] + ["sliding_attention"] * 3},
            [(1, "full", "dense"), (3, "sliding", "dense")],
        ),
        (
            {"sliding_window": 8, "hybrid_layer_pattern": [0, 1, 1, 0]},
            [(2, "full", "dense"), (2, "sliding", "dense")],
        ),
        (
            {"sliding_window": 8, "sliding_window_pattern": 2},
            [(2, "sliding", "dense"), (2, "full", "dense")],
        ),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 8},
            [(3, "chunked", "dense"), (1, "full", "dense")],
        ),
    ],
)
def test_windows(change: dict[str, Any], layers: list[tuple[int, str, str]]) -> None:
    model = read(DENSE | change)
    assert layers_of(DENSE | change) == layers
    assert all(mixer.window == (0 if name == "full" else 8) for name, mixer in model.mixers.items())


def test_sliding_layers_may_have_head_sizes_of_their_own() -> None:
    mimo = {"v_head_dim": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 24, "swa_v_head_dim": 12}
    mixers = read(DENSE | mimo | {"hybrid_layer_pattern": [0, 1, 1, 1], "sliding_window": 8}).mixers
    assert (mixers["full"].kv_heads, mixers["full"].head_dim, mixers["full"].v_head_dim) == (2, 16, 8)
    assert (mixers["sliding"].kv_heads, mixers["sliding"].head_dim, mixers["sliding"].v_head_dim) == (
        4,
        24,
        12,
    )


def test_full_layers_may_have_head_sizes_of_their_own() -> None:
    gemma = {"head_dim": 16, "global_head_dim": 32, "num_global_key_value_heads": 1, "sliding_window": 8}
    mixers = read(DENSE | gemma | {"sliding_window_pattern": 2}).mixers
    assert (mixers["full"].kv_heads, mixers["full"].head_dim) == (1, 32)
    assert (mixers["sliding"].kv_heads, mixers["sliding"].head_dim) == (2, 16)


LINEAR = {
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 12,
}


def test_linear_attention_with_an_interval_or_a_list() -> None:
    interval = DENSE | LINEAR | {"full_attention_interval": 4}
    listed = DENSE | LINEAR | {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}
    assert read(interval) == read(listed)
    linear = read(interval).mixers["linear"]
    assert (linear.heads, linear.kv_heads, linear.head_dim, linear.v_head_dim) == (8, 4, 16, 12)


def test_the_gate_of_qwen3_next_is_implied() -> None:
    assert not read(DENSE).mixers["full"].gated
    assert read(DENSE | {"attn_output_gate": True}).mixers["full"].gated
    assert read(DENSE | {"model_type": "qwen3_next"}).mixers["full"].gated


LATENT = {"kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}


def test_latent_attention() -> None:
    mixer = read(DENSE | LATENT | {"v_head_dim": 12, "head_dim": 8, "index_topk": 5}).mixers["full"]
    assert (mixer.kind, mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.v_head_dim) == (
        "mla",
        4,
        4,
        24,
        12,
    )
    assert (mixer.q_lora_rank, mixer.kv_lora_rank, mixer.rope_head_dim, mixer.top_keys) == (0, 32, 8, 5)


def test_kimi_mixes_linear_and_latent_attention_and_latent_experts() -> None:
    kimi = {
        "linear_attn_config": {
            "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
            "num_heads": 4,
            "head_dim": 8,
        },
        "mla_use_output_gate": True,
        "routed_expert_hidden_size": 48,
        "v_head_dim": 12,
        "n_shared_experts": 2,
    }
    model = read({"model_type": "kimi_k3", "text_config": MOE | LATENT | kimi})
    assert [(group.count, group.mixer) for group in model.layers] == [(3, "linear"), (1, "full")]
    assert (model.mixers["full"].kind, model.mixers["full"].gated) == ("mla", True)
    assert model.experts == Experts(count=8, top_k=2, width=32, shared_width=64, payload_width=48)


def test_deepseek_v4_compresses_and_has_no_dense_width() -> None:
    v4 = {"compress_ratios": [0, 4, 128, 4, 0], "num_nextn_predict_layers": 1, "sliding_window": 8}
    ranks = {"q_lora_rank": 32, "o_lora_rank": 16, "o_groups": 2, "index_topk": 5, "head_dim": 32}
    config = without(MOE, "intermediate_size") | v4 | ranks
    model = read(config)
    assert layers_of(config) == [
        (1, "sliding", "moe"),
        (2, "compressed_4", "moe"),
        (1, "compressed_128", "moe"),
    ]
    indexed = model.mixers["compressed_4"]
    assert (indexed.compression, indexed.top_keys, indexed.window, model.dense_width) == (4, 5, 8, 0)
    # queries 32 (64 + 4 x 32), keys and values 64 x 2 x 64, output 16 x 128 + 16 x 2 x 64
    assert indexed.parameter_count(64) == 32 * 192 + 8192 + 2048 + 2048


def test_minimax_picks_blocks_of_keys() -> None:
    sparse = {"sparse_attention_freq": [0, 1, 1, 1], "sparse_topk_blocks": 4, "sparse_block_size": 8}
    mixers = read(DENSE | {"sparse_attention_config": sparse}).mixers
    assert (mixers["full"].top_keys, mixers["sparse"].top_keys) == (0, 32)


PICKY = DENSE | {
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip
INDEX = {"index_topk": 5, "index_n_heads": 3, "index_head_dim": 8}


def test_an_indexer_has_heads_of_its_own() -> None:
    plain, indexed = (read(config).mixers["full"] for config in (PICKY, PICKY | INDEX))
    assert indexed.indexer == Indexer(heads=3, head_dim=8) and plain.indexer is None
    # queries from the latent of 24, one key and a weight for each head from the hidden state
    assert indexed.parameter_count(64) - plain.parameter_count(64) == 24 * 3 * 8 + 64 * (8 + 3)
    blocks = {"sparse_num_index_heads": 2, "sparse_index_dim": 8, "sparse_attention_freq": [0, 1, 1, 1]}
    blocks |= {"sparse_topk_blocks": 4, "sparse_block_size": 16}
    mixers = read(DENSE | {"sparse_attention_config": blocks}).mixers
    assert mixers["full"].indexer is None
    assert mixers["sparse"].indexer == Indexer(heads=2, head_dim=8, weighted=False, block=16)
    compressed = {"compress_ratios": [0, 4, 128, 4], "sliding_window": 8}
    mixers = read(PICKY | INDEX | compressed).mixers
    assert mixers["compressed_4"].indexer == indexed.indexer and mixers["compressed_128"].indexer is None


@pytest.mark.parametrize(
    "pattern",
    [
        {"indexer_types": ["full", "full", "shared", "full"]},
        {"index_topk_pattern": "FFSF"},
        {"index_topk_freq": 2, "index_skip_topk_offset": 2},
        {"index_topk_freq": 2},
    ],
)
def test_layers_share_what_another_one_picked(pattern: dict[str, Any]) -> None:
    """The four ways in which transformers 5.24.0, configuration_glm_moe_dsa.py, is told of it."""
    config = PICKY | INDEX | pattern
    assert layers_of(config) == [(3, "full", "dense"), (1, "shared", "dense")]
    mixers = read(config).mixers
    assert mixers["shared"] == replace(mixers["full"], indexer=None)


def test_an_indexer_that_picks_nothing() -> None:
    wrong = PICKY | without(INDEX, "index_topk")
    assert problems_of(wrong) == [
        "config.json: index_topk: is missing, but an indexer picks keys; write how many"
    ]
    assert problems_of(PICKY | without(INDEX, "index_head_dim")) == [
        "config.json: index_head_dim: is missing; write a whole number as index_head_dim"
    ]


NEMOTRON = without(MOE, "num_hidden_layers") | {
    "hybrid_override_pattern": "MEM*E-",
    "mlp_hidden_act": "relu2",
    "moe_latent_size": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 32,
    "n_groups": 2,
}


def test_nemotron_gives_a_pattern_of_letters_and_no_number_of_layers() -> None:
    model = read(NEMOTRON)
    assert layers_of(NEMOTRON) == [
        (2, "linear", None),
        (2, None, "moe"),
        (1, "full", None),
        (1, None, "dense"),
    ]
    assert (model.matrices, experts_of(NEMOTRON).payload_width) == (2, 16)
    linear = model.mixers["linear"]
    assert (linear.heads, linear.kv_heads, linear.head_dim, linear.v_head_dim) == (8, 2, 32, 16)


def test_width_of_the_dense_ffn() -> None:
    dense = MOE | {"first_k_dense_replace": 1}
    assert read(dense | {"dense_intermediate_size": 96}).dense_width == 96
    assert read(dense | {"intermediate_size_mlp": 80}).dense_width == 80


def test_groups_and_layers_of_mtp() -> None:
    experts = experts_of(MOE | {"n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1})
    assert (experts.groups, experts.top_groups) == (4, 2)
    assert read(MOE | {"num_nextn_predict_layers": 1}).num_layers == 4
    assert (experts_of(MOE | {"n_group": None, "topk_group": None})).groups == 1


WHOLE = "write a whole number from 1 to 10000000"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hidden_size": 0}, f"hidden_size: 0 is out of range; {WHOLE}"),
        ({"hidden_size": -64}, f"hidden_size: -64 is out of range; {WHOLE}"),
        ({"hidden_size": 64.5}, f"hidden_size: 64.5 is not a whole number; {WHOLE}"),
        ({"hidden_size": True}, f"hidden_size: true is not a whole number; {WHOLE}"),
        ({"hidden_size": "64"}, f"hidden_size: '64' is text; {WHOLE}"),
        ({"hidden_size": [64]}, f"hidden_size: is a list; {WHOLE}"),
        ({"hidden_size": {"a": 1}}, f"hidden_size: is an object; {WHOLE}"),
        ({"hidden_size": float("nan")}, f"hidden_size: nan is not a whole number; {WHOLE}"),
        ({"hidden_size": float("inf")}, f"hidden_size: inf is not a whole number; {WHOLE}"),
        ({"hidden_size": 10**9}, f"hidden_size: 1000000000 is out of range; {WHOLE}"),
        ({"hidden_size": 10**5000}, f"hidden_size: is out of range; {WHOLE}"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers: 1000000000 is out of range; write a whole number from 1 to 10000",
        ),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: 9 is more than the 8 experts; write fewer"),
        (
            {"experts_per_token": 3},
            "experts_per_token: differs from num_experts_per_tok (2); keep one of them",
        ),
        (
            {"n_group": 3, "topk_group": 1},
            "topk_group: 1 of 3 groups of 8 experts are not possible; check n_group",
        ),
        (
            {"n_group": 8, "topk_group": 1},
            "topk_group: 1 groups hold fewer than 2 experts; write more, or check num_experts_per_tok",
        ),
        (
            {"num_key_value_heads": 3},
            "num_key_value_heads: 3 do not divide the 4 heads of full layers; write a divisor",
        ),
        (
            {"num_attention_heads": 3, "num_key_value_heads": 1},
            "head_dim: is missing, and 3 heads do not divide hidden_size; write it",
        ),
        (
            {"layer_types": ["full_attention"]},
            "layer_types: has 1 entries; write one for each of the 4 layers",
        ),
        ({"layer_types": 3}, "layer_types: 3 is out of range; write a list with one entry per layer"),
        (
            {"layer_types": ["full_atention"] * 4},
            "layer_types.0: 'full_atention' is not known; did you mean 'full_attention'?",
        ),
        ({"moe_layer_freq": [0, 1, 2, 1]}, "moe_layer_freq.2: 2 is out of range; write one of 0, 1"),
        ({"moe_layer_freq": 0}, f"moe_layer_freq: 0 is out of range; {WHOLE}"),
        (
            {"mlp_only_layers": [0.5]},
            "mlp_only_layers: is not a list of layer numbers; write one such as [1, 2]",
        ),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: 'no' is text; write true or false"),
        (
            {"layer_types": ["sliding_attention"] * 4},
            "sliding_window: is missing; write a whole number as sliding_window or sliding_window_size",
        ),
        (
            {"hybrid_override_pattern": "MEXE"},
            "hybrid_override_pattern.2: 'X' is not known; write one of *, -, E, M",
        ),
    ],
)
def test_nonsense_is_one_line(change: dict[str, Any], problem: str) -> None:
    assert problems_of(MOE | change) == [f"config.json: {problem}"]


def test_all_problems_come_at_once() -> None:
    assert problems_of({"num_experts": 8, "num_hidden_layers": "4", "vocab_size": -1}) == [
        "config.json: hidden_size: is missing; write a whole number as hidden_size",
        "config.json: num_hidden_layers: '4' is text; write a whole number from 1 to 10000",
        f"config.json: vocab_size: -1 is out of range; {WHOLE}",
        "config.json: num_attention_heads: is missing; write a whole number as num_attention_heads",
        "config.json: moe_intermediate_size: is missing; "
        "write a whole number as moe_intermediate_size or intermediate_size",
        "config.json: num_experts_per_tok: is missing; write a whole number as "
        + " or ".join(SIZES["top_k"].names.split()),
    ]


@pytest.mark.parametrize("tree", [None, 1, "x", [], [{}], True, float("nan")])
def test_what_is_no_object_is_refused(tree: object) -> None:
    (problem,) = problems_of(tree)
    assert problem.startswith("config.json: expected the object of a config.json; the file ")


KEYS = sorted(
    {key for size in SIZES.values() for key in size.names.split()}
    | MIXER_LISTS.keys()
    | MOE_RULES.keys()
    | {"model_type", "text_config", "linear_attn_config", "hybrid_override_pattern", "mlp_only_layers"}
    | {"tie_word_embeddings", "full_attention_interval", "enable_moe_block", "hidden_act"}
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=8,
)
twisted = st.builds(
    lambda base, change: base | change,
    st.sampled_from([MOE, NEMOTRON, DENSE | LATENT, MOE | LINEAR | {"full_attention_interval": 2}]),
    st.dictionaries(
        st.sampled_from(KEYS), anything | st.sampled_from(sorted(map(str, IMPLICIT))), max_size=4
    ),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(anything | twisted)
def test_any_json_value_is_a_model_or_an_input_error(tree: object) -> None:
    try:
        model = model_from_config(tree, "tiny", "config.json")
    except InputError as error:
        assert error.problems
        assert all(problem.startswith("config.json: ") and "\n" not in problem for problem in error.problems)
    else:
        assert model.parameter_count > 0
        assert all(group.mixer is None or group.mixer in model.mixers for group in model.layers)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=40)
    | st.builds(lambda text, end: text[:end].encode(), st.just(json.dumps(NEMOTRON)), st.integers(0, 400))
)
def test_any_bytes_are_a_model_or_an_input_error(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(raw)
    try:
        assert load_model(str(file)).parameter_count > 0
    except InputError as error:
        assert all(problem.startswith(f"{file}: ") and "\n" not in problem for problem in error.problems)
