"""What a message costs by latency and bandwidth: exchanges of tokens, sends, engines without curves."""

from __future__ import annotations

import numpy as np

from mc2perf.costs.cost import Cost
from mc2perf.costs.setting import Setting
from mc2perf.equations import collectives
from mc2perf.machine.links import Tier
from mc2perf.units import Num


def send(on: Setting, label: str, size: Num, distance: float) -> Cost:
    """Price a message from one rank to another.

    Parameters
    ----------
    label : str
        What it is for.
    size : number or array
        Bytes. [B]
    distance : float
        Ranks between sender and receiver: beyond a server it goes over the outer links.
    """
    at, tier = on.tiers_for(distance + 1.0)[-1]
    engine_name, engine = on.engine_of(tier, "")
    path = f"tiers.{at}"
    for part in ("links", "link_rate"):
        on.ledger.use(f"{path}.{part}", getattr(tier, part))
    on.ledger.use(f"{path}.engines.{engine_name}.host_launch", engine.host_launch)
    # engines known by the curves of their collectives send at the rate of the link
    latency, efficiency = (engine.wires.latency, engine.wires.efficiency) if engine.wires else (0.0, 1.0)
    if engine.wires:
        on.ledger.use(f"{path}.engines.{engine_name}.wires", engine.wires)
    work = on.ledger.run(
        f"{label}: time", collectives.send_time,
        size=size, latency=latency, bandwidth=link_bandwidth(tier, 2.0) * efficiency,
    )  # fmt: skip
    return Cost(work, engine.host_launch)


def on_wires(
    on: Setting,
    label: str,
    name: str,
    at: str,
    tier: Tier,
    size: Num,
    ranks: float,
    messages: float = 0.0,
    rows: Num = 0.0,
) -> Cost:
    """Latency and bandwidth; ``messages`` overrides the steps of an all-to-all between servers."""
    engine_name, engine = on.engine_of(tier, name)
    wires = engine.wires
    assert wires is not None
    path = f"tiers.{at}"
    for field_name in ("links", "link_rate"):
        on.ledger.use(f"{path}.{field_name}", getattr(tier, field_name))
    on.ledger.use(f"{path}.engines.{engine_name}.wires", engine.wires)
    on.ledger.use(f"{path}.engines.{engine_name}.host_launch", engine.host_launch)
    wiring = "switch" if tier.wiring == "pcie" else tier.wiring
    key = (wiring, collectives.pattern(name))
    bandwidth = link_bandwidth(tier, ranks) * wires.efficiency
    if name == "all_to_all" and np.all(np.isfinite(wires.per_peer)):
        work = on.ledger.run(
            f"{label}: time", collectives.posted_exchange_time,
            size=size, ranks=ranks, messages=messages or ranks - 1.0, rows=rows, latency=wires.latency,
            per_peer=wires.per_peer, per_row=wires.per_row, bandwidth=bandwidth,
        )  # fmt: skip
        # the next piece of a fused kernel is posted while this one is on its way: latency counts once
        return Cost(work - wires.latency, wires.latency + engine.host_launch)
    steps = messages if messages and name == "all_to_all" else collectives.STEPS[key](ranks)
    work = on.ledger.run(
        f"{label}: time", collectives.latency_bandwidth_time,
        size=size, ranks=ranks, passes=collectives.PASSES[name], steps=steps,
        hops=collectives.HOPS.get(key, collectives.one_hop)(ranks), latency=wires.latency,
        bandwidth=bandwidth,
    )  # fmt: skip
    return Cost(work, engine.host_launch)


def link_bandwidth(tier: Tier, ranks: float) -> float:
    """Bandwidth of one rank towards a group: on a mesh only the links to its peers. [B/s]"""
    used = (ranks - 1) / (tier.ranks - 1) if tier.wiring == "full_mesh" else 1.0
    return tier.link_rate * tier.links * used
