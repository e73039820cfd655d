"""Every number of a profile moves some answer: a number that moves nothing is dead weight."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from mc2perf.answer import Answer
from mc2perf.costs import Costs, Ledger
from mc2perf.equations.collectives import PASSES
from mc2perf.evaluate import estimate
from mc2perf.machine import Machine
from mc2perf.model import Model
from mc2perf.operators import DTYPES
from mc2perf.problems import InputError
from mc2perf.quantity import Quantity, quantities
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine, profile_names
from mc2perf.scenario import Scenario, is_operator

NO_TILES = "only tiles of fused operators along k stand on it, and GPUs have none of those"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("a100_sxm_80g", "cube.base_block.k"): NO_TILES,
    ("b200_sxm", "cube.base_block.k"): NO_TILES,
    ("h100_sxm", "cube.base_block.k"): NO_TILES,
    ("h800_sxm", "cube.base_block.k"): NO_TILES,
}
"""Profile and path -> why the number moves nothing. A number that does move something must leave."""


@cache
def machine_of(name: str) -> Machine:
    return load_machine(name)


@cache
def model_of(name: str) -> Model:
    return load_model(name)


# --- perturb one number


def perturbed(part: Any, path: list[str], factor: float) -> Any:
    """The same with one number changed."""
    if not path:
        return Quantity(part * factor, part.symbol, part.kind, part.ref)
    name, *rest = path
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{name: perturbed(getattr(part, name), rest, factor)})
    if isinstance(part, dict):
        return {key: perturbed(v, rest, factor) if str(key) == name else v for key, v in part.items()}
    return tuple(perturbed(v, rest, factor) if str(i) == name else v for i, v in enumerate(part))


def factors(quantity: Quantity, path: str) -> tuple[float, ...]:
    """Changes that stay in the range of the dimension: whole numbers stay whole."""
    if path.endswith("up_to"):
        return (0.5, 2.0)
    if path.endswith("flags"):
        return (0.2,)
    whole = ("cores", "ranks", "links", "pieces", "handles", "ranks_per_server")
    if path.endswith(whole) or ".base_block." in path:
        return (2.0, 0.5)
    return (0.7, 1.3) if quantity else ()


# --- a small battery, cheap first


def prices(machine: Machine, path: str) -> Iterator[object]:
    """Matmuls by the rule, collectives by the engine that the path names."""
    parts = path.split(".")
    if parts[0] in ("cube", "memory", "kernels"):
        yield from _kernels(machine)
    if parts[0] in ("cube", "memory"):
        rules = [parts[2]] if path.startswith("cube.rules.") else list(machine.cube.rules)
        yield from _matmuls(machine, rules)
        yield Costs(machine, Ledger(), prefill=True).matmul("x", 4096.0, 4096.0, 7168.0, "bf16")
    if parts[0] == "tiers":
        here = machine_of(machine.name).tiers[parts[1]].engines
        for engine in [parts[3]] if "engines" in parts else here:
            yield from _collectives(machine, engine)
    if parts[0] in ("memory", "launch"):
        yield Costs(machine, Ledger()).vector("x", 1e9)


def _kernels(machine: Machine) -> Iterator[object]:
    """Kernels beside the dense matmul, by few and by many rows, caches in and out of L2."""
    costs = Costs(machine, Ledger(), warm_l2=True)
    yield costs.attention("x", 1e12, "bf16", 2048.0)
    for sequences, context in ((1.0, 128.0), (4.0, 8192.0), (128.0, 16.0), (64.0, 16384.0)):
        yield costs.decode_attention("x", sequences, context, 32.0, 8.0, 128.0, 128.0, "bf16")
    for rows in (16.0, 16384.0):
        yield costs.quantised_matmul("x", rows, 7168.0, 4096.0)
        yield costs.quantised_matmul("x", rows, 7168.0, 4096.0, touched=8.0)
        yield costs.matmul("x", rows, 7168.0, 4096.0, "bf16", 8.0, 8.0)
    yield costs.reorder("x", 1e9, 2.0)


def _matmuls(machine: Machine, rules: list[str]) -> Iterator[object]:
    for rule in rules:
        known = getattr(machine.cube.rules[rule], "rate_per_core", machine.cube.peak)
        for dtype in (d for d in DTYPES if d in known and d in machine.cube.peak):
            for warm in (False, True):
                costs = Costs(machine, Ledger(), matmul_rule=rule, warm_l2=warm)
                for m, n, k in SHAPES:
                    yield costs.matmul("x", m, n, k, dtype)


SHAPES = tuple(
    (float(m), float(n), float(k))
    for m in (1, 64, 130, 1024, 4096, 16384)
    for n, k in ((128, 512), (1408, 2048), (4096, 7168), (20480, 1024), (8192, 6144), (16384, 20480))
)
SIZES = 2.0 ** np.arange(8, 34, 0.25)


def _collectives(machine: Machine, engine: str | None) -> Iterator[object]:
    reach = list(machine_of(machine.name).tiers.values())[-1].ranks
    for name in PASSES:
        for ranks in (2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1536.0):
            if ranks <= reach:
                yield Costs(machine, Ledger(), engine).collective("x", name, SIZES, ranks)


BATTERY: tuple[dict[str, Any], ...] = (
    {"target": "mixtral-8x7b", "schedule": "all", "seq_len": 64.0},
    {"target": "mixtral-8x7b", "schedule": "all", "tp": 8.0, "batch_size": 4.0},
    {"target": "deepseek-v3", "schedule": "all", "ep": 16.0, "tokens": 1024.0},
    {"target": "mixtral-8x7b", "schedule": "serial", "global_batch_size": 64.0, "tp": 8.0},
    {"target": "deepseek-v3", "schedule": "all", "ep": 8.0, "tokens": 1024.0},
    {"target": "matmul_all_reduce", "m": 8192.0, "n": 4096.0, "k": 4096.0, "ranks": 4.0},
    {"target": "all_gather_matmul", "m": 4096.0, "n": 4096.0, "k": 4096.0, "ranks": 2.0},
    {"target": "all_to_all_matmul", "m": 65536.0, "n": 256.0, "k": 7168.0, "ranks": 8.0},
    {"target": "all_to_all_matmul", "m": 65536.0, "n": 256.0, "k": 7168.0, "ranks": 2.0},
)
CUT: tuple[dict[str, Any], ...] = (
    # pieces along the contraction stand on the depth of the base block
    {"target": "all_to_all_matmul", "m": 4096.0, "n": 256.0, "k": 512.0, "ranks": 8.0, "split_axis": "k"},
    # two tiles of exactly one put each
    {"target": "matmul_all_reduce", "m": 1024.0, "n": 4096.0, "k": 4096.0, "ranks": 8.0},
    # so many buffers that tiles within a put fill the symmetric heap
    {"target": "matmul_all_reduce", "m": 1024.0, "n": 4096.0, "k": 4096.0, "ranks": 8.0, "buffers": 256.0},
)
MOST = {
    "target": "all_to_all_matmul", "m": 65536.0, "n": 4096.0, "k": 64.0, "tile_cnt": 16.0, "ranks": 2.0,
}  # fmt: skip
"""As many tiles as the limit of a profile allows: less of it refuses them."""


DECODE = {"target": "llama-2-7b", "phase": "decode", "batch_size": 1.0, "context_len": 64.0, "host": "eager"}
"""A step that the host may bound, without a training framework."""
SPARSE = {
    "target": "glm-5", "phase": "decode", "context_len": 65536.0, "batch_size": 32.0, "schedule": "serial",
}  # fmt: skip
"""A step that gathers the keys that it picked, of few heads: memory bounds it."""


def answers(machine: Machine, path: str) -> Iterator[object]:
    """Whole answers under the engine and rule that the path names, with every warning and reason."""
    parts = path.split(".")
    how: dict[str, Any] = {"hardware": machine.name}
    if "engines" in parts:
        how["engine"] = parts[3]
    if path.startswith("cube.rules."):
        how["matmul_rule"] = parts[2]
    first: dict[str, Iterator[dict[str, Any]]] = {
        "memory": _weights(), "limits": _windows(machine), "tiers": _across(machine), "host": iter([DECODE]),
        "kernels": iter([SPARSE]),
    }  # fmt: skip
    for more in (*first.get(parts[0], ()), *BATTERY, *CUT, MOST):
        yield _outcome({**how, **more}, machine)


def _across(machine: Machine) -> Iterator[dict[str, Any]]:
    """Two servers, and as many ranks as the links reach."""
    tiers = list(machine_of(machine.name).tiers.values())
    operator = {"target": "all_to_all_matmul", "m": 65536.0, "n": 4096.0, "k": 1024.0}
    yield {**operator, "ranks": float(tiers[-1].ranks), "schedule": "serial"}
    if len(tiers) > 1:
        ranks = 2.0 * tiers[0].ranks
        yield {"target": "moe_layer", "m": 4096.0, "n": 2048.0, "k": 7168.0, "ranks": ranks, "top_k": 8.0}
        yield {**operator, "ranks": ranks}


def _windows(machine: Machine) -> Iterator[dict[str, Any]]:
    """Grouped operators whose bytes per peer stand at either end of the window."""
    limits = machine_of(machine.name).limits
    for limit in (limits.peer_window_min, limits.peer_window_max):
        if 0.0 < limit < float("inf"):
            yield {
                "target": "all_to_all_v_grouped_matmul", "n": 2048.0, "k": 4096.0, "ranks": 8.0,
                "m": round(limit * 8 / 8192), "schedule": "mc2", "experts_per_rank": 2.0,
            }  # fmt: skip


def _weights() -> Iterator[dict[str, Any]]:
    """Models of many sizes, for the capacity of the memory."""
    for model in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "mixtral-8x22b"):
        for dtype in ("bf16", "int8", "fp8"):
            for ep in (1.0, 2.0, 4.0, 8.0):
                yield {"target": model, "ep": ep, "dtype": dtype, "schedule": "serial", "tokens": 512.0}


def _outcome(asked: dict[str, Any], machine: Machine) -> object:
    try:
        scenario = Scenario(**asked)
        model = None if is_operator(scenario.target) else model_of(scenario.target)
        return _said(estimate(scenario, machine, model))
    except InputError as error:
        return error.problems


def _said(answer: Answer) -> object:
    """Times, reasons and warnings; not the inputs or the sources."""
    return answer.rows, answer.warnings, answer.resolved


def same(a: object, b: object) -> bool:
    if isinstance(a, tuple) and hasattr(a, "_fields") and isinstance(b, tuple):
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@cache
def unchanged(name: str, path_kind: str, how: Callable[[Machine, str], Iterator[object]]) -> list[object]:
    return list(how(machine_of(name), path_kind))


def kind_of(path: str) -> str:
    """The part of a path that decides which questions are asked."""
    parts = path.split(".")
    if "engines" in parts:
        return ".".join(parts[:4])
    deep = 3 if path.startswith("cube.rules.") else 2 if parts[0] == "tiers" else 1
    return ".".join(parts[:deep])


def moves(name: str, path: str, quantity: Quantity) -> bool:
    for how in (prices, answers):
        before: list[object] | None = None
        for factor in factors(quantity, path):
            other = perturbed(machine_of(name), path.split("."), factor)
            before = before or unchanged(name, kind_of(path), how)
            if any(not same(a, b) for a, b in zip(before, how(other, path), strict=True)):
                return True
    return False


ONE_OF_A_KIND = ("atlas_800t_a2", "atlas_800t_a3", "ascend_950pr", "h800_sxm")
"""A profile of each family; scripts/fuzz.sh asks all others as well."""

NAMES = profile_names() if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else ONE_OF_A_KIND


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_profile_moves_an_answer(name: str) -> None:
    dead = [
        path
        for path, quantity in quantities(machine_of(name))
        if quantity and not moves(name, path, quantity)
    ]
    assert dead == [path for path, _ in quantities(machine_of(name)) if (name, path) in EXCEPTIONS]


def test_every_exception_names_a_number_and_a_reason() -> None:
    for (name, path), reason in EXCEPTIONS.items():
        assert path in dict(quantities(machine_of(name)))
        assert len(reason.split()) > 3


def test_a_number_that_nobody_reads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's time of a launch, once nothing asks for it."""
    name, path = "h800_sxm", "host.per_launch"
    quantity = dict(quantities(machine_of(name)))[path]
    assert moves(name, path, quantity)
    monkeypatch.setattr("mc2perf.study.Study.host_per_launch", 0.0)
    unchanged.cache_clear()
    assert not moves(name, path, quantity)
    unchanged.cache_clear()
