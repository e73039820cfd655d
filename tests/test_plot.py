"""Charts: what they show is what the answers say; drawings that are the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from mc2perf.api import ask
from mc2perf.cli import main
from mc2perf.plotting import KINDS, Question
from mc2perf.problems import InputError
from mc2perf.writers.charts import Chart
from mc2perf.writers.charts.drawn import COLOURS, LANGUAGES, MARKS, THEMES, _looks, draw, translated

pytest.importorskip("matplotlib")

REDUCE: dict[str, Any] = {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}


def chart(kind: str, target: str, over: str | None = None, **given: Any) -> Chart:
    return KINDS[kind](Question(target, given, {}, (), over))


def test_bars_add_up_to_the_time_of_their_schedule() -> None:
    answer = ask("deepseek-v3", {"hardware": "atlas_800t_a3"}, {})[0]
    bars = chart("breakdown", "deepseek-v3", hardware="atlas_800t_a3").bars
    assert bars is not None
    assert bars.categories == tuple(row.schedule for row in answer.legal_rows)
    for i, row in enumerate(answer.legal_rows):
        assert sum(heights[i] for heights in bars.parts.values()) == pytest.approx(row.total_time)
        assert bars.parts["communication that nothing covers"][i] == row.exposed_comm_time


def test_the_curve_over_pieces_with_every_policy_and_the_flat_region() -> None:
    drawn = chart("pieces", "matmul_all_reduce", **REDUCE)
    answer = ask("matmul_all_reduce", REDUCE | {"policy": "all", "schedule": "mc2"}, {})[0]
    row = answer.rows[-1]
    lines = {line.label: line for line in drawn.lines}
    assert dict(zip(lines["mc2"].x, lines["mc2"].y, strict=True)) == row.curve
    assert (drawn.bands[0].first, drawn.bands[0].last) == row.flat_region
    for cut in answer.policies:
        mark = lines[f"policy {cut.policy}"]
        assert (mark.x, mark.y, mark.joined) == ((len(cut.tiles),), (cut.total_time,), False)


def test_the_share_of_communication_over_size_is_that_of_single_estimates() -> None:
    machines = ("atlas_800t_a3", "h800_sxm")
    lines = {line.label: line for line in chart("ratio", "deepseek-v3", hardware=",".join(machines)).lines}
    assert list(lines) == [name for m in machines for name in (m, f"{m}, serial")]
    assert lines["h800_sxm, serial"].of == "h800_sxm"
    for machine in machines:
        answer = ask("deepseek-v3", {"hardware": machine, "tokens": 2048}, {})[0]
        at = lines[machine].x.index(2048.0)
        assert answer.best is not None
        assert lines[machine].y[at] == answer.best.comm_ratio
        assert lines[f"{machine}, serial"].y[at] == answer.rows[0].comm_ratio


def test_kernels_lie_under_their_roofs() -> None:
    """By hand for the second matmul of Mixtral's experts: 8192 rows, 14336 by 4096, bf16."""
    roof, *kernels = chart("roofline", "mixtral-8x7b", hardware="atlas_800t_a2").lines
    ridge = roof.x[1]
    assert roof.y[1] == roof.y[2]
    for kernel in kernels:
        for x, y in zip(kernel.x, kernel.y, strict=True):
            assert y <= min(roof.y[1], roof.y[1] * x / ridge)
    ffn2 = next(kernel for kernel in kernels if kernel.label == "ffn2")
    moved = 2.0 * (14336 * 4096 + 8192 * 14336 + 8192 * 4096)
    assert ffn2.x[0] == pytest.approx(2.0 * 8192 * 14336 * 4096 / moved)


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
@pytest.mark.parametrize("target", ["mixtral-8x7b", "deepseek-v3.2"])
def test_kernels_whose_bytes_are_not_priced_are_left_out(target: str, phase: str) -> None:
    """Attention, and the scores of an indexer, in every phase: no point without an intensity."""
    _, *kernels = chart("roofline", target, phase=phase, hardware="atlas_800t_a3").lines
    labels = {kernel.label for kernel in kernels}
    assert "ffn1" in labels and not labels & {"attention", "index scores"}
    assert all(x > 0.0 for kernel in kernels for x in kernel.x)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(InputError, match="write --kind breakdown"):
        chart("pieces", "llama-2-13b", tp=1, hardware="atlas_800t_a2")
    with pytest.raises(InputError, match="'n' does not grow"):
        chart("ratio", "all_gather_matmul", "n", n=4096, k=8192)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_drawings_are_the_same_every_time(kind: str, theme: str) -> None:
    shown = chart(kind, "mixtral-8x7b")
    svg = draw(shown, "svg", theme)
    assert svg == draw(shown, "svg", theme)
    texts = {"".join(e.itertext()) for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")}
    assert {shown.title, shown.x.label} <= texts
    assert draw(shown, "png", theme).startswith(b"\x89PNG")


def test_every_line_has_a_look_of_its_own() -> None:
    """Also without colour, as long as there are no more lines than marks."""
    for theme in THEMES:
        looks = _looks(theme)[: len(MARKS)]
        assert len({mark for _, mark in looks}) == len(MARKS)
        assert len(set(_looks(theme))) == len(COLOURS[theme]) * len(MARKS)


def luminance(colour: str) -> float:
    """Relative luminance after WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_lines_and_words_stand_out_from_their_paper(theme: str) -> None:
    """Contrast of at least 3 for lines and 7 for text (WCAG 2.2, 1.4.11 and 1.4.6)."""
    paper = luminance(THEMES[theme]["paper"])

    def contrast(colour: str) -> float:
        high, low = sorted((luminance(colour), paper), reverse=True)
        return (high + 0.05) / (low + 0.05)

    assert all(contrast(colour) >= 3.0 for colour in COLOURS[theme])
    assert contrast(THEMES[theme]["ink"]) >= 7.0


def test_words_in_chinese() -> None:
    shown = chart("breakdown", "mixtral-8x7b")
    svg = draw(shown, "svg", language="zh").decode()
    assert "调度方式" in svg
    assert translated("deepseek-v3: communication that nothing covers", "zh") == "deepseek-v3: 未掩盖的通信"
    said = {"pieces": "分块数", "no such word": "no such word", "a: b": "a: b"}
    assert {word: translated(word, "zh") for word in said} == said
    assert all(translated(word, "en") == word for word in LANGUAGES["zh"])


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[Any, str]:
        monkeypatch.setattr("sys.argv", ["mc2perf", "plot", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr().err

    file = tmp_path / "通信.svg"
    assert run("mixtral-8x7b", "--kind", "breakdown", "-o", str(file), "--title", "通信占比")[0] == 0
    assert "通信占比" in file.read_text(encoding="utf-8")
    before = file.read_bytes()
    code, err = run("mixtral-8x7b", "--kind", "pie", "--theme", "dim", "--language", "fr", "-o", str(file))
    assert (code, len(err.splitlines())) == (2, 3)
    assert run("no-such-model", "-o", str(file))[0] == 2
    assert file.read_bytes() == before
    assert run("mixtral-8x7b", "-o", str(tmp_path / "a.pdf"))[0] == 2
