"""Time a matmul, a collective, and both cut into n pieces and overlapped, on the machine at hand.

Copy this one file to the machine; it needs Python 3.10, PyTorch, and torch_npu on Ascend, nothing else:

    torchrun --nproc-per-node 8 measure_overlap.py --shape 8192,4096,7168 --output measured

On a CPU: ``torchrun --nproc-per-node 2 measure_overlap.py --backend gloo --shape 2048,1024,1024``. It writes
three tables, which 'mc2perf inspect', 'calibrate' and 'compare' read:

    collectives.csv   op,ranks,size_bytes_whole_array,time_us
    matmul.csv        m,n,k,dtype,time_us
    overlap.csv       operator,m,n,k,ranks,dtype,tile_cnt,time_us

m, n and k mean what 'mc2perf operators' says. Every repetition counts with its slowest rank, and a time is
the median of all; the whole plan is gone through several times, so that a busy minute spoils none of it.
On a machine that others use, --statistic min is what the machine can do. One tile is the serial base line:
the whole collective, then the whole matmul, or the other way round. More tiles are cut along the rows of
the matmul; --buffers of them are in flight. An all-gather of tiles multiplies a rank's own rows first.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

BACKENDS = {"hccl": "npu", "nccl": "cuda", "gloo": "cpu"}
"""Backend of torch.distributed -> the device whose tensors it moves; the first that is there is taken."""

DTYPES = {"bf16": ("bfloat16", 2), "fp16": ("float16", 2), "fp32": ("float32", 4)}
"""Our name -> the name in PyTorch, bytes of an element."""


@dataclass(frozen=True)
class Operator:
    """What comes first, what travels, and whether m counts the rows of one rank before they are gathered."""

    collective: str
    comm_first: bool
    gathered: bool = False


OPERATORS = {
    "all_gather_matmul": Operator("all_gather", comm_first=True, gathered=True),
    "all_to_all_matmul": Operator("all_to_all", comm_first=True),
    "matmul_all_reduce": Operator("all_reduce", comm_first=False),
    "matmul_all_to_all": Operator("all_to_all", comm_first=False),
    "matmul_reduce_scatter": Operator("reduce_scatter", comm_first=False),
}

COLLECTIVES = {
    "all_gather": ("all_gather_single", "all_gather_into_tensor"),
    "all_reduce": ("all_reduce",),
    "all_to_all": ("all_to_all_single",),
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
}
"""Collective -> its names in torch.distributed, the newest first."""

Matmul = tuple[int, int, int, str]
Transfer = tuple[str, int]
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One fused operator at one size."""

    operator: str
    m: int
    n: int
    k: int
    ranks: int
    dtype: str

    @property
    def kind(self) -> Operator:
        """Its row of the catalogue."""
        return OPERATORS[self.operator]

    @property
    def rows(self) -> int:
        """Rows of the whole matmul."""
        return self.m * self.ranks if self.kind.gathered else self.m

    @property
    def width(self) -> int:
        """Columns of what travels: the input before the matmul, the output after it."""
        return self.k if self.kind.comm_first else self.n

    def payload(self, tiles: int = 1) -> int:
        """Bytes of the whole array that one piece moves."""
        return self.rows // tiles * self.width * DTYPES[self.dtype][1]

    def fits(self, tiles: int) -> bool:
        """Whether every piece has the same rows, and of each rank the same."""
        return self.rows % (tiles * self.ranks) == 0

    def matmuls(self, tiles: int) -> list[Matmul]:
        """Matmuls of one piece; gathered rows of other ranks come apart from a rank's own."""
        rows = {self.rows // tiles}
        if self.kind.gathered and tiles > 1:
            rows = {self.m, (self.rows - self.m) // tiles}
        return [(m, self.n, self.k, self.dtype) for m in sorted(rows)]


@dataclass(frozen=True)
class Plan:
    """What is timed: transfers alone, matmuls alone, and operators in so many tiles."""

    transfers: tuple[Transfer, ...]
    matmuls: tuple[Matmul, ...]
    scans: tuple[tuple[Case, int], ...]


def planned(cases: Sequence[Case], tiles: Sequence[int], sizes: Sequence[int]) -> Plan:
    """Every case in every number of tiles that divides it, with the parts that explain it."""
    scans = [(case, count) for case in cases for count in tiles if case.fits(count)]
    ranks = cases[0].ranks
    whole = [-(-size // (2 * ranks)) * 2 * ranks for size in sizes]
    transfers = {(case.kind.collective, case.payload(count)) for case, count in scans}
    transfers |= {(case.kind.collective, size) for case in cases for size in whole}
    matmuls = {matmul for case, count in scans for matmul in case.matmuls(count)}
    return Plan(tuple(sorted(transfers)), tuple(sorted(matmuls)), tuple(scans))


# --- the machine: the only part that needs PyTorch ----------------------------------------------------------


class Bench:
    """Tensors, collectives and a clock of one rank."""

    def __init__(self, backend: str, asked: argparse.Namespace) -> None:
        torch: Any = importlib.import_module("torch")
        dist: Any = importlib.import_module("torch.distributed")
        self.torch, self.dist, self.asked = torch, dist, asked
        self.kind = BACKENDS[backend]
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if self.kind == "cpu":
            if asked.pin:
                os.sched_setaffinity(0, range(local * asked.threads, (local + 1) * asked.threads))
            torch.set_num_threads(asked.threads)
            self.device = "cpu"
        else:
            getattr(torch, self.kind).set_device(local)
            self.device = f"{self.kind}:{local}"
        dist.init_process_group(backend)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        flush = asked.flush if asked.flush is not None else 0 if self.kind == "cpu" else 256
        self._scratch = torch.empty(flush << 20, dtype=torch.uint8, device=self.device)

    def empty(self, rows: int, columns: int, dtype: str) -> Any:
        """A matrix of small numbers, so that sums of many stay finite."""
        kind = getattr(self.torch, DTYPES[dtype][0])
        return self.torch.full((rows, columns), 2.0**-6, dtype=kind, device=self.device)

    def collective(self, name: str, out: Any, put: Any) -> Any:
        """Start a collective; what it gives back can be waited for. An all-reduce happens in place."""
        call = next(getattr(self.dist, word) for word in COLLECTIVES[name] if hasattr(self.dist, word))
        return call(*((out,) if name == "all_reduce" else (out, put)), async_op=True)

    def clock(self) -> Callable[[], float]:
        """Start timing; call what it gives back for the seconds since. Devices are timed on their stream."""
        if self.kind == "cpu":
            begin = time.perf_counter()
            return lambda: time.perf_counter() - begin
        events = [getattr(self.torch, self.kind).Event(enable_timing=True) for _ in range(2)]
        events[0].record()

        def stop() -> float:
            events[1].record()
            events[1].synchronize()
            return float(events[0].elapsed_time(events[1])) * 1e-3

        return stop

    def time(self, run: Callable[[], object]) -> list[float]:
        """Seconds of each repetition on the slowest rank, after the warm-up."""
        found = []
        for _ in range(self.asked.warm_up + self.asked.repeat):
            self._scratch.zero_()  # L2 holds nothing of the run before
            self.dist.barrier()
            stop = self.clock()
            for _ in range(self.asked.inner):
                run()
            found.append(stop() / self.asked.inner)
        found = found[self.asked.warm_up :]
        slowest = self.torch.tensor(found, dtype=self.torch.float32, device=self.device)
        self.dist.all_reduce(slowest, op=self.dist.ReduceOp.MAX)
        return [float(seconds) for seconds in slowest.cpu()]


def transfer_alone(bench: Bench, transfer: Transfer) -> Callable[[], object]:
    """A whole collective of so many bytes, from start to end."""
    name, size = transfer
    whole, part = size // 2, size // 2 // bench.ranks
    lengths = {"all_gather": (whole, part), "reduce_scatter": (part, whole)}.get(name, (whole, whole))
    out, put = (bench.empty(1, length, "bf16")[0] for length in lengths)
    if name == "all_reduce":
        out.zero_()  # sums stay finite however often
    return lambda: bench.collective(name, out, put).wait()


def matmul_alone(bench: Bench, matmul: Matmul) -> Callable[[], object]:
    """One matmul into a matrix that is there already."""
    m, n, k, dtype = matmul
    a, b, out = bench.empty(m, k, dtype), bench.empty(k, n, dtype), bench.empty(m, n, dtype)
    return lambda: bench.torch.mm(a, b, out=out)


class Pieces:
    """A fused operator cut into tiles: its weight, its input, and between and output of every piece.

    Where gathered rows are cut, a rank's own need no transfer: they are multiplied first, all at once.
    """

    def __init__(self, bench: Bench, case: Case, tiles: int) -> None:
        self.bench, self.case, self.tiles = bench, case, tiles
        first = case.kind.comm_first
        put = case.m if case.kind.gathered else case.rows
        got = case.rows // case.ranks if case.kind.collective == "reduce_scatter" else case.rows
        self.weight = self._matrix(case.k, case.n)
        self.input = self._matrix(put, case.k)
        self.first = self.input.split(put // tiles)
        self.between = self._matrix(case.rows, case.k if first else case.n).split(case.rows // tiles)
        self.own_first = case.kind.gathered and tiles > 1
        self.own = self._matrix(case.m if self.own_first else 0, case.n)
        rest = got - len(self.own)
        self.last = self._matrix(rest, case.n).split(rest // tiles)
        if case.kind.collective == "all_reduce":
            self.last = self.between  # reduced in place

    def _matrix(self, rows: int, columns: int) -> Any:
        return self.bench.empty(rows, columns, self.case.dtype)

    def run(self) -> None:
        """All pieces, transfers beside matmuls."""
        (self._comm_first if self.case.kind.comm_first else self._compute_first)()

    def _send(self, put: Any, out: Any) -> Any:
        return self.bench.collective(self.case.kind.collective, out, put)

    def _multiply(self, rows: Any, out: Any) -> None:
        self.bench.torch.mm(rows, self.weight, out=out)

    def _comm_first(self) -> None:
        """Transfers run ahead by as many pieces as there are buffers."""
        ahead = min(self.bench.asked.buffers, self.tiles)
        work = deque(map(self._send, self.first[:ahead], self.between[:ahead]))
        if self.own_first:
            self._multiply(self.input, self.own)
        for index in range(self.tiles):
            work.popleft().wait()
            for rows, out in self._received(index):
                self._multiply(rows, out)
            if index + ahead < self.tiles:
                work.append(self._send(self.first[index + ahead], self.between[index + ahead]))

    def _received(self, index: int) -> list[tuple[Any, Any]]:
        """The rows of a piece that are still to be multiplied, in blocks without a gap, and where to."""
        rows, out = self.between[index], self.last[index]
        if not self.own_first:
            return [(rows, out)]
        share = len(rows) // self.case.ranks
        low, high = self.bench.rank * share, (self.bench.rank + 1) * share
        blocks = ((rows[:low], out[:low]), (rows[high:], out[low:]))
        return [block for block in blocks if len(block[0])]

    def _compute_first(self) -> None:
        """Every piece travels as soon as it is computed."""
        work: deque[Any] = deque()
        for index in range(self.tiles):
            self._multiply(self.first[index], self.between[index])
            work.append(self._send(self.between[index], self.last[index]))
            if len(work) >= self.bench.asked.buffers:
                work.popleft().wait()
        for started in work:
            started.wait()

    def fill(self) -> None:
        """Rows that differ by rank and place, so that a row taken twice or left out shows."""
        at = self.bench.rank * len(self.input)
        rows = self.bench.torch.arange(at, at + len(self.input), device=self.bench.device)
        self.input.copy_(((rows % 7 - 3) * 2.0**-6)[:, None].expand_as(self.input))

    def checksum(self) -> float:
        """Sum of squares of the result over all ranks, which does not depend on how it is cut."""
        total = sum((piece.float() ** 2).sum() for piece in (self.own, *self.last))
        self.bench.dist.all_reduce(total)
        return float(total)


# --- tables -------------------------------------------------------------------------------------------------


STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"median": statistics.median, "min": min}


def times_of(seconds: Sequence[float], statistic: str) -> Row:
    """The columns that every table has: the time, every statistic of it, and of how many repetitions."""
    said = {f"{name}_us": f"{found(seconds) * 1e6:.3f}" for name, found in STATISTICS.items()}
    return {"time_us": said[f"{statistic}_us"], **said, "repetitions": len(seconds)}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV under its name once it is whole."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


@dataclass
class Timed:
    """One row of a table: what it is called, what runs, and what was measured."""

    table: str
    row: Row
    make: Callable[[], Callable[[], object]]
    seconds: list[float] = field(default_factory=list)


def jobs(bench: Bench, plan: Plan) -> Iterator[Timed]:
    """Every row of the plan; what it runs is made when its turn comes, so that memory holds one at a time."""
    for name, size in plan.transfers:
        row = {"op": name, "ranks": bench.ranks, "size_bytes_whole_array": size}
        yield Timed("collectives.csv", row, partial(transfer_alone, bench, (name, size)))
    for matmul in plan.matmuls:
        row = dict(zip(("m", "n", "k", "dtype"), matmul, strict=True))
        yield Timed("matmul.csv", row, partial(matmul_alone, bench, matmul))
    expected: dict[Case, float] = {}
    for case, tiles in plan.scans:
        row = asdict(case) | {"tile_cnt": tiles, "buffers": bench.asked.buffers}
        yield Timed("overlap.csv", row, partial(checked_pieces, bench, case, tiles, expected))


def measured(bench: Bench, plan: Plan) -> dict[str, list[Row]]:
    """Every time of the plan, by table; rounds go through all of it."""
    found, asked = list(jobs(bench, plan)), bench.asked
    for turn in range(asked.rounds):
        for at, job in enumerate(found, 1):
            if bench.rank == 0:
                what = ",".join(map(str, job.row.values()))
                print(f"[{turn + 1}/{asked.rounds} {at}/{len(found)}] {what}", file=sys.stderr, flush=True)
            job.seconds += bench.time(job.make())
    return {
        name: [job.row | times_of(job.seconds, asked.statistic) for job in found if job.table == name]
        for name in TABLES
    }


TABLES = ("collectives.csv", "matmul.csv", "overlap.csv")


def checked_pieces(bench: Bench, case: Case, tiles: int, expected: dict[Case, float]) -> Callable[[], object]:
    """Pieces that give what the first cut of the same operator gave: who skips work is no faster."""
    pieces = Pieces(bench, case, tiles)
    pieces.fill()
    pieces.run()
    found = pieces.checksum()
    wanted = expected.setdefault(case, found)
    if not abs(found - wanted) <= 2e-2 * abs(wanted):
        raise SystemExit(f"{case} in {tiles}: the result differs ({found:.6g}, not {wanted:.6g})")
    return pieces.run


# --- command line -------------------------------------------------------------------------------------------


def whole(text: str) -> int:
    """A whole number of at least 1; K, M and G are powers of 1024."""
    power = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if power else text
    if not digits.isdecimal() or not int(digits):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number; write 4096 or 4K")
    return int(digits) << power


def several(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [whole(part) for part in text.split(",")]


def shape(text: str) -> tuple[int, int, int]:
    """Rows, columns and contraction."""
    found = several(text)
    if len(found) != 3:
        raise argparse.ArgumentTypeError(f"'{text}' is no shape; write M,N,K")
    return (found[0], found[1], found[2])


def ladder(text: str) -> list[int]:
    """Sizes ``FROM..TO:xFACTOR``, as mc2perf writes axes, or a list."""
    span, _, step = text.partition(":x")
    low, dots, high = span.partition("..")
    if not dots:
        return several(text)
    factor, size, last = whole(step or "2"), whole(low), whole(high)
    if factor < 2 or last < size:
        raise argparse.ArgumentTypeError(f"'{text}' is no rising ladder; write 1K..64M:x2")
    found = [size]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--backend", choices=tuple(BACKENDS), help="default: hccl, else nccl, else gloo, whichever is there")
    add("--operator", choices=tuple(OPERATORS), action="append", help="again for more (default: all)")
    add("--shape", type=shape, action="append", required=True, metavar="M,N,K", help="again for more")
    add("--dtype", choices=tuple(DTYPES), action="append", help="again for more (default: bf16)")
    add("--tile-cnt", type=several, default=[1, 2, 4, 8, 16], metavar="N,..", help="default: 1,2,4,8,16")
    add("--sizes", type=ladder, default="4K..64M:x4", metavar="A..B:xF", help="more transfers; 4K..64M:x4")
    add("--buffers", type=whole, default=4, help="pieces in flight (default: 4)")
    add("--warm-up", type=whole, default=5, help="repetitions that do not count (default: 5)")
    add("--repeat", type=whole, default=20, help="repetitions that count, of a round (default: 20)")
    add("--rounds", type=whole, default=3, help="times that the plan is gone through (default: 3)")
    add("--statistic", choices=tuple(STATISTICS), default="median", help="what time_us is (default: median)")
    add("--inner", type=whole, default=1, help="runs of one repetition, their mean counts (default: 1)")
    add("--flush", type=int, metavar="MIB", help="written before each repetition (default: 256; CPU: 0)")
    add("--threads", type=whole, default=1, help="threads of a matmul on a CPU (default: 1)")
    add("--pin", action="store_true", help="keep every rank, its gloo threads too, on cores of its own")
    add("--output", type=Path, default=Path("measured"), help="folder of the tables (default: measured)")
    asked = parser.parse_args(words)
    asked.operator, asked.dtype = asked.operator or list(OPERATORS), asked.dtype or ["bf16"]
    if 1 not in asked.tile_cnt:
        parser.error("--tile-cnt needs 1, the serial base line")
    return asked


def cases_of(asked: argparse.Namespace, ranks: int) -> list[Case]:
    """Every operator at every shape; what one tile does not divide is refused, all at once."""
    cases = [
        Case(operator, m, n, k, ranks, dtype)
        for operator in dict.fromkeys(asked.operator)
        for m, n, k in dict.fromkeys(asked.shape)
        for dtype in dict.fromkeys(asked.dtype)
    ]
    wrong = [f"{c.operator}: m = {c.m} is no multiple of {ranks} ranks" for c in cases if not c.fits(1)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    return cases


def available() -> str:
    """The first backend whose device is there."""
    torch: Any = importlib.import_module("torch")
    with suppress(ImportError):
        importlib.import_module("torch_npu")  # adds torch.npu
    return next(name for name, kind in BACKENDS.items() if kind == "cpu" or _is_there(torch, kind))


def _is_there(torch: Any, kind: str) -> bool:
    return bool(hasattr(torch, kind) and getattr(torch, kind).is_available())


def main(words: Iterable[str] | None = None) -> None:
    """Measure, and write the tables from rank 0."""
    asked = arguments(None if words is None else list(words))
    if "RANK" not in os.environ:
        raise SystemExit(
            f"start it with torchrun, one process per rank: torchrun --nproc-per-node 8 {__file__}"
        )
    there = available()
    bench = Bench(asked.backend or there, asked)
    tables = measured(bench, planned(cases_of(asked, bench.ranks), asked.tile_cnt, asked.sizes))
    if bench.rank == 0:
        asked.output.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            write_table(asked.output / name, rows)
            print(asked.output / name)
    bench.dist.destroy_process_group()


if __name__ == "__main__":
    main()
