"""The report page: every position of its dials is what the command line prints; seen in a real browser."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mc2perf.answer import Answer, Row
from mc2perf.api import ask
from mc2perf.cli import main
from mc2perf.dials import Panel, Question, panel_of
from mc2perf.problems import InputError
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.reporting import ask_report
from mc2perf.scenario import is_operator
from mc2perf.writers.report import row_cells, to_html
from mc2perf.writers.table import schedule_row

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

REDUCE: dict[str, Any] = {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "layers": ("deepseek-v3", {"hardware": "atlas_800t_a3"}),
    "operator": ("matmul_all_reduce", REDUCE),
    "step": ("llama-2-13b", {"hardware": "atlas_800t_a2", "tp": 8, "global_batch_size": 64}),
    "decode": ("deepseek-v3", {"hardware": "cloudmatrix384", "phase": "decode", "batch_size": 32, "ep": 32}),
    "skewed": (
        "deepseek-v3",
        {
            "hardware": "atlas_800t_a3",
            "phase": "prefill",
            "ep": 64,
            "nodes": 4,
            "skew": "zipf:0.5",
            "schedule": "mc2",
        },
    ),
    "one schedule": ("mixtral-8x7b", {"schedule": "micro_batch", "phase": "prefill"}),
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def question(name: str) -> Question:
    target, given = QUESTIONS[name]
    answer, scenario, overrides = ask(target, given, {})
    model = None if is_operator(target) else load_model(target)
    return Question(given, scenario, load_machine(scenario.hardware, (), overrides), model, answer)


def sampled(panel: Panel, count: int) -> Iterator[list[int]]:
    """The start, and positions drawn at random, always the same ones."""
    draw = random.Random(7)
    yield [dial.start for dial in panel.dials]
    for _ in range(count):
        yield [draw.randrange(len(dial.notches)) for dial in panel.dials]


def asked_for(panel: Panel, positions: list[int]) -> tuple[dict[str, Any], dict[str, str]]:
    """Inputs and overrides that the words of these notches mean."""
    given: dict[str, Any] = {}
    overrides: dict[str, str] = {}
    for dial, position in zip(panel.dials, positions, strict=True):
        words = iter(dial.notches[position].words)
        for flag in words:
            word = next(words)
            if flag == "--set":
                path, _, value = word.partition("=")
                overrides[path] = value
            else:
                given[flag.strip("-").replace("-", "_")] = word
    return given, overrides


def shown(answer: Answer) -> Row:
    """The row that a person takes from an answer: the schedule asked for, else the best."""
    return answer.rows[-1] if answer.inputs["schedule"] != "all" else answer.best or answer.rows[-1]


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_position_is_what_a_single_estimate_finds(name: str) -> None:
    here = question(name)
    panel = panel_of(here)
    target, fixed = QUESTIONS[name]
    for positions in sampled(panel, 12):
        given, overrides = asked_for(panel, positions)
        found = panel.at(positions)
        try:
            answer = ask(target, {**fixed, **given}, overrides)[0]
        except InputError as error:
            assert not found.legal, (positions, error)
            continue
        row = shown(answer)
        assert found.legal == row.legal, positions
        if row.legal:
            *cells, _ = schedule_row(answer, replace(row, reason=""))
            assert row_cells(answer, found)[:-1] == cells, positions
        else:
            assert found.reason == row.reason


def test_a_dial_stands_where_the_question_stands() -> None:
    here = question("operator")
    panel = panel_of(here)
    assert [dial.name for dial in panel.dials] == ["bandwidth", "latency", "ranks", "m", "pieces"]
    start = panel.at([dial.start for dial in panel.dials])
    assert here.answer.best is not None
    assert start.total_time == pytest.approx(here.answer.best.total_time, rel=1e-12)
    assert len(panel.rows) == len(list(_places(panel)))


def _places(panel: Panel) -> Iterator[int]:
    count = 1
    for dial in panel.dials:
        count *= len(dial.notches)
    yield from range(count)


def test_the_page_stands_alone_and_carries_its_sources() -> None:
    target, given = QUESTIONS["operator"]
    report = ask_report(target, given, {})
    page = to_html(report)
    assert page == to_html(report)
    assert len(page.encode()) < 2 << 20
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*["']|@import|url\((?!#|"#)""", page)
    for remark in report.answer.warnings:
        assert remark.code in page
    assert len(report.sources) == sum(report.answer.sources.values())
    assert all(source.ref for source in report.sources)


def test_text_of_the_user_is_text(tmp_path: Path) -> None:
    """A name with markup in it stays a name."""
    folder = tmp_path / "<b>x"
    folder.mkdir()
    scenario = folder / "q.yaml"
    scenario.write_text("target: moe_layer\nm: 1024\nn: 2048\nk: 1024\nranks: 8\ntop_k: 2\n")
    page = to_html(ask_report(str(scenario), {}, {}))
    assert "<b>x" not in page


@pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no Chromium here")
def test_in_a_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No console errors; dials turned by keyboard; each shows what its command prints."""
    playwright = pytest.importorskip("playwright.sync_api")
    file = tmp_path / "report.html"

    def run(*words: str) -> tuple[Any, str]:
        monkeypatch.setattr("sys.argv", list(words))
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr().out

    assert run("mc2perf", "report", "deepseek-v3", "--hardware", "atlas_800t_a3", "-o", str(file))[0] == 0
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(color_scheme="dark")
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if "file:" not in request.url else None)
        page.goto(file.as_uri())
        read = []
        for dial, keys in MOVES:
            page.focus(f"#dial-{dial}")
            for key in keys:
                page.keyboard.press(key)
            read.append((page.inner_text("#command"), page.locator("#found tbody td").all_inner_texts()))
        page.click("button[type=reset]")
        page.wait_for_function("document.getElementById('dial-ep').value === '2'")
        assert page.inner_text("#command") == "mc2perf estimate deepseek-v3 --hardware atlas_800t_a3"
        browser.close()
    assert [text for text in said if not text.startswith("data:")] == []
    assert len({command for command, _ in read}) == len(MOVES)
    for command, cells in read:
        code, out = run(*shlex.split(command))
        assert code == 0
        lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
        (line,) = [line for line in lines if line[: len(cells) - 2] == cells[: len(cells) - 2]]
        assert line[: len(cells)] == cells


FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
MOVES = [
    ("bandwidth", ["ArrowLeft"]),
    ("latency", ["End"]),
    ("ep", ["ArrowRight"]),
    ("batch_size", ["ArrowRight"]),
    ("pieces", ["Home", "ArrowRight", "ArrowRight", "ArrowRight"]),
    ("bandwidth", ["Home"]),
    ("ep", ["Home"]),
]
"""Dials, and keys pressed on them one after the other."""
