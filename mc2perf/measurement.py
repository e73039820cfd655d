"""What a published measurement is: a setting, what was measured there, and who published it.

A row that is held out of fitting states its setting and no value. Relations between values, which need no
model to be checked, stand beside the rows: identities of the arithmetic, orderings and signs.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

from mc2perf.units import SPELLINGS, Dim

Plain = bool | int | float | str
"""What an input may be."""

FIGURE = Dim("1", "a number", at_most=1e18, signed=True, example="46.8")
"""A printed number, without its unit: changes and gains may be negative."""
Figure = Annotated[float, FIGURE]

Level = Literal["operator", "layer", "step", "identity", "ordering"]
Bound = Literal["exact", "about", "at_least", "at_most"]

UNITS = {unit: scale for units in SPELLINGS.values() for unit, scale in units.items()}
UNITS |= {"1": 1.0, "tokens/s": 1.0}
"""Every unit a value may be printed in -> that unit in SI; tokens are counted, not measured."""

_INPUT_NAMES = (
    # sizes of a model, in the words of its YAML file; a row that cuts a model says so with them
    "num_layers hidden_size dense_width dense_layers heads kv_heads head_dim v_head_dim rope_head_dim",
    "q_lora_rank kv_lora_rank window vocab_size experts top_groups expert_width moe_layers mtp_layers",
    "no_op_layers models",
    # layout: npus are ranks of the machine's profile unless cards or dies are counted beside them
    "npus cards dies npus_or_cards sp sp_ranks pp vpp cp cp_kind dp etp stage_layers",
    # a training step
    "global_batch_size recompute recompute_parts optimizer swap_optimizer flash_attention",
    "gradient_accumulation_fusion fused_cross_entropy grouped_matmul dispatcher pad_to_capacity",
    "overlap_all_to_all launch_blocking",
    # serving
    "requests batch_tokens prompt_len output_len context_len batch_per_npu batch_per_die tokens_per_npu",
    "kv_dtype tokens_per_request attention_dtype mtp mtp_acceptance mtp_accepted cache_hit_share streams",
    "disaggregated prefill_micro_batches",
    # one operator, and a part of a layer
    "all_to_all block layer part stream kernel mode tier tuned version payload compression pipelined",
    "expert_groups",
    "scheduled local_first comm_cores fused_operator shape tokens_above tokens_below candidates",
    # what a figure refers to
    "peak per chip system statistic layers_averaged baseline baseline_time baseline_busy_time",
    "baseline_all_reduce_time baseline_throughput baseline_tokens_per_second_per_node",
)
STEP_INPUTS = frozenset(name for line in _INPUT_NAMES for name in line.split())
"""Names that a row's inputs may have beside those of a scenario."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One measured number as it was printed; ``None`` where it is held out.

    ``name`` tells the values of a row apart, ``at`` holds the inputs of this value alone, ``target`` the
    part it belongs to. ``upper`` is the other end of a printed range. ``bound`` says how the number is
    meant where the source gives less than a number, such as "no gain" or ">= 110".
    """

    quantity: str
    unit: str
    name: str = ""
    value: Figure | None = None
    upper: Figure | None = None
    uncertainty: Figure | None = None
    bound: Bound = "exact"
    target: str | None = None
    at: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name in the row: the quantity where it has no other."""
        return self.name or self.quantity

    @property
    def si(self) -> float | None:
        """The number in SI; the middle of a range.

        Examples
        --------
        >>> Value(quantity="time", unit="ms", value=46.0, upper=48.0).si
        0.047
        """
        if self.value is None:
            return None
        middle = self.value if self.upper is None else (self.value + self.upper) / 2
        return middle * UNITS[self.unit]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a published table.

    ``grade`` is how the number was read: E printed digits, D arithmetic on them, F off a figure, S from a
    summary; a suffix i marks an inferred input. ``predictable``: P1 every input is known, P2 only ratios,
    orderings and bounds are fair, P3 a sanity bound. ``inputs`` were stated by the source (or follow from
    what it states), ``assumed`` ones were not, ``unstated`` names what the source leaves out. ``outside``
    is the reason why no analytical model can be held to this row, ``needs`` a name that is not shipped and
    why.
    """

    id: str
    grade: Literal["E", "D", "F", "S", "Ei", "E/F"]
    predictable: Literal["P1", "P2", "P3"]
    open: bool
    level: Level
    target: str
    label: str = ""
    source: str = ""
    inputs: Mapping[str, Plain] = field(default_factory=dict)
    assumed: Mapping[str, Plain] = field(default_factory=dict)
    unstated: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    calibration: bool = False
    outside: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def quantity(self) -> str:
        """What its first value is."""
        return self.values[0].quantity

    @property
    def value(self) -> float | None:
        """Its first value as printed."""
        return self.values[0].value

    @property
    def unit(self) -> str:
        """The unit of its first value."""
        return self.values[0].unit

    def question(self, value: Value) -> dict[str, Plain]:
        """Every input behind one of its values, stated or assumed."""
        return {"target": value.target or self.target, **self.assumed, **self.inputs, **value.at}

    def addresses(self) -> Iterator[tuple[str, Value]]:
        """``row/name`` of every value; the row's own id stands for its first."""
        if self.values:
            yield self.id, self.values[0]
        for value in self.values:
            yield f"{self.id}/{value.key}", value


@dataclass(frozen=True, kw_only=True)
class Relation:
    """What must hold between values, whatever the model.

    ``of`` are formulas of numbers, ``[row]`` or ``[row/name]`` (the value in SI) and ``[row:input]``.
    An ``identity`` makes all of them equal within the share ``within``, an ``order`` lists them from the
    largest to the smallest, a ``sign`` says that each is positive.
    """

    id: str
    kind: Literal["identity", "order", "sign"]
    of: tuple[str, ...]
    says: str
    within: Figure = 0.01

    def references(self) -> set[str]:
        """Everything its formulas name."""
        return {name for text in self.of for name in _REFERENCE.findall(text)}

    def holds(self, numbers: Mapping[str, float]) -> bool | None:
        """Whether it holds; ``None`` while a value it needs is held out.

        Examples
        --------
        >>> tokens = Relation(id="x", kind="identity", of=("[a] * 2", "[b]"), says="b is twice a")
        >>> tokens.holds({"a": 1.0, "b": 2.01}), tokens.holds({"a": 1.0})
        (True, None)
        """
        if not self.references() <= numbers.keys():
            return None
        found = [evaluate(text, numbers) for text in self.of]
        if self.kind == "identity":
            return max(found) - min(found) <= self.within * max(map(abs, found))
        if self.kind == "sign":
            return min(found) > 0
        return all(a > b for a, b in pairwise(found))


@dataclass(frozen=True, kw_only=True)
class Family:
    """The rows of one published table or group of tables; its sources, assumptions and relations."""

    family: str
    title: str
    measured: str
    machine: str
    source: str
    rows: tuple[Row, ...]
    relations: tuple[Relation, ...] = ()
    notes: tuple[str, ...] = ()


def numbers(families: Iterable[Family]) -> dict[str, float]:
    """Every known value [SI] by ``row`` and ``row/name``, every numeric input by ``row:input``."""
    found: dict[str, float] = {}
    for row in (row for family in families for row in family.rows):
        found |= {name: value.si for name, value in row.addresses() if value.si is not None}
        for key, given in {**row.assumed, **row.inputs}.items():
            if isinstance(given, int | float) and not isinstance(given, bool):
                found[f"{row.id}:{key}"] = float(given)
    return found


_REFERENCE = re.compile(r"\[([^\[\]]+)\]")
_ARITHMETIC: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS = {"max": max, "min": min}


def evaluate(text: str, numbers: Mapping[str, float]) -> float:
    """Evaluate a formula of numbers, ``[references]``, ``+ - * / **``, ``max`` and ``min``.

    Parameters
    ----------
    text : str
        Such as ``"[N2-16] / max([N2-16/compute], [N2-16/all_to_all])"``.
    numbers : mapping
        What each reference stands for.

    Returns
    -------
    float
        The result, in SI.

    Raises
    ------
    ValueError
        The text is no such formula.

    Examples
    --------
    >>> evaluate("2 * max([a], [b/c])", {"a": 1.0, "b/c": 3.0})
    6.0
    """
    names = _REFERENCE.findall(text)
    plain = _REFERENCE.sub(lambda found: f"v{names.index(found[1])}", text)
    try:
        tree = ast.parse(plain, mode="eval").body
        return float(_evaluated(tree, {f"v{i}": numbers[name] for i, name in enumerate(names)}))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"'{text}' is not a formula of numbers and [references] ({error})") from None


def _evaluated(node: ast.expr, names: Mapping[str, float]) -> float:
    """The value of one node; every other kind of node is a ``KeyError`` or ``TypeError``."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left, names), _evaluated(node.right, names)
        return float(_ARITHMETIC[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp):
        return float(_ARITHMETIC[type(node.op)](_evaluated(node.operand, names)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return float(_FUNCTIONS[node.func.id](*(_evaluated(part, names) for part in node.args)))
    raise TypeError("only arithmetic, max and min")
