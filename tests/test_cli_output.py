"""Where answers go: suffixes and formats, saved scenarios, files that survive, pipes and full disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_words import MOE, OPERATOR, TINY, TOOL, shell
from command_line import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("suffix", "form"), [(".json", "json"), (".csv", "csv"), (".md", "markdown"), (".txt", "table")]
)
def test_the_suffix_says_the_format_and_format_overrules_it(suffix: str, form: str) -> None:
    question = ("estimate", *OPERATOR)
    assert run(*question, "-o", f"out{suffix}")[:2] == (0, "")
    assert Path(f"out{suffix}").read_text(encoding="utf-8-sig").replace("\r\n", "\n") == (
        run(*question, "--format", form)[1].replace("\r\n", "\n")
    )
    for other in ("json", "markdown"):
        run(*question, "-o", f"out{suffix}", "--format", other)
        text = Path(f"out{suffix}").read_text(encoding="utf-8-sig")
        assert text == run(*question, "--format", other)[1]


def test_an_unknown_suffix_needs_a_format() -> None:
    message = "output: 'out.xls' ends in no known suffix; write one of .json, .csv, .md, .txt or --format\n"
    assert run("estimate", *OPERATOR, "-o", "out.xls") == (2, "", message)
    assert not Path("out.xls").exists()
    assert run("estimate", *OPERATOR, "-o", "out.xls", "--format", "csv")[0] == 0
    assert run("estimate", *OPERATOR, "-o", "-")[1].startswith("Best: ")


@pytest.mark.parametrize(
    "args",
    [
        ("mixtral-8x7b",),
        (*OPERATOR, "--tile-cnt", "4", "--split-axis", "n", "--schedule", "mc2", "--buffers", "2"),
        (*MOE, "--skew", "1.25", "--shared-width", "2048", "--micro-batches", "auto"),
        ("deepseek-v3", "--tokens", "4K", "--cann", "8.0", "--no-rdma", "--hardware", "atlas_800t_a3"),
        ("qwen3-30b-a3b", "--dispatch-dtype", "int8", "--set", "memory.bandwidth=1 TB/s", "--l2", "warm"),
    ],
    ids=str,
)
def test_a_saved_scenario_gives_the_same_answer(args: tuple[str, ...]) -> None:
    code, out, _ = run("estimate", *args, "--save-scenario", "saved.yaml", "--format", "json")
    assert code == 0
    assert run("estimate", "saved.yaml", "--format", "json")[:2] == (0, out)
    tree = yaml.safe_load(Path("saved.yaml").read_text(encoding="utf-8"))
    assert tree.items() <= json.loads(out)["inputs"].items()
    assert (tree["scenario_version"], tree["target"]) == (1, args[0])


def test_a_flag_wins_over_the_scenario_file() -> None:
    run("estimate", "mixtral-8x7b", "--seq-len", "2048", "--batch-size", "2", "--save-scenario", "saved.yaml")
    out = run("estimate", "saved.yaml", "--seq-len", "1024", "--format", "json")[1]
    assert json.loads(out)["inputs"]["seq_len"] == 1024
    assert json.loads(out)["inputs"]["batch_size"] == 2


def test_set_changes_the_answer_as_the_profile_would() -> None:
    def time(*args: str) -> float:
        out = run("estimate", "mixtral-8x7b", "--schedule", "serial", "--format", "json", *args)[1]
        return float(json.loads(out)["results"][0]["total_time"])

    assert time("--set", "memory.bandwidth=0.8 TB/s") > time()
    assert time("--set", "memory.bandwidth=1.6 TB/s") == time()


@pytest.mark.parametrize(
    "args", [("no-such-model",), (*OPERATOR, "--tile-cnt", "1000000"), (*OPERATOR, "--dtype", "x")]
)
def test_an_existing_file_survives_a_failing_run(args: tuple[str, ...]) -> None:
    for name in ("out.json", "saved.yaml"):
        Path(name).write_text("precious", encoding="utf-8")
    assert run("estimate", *args, "-o", "out.json", "--save-scenario", "saved.yaml")[0] == 2
    assert Path("out.json").read_text(encoding="utf-8") == "precious"
    assert Path("saved.yaml").read_text(encoding="utf-8") == "precious"
    assert sorted(path.name for path in Path().iterdir()) == ["out.json", "saved.yaml"]


@pytest.mark.parametrize(
    "place", ["nowhere/out.json", "folder.json", "file.txt/out.json", "a" * 300 + ".json"]
)
@pytest.mark.parametrize(
    ("flag", "named"), [("-o", "output"), ("--save-scenario", "save_scenario"), ("--trace", "trace")]
)
def test_an_unwritable_place_is_one_line(place: str, flag: str, named: str) -> None:
    Path("folder.json").mkdir()
    Path("file.txt").write_text("a file", encoding="utf-8")
    code, out, err = run("estimate", "mixtral-8x7b", flag, place)
    assert code == 2 and (not out or named == "trace")
    assert err.startswith(f"{named}: '{place}' cannot be written (")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["file.txt", "folder.json"]


def test_a_link_keeps_pointing_and_a_device_stays_one() -> None:
    Path("real.json").write_text("old", encoding="utf-8")
    Path("real.json").chmod(0o640)
    Path("link.json").symlink_to("real.json")
    assert run("estimate", "mixtral-8x7b", "-o", "link.json")[0] == 0
    assert Path("link.json").is_symlink()
    assert json.loads(Path("real.json").read_text(encoding="utf-8"))["tool"]["name"] == "mc2perf"
    assert Path("real.json").stat().st_mode & 0o777 == 0o640
    assert run("estimate", "mixtral-8x7b", "--format", "json", "-o", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="the system names no standard output")
@pytest.mark.parametrize(
    "words", ["estimate mixtral-8x7b --schedule serial", "sweep mixtral-8x7b --vary micro_batch_size=1,2"]
)
def test_an_open_pipe_is_written_through_its_name(words: str) -> None:
    by_name = shell(f"set -o pipefail; {TOOL} {words} --format csv -o /dev/stdout | cat")
    assert by_name.returncode == 0
    as_usual = shell(f"{TOOL} {words} --format csv -o -").stdout
    assert by_name.stdout.removeprefix("\ufeff") == as_usual.removeprefix("\ufeff") != ""


def test_a_closed_pipe_is_quiet() -> None:
    done = shell(f"set -o pipefail; {TOOL} estimate mixtral-8x7b --explain | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Best: ")
    done = shell(f"set -o pipefail; {TOOL} estimate {' '.join(MOE)} --format json | true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["operators", "estimate mixtral-8x7b --schedule serial --format csv"])
def test_a_full_disk_is_one_line(words: str) -> None:
    done = shell(f"{TOOL} {words} > /dev/full")
    assert (done.returncode, done.stderr) == (2, "standard output: No space left on device\n")


def test_a_terminal_of_few_letters_gets_escapes(tmp_path: Path) -> None:
    (tmp_path / "größe.json").write_text(json.dumps(TINY), encoding="utf-8")
    done = shell(f"PYTHONIOENCODING=ascii {TOOL} estimate größe.json --format csv --schedule serial")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe.json" in done.stdout
