"""Published measurements: every row is there, held-out rows have no value, the arithmetic of the open ones holds."""

# ruff: noqa: E501 - exact lines stand in tables
from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mc2perf import units
from mc2perf.measurement import Row, numbers
from mc2perf.model import Model
from mc2perf.operators import DTYPES, TARGETS
from mc2perf.problems import InputError
from mc2perf.readers.measurements import family_names, load_measurements
from mc2perf.readers.models import load_model, model_aliases, model_names
from mc2perf.readers.profiles import profile_names
from mc2perf.readers.structure import parse_yaml
from mc2perf.scenario import SCHEDULES
from mc2perf.validating.questions import EXCHANGES, GROUPED_MATMUL

DATA = Path(__file__).parent.parent / "mc2perf" / "data" / "measurements"

# family: rows open, rows held out, as the published tables were split
COUNTS = {
    "claims": (3, 0),
    **{"A1": (2, 1), "A2": (2, 2), "A3": (1, 1), "A4": (1, 0)},
    **{"C1": (6, 3), "C2": (2, 2), "C3": (4, 2), "C4": (5, 2), "G1": (9, 5)},
    **{"I1": (1, 1), "I2": (8, 5), "I3": (10, 4), "I4": (2, 0), "I5": (8, 4), "I6": (1, 0)},
    **{"T1": (24, 12), "T2": (3, 0), "T3": (10, 4), "T4": (4, 2), "T5": (6, 4), "T6": (29, 14)},
    **{"N1": (14, 2), "N2": (14, 4), "N3": (8, 1), "N4": (7, 3), "N5": (5, 3), "N6": (12, 6)},
    **{"N7": (2, 1), "N8": (4, 2)},
}
FAMILIES = load_measurements()
ROWS = {row.id: row for family in FAMILIES for row in family.rows}
KNOWN = numbers(FAMILIES)


def text(row_id: str, name: str) -> float:
    """One input as a number."""
    return float({**ROWS[row_id].assumed, **ROWS[row_id].inputs}[name])


def problems(call: Any, *args: Any) -> list[str]:
    with pytest.raises(InputError) as refused:
        call(*args)
    return refused.value.problems


def test_no_row_is_missing() -> None:
    found = {f.family: (sum(r.open for r in f.rows), sum(not r.open for r in f.rows)) for f in FAMILIES}
    assert found == COUNTS
    # three claims and the summary of xDeepServe stand beside the 203 open rows of the tables
    assert sum(n for n, _ in COUNTS.values()) == 203 + 4
    assert sum(n for _, n in COUNTS.values()) == 90


def test_ids_are_unique_and_begin_with_their_family() -> None:
    assert len(ROWS) == sum(len(family.rows) for family in FAMILIES)
    assert all(
        row.id.startswith(family.family.removesuffix("s")) for family in FAMILIES for row in family.rows
    )
    assert family_names() == sorted(COUNTS)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_held_out_rows_have_no_number_in_the_file(name: str) -> None:
    def keys(node: Any) -> set[str]:
        if isinstance(node, dict):
            return set(node).union(*map(keys, node.values()))
        return set().union(*map(keys, node)) if isinstance(node, list) else set()

    for row in parse_yaml((DATA / f"{name}.yaml").read_text(encoding="utf-8"), name)["rows"]:
        given = keys(row) & {"value", "upper", "uncertainty", "bound"}
        assert ("value" in given) == row["open"], row["id"]
        assert row["open"] or not given, row["id"]


def test_no_relation_needs_a_held_out_value_and_all_hold() -> None:
    for family in FAMILIES:
        for relation in family.relations:
            assert relation.holds(KNOWN) is True, relation


def test_files_name_public_sources_only() -> None:
    for file in DATA.glob("*.yaml"):
        content = file.read_text(encoding="utf-8")
        assert not re.search(r"(^|[\s\"'])/[a-z]+/", content) and "HELD" not in content
    assert all(
        row.source and family.machine and family.measured for family in FAMILIES for row in family.rows
    )


def used_names(row: Row) -> set[str]:
    """Targets, machines and element types that the row's questions name."""
    questions = [row.question(value) for value in row.values]
    keys = ("target", "hardware", "dtype", "dispatch_dtype", "combine_dtype", "kv_dtype", "attention_dtype")
    return {str(question[key]) for question in questions for key in keys if key in question}


def test_every_name_is_shipped_or_explained() -> None:
    shipped = {
        *TARGETS,
        *EXCHANGES,
        GROUPED_MATMUL,
        *model_names(),
        *model_aliases(),
        *profile_names(),
        *DTYPES,
    }
    for row in ROWS.values():
        assert used_names(row) <= shipped | row.needs.keys(), row.id
        assert not row.needs.keys() & shipped, row.id
        assert all(row.needs.values())


def test_schedules_phases_and_booleans_are_those_of_the_tool() -> None:
    for row in ROWS.values():
        for value in row.values:
            question = row.question(value)
            assert question.get("schedule", "serial") in SCHEDULES, row.id
            assert question.get("phase", "train") in ("train", "prefill", "decode"), row.id
            assert str(question.get("recompute", "none")).split(":")[0] in (
                "none",
                "selective",
                "full",
                "block",
            )
            assert isinstance(question.get("sp", True), bool)


def test_units_parse() -> None:
    dims = (units.TIME, units.RATE, units.COMPUTE)
    for value in (value for row in ROWS.values() for value in row.values):
        owners = [dim for dim in dims if value.unit in units.SPELLINGS[dim.symbol]]
        assert len(owners) == 1 or value.unit in ("1", "tokens/s")
        if owners and value.value is not None and value.upper is None:
            assert value.si == pytest.approx(units.parse(f"{value.value} {value.unit}", owners[0]), rel=1e-12)


def test_no_calibration_rows_were_chosen() -> None:
    assert not any(row.calibration for row in ROWS.values())


def model_sizes(model: Model) -> dict[str, int]:
    """The sizes of a shipped model in the words of the rows."""
    mixer = next(iter(model.mixers.values()))
    sizes = {
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_layers": model.num_layers,
        "dense_width": model.dense_width,
        "heads": mixer.heads,
        "kv_heads": mixer.kv_heads,
        "head_dim": mixer.head_dim,
        "q_lora_rank": mixer.q_lora_rank,
        "kv_lora_rank": mixer.kv_lora_rank,
    }
    if model.experts:
        experts = model.experts
        sizes |= {"experts": experts.count, "expert_width": experts.width, "top_k": experts.top_k}
        sizes |= {"shared_width": experts.shared_width}
    return sizes


def test_sizes_in_rows_are_those_of_the_shipped_models() -> None:
    checked = 0
    for row in ROWS.values():
        if row.target not in {*model_names(), *model_aliases()} or row.id.startswith(
            ("N3", "N6", "N8", "T3")
        ):
            continue
        given = {**row.assumed, **row.inputs}
        sizes = model_sizes(load_model(row.target))
        cut = row.id.startswith("T6") or row.id in ("T4-1", "T4-2", "T4-3")
        # the simulator of T6 gives Llama-3.1 405B 16 kv heads; its rows override the published 8
        own = {"kv_heads"} if row.target == "llama-3.1-405b" else set()
        common = (sizes.keys() & given.keys()) - ({"num_layers"} if cut else set()) - own
        assert {name: given[name] for name in common} == {name: sizes[name] for name in common}, row.id
        checked += len(common)
    assert checked > 200


def layout_holds(row: Row) -> bool:
    def get(name: str) -> int:
        return int({**row.assumed, **row.inputs}.get(name, 1))

    ranks = get("tp") * get("pp") * get("cp") * get("dp") == get("npus")
    return ranks and get("micro_batch_size") * get("dp") * get("micro_batches") == get("global_batch_size")


def test_layouts_fill_their_npus_and_batches() -> None:
    for row in (row for name, row in ROWS.items() if name.startswith(("T1", "T6"))):
        assert layout_holds(row), row.id
    for name in ("T2-a", "T2-b", "T2-c", "T4-1", "T4-2", "T4-3", "T4-4", "T4-5", "T4-6"):
        row = ROWS[name]
        layout = [text(name, axis) if axis in row.inputs else 1 for axis in ("tp", "pp", "cp", "dp")]
        assert math.prod(layout) == text(name, "npus"), name


def flop_per_token(row: Row) -> float:
    """6 per active weight without embeddings, the output layer, causal attention."""
    g: dict[str, Any] = {"head_dim": 0, "kv_lora_rank": 0, "dense_layers": 0, **row.assumed, **row.inputs}
    h, heads, layers = g["hidden_size"], g["heads"], g["num_layers"]
    if g["kv_lora_rank"]:
        no_rope = g["head_dim"] - g["rope_head_dim"]
        attention = h * heads * (g["head_dim"] + g["v_head_dim"]) + h * (
            g["kv_lora_rank"] + g["rope_head_dim"]
        )
        attention += g["kv_lora_rank"] * heads * (no_rope + g["v_head_dim"])
        width = heads * (g["head_dim"] + g["v_head_dim"]) / 2
    else:
        head = g["head_dim"] or h // heads
        attention, width = 2 * h * head * (heads + g["kv_heads"]), heads * head
    dense = 3 * h * g.get("dense_width", 0)
    moe = 3 * h * (g.get("top_k", 0) * g.get("expert_width", 0) + g.get("shared_width", 0))
    n_dense = g["dense_layers"] if g["experts"] else layers
    weights = layers * attention + n_dense * dense + (layers - n_dense) * moe
    return float(6 * (weights + h * g["vocab_size"] + layers * g["seq_len"] * width))


def test_mfu_of_the_a2_training_rows_follows_from_their_throughput() -> None:
    rows = [row for name, row in ROWS.items() if name.startswith("T1") and row.open]
    assert len(rows) == 24
    for row in rows:
        mfu = KNOWN[row.id] * flop_per_token(row) / 313e12
        assert mfu == pytest.approx(KNOWN[f"{row.id}/mfu"], rel=0.01), row.id


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (128 * 4096 / 31.13 / 16, 1053.6),
        (8 * 32768 / 16.81 / 32, 487.0),
        (128 / 0.0468, 2733.0),
        (96 / 0.0494, 1943.0),
        (8 / 0.0149, 538.0),
        (6144 / 64 / 0.0449, 2138.0),
        (64 * 4096 / 3.128, 83805.0),
        (720 * 8192 / 21.61, 272_900.0),
        (560.9 / max(371.8, 189.1), 1.51),
        (698.9 / max(375.1, 323.8), 1.86),
    ],
)
def test_identities_written_out(left: float, right: float) -> None:
    assert left == pytest.approx(right, rel=0.01)


def test_identities_of_every_open_row() -> None:
    """Tokens over time, batch over TPOT: computed here from inputs, not by the relations in the files."""
    for name in ("T2-a", "T2-b"):
        tokens = text(name, "global_batch_size") * text(name, "seq_len")
        assert tokens / KNOWN[f"{name}/step_time"] / text(name, "npus") == pytest.approx(
            KNOWN[name], rel=0.01
        )
    for name in ("I2-d1", "I2-d3", "I2-d5"):
        assert text(name, "batch_per_npu") / KNOWN[f"{name}/tpot"] == pytest.approx(KNOWN[name], rel=0.01)
    for name in (f"I3-{j}" for j in (1, 2, 4, 8, 10, 11, 12)):
        devices = text(name, "cards" if "cards" in ROWS[name].inputs else "npus_or_cards")
        rate = text(name, "global_batch_size") / devices / KNOWN[name]
        assert rate == pytest.approx(KNOWN[f"{name}/tokens_per_second_per_card"], rel=0.01)
    for name in (f"T5-{k}" for k in ("m2", "m4", "s1", "s2", "s4")):
        assert 720 * 8192 / KNOWN[name] == pytest.approx(KNOWN[f"{name}/tokens_per_second"], rel=0.01)


def test_the_trace_adds_up() -> None:
    def total(*blocks: str) -> float:
        return sum(KNOWN[f"N1-{block}/layer_{layer}"] for block in blocks for layer in range(1, 5))

    assert total("af", "mb", "mw", "mf", "ab", "aw") == pytest.approx(118.2e-3, rel=0.001)
    assert total("cb", "df", "db", "cf") == pytest.approx(114.5e-3, rel=0.001)


def test_rows_of_a_grouped_matmul_are_tokens_times_top_k() -> None:
    for row in (row for name, row in ROWS.items() if name.startswith("G1")):
        for value in row.values:
            assert float(value.at["m"]) == float(value.at["tokens"]) * text(row.id, "top_k")
        assert text(row.id, "ep") * text(row.id, "experts_per_rank") == text(row.id, "experts")


def test_up_takes_about_twice_down() -> None:
    """Twice the weights and FLOP; the small kernels with few experts stray."""
    ratios = [
        KNOWN[f"{row.id}/up_{v.at['tokens']}"] / KNOWN[f"{row.id}/down_{v.at['tokens']}"]
        for row in ROWS.values()
        if row.id.startswith("G1") and row.open and text(row.id, "experts_per_rank") >= 16
        for v in row.values
        if v.key.startswith("up")
    ]
    assert len(ratios) == 29
    assert min(ratios) > 1.65 and max(ratios) < 2.15


def test_best_fixed_degree_of_tutel() -> None:
    for ranks, best in ((16, {"linear_2", "linear_4"}), (32, {"linear_2"}), (64, {"linear_2"})):
        loss = {value.key: value.value or 0.0 for value in ROWS[f"N2-t{ranks}"].values}
        assert {name for name, x in loss.items() if x == min(loss.values())} == best
    linear = [KNOWN[f"N2-t256/linear_{degree}"] for degree in (1, 2, 4, 8)]
    assert all(a < b for a, b in pairwise(linear))


def test_a_row_carries_what_its_family_states_once() -> None:
    row = ROWS["T1-15"]
    assert row.inputs["dtype"] == "fp16" and row.inputs["phase"] == "train" and not row.open
    assert row.assumed["hardware"] == "atlas_800t_a2" and "hardware" in row.unstated
    assert row.value is None and row.quantity == "tokens_per_second_per_npu" and row.unit == "tokens/s"
    assert row.needs.keys() == {"reference_gpu"}
    assert ROWS["T4-6"].source.endswith("README") and ROWS["T4-1"].source.endswith("baselines")
    assert ROWS["I3-6"].question(ROWS["I3-6"].values[1])["dtype"] == "w4a8"


def test_one_family_and_values_of_somebody_else() -> None:
    (family,) = load_measurements("T1", {"T1-04": 700.0, "T1-04/mfu": 0.5, "I1-1": 1.0})
    row = next(row for row in family.rows if row.id == "T1-04")
    assert [value.value for value in row.values] == [700.0, None, 0.5]
    assert next(row for row in load_measurements("T1")[0].rows if row.id == "T1-04").value is None


def test_problems_of_the_caller() -> None:
    assert problems(load_measurements, "T7")[0].startswith(
        "measurements: family 'T7' is unknown; write one of T6, "
    )
    found = problems(load_measurements, None, {"T1-4": 1.0, "T1-01": 2.0})
    assert found == [
        "values: 'T1-4' is no measurement; did you mean 'T1-34'?",
        "values: 'T1-01' is open; leave it out, its value is shipped",
    ]
