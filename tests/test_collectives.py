"""Collectives against steps played one by one, and the rules that serve other numbers of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.costs import Copies, Costs, Ledger
from mc2perf.equations import collectives as eq
from mc2perf.machine import Machine
from mc2perf.machine.links import Tier, Wires
from mc2perf.model import Experts
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.workload.routing import Routing

quick = settings(max_examples=60, deadline=None)
MIB = 2.0**20
sizes = st.floats(1024.0, 2.0**30)

# --- steps played one by one


def ring_all_gather(size: float, ranks: int, latency: float, rate: float) -> float:
    """Every rank passes the block it got last to its neighbour until all have all."""
    held = [{rank} for rank in range(ranks)]
    now, sent = 0.0, list(range(ranks))
    while any(len(blocks) < ranks for blocks in held):
        now += latency + size / ranks / rate
        sent = [sent[rank - 1] for rank in range(ranks)]
        for rank in range(ranks):
            held[rank].add(sent[rank])
    return now


def mesh_all_gather(size: float, ranks: int, latency: float, rate: float) -> float:
    """One step: a link to each peer, all at once; ``rate`` is the sum of a rank's links."""
    link = rate / (ranks - 1)
    return max(latency + size / ranks / link for _ in range(ranks - 1))


def pairwise_all_to_all(size: float, ranks: int, latency: float, rate: float) -> float:
    """Behind a switch: in step s rank r exchanges with r xor s (or r + s), one block each."""
    return sum(latency + size / ranks / rate for _ in range(1, ranks))


def doubling_all_gather(size: float, ranks: int, latency: float, rate: float) -> float:
    """Recursive doubling: the block exchanged doubles every step, up to what is missing."""
    now, have = 0.0, 1
    while have < ranks:
        block = min(have, ranks - have)
        now += latency + block * size / ranks / rate
        have += block
    return now


def ring_all_to_all(size: float, ranks: int, latency: float, rate: float) -> float:
    """One-way ring: the block for a peer at distance d occupies d links; the links share the work evenly."""
    carried = sum(distance * size / ranks for distance in range(1, ranks))
    return (ranks - 1) * latency + carried / rate


PLAYED = {
    ("ring", "all_gather"): ring_all_gather,
    ("full_mesh", "all_gather"): mesh_all_gather,
    ("full_mesh", "all_to_all"): mesh_all_gather,
    ("switch", "all_gather"): doubling_all_gather,
    ("switch", "all_to_all"): pairwise_all_to_all,
    ("ring", "all_to_all"): ring_all_to_all,
}


def hockney(wiring: str, collective: str, size: Any, ranks: float, latency: float, rate: float) -> Any:
    key = (wiring, eq.pattern(collective))
    return eq.latency_bandwidth_time(
        size=size, ranks=ranks, passes=eq.PASSES[collective], steps=eq.STEPS[key](ranks),
        hops=eq.HOPS.get(key, eq.one_hop)(ranks), latency=latency, bandwidth=rate,
    )  # fmt: skip


def test_every_row_of_steps_is_played() -> None:
    assert set(PLAYED) == set(eq.STEPS)


@pytest.mark.parametrize(("wiring", "pattern"), eq.STEPS)
@quick
@given(sizes, st.integers(2, 64), st.floats(0.0, 1e-4), st.floats(1e9, 1e12))
def test_latency_and_bandwidth_equal_the_steps(
    wiring: str, pattern: str, size: float, ranks: int, latency: float, rate: float
) -> None:
    played = PLAYED[wiring, pattern](size, ranks, latency, rate)
    assert hockney(wiring, pattern, size, float(ranks), latency, rate) == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("wiring", ["ring", "full_mesh", "switch"])
@quick
@given(sizes, st.integers(1, 64).map(float), st.floats(0.0, 1e-4), st.floats(1e9, 1e12))
def test_all_reduce_is_reduce_scatter_and_all_gather(
    wiring: str, size: float, ranks: float, latency: float, rate: float
) -> None:
    where = (size, ranks, latency, rate)
    both = hockney(wiring, "reduce_scatter", *where) + hockney(wiring, "all_gather", *where)
    assert hockney(wiring, "all_reduce", *where) == pytest.approx(both, rel=1e-12)


# --- homogeneity of every row


@pytest.mark.parametrize("wiring", ["ring", "full_mesh", "switch"])
@pytest.mark.parametrize("collective", eq.PASSES)
@quick
@given(sizes, st.integers(1, 64).map(float), st.floats(1e-7, 1e-4), st.integers(-20, 20))
def test_wires_scale_with_the_clock_and_with_size(
    wiring: str, collective: str, size: float, ranks: float, latency: float, power: int
) -> None:
    c = 2.0**power
    time = hockney(wiring, collective, size, ranks, latency, 1e11)
    assert hockney(wiring, collective, size, ranks, latency * c, 1e11 / c) == time * c
    free = hockney(wiring, collective, size, ranks, 0.0, 1e11)
    assert hockney(wiring, collective, size * c, ranks, 0.0, 1e11) == free * c


@pytest.mark.parametrize("name", eq.RANK_RULES)
def test_a_rank_rule_keeps_the_eight_it_was_made_for_and_takes_columns(name: str) -> None:
    rule = eq.RANK_RULES[name]
    half = 2.0 if name.endswith("_half") else 1.0
    assert rule.weight(8.0) == 1.0
    assert rule.divisor(8.0) == pytest.approx(half, rel=1e-15)
    ranks = np.array([1.0, 2.0, 4.0, 8.0, 64.0])
    for part in (rule.weight, rule.divisor):
        assert np.array_equal(part(ranks), np.array([part(p) for p in ranks]))
        assert np.all(np.asarray(part(ranks)) > 0.0)


@pytest.mark.parametrize(("name", "two", "sixteen"), [
    ("mesh_half", 0.5, 4.0),  # n / 4 (hccl_performance.cpp)
    ("ring", 1.75, 0.875 / (15 / 16)),  # (7/8) / ((n-1)/n)
    ("ring_half", 3.5, 1.75 / (15 / 16)),  # 2 (7/8) / ((n-1)/n)
])  # fmt: skip
def test_factors_of_the_vendor(name: str, two: float, sixteen: float) -> None:
    rule = eq.RANK_RULES[name]
    assert rule.divisor(2.0) == pytest.approx(two)
    assert rule.divisor(16.0) == pytest.approx(sixteen)
    assert rule.weight(2.0) == 1.0


@quick
@given(sizes, st.floats(1e-6, 1e-4), st.floats(1e-12, 1e-9), st.integers(-20, 20))
def test_a_band_scales_with_the_clock(size: float, constant: float, slope: float, power: int) -> None:
    c = 2.0**power
    time = eq.band_time(size, constant, slope, slope * 1e-10, constant * 3)
    assert (
        eq.band_time(size, constant * c, slope * c, slope * 1e-10 * c, constant * 3 * c)
        == np.float64(time) * c
    )


@quick
@given(st.floats(2.0, 8.0), st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3))
def test_between_two_rank_counts_stays_between(ranks: float, low: float, high: float) -> None:
    time = eq.interpolated_over_ranks(ranks, 2.0, 8.0, low, high)
    assert min(low, high) * (1 - 1e-12) <= time <= max(low, high) * (1 + 1e-12)
    assert eq.interpolated_over_ranks(2.0, 2.0, 8.0, low, high) == low
    assert eq.interpolated_over_ranks(8.0, 2.0, 8.0, low, high) == pytest.approx(high, rel=1e-12)
    assert eq.interpolated_over_ranks(4.0, 4.0, 4.0, low, low) == low


# --- whole machines

MACHINES = {name: load_machine(name) for name in profile_names()}


def price(
    machine: Machine, collective: str, size: Any, ranks: float, engine: str | None = None, kept: float = 1.0
) -> Any:
    copies = Copies(0.0, kept, kept) if kept != 1.0 else None
    return Costs(machine, Ledger(), engine).collective("x", collective, size, ranks, copies).time


def posted(size: float, rows: int, ranks: int, wires: Wires, rate: float) -> float:
    """Messages posted one by one, never waiting; then the slower of their bytes and their rows."""
    clock = wires.latency
    for _ in range(ranks - 2):
        clock += wires.per_peer
    leaving = sum(size / ranks for peer in range(ranks) if peer)
    return clock + max(leaving / rate, sum(wires.per_row for _ in range(rows)))


def wires_by_hand(tier: Tier, engine: str, collective: str, size: float, ranks: int) -> float:
    """Launch plus steps over the wires of one tier."""
    at = tier.engines[engine]
    assert at.wires is not None
    peers = (ranks - 1) / (tier.ranks - 1) if tier.wiring == "full_mesh" else 1.0
    rate = tier.link_rate * tier.links * peers * at.wires.efficiency
    if collective == "all_to_all" and np.isfinite(at.wires.per_peer):
        return at.host_launch + posted(size, 0, ranks, at.wires, rate)
    key = ("switch" if tier.wiring == "pcie" else tier.wiring, eq.pattern(collective))
    return at.host_launch + eq.PASSES[collective] * PLAYED[key](size, ranks, at.wires.latency, rate)


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=15, deadline=None)
@given(size=sizes, ranks=st.sampled_from([2, 4, 8]))
def test_engines_without_curves_equal_steps_over_their_wires(name: str, size: float, ranks: int) -> None:
    tier = next(iter(MACHINES[name].tiers.values()))
    if ranks > tier.ranks:
        return
    for engine, at in tier.engines.items():
        if at.leaves_server:
            continue
        for collective in set(at.carries or eq.PASSES) - set(at.curves):
            found = price(MACHINES[name], collective, size, float(ranks), engine)
            assert found == pytest.approx(wires_by_hand(tier, engine, collective, size, ranks), rel=1e-9)


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=15, deadline=None)
@given(size=sizes, more=st.floats(1.0, 4.0), ranks=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]))
def test_no_engine_is_faster_with_more_bytes(name: str, size: float, more: float, ranks: float) -> None:
    machine = MACHINES[name]
    if ranks > list(machine.tiers.values())[-1].ranks:
        return
    for engine in {e for tier in machine.tiers.values() for e in tier.engines}:
        for collective in eq.PASSES:
            small, large = price(machine, collective, np.array([size, size * more]), ranks, engine)
            assert 0.0 <= small <= large * (1 + 1e-12), (engine, collective)


@pytest.mark.parametrize("name", [n for n, m in MACHINES.items() if len(m.tiers) > 1])
@settings(max_examples=15, deadline=None)
@given(size=sizes, servers=st.integers(2, 4))
def test_across_servers_is_inside_and_across(name: str, size: float, servers: int) -> None:
    """An all-to-all splits by where the peers are; the others compose hierarchically."""
    machine = MACHINES[name]
    inner, *_, outer = machine.tiers.values()
    inside, ranks = float(inner.ranks), float(inner.ranks) * servers
    if ranks > outer.ranks or servers > outer.ranks:
        return
    far = outer.engines[outer.engine]
    assert far.wires is not None
    rate = outer.link_rate * outer.links * far.wires.efficiency
    wiring = "switch" if outer.wiring == "pcie" else outer.wiring
    for collective in eq.PASSES:
        everyone = collective == "all_to_all"
        near = price(machine, collective, size * (1 / servers if everyone else 1.0), inside)
        far_size = size if everyone else size / inside
        passes, steps = eq.PASSES[collective], eq.STEPS[wiring, "all_gather"](float(servers))
        steps = ranks - inside if everyone else steps
        across = passes * (steps * far.wires.latency + (servers - 1) / servers * far_size / rate)
        expected = near + across + far.host_launch
        found = price(machine, collective, size, ranks)
        if machine.tiers_run == "in_turn":
            assert found == pytest.approx(expected, rel=1e-9), collective
        else:
            assert max(near, across) * (1 - 1e-12) <= found <= expected * (1 + 1e-12), collective


def test_deduplication_needs_an_engine_that_does_it() -> None:
    for machine in MACHINES.values():
        tiers = list(machine.tiers.values())
        if len(tiers) < 2:
            continue
        ranks = 2.0 * tiers[0].ranks
        whole, kept = (price(machine, "all_to_all", 64 * MIB, ranks, kept=k) for k in (1.0, 0.5))
        drops = tiers[-1].engines[tiers[-1].engine].deduplicates
        assert bool(kept < whole) is drops, machine.name


# --- exchanges of tokens


def test_rows_bound_short_messages_and_bytes_long_ones() -> None:
    """A3, 8 dies: 1024 rows are posted in 62 us; 2 MB are on their way for 11 us, 20 MB for 106 us."""
    die = MACHINES["atlas_800t_a3"]
    wires = die.tiers["node"].engines["ep_low_latency"].wires
    assert wires is not None
    for size in (2e6, 2e7):
        costs = Costs(die, Ledger(), "ep_low_latency")
        found = costs.collective("x", "all_to_all", size, 8.0, Copies(1024.0, 1.0, 1.0))
        assert found.time == pytest.approx(posted(size, 1024, 8, wires, 196e9 * 0.84), rel=1e-9)
        assert found.launch == pytest.approx(54e-6)


def test_engines_carry_what_they_are_made_for() -> None:
    """An all-reduce beside kernels for tokens is that of the default; decode steps take their own engine."""
    for machine in MACHINES.values():
        tier = next(iter(machine.tiers.values()))
        for name, engine in tier.engines.items():
            chosen = Costs(machine, Ledger(), name)
            for collective in eq.PASSES:
                expected = name if collective in (engine.carries or eq.PASSES) else tier.engine
                assert chosen.engine_of(tier, collective)[0] == expected
        decode = Costs(machine, Ledger(), decode=True).engine_of(tier, "all_to_all")[0]
        assert decode == (tier.decode_engine or tier.engine)


def drawn_copies(tokens: int, ranks: int, groups: int, top_groups: int, draws: np.random.Generator) -> Any:
    """Tokens drawn one by one: the distinct ranks and servers of 8 of 256 experts on 8 ranks a server."""
    found = []
    for _ in range(tokens):
        picked = draws.choice(groups, top_groups, replace=False)
        pool = np.concatenate([np.arange(256 // groups) + g * (256 // groups) for g in picked])
        experts = draws.choice(pool, 8, replace=False)
        at = experts // (256 // ranks)
        found.append((len(set(at)), len(set(at // 8))))
    return np.mean(found, axis=0)


@pytest.mark.parametrize(("ranks", "groups", "top_groups"), [(8, 1, 1), (32, 1, 1), (32, 8, 4), (64, 8, 4)])
def test_copies_left_after_deduplication_equal_tokens_drawn(ranks: int, groups: int, top_groups: int) -> None:
    experts = Experts(
        count=256, top_k=8, width=1, shared_width=0, payload_width=64, groups=groups, top_groups=top_groups
    )
    r = Routing(
        experts=experts, hidden_size=64.0, matrices=3.0, tokens=1.0, ep=float(ranks), servers=ranks / 8,
        dtype="bf16", expert_dtype="bf16", dispatch_dtype="bf16", combine_dtype="bf16",
    )  # fmt: skip
    drawn = drawn_copies(4000, ranks, groups, top_groups, np.random.default_rng(1))
    assert [8 * r.kept(ranks), 8 * r.kept(ranks / 8)] == pytest.approx(drawn, rel=0.02)


def test_a_server_gets_a_token_once_and_spreads_its_copies() -> None:
    """H800, 4 servers: 1/4 stays; the NIC carries a third of the copies, NVLink all that differ by rank."""
    h800 = MACHINES["h800_sxm"]
    inside, across = (tier.engines["ep_normal"].wires for tier in h800.tiers.values())
    assert inside is not None and across is not None
    for per_server, per_rank in ((1 / 3, 0.5), (0.1, 1.0)):
        copies = Copies(1e3, per_rank, per_server)
        found = Costs(h800, Ledger(), "ep_normal").collective("x", "all_to_all", 2e8, 32.0, copies).time
        near = 7 / 8 * per_rank * 2e8 / (200e9 * inside.efficiency)
        far = 3 / 4 * per_server * 2e8 / (50e9 * across.efficiency)
        assert found == pytest.approx(26e-6 + max(near, far), rel=1e-9)
