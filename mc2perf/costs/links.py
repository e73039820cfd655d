"""What a collective costs: over the links inside a server, beyond it, or both."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mc2perf.costs.cost import NO_ROWS, Copies, Cost
from mc2perf.costs.curves import Fitted
from mc2perf.costs.setting import Setting
from mc2perf.costs.wires import on_wires
from mc2perf.machine.links import Tier
from mc2perf.units import Num, show


def collective(
    on: Setting,
    label: str,
    name: str,
    size: Num,
    ranks: float,
    copies: Copies | None = None,
    stride: float = 1.0,
    launched: bool = True,
) -> Cost:
    """Price a collective of a whole array over a group of ranks.

    Parameters
    ----------
    label, name : str
        What it is for; ``all_gather``, ``reduce_scatter``, ``all_reduce`` or ``all_to_all``.
    size : number or array
        Bytes of the whole array. [B]
    ranks : float
        Participants; one costs 0.
    copies : Copies, optional
        Of an all-to-all of tokens: its rows, and what engines that de-duplicate leave of them.
    stride : float
        Distance between neighbours of the group: 1 for ranks side by side, tp for data parallelism.
    launched : bool
        Whether the host launches it; inside a kernel what the host adds is not worked out.
    """
    if ranks <= 1:
        return Cost(0.0 * size, 0.0)
    (inner_name, inner), *outer = on.tiers_for(ranks * stride)
    inside = min(ranks, max(float(inner.ranks) // stride, 1.0))
    far_name, far = (outer or list(on.machine.tiers.items()))[-1]
    rows, per_rank, per_server = copies if copies and name == "all_to_all" else NO_ROWS
    near_engine = on.engine_of(inner, name)[1]
    if inside == 1 or near_engine.leaves_server:
        return on_wires(on, label, name, far_name, far, size, ranks, rows=rows)
    near_share: Num = per_rank if near_engine.deduplicates else 1.0
    if inside == ranks:
        near_size, near_rows = size * near_share, rows * near_share
        return _on_tier(on, label, name, inner_name, inner, near_size, inside, launched, near_rows)
    servers = math.ceil(ranks / inside)
    far_share: Num = 1.0 if name == "all_to_all" else 1.0 / inside
    if copies and on.engine_of(far, name)[1].deduplicates:
        # a token crosses to a server once; there its copies are spread over the links inside
        far_share = per_server
    elif name == "all_to_all":
        near_share = near_share * inside / ranks
    near = _on_tier(
        on, f"{label} inside", name, inner_name, inner, size * near_share, inside, rows=rows * near_share
    )
    across = on_wires(
        on, f"{label} across", name, far_name, far, size * far_share, servers, ranks - inside,
        rows * far_share,
    )  # fmt: skip
    if on.machine.tiers_run == "in_turn":
        return Cost(near.work + across.work, near.launch + across.launch)
    return Cost(np.maximum(near.work, across.work), np.maximum(near.launch, across.launch))


def _on_tier(
    on: Setting,
    label: str,
    name: str,
    at: str,
    tier: Tier,
    size: Num,
    ranks: float,
    launched: bool = True,
    rows: Num = 0.0,
) -> Cost:
    """By the engine's curve where it has one, else by its wires."""
    engine_name, engine = on.engine_of(tier, name)
    if name not in engine.curves:
        return on_wires(on, label, name, at, tier, size, ranks, rows=rows)
    path = f"tiers.{at}.engines.{engine_name}"
    curve = engine.curves[name]
    for p, seen in curve.sizes.items():
        if p == ranks:
            on.note_unseen(f"{path}.curves.{name}.ranks.{p}", size, seen, lambda s: show(s, "B"))
    for part in ("links", "link_rate"):
        on.ledger.use(f"tiers.{at}.{part}", getattr(tier, part))
    on.ledger.use(f"{path}.fitted_at", engine.fitted_at)
    slower = engine.fitted_at / (tier.links * tier.link_rate)
    where = f"{path}.curves.{name}"
    called = Fitted(on, label, f"{where}.ranks", engine, curve.rank_rule, curve.ranks, ranks, slower)
    if not curve.device:
        time = called.time(size)
        on.ledger.use(f"{path}.host_launch", engine.host_launch)
        launch = np.minimum(engine.host_launch, time)
        return Cost(time - launch, launch)
    on_device = replace(called, label=f"{label} on the device", path=f"{where}.device", fits=curve.device)
    device = on_device.time(size)
    if not launched:
        return Cost(device, 0.0)
    # what the host adds was measured on the fitted links and does not change with them
    time = replace(called, slower=1.0).time(size)
    as_fitted = replace(on_device, slower=1.0).time(size) if np.any(np.not_equal(slower, 1.0)) else device
    return Cost(device, np.maximum(time - as_fitted, 0.0))
