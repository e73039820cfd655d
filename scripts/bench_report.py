"""Size of a report's page, and how soon its dials answer in headless Chromium.

Needs the extra [report], Playwright and a Chromium of the system.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from mc2perf.reporting import ask_report
from mc2perf.writers.report import to_html

QUESTIONS: tuple[tuple[str, dict[str, object]], ...] = (
    ("deepseek-v3", {"hardware": "atlas_800t_a3"}),
    ("matmul_all_reduce", {"m": 4096, "n": 8192, "k": 4096, "hardware": "atlas_800t_a2_b2"}),
)
RUNS = 7
INTERACTIVE = "performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart"
TURN = """() => {
  const dial = document.querySelector("#dials input"), before = performance.now();
  dial.value = "0";
  dial.dispatchEvent(new Event("input", {bubbles: true}));
  return performance.now() - before;
}"""
"""Turns the first dial; every cell is rewritten before it returns. [ms]"""


def main() -> None:
    """Print a line for each question."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for target, given in QUESTIONS:
            file = Path(folder) / f"{target}.html"
            file.write_text(to_html(ask_report(target, given, {})), encoding="utf-8")
            ready, turned = [], []
            for _ in range(RUNS):
                page = browser.new_page()
                page.goto(file.as_uri())
                ready.append(page.evaluate(INTERACTIVE))
                turned.append(page.evaluate(TURN))
                page.close()
            size = file.stat().st_size / 2**20
            print(
                f"{target:<20} {size:5.2f} MiB, interactive after {statistics.median(ready):4.0f} ms "
                f"(worst {max(ready):.0f}), a turn {statistics.median(turned):.1f} ms"
            )
        browser.close()


if __name__ == "__main__":
    main()
