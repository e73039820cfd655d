"""Footprints of models, for tests."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import settings

from mc2perf.footprint import Footprint, footprint_of
from mc2perf.machine import Machine
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.readers.models import load_model
from mc2perf.readers.profiles import load_machine
from mc2perf.scenario import Scenario
from mc2perf.study import Study, study_of

NPU = "atlas_800t_a2"
quick = settings(max_examples=15, deadline=None)
model_of, machine_of = cache(load_model), cache(load_machine)


def study(target: str | Model, hardware: str = NPU, machine: Machine | None = None, **given: Any) -> Study:
    model = model_of(target) if isinstance(target, str) else target
    scenario = Scenario(target=model.name, hardware=hardware, **given)
    return study_of(scenario, machine or machine_of(hardware), model)


def footprint(target: str | Model, hardware: str = NPU, **given: Any) -> Footprint:
    return footprint_of(study(target, hardware, **given))


def one(number: Any) -> float:
    return float(np.asarray(number).item())


def gpt(name: str, layers: int, hidden: int, heads: int, vocab: int = 51200) -> Model:
    mixer = Attention(
        kind="softmax", heads=heads, kv_heads=heads, head_dim=hidden // heads, v_head_dim=hidden // heads
    )
    return Model(
        name=name, source="test", hidden_size=hidden, vocab_size=vocab, matrices=2, dense_width=4 * hidden,
        layers=(LayerGroup(count=layers, mixer="full", ffn="dense"),), mixers={"full": mixer},
    )  # fmt: skip
