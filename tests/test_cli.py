"""The command: commands and flags, help, exit codes, listings, and the words it shares with a scenario."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from cli_words import MOE, OPERATOR, TINY
from command_line import run

from mc2perf import cli
from mc2perf.operators import OPERATORS, TARGETS
from mc2perf.readers.models import model_names
from mc2perf.readers.profiles import profile_names
from mc2perf.rules.catalogue import OPERATORS as JUDGED
from mc2perf.scenario import SCHEDULES, Scenario, inputs
from mc2perf.version import VERSION

COMMANDS = [
    [],
    ["estimate"],
    ["sweep"],
    ["breakeven"],
    ["validate"],
    ["operators"],
    ["columns"],
    ["profiles"],
    ["profiles", "list"],
    ["profiles", "show"],
    ["profiles", "check"],
    ["models"],
    ["models", "list"],
    ["models", "show"],
]
VARIANT = """\
extends: atlas_800i_a2
name: slow_box
title: A box of my own
memory:
  bandwidth: {value: 0.8 TB/s, kind: measured, ref: "my own stream test"}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_one_example_that_runs(words: list[str], tmp_path: Path) -> None:
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(['mc2perf', *words])} ")
    assert run(*words, "-h")[1] == out
    examples = [line.strip() for line in out.splitlines() if line.strip().startswith("Example: ")]
    assert len(examples) == 1
    (tmp_path / "my_machines").mkdir()
    (tmp_path / "my_machines" / "box.yaml").write_text(VARIANT, encoding="utf-8")
    tool, *args = examples[0].removeprefix("Example: ").split()
    assert tool == "mc2perf"
    assert args[: len(words)] == words
    assert run(*args)[0] == 0


def test_help_of_estimate_has_four_groups() -> None:
    text = run("estimate", "--help")[1]
    what, where, how, output = (text.index(f"\n{title}:\n") for title in cli.GROUPS.values())
    assert what < where < how < output
    parts = {
        "what": text[what:where],
        "where": text[where:how],
        "how": text[how:output],
        "output": text[output:],
    }
    for spec, asked in inputs():
        flag = f"--{spec.name.replace('_', '-')}"
        assert any(
            flag in line.split()[:3] or f"{flag}," in line for line in parts[asked.group].splitlines()
        ), flag
    others = {"--dispatcher": "how", "--set": "where", "--profiles": "where", "--explain": "output"}
    others |= {"--format": "output", "--output": "output", "--save-scenario": "output", "TARGET": "what"}
    for flag, group in others.items():
        assert flag in parts[group], flag
    assert "Usage: mc2perf estimate [OPTIONS] [TARGET]" in text


@pytest.mark.parametrize("words", [["--help"], ["estimate", "--help"], ["sweep", "--help"]], ids=" ".join)
def test_help_loads_nothing_that_computes(words: list[str]) -> None:
    heavy = {"numpy", "scipy", "yaml", "tabulate"}
    code = f"""
import sys
sys.argv = ["mc2perf", *{words}]
from mc2perf.cli import main
try:
    main()
finally:
    assert not (loaded := {heavy} & set(sys.modules)), loaded
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("Usage: mc2perf")


def test_no_argument_prints_three_examples_that_run() -> None:
    code, out, err = run("estimate")
    assert (code, out) == (2, "")
    examples = [line.split()[1:] for line in err.splitlines() if line.startswith("mc2perf ")]
    assert len(examples) == 3
    for example in examples:
        assert run(*example)[0] == 0


@pytest.mark.parametrize("words", [[], ["profiles"], ["models"]], ids=" ".join)
def test_a_group_alone_prints_its_help_and_exits_2(words: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err == run(*words, "--help")[1]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str) -> None:
    assert run(flag) == (0, f"mc2perf {VERSION}\n", "")


def test_flags_and_fields_are_one_vocabulary() -> None:
    import inspect

    own = {"dispatcher", "profiles", "set", "explain", "memory", "fit", "format", "output", "save_scenario"}
    own |= {"timeline", "trace"}
    own |= {"strict"}
    given = inspect.signature(cli.estimate).parameters
    assert set(given) - own == {field.name for field in fields(Scenario)}
    for spec, how in inputs():
        (option,) = given[spec.name].annotation.__metadata__
        flags = [name for given in (option.default, *option.param_decls) for name in str(given).split("/")]
        flag = f"--{spec.name.replace('_', '-')}"
        off = [f"--no-{flag[2:]}"] if spec.default is True else []
        assert flags == [*([how.short] if how.short else []), flag, *off]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("mixtral-8x7b",), 0),
        (("mixtral-8x7b", "--schedule", "coc"), 0),
        (MOE, 0),
        ((*MOE, "--schedule", "coc"), 1),
        ((*OPERATOR, "--schedule", "micro_batch"), 1),
        ((*OPERATOR, "--schedule", "serial"), 0),
        ((*MOE, "--schedule", "nonsense"), 2),
        (("no-such-model",), 2),
    ],
)
def test_exit_codes(args: tuple[str, ...], code: int) -> None:
    found, out, err = run("estimate", *args)
    assert found == code
    assert bool(out) is (code < 2)
    assert bool(err) is (code == 2)


def test_a_refused_schedule_among_all_is_a_row_with_its_reason() -> None:
    code, out, _ = run("estimate", *MOE, "--format", "json")
    rows = {row["schedule"]: row for row in json.loads(out)["results"]}
    assert code == 0
    assert tuple(rows) == SCHEDULES
    assert rows["coc"].keys() == {"schedule", "legal", "reason"}
    code, out, _ = run("estimate", *MOE, "--schedule", "coc")
    assert code == 1
    assert out.startswith("Refused: coc: ")


@pytest.mark.parametrize(("word", "schedule"), [("alltoall", "serial"), ("mc2", "mc2")])
def test_dispatcher_is_another_word_for_schedule(word: str, schedule: str) -> None:
    expected = run("estimate", "deepseek-v3", "--ep", "8", "--schedule", schedule)
    assert run("estimate", "deepseek-v3", "--ep", "8", "--dispatcher", word) == expected
    assert (
        run("estimate", "deepseek-v3", "--ep", "8", "--dispatcher", word, "--schedule", schedule) == expected
    )


def test_operators_lists_what_m_n_k_mean() -> None:
    code, out, _ = run("operators")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert listed == [*TARGETS, *(name for name in JUDGED if name not in TARGETS)]
    for operator in OPERATORS.values():
        assert f"    m: {operator.m}\n    n: {operator.n}\n    k: {operator.k}\n" in out
        shown = run("estimate", operator.name, "-m", "4096", "-n", "4096", "-k", "4096", "--ranks", "8")[1]
        assert f"\nm = {operator.m}\nn = {operator.n}\nk = {operator.k}\n" in shown


def test_profiles_list_show_and_check(tmp_path: Path) -> None:
    code, out, _ = run("profiles", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == profile_names()
    assert "atlas_800i_a2           Atlas 800I A2 (Ascend 910B4-1, 64 GB)" in out.splitlines()

    written = run("profiles", "show", "atlas_800i_a2")[1]
    assert written.startswith("extends: atlas_800t_a2_b2\n")
    resolved = run("profiles", "show", "atlas_800i_a2", "--resolved")[1]
    assert "memory.capacity = 59.6046448 GiB  [datasheet: hiascend product page, Atlas 800T A2]" in resolved
    assert "tiers.node.link_rate = 28 GB/s  [datasheet: " in resolved
    changed = run("profiles", "show", "atlas_800i_a2", "--set", "tiers.node.link_rate=25 GB/s")[1]
    assert "tiers.node.link_rate = 25 GB/s  [assumed: --set]" in changed
    assert len(changed.splitlines()) == len(resolved.splitlines())

    file = tmp_path / "box.yaml"
    file.write_text(VARIANT, encoding="utf-8")
    code, out, _ = run("profiles", "check", str(file))
    assert code == 0
    assert out.startswith(f"{file}: fine; A box of my own, ")
    assert out.endswith(" numbers, each with a source\n")


def test_models_list_and_show() -> None:
    code, out, _ = run("models", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == model_names()
    assert "47 B parameters, 32 layers, hidden 4096, 8 experts, top 2, width 14336" in out
    for name in model_names():
        code, out, _ = run("models", "show", name)
        assert code == 0
        assert yaml.safe_load(out)["name"] == name
    shown = yaml.safe_load(run("models", "show", "mixtral-8x7b")[1])
    assert (shown["hidden_size"], shown["flops_per_byte"]) == (4096, 21504.0)


def test_config_json_as_file_folder_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    text = json.dumps(TINY)
    (folder / "config.json").write_text(text, encoding="utf-8")
    results = []
    for target in (str(folder / "config.json"), str(folder), "-"):
        code, out, _ = run("estimate", target, "--format", "json", stdin=text.encode())
        assert code == 0
        results.append(json.loads(out)["results"])
        shown = run("models", "show", target, stdin=text.encode())[1]
        assert yaml.safe_load(shown)["hidden_size"] == 1024
    assert results[0] == results[1] == results[2]
    assert results[0][1]["pieces"] == 2  # sixteen experts on eight NPUs


def test_own_profiles_by_flag_and_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "machines"
    folder.mkdir()
    (folder / "slow_box.yaml").write_text(VARIANT, encoding="utf-8")
    question = ("estimate", "mixtral-8x7b", "--hardware", "slow_box", "--format", "json")
    code, _, err = run(*question)
    assert code == 2
    assert err.startswith("hardware: profile 'slow_box' is unknown; ")

    code, by_flag, _ = run(*question, "--profiles", str(folder))
    assert code == 0
    monkeypatch.setenv("MC2PERF_PROFILES", str(folder))
    assert run(*question)[1] == by_flag
    assert "slow_box                A box of my own\n" in run("profiles", "list")[1]
    assert (
        "memory.bandwidth = 800 GB/s  [measured: my own stream test]"
        in (run("profiles", "show", "slow_box", "--resolved")[1])
    )
    base = json.loads(run("estimate", "mixtral-8x7b", "--format", "json")[1])
    assert json.loads(by_flag)["results"][0]["total_time"] > base["results"][0]["total_time"]

    (folder / "atlas_800i_a2.yaml").write_text(
        VARIANT.replace(
            "extends: atlas_800i_a2\nname: slow_box", "extends: atlas_800t_a2\nname: atlas_800i_a2"
        ),
        encoding="utf-8",
    )
    assert "A box of my own" in run("profiles", "show", "atlas_800i_a2", "--resolved")[1]  # yours wins
