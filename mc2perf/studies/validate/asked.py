"""What was predicted for a measured value, in the words of its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mc2perf.answer import Row as Result
from mc2perf.bands import Like
from mc2perf.measurement import Plain, Row, Value


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was predicted for one value, and what turns it into the words of its source.

    ``flops_time`` is FLOPs over the machine's peak and ``bytes_time`` weights over its memory bandwidth,
    the two terms of the naive model; of an exchange, its bytes over the rate of the links. ``peak`` is what
    the source divides by for its MFU where it says so, ``exchanged`` the bytes that a printed rate counts.
    ``like`` says of what the answer is one.
    """

    result: Result
    ranks: float
    npus: float
    cards: float
    ranks_per_server: float
    machine_peak: float
    flops_time: float
    bytes_time: float
    peak: float | None = None
    baseline: float = 100.0
    exchanged: float = 0.0
    like: Like | None = None

    def naive(self, efficiency: float) -> Asked:
        """The same question to the naive model: one time, nothing sent, nothing overlapped."""
        time = self.flops_time / efficiency + self.bytes_time
        faster = self.result.total_time / time if time else math.inf
        result = replace(
            self.result, total_time=time, serial_time=time, compute_time=time, comm_time=0.0,
            exposed_comm_time=0.0, comm_ratio=0.0, hidden_ratio=0.0, speedup=1.0, ceiling=1.0, pieces=1,
            tokens_per_second=self.result.tokens_per_second * faster, mfu=self.result.mfu * faster,
            time_per_output_token=self.result.time_per_output_token / faster,
        )  # fmt: skip
        return replace(self, result=result)


def _gain(asked: Asked) -> float:
    return asked.result.speedup - 1.0


def _change(asked: Asked) -> float:
    return 1.0 / asked.result.speedup - 1.0


TIMES: dict[str, Callable[[Asked], float]] = {
    "time": lambda a: a.result.total_time,
    "step_time": lambda a: a.result.total_time,
    "serial_time": lambda a: a.result.serial_time,
    "matmul_time": lambda a: a.result.compute_time,
    "compute_time": lambda a: a.result.compute_time,
    "ttft": lambda a: a.result.total_time,
}
"""Quantities that are a time of the whole, or of its computation. [s]"""

TOKEN_TIMES: dict[str, Callable[[Asked], float]] = {
    "tpot": lambda a: a.result.time_per_output_token,
}
"""Quantities that go with the time of the whole: a step over the tokens it yields. [s]"""

RATES: dict[str, Callable[[Asked], float]] = {
    "tokens_per_second": lambda a: a.result.tokens_per_second * a.ranks,
    "tokens_per_second_per_npu": lambda a: a.result.tokens_per_second * a.ranks / a.npus,
    "tokens_per_second_per_card": lambda a: a.result.tokens_per_second * a.ranks / a.cards,
    "tokens_per_second_per_node": lambda a: a.result.tokens_per_second * a.ranks_per_server,
    "mfu": lambda a: a.result.mfu * a.machine_peak / (a.peak or a.machine_peak),
    "flops_per_npu": lambda a: a.result.mfu * a.machine_peak,
    "rate": lambda a: a.exchanged / a.result.total_time,
}
"""Quantities that go with one over the time of the whole."""

GAINS: dict[str, Callable[[Asked], float]] = {
    "speedup": lambda a: a.result.speedup,
    "gain": _gain,
    "throughput_gain": _gain,
    "time_saving": lambda a: -_change(a),
    "time_change": _change,
    "ttft_change": _change,
    "relative_throughput": lambda a: a.baseline * a.result.speedup,
}
"""Quantities that say whether and how much a schedule gains over serial: they have a sign."""

PARTS: dict[str, Callable[[Asked], float]] = {
    "comm_time": lambda a: a.result.comm_time,
    "exchange_time": lambda a: a.result.traffic.get("ep", (0.0, 0.0))[0],
    "exposed_time": lambda a: a.result.exposed_comm_time,
    "comm_ratio": lambda a: a.result.comm_ratio,
    "hidden_share": lambda a: a.result.hidden_ratio,
    "max_saving": lambda a: 1.0 - 1.0 / a.result.ceiling,
    "micro_batches": lambda a: float(a.result.pieces),
}
"""Quantities of communication and cutting."""

QUANTITIES = {**TIMES, **TOKEN_TIMES, **RATES, **GAINS, **PARTS}
"""Everything that is predicted: quantity -> its value [SI] of a question."""

PHASES = {"tpot": "decode", "ttft": "prefill"}
"""Quantities of one phase only."""

YIELDS = TOKEN_TIMES.keys() | RATES.keys() - {"rate"}
"""Quantities that depend on how many drafts of a decode step are accepted."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One value of one row: asked, or the ``reason`` why not.

    ``assumed`` are inputs that the source does not state, ``unpriced`` those it states and the model does
    not know how to price.
    """

    family: str
    row: Row
    value: Value
    asked: Asked | None = None
    reason: str = ""
    assumed: Mapping[str, Plain] = field(default_factory=dict)
    unpriced: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its name among all values."""
        return f"{self.row.id}/{self.value.key}"

    @property
    def predicted(self) -> float | None:
        """What the model says, in SI."""
        return QUANTITIES[self.value.quantity](self.asked) if self.asked else None

    @property
    def why_not(self) -> str:
        """Why it has no score; empty where it has one."""
        held = "" if self.value.si is not None else "held out: no value given"
        return self.reason or held
