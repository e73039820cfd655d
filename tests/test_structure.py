"""The strict loader: trees to dataclasses, with every problem at once; YAML without traps."""

# ruff: noqa: E501 - exact lines stand in tables
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from mc2perf.problems import InputError, did_you_mean
from mc2perf.quantity import Quantity
from mc2perf.readers.structure import Place, decode, parse_yaml, read_yaml, structure
from mc2perf.units import BytesPerSecond, Count, Ratio, Seconds


@dataclass(frozen=True, kw_only=True)
class Wheel:
    form: Literal["wheel"]
    spokes: Count


@dataclass(frozen=True, kw_only=True)
class Sled:
    form: Literal["sled"]
    width: Ratio


@dataclass(frozen=True, kw_only=True)
class Cart:
    title: str
    loaded: bool = False
    seats: int = 2
    rate: BytesPerSecond
    delays: dict[str, Seconds] = field(default_factory=dict)
    parts: tuple[Wheel | Sled, ...] = ()
    spare: Wheel | None = None
    by_size: dict[int, tuple[Ratio, ...]] = field(default_factory=dict)


SOURCE: dict[str, Any] = {"kind": "measured", "ref": "a stop watch"}
MIXED: dict[Any, Any] = {**SOURCE}
GOOD: dict[str, Any] = {"title": "cart", "rate": {"value": "2 GB/s", **SOURCE}}


def load(tree: object, needs_source: bool = True, cls: type = Cart) -> tuple[Any, list[str]]:
    problems: list[str] = []
    return structure(cls, tree, Place("f.yaml", problems, needs_source=needs_source)), problems


def test_everything_at_its_place() -> None:
    tree = GOOD | {
        "loaded": True,
        "delays": {**SOURCE, "start": "5 us", "stop": {"value": "1 ms", "kind": "assumed", "ref": "a guess"}},
        "parts": [{"form": "wheel", **SOURCE, "spokes": 8}, {"form": "sled", **SOURCE, "width": 0.5}],
        "spare": None,
        "by_size": MIXED | {4: [0.25, 1]},
    }
    cart, problems = load(tree)
    assert problems == []
    assert (cart.title, cart.loaded, cart.seats, cart.rate, cart.spare) == ("cart", True, 2, 2e9, None)
    assert cart.delays == pytest.approx({"start": 5e-6, "stop": 1e-3})
    assert cart.parts == (Wheel(form="wheel", spokes=8.0), Sled(form="sled", width=0.5))
    assert cart.by_size == {4: (0.25, 1.0)}
    sources = [(q.symbol, q.kind, q.ref) for q in (cart.rate, cart.delays["stop"], cart.by_size[4][0])]
    assert sources == [
        ("B/s", "measured", "a stop watch"),
        ("s", "assumed", "a guess"),
        ("1", "measured", "a stop watch"),
    ]


NUMBER = "number without a source; write {value, kind, ref}"
PROBLEMS: list[tuple[object, list[str]]] = [
    (5, ["f.yaml: expected a mapping with title, loaded, seats, rate, delays, parts, spare, by_size"]),
    ({}, ["f.yaml: title: is missing", "f.yaml: rate: is missing"]),
    (GOOD | {"titel": 1}, ["f.yaml: titel: unknown key; did you mean 'title'?"]),
    (GOOD | {"title": 5, "loaded": "yes", "seats": True}, [
        "f.yaml: title: '5' is not text", "f.yaml: loaded: 'yes' is not true or false",
        "f.yaml: seats: 'True' is not a whole number",
    ]),
    (GOOD | {"seats": 1.0}, ["f.yaml: seats: '1.0' is not a whole number"]),
    ({"title": "a", "rate": "2 GB/s"}, [f"f.yaml: rate: {NUMBER}"]),
    ({"title": "a", "rate": {"kind": "measured", "ref": "x"}}, ["f.yaml: rate: has no 'value'; a number is {value, kind, ref}"]),
    ({"title": "a", "rate": {"value": "2 GB/s", "kind": "measured"}}, ["f.yaml: rate: a number needs a reference; write where it comes from in 'ref'"]),
    ({"title": "a", "rate": {"value": "2 GB/s", "ref": "x"}}, ["f.yaml: rate: kind '' is not one of datasheet, vendor_model, measured, fitted, assumed"]),
    ({"title": "a", "rate": {"value": "2 GB/s", "kind": "guess", "ref": "x"}}, ["f.yaml: rate: kind 'guess' is not one of datasheet, vendor_model, measured, fitted, assumed"]),
    ({"title": "a", "rate": {"value": "2 GB/s", "kind": "assumed", "ref": "  "}}, ["f.yaml: rate: a number needs a reference; write where it comes from in 'ref'"]),
    ({"title": "a", "rate": {"value": "2 GB/s", **SOURCE, "unit": "GB"}}, ["f.yaml: rate.unit: unknown key; a number is {value, kind, ref}"]),
    ({"title": "a", "rate": {"value": "2 GB", **SOURCE}}, ["f.yaml: rate: '2 GB' is in B, expected B/s"]),
    (GOOD | {"delays": {"start": "5 us"}}, [f"f.yaml: delays.start: {NUMBER}"]),
    (GOOD | {"delays": [1]}, ["f.yaml: delays: expected a mapping"]),
    (GOOD | {"delays": MIXED | {5: "5 us"}}, ["f.yaml: delays.5: key is not text"]),
    (GOOD | {"by_size": MIXED | {"4": [0.5], True: [0.5]}}, ["f.yaml: by_size.4: key is not a whole number", "f.yaml: by_size.True: key is not a whole number"]),
    (GOOD | {"by_size": MIXED | {4: [0.5, 50]}}, ["f.yaml: by_size.4.1: '50' is too large for a ratio in (0, 1]; write 0.5, not per cent"]),
    (GOOD | {"parts": {}}, ["f.yaml: parts: expected a list"]),
    (GOOD | {"parts": [{"form": "whel"}, 7]}, [
        "f.yaml: parts.0.form: 'whel' is not known; did you mean 'wheel'?",
        "f.yaml: parts.1.form: 'None' is not known; write one of sled, wheel",
    ]),
    (GOOD | {"parts": [{"form": "wheel", **SOURCE, "spokes": 0}]}, ["f.yaml: parts.0.spokes: '0' is too small for a whole number of at least 1"]),
    (GOOD | {"spare": {"form": "sled", **SOURCE, "spokes": 3}}, ["f.yaml: spare.form: 'sled' is not known; write one of wheel"]),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "lines"), PROBLEMS, ids=lambda part: str(part)[-40:])
def test_problems(tree: object, lines: list[str]) -> None:
    assert load(tree)[1] == lines


def test_an_unhashable_form_or_choice_is_a_problem_too() -> None:
    assert load(GOOD | {"parts": [{"form": ["wheel"]}]})[1] == [
        "f.yaml: parts.0.form: '['wheel']' is not known; did you mean 'wheel'?"
    ]
    bad = GOOD | {"spare": {"form": {"a": 1}, **SOURCE, "spokes": 3}}
    assert len(load(bad)[1]) == 1


def test_sources_are_not_asked_for_where_none_are_needed() -> None:
    cart, problems = load({"title": "a", "rate": "2 GB/s"}, needs_source=False)
    assert (problems, cart.rate, type(cart.rate)) == ([], 2e9, float)
    assert load({"title": "a", "rate": "2 GB/s", "kind": "measured", "ref": "x"}, needs_source=False)[1]


def test_arithmetic_forgets_the_source() -> None:
    rate = load(GOOD)[0].rate
    assert isinstance(rate, Quantity)
    assert type(rate * 2) is float


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", "f: line 2, column 1: key 'a' stands twice; keep one"),
        ("a: {b: 1, b: 2}\n", "f: line 1, column 11: key 'b' stands twice; keep one"),
        ("- 1\n", "f: expected 'key: value' lines, found list"),
        ("5\n", "f: expected 'key: value' lines, found int"),
        ("? [1]\n: 2\n", "f: line 1, column 3: key is not text"),
        ("a: &x [1]\nb: *x\n", "f: line 1, column 4: aliases (*name) are not accepted; write it out"),
        ("a: !!python/name:os.system x\n", None),
        ("a: !!int x\n", None),
        ("a: !!bool x\n", None),
        ("a: [\n", None),
    ],
)
def test_yaml_without_traps(text: str, line: str | None) -> None:
    with pytest.raises(InputError) as refused:
        parse_yaml(text, "f")
    assert len(refused.value.problems) == 1
    assert refused.value.problems[0].startswith("f: ")
    if line:
        assert refused.value.problems == [line]


def test_anchors_without_an_alias_are_harmless() -> None:
    assert parse_yaml("a: &x 1\n", "f") == {"a": 1}


def test_files_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    for name, raw in (("a.yaml", b"a: 1\n"), ("b.yaml", b"\xef\xbb\xbfa: 1\n"), ("c.yaml", b"a: 1\r\n")):
        (tmp_path / name).write_bytes(raw)
        assert read_yaml(tmp_path / name) == {"a": 1}
    with pytest.raises(InputError, match="is UTF-16"):
        decode("a".encode("utf-16"), "f")


def test_problems_are_single_lines_once_each() -> None:
    error = InputError(["a\nb", "a\nb", "c\x1b[31m", "ü", "x" * 10_000])
    assert error.problems[:3] == ["a\\nb", "c\\x1b[31m", "ü"]
    assert len(error.problems) == 4
    assert len(error.problems[3]) < 4100


def test_did_you_mean() -> None:
    assert did_you_mean("latancy", ["latency", "rate"]) == "; did you mean 'latency'?"
    assert did_you_mean(["x"], ["b", "a"]) == "; write one of a, b"
    many = [f"name {number}" for number in range(1000)]
    assert (
        did_you_mean("7", many, "x")
        == "; write one of name 7, name 97, name 87, name 79, name 78, ... (all: 'x')"
    )
