"""The column dictionary: every column of every table, its SI unit, its meaning, which way is better.

Columns are only ever appended to their group, never renamed: spreadsheets refer to them.
"""

from __future__ import annotations

from functools import cache

from mc2perf.scenario import inputs
from mc2perf.table import Column

RESULTS = (
    Column("pieces", "1", "tiles, micro-batches, local experts or batches that the schedule cuts into"),
    Column("piece_rows", "1", "rows or tokens of one piece; of all but one where they differ"),
    Column("total_time", "s", "time of the operator, or of the phase asked for"),
    Column("serial_time", "s", "the same with nothing overlapped"),
    Column("compute_time", "s", "stand-alone sum of all computation"),
    Column("comm_time", "s", "stand-alone sum of all communication"),
    Column("compute_stretch", "s", "by how much communication slows computation down"),
    Column("exposed_comm_time", "s", "communication that no computation covers"),
    Column("free_time", "s", "time in which neither runs, as waiting for the host"),
    Column("host_time", "s", "time the host needs to issue every kernel"),
    Column("comm_ratio", "1", "exposed_comm_time / total_time"),
    Column("hidden_ratio", "1", "share of the communication that computation covers"),
    Column("overlap_efficiency", "1", "saved time / min(comm_time, compute_time)"),
    Column("speedup", "1", "serial_time / total_time"),
    Column("ceiling", "1", "most that overlap can give: serial_time / max(comm_time, compute_time), uncut"),
    Column("tokens_per_second", "1/s", "tokens per NPU / total_time"),
    Column("mfu", "1", "model FLOPs, nothing computed twice, over what the cubes could do at their peak"),
    Column("bubble_share", "1", "share of a whole step in which the slowest stage waits for the pipeline"),
    Column("time_per_output_token", "s", "of a decode step: total_time / tokens it yields per sequence"),
    Column(
        "time_to_first_token", "s", "of a prefill: total_time of all its prompts, nothing waiting before it"
    ),
    Column("flat_first", "1", "smallest count whose time is within 2 % of the best"),
    Column("flat_last", "1", "largest count up to which all are within 2 % of the best"),
    Column("imbalance", "1", "rows of the busiest rank over the mean of all ranks, as --skew says"),
    Column("hottest_expert", "1", "rows of the busiest expert or copy over the mean of all"),
    Column("rest_rows", "1", "rows of the one piece that holds what is left; empty: all are equal"),
    Column("rest_first", "1", "1 if that piece runs first, 0 if it runs last; empty: all are equal"),
)
"""Numbers of a schedule."""

WORDS = (
    Column("bound", "", "what the time hangs on: compute, memory, comm, latency or host"),
    Column("legal", "", "yes, or no if there is no answer"),
    Column("reason", "", "why there is no answer, or why the schedule equals serial"),
)
"""Words about a schedule."""

PLANNER = (
    Column("npus", "1", "NPUs of the layout: servers x NPUs per server"),
    Column("total_time_without_comm", "s", "compute_time and free_time alone: communication as if free"),
    Column("tokens_per_second_without_comm", "1/s", "tokens per NPU / total_time_without_comm"),
    Column("npus_needed", "1", "NPUs for the target rate, whole layouts"),
    Column("npus_needed_without_comm", "1", "the same if communication were free"),
    Column("servers_needed", "1", "servers for the target rate"),
    Column("servers_needed_without_comm", "1", "the same if communication were free"),
    Column("cost_per_million_tokens", "1", "price of a million tokens, in the currency of the price"),
    Column("cost_per_million_tokens_without_comm", "1", "the same if communication were free"),
)
"""What a capacity planner adds up, with and without communication side by side."""

MEMORY = (
    Column("memory_bytes", "B", "what an NPU of the fullest pipeline stage holds"),
    Column("memory_capacity", "B", "memory of an NPU"),
)
"""Does it fit?"""

PROVENANCE = (
    Column("warnings", "", "codes of the warnings that apply to this row"),
    Column("profile_hash", "", "fingerprint of every number of the hardware profile, overrides included"),
    Column("tool_version", "", "version of mc2perf"),
    Column("expected_error_median", "1", "median error of validated answers like this row; empty: none"),
    Column("expected_error_worst", "1", "largest error of validated answers like this row"),
    Column("validated_rows", "1", "measured rows like this one that were validated"),
)
"""Where a row comes from."""

OF_SCHEDULE = (
    "schedule", "pieces", "piece_rows", "total_time", "serial_time", "compute_time", "comm_time",
    "compute_stretch", "exposed_comm_time", "free_time", "host_time", "comm_ratio", "hidden_ratio",
    "overlap_efficiency", "speedup", "ceiling", "tokens_per_second", "bound", "reason", "mfu", "bubble_share",
    "time_per_output_token", "rest_rows", "rest_first", "time_to_first_token",
)  # fmt: skip
"""What an answer says of every schedule, in the order of its records; names are only ever appended."""

LOWER_IS_BETTER = (
    "total_time", "serial_time", "compute_time", "comm_time", "exposed_comm_time", "free_time", "host_time",
    "comm_ratio", "compute_stretch", "total_time_without_comm", "npus_needed", "servers_needed",
    "cost_per_million_tokens", "npus_needed_without_comm", "servers_needed_without_comm",
    "cost_per_million_tokens_without_comm", "npus", "memory_bytes", "time_per_output_token",
    "time_to_first_token",
)  # fmt: skip
HIGHER_IS_BETTER = (
    "tokens_per_second", "tokens_per_second_without_comm", "speedup", "hidden_ratio", "overlap_efficiency",
    "mfu",
)  # fmt: skip
METRICS = (*LOWER_IS_BETTER, *HIGHER_IS_BETTER)
"""Columns that rows can be ranked by."""


def input_columns() -> tuple[Column, ...]:
    """A column for every input; ranks, layouts and batches show what they resolve to."""
    numeric = {spec.name: how.dim is not None or isinstance(spec.default, float) for spec, how in inputs()}
    unit = {True: "1", False: ""}
    asked = [Column(s.name, unit[numeric[s.name]], how.help) for s, how in inputs() if s.name != "hardware"]
    return (
        Column("target", "", "operator or model"),
        Column("hardware", "", "hardware profile"),
        *asked,
    )


@cache
def dictionary() -> tuple[Column, ...]:
    """Every column, in the order of files.

    Examples
    --------
    >>> [column.name for column in dictionary()][:3]
    ['target', 'hardware', 'phase']
    """
    return (*input_columns(), *RESULTS, *WORDS, *PLANNER, *PROVENANCE, *MEMORY)


@cache
def answer_columns() -> tuple[Column, ...]:
    """The columns of one answer as CSV: a row per schedule, between what all rows say alike.

    Examples
    --------
    >>> [column.title for column in answer_columns()][3:7]
    ['schedule', 'pieces', 'piece_rows', 'total_time(s)']
    """
    by_name = {column.name: column for column in dictionary()}
    errors = ("expected_error_median", "expected_error_worst", "validated_rows")
    return tuple(by_name[name] for name in ("target", "hardware", "tool_version", *OF_SCHEDULE, *errors))
