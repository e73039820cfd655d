"""One measured run in the field's template: what its files say, reduced to one step of one rank."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from mc2perf.measured import (
    CommOp,
    CommOps,
    ExpertLoad,
    Iteration,
    KernelTotal,
    KernelTotals,
    Measured,
    StepTime,
    StepTrace,
    TrainingLog,
    TrainingRun,
)

GROUPED = re.compile(r"grouped_?mat_?mul", re.IGNORECASE)
"""Kernels that multiply the rows of every expert at once."""

FUSED = re.compile(
    r"all_?to_?allv?.*(mat_?mul|gmm)|(mat_?mul|gmm).*all_?to_?allv?|all_?gather_?mat_?mul"
    r"|mat_?mul_?reduce_?scatter|mat_?mul_?all_?reduce|moe_?distribute_?(dispatch|combine)"
    r"|dispatch_?ffn_?combine|mega_?moe",
    re.IGNORECASE,
)
"""Kernels of MC2, which hold communication and computation."""

FEW = 3
"""From so many steps on the first may count as warm-up."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A measured run; times of one step [s], not-a-number where no file says so.

    ``transfer`` is time in which bytes moved, ``waiting`` the rest of what communication took. Spreads are
    (largest - smallest) / mean over ranks. ``steady_step`` is what the training log says of a step, ``gain``
    what a scan over tile counts gains over one tile; ``usual_compute`` is the median over ranks.
    """

    step: float = math.nan
    compute: float = math.nan
    communication: float = math.nan
    exposed: float = math.nan
    overlapped: float = math.nan
    free: float = math.nan
    bubble: float = math.nan
    preparing: float = math.nan
    gmm: float = math.nan
    fused: float = math.nan
    hccl: float = math.nan
    transfer: float = math.nan
    waiting: float = math.nan
    steady_step: float = math.nan
    tokens_per_second: float = math.nan
    first_step: float = math.nan
    ranks: int = 1
    steps: int = 1
    rank_spread: float = math.nan
    compute_spread: float = math.nan
    least_exposed: float = math.nan
    usual_compute: float = math.nan
    imbalance: float = math.nan
    gain: float = math.nan
    rdma_bytes: float = math.nan
    rdma_rate: float = math.nan
    notes: tuple[str, ...] = ()

    def noted(self, *texts: str) -> Observed:
        """The same with remarks on how it was reduced."""
        return replace(self, notes=(*self.notes, *texts))


def observed(files: Sequence[Measured]) -> Observed:
    """Reduce the files of one run.

    Parameters
    ----------
    files : sequence of Measured
        Of one or several ranks; what is no measurement of a step is named in the notes.

    Returns
    -------
    Observed
        Times of one rank and one step that were measured together, so that their sums hold.

    Examples
    --------
    >>> step = StepTime(step="1", computing=5, exposed=2, overlapped=1, communication=3, free=1)
    >>> from mc2perf.measured import Report
    >>> observed([Measured("a.csv", "step_trace_time", StepTrace((step,)), Report(1, "steps"))]).step
    8
    """
    found = Observed()
    for kind, reduce in REDUCTIONS.items():
        chosen = [file for file in files if isinstance(file.data, kind)]
        if chosen:
            found = reduce(found, chosen)
    for file in files:
        if not isinstance(file.data, tuple(REDUCTIONS)):
            found = found.noted(f"{file.name}: {file.format} holds no times of a step; set aside")
    return found


# --- step traces ---------------------------------------------------------------------------------------


def _from_traces(found: Observed, files: Sequence[Measured]) -> Observed:
    rows = list(_rows_by_rank(files))
    by_step: dict[str, list[StepTime]] = defaultdict(list)
    for row in rows:
        by_step[row.step].append(row)
    slowest = [max(ranks, key=lambda row: row.busy) for ranks in by_step.values()]
    chosen, kept = _median_step(slowest)
    peers = by_step[chosen.step]
    ranks = len({row.rank for row in rows})
    exposed = chosen.exposed_without_receive
    bubble = chosen.exposed - exposed if exposed is not None else math.nan
    found = replace(
        found, step=chosen.busy, compute=chosen.computing, communication=chosen.communication,
        exposed=chosen.exposed, overlapped=chosen.overlapped, free=chosen.free, bubble=bubble,
        preparing=math.nan if chosen.preparing is None else chosen.preparing,
        first_step=slowest[0].busy if len(slowest) > 1 else math.nan, ranks=ranks, steps=len(slowest),
        rank_spread=_spread([row.busy for row in peers]),
        compute_spread=_spread([row.computing for row in peers]),
        least_exposed=min(row.exposed for row in peers) if len(peers) > 1 else math.nan,
        usual_compute=median(row.computing for row in peers) if len(peers) > 1 else math.nan,
    )  # fmt: skip
    return found.noted(_how(chosen, ranks, len(slowest), kept))


def _rows_by_rank(files: Sequence[Measured]) -> Iterator[StepTime]:
    """Rows with a rank each: a file without ranks is one."""
    for index, file in enumerate(files):
        assert isinstance(file.data, StepTrace)
        single = len({row.rank for row in file.data.steps}) == 1
        for row in file.data.steps:
            yield replace(row, rank=f"{index}/{row.rank}") if single and len(files) > 1 else row


def _median_step(rows: Sequence[StepTime]) -> tuple[StepTime, int]:
    """The step in the middle of the steady ones, and how many those are."""
    steady = list(rows)
    if len(rows) >= FEW:
        run = TrainingRun(tuple(Iteration(number=n, time=row.busy) for n, row in enumerate(rows)))
        steady = [rows[i.number] for i in run.steady]
    ordered = sorted(steady, key=lambda row: row.busy)
    return ordered[(len(ordered) - 1) // 2], len(steady)


def _how(chosen: StepTime, ranks: int, steps: int, kept: int) -> str:
    of_ranks = f"rank {chosen.rank}, the slowest of {ranks}" if ranks > 1 else "the one rank there is"
    of_steps = "the one step captured" if steps == 1 else f"step {chosen.step}, the median of {kept}"
    left = f" after {steps - kept} of warm-up or far above the median" if kept < steps else ""
    return f"step trace: {of_ranks}; {of_steps}{left}"


def _spread(times: Sequence[float]) -> float:
    """Largest less smallest over the mean; not-a-number of one."""
    mean = math.fsum(times) / len(times)
    return (max(times) - min(times)) / mean if len(times) > 1 and mean else math.nan


# --- kernels and operations ----------------------------------------------------------------------------


def _from_kernels(found: Observed, files: Sequence[Measured]) -> Observed:
    tables = [file.data for file in files if isinstance(file.data, KernelTotals)]
    steps = found.steps
    compute = [table.compute for table in tables if table.compute]
    found = replace(
        found,
        gmm=_most(_total(rows, lambda kind: bool(GROUPED.search(kind)) and not FUSED.search(kind)) / steps
                  for rows in compute),
        fused=_most(_total((*t.compute, *t.communication), lambda kind: bool(FUSED.search(kind))) / steps
                    for t in tables if t.compute),
        hccl=_most(_total(t.communication, lambda kind: not FUSED.search(kind)) / steps
                   for t in tables if t.communication),
    )  # fmt: skip
    per = f"; divided by the {steps} steps of the trace" if steps > 1 else "; taken as one step"
    return found.noted(f"kernels: totals of the longest of {len(tables)} files{per}")


def _total(rows: Iterable[KernelTotal], wanted: Callable[[str], bool]) -> float:
    return math.fsum(row.total for row in rows if wanted(row.type))


def _most(values: Iterable[float]) -> float:
    return max(values, default=math.nan)


def _from_operations(found: Observed, files: Sequence[Measured]) -> Observed:
    """Elapsed and transit times of ranks; transit alone is transfer."""
    by_rank: dict[str, dict[str, list[CommOp]]] = defaultdict(lambda: defaultdict(list))
    for index, file in enumerate(files):
        assert isinstance(file.data, CommOps)
        for op in file.data.ops:
            by_rank[op.rank or f"file {index}"][op.step].append(op)
    elapsed = [_of_step(steps, lambda op: op.elapsed) for steps in by_rank.values()]
    transfer = [_of_step(steps, lambda op: op.transit) for steps in by_rank.values()]
    waiting = [e - t for e, t in zip(elapsed, transfer, strict=True)]
    timed = [t for steps in by_rank.values() for ops in steps.values() for op in ops for t in op.traffic]
    rdma = [t for t in timed if t.transport == "RDMA"]
    size, time = math.fsum(t.size for t in rdma), math.fsum(t.link_time for t in rdma)
    return replace(
        found,
        hccl=max(elapsed) if math.isnan(found.hccl) else found.hccl,
        transfer=max(transfer),
        waiting=max(waiting),
        rdma_bytes=size,
        rdma_rate=size / time if time else math.nan,
    ).noted(
        f"communication.json: the rank with the longest transfer of {len(by_rank)}; "
        "transfer is transit time, waiting the rest of the elapsed time"
    )


def _of_step(steps: dict[str, list[CommOp]], time: Callable[[CommOp], float]) -> float:
    return median(math.fsum(map(time, ops)) for ops in steps.values())


# --- logs and loads ------------------------------------------------------------------------------------


def _from_logs(found: Observed, files: Sequence[Measured]) -> Observed:
    """The last run of the last log."""
    runs = [run for file in files if isinstance(file.data, TrainingLog) for run in file.data.runs]
    run = runs[-1]
    aside = len(run.iterations) - len(run.steady)
    first = run.iterations[0].time if len(run.iterations) > 1 else math.nan
    text = f"training log: median of {len(run.steady)} iterations, {aside} of warm-up or outliers left out"
    if len(runs) > 1:
        text += f"; the last of {len(runs)} runs"
    return replace(
        found,
        steady_step=run.time,
        step=run.time if math.isnan(found.step) else found.step,
        first_step=first if math.isnan(found.first_step) else found.first_step,
        tokens_per_second=run.token_rate or math.nan,
    ).noted(text)


def _from_loads(found: Observed, files: Sequence[Measured]) -> Observed:
    layers = [f for file in files if isinstance(file.data, ExpertLoad) for f in file.data.imbalance]
    text = f"expert load: median of {len(layers)} layers, largest over mean of the slots in the file"
    return replace(found, imbalance=median(layers)).noted(text)


REDUCTIONS: dict[type, Callable[[Observed, Sequence[Measured]], Observed]] = {
    StepTrace: _from_traces,
    KernelTotals: _from_kernels,
    CommOps: _from_operations,
    TrainingLog: _from_logs,
    ExpertLoad: _from_loads,
}
"""Kind of data -> what it adds; kernels count on the steps of a trace."""
