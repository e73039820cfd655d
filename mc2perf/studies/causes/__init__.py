"""What could explain a residual: rules as rows, priced with the model where it has the input for it.

A rule says which part of the step it acts on, what in the files speaks for it or against it, how much of the
residual it could explain, and which observation would confirm it. Nothing is fitted away: a cause is a
candidate until its observation is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mc2perf.studies.causes import evidence, prices
from mc2perf.studies.causes.evidence import AGAINST, CLOSE, FOR
from mc2perf.studies.causes.pair import Evidence, Pair, Price
from mc2perf.units import show

__all__ = ["CAUSES", "Cause", "Explanation", "Pair", "explanations", "faster"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One rule."""

    name: str
    part: str
    applies: Callable[[Pair], bool]
    evidence: Callable[[Pair], Evidence]
    price: Callable[[Pair, float], Price]
    confirm: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A cause as it applies: what it could explain [s], of how much, what speaks for it, what to look at.

    ``priced`` says that the model or the files give the time; else it is the most that the cause could be.
    """

    cause: str
    part: str
    explains: float
    share: float
    priced: bool
    evidence: str
    why: str
    how: str
    confirm: str


NEGLIGIBLE = 0.005
"""Share of the step below which nothing asks for an explanation."""


def explanations(pair: Pair) -> list[Explanation]:
    """Every cause that applies, by how much of the residual it could explain; contradicted ones last."""
    whole = pair.unexplained
    if not whole > NEGLIGIBLE * pair.told.row.total_time:
        return []
    found = [made for cause in CAUSES if (made := _explained(cause, pair, whole))]
    return sorted(found, key=_rank)


def _rank(e: Explanation) -> tuple[bool, float, bool, bool]:
    """Contradicted ones last; then what explains more: a bound that nothing supports counts half."""
    weight = 1.0 if e.priced or e.evidence == FOR else BOUND
    return e.evidence == AGAINST, -round(e.share * weight, 3), e.evidence != FOR, not e.priced


BOUND = 0.5
"""Weight of a cause of which only a bound is known, and no sign."""


def _explained(cause: Cause, pair: Pair, whole: float) -> Explanation | None:
    left = pair.residual(cause.part)
    if not (left > 0.0 and whole > 0.0 and cause.applies(pair)):  # not-a-number is no residual
        return None
    price = cause.price(pair, left)
    time = min(left if math.isnan(price.time) else max(price.time, 0.0), left)
    if time <= 0.0:
        return None
    said = cause.evidence(pair)
    return Explanation(
        cause=cause.name,
        part=cause.part,
        explains=time,
        share=time / whole,
        priced=not math.isnan(price.time),
        evidence=said.word,
        why=said.text,
        how=price.text,
        confirm=cause.confirm,
    )


def _always(pair: Pair) -> bool:
    return True


def _routes(pair: Pair) -> bool:
    resolved = pair.told.answer.resolved
    ranks = max(float(str(resolved.get(name, 1.0))) for name in ("ep", "ranks"))
    return pair.told.gmm > 0.0 and ranks > 1.0


def _trains(pair: Pair, whole: bool) -> bool:
    scenario = pair.told.scenario
    return (
        pair.told.model is not None and scenario.phase == "train"
        and (scenario.global_batch_size is not None) == whole
    )  # fmt: skip


def _fuses(pair: Pair) -> bool:
    return pair.fused


def _needs_rdma(pair: Pair) -> bool:
    return pair.exchanges and pair.told.scenario.rdma and any(tier.needs_rdma for _, tier in pair.tiers())


def _one_by_one(pair: Pair) -> bool:
    return _routes(pair) and pair.seen.gmm == 0.0 and not pair.seen.fused


def _keeps_activations(pair: Pair) -> bool:
    return _trains(pair, True) and pair.told.scenario.recompute == "none"


CAUSES = (
    Cause(
        name="expert imbalance",
        part="step",
        applies=_routes,
        evidence=evidence.of_imbalance,
        price=prices.by_imbalance,
        confirm="tokens by expert and rank (expert hot-spot CSV): largest over mean",
    ),
    Cause(
        name="waiting for a slow rank",
        part="exposed",
        applies=lambda p: p.exchanges,
        evidence=evidence.of_waiting,
        price=prices.by_waiting,
        confirm="cluster_step_trace_time.csv: one rank computes longest, communicates least",
    ),
    Cause(
        name="this rank is slower than the others",
        part="compute",
        applies=lambda p: p.seen.compute > p.seen.usual_compute,
        evidence=evidence.of_this_rank,
        price=prices.by_this_rank,
        confirm="the same rank is slow in every step, however tokens are routed; npu-smi info: clock, power",
    ),
    Cause(
        name="host-bound launches",
        part="free",
        applies=_always,
        evidence=evidence.of_free,
        price=prices.by_host,
        confirm="gaps between kernels close in graph mode, with TASK_QUEUE_ENABLE=2, or without "
        "ASCEND_LAUNCH_BLOCKING",
    ),
    Cause(
        name="a late start: input data, logging, checkpoints",
        part="free",
        applies=lambda p: p.seen.preparing > 0.0,
        evidence=evidence.of_preparing,
        price=prices.by_preparing,
        confirm="Preparing in step_trace_time.csv goes with synthetic data or more loader workers",
    ),
    Cause(
        name="TCP instead of RDMA",
        part="exposed",
        applies=_needs_rdma,
        evidence=evidence.of_rdma,
        price=prices.by_rdma,
        confirm="hccn_tool -i N -roce -s on every NPU; communication.json lists RDMA",
    ),
    Cause(
        name="slow links: congestion, NIC mapping, misaligned buffers",
        part="exposed",
        applies=lambda p: p.exchanges,
        evidence=evidence.of_transfer,
        price=prices.by_links,
        confirm="hccl_test at these sizes; rates by pair in communication_matrix.json; buffers at 128 B",
    ),
    Cause(
        name="contention of computation with communication",
        part="compute",
        applies=lambda p: p.told.row.comm_time > p.told.row.exposed_comm_time,
        evidence=evidence.of_overlapped,
        price=prices.by_contention,
        confirm="the same matmuls are faster in a serial run",
    ),
    Cause(
        name="the fused operators did not run",
        part="step",
        applies=_fuses,
        evidence=evidence.no_fused,
        price=prices.by_fell_back,
        confirm="op_statistic.csv lists AlltoAllvGroupedMatmul, AllGatherMatmul or their like",
    ),
    Cause(
        name="slower kernels: clocks, shapes, formats",
        part="compute",
        applies=_always,
        evidence=evidence.of_kernels,
        price=prices.by_kernels,
        confirm="AI core frequency; aic_mac_ratio in kernel_details.csv; shapes in multiples of 128",
    ),
    Cause(
        name="experts computed one by one",
        part="compute",
        applies=_one_by_one,
        evidence=evidence.no_grouped,
        price=prices.by_at_most,
        confirm="--moe-grouped-gemm is set; op_statistic.csv lists GroupedMatmul",
    ),
    Cause(
        name="recompute",
        part="step",
        applies=_keeps_activations,
        evidence=evidence.of_other_work,
        price=prices.by_recompute,
        confirm="--recompute-granularity is set; forward kernels run twice",
    ),
    Cause(
        name="gradients and optimizer, which the prediction leaves out",
        part="step",
        applies=lambda p: _trains(p, False),
        evidence=evidence.nothing,
        price=prices.by_whole_step,
        confirm="predict the whole step: --global-batch-size",
    ),
    Cause(
        name="warm-up, compilation or the profiler itself",
        part="step",
        applies=_always,
        evidence=evidence.of_steadiness,
        price=prices.by_not_steady,
        confirm="a later step; 'elapsed time per iteration' of a run without profiler",
    ),
    Cause(
        name="pipeline stages that wait for each other",
        part="exposed",
        applies=lambda p: p.seen.bubble > p.told.bubble,
        evidence=lambda p: Evidence(FOR, f"{show(p.seen.bubble, 's')} of receive waits"),
        price=prices.by_bubble,
        confirm="Bubble by stage in cluster_step_trace_time.csv; layers of the slowest stage",
    ),
)
"""Every rule; a new one is a row."""


def faster(pair: Pair) -> Iterator[str]:
    """What to look at if a run beats its prediction."""
    if pair.residual("step") < -CLOSE * pair.told.row.total_time:
        yield (
            "the run is faster than predicted: it may do less (dropped tokens, fewer layers, shorter "
            "sequences, another element type); compare the launch script with the inputs"
        )
