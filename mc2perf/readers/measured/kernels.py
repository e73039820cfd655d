"""``kernel_details.csv`` of torch_npu and ``op_summary*.csv`` of msprof, row by row in bounded memory."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mc2perf.measured import Kernel, KernelTotal, KernelTotals, Measured
from mc2perf.readers.measured.cells import Column, element_type, has, microseconds, rows
from mc2perf.readers.measured.source import MISSING, Format, Progress, Source, Tally, open_source
from mc2perf.units import WIDTH

COLUMNS = {
    "step": Column(("Step Id", "Step ID"), needed=False),
    "stream": Column(("Stream ID",), needed=False),
    "name": Column(("Name", "Op Name")),
    "type": Column(("Type", "OP Type")),
    "core": Column(("Accelerator Core", "Task Type")),
    "start": Column(("Start Time(us)", "Task Start Time(us)")),
    "duration": microseconds("Duration(us)", "Task Duration(us)"),
    "wait": microseconds("Wait Time(us)", "Task Wait Time(us)", needed=False),
    "blocks": Column(("Block Dim", "Block Num"), WIDTH, needed=False),
    "shapes": Column(("Input Shapes",), needed=False),
    "types": Column(("Input Data Types",), needed=False),
}
COMMUNICATION = frozenset({"HCCL", "COMMUNICATION"})
MOST_TYPES = 10_000
"""Most kinds of kernels that are told apart; a network has a few hundred."""
RECENT = 64
"""Rows of communication among which a double is looked for; a double stands next to its row."""

_NUMBERS = re.compile(r"(_+\d+)+$")
_HCOM = re.compile(r"_*hcom", re.IGNORECASE)
_TWIN = re.compile(r"_*(aiv|aicpu)_?kernel.*$", re.IGNORECASE)


def iterate_kernels(path: Path | str, progress: Progress | None = None) -> Iterator[Kernel]:
    """Go over the kernels of a file, one at a time.

    Parameters
    ----------
    path : Path or str
        ``kernel_details.csv`` or ``op_summary*.csv`` of any generation.
    progress : callable, optional
        Called with bytes read and bytes in all.

    Yields
    ------
    Kernel
        In the order of the file, without doubled rows of communication.

    Raises
    ------
    InputError
        Missing columns, and what is no CSV.
    """
    source = open_source(path, progress)
    yield from kernels(source, Tally(source))


def kernels(source: Source, tally: Tally) -> Iterator[Kernel]:
    """Kernels of an open source; broken and doubled rows are set aside."""
    seen: deque[_Seen] = deque(maxlen=RECENT)
    for line, row in rows(source, COLUMNS, tally):
        try:
            kernel = _kernel(row)
        except ValueError as error:
            tally.aside(str(error), f"line {line}")
            continue
        if kernel.communication and _doubled(kernel, seen):
            tally.aside("a communication row that stands twice (logical row and kernel)", f"line {line}")
            continue
        yield kernel


def _kernel(row: dict[str, Any]) -> Kernel:
    name, kind, core = row["name"], row["type"], row["core"]
    if not name:
        raise ValueError("Name: is missing")
    if not kind:  # level 0 knows no types
        kind = _NUMBERS.sub("", name)
    communication = core.upper() in COMMUNICATION or _HCOM.match(kind) or _is_twin(kind)
    return Kernel(
        step=row["step"] or "", name=name, type=kind, core=core,
        start=nanoseconds(row["start"]), duration=row["duration"], wait=row["wait"],
        blocks=None if row["blocks"] is None else int(row["blocks"]),
        input_shapes=_shapes(row["shapes"] or ""), input_types=_types(row["types"] or ""),
        communication=bool(communication),
    )  # fmt: skip


def nanoseconds(text: str) -> int | None:
    r"""A time stamp in microseconds as whole nanoseconds: 16 digits and 3 decimals are too many for a float.

    Examples
    --------
    >>> nanoseconds("1736405443881410.320\t")
    1736405443881410320
    """
    text = text.strip()
    if text.lower() in MISSING:
        return None
    try:
        found = Decimal(text)
        if not 0 <= found < Decimal(10) ** 18:
            raise ValueError("Start Time: is out of range")
        return int(found * 1000)
    except InvalidOperation:
        raise ValueError("Start Time: is not a number") from None


@lru_cache(maxsize=4096)
def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """``"32,3;64"`` with its literal quotes; what is no shape gives none."""
    text = text.strip('" ')
    if text.lower() in MISSING:
        return ()
    tensors = [tensor.split(",") for tensor in text.split(";")]
    if not all(
        size.strip().isdecimal() and len(size) < 16 for tensor in tensors for size in tensor if size.strip()
    ):
        return ()
    return tuple(tuple(int(size) for size in tensor if size.strip()) for tensor in tensors)


@lru_cache(maxsize=256)
def _types(text: str) -> tuple[str, ...]:
    """``DT_BF16;DT_BF16`` in our words."""
    text = text.strip('" ')
    return () if text.lower() in MISSING else tuple(map(element_type, text.split(";")))


@lru_cache(maxsize=4096)
def base_type(kind: str) -> str:
    """What an operation of communication is, whichever row names it.

    Examples
    --------
    >>> base_type("hcom_allGather_"), base_type("HcomAllGather"), base_type("allgatherAivKernel")
    ('allgather', 'allgather', 'allgather')
    """
    return re.sub(r"^_*hcom_*|_", "", _TWIN.sub("", kind), flags=re.IGNORECASE).lower()


class _Seen(NamedTuple):
    """A row of communication as its double is looked for: its microsecond, its end in nanoseconds."""

    base: str
    twin: bool
    name: str
    at: int
    end: float


@lru_cache(maxsize=4096)
def _is_twin(kind: str) -> bool:
    return _TWIN.search(kind) is not None


def _doubled(kernel: Kernel, seen: deque[_Seen]) -> bool:
    """Whether the operation stands already: by its name, or as a logical row around its kernel.

    Time stamps of a row and its kernel agree to a microsecond.
    """
    start = kernel.start
    if start is None:
        return False
    base, twin, at = base_type(kernel.type), _is_twin(kernel.type), start // 1000
    for other in seen:
        if other.base == base:
            if other.twin == twin:
                if other.at == at and other.name == kernel.name:
                    return True
            elif other.at * 1000 <= start <= other.end or other.at == at:
                return True
    seen.append(_Seen(base, twin, kernel.name, at, start + kernel.duration * 1e9))
    return False


@dataclass
class _Running:
    count: int = 0
    total: float = 0.0
    shortest: float = math.inf
    longest: float = 0.0

    def add(self, time: float) -> None:
        self.count += 1
        self.total += time
        self.shortest, self.longest = min(self.shortest, time), max(self.longest, time)


def read(source: Source) -> Measured:
    """Read kernels as totals by type and core; see `iterate_kernels` for the rows themselves.

    Returns
    -------
    Measured
        `KernelTotals`; communication apart, as its durations are elapsed times that include waiting.

    Raises
    ------
    InputError
        Missing columns, or no row that can be used.
    """
    tally = Tally(source)
    found: dict[tuple[bool, str, str], _Running] = {}
    for kernel in kernels(source, tally):
        tally.read += 1
        key = (kernel.communication, kernel.type, kernel.core)
        if key not in found and len(found) >= MOST_TYPES:
            tally.note(f"more than {MOST_TYPES} types; the rest stands together as '(other)'")
            key = (kernel.communication, "(other)", "")
        found.setdefault(key, _Running()).add(kernel.duration)
    if any(communication for communication, _, _ in found):
        tally.note("durations of communication are elapsed and include waiting; not used for rates")
    data = KernelTotals(_totals(found, False), _totals(found, True))
    return tally.close("kernel_details", "kernels", data)


def _totals(found: dict[tuple[bool, str, str], _Running], communication: bool) -> tuple[KernelTotal, ...]:
    return tuple(
        KernelTotal(
            type=kind, core=core, count=r.count, total=r.total, shortest=r.shortest, longest=r.longest
        )
        for (is_communication, kind, core), r in found.items()
        if is_communication is communication
    )


FORMAT = Format(
    "kernel_details",
    "a CSV header with (Op) Name, Accelerator Core or Task Type, and (Task) Duration(us)",
    lambda source: has(source, *(COLUMNS[key].names for key in ("name", "core", "duration"))),
    read,
)
