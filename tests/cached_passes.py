"""Passes over a cache, for tests: a layout of sequences, a cache, what the ledger counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import settings

from mc2perf.costs import Costs, Ledger
from mc2perf.machine import Machine
from mc2perf.model import Attention, LayerGroup, Model
from mc2perf.readers.profiles import load_machine
from mc2perf.workload.decode import Cache, cached_layers
from mc2perf.workload.keys import cache_of_layer
from mc2perf.workload.layer import LayerParts
from mc2perf.workload.layout import Layout
from mc2perf.workload.parts import all_segments, time_of

quick = settings(max_examples=25, deadline=None)
GROUPS = Attention(kind="softmax", heads=4, kv_heads=2, head_dim=8, v_head_dim=6)


@cache
def machine_of(name: str) -> Machine:
    return load_machine(name)


def layout_of(sequences: Any, new_tokens: Any = 1.0, **how: Any) -> Layout:
    """New tokens of an NPU's sequences, or of a tensor-parallel group's."""
    plain: dict[str, Any] = {
        "tp": 1.0, "ep": 1.0, "servers": 1.0, "logit_rows": None, "dtype": "bf16", "sp": False,
        "expert_dtype": "bf16", "dispatch_dtype": "bf16", "combine_dtype": "bf16", "attention_dtype": "bf16",
        "capacity_factor": None,
    }  # fmt: skip
    plain |= {"etp": how.get("tp", 1.0) if how.get("ep", 1.0) == 1.0 else 1.0, **how}
    return Layout(tokens=sequences * new_tokens / plain["tp"], seq_len=new_tokens, **plain)


@dataclass
class Counted:
    """What the ledger wrote down while the parts of a pass were priced."""

    layers: list[LayerParts]
    ledger: Ledger
    names: dict[str, float] = field(default_factory=dict)

    def total(self, ending: str) -> float:
        """Sum of a quantity over all layers."""
        found = 0.0
        for layer in self.layers:
            for part in layer.forward:
                self.ledger.steps.clear()
                all_segments(part)
                values = [s.value for s in self.ledger.steps if s.label.endswith(ending)]
                found += layer.count * sum(v for v in values if isinstance(v, float))
        return found


def counted(model: Model, layout: Layout, over: Cache, hardware: str = "atlas_800t_a3") -> Counted:
    ledger = Ledger(recording=True)
    return Counted(cached_layers(Costs(machine_of(hardware), ledger), model, layout, over), ledger)


def decode(context: Any, **how: Any) -> Cache:
    return Cache(context=context, decode=True, **how)


def prompt(context: Any = 0.0, **how: Any) -> Cache:
    return Cache(context=context, decode=False, **how)


def seconds(model: Model, layout: Layout, over: Cache, hardware: str = "atlas_800t_a3") -> Any:
    """Everything one after the other."""
    layers = cached_layers(Costs(machine_of(hardware), Ledger()), model, layout, over)
    pieces = [(layer.count, all_segments(part)) for layer in layers for part in layer.forward]
    return sum(n * (time_of(s, "compute") + time_of(s, "comm")) for n, s in pieces)


def cache_of_sequence(model: Model, context: float, item: float, tp: float) -> Any:
    """Bytes of all layers."""
    groups = [(group.count, model.mixers[group.mixer]) for group in model.layers if group.mixer]
    return sum(count * cache_of_layer(mixer, context, item, tp) for count, mixer in groups)


def small(mixer: Attention) -> Model:
    """One layer without a feed-forward part, and a head of 96 words."""
    return Model(
        name="small", source="", hidden_size=32, vocab_size=96, matrices=3, dense_width=0,
        layers=(LayerGroup(count=1, mixer="m", ffn=None),), mixers={"m": mixer},
    )  # fmt: skip
