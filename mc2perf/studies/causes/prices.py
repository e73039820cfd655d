"""How much a cause could explain: estimates under other inputs, or what the files say of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from mc2perf.answer import Row
from mc2perf.costs import link_bandwidth
from mc2perf.machine import Machine
from mc2perf.machine.links import Engine
from mc2perf.skew import Factor
from mc2perf.studies.causes.pair import Pair, Price
from mc2perf.units import show

Priced = Callable[[float], float | None]


def solved(priced: Priced, wanted: float, most: float) -> tuple[float, float]:
    """The factor from 1 to ``most`` that adds ``wanted`` seconds, or ``most``, and what it adds.

    Examples
    --------
    >>> factor, time = solved(lambda f: 2.0 * (f - 1.0), 3.0, 4.0)
    >>> round(factor, 2), round(time, 2)
    (2.5, 3.0)
    >>> solved(lambda f: 2.0 * (f - 1.0), 30.0, 4.0)
    (4.0, 6.0)
    """
    low, high = 1.0, most
    added = priced(high)
    if added is None or added <= wanted:
        return high, added or 0.0
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        at = priced(middle)
        if at is None:
            break
        low, high = (middle, high) if at < wanted else (low, middle)
    return high, priced(high) or 0.0


STEPS = 10
"""Halvings of a factor: to a fraction of a per cent."""

SLOWEST = 64.0
"""Links that are slower by more do not work."""

SLOWEST_LAUNCH = 20.0
"""A host that waits for every kernel takes this much longer for a launch than one that runs ahead."""

CONTENDED = 4.0
"""No engine takes more than three quarters of a machine from the other."""


def _even(factor: float, most: float) -> str:
    """Say it if the largest factor is not enough to explain what is left."""
    return "not enough even if " if factor >= most else "if "


def _added(pair: Pair, machine: Machine | None = None, part: str = "step", **changes: object) -> float | None:
    """What a part of the predicted step grows by; the whole step where parts are not told apart."""
    row = pair.told.priced(machine, **changes)
    if row is None:
        return None
    tell = PARTS[part if pair.in_parts and not pair.fused else "step"]
    return tell(row) - tell(pair.told.row)


PARTS: dict[str, Callable[[Row], float]] = {
    "step": lambda row: row.total_time,
    "compute": lambda row: row.compute_time + row.compute_stretch,
    "exposed": lambda row: row.exposed_comm_time,
}
"""Parts of a predicted step that a price may act on."""


def by_imbalance(pair: Pair, left: float) -> Price:
    """At the load that was counted, else at the one that would explain what is left."""
    known, group = pair.seen.imbalance, pair.told.study.group
    most = group.most if group else 1.0
    if not math.isnan(known):
        return Price(
            _added(pair, skew=Factor.of(min(max(known, 1.0), most))) or 0.0,
            f"at the measured {known:.3g} x the mean",
        )
    factor, time = solved(lambda f: _added(pair, skew=Factor.of(f)), left, most)
    return Price(time, f"{_even(factor, most)}the busiest rank carried {factor:.3g} x the mean")


def by_links(pair: Pair, left: float) -> Price:
    """Transit beyond the prediction, else links so slow that they explain what is left."""
    seen = pair.seen
    if not math.isnan(seen.transfer):
        factor = seen.transfer / pair.told.row.comm_time
        return Price(seen.transfer - pair.told.row.comm_time, f"transfers take {factor:.2f} x the prediction")
    factor, time = solved(lambda f: _added(pair, _slower_links(pair, f), "exposed"), left, SLOWEST)
    at, tier = pair.tiers()[-1]
    rate = show(link_bandwidth(tier, float(tier.ranks)) / factor, "B/s", 3)
    return Price(
        time,
        f"{_even(factor, SLOWEST)}links were {factor:.3g} x slower: {rate} an NPU on tier {at}",
    )


def _slower_links(pair: Pair, factor: float) -> Machine:
    used = {name for name, _ in pair.tiers()}
    machine = pair.told.machine
    tiers = {
        name: replace(tier, link_rate=tier.link_rate / factor) if name in used else tier
        for name, tier in machine.tiers.items()
    }
    return replace(machine, tiers=tiers)


def by_contention(pair: Pair, left: float) -> Price:
    """A slow-down of computation beside communication that would explain what is left."""
    factor, time = solved(lambda f: _added(pair, _contended(pair, f), "compute"), left, CONTENDED)
    return Price(
        time, f"{_even(factor, CONTENDED)}computation ran {factor:.3g} x slower beside communication"
    )


def _contended(pair: Pair, factor: float) -> Machine:
    def slowed(engine: Engine) -> Engine:
        return replace(engine, compute_under_comm=engine.compute_under_comm * factor)

    machine = pair.told.machine
    tiers = {
        name: replace(tier, engines={key: slowed(engine) for key, engine in tier.engines.items()})
        for name, tier in machine.tiers.items()
    }
    return replace(machine, tiers=tiers)


def by_host(pair: Pair, left: float) -> Price:
    """What one launch would have to take."""
    per_launch = float(pair.told.machine.host.launch(pair.told.scenario.phase)[1])
    if not per_launch:
        return Price(math.nan, "not priced: the profile says that a launch takes no time")
    launches = pair.told.row.host_time / per_launch
    if not launches:
        eager = _added(pair, host="eager") or 0.0
        return Price(eager, "if the host issues every kernel instead of replaying a graph")
    each = pair.seen.step / launches
    said = f"{show(per_launch, 's', 3)} is assumed"
    if pair.in_parts:
        if each <= SLOWEST_LAUNCH * per_launch:
            return Price(left, f"if a launch took {show(each, 's', 3)} of the host, {said}")
        return Price(left, "if the host waits, as for counts read back; its launches alone are too few")
    most = min(each, SLOWEST_LAUNCH * per_launch)
    added = max(launches * most - pair.told.row.total_time, 0.0)
    even = _even(each / per_launch, SLOWEST_LAUNCH)
    return Price(added, f"{even}a launch took {show(most, 's', 3)} of the host, {said}")


def by_preparing(pair: Pair, left: float) -> Price:
    """Time before the first task on the device."""
    return Price(pair.seen.preparing, "Preparing of the trace")


def by_rdma(pair: Pair, left: float) -> Price:
    """Fused operators that fall back to serial."""
    added = _added(pair, rdma=False)
    if added is None or added <= 0.0:
        return Price(math.nan, "not priced: the rate of TCP is in no profile")
    return Price(added, "the fused operators would run serial; the lower rate of TCP comes on top")


def by_fell_back(pair: Pair, left: float) -> Price:
    """The serial time instead."""
    return Price(
        pair.told.serial.total_time - pair.told.row.total_time, "the step would take its serial time"
    )


def by_waiting(pair: Pair, left: float) -> Price:
    """Communication that is no transfer."""
    seen = pair.seen
    if not math.isnan(seen.waiting):
        return Price(seen.waiting, "all waiting in communication.json")
    if not math.isnan(seen.least_exposed):
        own = seen.exposed - seen.least_exposed
        return Price(own, "exposed beyond what the least waiting rank shows in the same step")
    return Price(math.nan, "at most; one rank does not tell waiting from transfer")


def by_this_rank(pair: Pair, left: float) -> Price:
    """What this rank computes longer than the usual one."""
    seen = pair.seen
    return Price(
        seen.compute - seen.usual_compute, f"the usual rank computes {show(seen.usual_compute, 's')}"
    )


def by_whole_step(pair: Pair, left: float) -> Price:
    """The same layers in a whole step of one micro-batch per replica."""
    resolved = pair.told.answer.resolved
    scenario = pair.told.scenario
    replicas = float(str(resolved["npus"])) / (scenario.tp * scenario.cp * scenario.pp)
    batch = replicas * float(str(resolved["batch_size"]))
    return Price(_added(pair, global_batch_size=batch) or 0.0, f"in a step of {batch:g} samples")


def by_recompute(pair: Pair, left: float) -> Price:
    """Everything computed twice."""
    return Price(_added(pair, recompute="full") or 0.0, "with full recompute")


def by_kernels(pair: Pair, left: float) -> Price:
    """How much slower all computation would be."""
    compute = pair.told.row.compute_time + pair.told.row.compute_stretch
    return Price(math.nan, f"at most; all computation would take {1.0 + left / compute:.2f} x its time")


def by_not_steady(pair: Pair, left: float) -> Price:
    """The step of the trace beyond one of the log."""
    seen = pair.seen
    if not math.isnan(seen.steady_step) and seen.step > seen.steady_step:
        return Price(
            seen.step - seen.steady_step, f"a steady step of the log takes {show(seen.steady_step, 's')}"
        )
    return Price(math.nan, "at most; one step does not show whether it is steady")


def by_bubble(pair: Pair, left: float) -> Price:
    """Receive waits beyond the predicted ones."""
    return Price(pair.seen.bubble - pair.told.bubble, "receive waits of the trace")


def by_at_most(pair: Pair, left: float) -> Price:
    """No input of the model stands for it."""
    return Price(math.nan, "at most")
