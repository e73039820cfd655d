"""Does a profile that was fitted to parts and to few tiles foretell many tiles? Measured here, end to end.

Run with the Python of mc2perf; ``--torch`` names one that has PyTorch:

    python scripts/prove_overlap.py --torch /path/to/python --output proof

1. ``measure_overlap.py`` times collectives, matmuls and both in n tiles, on two processes over gloo.
2. ``mc2perf calibrate`` fits ``cpu_gloo.yaml`` to the parts alone and to n = 1 and 2.
3. The fitted profile foretells n = 4, 8, 16; predicted stands beside measured, and the best n of both.

``--tables FOLDER`` takes tables that are there already. Nothing is fitted to what is foretold. On a CPU
both sides share the cores: without the slow-down factors the profile would promise a gain, and the last
column says how much.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from mc2perf import schedules
from mc2perf.machine import Machine
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import study_of
from mc2perf.workload.parts import Pair

HERE = Path(__file__).parent
BASE = HERE / "cpu_gloo.yaml"
FEW = 2
"""Scans are fitted up to so many tiles; more are foretold."""
MEASURE = (
    "--backend gloo --operator all_to_all_matmul --operator matmul_all_to_all --operator matmul_all_reduce"
    " --shape 1024,256,1024 --shape 1024,512,1024 --shape 1024,1024,1024 --sizes 4K..4M:x2"
    " --repeat 20 --warm-up 2 --rounds 8 --statistic min --flush 8"
)
"""Small pieces, many repetitions, the least of them: whole runs fit between two interruptions. What a piece
reads is not in the cache, as it is not after a transfer."""


@dataclass(frozen=True)
class Scan:
    """A fused operator measured in several numbers of tiles. [s]"""

    scenario: Scenario
    counts: NDArray[np.float64]
    times: NDArray[np.float64]

    @property
    def words(self) -> str:
        """The operator and its sizes."""
        s = self.scenario
        return f"{s.target} {s.m:g},{s.n:g},{s.k:g} {s.dtype}"

    def foretold(self, machine: Machine) -> NDArray[np.float64]:
        """Times of the measured numbers of tiles on a machine: one collective and one matmul in pieces. [s]

        As a kernel of one's own; 'mc2perf estimate' would refuse CANN's operators on this machine.
        """
        study = study_of(self.scenario, machine, None)
        pair: Pair = study.of_kind(Pair)[0]
        timing = schedules.pair_mc2(pair, self.counts.reshape(1, -1), study.conditions(pair))
        return np.broadcast_to(np.asarray(timing.total, float), (1, len(self.counts))).ravel()


@dataclass(frozen=True)
class Row:
    """One scan at one number of tiles; ``alone`` is foretold as if neither side slowed the other. [s]"""

    words: str
    tiles: int
    measured: float
    predicted: float
    alone: float

    @property
    def off(self) -> float:
        """How far the prediction is off [1]."""
        return self.predicted / self.measured - 1.0


def measure(python: str, folder: Path) -> None:
    """Time everything on two processes of one thread."""
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(HERE / "measure_overlap.py"), *MEASURE.split(), "--output", str(folder)]
    subprocess.run([*command, *script], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def few_tiles(folder: Path) -> Path:
    """The overlap table up to ``FEW`` tiles, beside the whole one."""
    few = folder / "overlap_few.csv"
    with (folder / "overlap.csv").open(newline="") as whole, few.open("w", newline="") as out:
        reader = csv.DictReader(whole)
        writer = csv.DictWriter(out, reader.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in reader if int(row["tile_cnt"]) <= FEW)
    return few


def calibrate(files: Sequence[Path], fitted: Path) -> None:
    """Fit the base to files, as a user would."""
    command = [sys.executable, "-m", "mc2perf", "calibrate", *map(str, files)]
    subprocess.run([*command, "--hardware", str(BASE), "-o", str(fitted)], check=True)


def scans(folder: Path) -> Iterator[Scan]:
    """Every operator and size of the overlap table, with all its tiles."""
    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    with (folder / "overlap.csv").open(newline="") as whole:
        for row in csv.DictReader(whole):
            key = tuple(row[name] for name in ("operator", "m", "n", "k", "ranks", "dtype", "buffers"))
            found.setdefault(key, []).append((float(row["tile_cnt"]), float(row["time_us"]) * 1e-6))
    for (operator, m, n, k, ranks, dtype, buffers), points in found.items():
        scenario = Scenario(
            target=operator, m=float(m), n=float(n), k=float(k), ranks=float(ranks), dtype=dtype,
            buffers=float(buffers), hardware="cpu_gloo",
        )  # fmt: skip
        counts, times = np.array(points).T
        yield Scan(scenario, counts, times)


def alone(machine: Machine) -> Machine:
    """The same machine if transfers and matmuls did not slow each other down."""
    name, tier = next(iter(machine.tiers.items()))
    free = replace(tier.engines[tier.engine], comm_under_compute=1.0, compute_under_comm=1.0)
    return replace(machine, tiers={name: replace(tier, engines={**tier.engines, tier.engine: free})})


def compared(machine: Machine, folder: Path) -> list[Row]:
    """Predicted beside measured."""
    return [
        Row(scan.words, int(tiles), *map(float, times))
        for scan in scans(folder)
        for tiles, *times in zip(
            scan.counts, scan.times, scan.foretold(machine), scan.foretold(alone(machine)), strict=True
        )
    ]


def report(rows: Sequence[Row]) -> Iterator[str]:
    """Tables of all points and of the best counts, and how far predictions were off."""
    points = [
        [r.words, r.tiles, r.measured * 1e3, r.predicted * 1e3, f"{r.off:+.0%}", r.alone * 1e3] for r in rows
    ]
    titles = ["operator m,n,k", "tiles", "measured ms", "predicted ms", "off", "without slow-down ms"]
    yield tabulate(points, titles, floatfmt=".2f")
    best = []
    for words in dict.fromkeys(r.words for r in rows):
        own = [r for r in rows if r.words == words]
        truly, said = min(own, key=lambda r: r.measured), min(own, key=lambda r: r.predicted)
        free = min(own, key=lambda r: r.alone)
        lost = said.measured / truly.measured - 1.0
        best.append([words, truly.tiles, said.tiles, f"{lost:+.0%}", free.tiles])
    titles = ["operator m,n,k", "best measured", "predicted", "which costs", "without slow-down"]
    yield tabulate(best, titles)
    yield _errors(f"fitted, up to {FEW} tiles", [r for r in rows if r.tiles <= FEW])
    yield _errors(f"foretold, more than {FEW} tiles", [r for r in rows if r.tiles > FEW])


def _errors(name: str, rows: Sequence[Row]) -> str:
    errors = [abs(r.off) for r in rows]
    free = median(abs(r.alone / r.measured - 1.0) for r in rows)
    return (
        f"{name}: {len(rows)} times, median error {median(errors):.0%}, worst {max(errors):.0%}, "
        f"bias {median(r.off for r in rows):+.0%}; without slow-down the median error is {free:.0%}"
    )


def main() -> None:
    """Measure, calibrate, foretell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--tables", type=Path, help="folder of tables that were measured before")
    parser.add_argument("--output", type=Path, default=Path("proof"), help="folder of what is written")
    asked = parser.parse_args()
    folder = asked.tables or asked.output
    if asked.tables is None:
        measure(asked.torch, folder)
    asked.output.mkdir(parents=True, exist_ok=True)
    fitted = asked.output / "fitted.yaml"
    fitted.unlink(missing_ok=True)
    calibrate([folder / "collectives.csv", folder / "matmul.csv", few_tiles(folder)], fitted)
    print("\n\n".join(report(compared(load_machine(str(fitted)), folder))))


if __name__ == "__main__":
    main()
