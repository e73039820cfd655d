"""Conditions: the reader and the vectorised tree against plain Python, row by row."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mc2perf.problems import InputError
from mc2perf.readers.conditions import LONGEST, read_condition
from mc2perf.readers.conditions.grammar import DEEPEST
from mc2perf.table import Block, Column, Words

NAN = math.nan
COLUMNS = [
    Column("total_time", "s", "time"),
    Column("serial_time", "s", "time"),
    Column("comm_ratio", "1", "ratio"),
    Column("m", "1", "rows"),
    Column("size", "B", "bytes"),
    Column("tokens_per_second", "1/s", "rate"),
    Column("schedule", "", "schedule"),
    Column("bound", "", "bound"),
    Column("hardware", "", "profile"),
    Column("tiers.node.link_rate", "", "varied"),
]
ROWS: list[dict[str, Any]] = [
    {"total_time": 0.001, "serial_time": 0.002, "comm_ratio": 0.1, "m": 1024.0, "size": 2.8e7,
     "tokens_per_second": 5.0, "schedule": "mc2", "bound": "comm", "hardware": "atlas 800",
     "tiers.node.link_rate": "20GB/s"},
    {"total_time": 0.003, "serial_time": 0.003, "comm_ratio": 0.2, "m": 1536.0, "size": 0.0,
     "tokens_per_second": NAN, "schedule": "serial", "bound": "mc2", "hardware": "mixtral-8x7b",
     "tiers.node.link_rate": "28GB/s"},
    {"total_time": NAN, "serial_time": 0.001, "comm_ratio": NAN, "m": 0.0, "size": 1.0,
     "tokens_per_second": 0.0, "schedule": "mc2", "bound": "", "hardware": "b200",
     "tiers.node.link_rate": ""},
    {"total_time": 0.002, "serial_time": 0.001, "comm_ratio": 0.3, "m": 4096.0, "size": 1e9,
     "tokens_per_second": 9.0, "schedule": "coc", "bound": "coc", "hardware": "b200",
     "tiers.node.link_rate": "20GB/s"},
]  # fmt: skip


def block_of(rows: list[dict[str, Any]]) -> Block:
    block: dict[str, Any] = {}
    for column in COLUMNS:
        cells = [row[column.name] for row in rows]
        texts = tuple(dict.fromkeys(cells))
        words = Words(np.array([texts.index(cell) for cell in cells], np.intp), texts)
        block[column.name] = np.array(cells, float) if column.unit else words
    return block


def holds(text: str) -> list[int]:
    """The rows for which it holds."""
    return np.flatnonzero(read_condition(text, COLUMNS).holds(block_of(ROWS))).tolist()


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as refused:
        read_condition(text, COLUMNS)
    return refused.value.problems


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("comm_ratio < 0.2", [0]),
        ("0.1 < comm_ratio <= 0.2", [1]),
        ("comm_ratio>=20%", [1, 3]),
        ("comm_ratio != 0.1", [1, 3]),
        ("not comm_ratio = 0.1", [1, 2, 3]),
        ("not comm_ratio < 0.2 and m > 0", [1, 3]),
        ("schedule = mc2", [0, 2]),
        ("schedule == 'mc2'", [0, 2]),
        ('"mc2" = schedule', [0, 2]),
        ("schedule != mc2", [1, 3]),
        ("schedule = bound", [3]),
        ("schedule = 'bound'", []),
        ("bound = ''", [2]),
        ("hardware in (b200, 'atlas 800')", [0, 2, 3]),
        ("hardware not  in (b200, 'atlas 800')", [1]),
        ("hardware = mixtral-8x7b", [1]),
        ("tiers.node.link_rate = '20GB/s'", [0, 3]),
        ("comm_ratio in (0.1, 30%)", [0, 3]),
        ("comm_ratio not in (0.1, 0.3)", [1]),
        ("total_time < 2 ms", [0]),
        ("total_time<=2ms", [0, 3]),
        ("total_time < 2000 us and m >= 1K", [0]),
        ("m in (1K, 1.5K)", [0, 1]),
        ("total_time-serial_time > 0", [3]),
        ("serial_time / total_time > 1.5", [0]),
        ("size / total_time >= 28 GB/s", [0, 3]),
        ("size / total_time > 28 GB/s", [3]),
        ("size = 1 B or 1 kB / size > 1 and size = 0", [1, 2]),
        ("m / 0 > 1", [0, 1, 3]),
        ("-m < -1500", [1, 3]),
        ("2 + 3 * 4 = 14", [0, 1, 2, 3]),
        ("(2 + 3) * 4 = 20", [0, 1, 2, 3]),
        ("8 - 4 - 2 = 2 and 8 / 4 / 2 = 1", [0, 1, 2, 3]),
        ("'a' = 'b'", []),
        ("m = 0 or m = 1K and comm_ratio > 1", [2]),
        ("(m = 0 or m = 1K) and comm_ratio > 1", []),
        ("NOT m = 0 AND m < 2K", [0, 1]),
        ("tokens_per_second * total_time > 0.01", [3]),
    ],
)
def test_what_holds(text: str, rows: list[int]) -> None:
    assert holds(text) == rows
    condition = read_condition(text, COLUMNS)
    again = read_condition(condition.text, COLUMNS)
    assert again.text == condition.text
    assert again.columns == condition.columns
    assert holds(condition.text) == rows
    assert pickle.loads(pickle.dumps(condition)).text == condition.text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("comm_ratio <", "where: 'comm_ratio <' ends after '<'; write a number or a column"),
        ("  ", "where: is empty; write for example comm_ratio < 0.2"),
        ("m < 2 and ", "where: 'm < 2 and' ends after 'and'; write a number or a column"),
        ("< 3", "where: '< 3' has '<' at character 1; write a number or a column"),
        ("(m < 3", "where: '(m < 3' ends after '3'; write )"),
        ("m < 3)", "where: 'm < 3)' has ')' at character 6; write and, or, or an operator there"),
        ("m < 3 ; m", "where: 'm < 3 ; m' has ';' at character 7; put text in quotes"),
        ("m < 3 & m > 1", "where: 'm < 3 & m > 1' has '&' at character 7; write and"),
        ("schedule = 'mc2", "where: 'schedule = 'mc2' has ''' at character 12; close the quotes"),
        ("schedul in (mc2, coc)", "where: 'schedul' is no column; did you mean 'schedule'?"),
        ("__import__('os')", "where: '__import__('os')' has '(' at character 11; write and, or"),
        ("m.__class__ = 3", "where: 'm.__class__' is no column"),
        ("m[0] = 3", "where: 'm[0] = 3' has '[' at character 2"),
        ("lambda: 1", "where: 'lambda: 1' has ':' at character 7"),
        ("m ** 2 > 1", "where: 'm ** 2 > 1' has '*' at character 4; write a number or a column"),
        ("comm_ration < 1", "where: 'comm_ration' is no column; did you mean 'comm_ratio'?"),
        ("schedul = mc2", "where: 'schedul' is no column; did you mean 'schedule'?"),
        ("schedul = 'mc2'", "where: 'schedul' is no column; did you mean 'schedule'?"),
        ("comm_ratio", "where: 'comm_ratio' is a number, expected a condition"),
        ("schedule", "where: 'schedule' is text, expected a condition"),
        ("not m", "where: 'm' is a number, expected a condition"),
        ("m < 1 or m", "where: 'm' is a number, expected a condition"),
        ("m < 5 < 6", "where: 'm < 5 < 6' compares 5 with 6; write a column in it"),
        ("(m < 1) < 2", "where: 'm < 1' is a condition, expected a number"),
        ("m + (m < 1) < 2", "where: 'm < 1' is a condition, expected a number"),
        ("schedule + 1 < 2", "where: 'schedule' is text, expected a number"),
        ("-schedule = mc2", "where: 'schedule' is text, expected a number"),
        ("schedule = 8.5", "where: 'schedule' is text and '8.5' a number; write '8.5' in quotes if"),
        ("m = 'mc2'", "where: 'mc2' is text and 'm' a number"),
        ("m in (1, 'a')", "where: 'a' is text and 'm' a number"),
        ("schedule < mc2", "where: 'schedule < 'mc2'' orders text; write =, != or in"),
        ("schedule in mc2", "where: 'schedule in mc2' has 'mc2' at character 13; write in (a, b)"),
        ("schedule in ()", "where: 'schedule in ()' has ')' at character 14; write a number or a column"),
        ("total_time < 2 MB", "where: 'total_time' is in s and '2 MB' is in B; write both in units of"),
        ("total_time < 20%", "where: 'total_time' is in s and '20%' is a plain number; write both"),
        ("size > 1K", "where: 'size' is in B and '1K' is a plain number"),
        ("total_time + size > 1", "where: 'total_time' is in s and 'size' is in B"),
        ("size / total_time > 1 s", "where: 'size / total_time' is in B/s and '1 s' is in s"),
        ("size * size > total_time", "where: 'size * size' is in B^2 and 'total_time' is in s"),
        ("total_time < 2 msec", "where: '2 msec': unit 'msec' is unknown or ambiguous"),
        ("size < 2 gb/s", "where: '2 gb/s': unit 'gb/s' is unknown or ambiguous; write GB/s (bytes)"),
        ("hardware = 950dt", "where: '950 dt': unit 'dt' is unknown or ambiguous; write for"),
        ("m < 1e999", "where: '1e999' is not a finite number"),
        ("m < 1.2.3", "where: 'm < 1.2.3' has '.3' at character 8"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, line: str) -> None:
    (found,) = problems(text)
    assert found.startswith(line)


def test_every_meaning_that_is_wrong_at_once() -> None:
    found = problems("comm_rati < 1 and total_time < 1 B or schedule and mm > 2")
    assert [line.split("'")[1] for line in found] == ["comm_rati", "total_time", "mm", "schedule"]


def test_columns_are_those_named_once_in_order() -> None:
    read = read_condition("m > 1 and schedule in (mc2, size) or m < 0", COLUMNS[:4] + COLUMNS[6:])
    assert read.columns == ("m", "schedule")
    assert read.text == "m > 1 and schedule in ('mc2', 'size') or m < 0"


def test_no_rows_are_no_truths() -> None:
    read = read_condition("schedule = mc2 and comm_ratio < 0.5 or 1 < 2", COLUMNS)
    assert read.holds(block_of([])).tolist() == []


def test_depth_and_length_have_an_end() -> None:
    for opened, ends in (("(", "m"), ("-(", "m"), ("0 + (", "m"), ("m < 0 or m < 1 and not (", "m < 1")):
        count = DEEPEST // (2 if "-" in opened or "not" in opened else 1)
        text = opened * count + ends + ")" * count + (" = m" if ends == "m" else "")
        assert read_condition(text, COLUMNS).holds(block_of(ROWS)).shape == (4,)
        (line,) = problems(opened + text)
        assert f"nests deeper than {DEEPEST}; write fewer parentheses" in line
    long = " + ".join(["1"] * 2400)
    assert holds(f"{long} = 2400") == [0, 1, 2, 3]
    assert holds(" or ".join(["m < 1"] * 1000)) == [2]
    assert problems("1" * (LONGEST + 1)) == [f"where: has {LONGEST + 1} characters; write at most {LONGEST}"]


# --- random trees, printed with all parentheses or only those needed, against plain Python

Tree = tuple[Any, ...]
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}
LEVEL = {"or": 0, "and": 1, "not": 2, "=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "neg": 6, "leaf": 7}

_leaves = st.one_of(
    st.sampled_from(["comm_ratio", "m"]).map(lambda name: ("leaf", name)),
    st.sampled_from(["0", "1", "2.5", "20%", "1K", ".1", "1e-3"]).map(lambda text: ("leaf", text)),
)
_sums = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/"), inner, inner), st.tuples(st.just("neg"), inner)
    ),
    max_leaves=6,
)
_words = st.sampled_from(["schedule", "bound", "'mc2'", "'coc'", "''"])
_steps = st.lists(st.tuples(st.sampled_from([*COMPARE, "!="]), _sums), min_size=1, max_size=3)
_comparisons = st.one_of(
    st.tuples(st.just("chain"), _sums, _steps),
    st.tuples(st.just("words"), st.sampled_from(["=", "!="]), _words, _words),
    st.tuples(st.sampled_from(["in", "not in"]), _sums, st.lists(_sums, min_size=1, max_size=3)),
)
_conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=8,
)


def level(tree: Tree) -> int:
    return LEVEL.get(tree[0], 3)


def printed(tree: Tree, loosest: int, full: bool) -> str:
    """A tree as text; in parentheses where its place needs them, or everywhere."""
    text = _printed(tree, full)
    return f"({text})" if level(tree) < loosest or (full and level(tree) < 7) else text


def _printed(tree: Tree, full: bool) -> str:
    sign, at = tree[0], level(tree)
    if sign == "leaf":
        return str(tree[1])
    if sign in ("neg", "not"):
        return ("-" if sign == "neg" else "not ") + printed(tree[1], at, full)
    if sign == "words":
        return f"{tree[2]} {tree[1]} {tree[3]}"
    if sign == "chain":
        return printed(tree[1], 4, full) + "".join(f" {op} {printed(x, 4, full)}" for op, x in tree[2])
    if sign in ("in", "not in"):
        return f"{printed(tree[1], 4, full)} {sign} ({', '.join(printed(x, 4, full) for x in tree[2])})"
    return f"{printed(tree[1], at, full)} {sign} {printed(tree[2], at + 1, full)}"


def number(tree: Tree, row: Mapping[str, Any]) -> float:
    sign = tree[0]
    if sign == "leaf":
        return float(row.get(tree[1], {"20%": 0.2, "1K": 1024.0}.get(tree[1], tree[1])))
    if sign == "neg":
        return -number(tree[1], row)
    left, right = number(tree[1], row), number(tree[2], row)
    if sign == "/" and right == 0.0:
        return NAN if left == 0.0 or left != left else math.copysign(math.inf, left) * math.copysign(1, right)
    return float(
        {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](left, right)
    )


def compared(op: str, left: float, right: float) -> bool:
    if left != left or right != right:
        return False
    return left != right if op == "!=" else bool(COMPARE[op](left, right))


def word(text: str, row: Mapping[str, Any]) -> str:
    return str(row.get(text, text.strip("'")))


def truth(tree: Tree, row: Mapping[str, Any]) -> bool:
    sign = tree[0]
    if sign == "and":
        return truth(tree[1], row) and truth(tree[2], row)
    if sign == "or":
        return truth(tree[1], row) or truth(tree[2], row)
    if sign == "not":
        return not truth(tree[1], row)
    if sign == "words":
        return (word(tree[2], row) == word(tree[3], row)) is (tree[1] == "=")
    first = number(tree[1], row)
    if sign == "in":
        return any(compared("=", first, number(item, row)) for item in tree[2])
    if sign == "not in":
        return all(compared("!=", first, number(item, row)) for item in tree[2])
    values = [first, *(number(item, row) for _, item in tree[2])]
    return all(compared(op, values[i], values[i + 1]) for i, (op, _) in enumerate(tree[2]))


@settings(max_examples=400)
@given(_conditions, st.booleans())
def test_a_tree_holds_where_plain_python_says_so(tree: Tree, full: bool) -> None:
    try:
        condition = read_condition(printed(tree, 0, full), COLUMNS)
    except InputError as error:  # a chain that compares a number with a number says nothing of a row
        assume(not all(problem.endswith("write a column in it") for problem in error.problems))
        raise
    expected = [truth(tree, row) for row in ROWS]
    assert condition.holds(block_of(ROWS)).tolist() == expected
    again = read_condition(condition.text, COLUMNS)
    assert again.text == condition.text
    assert again.holds(block_of(ROWS)).tolist() == expected


PIECES = [
    "m",
    "schedule",
    "mc2",
    "1",
    "2 ms",
    "20%",
    "(",
    ")",
    "and",
    "or",
    "not",
    "in",
    "<",
    "=",
    "-",
    "*",
    ",",
    "'x'",
]


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        condition = read_condition(text, COLUMNS)
    except InputError as error:
        assert all(line.startswith("where: ") for line in error.problems)
    else:
        assert condition.holds(block_of(ROWS)).shape == (4,)
