"""Every shipped value is scored or listed, nothing is read that is held out; the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mc2perf import validating
from mc2perf.cli.validate import validate as command
from mc2perf.measurement import Value
from mc2perf.problems import InputError
from mc2perf.readers.measurements import load_measurements
from mc2perf.validating import Validation, validate
from mc2perf.writers.scores import to_json, to_text


def test_every_value_is_scored_or_listed_once(everything: Validation) -> None:
    every = Counter(
        f"{row.id}/{value.key}"
        for family in load_measurements()
        for row in family.rows
        for value in row.values
    )
    accounted = Counter(one.case.address for one in everything.scored)
    accounted.update(case.address for case in everything.listed)
    assert accounted == every
    assert set(every.values()) == {1}
    open_rows = {row.id for family in everything.families for row in family.rows if row.open}
    text = to_text(everything.cases, everything.scored, everything.scores, everything.checks, rows=True)
    assert [name for name in open_rows if name not in text] == []


def test_nothing_is_scored_that_is_held_out(everything: Validation) -> None:
    assert all(one.case.row.open for one in everything.scored)
    assert not any(score.held_out for score in everything.scores)
    assert all(case.why_not for case in everything.cases if not case.row.open)


FEW = ("A2", "A3", "I1", "T2", "T4", "T5")


def test_predictions_do_not_look_at_measured_values(
    everything: Validation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values in every row change errors only."""
    changed = tuple(
        replace(
            family,
            rows=tuple(
                replace(row, values=tuple(replace(v, value=7.0, upper=None) for v in row.values))
                for row in family.rows
            ),
        )
        for family in load_measurements()
        if family.family in FEW
    )
    monkeypatch.setattr(validating, "load_measurements", lambda *_: changed)
    other = validate()
    kept = [case for case in everything.cases if case.family in FEW]
    assert [case.predicted for case in other.cases] == [case.predicted for case in kept]
    assert [case.reason for case in other.cases] == [case.reason for case in kept]
    assert other.scored[0].error != everything.scored[0].error


def test_values_of_held_out_rows_are_scored_apart(tmp_path: Path, everything: Validation) -> None:
    """An invented value of twice the predicted one: 50 % below it, and no score of an open row moves."""
    held = next(case for case in everything.cases if case.asked and not case.row.open)
    said = held.predicted
    assert said is not None
    unit = Value(quantity="time", unit=held.value.unit, value=1.0).si
    assert unit is not None
    found = validate(held.family, {held.address: 2.0 * said / unit})
    apart = [score for score in found.scores if score.held_out and score.by == "family"]
    assert [score.values for score in apart] == [1]
    assert apart[0].bias == pytest.approx(-0.5)
    assert [score for score in found.scores if score.by == "family" and not score.held_out] == [
        score for score in everything.scores if score.by == "family" and score.group == held.family
    ]


def test_deterministic() -> None:
    texts = []
    for _ in range(2):
        found = validate("T2")
        texts.append(to_json(found.cases, found.scored, found.scores, found.checks))
    assert texts[0] == texts[1]


# --- the command -------------------------------------------------------------------------------------------


RUN = """
import sys
from mc2perf import cli
from mc2perf.cli.validate import validate
if not any(c.callback is validate for c in cli.app.registered_commands):
    cli.app.command(cls=cli.GroupedHelp)(validate)
cli.main()
"""


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", RUN, "validate", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_command_and_exit_codes(tmp_path: Path) -> None:
    code, out, err = run("--family", "T2", "--rows")
    assert (code, err) == (0, "")
    assert "Families, open values" in out and "T2-a/step_time" in out and "naive:" in out
    bad = tmp_path / "values.yaml"
    bad.write_text("nothing: 1\nT2-a: 1\n", encoding="utf-8")
    code, out, err = run(
        "--family", "T99", "--values", str(bad), "--format", "yaml", "--kernels", str(tmp_path)
    )
    assert (code, out) == (2, "")
    for part in ("--format: 'yaml'", "'nothing' is no measurement", "holds no .csv", "'T99' is unknown"):
        assert part in err


def test_values_that_are_shipped_are_refused(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("T2-a: 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="'T2-a' is open; leave it out, its value is shipped"):
        command(values=str(values))


def test_json_shape_and_held_out_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("- {id: A3-1, value: 5000}\n", encoding="utf-8")
    table = tmp_path / "matmul_bf16.csv"
    table.write_text("m,n,k,time_us\n4096,7168,2048,400\n", encoding="utf-8")
    command(family="A3", values=str(values), kernels=str(table), format="json", rows=False)
    tree = json.loads(capsys.readouterr().out)
    assert list(tree) == [
        "schema_version", "tool", "naive", "scores", "values", "not_scored", "relations", "kernels",
    ]  # fmt: skip
    assert [(one["value"], one["held_out"]) for one in tree["values"]] == [
        ("A3-0/time", False),
        ("A3-1/time", True),
    ]
    assert tree["values"][1]["measured"] == 5e-3
    assert tree["not_scored"] == []
    assert {score["held_out"] for score in tree["scores"]} == {False, True}
    assert {relation["id"] for relation in tree["relations"]} == {"A3-rows", "A3-flop", "A3-weights"}
    assert tree["kernels"][0]["table"] == "matmul_bf16"
    command(family="A3", values=str(values), kernels=str(table), format="table")
    text = capsys.readouterr().out
    assert "Families, held out" in text and "Kernels" in text
