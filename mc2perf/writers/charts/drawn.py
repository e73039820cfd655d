"""Charts drawn by Matplotlib: told apart without colour, on light or dark paper, in English or Chinese."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from itertools import cycle
from typing import TYPE_CHECKING, Any

from mc2perf.problems import InputError
from mc2perf.units import show
from mc2perf.writers.charts import Axis, Bars, Chart, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1b1b1b", "grid": "#c9c9c9", "band": "#e4e4e4"},
    "dark": {"paper": "#17191c", "ink": "#ececec", "grid": "#4a4d52", "band": "#33363b"},
}
"""Theme -> colours of what is not data."""

COLOURS = {
    "light": ("#0072b2", "#b34700", "#00745a", "#8a3f74", "#5b5b5b", "#7a6a00", "#1a1a1a"),
    "dark": ("#56b4e9", "#f0a15a", "#3fc39e", "#dd9cc5", "#bdbdbd", "#e3d35a", "#f5f5f5"),
}
"""Colours of lines, told apart by people who see few of them (after Okabe and Ito)."""

MARKS = "osD^vPX*"
MOST_MARKS = 16
"""More points of a line than this have no mark each."""

HATCHES = ("", "///", "..", "xx")

FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei",
    "Microsoft YaHei", "SimHei", "PingFang SC", "Hiragino Sans GB", "Arial Unicode MS",
)  # fmt: skip
"""Fonts to look for, in this order; the later ones have Chinese, Japanese and Korean characters."""

CHINESE = {
    "pieces": "分块数",
    "best": "最优",
    "time against pieces": "时间与分块数",
    "time of each schedule": "各调度方式的时间",
    "time": "时间",
    "schedule": "调度方式",
    "serial": "串行",
    "within 2 % of the best": "与最优相差 2 % 以内",
    "computing": "计算",
    "communication that nothing covers": "未掩盖的通信",
    "neither runs": "空闲",
    "share of the time": "时间占比",
    "operational intensity (FLOP/B)": "计算强度 (FLOP/B)",
    "rate": "速率",
    "roof": "屋顶线",
    "dashed: nothing overlapped": "虚线：无掩盖",
    "tokens": "token 数",
    "batch_size": "批大小",
    "seq_len": "序列长度",
}
LANGUAGES: dict[str, dict[str, str]] = {"en": {}, "zh": CHINESE}
"""Language -> translations of the words that charts use; others stay as they are."""

FORMATS = ("png", "svg")


def draw(
    chart: Chart,
    form: str,
    theme: str = "light",
    language: str = "en",
    size: tuple[float, float] = (8.0, 4.5),
) -> bytes:
    """A chart as a file.

    Parameters
    ----------
    chart : Chart
        What to draw.
    form : str
        ``png`` or ``svg``; text stays text in an SVG.
    theme, language : str
        A key of ``THEMES`` and of ``LANGUAGES``.
    size : tuple of two numbers
        Width and height. [inch]

    Returns
    -------
    bytes
        The same for the same chart: no date, no random names.

    Raises
    ------
    InputError
        Matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(["plot: needs Matplotlib; pip install 'mc2perf[plot]'"]) from None
    look: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "mc2perf",
        "font.family": _fonts(),
        "hatch.linewidth": 0.6,
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=size, facecolor=THEMES[theme]["paper"], layout="constrained")
        _draw(figure, chart, theme, lambda word: translated(word, language))
        file = io.BytesIO()
        plain = {"svg": {"Date": None}, "png": {"Software": None}}[form]
        figure.savefig(file, format=form, dpi=150, metadata=plain)
    return file.getvalue()


def translated(words: str, language: str) -> str:
    """A text with the words that a language knows."""
    known = LANGUAGES[language]
    if words in known:
        return known[words]
    head, separator, tail = words.rpartition(": ")
    return f"{head}{separator}{known[tail]}" if separator and tail in known else words


def unreadable(chart: Chart, language: str) -> bool:
    """Whether a text has characters that none of the fonts found here has."""
    if all(character < "⺀" for word in chart.words for character in translated(word, language)):
        return False
    return _fonts() == list(FONTS[:1])


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    found = {font.name for font in fontManager.ttflist}
    return [name for name in FONTS if name in found]


def _draw(figure: Figure, chart: Chart, theme: str, say: Callable[[str], str]) -> None:
    paper, axes = THEMES[theme], figure.add_subplot()
    axes.set_facecolor(paper["paper"])
    for band in chart.bands:
        axes.axvspan(
            band.first * 0.97, band.last * 1.03, facecolor=paper["band"], edgecolor=paper["ink"], hatch="..",
            linewidth=0.0, alpha=0.6, label=say(band.label), zorder=0,
        )  # fmt: skip
    if chart.bars:
        _bars(axes, chart.bars, theme, say)
    _lines(axes, chart.lines, theme, say)
    _axes(axes, chart, paper, say)
    axes.set_title(say(chart.title), color=paper["ink"], fontsize=11)
    if chart.note:
        figure.supxlabel(say(chart.note), color=paper["ink"], fontsize=8)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(
            fontsize=8, facecolor=paper["paper"], edgecolor=paper["grid"], labelcolor=paper["ink"],
            loc="center left", bbox_to_anchor=(1.01, 0.5),
        )  # fmt: skip


def _lines(axes: Axes, lines: Iterable[Line], theme: str, say: Callable[[str], str]) -> None:
    """Each line with a colour and a mark of its own; a line ``of`` another shares them, dashed."""
    looks: dict[str, tuple[str, str]] = {}
    free = cycle(_looks(theme))
    for line in lines:
        colour, mark = looks[line.of] if line.of in looks else next(free)
        looks[line.label] = (colour, mark)
        axes.plot(
            line.x, line.y, color=colour, linewidth=1.4, label=say(line.label),
            marker=mark if line.marked else "", markersize=5 if line.joined else 8,
            markerfacecolor="none" if line.of else colour, markevery=max(len(line.x) // MOST_MARKS, 1),
            linestyle="--" if line.of else "-" if line.joined else "none",
        )  # fmt: skip


def _looks(theme: str) -> list[tuple[str, str]]:
    """Colours and marks in step; both start over at different times, so that few looks are alike."""
    colours = COLOURS[theme]
    return [(colours[i % len(colours)], MARKS[i % len(MARKS)]) for i in range(len(colours) * len(MARKS))]


def _bars(axes: Axes, bars: Bars, theme: str, say: Callable[[str], str]) -> None:
    """Stacked bars, each part hatched in its own way."""
    bottom = [0.0] * len(bars.categories)
    for (part, heights), colour, hatch in zip(bars.parts.items(), COLOURS[theme], HATCHES, strict=False):
        if not any(heights):
            continue
        axes.bar(
            bars.categories, heights, bottom=bottom, color=colour, hatch=hatch, label=say(part),
            edgecolor=THEMES[theme]["paper"], width=0.6,
        )  # fmt: skip
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    for i, height in enumerate(bottom):
        axes.annotate(
            show(height, "s"), (i, height), ha="center", va="bottom", fontsize=8, color=THEMES[theme]["ink"]
        )


def _axes(axes: Axes, chart: Chart, paper: dict[str, str], say: Callable[[str], str]) -> None:
    for side, axis in (("x", chart.x), ("y", chart.y)):
        _scaled(axes, side, axis)
        getattr(axes, f"set_{side}label")(say(axis.label), color=paper["ink"])
    if chart.y.scale == "linear":
        axes.set_ylim(bottom=0.0)
    axes.grid(True, color=paper["grid"], linewidth=0.5, axis="y" if chart.bars else "both")
    axes.set_axisbelow(True)
    axes.tick_params(colors=paper["ink"], which="both", labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(paper["grid"])


def _scaled(axes: Axes, side: str, axis: Axis) -> None:
    """The scale of an axis, and its ticks in units that people use."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ticks: Any = getattr(axes, f"{side}axis")
    if axis.scale != "linear":
        getattr(axes, f"set_{side}scale")("log", base=2 if axis.scale == "log2" else 10)
        ticks.set_minor_formatter(NullFormatter())
    if axis.scale == "log":
        ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    if axis.unit or axis.scale != "linear":
        ticks.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, axis)))


def _tick(value: float, axis: Axis) -> str:
    if axis.unit == "1":
        return f"{value:.0%}"
    return f"{value:g}" if axis.unit in ("", "FLOP/B") else show(value, axis.unit, 3)
