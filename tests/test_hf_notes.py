"""What a config.json leaves to guess is said in the answer, and nothing is said where all is known."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mc2perf import estimate
from mc2perf.readers.hf_config import model_from_config
from mc2perf.readers.models import load_model
from mc2perf.readers.structure import InputError

MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 512, "moe_intermediate_size": 256, "vocab_size": 1000,
    "num_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
GUESSES = ("read by its keys alone", "no known type", "as wide as", "quantization_config")


def guessed(folder: Path, config: dict[str, Any], **given: Any) -> list[str]:
    """Assumptions of an answer that come from its reader."""
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    said = estimate(str(file), hardware="atlas_800t_a3", **given).assumptions
    return [line for line in said if any(word in line for word in GUESSES)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"model_type": "qwen9"}, ["model_type 'qwen9' is not known: the model is read by its keys alone"]),
        (
            {"model_type": ["qwen3_moe"]},
            ["model_type \"['qwen3_moe']\" is not known: the model is read by its keys alone"],
        ),
        (
            {"torch_dtype": "bfloat17"},
            ["torch_dtype 'bfloat17' of the config is no known type, and is not read; --dtype counts"],
        ),
        (
            {"moe_intermediate_size": None},
            ["experts are as wide as intermediate_size = 512, for the config has no moe_intermediate_size"],
        ),
        ({"moe_intermediate_size": None, "model_type": "mixtral"}, []),
        (
            {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}},
            ["priced in bf16; quantization_config says fp8: --dtype fp8 would follow it"],
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}},
            ["priced in bf16; quantization_config says int-quantized: --dtype int8 would follow it"],
        ),
        (
            {"quantization_config": {"quant_method": "exotic"}},
            ["priced in bf16; quantization_config says exotic: write the nearest type as --dtype"],
        ),
        ({"quantization_config": {}}, []),
    ],
)
def test_guesses_are_said(tmp_path: Path, change: dict[str, Any], said: list[str]) -> None:
    assert guessed(tmp_path, MOE | change) == said


def test_a_narrow_type_that_is_asked_for_needs_no_word(tmp_path: Path) -> None:
    config = MOE | {"quantization_config": {"quant_method": "fp8"}}
    assert guessed(tmp_path, config, dtype="int8") == []


@pytest.mark.parametrize("layer", [4, -1])
def test_dense_layers_beyond_the_model_are_refused(layer: int) -> None:
    with pytest.raises(InputError) as caught:
        model_from_config(MOE | {"mlp_only_layers": [0, layer]}, "tiny", "config.json")
    assert caught.value.problems == [
        f"config.json: mlp_only_layers: {layer} is out of range; write numbers from 0 to 3"
    ]


SAMPLES = Path(os.environ.get("MC2PERF_SAMPLES", "no samples"), "hf_configs")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no samples")
def test_published_configs_leave_nothing_to_guess() -> None:
    noted = {file.stem: load_model(str(file)).notes for file in SAMPLES.glob("*.json")}
    assert len(noted) > 20 and not any(noted.values()), noted
    assert load_model(str(SAMPLES / "Kimi-K3.json")).stored_dtype == "mxfp4"
