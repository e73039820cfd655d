"""Measure the speed of mc2perf: whole processes against bare imports in one run, and calls inside one.

Run with the Python of the environment mc2perf is installed in: ``python scripts/bench.py``.
Ratios and differences are taken within one run; the machine's mood cancels out.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 15
BARE = ["-c", "import numpy, typer, yaml"]
TOOL = str(Path(sys.executable).with_name("mc2perf"))
COMMANDS = {
    "import numpy, typer, yaml": [sys.executable, *BARE],
    "estimate mixtral-8x7b": [TOOL, "estimate", "mixtral-8x7b"],
    "estimate mixtral-8x7b --format json": [TOOL, "estimate", "mixtral-8x7b", "--format", "json"],
    "estimate (one operator)": [
        TOOL,
        "estimate",
        "all_gather_matmul",
        "-m",
        "1024",
        "-n",
        "4096",
        "-k",
        "8192",
    ],
    "estimate --help": [TOOL, "estimate", "--help"],
    "--help": [TOOL, "--help"],
}


# compiled files as a normal installation has them, whatever this shell says
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def wall(command: list[str]) -> float:
    """Seconds of one whole process."""
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    return time.perf_counter() - begin


def processes() -> None:
    """Medians of whole processes, taken in turn, and what each costs beyond the bare imports."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        wall(command)
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            times[name].append(wall(command))
    bare = times["import numpy, typer, yaml"]
    print(f"whole process, median of {RUNS} runs in turn")
    for name, seconds in times.items():
        beyond = statistics.median(own - other for own, other in zip(seconds, bare, strict=True))
        print(f"  {name:40s} {statistics.median(seconds):6.3f} s   {beyond:+6.3f} s beyond bare imports")


def per_second(call: Callable[[], object], least: float = 1.0) -> float:
    """Calls per second, over at least a second, after a warm-up."""
    call()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < least:
        call()
        count += 1
    return count / (time.perf_counter() - begin)


def calls() -> None:
    """Estimates per second inside one process, machine and model read once."""
    from mc2perf.evaluate import estimate
    from mc2perf.readers.models import load_model
    from mc2perf.readers.profiles import load_machine
    from mc2perf.scenario import Scenario

    machine, model = load_machine("atlas_800i_a2"), load_model("mixtral-8x7b")
    operator = Scenario(target="all_gather_matmul", m=1024.0, n=4096.0, k=8192.0)
    serial = Scenario(target="all_gather_matmul", m=1024.0, n=4096.0, k=8192.0, schedule="serial")
    whole = Scenario(target="mixtral-8x7b")
    jobs: dict[str, Callable[[], object]] = {
        "one operator, every schedule and tile count": lambda: estimate(operator, machine),
        "one operator, serial": lambda: estimate(serial, machine),
        "Mixtral 8x7B, every schedule": lambda: estimate(whole, machine, model),
    }
    print("inside one process, median of 5")
    for name, job in jobs.items():
        print(f"  {name:44s} {statistics.median(per_second(job) for _ in range(5)):8.0f} estimates/s")


if __name__ == "__main__":
    processes()
    calls()
