"""Buffers: published needs, the largest batch against counting up, the heap against what estimates refuse."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from mc2perf import cli
from mc2perf.api import estimate
from mc2perf.checking import ask_question
from mc2perf.studies.buffers import Buffer, buffers_of, heaps_of, suggested_mb

DEEPSEEK: dict[str, Any] = {"hardware": "atlas_800t_a3", "ep": 16, "phase": "decode"}


def found(target: str, **given: Any) -> dict[str, Buffer]:
    return {buffer.title: buffer for buffer in buffers_of(ask_question(target, given, {}))}


def test_needs_and_largest_batches_of_deepseek_on_a3() -> None:
    at_27 = found("deepseek-v3", batch_size=27, **DEEPSEEK)
    first, third = at_27["A3, first version"], at_27["A3, fullmesh_v1"]
    assert (round(first.needed, 1), round(third.needed, 1)) == (201.1, 201.7)
    assert (first.largest, third.largest, first.cap) == (26.0, 26.0, 512.0)
    assert not first.fits and not third.fits
    assert first.operators == ("moe_distribute_dispatch", "moe_distribute_combine")
    at_26 = found("deepseek-v3", batch_size=26, **DEEPSEEK)
    assert at_26["A3, first version"].fits and at_26["A3, fullmesh_v1"].fits


@pytest.mark.parametrize("megabytes", [64, 200, 1000])
@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b-a22b"])
def test_the_largest_batch_is_the_last_that_fits(model: str, megabytes: int) -> None:
    for title, buffer in found(model, batch_size=8, hccl_buffsize=megabytes, **DEEPSEEK).items():
        for more, fits in ((0, True), (1, False)):
            tokens = buffer.largest + more
            if "peer" in title or tokens < 1:
                continue
            again = found(model, batch_size=tokens, hccl_buffsize=megabytes, **DEEPSEEK)[title]
            assert again.fits == fits


def test_a2_needs() -> None:
    given: dict[str, Any] = {"m": 64, "k": 7168, "ranks": 16, "experts_per_rank": 16, "top_k": 8, "nodes": 2}
    needs = found("moe_distribute_combine", **given)
    assert round(needs["A2, full mesh"].needed) == 228
    assert {"A2, hierarchy", "A2, hierarchy of V4"} < needs.keys()


HEAP: dict[str, Any] = {
    "m": 16384, "n": 4096, "k": 28672, "ranks": 4, "dtype": "mxfp8", "hardware": "ascend_950pr",
}  # fmt: skip


def test_the_heap_is_what_estimates_refuse() -> None:
    engine = next(name for name, e in _engines().items() if e.shmem < float("inf"))
    given = HEAP | {"engine": engine}
    heaps = heaps_of(ask_question("all_to_all_matmul", given, {}))
    assert {heap.fits for heap in heaps} == {True, False}
    for heap in heaps[1:]:
        row = estimate("all_to_all_matmul", schedule="mc2", tile_cnt=heap.tiles, **given).rows[-1]
        assert heap.fits == ("symmetric heap" not in row.reason)
    # 4 buffers x 4 ranks x rows x 7168 B, and 4 ranks x 16384 rows x 224 B of scales
    assert heaps[2].data == 4 * 4 * 4096 * 7168 and heaps[2].scales == 4 * 16384 * 224


def _engines() -> dict[str, Any]:
    from mc2perf.readers.profiles import load_machine

    return dict(next(iter(load_machine("ascend_950pr").tiers.values())).engines)


def test_what_hccl_suggests() -> None:
    assert suggested_mb(ask_question("deepseek-v3", {"tokens": 4096}, {})) == 56.0
    assert suggested_mb(ask_question("all_gather_matmul", {"m": 1000, "k": 4096}, {})) == 8.0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("buffers", 2, "buffers needs a target"),
        ("buffers moe_distribute_dispatch -m 27 -k 7168 --ranks 16 --experts-per-rank 16 --top-k 8"
         " --hardware atlas_800t_a3", 1, "0 of 3 formulas are met"),
        ("buffers deepseek-v3 --hardware atlas_800t_a3 --phase decode", 0, "formulas are met"),
        ("buffers llama-2-7b", 0, "No documented buffer"),
        ("buffers mixtral-8x7b --format xml", 2, "format: 'xml' is not known"),
    ],
)  # fmt: skip
def test_words_and_exits(
    words: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", shlex.split(f"mc2perf {words}"))
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    out, err = capsys.readouterr()
    assert int(str(exit_.value.code or 0)) == code and said in out + err


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "mc2perf buffers deepseek-v3 --hardware atlas_800t_a3 --phase decode --format json"
    monkeypatch.setattr("sys.argv", asked.split())
    with pytest.raises(SystemExit):
        cli.main()
    tree = json.loads(capsys.readouterr().out)
    assert {"buffers", "heaps", "suggested_mb", "inputs"} < tree.keys()
    assert all(buffer["source"] for buffer in tree["buffers"])
