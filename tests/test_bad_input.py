"""Wrong input: one line per problem, all at once, exit 2, nothing on standard output, never a traceback."""

# ruff: noqa: E501 - exact lines stand in tables
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run

from mc2perf.problems import did_you_mean
from mc2perf.scenario import inputs

Refused = Callable[..., list[str]]

OPERATOR = ("all_to_all_matmul", "-m", "8192", "-n", "4096", "-k", "7168", "--ranks", "8")
MODEL = ("mixtral-8x7b",)
DTYPE_LIST = "write one of bf16, fp16, fp32, fp8, int8, mxfp4, mxfp8"
PROFILE_LIST = "write one of atlas_800i_a2_pcie, atlas_350, ascend_950pr, ascend_950dt, atlas_800t_a3, ... (all: 'mc2perf profiles list')"
NOT_A_NAME = (
    "is not a profile name (small letters, digits, _); write the .yaml file of your own, or put it into a "
    "folder of MC2PERF_PROFILES or --profiles"
)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command that must be refused; its lines."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> list[str]:
        code, out, err = run(*args)
        assert (code, out) == (2, ""), err
        assert "Traceback" not in err
        assert err.endswith("\n")
        return err.splitlines()

    return call


FLAGS = [
    ((*MODEL, "--seq-len", "nan"), "seq_len: 'nan' is not a finite number"),
    ((*MODEL, "--seq-len", "inf"), "seq_len: 'inf' is not a finite number"),
    ((*MODEL, "--seq-len", "-inf"), "seq_len: '-inf' is not a finite number"),
    ((*MODEL, "--seq-len", "1e999"), "seq_len: '1e999' is not a finite number"),
    ((*MODEL, "--seq-len", "-5"), "seq_len: '-5' is too small for a whole number of at least 1"),
    ((*MODEL, "--seq-len", "0"), "seq_len: '0' is too small for a whole number of at least 1"),
    ((*MODEL, "--seq-len", "1e15"), "seq_len: '1e15' is too large for a whole number of at least 1"),
    ((*MODEL, "--seq-len", "2.5"), "seq_len: '2.5' is not a whole number of at least 1"),
    ((*MODEL, "--seq-len", "many"), "seq_len: 'many' is not a whole number of at least 1; write for example 8"),
    ((*MODEL, "--seq-len", ""), "seq_len: is empty; write something, or leave it out"),
    ((*MODEL, "--seq-len", "K"), "seq_len: 'K' is not a whole number of at least 1; write for example 8"),
    ((*MODEL, "--seq-len", "4 k"), "seq_len: '4 k' is not a whole number of at least 1; write a bare number such as 8"),
    ((*MODEL, "--seq-len", "4 GB"), "seq_len: '4 GB' is not a whole number of at least 1; write a bare number such as 8"),
    ((*MODEL, "--skew", "150%"), "skew: '150%' is not a factor of at least 1; write a factor such as 1.5"),
    ((*MODEL, "--skew", "0.5"), "skew: '0.5' is too small for a factor of at least 1"),
    ((*MODEL, "--skew", "nan"), "skew: 'nan' is not a finite number"),
    ((*MODEL, "--skew", "1e9"), "skew: '1e9' is too large for a factor of at least 1"),
    ((*MODEL, "--dtype", "bf15"), "dtype: 'bf15' is not known; did you mean 'bf16'?"),
    ((*MODEL, "--dtype", "x"), f"dtype: 'x' is not known; {DTYPE_LIST}, w4a8"),
    ((*MODEL, "--dispatch-dtype", "x"), f"dispatch_dtype: 'x' is not known; {DTYPE_LIST}"),
    ((*MODEL, "--dtype", "mxfp4"), "dtype: the cube of atlas_800i_a2 has no mxfp4; write one of bf16, fp16, int8"),
    ((*MODEL, "--schedule", "mc3"), "schedule: 'mc3' is not known; did you mean 'mc2'?"),
    (
        (*MODEL, "--schedule", "x"),
        "schedule: 'x' is not known; write one of all, coc, dual_batch, mc2, micro_batch, serial",
    ),
    ((*MODEL, "--dispatcher", "deepep"), "dispatcher: 'deepep' is not known; write one of alltoall, mc2"),
    (
        (*MODEL, "--dispatcher", "mc2", "--schedule", "coc"),
        "dispatcher: says something else than schedule; give one of both",
    ),
    ((*MODEL, "--phase", "decoding"), "phase: 'decoding' is not known; did you mean 'decode'?"),
    ((*MODEL, "--cann", "7.0"), "cann: '7.0' is not known; did you mean '8.0'?"),
    ((*MODEL, "--l2", "hot"), "l2: 'hot' is not known; write one of cold, warm"),
    ((*MODEL, "--host", "x"), "host: 'x' is not known; write one of blocking, eager, graph"),
    ((*MODEL, "--hardware", "atlas_800i"), "hardware: profile 'atlas_800i' is unknown; did you mean 'atlas_800i_a2'?"),
    ((*MODEL, "--hardware", "tpu"), f"hardware: profile 'tpu' is unknown; {PROFILE_LIST}"),
    ((*MODEL, "--hardware", "../secret"), f"hardware: '../secret' {NOT_A_NAME}"),
    ((*MODEL, "--hardware", "/etc/passwd"), f"hardware: '/etc/passwd' {NOT_A_NAME}"),
    ((*MODEL, "--hardware", "Atlas"), f"hardware: 'Atlas' {NOT_A_NAME}"),
    ((*MODEL, "--hardware", "a\nb"), f"hardware: 'a\\nb' {NOT_A_NAME}"),
    ((*MODEL, "--hardware", "a" * 300), f"hardware: '{'a' * 300}' {NOT_A_NAME}"),
    ((*MODEL, "--engine", "measure"), "engine: atlas_800i_a2 has no 'measure'; did you mean 'measured'?"),
    ((*MODEL, "--matmul-rule", "vendor"), "matmul_rule: atlas_800i_a2 has no 'vendor'; did you mean 'vendor_model'?"),
    ((*MODEL, "--profiles", "nowhere"), "--profiles: 'nowhere' is no folder"),
    ((*MODEL, "--format", "jsn"), "format: 'jsn' is not known; did you mean 'json'?"),
    ((*MODEL, "--format", "xml"), "format: 'xml' is not known; write one of csv, json, markdown, table"),
    (("mixtral-8x7",), "target: 'mixtral-8x7' is no operator, model or file; did you mean 'mixtral-8x7b'?"),
    (
        ("all_to_all_matmull",),
        "target: 'all_to_all_matmull' is no operator, model or file; did you mean 'all_to_all_matmul'?",
    ),
    (("nowhere.json",), "nowhere.json: no such file; models are not downloaded, give a config.json"),
    (("nowhere.yaml",), "nowhere.yaml: no such file; models are not downloaded, give a config.json"),
    (("Org/Mixtral-8x7B",), "Org/Mixtral-8x7B: no such file; models are not downloaded, give a config.json or write 'mixtral-8x7b'"),
    # contradictions
    ((*MODEL, "--ep", "3"), ["ep: 8 NPUs do not divide by 3; write a divisor"]),
    ((*MODEL, "--ep", "16"), "ep: 8 experts do not divide by 16; write a divisor of 8"),
    ((*MODEL, "--nodes", "1", "--ep", "16"), ["ep: 16 is more than 8 NPUs; give more --nodes or a smaller ep"]),
    (("llama-3.1-8b", "--ep", "8"), "ep: llama-3.1-8b is dense and has no experts; leave ep out"),
    ((*MODEL, "--tokens", "4096", "--batch-size", "1"), "tokens: says the same as batch_size x seq_len / tp; give one of both"),
    (
        (*MODEL, "--micro-batches", "2", "--micro-batch-size", "1"),
        "micro_batch_size: says the same as micro_batches; give one of both",
    ),
    (
        (*MODEL, "--batch-size", "4", "--micro-batch-size", "3"),
        "micro_batch_size: 4 samples do not divide by 3; write a divisor",
    ),
    (
        (*MODEL, "--seq-len", "64", "--micro-batches", "65"),
        "micro_batches: 65 is more than 64 tokens of an NPU",
    ),
    ((*OPERATOR[:-1], "9", "--nodes", "1"), "ranks: 9 is more than 1 nodes x 8 NPUs"),
    ((*MODEL, "-m", "5", "--ranks", "8"), [
        "m: is for operators; 'mixtral-8x7b' is a model; leave it out",
        "ranks: is for operators; 'mixtral-8x7b' is a model; leave it out",
    ]),
    ((*OPERATOR, "--batch-size", "5", "--tp", "2", "--phase", "prefill"), [
        "phase: is for models; 'all_to_all_matmul' is an operator; leave it out",
        "batch_size: is for models; 'all_to_all_matmul' is an operator; leave it out",
        "tp: is for models; 'all_to_all_matmul' is an operator; leave it out",
    ]),
    (("all_to_all_matmul", "-m", "8"), ["n: is missing; write -n NUMBER", "k: is missing; write -k NUMBER"]),
    ((*OPERATOR, "--tile-cnt", "9000"), "tile_cnt: m = 8192 leaves nothing for the last of 9000 tiles; write fewer"),
    (
        (*OPERATOR, "--split-axis", "k", "--tile-cnt", "7000"),
        "tile_cnt: k = 7168 leaves nothing for the last of 7000 tiles; write fewer",
    ),
    ((*OPERATOR, "--split-axis", "j"), "split_axis: 'j' is not known; write one of k, m, n"),
    ((*OPERATOR, "--experts-per-rank", "2"), "experts_per_rank: all_to_all_matmul has no experts; leave it out"),
    (
        ("matmul_reduce_scatter", "-m", "4100", "-n", "8", "-k", "8", "--ranks", "8"),
        "m: 4100 rows do not divide by 8 ranks; write a multiple",
    ),
    (
        ("moe_layer", "-m", "64", "-n", "8", "-k", "8", "--ranks", "8", "--top-k", "9"),
        "top_k: 9 is more than the 8 experts",
    ),
    (
        ("moe_layer", "-m", "64", "-n", "8", "-k", "8", "--ranks", "8", "--shared-width", "wide"),
        "shared_width: 'wide' is not a whole number of at least 0; write for example 2048",
    ),
    # --set
    ((*MODEL, "--set", "memory.bandwidth"), "--set: 'memory.bandwidth' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'"),
    ((*MODEL, "--set", "=5"), "--set: '=5' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'"),
    ((*MODEL, "--set", "a="), "--set: 'a=' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'"),
    ((*MODEL, "--set", "memory.bandwith=1 TB/s"), "--set memory.bandwith: is no value of this profile; did you mean 'memory.bandwidth'?"),
    ((*MODEL, "--set", "memory.bandwidth=1 TB"), "atlas_800i_a2.yaml: memory.bandwidth: '1 TB' is in B, expected B/s"),
    ((*MODEL, "--set", "memory.bandwidth=1"), "atlas_800i_a2.yaml: memory.bandwidth: '1' has no unit; write for example 28 GB/s"),
    (
        (*MODEL, "--set", "memory.bandwidth=1 gb/s"),
        "atlas_800i_a2.yaml: memory.bandwidth: '1 gb/s': unit 'gb/s' is unknown or ambiguous; "
        "write GB/s (bytes) or Gbit/s (bits)",
    ),
    ((*MODEL, "--set", "memory.bandwidth=nan TB/s"), "atlas_800i_a2.yaml: memory.bandwidth: 'nan TB/s' is not a finite number"),
    ((*MODEL, "--set", "memory.bandwidth=-1 TB/s"), "atlas_800i_a2.yaml: memory.bandwidth: '-1 TB/s' is too small for a bandwidth; write 1000 B/s to 1e+06 TB/s"),
    ((*MODEL, "--set", "memory.bandwidth=0 TB/s"), "atlas_800i_a2.yaml: memory.bandwidth: '0 TB/s' is too small for a bandwidth; write 1000 B/s to 1e+06 TB/s"),
    ((*MODEL, "--set", "memory.efficiency=80"), "atlas_800i_a2.yaml: memory.efficiency: '80' is too large for a ratio in (0, 1]; write 0.8, not per cent"),
    (
        (*MODEL, "--set", "memory.efficiency=80 %"),
        "atlas_800i_a2.yaml: memory.efficiency: '80 %' is not a ratio in (0, 1]; write a ratio between 0 and 1, such as 0.8",
    ),
    (
        (*MODEL, "--set", "tiers.node.engine=hcl"),
        "atlas_800i_a2.yaml: tiers.node.engine: 'hcl' is unknown; write one of aiv, ep_low_latency, measured, vendor_model",
    ),
    (
        (*MODEL, "--set", "tiers.node.engines.measured.interleaves=maybe"),
        "atlas_800i_a2.yaml: tiers.node.engines.measured.interleaves: 'maybe' is not true or false",
    ),
    ((*MODEL, "--set", "memory.bandwidth=1 TB", "--set", "memory.l2=1 s"), [
        "atlas_800i_a2.yaml: memory.bandwidth: '1 TB' is in B, expected B/s",
        "atlas_800i_a2.yaml: memory.l2: '1 s' is in s, expected B",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("args", "lines"), FLAGS, ids=[" ".join(args[-3:])[:60] for args, _ in FLAGS])
def test_flags(args: tuple[str, ...], lines: str | list[str], refused: Refused) -> None:
    assert refused("estimate", *args) == ([lines] if isinstance(lines, str) else lines)


def test_all_problems_of_the_flags_at_once(refused: Refused) -> None:
    args = (
        "--dtype",
        "bf17",
        "--seq-len",
        "0",
        "--skew",
        "x",
        "--format",
        "y",
        "--set",
        "z",
        "-o",
        "a.b",
    )
    assert refused("estimate", "mixtral-8x7", *args) == [
        "--set: 'z' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'",
        "format: 'y' is not known; write one of csv, json, markdown, table",
        "seq_len: '0' is too small for a whole number of at least 1",
        "dtype: 'bf17' is not known; did you mean 'bf16'?",
        "skew: 'x' is no skew and no file; write one of 1.5, counts.csv, even, random, zipf:1.0",
        "target: 'mixtral-8x7' is no operator, model or file; did you mean 'mixtral-8x7b'?",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("estimate", "mixtral-8x7b", "--hardwre", "x"),
        ("estimate", "mixtral-8x7b", "second"),
        ("estimate", "mixtral-8x7b", "-m"),
        ("estmate", "mixtral-8x7b"),
        ("profiles", "show"),
        ("profiles", "shw", "atlas_800i_a2"),
        ("models", "show"),
        ("--nonsense",),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_that_names_the_help(args: tuple[str, ...], refused: Refused) -> None:
    (line,) = refused(*args)
    assert line.endswith(" --help' lists what there is)")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("profiles", "show", "atlas_800i"), "hardware: profile 'atlas_800i' is unknown; did you mean 'atlas_800i_a2'?"),
        (("profiles", "show", "../x"), f"hardware: '../x' {NOT_A_NAME}"),
        (("profiles", "check", "nowhere.yaml"), "nowhere.yaml: cannot be read (No such file or directory)"),
        (("profiles", "list", "--profiles", "nowhere"), "--profiles: 'nowhere' is no folder"),
        (("models", "show", "mixtral"), "model: 'mixtral' is unknown; did you mean 'mixtral-8x7b'?"),
        (("models", "show", "nowhere.json"), "nowhere.json: no such file; models are not downloaded, give a config.json"),
    ],
)  # fmt: skip
def test_other_commands(args: tuple[str, ...], line: str, refused: Refused) -> None:
    assert refused(*args) == [line]


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\ntarget: mixtral-8x7b\n"
SCENARIOS: dict[str, tuple[str | bytes, list[str]]] = {
    "unknown key": (
        "target: mixtral-8x7b\nhardwre: atlas_800i_a2\nseqlen: 5\nzzz: 1\n",
        [
            "hardwre: unknown key; did you mean 'hardware'?",
            "seqlen: unknown key; did you mean 'seq_len'?",
            f"zzz: unknown key{did_you_mean('zzz', (spec.name for spec, _ in inputs()), 'mc2perf estimate --help')}",
        ],
    ),
    "duplicate key": ("target: mixtral-8x7b\nep: 8\nep: 4\n", ["line 3, column 1: key 'ep' stands twice; keep one"]),
    "values": (
        "target: nothing\nseq_len: .nan\nbatch_size: -3\nep: 1.5\nskew: true\ndtype: [bf16]\nrdma: 3\n",
        [
            "seq_len: 'nan' is not a finite number",
            "batch_size: '-3' is too small for a whole number of at least 1",
            "ep: '1.5' is not a whole number of at least 1",
            "skew: True is not a factor of at least 1; write for example 1.5",
            "dtype: '['bf16']' is not known; did you mean 'bf16'?",
            "rdma: '3' is not true or false",
        ],
    ),
    "a line end": ("target: mixtral-8x7b\nseq_len: \"1\\n2\"\ndtype: \"a\\nb\"\n", [
        "seq_len: '1\\n2' is not a whole number of at least 1; write for example 8",
        f"dtype: 'a\\nb' is not known; {DTYPE_LIST}, w4a8",
    ]),
    "version": ("target: mixtral-8x7b\nscenario_version: 2\n", ["scenario_version: '2' is not known; write 1"]),
    "version of another kind": ("target: mixtral-8x7b\nscenario_version: [1]\n", ["scenario_version: '[1]' is not known; write 1"]),
    "set": ("target: mixtral-8x7b\nset: 5\n", ["set: expected lines of 'path: value'"]),
    "dispatcher": ("target: mixtral-8x7b\ndispatcher: [a]\n", ["dispatcher: '['a']' is not known; write one of alltoall, mc2"]),
    "empty": ("", ["is empty"]),
    "blank": (" \n\t\n", ["is empty"]),
    "comment only": ("# nothing\n", ["expected 'key: value' lines, found NoneType"]),
    "list": ("- a\n", ["expected 'key: value' lines, found list"]),
    "two documents": ("a: 1\n---\nb: 2\n", ["line 2, column 1: but found another document"]),
    "utf-16": ("target: mixtral-8x7b\n".encode("utf-16"), ["is UTF-16; save it as UTF-8"]),
    "latin-1": ("target: größe\n".encode("latin-1"), ["byte 10 is not UTF-8; save the file as UTF-8"]),
    "binary": (bytes(range(256)), ["byte 128 is not UTF-8; save the file as UTF-8"]),
    "bomb": (BOMB, ["line 1, column 4: aliases (*name) are not accepted; write it out"]),
    "git lfs": ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["is a Git LFS pointer, not the file; run 'git lfs pull'"]),
    "too large": ("#" * (4 * 1024**2 + 1), ["larger than 4 MiB; not a file of this kind"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_files(name: str, refused: Refused) -> None:
    content, lines = SCENARIOS[name]
    Path("q.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    found = refused("estimate", "q.yaml")
    if name == "values":
        assert found.pop().startswith(
            "q.yaml: target: 'nothing' is no operator, model or file; write one of "
        )
    assert found == [f"q.yaml: {line}" for line in lines]


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 5000, "a: " + "{a: " * 3000, "a: !!int x", "a: !!timestamp x", "a: !!bool x", "a: !!python/object:os.x 1",
     "a: [1", "a: 'b", "\ta: 1", "a: b: c", "? [1]\n: 2", "a: \x01", "<<: 3", "a: *b", "%YAML 9.9\n---\na: 1", "a: " + "9" * 5000, "a: 0x" + "f" * 5000 + "\ntarget: moe_layer\nm: 0x" + "f" * 5000],
)  # fmt: skip
def test_text_that_yaml_cannot_take_is_one_line(text: str, refused: Refused) -> None:
    Path("q.yaml").write_text(text, encoding="utf-8")
    lines = refused("estimate", "q.yaml")
    assert all(line.startswith("q.yaml: ") for line in lines)
    assert len(lines) <= 3


def test_a_flag_beside_a_file_is_not_blamed_on_the_file(refused: Refused) -> None:
    Path("q.yaml").write_text("target: mixtral-8x7b\nep: 0\n", encoding="utf-8")
    assert sorted(refused("estimate", "q.yaml", "--seq-len", "0")) == [
        "q.yaml: ep: '0' is too small for a whole number of at least 1",
        "seq_len: '0' is too small for a whole number of at least 1",
    ]


def test_places_that_are_no_file(refused: Refused) -> None:
    Path("folder.yaml").mkdir()
    assert refused("estimate", "folder.yaml") == [
        "folder.yaml/config.json: no such file; models are not downloaded, give a config.json"
    ]
    os.mkfifo("pipe.json")
    assert refused("estimate", "pipe.json") == ["pipe.json: is not a regular file; pipe it in and write -"]
    assert len(refused("estimate", "x" * 5000)) == 1
    assert len(refused("estimate", "x/" * 3000 + "config.json")) == 1
    assert len(refused("profiles", "check", "x" * 5000)) == 1
    assert len(refused("profiles", "check", ".")) == 1
    assert len(refused("estimate", "mixtral-8x7b", "--profiles", "x" * 5000)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(refused: Refused) -> None:
    Path("q.yaml").write_text("target: mixtral-8x7b\n", encoding="utf-8")
    Path("q.yaml").chmod(0)
    assert refused("estimate", "q.yaml") == ["q.yaml: cannot be read (Permission denied)"]


CONFIGS = {
    "truncated": (
        b'{"hidden_size": 64, "num_hid',
        "is not JSON (the text ends too early); fetch the file again",
    ),
    "empty": (b"", "is empty"),
    "utf-16": ("{}".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "binary": (b"\x80\x81", "byte 0 is not UTF-8; save the file as UTF-8"),
    "deep": (b"[" * 100_000, "is nested too deeply; not a config.json"),
    "list": (b"[1]", "expected the object of a config.json; the file is a list"),
    "twice": (b'{"a": 1, "a": 2}', "key 'a' stands twice; keep one"),
    "html": (b"<!DOCTYPE html>", "is not JSON (Expecting value); fetch the file again"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_files_and_standard_input(name: str, refused: Refused) -> None:
    content, problem = CONFIGS[name]
    Path("config.json").write_bytes(content)
    (line,) = refused("estimate", "config.json")
    assert line.startswith("config.json: ")
    assert line.endswith(problem)
    code, out, err = run("estimate", "-", stdin=content)
    assert (code, out) == (2, "")
    assert err.startswith("standard input: ")
    assert err.endswith(f"{problem}\n")


PROFILES = {
    "name: x\nextends: tpu\n": f"q.yaml: extends: hardware: profile 'tpu' is unknown; {PROFILE_LIST}",
    "extends: [a]\n": "q.yaml: extends: '['a']' is not the name of a profile",
    "extends: ../../etc/passwd\n": f"q.yaml: extends: hardware: '../../etc/passwd' {NOT_A_NAME}",
    BOMB: "q.yaml: line 1, column 4: aliases (*name) are not accepted; write it out",
    "extends: atlas_800i_a2\nextends: atlas_800t_a2\n": "q.yaml: line 2, column 1: key 'extends' stands twice; keep one",
}  # fmt: skip


@pytest.mark.parametrize("text", PROFILES, ids=lambda text: str(text)[:20])
def test_profile_files(text: str, refused: Refused) -> None:
    Path("q.yaml").write_text(text, encoding="utf-8")
    assert refused("profiles", "check", "q.yaml") == [PROFILES[text]]
