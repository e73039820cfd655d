"""Readers of hccl_test and nccl-tests, on small files that have the quirks of real ones."""

from __future__ import annotations

from typing import Any

import pytest
from measured_files import EACH, HCCL, NEW, OLD, aside, refused

from mc2perf.measured import CollectiveTimes, bus_factor
from mc2perf.readers.measured import read_measured

# hccl_test


@pytest.mark.parametrize("name", ["aveg_time", "avg_time"])
def test_hccl_test_takes_both_spellings_and_the_slowest_rank(put: Any, name: str) -> None:
    found = read_measured(put(HCCL.format(name=name, small="0.13297", middle="13.96611", large="72.09960")))
    assert found.format == "hccl_test" and isinstance(found.data, CollectiveTimes)
    assert [(p.size, p.samples) for p in found.data.points] == [(8192, 1), (1048576, 1), (67108864, 2)]
    last = found.data.points[-1]
    assert last.time == pytest.approx(930.78e-6) and (last.op, last.ranks) == ("all_reduce", 8)
    assert last.bus_rate == pytest.approx(67108864 / 930.78e-6 * 1.75)
    assert sum(aside(found).values()) == 3


def test_hccl_test_tells_binary_from_decimal_bandwidth(put: Any) -> None:
    binary = HCCL.format(name="avg_time", small="0.12383", middle="13.00695", large="67.14799")
    binary = "\n".join(line for line in binary.splitlines() if "74.56" not in line)
    assert any("2^30" in note for note in read_measured(put(binary)).report.notes)


def test_hccl_test_columns_in_any_order(put: Any) -> None:
    text = "check_result: | avg_time(us): | data_size(Bytes):\nsuccess | 60.70 | 1024 |\n"
    data = read_measured(put(text)).data
    assert isinstance(data, CollectiveTimes) and data.points[0].time == pytest.approx(60.7e-6)


def test_the_folder_of_hccl_test_is_no_operation(put: Any) -> None:
    text = HCCL.format(name="avg_time", small="0.13297", middle="13.96611", large="72.09960")
    data = read_measured(put(text.replace("./bin/", "/usr/local/Ascend/tools/hccl_test/bin/"))).data
    assert isinstance(data, CollectiveTimes) and data.points[0].op == "all_reduce"


def test_an_emulator_is_no_measurement(put: Any) -> None:
    rows = "".join(f"{1024 * 4**i} | 1000.00 | {1024 * 4**i / 1e-3 / 1e9:.5f} | success\n" for i in range(6))
    header = "data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    assert "emulator" in refused(put(header + rows))


def test_bus_factor_of_a_ring() -> None:
    """A ring all-reduce passes n - 1 blocks of 1/n twice; counted here hop by hop."""
    for n in (2, 3, 8, 16):
        sent = sum(1 / n for _ in range(n - 1)) + sum(1 / n for _ in range(n - 1))
        assert bus_factor("all_reduce", n) == pytest.approx(sent)
        assert bus_factor("all_to_all", n) == pytest.approx(sent / 2)


# nccl-tests


@pytest.mark.parametrize("text", [OLD, NEW, EACH], ids=["old", "new", "per-iteration"])
def test_nccl_tests_of_every_generation_say_the_same(put: Any, text: str) -> None:
    found = read_measured(put(text))
    assert found.format == "nccl-tests" and isinstance(found.data, CollectiveTimes)
    assert [(p.size, round(p.time * 1e6, 6)) for p in found.data.points] == [(1048576, 40.0), (2097152, 60.0)]


def test_nccl_tests_knows_operation_ranks_and_wrong_rows(put: Any) -> None:
    found = read_measured(put(NEW))
    assert isinstance(found.data, CollectiveTimes)
    assert {(p.op, p.ranks) for p in found.data.points} == {("all_reduce", 2)}
    assert aside(found) == {"the result is wrong": 1, "algbw: does not follow from size and time": 1}


def test_nccl_tests_of_two_operations_stay_apart(put: Any) -> None:
    second = NEW.replace("all_reduce", "all_gather").replace("#  Rank  1 Group", "# ")
    found = read_measured(put(f"{NEW}# Avg bus bandwidth    : 30.0\n{second}"))
    assert isinstance(found.data, CollectiveTimes)
    assert {key: len(points) for key, points in found.data.groups().items()} == {
        ("all_reduce", 2): 2,
        ("all_gather", 1): 2,
    }


def test_nccl_tests_refuses_host_times(put: Any) -> None:
    assert "cputime" in refused(put(EACH.replace(" time ", " cputime ")))


def test_nccl_json(put: Any) -> None:
    row = {
        "size": 1048576,
        "out_of_place": {"time": 40.0, "alg_bw": 26.2144, "bus_bw": 26.2, "nwrong": "N/A"},
    }
    tree = {"args": "./build/all_gather_perf -g 4", "devices": [{}] * 4, "results": [row, {"size": 1}]}
    found = read_measured(put(tree))
    assert isinstance(found.data, CollectiveTimes)
    (point,) = found.data.points
    assert (point.op, point.ranks, point.size) == ("all_gather", 4, 1048576)
    assert point.bus_rate == pytest.approx(26.2144e9 * 3 / 4)
