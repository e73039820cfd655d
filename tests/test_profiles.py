"""Hardware profiles: shipped ones against the data sheets, sources, ``extends``, ``--set``, checking."""

# ruff: noqa: E501 - exact lines stand in tables
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from mc2perf.machine import Machine
from mc2perf.problems import InputError
from mc2perf.quantity import KINDS, quantities
from mc2perf.readers.profiles import (
    check_machine,
    find_profile,
    load_machine,
    load_machine_file,
    profile_names,
    resolved_tree,
    shipped_folder,
)

NAMES = [
    "atlas_800i_a2",
    "atlas_800i_a2_32g",
    "atlas_800i_a2_pcie",
    "atlas_800t_a2",
    "atlas_800t_a2_b2",
    "atlas_800t_a3",
    "cloudmatrix384",
    "ascend_950pr",
    "atlas_350",
    "ascend_950dt",
    "a100_sxm_80g",
    "h100_sxm",
    "h800_sxm",
    "b200_sxm",
]


def problems(name: str, overrides: dict[str, str], own: tuple[Path, ...] = ()) -> list[str]:
    with pytest.raises(InputError) as refused:
        load_machine(name, own, overrides)
    return refused.value.problems


def test_the_names_are_these() -> None:
    assert set(NAMES) <= set(profile_names())
    assert {file.stem for file in shipped_folder().iterdir()} == set(profile_names())


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_kind_and_a_reference_that_says_something(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    found = dict(quantities(machine))
    assert len(found) > 30
    for path, quantity in found.items():
        assert quantity.kind in KINDS, path
        assert len(quantity.ref.strip()) >= 8, (path, quantity.ref)
    assert load_machine_file(find_profile(name)) == machine


# cores, clock in GHz, HBM in TB/s and GB, L2 in MiB, ranks per server: hardware.md 1, 2, 3
ASCEND = {
    "atlas_800i_a2": (20, 1.5, 1.6, 64, 96, 8),
    "atlas_800i_a2_32g": (20, 1.5, 0.8, 32, 96, 8),
    "atlas_800i_a2_pcie": (20, 1.5, 0.8, 32, 96, 8),
    "atlas_800t_a2": (20, 1.8, 1.6, 64, 192, 8),
    "atlas_800t_a2_b2": (24, 1.8, 1.6, 64, 192, 8),
    "atlas_800t_a3": (24, 1.8, 1.6, 64, 192, 16),
    "cloudmatrix384": (24, 1.8, 1.6, 64, 192, 16),
    "ascend_950pr": (32, 1.65, 1.6, 128, 128, None),
    "atlas_350": (28, 1.65, 1.4, 112, 128, None),
    "ascend_950dt": (32, 1.65, 4.0, 96, 128, None),
}


@pytest.mark.parametrize("name", ASCEND)
def test_the_cube_is_8192_flop_per_core_and_cycle(name: str) -> None:
    cores, clock, bandwidth, capacity, l2, ranks = ASCEND[name]
    machine = load_machine(name)
    peak = 8192 * cores * clock * 1e9
    assert machine.cube.cores == cores
    assert machine.cube.peak["bf16"] == pytest.approx(peak, rel=0.005)
    assert machine.cube.peak["fp16"] == machine.cube.peak["bf16"]
    assert machine.cube.peak["int8"] == pytest.approx(2 * peak, rel=0.005)
    for dtype, factor in (("fp8", 2), ("mxfp8", 2), ("mxfp4", 4)):
        assert (dtype in machine.cube.peak) is (machine.family == "950"), dtype
        if machine.family == "950":
            assert machine.cube.peak[dtype] == pytest.approx(factor * peak, rel=0.005)
    assert machine.memory.bandwidth == pytest.approx(bandwidth * 1e12)
    assert machine.memory.capacity == pytest.approx(capacity * 1e9)
    assert machine.memory.l2 == l2 * 2**20
    if ranks:
        assert machine.ranks_per_server == ranks
    assert machine.rank == ("die" if machine.family == "a3" else "npu")


# bf16 TFLOP/s, HBM in TB/s and GB, NVLink in GB/s, NIC in GB/s, one direction: hardware.md 4
GPUS = {
    "a100_sxm_80g": (312, 2.04, 80, 300, 25),
    "h100_sxm": (989, 3.35, 80, 450, 50),
    "h800_sxm": (989, 3.35, 80, 200, 50),
    "b200_sxm": (2250, 8.0, 180, 900, 50),
}


@pytest.mark.parametrize("name", GPUS)
def test_gpus_are_those_of_the_data_sheets(name: str) -> None:
    peak, bandwidth, capacity, nvlink, nic = GPUS[name]
    machine = load_machine(name)
    assert machine.cube.peak["bf16"] == pytest.approx(peak * 1e12, rel=0.005)
    assert machine.cube.peak["int8"] == pytest.approx(2 * peak * 1e12, rel=0.005)
    assert machine.memory.bandwidth == pytest.approx(bandwidth * 1e12, rel=0.005)
    assert machine.memory.capacity == pytest.approx(capacity * 1e9)
    inside, outside = machine.tiers.values()
    assert inside.links * inside.link_rate == pytest.approx(nvlink * 1e9)
    assert outside.links * outside.link_rate == pytest.approx(nic * 1e9)
    assert (machine.rank, machine.ranks_per_server) == ("gpu", 8)


LINKS: dict[str, list[tuple[int, float, int | None]]] = {
    "atlas_800i_a2": [(7, 28e9, 8), (1, 25e9, None)],
    "atlas_800i_a2_32g": [(7, 28e9, 8), (1, 25e9, None)],
    "atlas_800i_a2_pcie": [(1, 32e9, 8), (1, 25e9, None)],
    "atlas_800t_a2": [(7, 28e9, 8), (1, 25e9, None)],
    "atlas_800t_a2_b2": [(7, 28e9, 8), (1, 25e9, None)],
    "atlas_800t_a3": [(7, 28e9, 16), (1, 25e9, None)],
    "cloudmatrix384": [(7, 28e9, 768)],
    "atlas_350": [(3, 53e9, 4)],
    "ascend_950dt": [(14, 56e9, 8)],
}


@pytest.mark.parametrize("name", LINKS)
def test_links_in_one_direction(name: str) -> None:
    tiers = list(load_machine(name).tiers.values())
    for tier, (links, rate, ranks) in zip(tiers, LINKS[name], strict=False):
        assert tier.links == links
        assert tier.link_rate == pytest.approx(rate)
        assert ranks in (None, tier.ranks)
    assert [tier.ranks for tier in tiers] == sorted({tier.ranks for tier in tiers})


TREE: dict[Any, Any] = resolved_tree(find_profile("atlas_800i_a2"), (), {})


def sourced(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every ``{value, kind, ref}`` and of every mapping whose numbers inherit a source."""
    if isinstance(tree, dict) and {"kind", "ref"} <= tree.keys():
        return [path]  # what stands below may inherit this one
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, child in items for place in sourced(child, (*path, key))]


def test_every_source_of_a_profile_is_needed() -> None:
    places = sourced(TREE)
    assert len(places) > 20
    for place in places:
        tree = copy.deepcopy(TREE)
        node: Any = tree
        for key in place:
            node = node[key]
        del node["kind"], node["ref"]
        with pytest.raises(InputError) as refused:
            check_machine(tree, "f.yaml")
        dotted = ".".join(map(str, place))
        assert any(
            line.startswith(f"f.yaml: {dotted}")
            and line.endswith("number without a source; write {value, kind, ref}")
            for line in refused.value.problems
        ), refused.value.problems


def test_extends_says_only_what_differs(tmp_path: Path) -> None:
    number = "{value: 100 GB/s, kind: measured, ref: 'my own test'}"
    (tmp_path / "first.yaml").write_text(
        f"extends: atlas_800t_a3\nname: first\ntiers: {{node: {{link_rate: {number}}}}}\nnotes: [mine]\n",
        encoding="utf-8",
    )
    (tmp_path / "second.yaml").write_text(
        "extends: first\nname: second\nmemory: {l2: {value: 1 MiB, kind: assumed, ref: 'a small one'}}\n",
        encoding="utf-8",
    )
    base, second = load_machine("atlas_800t_a3"), load_machine("second", [tmp_path])
    changed = {
        path for (path, new), (_, old) in zip(quantities(second), quantities(base), strict=True) if new != old
    }
    assert changed == {"tiers.node.link_rate", "memory.l2"}
    assert second.notes == ("mine",)
    assert (second.name, second.title) == ("second", base.title)
    assert load_machine_file(tmp_path / "second.yaml", [tmp_path]) == second


def test_loops_and_unknown_bases_are_refused(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "a"), ("own", "own"), ("lost", "nowhere_box")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}\n", encoding="utf-8")
    for name in ("a", "b", "c", "own"):
        (line,) = problems(name, {}, (tmp_path,))
        assert line.endswith("leads back to itself; name another profile")
    (line,) = problems("lost", {}, (tmp_path,))
    assert line.startswith("lost.yaml: extends: hardware: profile 'nowhere_box' is unknown; ")


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("tiers.node.link_rate", "25 GB/s", 25e9),
        ("tiers.node.link_rate", "200 Gbit/s", 25e9),
        ("memory.efficiency", "0.5", 0.5),
        ("cube.peak.bf16", "100 TFLOP/s", 100e12),
        ("cube.cores", "24", 24.0),
        ("tiers.node.engines.measured.round_cost", "3.5 us", 3.5e-6),
        ("tiers.node.engines.measured.curves.all_to_all.ranks.8.1.slope", "1 us/MiB", 1e-6 / 2**20),
        ("tiers.node.engines.measured.curves.all_to_all.ranks.8.0.constant", "1 us", 1e-6),
    ],
)
def test_set_is_typed_and_assumed(path: str, text: str, value: float) -> None:
    before, after = (dict(quantities(load_machine("atlas_800i_a2", (), o))) for o in ({}, {path: text}))
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {path}
    assert after[path] == pytest.approx(value, rel=1e-12)
    assert (after[path].kind, after[path].ref) == ("assumed", "--set")


def test_set_of_words() -> None:
    machine = load_machine("atlas_800i_a2", (), {"tiers.node.engine": "aiv", "tiers.node.wiring": "ring"})
    assert (machine.tiers["node"].engine, machine.tiers["node"].wiring) == ("aiv", "ring")
    assert load_machine("atlas_800i_a2", (), {"tiers.node.engines.aiv.interleaves": "false"})


@pytest.mark.parametrize(
    ("path", "text", "start"),
    [
        ("memory.bandwith", "1 TB/s", "--set memory.bandwith: is no value of this profile; did you mean 'memory.bandwidth'?"),
        ("memory", "1 TB/s", "--set memory: is no value of this profile; "),
        ("tiers.node.link_rate.value", "1 TB/s", "--set tiers.node.link_rate.value: is no value of this profile; did you mean 'tiers.node.link_rate'?"),
        ("tiers.node.link_rate.kind", "measured", "--set tiers.node.link_rate.kind: is no value of this profile"),
        ("tiers.node.engines.measured.curves.all_to_all.ranks.8.99.slope", "1 us/MiB", "--set tiers.node.engines.measured.curves.all_to_all.ranks.8.99.slope: is no value"),
        ("tiers.node.engines.measured.curves.all_to_all.ranks.8", "1", "--set tiers.node.engines.measured.curves.all_to_all.ranks.8: is no value"),
        ("cube.²", "1", "--set cube.²: is no value of this profile"),
        ("..", "1", "--set ..: is no value of this profile"),
        ("tiers.node.link_rate", "25", "atlas_800i_a2.yaml: tiers.node.link_rate: '25' has no unit; write for example 28 GB/s"),
        ("tiers.node.link_rate", "25 GiB", "atlas_800i_a2.yaml: tiers.node.link_rate: '25 GiB' is in B, expected B/s"),
        ("cube.cores", "2.5", "atlas_800i_a2.yaml: cube.cores: '2.5' is not a whole number of at least 1"),
        ("cube.rule", "mesured", "atlas_800i_a2.yaml: cube.rule: 'mesured' is unknown; "),
        ("family", "a4", "atlas_800i_a2.yaml: family: 'a4' is not known; "),
        ("tiers.cluster.ranks", "8", "atlas_800i_a2.yaml: tiers.cluster.ranks: 8 does not reach further than the tier before"),
        ("tiers.node.engines.measured.comm_under_compute", "0.9", "atlas_800i_a2.yaml: tiers.node.engines.measured.comm_under_compute: '0.9' is too small for a factor of at least 1"),
    ],
)  # fmt: skip
def test_set_refused(path: str, text: str, start: str) -> None:
    (line,) = problems("atlas_800i_a2", {path: text})
    assert line.startswith(start)


def test_all_wrong_settings_at_once() -> None:
    assert len(problems("atlas_800i_a2", {"a": "1", "b": "2", "memory.l2": "1 s"})) == 2
    assert (
        len(problems("atlas_800i_a2", {"memory.capacity": "1", "memory.l2": "1 s", "cube.cores": "x"})) == 3
    )


def test_a_check_reports_all_problems(tmp_path: Path) -> None:
    tree = copy.deepcopy(TREE)
    tree["memory"]["bandwith"] = tree["memory"].pop("bandwidth")
    tree["cube"]["peak"]["bf16"] = "245 TFLOP"
    tree["tiers"]["node"]["wiring"] = "star"
    tree["family"] = "a9"
    del tree["host"]
    file = tmp_path / "box.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_machine_file(file)
    assert sorted(line.removeprefix(f"{file}: ").split(": ")[0] for line in refused.value.problems) == [
        "cube.peak.bf16",
        "family",
        "host",
        "memory.bandwidth",
        "memory.bandwith",
        "tiers.node.wiring",
    ]


def test_contradictions_are_found() -> None:
    tree = copy.deepcopy(TREE)
    engine = tree["tiers"]["node"]["engines"]["measured"]
    number = {"kind": "assumed", "ref": "a test's own number"}
    engine["comm_under_compute"] = engine["compute_under_comm"] = {"value": 3, **number}
    engine["curves"]["all_to_all"]["ranks"][8][-1]["up_to"] = "1 KiB"
    del engine["curves"]["all_reduce"]
    tree["tiers"]["node"]["engine"] = "none"
    with pytest.raises(InputError) as refused:
        check_machine(tree, "f.yaml")
    assert len(refused.value.problems) >= 4
    text = "\n".join(refused.value.problems)
    for piece in (
        "overlap would be slower",
        "up_to must rise from more than 0",
        "no curve for all_reduce",
        "engine: 'none' is unknown",
    ):
        assert piece in text


def test_a_machine_is_frozen_and_equal_to_itself() -> None:
    one, two = load_machine("atlas_800i_a2"), load_machine("atlas_800i_a2")
    assert isinstance(one, Machine)
    assert one == two
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]


def test_a_profile_may_be_named_by_its_file_and_extend_one(tmp_path: Path) -> None:
    source = '{value: 40 GB/s, kind: measured, ref: "a wire"}'
    (tmp_path / "deep").mkdir()
    (tmp_path / "box.yaml").write_text(f"extends: atlas_800i_a2\ntiers: {{node: {{link_rate: {source}}}}}\n")
    (tmp_path / "deep" / "its.yml").write_text("extends: ../box.yaml\nname: its\n")
    machine = load_machine(str(tmp_path / "deep" / "its.yml"), (), {"tiers.node.links": "6"})
    node = machine.tiers["node"]
    assert (machine.name, node.link_rate, node.links) == ("its", 40e9, 6.0)
    (tmp_path / "box.yaml").write_text("extends: deep/its.yml\n")
    with pytest.raises(InputError, match="leads back to itself"):
        load_machine(str(tmp_path / "box.yaml"))
    (tmp_path / "box.yaml").write_text("extends: none.yaml\n")
    with pytest.raises(InputError, match="cannot be read"):
        load_machine(str(tmp_path / "box.yaml"))


def test_a_profile_may_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    from mc2perf.readers import profiles

    profiles._standard_input.cache_clear()
    text = b"extends: atlas_800i_a2\nname: piped\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert [load_machine("-").name for _ in range(2)] == ["piped", "piped"]
    profiles._standard_input.cache_clear()


def test_a_pattern_and_a_factor_set_every_value_that_they_name() -> None:
    base = load_machine("atlas_800t_a3")
    half = load_machine("atlas_800t_a3", (), {"tiers.*.link_rate": "x0.5"})
    for name, tier in base.tiers.items():
        assert half.tiers[name].link_rate == 0.5 * tier.link_rate
    source = dict(quantities(half))["tiers.node.link_rate"]
    assert (source.kind, source.ref) == ("assumed", "--set: x0.5 of 28 GB/s")
    assert half.tiers["node"].links == base.tiers["node"].links
    band = "tiers.node.engines.measured.curves.all_gather.ranks.8.0"
    steep = load_machine("atlas_800t_a3", (), {f"{band}.slope": "x2"})
    of = base.tiers["node"].engines["measured"].curves["all_gather"].ranks[8][0]
    assert steep.tiers["node"].engines["measured"].curves["all_gather"].ranks[8][0].slope == 2.0 * of.slope


def test_patterns_and_factors_that_fit_nothing() -> None:
    words = {"tiers.*.speed": "x2", "cube.rule": "x2", "tiers.*.link_rate": "x0"}
    assert problems("atlas_800t_a3", {"tiers.*.speed": "x2"}) == [
        "--set tiers.*.speed: is no value of this profile"
    ]
    for path, text in list(words.items())[1:]:
        assert problems("atlas_800t_a3", {path: text})
