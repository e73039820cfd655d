"""Parallel layout of a row: replicas from NPUs, and what contradicts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from mc2perf.measurement import Plain
from mc2perf.validating.questions import number


def degree(question: Mapping[str, Plain], *names: str) -> float:
    """Product of parallel degrees, 1 for those not stated."""
    found = 1.0
    for name in names:
        found *= number(question.get(name, 1))
    return found


def replicas(question: Mapping[str, Plain]) -> float:
    """Data-parallel ranks: stated, or what the NPUs leave, or what expert parallelism needs."""
    replica = degree(question, "tp", "cp", "pp")
    ranks = question.get("dies", question.get("npus"))
    if "dp" in question:
        return number(question["dp"])
    if ranks is not None:
        return number(ranks) / replica
    return max(1.0, degree(question, "ep") / degree(question, "tp", "cp"))


def of_all_replicas(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Sequences of the fullest replica, which the others wait for, where requests are of several."""
    dp = replicas(question)
    if "requests" not in question or "batch_size" in question or dp == 1.0:
        return {}
    return {"batch_size": ceil(number(question["requests"]) / dp)}


def contradictions(question: Mapping[str, Plain], dp: float) -> Iterator[str]:
    """Layout and batch that the row states twice."""
    ranks, layout = question.get("dies", question.get("npus")), degree(question, "tp", "cp", "pp") * dp
    if dp != int(dp):
        yield f"npus: {ranks} do not divide by tp x cp x pp = {layout / dp:g}"
    elif ranks is not None and number(ranks) != layout:
        yield f"npus: {ranks} are not tp x cp x pp x dp = {layout:g}"
    if "nodes" in question and ranks is None and "dp" not in question:
        yield f"npus: {question['nodes']} nodes without npus or dp leave the layout open"
    if {"global_batch_size", "micro_batches"} <= question.keys():
        samples = degree(question, "micro_batches", "micro_batch_size") * dp
        if samples != number(question["global_batch_size"]):
            yield f"global_batch_size: {question['global_batch_size']} is not that of {samples:g} samples"
