"""From what files hold to what can be fitted: points of collectives, tables of kernels, scans over tiles."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mc2perf.kernels import KINDS, KernelTable
from mc2perf.measured import (
    CollectiveTimes,
    CommOps,
    Kernel,
    KernelTimes,
    KernelTotals,
    Measured,
    StepTrace,
    TileTimes,
    TrainingLog,
    bus_factor,
)
from mc2perf.operators import DTYPES, OPERATORS
from mc2perf.problems import InputError, Problems
from mc2perf.readers.measured import iterate_kernels, read_measured
from mc2perf.readers.measured.folders import measured_in, once
from mc2perf.readers.measured.kernels import base_type
from mc2perf.readers.scenarios import read_scenario
from mc2perf.studies.calibrate.collectives import Points
from mc2perf.studies.calibrate.result import Origin
from mc2perf.studies.calibrate.scans import Scan

OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoallvc": "all_to_all",
}  # fmt: skip
"""What a profiler calls an operation -> what it is; of even blocks a vector exchange is an all-to-all."""
MATMUL = re.compile(r"(batch)?mat_?mul(v\d)?", re.IGNORECASE)
"""Types of profiled kernels that are one matmul."""
MOST_RUNS = 1000
"""Runs of one shape whose times are kept; more say nothing new."""
USELESS: Mapping[type, str] = {
    StepTrace: "says how long steps took, not why; no number of a profile follows from it",
    TrainingLog: "a step's time does not tell utilisation from what is recomputed, waits or communication; "
    "cube.sustained is left at the base's value",
}
"""What files hold from which nothing can be fitted, and why."""

Reading = Callable[[str], AbstractContextManager[Any]]
"""A file's name to a context that tells how far reading is."""
Bundle = dict[tuple[str, int], list[Points]]


@dataclass
class Observations:
    """What can be fitted, by what it is; and which files hold nothing of use."""

    points: Bundle = field(default_factory=lambda: defaultdict(list))
    tables: list[tuple[KernelTable, Origin]] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def collectives(self) -> Iterator[Points]:
        """Points of every collective on every number of ranks, those of several files together."""
        for (op, ranks), parts in sorted(self.points.items()):
            size, time = (np.concatenate([getattr(p, n) for p in parts]) for n in ("size", "time"))
            yield Points(op, ranks, size, time, together(p.origin for p in parts))


def together(origins: Iterable[Origin]) -> Origin:
    """Several files as one origin, of the latest date."""
    found = list(dict.fromkeys(origins))
    return Origin(", ".join(o.file for o in found), max(o.date for o in found))


def observe(files: Iterable[Path], given: Mapping[str, str], reading: Reading = nullcontext) -> Observations:
    """Read files of measurements.

    Parameters
    ----------
    files : iterable of Path
        Of any kind that `read_measured` knows, or folders of them; ``-`` is standard input. Copies are
        counted once.
    given : mapping
        What files do not say of themselves: ``op``, ``ranks``, ``dtype``, and the inputs of scans.
    reading : callable, optional
        A file's name to a context that gives what is called with bytes read and bytes in all, or nothing.

    Raises
    ------
    InputError
        Every problem of every file, one line each.
    """
    seen, problems = Observations(), Problems()
    listed, seen.notes = once(f for file in files for f in problems.kept(measured_in, str(file)) or ())
    for file in map(Path, listed):
        with problems:
            with reading(str(file)) as progress:
                found = read_measured(file, progress if callable(progress) else None)
            _take(file, found, given, seen)
    problems.refuse()
    return seen


def origin_of(file: Path) -> Origin:
    """A file by its name, with the date of its contents."""
    if str(file) == "-":
        return Origin("standard input", "")
    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return Origin(file.name, changed.date().isoformat())


def _take(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    taker = TAKERS.get(type(found.data))
    seen.notes += [
        f"{found.name}: set aside: {rows.count} x {rows.reason} (first: {rows.first})"
        for rows in found.report.set_aside
    ]
    if taker is None:
        why = USELESS.get(type(found.data), "no number of a profile follows from it")
        seen.useless.append(f"{found.name}: {found.format}: {why}")
    else:
        taker(file, found, given, seen)


def _collectives(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    assert isinstance(found.data, CollectiveTimes)
    for (op, ranks), points in found.data.groups().items():
        op, ranks = op or given.get("op"), ranks or _ranks(given)
        if not op or not ranks:
            missing = " ".join(["--op"] * (not op) + ["--ranks"] * (not ranks))
            raise InputError(
                [f"{found.name}: does not say which collective on how many ranks; write {missing}"]
            )
        size, time = (np.array([getattr(p, name) for p in points]) for name in ("size", "time"))
        op = "all_to_all" if op == "all_to_all_v" else op
        seen.points[(op, ranks)].append(Points(op, ranks, size, time, origin_of(file)))


def _ranks(given: Mapping[str, str]) -> int | None:
    return int(given["ranks"]) if "ranks" in given else None


def _profiled_collectives(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    """Transit time of each operation; bytes on the wire are those of the array times the bus factor."""
    assert isinstance(found.data, CommOps)
    timed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in found.data.ops:
        op = OPS.get(base_type(re.sub(r"(_+\d+)+$", "", one.name)))
        if op and one.size and one.transit:
            timed[op].append((one.size, one.transit))
    ranks = _ranks(given)
    if timed and not ranks:
        raise InputError([f"{found.name}: does not say how many ranks; write --ranks"])
    if not timed:
        seen.useless.append(f"{found.name}: {found.format}: no collective with bytes and a transit time")
    for op, points in timed.items():
        assert ranks
        wire, time = np.array(points).T
        size = wire / bus_factor(op, ranks)
        seen.points[(op, ranks)].append(Points(op, ranks, size, time, origin_of(file)))
    if timed:
        seen.notes.append(f"{found.name}: transit times only; waiting for slower ranks is in no rate")


def _kernel_tables(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    assert isinstance(found.data, KernelTimes)
    kind = _kind_of(file, found.data.kind)
    rows = defaultdict(list)
    for row in found.data.rows:
        rows[row.dtype or given.get("dtype") or _in_name(file)].append(row)
    if "" in rows:
        raise InputError([f"{found.name}: does not say the element type; write --dtype"])
    if kind is None:
        raise InputError([f"{found.name}: prefill or decode; write context or decode into its name"])
    names = {"width": "moe_intermediate_size"}
    for dtype, some in rows.items():
        columns = {
            size: np.array([float(row.sizes[names.get(size, size)]) for row in some])
            for size in KINDS[kind].sizes
        }
        time = np.array([row.time for row in some])
        seen.tables.append((KernelTable(file.stem, KINDS[kind], dtype, columns, (), time), origin_of(file)))


def _kind_of(file: Path, kind: str) -> str | None:
    """A kind of kernel; the name of a file tells the two of attention apart."""
    if kind != "attention":
        return kind
    return next((k for k in ("context_attention", "decode_attention") if k.split("_")[0] in file.stem), None)


def _in_name(file: Path) -> str:
    return next((word for word in file.stem.split("_") if word in (*DTYPES, "w8a8")), "")


def _profiled_kernels(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    """Matmuls of a profile by shape, the median of their runs."""
    if found.format != "kernel_details":
        seen.useless.append(
            f"{found.name}: {found.format}: totals without shapes; kernel_details.csv has them"
        )
        return
    runs: dict[tuple[str, float, float, float], list[float]] = defaultdict(list)
    for kernel in iterate_kernels(file):
        shape = matmul_shape(kernel)
        if shape and len(runs[shape]) < MOST_RUNS and kernel.duration > 0.0:
            runs[shape].append(kernel.duration)
    for dtype in sorted({key[0] for key in runs}):
        shapes = {key: times for key, times in runs.items() if key[0] == dtype and times}
        sizes = np.array([key[1:] for key in shapes], float).reshape(-1, 3)
        time = np.array([median(times) for times in shapes.values()])
        columns = dict(zip("mnk", sizes.T, strict=True))
        table = KernelTable(file.stem, KINDS["matmul"], dtype, columns, (), time)
        seen.tables.append((table, origin_of(file)))
    if not runs:
        seen.useless.append(
            f"{found.name}: {found.format}: no matmul with shapes and types (Level1 has them)"
        )


def matmul_shape(kernel: Kernel) -> tuple[str, float, float, float] | None:
    """Type, m, n and k of a profiled matmul; the operand that fits tells what was transposed.

    Examples
    --------
    >>> one = Kernel(step="", name="x", type="MatMulV2", core="AI_CORE", start=0, duration=1e-4, wait=None,
    ...     blocks=None, input_shapes=((4096, 1024), (512, 1024)), input_types=("bf16", "bf16"))
    >>> matmul_shape(one)
    ('bf16', 4096.0, 512.0, 1024.0)
    """
    if not MATMUL.fullmatch(kernel.type) or len(kernel.input_shapes) < 2 or not kernel.input_types:
        return None
    (first, second), dtype = kernel.input_shapes[:2], kernel.input_types[0]
    if len(first) == len(second) == 3 and first[0] == second[0] == 1:
        first, second = first[1:], second[1:]
    if len(first) != 2 or len(second) != 2 or dtype not in DTYPES or 0 in (*first, *second):
        return None
    fitting = [
        (m, n, k)
        for m, k in (first, first[::-1])
        for rows, n in (second, second[::-1])
        if rows == k
    ]  # fmt: skip
    if not fitting:
        return None
    m, n, k = fitting[0]
    return dtype, float(m), float(n), float(k)


def _scans(file: Path, found: Measured, given: Mapping[str, str], seen: Observations) -> None:
    assert isinstance(found.data, TileTimes)
    for scan in found.data.scans:
        inputs = {**{k: v for k, v in given.items() if k in SCAN_INPUTS}, **scan.inputs}
        target = str(inputs.pop("target", given.get("operator", "")))
        if target not in OPERATORS:
            raise InputError([f"{found.name}: does not say the operator; write --operator and its sizes"])
        try:
            scenario, _ = read_scenario(target, {**inputs, "schedule": "mc2"})
        except InputError as error:
            raise InputError(f"{found.name}: {problem}" for problem in error.problems) from None
        missing = [name for name in ("m", "n", "k", "ranks") if getattr(scenario, name) is None]
        if missing:
            flags = " ".join(f"-{name}" if len(name) == 1 else f"--{name}" for name in missing)
            raise InputError([f"{found.name}: does not say {', '.join(missing)}; write {flags}"])
        counts, times = np.array(scan.points, float).T
        seen.scans.append(Scan(scenario, counts, times, origin_of(file)))


SCAN_INPUTS = ("m", "n", "k", "ranks", "dtype", "split_axis", "experts_per_rank")
TAKERS: Mapping[type, Callable[[Path, Measured, Mapping[str, str], Observations], None]] = {
    CollectiveTimes: _collectives,
    CommOps: _profiled_collectives,
    KernelTimes: _kernel_tables,
    KernelTotals: _profiled_kernels,
    TileTimes: _scans,
}
"""What a file holds -> how it is taken."""
