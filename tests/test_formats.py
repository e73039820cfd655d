"""What is written: JSON by its schema, CSV for spreadsheets, Markdown, tables; and where it goes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from command_line import run

from mc2perf.api import estimate
from mc2perf.columns import answer_columns
from mc2perf.writers.csv_format import to_csv
from mc2perf.writers.json_format import document, to_json
from mc2perf.writers.table import to_markdown, to_table
from mc2perf.writers.tables.csv_table import guarded

SCHEMA = json.loads((resources.files("mc2perf") / "data" / "result.schema.json").read_text(encoding="utf-8"))

ALL_TO_ALL = ("all_to_all_matmul", "-m", "8192", "-n", "4096", "-k", "7168", "--ranks", "8")
MOE = ("moe_layer", "-m", "4096", "-n", "2048", "-k", "7168", "--ranks", "8", "--experts-per-rank", "4")
QUESTIONS = {
    "operator": ALL_TO_ALL,
    "operator on 950": (*ALL_TO_ALL, "--hardware", "ascend_950pr", "--dtype", "mxfp8"),
    "all-reduce": ("matmul_all_reduce", "-m", "4096", "-n", "8192", "-k", "4096", "--ranks", "8"),
    "one rank": ("matmul_all_reduce", "-m", "4096", "-n", "8192", "-k", "4096", "--ranks", "1"),
    "tiles": (*ALL_TO_ALL, "--schedule", "mc2", "--tile-cnt", "4", "--split-axis", "n"),
    "moe layer": MOE,
    "refused": (*MOE, "--schedule", "coc"),
    "model": ("mixtral-8x7b",),
    "prefill": ("deepseek-v3", "--hardware", "atlas_800t_a3", "--ep", "16", "--phase", "prefill"),
    "tensor parallel": ("mixtral-8x7b", "--tp", "8", "--micro-batches", "4"),
    "dense": ("llama-3.1-8b", "--tp", "8", "--tokens", "512", "--seq-len", "4096"),
    "two servers": ("qwen3-30b-a3b", "--nodes", "2", "--no-rdma", "--skew", "1.5", "--host", "graph"),
    "old software": ("qwen3-30b-a3b", "--nodes", "2", "--cann", "8.0", "--dispatch-dtype", "int8"),
    "changed machine": ("mixtral-8x7b", "--set", "tiers.node.link_rate=25 GB/s", "--l2", "warm"),
    "gpu": ("mixtral-8x7b", "--hardware", "h100_sxm", "--dtype", "fp8", "--schedule", "micro_batch"),
    "explained operator": (*ALL_TO_ALL, "--explain"),
    "explained model": ("mixtral-8x7b", "--schedule", "micro_batch", "--explain"),
    "explained decode": ("qwen3-8b", "--phase", "decode", "--batch-size", "32", "--explain"),
    "explained prefill": (
        "deepseek-v3",
        "--hardware",
        "atlas_800t_a3",
        "--nodes",
        "4",
        "--phase",
        "prefill",
        "--explain",
    ),
}


def numbers(tree: object) -> list[float]:
    if isinstance(tree, dict | list):
        return [n for child in (tree.values() if isinstance(tree, dict) else tree) for n in numbers(child)]
    return [float(tree)] if isinstance(tree, int | float) else []


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


@pytest.mark.parametrize("name", QUESTIONS)
def test_json_is_as_its_schema_says_and_runs_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run("estimate", *QUESTIONS[name], "--format", "json")
    assert code == (1 if name == "refused" else 0)
    tree = json.loads(out, parse_constant=no_constant)
    jsonschema.Draft202012Validator(SCHEMA).validate(tree)
    assert all(map(math.isfinite, numbers(tree)))
    assert err == "".join(f"warning {w['code']}: {w['text']}\n" for w in tree["warnings"])

    again = document(estimate(**tree["inputs"], explain="--explain" in QUESTIONS[name]))
    assert json.loads(json.dumps(again)) == tree

    monkeypatch.chdir(tmp_path)
    Path("again.yaml").write_text(json.dumps(tree["inputs"]), encoding="utf-8")
    rest = ["--explain"] if "--explain" in QUESTIONS[name] else []
    assert run("estimate", "again.yaml", "--format", "json", *rest)[1] == out


def without_key(key: str, tree: dict[str, Any]) -> None:
    del tree[key]


def without_row_key(key: str, tree: dict[str, Any]) -> None:
    del tree["results"][0][key]


def test_the_schema_is_one_and_refuses_what_is_not_an_answer() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    good = json.loads(to_json(estimate("mixtral-8x7b")))

    def refused(change: Callable[[Any], object]) -> bool:
        tree = json.loads(json.dumps(good))
        change(tree)
        return not jsonschema.Draft202012Validator(SCHEMA).is_valid(tree)

    row_keys = SCHEMA["$defs"]["legal"]["required"]
    words = (
        "total_time serial_time compute_time comm_time exposed_comm_time host_time comm_ratio hidden_ratio"
    )
    words += " overlap_efficiency speedup ceiling pieces bound schedule segments"
    assert set(words.split()) <= set(row_keys)
    for key in row_keys:
        assert refused(partial(without_row_key, key)), key
    for key in SCHEMA["required"]:
        assert refused(partial(without_key, key)), key
    assert refused(lambda tree: tree.update(extra=1))
    assert refused(lambda tree: tree["inputs"].update(hardwre="a"))
    assert refused(lambda tree: tree["results"][0].update(total_time="1 s"))
    assert refused(lambda tree: tree["results"].append({"schedule": "coc", "legal": False}))
    assert not refused(lambda tree: None)


def test_the_schema_knows_every_input() -> None:
    from mc2perf.scenario import inputs

    listed = set(SCHEMA["properties"]["inputs"]["properties"])
    assert listed == {spec.name for spec, _ in inputs()} | {"scenario_version", "target", "set"}
    for spec, how in inputs():
        asked = SCHEMA["properties"]["inputs"]["properties"][spec.name]
        if how.choices and "enum" in asked:
            assert tuple(asked["enum"]) == how.choices, spec.name


def test_models_say_tokens_per_second() -> None:
    tree = document(estimate("mixtral-8x7b"))
    assert [row["tokens_per_second"] > 0 for row in tree["results"]] == [True] * 5
    answer = document(estimate("all_to_all_matmul", m=8192, n=4096, k=7168, ranks=8))
    assert "tokens_per_second" not in answer["results"][0]


@pytest.mark.parametrize("name", ["operator", "moe layer", "model", "refused", "changed machine"])
def test_csv_is_a_table_of_plain_numbers(name: str) -> None:
    _, out, _ = run("estimate", *QUESTIONS[name], "--format", "csv")
    tree = json.loads(run("estimate", *QUESTIONS[name], "--format", "json")[1])
    assert not out.startswith("\ufeff")
    assert out.endswith("\r\n")
    assert out.count("\n") == out.count("\r\n")
    header, *lines = csv.reader(io.StringIO(out, newline=""), strict=True)
    assert {len(line) for line in lines} == {len(header)}
    assert header[:3] == ["target", "hardware", "tool_version"]
    assert "total_time(s)" in header
    assert "tokens_per_second(1/s)" in header
    assert "comm_ratio" in header
    names = {column.title: column.name for column in answer_columns()}
    for line, row in zip(lines, tree["results"], strict=True):
        assert line[0] == tree["inputs"]["target"]
        assert int(line[-1]) == tree["expect"]["rows"]
        for title, cell in list(zip(header, line, strict=True))[3:-3]:
            value = row.get(names[title], "")
            if isinstance(value, float):
                assert float(cell) == pytest.approx(value, rel=1e-8, abs=0)
                assert len(cell.lstrip("-0.").split("e")[0].replace(".", "")) <= 9
            else:
                assert cell == str(value)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\0", " =", "\uff1d"])
def test_no_text_runs_as_a_formula(start: str) -> None:
    assert guarded(f"{start}cmd") == f"'{start}cmd"


def test_harmless_text_is_not_guarded() -> None:
    assert [guarded(text) for text in ("cmd=1", "", "mc2")] == ["cmd=1", "", "mc2"]


def test_a_hostile_target_and_reason_are_guarded_in_the_file() -> None:
    answer = estimate("mixtral-8x7b", schedule="serial")
    row = replace(answer.rows[0], reason='=1+1,"quoted"\nline')
    hostile = replace(answer, inputs={"target": "=cmd|x", "hardware": "@box"}, rows=(row,))
    line = next(csv.DictReader(io.StringIO(to_csv(hostile), newline=""), strict=True))
    assert (line["target"], line["hardware"]) == ("'=cmd|x", "'@box")
    assert line["reason"] == '\'=1+1,"quoted"\nline'


def test_a_hostile_file_name_is_guarded_in_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1000}
    Path("=cmd|calc.json").write_text(json.dumps(sizes | {"intermediate_size": 128}), encoding="utf-8")
    code, out, _ = run("estimate", "=cmd|calc.json", "--format", "csv", "--schedule", "serial")
    assert code == 0
    assert out.splitlines()[1].startswith("'=cmd|calc.json,")


def test_a_csv_file_has_a_byte_order_mark_and_nothing_else_has(tmp_path: Path) -> None:
    question = ("estimate", "mixtral-8x7b", "--schedule", "serial")
    texts = {}
    for suffix, form in ((".csv", "csv"), (".json", "json"), (".md", "markdown"), (".txt", "table")):
        file = tmp_path / f"out{suffix}"
        assert run(*question, "-o", str(file))[:2] == (0, "")
        texts[form] = run(*question, "--format", form)[1]
        assert file.read_bytes() == (b"\xef\xbb\xbf" if form == "csv" else b"") + texts[form].encode()
    assert len(set(texts.values())) == 4


@pytest.mark.parametrize("name", ["operator", "moe layer", "model", "refused", "tensor parallel"])
def test_markdown_tables_have_equal_cells(name: str) -> None:
    _, out, _ = run("estimate", *QUESTIONS[name], "--format", "markdown")
    blocks = [block.splitlines() for block in out.split("\n\n") if block.startswith("|")]
    assert blocks
    for lines in blocks:
        counts = {line.replace("\\|", "").count("|") for line in lines}
        assert len(counts) == 1, lines
        assert set(lines[1]) <= set("|:-")
        assert len(lines) >= 3


def test_a_pipe_in_a_reason_does_not_open_a_cell() -> None:
    answer = estimate("mixtral-8x7b")
    piped = replace(answer, rows=(answer.rows[0], replace(answer.rows[1], reason="a | b"), *answer.rows[2:]))
    lines = [line for line in to_markdown(piped).splitlines() if line.startswith("| mc2")]
    assert "a \\| b" in lines[0]


@pytest.mark.parametrize("form", ["table", "markdown"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_verdict_stands_first_and_the_schedules_below(name: str, form: str) -> None:
    _, out, _ = run("estimate", *QUESTIONS[name], "--format", form)
    tree = json.loads(run("estimate", *QUESTIONS[name], "--format", "json")[1])
    assert out.splitlines()[0] == tree["verdict"]
    assert out.splitlines()[1] == ""
    for row in tree["results"]:
        line = next(line for line in out.splitlines() if line.lstrip("| ").startswith(row["schedule"]))
        assert ("refused: " in line) is not row["legal"]
    for warning in tree["warnings"]:
        assert f"warning {warning['code']}: {warning['text']}" in out.splitlines()
    for text in tree["assumptions"]:
        assert f"assumes: {text}" in out.splitlines()
    assert f"rests on {sum(tree['sources'].values())} parameters" in out
    assert out.endswith("\n")
    assert "nan" not in out.split()
    assert ("Equations of one layer" in out) is ("--explain" in QUESTIONS[name])


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_two_runs_are_equal_byte_for_byte(form: str) -> None:
    question = ("estimate", *QUESTIONS["two servers"], "--format", form, "--explain")
    assert run(*question) == run(*question)


def test_warnings_of_data_formats_go_to_standard_error(tmp_path: Path) -> None:
    loud = ("estimate", "deepseek-v3", "--schedule", "serial")
    warned = [
        f"warning {remark.code}: {remark.text}"
        for remark in estimate("deepseek-v3", schedule="serial").warnings
    ]
    assert any("MEMORY_EXCEEDED" in line for line in warned)
    for more in (["--format", "csv"], ["--format", "json"], ["--format", "csv", "-o", "-"]):
        assert run(*loud, *more)[2].splitlines() == warned
    assert run(*loud, "-o", str(tmp_path / "a.csv"))[2].splitlines() == warned
    code, out, err = run(*loud)
    assert (code, err) == (0, "")
    assert set(warned) <= set(out.splitlines())


def test_tables_are_the_same_from_python_and_from_the_command() -> None:
    answer = estimate("mixtral-8x7b")
    assert run("estimate", "mixtral-8x7b")[1] == to_table(answer)
    assert yaml.safe_load(to_json(answer)) == document(answer)
