"""Axes of a sweep: ranges against brute force, values against the reader of scenarios."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mc2perf.problems import InputError
from mc2perf.readers import axes
from mc2perf.readers.axes import MOST_VALUES, Axis, Value, read_axes, rows_of
from mc2perf.readers.scenarios import read_scenario
from mc2perf.scenario import SCHEDULES, inputs
from mc2perf.skew import Factor, Skew

NAMES = ["target", *(spec.name for spec, _ in inputs())]


def values(text: str) -> tuple[Value, ...]:
    (axis,) = read_axes([text])
    return axis.values


def problems(*texts: str, tree: object = None, where: str = "") -> list[str]:
    with pytest.raises(InputError) as refused:
        read_axes(texts, tree, where)
    return refused.value.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tile_cnt=1..4", (1.0, 2.0, 3.0, 4.0)),
        ("tile_cnt=1..10:4", (1.0, 5.0, 9.0)),
        ("tile_cnt=1..9:4", (1.0, 5.0, 9.0)),
        ("tile_cnt=3..3", (3.0,)),
        ("tile_cnt = 4 .. 6 : 2 , 1", (4.0, 6.0, 1.0)),
        ("tile_cnt=1..4,2,8,1", (1.0, 2.0, 3.0, 4.0, 8.0)),
        ("tile_cnt=auto,1,2", ("auto", 1.0, 2.0)),
        ("m=1K..4K:x2", (1024.0, 2048.0, 4096.0)),
        ("m=1K..3K:1K,1M", (1024.0, 2048.0, 3072.0, 1048576.0)),
        ("m=1..100:x10", (1.0, 10.0, 100.0)),
        ("m=4..10:x1.5", (4.0, 6.0, 9.0)),
        ("m=1000..1331:x1.1", (1000.0, 1100.0, 1210.0, 1331.0)),
        ("m=100000000000..999999999999:x10", (1e11,)),
        ("m=1..243:x3", (1.0, 3.0, 9.0, 27.0, 81.0, 243.0)),
        ("shared_width=0..2", (0.0, 1.0, 2.0)),
        ("capacity_factor=1..1.3:0.1", (1.0, 1.1, 1.2, 1.3)),
        ("capacity_factor=0.1..0.3:0.1", (0.1, 0.2, 0.3)),
        ("recompute=full,block:1..3", ("full", "block:1", "block:2", "block:3")),
        ("skew=even,zipf:0.5..1:0.5", (Skew(), Skew("zipf:0.5", 0.5), Skew("zipf:1", 1.0))),
        ("skew=1..2:0.5", (Factor("1"), Factor("1.5", factor=1.5), Factor("2", factor=2.0))),
        ("rdma=true,false,true", (True, False)),
        ("hardware=atlas_800i_a2,h800_sxm", ("atlas_800i_a2", "h800_sxm")),
        ("schedule=serial,mc2", ("serial", "mc2")),
        ("cann=8.0,8.5", ("8.0", "8.5")),
        ("target=mixtral-8x7b,moe_layer", ("mixtral-8x7b", "moe_layer")),
        ("tiers.node.link_rate=20GB/s,28 GB/s", ("20GB/s", "28 GB/s")),
    ],
)
def test_what_is_read(text: str, expected: tuple[Value, ...]) -> None:
    assert values(text) == expected
    assert [type(value) for value in values(text)] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tile_cnt=1..", "vary: 'tile_cnt=1..' has no end; write for example tile_cnt=1..32"),
        ("tile_cnt=..8", "vary: 'tile_cnt=..8' has no start; write for example tile_cnt=1..32"),
        ("tile_cnt=1..8:", "vary: 'tile_cnt=1..8:' has no step; write for example tile_cnt=1..32"),
        ("tile_cnt=8..1:2", "vary: 'tile_cnt=8..1:2' runs down; write tile_cnt=1..8:2"),
        ("tile_cnt=", "vary: 'tile_cnt=' has an empty value; write for example tile_cnt=1..32"),
        (
            "capacity_factor=1,,2",
            "vary: 'capacity_factor=' has an empty value; write for example capacity_factor=1..2:0.25",
        ),
        ("tile_cnt", "vary: 'tile_cnt' is not NAME=VALUES; write for example tile_cnt=1..32"),
        ("hardware", "vary: 'hardware' is not NAME=VALUES; write for example hardware=a,b"),
        ("=1..3", "vary: '=1..3' is not NAME=VALUES; write for example tile_cnt=1..32"),
        ("hardwar=a", "vary: 'hardwar' is no input to vary; did you mean 'hardware'?"),
        ("dispatcher=mc2", "vary: 'dispatcher' is another word for schedule; write schedule=serial,mc2"),
        ("dtype=bf1", "vary: 'dtype=bf1' is refused: 'bf1' is not known; did you mean 'bf16'?"),
        ("rdma=maybe", "vary: 'rdma=maybe' is refused: 'maybe' is not true or false"),
        ("schedule=all", f"vary: 'schedule=all' is not one schedule; write schedule={','.join(SCHEDULES)}"),
        ("ep=2.5", "vary: 'ep=2.5' is refused: '2.5' is not a whole number of at least 1"),
        (
            "ep=1..4:0.5",
            "vary: 'ep=1..4:0.5' is refused: '0.5' is not a whole number of at least 1",
        ),
        ("ep=0..4", "vary: 'ep=0..4' is refused: '0' is too small for a whole number of at least 1"),
        (
            "shared_width=0..8:x2",
            "vary: 'shared_width=0..8:x2' starts at 0, which no factor moves; "
            "write a factor above 1, such as 1..32:x2",
        ),
        (
            "ep=1..8:x1.5",
            "vary: 'ep=1..8:x1.5' reaches 1.5, which is not a whole number of at least 1; "
            "write a whole factor, or a list",
        ),
        ("target=mixtral-8x8b", "vary: 'target=mixtral-8x8b' is not known: 'mixtral-8x8b' is no operator"),
        ("hardware=a..b", "vary: 'hardware=a..b' is a range, but only numbers have ranges"),
        ("tiers.x=1..2", "vary: 'tiers.x=1..2' is a range, but only numbers have ranges"),
        ("tiers..x=1", "vary: 'tiers..x' is no input to vary"),
        ("m=1..1G", f"vary: 'm=1..1G' has about 1.07e+09 values; write at most {MOST_VALUES}"),
        ("capacity_factor=1..2:1e-9", "vary: 'capacity_factor=1..2:1e-9' has about 1e+09 values"),
        (
            "capacity_factor=1..2:x1.0000000001",
            "vary: 'capacity_factor=1..2:x1.0000000001' has about 6.93e+09 values",
        ),
    ],
)
def test_what_is_refused(text: str, line: str) -> None:
    (found,) = problems(text)
    assert found.startswith(line)


@pytest.mark.parametrize("step", ["0", "-1", "x1", "x0.5", "x0", "x-2", "x", "y", "inf", "xnan", "1:2"])
def test_steps_that_lead_nowhere(step: str) -> None:
    (line,) = problems(f"capacity_factor=1..8:{step}")
    assert line.startswith(f"vary: 'capacity_factor=1..8:{step}' ")


def test_too_many_values_in_several_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "MOST_VALUES", 10)
    assert values("m=1..5,6..10") == tuple(map(float, range(1, 11)))
    assert problems("m=1..6,1..6,1..6") == ["vary: 'm' has more than 10 values; write fewer"]


def test_every_problem_at_once() -> None:
    found = problems("ep=x,0,4", "epp=1", "m", tree={"tile_cnt": "8..1", "n": [1, {}]}, where="q.yaml: ")
    assert [line.split("'")[1] for line in found] == ["m", "tile_cnt=8..1", "n={}", "ep=x", "ep=0", "epp"]
    assert [line.startswith("q.yaml: vary: ") for line in found] == [False, True, True, False, False, False]


def test_twice_is_once_too_often() -> None:
    assert problems("ep=1,2", "ep=4") == ["vary: 'ep' is given twice; write one list, ep=1,2,4"]


def test_the_command_line_replaces_the_file_and_keeps_its_place() -> None:
    tree = {"ep": "broken", "m": ["1K..2K:x2", 4096], "rdma": [True, False], "cann": [8.0], "n": 7}
    tree |= {"tiers.node.needs_rdma": [True, False], "memory.bandwidth": "1 TB/s"}
    assert read_axes(["k=5", "ep=2"], tree) == (
        Axis("ep", (2.0,)),
        Axis("m", (1024.0, 2048.0, 4096.0)),
        Axis("rdma", (True, False)),
        Axis("cann", ("8.0",)),
        Axis("n", (7.0,)),
        Axis("tiers.node.needs_rdma", ("true", "false")),
        Axis("memory.bandwidth", ("1 TB/s",)),
        Axis("k", (5.0,)),
    )


@pytest.mark.parametrize("tree", [[1], "ep=1", 3, {"ep": []}, {"ep": None}, {"ep": [True]}, {3: 4}])
def test_files_that_hold_no_axes(tree: object) -> None:
    (line,) = problems(tree=tree, where="q.yaml: ")
    assert line.startswith("q.yaml: vary: ")


def test_rows_are_the_product() -> None:
    assert rows_of(read_axes(["ep=1..3", "m=1..5", "rdma=true,false"])) == 30
    assert rows_of(()) == 1


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 50))
def test_whole_steps_are_those_of_arange(first: int, more: int, step: int) -> None:
    expected = np.arange(first, first + more + 1, step, dtype=float).tolist()
    assert list(values(f"m={first}..{first + more}:{step}")) == expected


@given(st.integers(1, 9), st.integers(0, 60), st.integers(1, 4))
def test_decimal_steps_are_the_numbers_that_text_would_give(first: int, steps: int, digits: int) -> None:
    texts = [f"{first}.{i:0{digits}d}" for i in range(min(steps + 1, 10**digits))]
    read = values(f"capacity_factor={texts[0]}..{texts[-1]}:{10.0**-digits:.{digits}f}")
    assert list(read) == [float(text) for text in texts]


@given(st.integers(1, 20), st.integers(2, 7), st.integers(1, 10**9))
def test_whole_factors_multiply(first: int, factor: int, last: int) -> None:
    expected, number = [], first
    while number <= max(first, last):
        expected.append(float(number))
        number *= factor
    assert list(values(f"m={first}..{max(first, last)}:x{factor}")) == expected


@given(
    st.sampled_from(
        ["1", "8", "1K", "1.5", "auto", "all", "bf16", "x", "0", "-1", "true", "8.5", "1e3", "n"]
    ),
    st.sampled_from(NAMES[1:]),
)
def test_a_value_is_read_as_a_scenario_reads_it(text: str, name: str) -> None:
    """What one refuses the other refuses, but for flags (text here, typed there) and ``schedule=all``."""
    flags = {spec.name for spec, _ in inputs() if isinstance(spec.default, bool)}
    given_: object = {"true": True, "false": False}.get(text, text) if name in flags else text
    try:
        expected = getattr(read_scenario("moe_layer", {name: given_})[0], name)
    except InputError:
        expected = InputError
    try:
        (read,) = values(f"{name}={text}")
    except InputError:
        assert expected is InputError or (name, text) == ("schedule", "all")
    else:
        assert expected == (None if read == "auto" and name in ("tile_cnt", "micro_batches") else read)


PIECES = [
    "..",
    ":",
    "x",
    ",",
    "=",
    "1",
    "0",
    "8",
    "2.5",
    "1K",
    "-",
    "auto",
    "a.b",
    " ",
    "inf",
    "nan",
    "1e300",
    "'",
]


@settings(max_examples=300)
@given(st.sampled_from([*NAMES, "a.b", "", "é"]), st.lists(st.sampled_from(PIECES), max_size=7), st.text())
def test_any_text_is_read_or_refused(name: str, pieces: list[str], rest: str) -> None:
    for text in (f"{name}={''.join(pieces)}", f"{name}={rest}", rest):
        try:
            (axis,) = read_axes([text])
        except InputError as error:
            assert all(line.startswith("vary: ") for line in error.problems)
        else:
            assert axis.values


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))


@given(st.one_of(SCALARS, st.dictionaries(st.sampled_from(NAMES), st.one_of(SCALARS, st.lists(SCALARS)))))
def test_any_tree_is_read_or_refused(tree: object) -> None:
    try:
        read_axes([], tree)
    except InputError as error:
        assert error.problems
