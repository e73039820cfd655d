"""Tables of measured kernels and collectives, told apart by their headers."""

from __future__ import annotations

from typing import Any

from mc2perf.measured import CollectiveTime, CollectiveTimes, KernelTime, KernelTimes, Measured, bus_factor
from mc2perf.problems import InputError
from mc2perf.readers.measured.cells import Column, element_type, has, header, rows, time_column
from mc2perf.readers.measured.source import Format, Source, Tally
from mc2perf.units import COUNT, TIME, WIDTH, Dim

SIZES: dict[str, tuple[tuple[str, ...], ...]] = {
    "moe_ffn": (
        ("num_tokens",), ("hidden_size",), ("moe_intermediate_size",), ("num_experts",), ("top_k",), ("ep",),
        ("local_experts",),
    ),
    "attention": (
        ("batch",), ("seq_len",), ("heads",), ("kv_heads", "kv_heads_0_means_heads"), ("head_dim",),
    ),
    "matmul": (("m",), ("n",), ("k",)),
}  # fmt: skip
"""Kind of kernel -> its sizes, each with the names of its column; the first is ours."""
ZERO = "kv_heads_0_means_heads"
COLLECTIVE = {
    "op": Column(("op",)),
    "ranks": Column(("ranks",), COUNT),
    "size": Column(("size_bytes_whole_array", "size_bytes"), COUNT),
    "rate": Column(("bus_gbps",), Dim("1", "a rate", at_most=1e9, may_be_zero=True), needed=False),
}


def _timed(source: Source) -> dict[str, Column]:
    """The column of times; its header must name the unit."""
    found = time_column(header(source))
    if found is None or found[1] is None:
        raise InputError([f"{source.name}: header: no time with its unit; write time_us, time_ms or time_s"])
    return {"time": Column((found[0],), TIME, found[1])}


def read_kernels(source: Source) -> Measured:
    """Read times of kernels of given sizes.

    Returns
    -------
    Measured
        `KernelTimes` of kind ``matmul`` (m, n, k), ``attention`` (batch, seq_len, heads, kv_heads, head_dim)
        or ``moe_ffn`` (num_tokens, hidden_size, ..., local_experts).

    Raises
    ------
    InputError
        A time without a unit in its header, missing columns, or no row that can be used.
    """
    tally = Tally(source)
    kind = _kind(source)
    assert kind is not None  # recognised before
    columns = {names[0]: Column(names, WIDTH if ZERO in names else COUNT) for names in SIZES[kind]}
    columns |= {"label": Column(("model",), needed=False), "dtype": Column(("dtype",), needed=False)}
    columns |= _timed(source)
    found = [made for line, row in rows(source, columns, tally) if (made := _row(row, tally, line))]
    tally.read = len(found)
    tally.insist("times")
    missing = ["prefill or decode"] * (kind == "attention")
    missing += ["the type of numbers"] * any(not row.dtype for row in found)
    if missing:
        tally.note(f"not in the file: {' and '.join(missing)}; say so where it is used")
    return tally.close(f"table of {kind}", "times", KernelTimes(kind, tuple(found)))


def _row(row: dict[str, Any], tally: Tally, line: int) -> KernelTime | None:
    label, dtype, time = row.pop("label") or "", element_type(row.pop("dtype") or ""), row.pop("time")
    if not time:
        tally.aside("time: is zero", f"line {line}")
        return None
    if row.get("kv_heads") == 0:  # the table's way to say "as many as heads"
        row["kv_heads"] = row["heads"]
    return KernelTime(row, time, label, dtype)


def _kind(source: Source) -> str | None:
    return next((kind for kind, sizes in SIZES.items() if has(source, *sizes)), None)


def read_collectives(source: Source) -> Measured:
    """Read times of collectives: op, ranks, bytes of the whole array, time, and perhaps the bus rate.

    Returns
    -------
    Measured
        `CollectiveTimes`; a row whose ``bus_gbps`` (1e9 B/s) does not follow from the rest is set aside.

    Raises
    ------
    InputError
        A time without a unit in its header, missing columns, or no row that can be used.
    """
    tally, points = Tally(source), []
    for line, row in rows(source, COLLECTIVE | _timed(source), tally):
        problem = _contradiction(row)
        if problem:
            tally.aside(problem, f"line {line}")
        else:
            points.append(CollectiveTime(row["size"], row["time"], row["op"], int(row["ranks"])))
    tally.read = len(points)
    return tally.close("table of collectives", "times", CollectiveTimes(tuple(points)))


def _contradiction(row: dict[str, Any]) -> str:
    """Why a row cannot be used; rates have two decimals, times two of a microsecond."""
    if not row["time"]:
        return "time: is zero"
    if row["ranks"] < 2:
        return "ranks: a collective has at least 2"
    try:
        expected = row["size"] / row["time"] * bus_factor(row["op"], row["ranks"]) / 1e9
    except KeyError:
        return "op: is not known"
    slack = 0.0051 + expected * (2e-3 + 0.005e-6 / row["time"])
    if row["rate"] is not None and abs(row["rate"] - expected) > slack:
        return "bus_gbps: does not follow from size, ranks and time"
    return ""


FORMATS = (
    Format(
        "table of collectives",
        "a CSV header with op, ranks, size_bytes_whole_array and time_us",
        lambda source: has(source, "op", "ranks", COLLECTIVE["size"].names),
        read_collectives,
    ),
    Format(
        "table of kernels",
        "a CSV header with the sizes of a matmul (m, n, k), attention or MoE FFN, and time_us",
        lambda source: (
            _kind(source) is not None
            and time_column(header(source)) is not None
            and not has(source, "tile_cnt")
        ),
        read_kernels,
    ),
)
