"""Measure how fast grids are evaluated, what bounds it, and that time and memory behave as they should.

Run with the Python of the environment that mc2perf is installed in: ``python scripts/bench_sweep.py``;
``--long`` adds 100 million rows. Everything is compared within one run, in seconds of the processor.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from mc2perf.columns import RESULTS
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.readers.profiles import load_machine
from mc2perf.results import Results
from mc2perf.scenario import Scenario
from mc2perf.studies.sweep import BLOCK, Sweep
from mc2perf.study import study_of
from mc2perf.sweeping import Ranking, ask_sweep

MACHINE = "atlas_800i_a2"
RUNS = 7
SIZES = ["m=128..8192:128", "n=256..16384:64", "k=1024..8192:1024"]
NUMBERS = ["m", "n", "tile_cnt", "total_time", "speedup", "comm_ratio", "legal", "reason"]


def question(*vary: str, target: str = "all_gather_matmul", **ranking: Any) -> Sweep:
    """Sizes that people run: up to 8192 rows a rank, 16384 columns, a contraction of 8192; pieces across."""
    layer = {"n": 2048, "k": 4096, "experts_per_rank": 4}
    sizes = ["m=128..65536:8"] if target == "moe_layer" else SIZES
    given = {"ranks": 8, **(layer if target == "moe_layer" else {})}
    return ask_sweep(target, given, {}, [*sizes, *vary], Ranking(**ranking)).sweep


def rate(sweep: Sweep, block: int = BLOCK, blocks: int = 20) -> float:
    """Rows per second of processor time, median of several runs over the first blocks."""
    names = [name for name in NUMBERS if name != "tile_cnt" or sweep.pieces == "tile_cnt"]

    def run() -> float:
        begin = time.process_time()
        rows = 0
        for task in islice(sweep.tasks(block), blocks):
            sweep.evaluate(task, names)
            rows += sweep.rows_in(task)
        return rows / (time.process_time() - begin)

    run()
    return statistics.median(run() for _ in range(RUNS))


class Counted(np.ndarray[Any, np.dtype[np.float64]]):
    """An array that counts the elements that operations on it give."""

    elements = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        """Run the operation on plain arrays, count what comes out."""
        out = how.pop("out", None)
        if out is not None:
            how["out"] = tuple(x.view(np.ndarray) for x in out)
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **how)
        Counted.elements += int(np.size(result))
        return result.view(Counted) if isinstance(result, np.ndarray) else result


def local_limit(shapes: int = 512, tiles: int = 16) -> tuple[float, float]:
    """Array elements computed per row, and rows/s if each were one bare multiplication in cache."""
    m = (np.arange(1.0, shapes + 1).reshape(-1, 1) * 1024.0).view(Counted)
    counts = np.arange(1.0, tiles + 1).reshape(1, -1).view(Counted)
    scenario = Scenario(
        target="all_gather_matmul", m=m, n=4096.0, k=8192.0, ranks=8.0, tile_cnt=counts, schedule="mc2"
    )
    study = study_of(scenario, load_machine(MACHINE), None)
    Counted.elements = 0
    serial = serial_outcome(study)
    outcome = OUTCOMES["mc2"](study, serial)
    results = Results(study, outcome, Results(study, serial, None))
    for name in ("total_time", "speedup", "comm_ratio"):
        results[name]
    per_row = Counted.elements / (shapes * tiles)
    a, b, out = (np.ones(shapes * tiles) for _ in range(3))
    bare = seconds(lambda: np.multiply(a, b, out=out), 2000)
    return per_row, shapes * tiles / bare / per_row


def seconds(call: Callable[[], object], times: int) -> float:
    """Of one call, in seconds of the processor."""
    begin = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begin) / times


def policies() -> tuple[float, float]:
    """Configurations per second, the best of 32 counts: by formula, and of every count."""
    machine = load_machine(MACHINE, overrides={"limits.pieces": "32"})
    m = np.arange(1.0, 16001.0).reshape(-1, 1) % 64 * 4096.0 + 4096.0

    def run(policy: str) -> float:
        scenario = Scenario(
            target="matmul_all_reduce", m=m, n=4096.0, k=8192.0, ranks=8.0, policy=policy, schedule="mc2"
        )
        begin = time.process_time()
        study = study_of(scenario, machine, None)
        Results(study, OUTCOMES["mc2"](study, serial_outcome(study)), None)
        return len(m) / (time.process_time() - begin)

    pairs = [(run("closed_form"), run("scan")) for _ in range(RUNS)]
    formula, every = (statistics.median(column) for column in zip(*pairs, strict=True))
    return formula, every


def regrets(shapes: int = 2000) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How much longer the count by formula takes than the best count, over random shapes and machines."""
    rng = np.random.default_rng(1)
    found = []
    for hardware in ("atlas_800i_a2", "atlas_800t_a3", "ascend_950pr"):
        machine = load_machine(hardware)
        for target in (
            "all_gather_matmul",
            "matmul_reduce_scatter",
            "all_to_all_matmul",
            "matmul_all_to_all",
        ):
            for ranks in (2.0, 8.0):
                m = rng.integers(1, 257, (shapes, 1)) * 256.0
                n, k = (2.0 ** rng.uniform(8, 14, (shapes, 1)) // 128 * 128 for _ in range(2))
                times = []
                for policy in ("closed_form", "scan"):
                    scenario = Scenario(
                        target=target, m=m, n=n, k=k, ranks=ranks, policy=policy, schedule="mc2"
                    )
                    study = study_of(scenario, machine, None)
                    outcome = OUTCOMES["mc2"](study, serial_outcome(study))
                    total = np.where(outcome.refused_at, np.inf, Results(study, outcome, None).total)
                    times.append(total.min(axis=1))
                found.append(times[0] / times[1] - 1.0)
    return np.concatenate(found)


WHOLE = """
import sys, time
from mc2perf.sweeping import Ranking, ask_sweep
from mc2perf.studies import run
shapes = int(sys.argv[1])
vary = [f"m=128..{128 * shapes}:128", "n=256..8192:256", "tile_cnt=1..32"]
asked = ask_sweep("all_gather_matmul", {"k": 8192, "ranks": 8}, {}, vary, Ranking(best_over=["tile_cnt"]))
names = ["m", "n", "tile_cnt", "total_time", "speedup"]
begin = time.process_time()
rows = sum(len(block["m"]) for block in run.blocks(asked.sweep, names))
took = time.process_time() - begin
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(asked.sweep.rows_evaluated, rows, took, peak)
"""


def whole(shapes: int) -> tuple[int, float, float]:
    """Rows, seconds of the processor and peak memory [MB] of a whole run in a process of its own."""
    text = subprocess.run(
        [sys.executable, "-c", WHOLE, str(shapes)], check=True, capture_output=True, text=True
    ).stdout
    rows, _, took, peak = text.split()
    return int(rows), float(took), float(peak)


def main() -> None:
    """Print all of it."""
    operators = question("tile_cnt=1..32")
    layers = question("micro_batches=1..32", target="moe_layer")
    print("block      rows/s, operator rows x tileCnt, full cost, 8 columns")
    for block in (4096, 16384, 32768, 65536, 131072):
        print(f"  {block:7d}  {rate(operators, block) / 1e6:6.2f} M")
    best = question("tile_cnt=1..32", best_over=["tile_cnt"])
    print(f"best over tile_cnt: {rate(best) / 1e6:.2f} M rows/s")
    every = [column.name for column in RESULTS]
    print(
        f"MoE layers x micro_batches: {rate(layers) / 1e6:.2f} M rows/s ({len(every)} result columns exist)"
    )
    formula, scan = policies()
    print(f"best of 32: closed_form {formula:,.0f}/s, scan {scan:,.0f}/s, ratio {formula / scan:.2f}")
    regret = regrets()
    print(
        f"regret of closed_form over {len(regret):,} random shapes: none in {np.mean(regret <= 0):.1%},"
        f" mean {regret.mean():.2%}, 99 of 100 below {np.quantile(regret, 0.99):.1%},"
        f" worst {regret.max():.0%}"
    )
    per_row, limit = local_limit()
    share = rate(operators) / limit
    print(f"{per_row:.0f} array elements a row; bare NumPy {limit / 1e6:.1f} M rows/s, {share:.0%} reached")
    print("whole runs, --best-over tile_cnt, a process each")
    for shapes in (98, 977, 9766, *((97657,) if "--long" in sys.argv else ())):
        rows, took, peak = whole(shapes)
        print(f"  {rows:11,d} rows  {took / rows * 1e9:6.0f} ns a row  {took:7.2f} s  peak {peak:5.0f} MB")


if __name__ == "__main__":
    main()
