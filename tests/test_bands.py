"""Error bands of answers: made from the scores, shown with every answer, and said where there are none."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mc2perf.api import estimate
from mc2perf.bands import SHIPPED, Band, Like, band_of, shipped
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.studies.run import blocks
from mc2perf.sweeping import ask_sweep
from mc2perf.validating import Validation
from mc2perf.validating.bands import bands_of, to_json
from mc2perf.writers.csv_format import to_csv
from mc2perf.writers.json_format import document
from mc2perf.writers.table import to_table

FILE = Path(__file__).parent.parent / "mc2perf" / SHIPPED


def test_shipped_bands_are_those_of_the_scores(everything: Validation) -> None:
    """After a change of the model: python scripts/bands.py."""
    assert to_json(bands_of(everything.scored)) == FILE.read_text(encoding="utf-8")


def test_a_row_counts_once_by_its_largest_error(everything: Validation) -> None:
    """Dense training steps on an A3; and a worse value of a row moves the band."""
    wanted = Like("training step", "dense", "a3")
    own = [one for one in everything.scored if one.case.asked and one.case.asked.like == wanted]
    (band,) = bands_of(own)
    assert band.rows == len({one.case.row.id for one in own}) == 1
    worse = [*own, replace(own[0], error=-7.0)]
    assert bands_of(worse)[0] == replace(band, median=7.0, worst=7.0)
    assert bands_of([replace(one, case=replace(one.case, asked=None)) for one in own]) == ()


def test_every_answer_says_what_to_expect() -> None:
    given: dict[str, Any] = {"hardware": "atlas_800t_a2", "tp": 8, "global_batch_size": 64}
    answer = estimate("llama-2-7b", **given, schedule="serial")
    band = shipped()[Like("training step", "dense", "a2")]
    assert f"expect: within {band.median:.0%} (median) / {band.worst:.0%} (worst) of" in to_table(answer)
    assert "training step of dense models on a2 (T1" in to_table(answer)
    tree = document(answer)["expect"]
    assert (tree["median"], tree["worst"], tree["rows"]) == (band.median, band.worst, band.rows)
    (line,) = csv.DictReader(io.StringIO(to_csv(answer), newline=""))
    assert float(line["expected_error_worst"]) == band.worst and int(line["validated_rows"]) == band.rows
    columns = ["expected_error_median", "expected_error_worst", "validated_rows"]
    block = next(iter(blocks(ask_sweep("llama-2-7b", given, {}, ["seq_len=2048,4096"]).sweep, columns)))
    found = [np.asarray(block[name], float).tolist() for name in columns]
    assert found == [[number] * 2 for number in (band.median, band.worst, band.rows)]


def test_what_was_never_validated_is_said() -> None:
    answer = estimate("llama-2-7b", hardware="ascend_950pr", phase="decode", schedule="serial")
    text = "expect: unknown error: no measured decode step of dense models on 950 was ever validated"
    assert text in to_table(answer)
    assert document(answer)["expect"]["median"] is None
    near = band_of(Scenario(target="moe_layer"), load_machine("h800_sxm"), None)
    assert "(elsewhere: 950 " in str(near) and "a3 " in str(near)
    sweep = ask_sweep("llama-2-7b", {"hardware": "ascend_950pr", "phase": "decode"}, {}, ["tp=1"]).sweep
    block = next(iter(blocks(sweep, ["expected_error_median"])))
    assert np.isnan(np.asarray(block["expected_error_median"], float)).all()


def test_one_row_is_one_row() -> None:
    band = Band(like=Like("x", "", "y"), rows=1, families=("A",), median=0.1, worst=0.1)
    assert str(band) == "within 10% (median) / 10% (worst) of measurements like this one: x on y (A, 1 row)"
