"""Signs and orderings that published measurements show and an analytical model must not miss."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mc2perf.costs import Costs, Ledger
from mc2perf.outcomes import OUTCOMES
from mc2perf.outcomes.outcome import serial_outcome
from mc2perf.readers.profiles import load_machine
from mc2perf.results import Results
from mc2perf.scenario import Scenario
from mc2perf.study import study_of
from mc2perf.validating import Validation, validate

DEGREES = np.array([1.0, 2.0, 4.0, 8.0])


def mean_losses(gpus: float) -> Any:
    """Loss of a fixed number of micro-batches against the best, mean over the layers of Tutel's Table 6.

    Widths and hidden sizes of 1K, 2K, 4K and 4K, 16K, 64K tokens; 1 and 2 experts on a GPU, for half an
    expert is none of ours; one expert per token, which the paper does not print.
    """
    sizes, machine, losses = (1024.0, 2048.0, 4096.0), load_machine("a100_sxm_80g"), []
    for experts, n, k in product((1.0, 2.0), sizes, sizes):
        asked = Scenario(
            target="moe_layer", hardware="a100_sxm_80g", dtype="fp16", n=n, k=k, ranks=gpus,
            m=np.array([[4096.0], [16384.0], [65536.0]]), experts_per_rank=experts, top_k=1.0,
            micro_batches=DEGREES.reshape(1, -1),
        )  # fmt: skip
        study = study_of(asked, machine, None)
        serial = serial_outcome(study)
        outcome = OUTCOMES["micro_batch"](study, serial)
        time = Results(study, outcome, Results(study, serial, None))["total_time"]
        losses.append(time / np.min(time, axis=-1, keepdims=True) - 1.0)
    return np.mean(np.concatenate(losses), axis=0)


def test_best_pipeline_degree_falls_with_scale() -> None:
    """N2 Table 6: two up to 64 GPUs, one at 256, never eight; a wrong degree costs more at scale."""
    found = {gpus: mean_losses(float(gpus)) for gpus in (16, 32, 64, 256)}
    best = {gpus: DEGREES[np.argmin(losses)] for gpus, losses in found.items()}
    assert best == {16: 2.0, 32: 2.0, 64: 2.0, 256: 1.0}
    eight = [losses[-1] for losses in found.values()]
    assert eight == sorted(eight)


@pytest.fixture(scope="module")
def overlap_in_serving() -> Validation:
    return validate("N6")


def test_signs_of_overlap_in_serving(overlap_in_serving: Validation) -> None:
    """Helps prefill, hurts small batches of decode, does nothing for one request or few rows."""
    found = {s.case.address: s for s in overlap_in_serving.scored}
    signed = {"N6-2/equal_tokens", "N6-3/throughput_gain", "N6-8/gain", "N6-9/prefill", "N6-9/decode"}
    assert signed <= found.keys()
    assert not any(found[name].wrong_sign for name in signed)
    assert found["N6-3/throughput_gain"].predicted < 0.0 < found["N6-2/equal_tokens"].predicted
    assert found["N6-8/gain"].predicted <= 0.0 >= found["N6-9/decode"].predicted
    assert found["N6-9/prefill"].predicted > 0.0


def test_fusing_experts_of_few_rows_gains_under_five_per_cent() -> None:
    """A4: everything streams weights, 4.4 % of the sum is communication."""
    (gain,) = (c for c in validate("A4").checks if c.relation.id == "A4-gain")
    assert gain.measured and gain.predicted


def gain_of_grouping(experts: float, rows: float, hidden: float, width: float) -> float:
    """Time of separate matmuls over that of grouped ones, both matmuls of a gated FFN, less one."""
    costs = Costs(load_machine("atlas_800t_a2"), Ledger())
    shapes = ((2.0 * width, hidden), (hidden, width))
    grouped = sum(costs.matmul("x", rows * experts, n, k, "bf16", experts, experts).time for n, k in shapes)
    alone = sum(costs.matmul("x", rows, n, k, "bf16").time for n, k in shapes)
    return float(experts * alone / grouped - 1.0)


@pytest.mark.parametrize("rows", [1024.0, 2048.0])
def test_grouping_gains_more_the_smaller_and_the_more_experts(rows: float) -> None:
    """T3-7 and -8, T3-11 to -14 (tp 8 taken): the same rows over twice the experts; narrower experts."""
    widths = [gain_of_grouping(8.0, rows, 6144.0, ffn / 8) for ffn in (4096.0, 8192.0, 16384.0, 32768.0)]
    assert widths == sorted(widths, reverse=True)
    assert gain_of_grouping(8.0, rows / 2.0, 4096.0, 3584.0) > gain_of_grouping(4.0, rows, 4096.0, 3584.0)


def test_grouping_gains_with_small_experts_and_loses_with_large_ones() -> None:
    assert gain_of_grouping(16.0, 64.0, 2048.0, 768.0) > 0.0 > gain_of_grouping(2.0, 4096.0, 6144.0, 4096.0)
