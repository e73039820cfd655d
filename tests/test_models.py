"""Shipped models: their sizes against published figures, their names, and bad files."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mc2perf.equations import routing
from mc2perf.model import Model
from mc2perf.readers.models import load_model, model_aliases, model_names
from mc2perf.readers.structure import InputError

# facts/ecosystem.md 1.12, read from ai-dynamo/aiconfigurator model_configs (Qwen3-Next: alibaba/InferSim,
# GLM-4.5: Ascend/MindSpeed-LLM): hidden, layers, MoE layers, experts, top-k, expert width, shared width,
# dense FFN (0: none), payload width, KiB/token dispatch, routed MFLOP/token, FLOP/byte
TABLE = {
    "mixtral-8x7b": (4096, 32, 32, 8, 2, 14336, 0, 0, 4096, 16, 705, 21504),
    "mixtral-8x22b": (6144, 56, 56, 8, 2, 16384, 0, 0, 6144, 24, 1208, 24576),
    "qwen3-30b-a3b": (2048, 48, 48, 128, 8, 768, 0, 0, 2048, 32, 75, 1152),
    "qwen3-235b-a22b": (4096, 94, 94, 128, 8, 1536, 0, 0, 4096, 64, 302, 2304),
    "qwen3-coder-480b-a35b": (6144, 62, 62, 160, 8, 2560, 0, 0, 6144, 96, 755, 3840),
    "qwen3-next-80b-a3b": (2048, 48, 48, 512, 10, 512, 512, 0, 2048, 40, 63, 845),
    "qwen3.5-35b-a3b": (2048, 40, 40, 256, 8, 512, 512, 0, 2048, 32, 50, 864),
    "qwen3.5-122b-a10b": (3072, 48, 48, 256, 8, 1024, 1024, 0, 3072, 48, 151, 1728),
    "qwen3.5-397b-a17b": (4096, 60, 60, 512, 10, 1024, 1024, 0, 4096, 80, 252, 1690),
    "deepseek-v3": (7168, 61, 58, 256, 8, 2048, 2048, 18432, 7168, 112, 705, 3456),
    "deepseek-v4-flash": (4096, 43, 43, 256, 6, 2048, 2048, 0, 4096, 48, 302, 3584),
    "deepseek-v4-pro": (7168, 61, 61, 384, 6, 3072, 3072, 0, 7168, 84, 793, 5376),
    "kimi-k2": (7168, 61, 60, 384, 8, 2048, 2048, 18432, 7168, 112, 705, 3456),
    "kimi-k3": (7168, 93, 92, 896, 16, 3072, 6144, 33792, 3584, 112, 1057, 5760),
    "glm-4.5": (5120, 92, 89, 160, 8, 1536, 1536, 12288, 5120, 80, 377, 2592),
    "glm-4.5-air": (4096, 46, 45, 128, 8, 1408, 1408, 10944, 4096, 64, 277, 2376),
    "glm-5": (6144, 78, 75, 256, 8, 2048, 2048, 12288, 6144, 96, 604, 3456),
    "gpt-oss-120b": (2880, 36, 36, 128, 4, 2880, 0, 0, 2880, 22.5, 199, 4320),
    "gpt-oss-20b": (2880, 24, 24, 32, 4, 2880, 0, 0, 2880, 22.5, 199, 4320),
    "llama-4-maverick": (5120, 48, 24, 128, 1, 8192, 8192, 16384, 5120, 10, 252, 24576),
    "llama-4-scout": (5120, 48, 48, 16, 1, 8192, 8192, 0, 5120, 10, 252, 24576),
    "minimax-m2.5": (3072, 62, 62, 256, 8, 1536, 0, 0, 3072, 48, 226, 2304),
    "minimax-m3": (6144, 60, 57, 128, 4, 3072, 3072, 12288, 6144, 48, 453, 5760),
    "mimo-v2-flash": (4096, 48, 47, 256, 8, 2048, 0, 16384, 4096, 64, 403, 3072),
    "step-3.7-flash": (4096, 45, 42, 288, 8, 1280, 1280, 11264, 4096, 64, 252, 2160),
    "gemma-4-26b-a4b": (2816, 30, 30, 128, 8, 704, 2112, 0, 2816, 44, 95, 1452),
    "nemotron-3-nano-30b": (2688, 52, 23, 128, 6, 1856, 3712, 0, 2688, 31.5, 120, 2475),
    "nemotron-3-super-120b": (4096, 88, 40, 512, 22, 2688, 5376, 0, 1024, 44, 242, 3665),
}

# Published totals in 1e9 weights: model cards on Hugging Face (without vision parts and MTP)
TOTALS = {
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 140.6,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.0,
    "qwen3-coder-480b-a35b": 480.0,
    "qwen3-next-80b-a3b": 80.0,
    "qwen3.5-122b-a10b": 122.0,
    "qwen3.5-397b-a17b": 397.0,
    "deepseek-v3": 671.0,
    "deepseek-v3.2": 671.0,
    "deepseek-v4-flash": 284.0,
    "glm-4.5": 355.0,
    "glm-4.5-air": 106.0,
    "glm-5": 744.0,
    "gpt-oss-120b": 116.8,
    "gpt-oss-20b": 20.9,
    "llama-4-maverick": 400.0,
    "llama-4-scout": 109.0,
    "mimo-v2-flash": 309.0,
    "nemotron-3-nano-30b": 31.6,
    "qwen3-32b": 32.8,
    "qwen3-8b": 8.19,
    "llama-3.1-70b": 70.6,
    "llama-3.1-8b": 8.03,
}

# mixer: kind, heads, kv_heads, head_dim, v_head_dim, window; from the same configs
MIXERS = {
    ("deepseek-v3", "full"): ("mla", 128, 128, 192, 128, 0),
    ("deepseek-v4-pro", "compressed_4"): ("softmax", 128, 1, 512, 512, 128),
    ("glm-5", "full"): ("mla", 64, 64, 256, 256, 0),
    ("kimi-k3", "linear"): ("linear", 96, 96, 128, 128, 0),
    ("qwen3-next-80b-a3b", "linear"): ("linear", 32, 16, 128, 128, 0),
    ("gemma-4-26b-a4b", "full"): ("softmax", 16, 2, 512, 512, 0),
    ("gemma-4-26b-a4b", "sliding"): ("softmax", 16, 8, 256, 256, 1024),
    ("mimo-v2-flash", "sliding"): ("softmax", 64, 8, 192, 128, 128),
    ("mimo-v2-flash", "full"): ("softmax", 64, 4, 192, 128, 0),
    ("nemotron-3-super-120b", "linear"): ("linear", 128, 8, 128, 64, 0),
    ("llama-4-scout", "chunked"): ("softmax", 40, 8, 128, 128, 8192),
    ("mixtral-8x22b", "full"): ("softmax", 48, 8, 128, 128, 0),
}

SAMPLE_NAMES = {
    "Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "Mixtral-8x22B-v0.1": "mixtral-8x22b",
    "qwen3-next-80B-A3B": "qwen3-next-80b-a3b",
}
"""Sample files whose name in lower case is neither a shipped name nor an alias."""

GOOD = """model_version: 1
name: mine
source: test
hidden_size: 64
vocab_size: 1000
matrices: 3
dense_width: 128
layers: [{count: 2, mixer: full, ffn: dense}]
mixers: {full: {kind: softmax, heads: 4, kv_heads: 2, head_dim: 16, v_head_dim: 16}}
"""


def problems_of(given: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_model(given)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def test_every_shipped_model_loads_and_names_its_source() -> None:
    names = model_names()
    assert len(names) == len(TABLE) + 36
    for name in names:
        model = load_model(name)
        assert model.name == name
        assert "/" in model.source or "(" in model.source  # a repository or file, or a paper
        assert {group.mixer for group in model.layers} - {None} == model.mixers.keys()


@pytest.mark.parametrize("name", TABLE)
def test_moe_sizes_are_the_published_ones(name: str) -> None:
    model = load_model(name)
    e = model.experts
    assert e is not None
    sizes = (model.hidden_size, model.num_layers, model.num_moe_layers, e.count, e.top_k, e.width)
    payload = routing.dispatch_bytes(1, e.top_k, e.payload_width, 2, 0) / 1024
    flops = routing.routed_flops_per_token(model.matrices, e.payload_width, e.width, e.top_k) / 1e6
    ratio = routing.flops_per_byte(
        model.matrices, model.hidden_size, e.payload_width, e.width, e.shared_width, e.top_k
    )
    got = (*sizes, e.shared_width, model.dense_width, e.payload_width)
    assert (*got, payload, round(float(flops)), round(float(ratio))) == TABLE[name]


@pytest.mark.parametrize(("name", "total"), TOTALS.items())
def test_parameters_add_up_to_the_published_total(name: str, total: float) -> None:
    assert load_model(name).parameter_count / 1e9 == pytest.approx(total, rel=0.012)


@pytest.mark.parametrize(("where", "sizes"), MIXERS.items())
def test_mixers_have_the_published_sizes(where: tuple[str, str], sizes: tuple[object, ...]) -> None:
    mixer = load_model(where[0]).mixers[where[1]]
    got = (mixer.kind, mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.v_head_dim, mixer.window)
    assert got == sizes


@pytest.mark.skipif("MC2PERF_SAMPLES" not in os.environ, reason="MC2PERF_SAMPLES is not set")
def test_real_configs_give_the_shipped_sizes() -> None:
    files = sorted((Path(os.environ["MC2PERF_SAMPLES"]) / "hf_configs").glob("*.json"))
    assert len(files) >= 31
    for file in files:
        shipped = load_model(SAMPLE_NAMES.get(file.stem, file.stem))
        assert sizes_of(load_model(str(file))) == sizes_of(shipped), file.stem


def sizes_of(model: Model) -> Model:
    return replace(model, name="", source="")


def test_names_are_found_in_any_case_and_by_alias() -> None:
    assert load_model("DeepSeek-R1").name == "deepseek-v3"
    assert load_model("deepseek-v3.1") == load_model("deepseek-v3")
    assert not model_aliases().keys() & set(model_names())
    aliases = [alias for alias in model_aliases() if model_aliases()[alias] not in model_names()]
    assert aliases == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("deepseekv3", "model: 'deepseekv3' is unknown; did you mean 'deepseek-v3'?"),
        ("mixtral-8x7", "model: 'mixtral-8x7' is unknown; did you mean 'mixtral-8x7b'?"),
        ("no/x", "no/x: no such file; models are not downloaded, give a config.json"),
        (
            "deepseek-ai/DeepSeek-R1",
            "deepseek-ai/DeepSeek-R1: no such file; models are not downloaded, give a config.json "
            "or write 'deepseek-r1'",
        ),
        ("/dev/null", "/dev/null: is not a regular file; pipe it in and write -"),
    ],
)
def test_unknown_names_are_one_line(given: str, problem: str) -> None:
    assert problems_of(given) == [problem]


@pytest.mark.parametrize("given", ["", "\0", "x" * 5000, "a/" + "x" * 300, ".", "..", "\n"])
def test_odd_names_are_one_line(given: str) -> None:
    assert len(problems_of(given)) == 1


def test_a_yaml_model_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD)
    model = load_model(str(file))
    # 2 embeddings; 2 layers: queries, output 2 x 64 x 64; keys, values 2 x 64 x 32; FFN 3 x 64 x 128
    assert model.parameter_count == 2 * 64000 + 2 * (8192 + 4096 + 24576)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("model_version: 1", "model_version: 2", "model_version: '2' is not known; write 1"),
        ("model_version: 1\n", "", "model_version: 'None' is not known; write 1"),
        ("hidden_size", "hiden_size", "hiden_size: unknown key; did you mean 'hidden_size'?"),
        ("heads: 4", "heads: 4.5", "mixers.full.heads: '4.5' is not a whole number"),
        (
            "count: 2",
            "count: 0",
            "layers.0.count: 0 is out of range; write a whole number from 1 to 10000000",
        ),
        ("mixer: full", "mixer: ful", "layers.0.mixer: 'ful' is not known; did you mean 'full'?"),
        (
            "ffn: dense",
            "ffn: moe",
            "layers.0.ffn: is moe, but the model has no experts; write them or 'dense'",
        ),
        ("width: 128", "width: 0", "layers.0.ffn: is dense, but dense_width is 0; write the width"),
        ("kv_heads: 2", "kv_heads: 3", "mixers.full.kv_heads: does not divide 4 heads; write a divisor"),
        (
            "[{count: 2, mixer: full, ffn: dense}]",
            "[]",
            "layers: is empty; write at least one group of layers",
        ),
        (
            "kind: softmax",
            "kind: mla",
            "mixers.full: mla needs kv_lora_rank, and a head_dim that includes rope_head_dim; write both",
        ),
    ],
)
def test_bad_yaml_models(tmp_path: Path, old: str, new: str, problem: str) -> None:
    file = tmp_path / "mine.yaml"
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    assert f"{file}: {problem}" in problems_of(str(file))


@pytest.mark.parametrize(
    ("experts", "problem"),
    [
        ("count: 4, top_k: 5", "top_k: 5 is more than the 4 experts; write fewer"),
        ("count: 4, top_k: 1, groups: 3", "groups: must divide count and be at least top_groups; write both"),
        ("count: 4, top_k: 3, groups: 2", "top_groups: hold fewer than top_k = 3 experts; write more groups"),
    ],
)
def test_bad_experts_in_yaml(tmp_path: Path, experts: str, problem: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{GOOD}experts: {{{experts}, width: 8, shared_width: 0, payload_width: 64}}\n")
    assert problems_of(str(file)) == [f"{file}: experts.{problem}"]


TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 9} | {
    "intermediate_size": 128
}


@pytest.mark.parametrize("given", ["tiny", "tiny/config.json", "tiny/other.json"])
def test_configs_from_folder_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    (tmp_path / "tiny").mkdir()
    for name in ("config.json", "other.json"):
        (tmp_path / "tiny" / name).write_bytes(b"\xef\xbb\xbf" + json.dumps(TINY).encode())
    monkeypatch.chdir(tmp_path)
    assert load_model(given).name == ("other" if "other" in given else "tiny")


def test_config_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(TINY).encode())))
    assert load_model("-").mixers["full"].head_dim == 16
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert problems_of("-") == ["standard input: is empty"]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "is empty"),
        (
            b'{"hidden_size": 64,',
            "line 1, column 20: is not JSON (the text ends too early); fetch the file again",
        ),
        (b"hidden", "line 1, column 1: is not JSON (Expecting value); fetch the file again"),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8; save the file as UTF-8"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "is a Git LFS pointer, not the file; run 'git lfs pull'",
        ),
        (b"[1]", "expected the object of a config.json; the file is a list"),
        (b'"x"', "expected the object of a config.json; the file 'x' is text"),
        (b'{"top": 1, "a": {"b": 1, "b": 2}}', "key 'b' stands twice; keep one"),
        (b"[" * 200_000, "is nested too deeply; not a config.json"),
        (b'{"a":' * 200_000, "is nested too deeply; not a config.json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number of thousands of digits; not a config.json"),
        (b" " * (4 * 1024**2 + 1), "larger than 4 MiB; not a file of this kind"),
    ],
    ids=range(13),
)
def test_bad_json_is_one_line(tmp_path: Path, raw: bytes, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(raw)
    assert problems_of(str(file)) == [f"{file}: {problem}"]


def test_infinity_is_harmless_where_nobody_looks(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY)[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    assert load_model(str(file)).hidden_size == 64
    file.write_text('{"hidden_size": NaN, ' + json.dumps(TINY)[20:])
    assert problems_of(str(file)) == [
        f"{file}: hidden_size: nan is not a whole number; write a whole number from 1 to 10000000"
    ]
