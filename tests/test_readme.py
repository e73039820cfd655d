"""The README says what is true: its examples print what stands there, its words and commands exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from mc2perf.columns import OF_SCHEDULE
from mc2perf.scenario import SCHEDULES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _script() -> object:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_print_what_the_readme_shows() -> None:
    module = _script()
    assert module.filled(README) == README  # type: ignore[attr-defined]
    assert len(re.findall(r"^\$ mc2perf ", README, re.MULTILINE)) >= 8


def test_a_stale_example_is_noticed() -> None:
    module = _script()
    first = README[: README.index("## Where MC2 pays")]
    stale = re.sub(r"\n(serial +1) ", r"\n\1x", first, count=1)
    assert stale != first
    assert module.filled(stale) == first  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", [name for name in OF_SCHEDULE if name not in ("schedule", "reason", "piece_rows")]
)
def test_every_word_of_a_result_is_defined(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_described(name: str) -> None:
    assert f"| `{name}` |" in README


def test_the_test_command_is_what_ci_calls() -> None:
    assert "sh scripts/check.sh" in README
    assert "sh scripts/check.sh" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
