"""Measurements of a known machine, for tests of calibration."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mc2perf.costs import Costs, Ledger
from mc2perf.machine import Machine
from mc2perf.studies.calibrate.result import Group

Numbers = Any
HEADER = "op,ranks,size_bytes_whole_array,time_us\n"
DOUBLING = 2.0 ** np.arange(12, 31)


def _script() -> ModuleType:
    file = Path(__file__).parents[1] / "scripts" / "calibration_trials.py"
    spec = importlib.util.spec_from_file_location("calibration_trials", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trials: Any = _script()


def collectives(op: str, size: Numbers, time: Numbers, ranks: int = 8) -> str:
    return "".join(f"{op},{ranks},{s:.0f},{t * 1e6:.4f}\n" for s, t in zip(size, time, strict=True))


def put(folder: Path, text: str, name: str = "table.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def value(group: Group, name: str) -> float:
    return next(v.value for v in group.values if v.name.endswith(name))


def group_of(found: Any, what: str) -> Group:
    groups: list[Group] = found.found.groups
    return next(group for group in groups if group.what.startswith(what))


def matmuls(machine: Machine, seed: int, dtype: str = "bf16") -> str:
    rng, costs = np.random.default_rng(seed), Costs(machine, Ledger())
    rows = ["m,n,k,dtype,time_us"]
    for m in (64, 256, 512, 1024, 2048, 4096, 8192):
        for n in (1024, 4096, 8192):
            for k in (1024, 4096, 16384):
                time = float(costs.matmul("x", float(m), float(n), float(k), dtype).time)
                rows.append(
                    f"{m},{n},{k},torch.bfloat16,{time * np.exp(0.02 * rng.standard_normal()) * 1e6:.4f}"
                )
    return "\n".join([*rows, ""])
