"""What the files of a run say for a cause, or against it."""

from __future__ import annotations

import math

from mc2perf.studies.causes.pair import Evidence, Pair
from mc2perf.studies.observed import Observed
from mc2perf.units import show

SPREAD = 0.05
"""Ranks that differ by more are not equal (the profiler's own analysis takes 5 % as well)."""

EVEN = 0.02
"""Ranks that differ by less are equal."""

FREE = 0.03
"""Share of a step without any work below which it is no matter; above three times it, it is one."""

CLOSE = 0.10
"""A part this close to its prediction needs no explanation."""

FOR, OPEN, AGAINST = "supported", "possible", "contradicted"
"""What the files say of a cause."""


def of_imbalance(pair: Pair) -> Evidence:
    """Expert loads where they were counted, else how unevenly ranks compute."""
    seen = pair.seen
    if not math.isnan(seen.imbalance):
        word = FOR if seen.imbalance > 1.0 + CLOSE else AGAINST
        return Evidence(word, f"expert load {seen.imbalance:.3g} x the mean")
    return _of_compute_spread(seen)


def _of_compute_spread(seen: Observed) -> Evidence:
    spread = seen.compute_spread
    if math.isnan(spread):
        return Evidence(OPEN)
    word = FOR if spread > SPREAD else AGAINST if spread < EVEN else OPEN
    return Evidence(word, f"computing differs by {spread:.1%} over {seen.ranks} ranks")


def of_this_rank(pair: Pair) -> Evidence:
    """How unevenly ranks compute."""
    return _of_compute_spread(pair.seen)


def of_waiting(pair: Pair) -> Evidence:
    """The share of communication that is no transfer, else how unevenly ranks compute."""
    seen = pair.seen
    if not math.isnan(seen.waiting):
        share = seen.waiting / (seen.waiting + seen.transfer)
        word = FOR if share > 0.3 else AGAINST if share < CLOSE else OPEN
        return Evidence(word, f"{share:.0%} of the communication is no transfer")
    return _of_compute_spread(seen)


def of_free(pair: Pair) -> Evidence:
    """The share of the step in which nothing runs."""
    share = pair.seen.free / pair.seen.step
    if math.isnan(share):
        return Evidence(OPEN)
    word = FOR if share > 3 * FREE else AGAINST if share < FREE else OPEN
    return Evidence(word, f"free time is {share:.1%} of the step")


def of_preparing(pair: Pair) -> Evidence:
    """The share of the step before its first task on the device."""
    share = pair.seen.preparing / pair.seen.step
    return Evidence(FOR if share > FREE else OPEN, f"{share:.1%} of the step pass before its first task")


def of_transfer(pair: Pair) -> Evidence:
    """Transit time beside the predicted transfer."""
    ratio = pair.seen.transfer / pair.told.row.comm_time
    if math.isnan(ratio):
        return Evidence(OPEN)
    return Evidence(
        FOR if ratio > 1.0 + CLOSE else AGAINST, f"transit is {ratio:.2f} x the predicted transfer"
    )


def of_rdma(pair: Pair) -> Evidence:
    """Whether bytes went over RDMA at all."""
    seen = pair.seen
    if math.isnan(seen.rdma_bytes):
        return Evidence(OPEN)
    if seen.rdma_bytes:
        return Evidence(
            AGAINST, f"RDMA carries {show(seen.rdma_bytes, 'B', 3)} at {show(seen.rdma_rate, 'B/s', 3)}"
        )
    return Evidence(FOR, "communication.json shows no bytes over RDMA")


def of_kernels(pair: Pair) -> Evidence:
    """Grouped matmuls beside their prediction."""
    seen, told = pair.seen, pair.told
    usual = seen.usual_compute / (told.row.compute_time + told.row.compute_stretch)
    if seen.compute_spread > SPREAD and abs(usual - 1.0) < CLOSE:
        return Evidence(AGAINST, f"the usual rank computes {usual:.2f} x the prediction")
    ratio = seen.gmm / told.gmm if told.gmm and not told.fused else math.nan
    if math.isnan(ratio):
        return Evidence(OPEN)
    word = FOR if ratio > 1.0 + CLOSE else AGAINST
    return Evidence(word, f"grouped matmuls take {ratio:.2f} x the prediction")


def of_other_work(pair: Pair) -> Evidence:
    """Computation that is too long although the grouped matmuls are not."""
    said = of_kernels(pair)
    turned = {FOR: OPEN, AGAINST: FOR}
    return Evidence(turned.get(said.word, OPEN), said.text)


def of_steadiness(pair: Pair) -> Evidence:
    """Whether the step is one of many, and longer than those of the log."""
    seen = pair.seen
    if not math.isnan(seen.steady_step) and seen.steady_step != seen.step:
        word = FOR if seen.step > seen.steady_step * (1.0 + EVEN) else AGAINST
        return Evidence(word, f"the trace's step is {seen.step / seen.steady_step:.2f} x that of the log")
    if seen.steps > 1 or seen.step == seen.steady_step:
        return Evidence(AGAINST, "warm-up is left out already")
    return Evidence(OPEN)


def of_overlapped(pair: Pair) -> Evidence:
    """Whether anything runs beside computation."""
    if not math.isnan(pair.seen.gain):
        gained, told = pair.seen.gain, pair.told.row.speedup
        word = FOR if gained < told * (1.0 - EVEN) else AGAINST
        return Evidence(word, f"tiles gain {gained:.2f}x, {told:.2f}x is predicted")
    share = pair.seen.overlapped / pair.seen.communication
    if math.isnan(share):
        return Evidence(OPEN)
    return Evidence(AGAINST if share < EVEN else OPEN, f"{share:.0%} of the communication is overlapped")


def nothing(pair: Pair) -> Evidence:
    """No file tells."""
    return Evidence(OPEN)


def no_fused(pair: Pair) -> Evidence:
    """Whether kernels of MC2 are among those that ran."""
    if pair.seen.gain > 1.0 + EVEN:
        return Evidence(AGAINST, f"tiles gain {pair.seen.gain:.2f}x")
    if math.isnan(pair.seen.fused):
        return Evidence(OPEN)
    return Evidence(AGAINST if pair.seen.fused else FOR, _fused_text(pair.seen))


def _fused_text(seen: Observed) -> str:
    return f"fused kernels take {show(seen.fused, 's')}" if seen.fused else "there are no fused kernels"


def no_grouped(pair: Pair) -> Evidence:
    """Kernels were listed, and none multiplies all experts at once."""
    return Evidence(FOR, "there are no grouped matmuls among the kernels")
