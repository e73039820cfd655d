"""What a refusal says must be true, name the right option, and be something that can be followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import run

TRAINING = ("deepseek-v3", "--phase", "train", "--hardware", "atlas_800t_a3", "--global-batch-size", "1024")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*words: str) -> str:
    code, out, err = run(*words)
    assert (code, out) == (2, "") and "Traceback" not in err
    return err


def test_a_file_of_null_is_null() -> None:
    Path("n.json").write_text("null\n", encoding="utf-8")
    assert refused("estimate", "n.json") == "n.json: expected the object of a config.json; the file is null\n"


def test_layers_of_a_prime_number_have_a_way_out() -> None:
    """61 has no divisor to write; what is said instead is taken."""
    words = ("estimate", *TRAINING, "--ep", "16", "--pp", "4", "--pipeline", "dualpipev")
    assert "--stage-layers with 8 numbers that add up to 61" in refused(*words)
    code, _, err = run(*words, "--stage-layers", "8-8-8-8-8-7-7-7")
    assert code == 0, err


def test_interleaved_stages_are_not_told_to_be_uneven() -> None:
    said = refused(
        "estimate", *TRAINING, "--ep", "16", "--pp", "4", "--pipeline", "interleaved", "--vpp", "2"
    )
    assert "61 layers do not divide" in said and "--stage-layers" not in said


@pytest.mark.parametrize("command", ["estimate", "check"])
def test_large_counts_are_whole(command: str) -> None:
    sizes = () if command == "check" else ("-m", "4096", "-n", "4096", "-k", "4096")
    assert "not 9999999\n" in refused(command, "all_gather_matmul", *sizes, "--ranks", "9999999")


@pytest.mark.parametrize("place", ["nowhere/a.svg", "folder.svg"])
def test_a_chart_that_cannot_be_written_is_said_as_elsewhere(place: str) -> None:
    pytest.importorskip("matplotlib")
    Path("folder.svg").mkdir()
    assert refused("plot", "mixtral-8x7b", "-o", place).startswith(f"output: '{place}' cannot be written (")


def test_a_scenario_that_cannot_be_written_names_its_option() -> None:
    said = refused("estimate", "mixtral-8x7b", "--save-scenario", "/")
    assert said == "save_scenario: '/' cannot be written (Is a directory)\n"


def test_a_folder_that_may_not_be_read_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system refuses it to all but root."""

    def locked(folder: object, onerror: object = None) -> list[object]:
        assert callable(onerror)
        onerror(PermissionError(13, "Permission denied", str(folder)))
        return []

    Path("locked").mkdir()
    monkeypatch.setattr(os, "walk", locked)
    assert refused("inspect", "locked") == "locked: cannot be read (Permission denied)\n"


def test_runs_are_told_what_they_may_be_called() -> None:
    Path("a.csv").write_text("Step,Computing\n1,2\n", encoding="utf-8")
    said = refused("compare", "deepseek-v3", "alltoall=a.csv", "bar=b.csv", "--ep", "16")
    assert "bar=b.csv: 'bar' is no label of a run; write alltoall=FILE and mc2=FILE" in said
    Path("x=1.csv").write_text("Step,Computing\n1,2\n", encoding="utf-8")
    assert "is no label" not in refused("compare", "deepseek-v3", "x=1.csv", "--ep", "16")


def test_what_is_nothing_alone_is_told_its_company() -> None:
    rows = "data_size(Bytes): | avg_time(us): |\n1024 | 60.7 |\n2048 | 61 |\n"
    Path("a.txt").write_text(rows, encoding="utf-8")
    said = refused("compare", "deepseek-v3", "a.txt", "--ep", "16")
    assert "name with it the times of a step: step_trace_time.csv" in said


def test_one_is_singular() -> None:
    words = ("paths", "deepseek-v3", "--hardware", "atlas_800t_a3", "--ep", "16", "--tokens", "1")
    code, out, _ = run(*words)
    assert code == 0 and " at 1 token (" in out
