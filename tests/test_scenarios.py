"""Scenarios: flags, files and Python values become one typed question."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mc2perf.problems import InputError
from mc2perf.readers.scenarios import read_scenario, scenario_tree
from mc2perf.scenario import Scenario, inputs


def problems(target: str, given: dict[str, object]) -> list[str]:
    with pytest.raises(InputError) as refused:
        read_scenario(target, given)
    return refused.value.problems


def test_nothing_given_is_every_default() -> None:
    assert read_scenario("mixtral-8x7b", {}) == (Scenario(target="mixtral-8x7b"), {})
    nothing: dict[str, object] = {spec.name: None for spec, _ in inputs()}
    assert read_scenario("mixtral-8x7b", nothing) == (Scenario(target="mixtral-8x7b"), {})


def test_text_and_values_are_the_same_question() -> None:
    text = {"m": "8192", "n": "4096", "k": "7K", "ranks": "8", "skew": "1.5", "tile_cnt": "4"}
    values = {"m": 8192, "n": 4096.0, "k": 7168, "ranks": 8, "skew": 1.5, "tile_cnt": 4}
    assert read_scenario("all_to_all_matmul", text) == read_scenario("all_to_all_matmul", values)


@pytest.mark.parametrize(
    ("text", "value"), [("4K", 4096.0), ("1M", 1048576.0), ("1G", 1073741824.0), ("1.5K", 1536.0), ("8", 8.0)]
)
def test_powers_of_1024(text: str, value: float) -> None:
    assert read_scenario("mixtral-8x7b", {"seq_len": text})[0].seq_len == value


@pytest.mark.parametrize("text", ["K", "xK", "1.0001K", "-1K", "0K", "1k", "1KK", "nanK", "1T", "999G"])
def test_what_is_no_power(text: str) -> None:
    (line,) = problems("mixtral-8x7b", {"seq_len": text})
    assert line.startswith("seq_len: ")


def test_auto_is_the_best_count() -> None:
    asked = {"micro_batches": "auto", "tile_cnt": "auto"}
    assert read_scenario("mixtral-8x7b", asked)[0] == Scenario(target="mixtral-8x7b")
    (line,) = problems("mixtral-8x7b", {"ep": "auto"})
    assert line.startswith("ep: 'auto' is not a whole number")


def test_every_field_reads_its_own_default_back() -> None:
    for spec, _ in inputs():
        value = getattr(Scenario(target="mixtral-8x7b"), spec.name)
        assert read_scenario("mixtral-8x7b", {spec.name: value})[0] == Scenario(target="mixtral-8x7b")


def test_every_number_of_a_scenario_is_a_float() -> None:
    for spec, how in inputs():
        if not how.choices and (how.dim or isinstance(spec.default, float)):
            scenario, _ = read_scenario("mixtral-8x7b", {spec.name: "1"})
            assert type(getattr(scenario, spec.name)) is float, spec.name
            assert problems("mixtral-8x7b", {spec.name: "many"})[0].startswith(f"{spec.name}: 'many' is not ")


def test_a_file_gives_what_was_not_given(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(
        "scenario_version: 1\ntarget: mixtral-8x7b\nseq_len: 2K\nep: 4\ncann: 8.0\nrdma: no\n"
        "batch_size: null\n"
        "set: {memory.bandwidth: 1 TB/s, memory.efficiency: 0.5, tiers.node.needs_rdma: true}\n",
        encoding="utf-8",
    )
    scenario, overrides = read_scenario(str(file), {"ep": "2", "nodes": None})
    expected = Scenario(target="mixtral-8x7b", seq_len=2048.0, ep=2.0, cann="8.0", rdma=False)
    assert scenario == expected
    assert overrides == {
        "memory.bandwidth": "1 TB/s",
        "memory.efficiency": "0.5",
        "tiers.node.needs_rdma": "true",
    }


def test_a_yaml_model_is_not_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("model_version: 1\nname: x\n", encoding="utf-8")
    assert read_scenario(str(file), {"ep": 4})[0] == Scenario(target=str(file), ep=4.0)


def test_dispatcher_sets_the_schedule() -> None:
    assert read_scenario("mixtral-8x7b", {"dispatcher": "alltoall"})[0].schedule == "serial"
    assert read_scenario("mixtral-8x7b", {"dispatcher": "mc2", "schedule": "mc2"})[0].schedule == "mc2"
    assert problems("mixtral-8x7b", {"dispatcher": "alltoall", "schedule": "mc2"}) == [
        "dispatcher: says something else than schedule; give one of both"
    ]


@pytest.mark.parametrize(
    "target", ["mixtral-8x7b", "Mixtral-8x7B", "deepseek-r1", "moe_layer", "-", "some/path.json"]
)
def test_targets_that_may_exist(target: str) -> None:
    assert read_scenario(target, {})[0].target == target


def test_the_problem_of_a_file_names_the_file_and_that_of_a_flag_does_not(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(
        "target: mixtral-8x8b\nep: x\nset: [1]\nscenario_version: 3\ndispatcher: x\n", encoding="utf-8"
    )
    found = problems(str(file), {"seq_len": "y"})
    assert len(found) == 6
    for key in ("target", "ep", "set", "scenario_version", "dispatcher"):
        assert sum(line.startswith(f"{file}: {key}: ") for line in found) == 1, key
    assert sum(line.startswith("seq_len: 'y'") for line in found) == 1


def test_a_tree_reads_back_as_the_same_question(tmp_path: Path) -> None:
    given: dict[str, object] = {
        "seq_len": 4096, "ep": 4, "skew": 1.25, "rdma": False, "cann": "8.0", "dtype": "int8",
        "schedule": "micro_batch", "micro_batches": 4, "engine": "aiv", "nodes": 2, "phase": "prefill",
    }  # fmt: skip
    question = read_scenario("mixtral-8x7b", given | {"set": {"memory.bandwidth": "1 TB/s"}})
    tree = scenario_tree(*question)
    file = tmp_path / "q.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert read_scenario(str(file), {}) == question
    flat = {key: value for key, value in tree.items() if key != "target"}
    assert read_scenario("mixtral-8x7b", flat) == question
