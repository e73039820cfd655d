"""How often calibration gives known parameters back: files with 5 % noise and 2 % wild outliers, many seeds.

    python scripts/calibration_trials.py 100

Prints, for three kinds of truth, in how many trials every parameter came back within 10 % (latencies 20 %).
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mc2perf.calibrating import calibrate
from mc2perf.studies.calibrate.result import Group

Numbers = NDArray[np.float64]
MIB = 2.0**20
NOISE, WILD = 0.05, 0.02
RATE, LATENCY = 0.10, 0.20
"""How near parameters have to come."""


def noisy(time: Numbers, seed: int) -> Numbers:
    """Times with noise, a few of them 3 to 20 times too long or too short."""
    rng = np.random.default_rng(seed)
    time = time * np.exp(NOISE * rng.standard_normal(len(time)))
    far = rng.uniform(3.0, 20.0, len(time))
    far = np.where(rng.random(len(time)) < 0.5, far, 1.0 / far)
    return np.asarray(np.where(rng.random(len(time)) < WILD, time * far, time))


def alpha_beta(size: Numbers) -> Numbers:
    """A latency and a rate."""
    return 61.5e-6 + size / 77.2e9


def vendor(size: Numbers) -> Numbers:
    """CANN's form for eight ranks of an A2 (ops-transformer hccl_performance): floor, ramp, line."""
    x = size / MIB
    ramp = 14.769 + 27.0622573 * x - 0.9698202 * x**2
    return 1e-6 * np.where(x <= 1 / 16, 18.0, np.where(x <= 8, ramp, 61.508333 + 13.58491263 * x))


def two_cliffs(size: Numbers) -> Numbers:
    """Three algorithms, each slower where it begins than the one before it ends."""
    middle = np.where(size <= 2.0**27, 120e-6 + size / 100e9, 400e-6 + size / 60e9)
    return np.asarray(np.where(size <= 2.0**23, 20e-6 + size / 80e9, middle))


def hccl_test(size: Numbers, time: Numbers) -> str:
    """Output of ``hccl_test``."""
    rows = (f"{s:.0f} | {t * 1e6:.2f} | {s / t / 1e9:.5f} | success" for s, t in zip(size, time, strict=True))
    head = "mpirun -n 8 ./bin/all_reduce_test -b 1K -e 1G -f 2 -p 8\n"
    return head + "\n".join(
        ["data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:", *rows, ""]
    )


def table(size: Numbers, time: Numbers) -> str:
    """A table of collectives."""
    rows = (f"all_reduce,8,{s:.0f},{t * 1e6:.3f}" for s, t in zip(size, time, strict=True))
    return "\n".join(["op,ranks,size_bytes_whole_array,time_us", *rows, ""])


DOUBLING: Numbers = 2.0 ** np.arange(10.0, 31.0)
HALF_STEPS: Numbers = np.round(2.0 ** np.arange(12, 30.01, 0.5))
RAMP: Numbers = np.arange(1.0, 33.0) * MIB / 4.0
"""Sizes of ``-f 2``; twice as dense; steps of 256 KiB up to 8 MiB."""

KINDS: dict[str, tuple[Callable[[Numbers], Numbers], Numbers, Callable[[Numbers, Numbers], str]]] = {
    "alpha-beta": (alpha_beta, DOUBLING, hccl_test),
    "vendor": (vendor, np.repeat(np.unique(np.concatenate([HALF_STEPS, RAMP])), 4), table),
    "two cliffs": (two_cliffs, np.repeat(HALF_STEPS, 3), table),
}
TRUTH: dict[str, dict[str, float]] = {
    "alpha-beta": {"latency": 61.5e-6, "bus rate": 1.75 * 77.2e9},
    "vendor": {
        "latency": 18e-6, "bus rate": 1.75 * MIB / 13.58491263e-6, "band 3, line: constant": 61.508333e-6,
        "band 2, ramp: constant": 14.769e-6, "band 2, ramp: slope": 27.0622573e-6 / MIB,
    },
    "two cliffs": {
        "latency": 20e-6, "bus rate": 1.75 * 60e9, "band 1, line: slope": 1 / 80e9,
        "band 2, line: slope": 1 / 100e9, "band 2, line: constant": 120e-6,
        "band 1, line: up to": 2.0**23, "band 2, line: up to": 2.0**27,
    },
}  # fmt: skip
"""Kind -> its parameters, as the report names them; the curvature of the ramp is the curve's to judge."""


def fitted(kind: str, seed: int, folder: Path) -> Group:
    """Calibrate on one file of a kind."""
    truth, sizes, form = KINDS[kind]
    file = folder / "benchmark.txt"
    file.write_text(form(sizes, noisy(truth(sizes), seed)), encoding="utf-8")
    found = calibrate([file], "atlas_800t_a2").found
    assert len(found.groups) == 1, found.refused
    return found.groups[0]


def missed(kind: str, group: Group) -> Iterator[str]:
    """Parameters that did not come back near enough."""
    values = {_of_any_form(value.name): value.value for value in group.values}
    for name, true in TRUTH[kind].items():
        near = LATENCY if name == "latency" or name.endswith("constant") else RATE
        if abs(values.get(_of_any_form(name), 0.0) / true - 1.0) > near:
            yield name


def _of_any_form(name: str) -> str:
    """A band by its number: what counts is its numbers, not what it is called."""
    return re.sub(r"^(band \d), \w+", r"\1", name)


def main(trials: int) -> None:
    """Print the score of every kind."""
    for kind in KINDS:
        misses: Counter[str] = Counter()
        forms: Counter[str] = Counter()
        good = 0
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(trials):
                group = fitted(kind, seed, Path(folder))
                wrong = list(missed(kind, group))
                misses.update(wrong)
                forms[group.form.split(" (")[0]] += 1
                good += not wrong
        print(f"{kind}: {good} of {trials} trials; missed: {dict(misses)}; forms: {dict(forms)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
