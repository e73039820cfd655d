"""``mc2perf check``: published verdicts, the nearest change against trying everything, words and exits."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from mc2perf import cli
from mc2perf.checking import ask_check, ask_question
from mc2perf.rules.catalogue import variants_of
from mc2perf.studies.check import Check, cases_of, findings_of
from mc2perf.writers.check import check_document

Ran = tuple[int, str, str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Ran]:
    """The command line: exit code, what was printed, what was complained about."""

    def call(words: str) -> Ran:
        monkeypatch.setattr("sys.argv", shlex.split(words))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        return int(str(exit_.value.code or 0)), out, err

    return call


def judged(target: str, operator: str = "", **given: Any) -> dict[str, Check]:
    """Version -> check, of the first operators shown."""
    _, shown, _ = ask_check(target, given, {}, operator)
    return {check.version: check for check in shown if check.operators == shown[0].operators}


DEEPSEEK = "-k 7168 --ranks 16 --experts-per-rank 16 --top-k 8 --hardware atlas_800t_a3"


def test_case_1_buffers_of_deepseek_on_a3(run: Callable[[str], Ran]) -> None:
    code, out, _ = run(f"mc2perf check moe_distribute_dispatch -m 27 {DEEPSEEK}")
    assert code == 1
    assert "needs 201.1 MB of HCCL_BUFFSIZE, has 200" in out
    assert "needs 201.7 MB of HCCL_BUFFSIZE, has 200" in out
    assert "--hccl-buffsize 202 or -m 26" in out
    code, out, _ = run(f"mc2perf check moe_distribute_dispatch -m 26 {DEEPSEEK}")
    assert code == 0 and out.startswith("Legal: moe_distribute_dispatch.")
    code, out, _ = run(f"mc2perf check moe_distribute_dispatch -m 512 {DEEPSEEK} --format json")
    texts = [f["text"] for check in json.loads(out)["checks"] for f in check["findings"]]
    assert [round(float(text.split()[1])) for text in texts[:2]] == [3778, 3824]


def test_case_1_from_the_model(run: Callable[[str], Ran]) -> None:
    asked = (
        "mc2perf check deepseek-v3 --hardware atlas_800t_a3 --phase decode --operator moe_distribute_combine"
    )
    assert run(f"{asked} --batch-size 27")[0] == 1
    code, out, _ = run(f"{asked} --batch-size 26")
    assert code == 0 and "moe_distribute_dispatch, moe_distribute_combine" in out


def test_case_2_mixtral_on_a2_has_no_dispatch_operator(run: Callable[[str], Ran]) -> None:
    code, out, _ = run("mc2perf check mixtral-8x7b --tokens 64 --operator moe_distribute_dispatch")
    assert code == 1
    assert "EP ranks must be 16 to 256, not 8" in out
    head = " ".join(out.split("\n\n")[0].split())
    assert head.endswith(
        "legal here instead: all_to_all_v_grouped_matmul, grouped_matmul_all_to_all_v, dispatch_ffn_combine."
    )
    assert "nearest legal: --hardware atlas_800t_a3" in out


def test_a_whole_expert_path_in_one_kernel_is_limited(run: Callable[[str], Ran]) -> None:
    _, out, _ = run(
        "mc2perf check kimi-k3 --hardware atlas_800t_a3 --ep 16 --tokens 8192 --operator mega_moe"
    )
    assert "tokens per rank must be 1 to mega_moe_max_tokens" not in out
    assert "tokens per rank must be 1 to 4096, not 8192" in out and "--tokens 4096" in out


# --- the nearest change --------------------------------------------------------------------------------


def runs(target: str, version: str, **given: Any) -> bool:
    """Whether no rule but a note fails, without any search."""
    question = ask_question(target, given, {})
    (case, *_) = cases_of(question)
    (rules,) = (v for v in variants_of(case.operator, question.machine.family) if v.version == version)
    return all(finding.effect == "note" for finding in findings_of(rules, case))


GATHER = {"m": 1024, "n": 4096, "ranks": 8}
GROUPED = {"n": 1024, "k": 4096, "ranks": 8, "experts_per_rank": 4, "hardware": "atlas_800t_a3"}
SEARCHES: list[tuple[str, str, dict[str, Any], str, range]] = [
    ("all_gather_matmul", "v1", GATHER | {"k": 100}, "k", range(1, 300, 3)),
    ("all_gather_matmul", "v1", GATHER | {"k": 4096, "ranks": 6}, "ranks", range(2, 40)),
    ("matmul_reduce_scatter", "v1", GATHER | {"k": 4096, "m": 1003}, "m", range(960, 1050)),
    ("all_to_all_v_grouped_matmul", "v1", GROUPED | {"m": 1000}, "m", range(900, 2100, 24)),
    ("all_to_all_v_grouped_matmul", "v1", GROUPED | {"m": 4096, "experts_per_rank": 50}, "experts_per_rank",
     range(1, 60)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "version", "given", "name", "tried"), SEARCHES)
def test_the_nearest_change_is_that_of_trying_every_value(
    target: str, version: str, given: dict[str, Any], name: str, tried: range
) -> None:
    check = judged(target, **given)[version]
    assert check.status == "refused"
    found = {change.field: change.value for (change,) in check.mends}
    now = float(given[name])
    assert runs(target, version, **given | {name: found[name]})
    nearer = (v for v in tried if abs(math.log(v / now)) < abs(math.log(found[name] / now)) - 1e-12)
    assert not any(runs(target, version, **given | {name: value}) for value in nearer)


def test_several_inputs_are_changed_together_and_hold_when_asked_again() -> None:
    given: dict[str, Any] = {
        "m": 600, "k": 9001, "ranks": 16, "experts_per_rank": 4, "top_k": 4, "hardware": "atlas_800t_a3",
    }  # fmt: skip
    for version, check in judged("moe_distribute_dispatch", **given).items():
        if version.startswith("v2"):
            (mend,) = check.mends
            assert len(mend) >= 2
            changed = given | {change.field: change.value for change in mend}
            assert judged("moe_distribute_dispatch", **changed)[version].status == "legal"


def test_every_mend_of_a_model_holds_when_asked_again() -> None:
    given: dict[str, Any] = {"hardware": "atlas_800i_a2", "tp": 8, "ep": 8, "tokens": 512, "nodes": 2}
    _, shown, _ = ask_check("qwen3-235b-a22b", given | {"sp": False, "cann": "8.0"}, {})
    mended = 0
    for check in shown:
        for mend in check.mends:
            changed = given | {"sp": False, "cann": "8.0"} | {change.field: change.value for change in mend}
            _, again, _ = ask_check("qwen3-235b-a22b", changed, {}, check.operators[0])
            same = [c for c in again if c.version == check.version or check.version == "-"]
            moved = "hardware" in changed and changed["hardware"] != given["hardware"]
            assert any(c.status == "legal" for c in (again if moved else same))
            mended += 1
    assert mended >= 3


# --- words, knobs, exits ---------------------------------------------------------------------------------


def test_widths_of_an_expert_layer_are_searched_and_hold_when_asked_again() -> None:
    """Many widths are tried at once; the window of a shorter hidden size fits."""
    layer: dict[str, Any] = {
        "m": 64, "n": 2048, "k": 7168, "ranks": 16, "experts_per_rank": 16, "top_k": 8,
        "hardware": "atlas_800t_a3",
    }  # fmt: skip
    version = "v2, v3 fullmesh_v1"
    check = judged("moe_layer", "moe_distribute_dispatch", **layer)[version]
    widths = [change.value for (change,) in check.mends if change.field == "k"]
    assert check.status == "refused" and widths
    changed = judged("moe_layer", "moe_distribute_dispatch", **layer | {"k": widths[0]})
    assert changed[version].status == "legal"


def test_knob_or_outcome(run: Callable[[str], Ran]) -> None:
    _, out, _ = run("mc2perf check all_gather_matmul -m 1024 -n 4096 -k 4096 --ranks 8")
    assert "an outcome, no knob: CANN's tiling chooses the tile count (commTurn accepts only 0)" in out
    assert "a knob: --coc-parallel-num 1, 2, 4 or 8" in out
    assert "mind: all MC2 operators of a model share one communicator" in out


def test_what_is_not_given_cannot_be_told(run: Callable[[str], Ran]) -> None:
    code, out, _ = run("mc2perf check matmul_reduce_scatter -k 4096 --ranks 8")
    assert code == 1 and "cannot tell" in out and "not given: m" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("check", "check needs a target"),
        ("check moe_distribute_dispatcher -m 1", "target: 'moe_distribute_dispatcher' is no operator"),
        ("estimate moe_distribute_dispatch", "is judged, not priced; write 'mc2perf check"),
        ("check coc", "target: 'coc' is no operator"),
        ("check mixtral-8x7b --dispatcher allgather", "not implemented"),
        ("check mixtral-8x7b --format yaml", "format: 'yaml' is not known"),
        ("check mixtral-8x7b --operator gmm", "operator: 'gmm' is not used here"),
        ("check all_gather_matmul --ranks 9999999", "ranks: links of atlas_800i_a2 join"),
        ("check mixtral-8x7b --ep 3", "ep: 8 NPUs do not divide by 3"),
        ("check all_gather_matmul --hccl-buffsize 0", "hccl_buffsize: '0' is too small"),
    ],
)
def test_wrong_input_is_a_line_and_exit_2(run: Callable[[str], Ran], words: str, problem: str) -> None:
    code, out, err = run(f"mc2perf {words}")
    assert code == 2 and problem in err and not out


def test_nothing_to_check_is_fine(run: Callable[[str], Ran]) -> None:
    code, out, _ = run("mc2perf check llama-2-7b")
    assert code == 0 and out.startswith("Nothing to check")
    assert run("mc2perf check mixtral-8x7b --hardware h100_sxm")[0] == 1


def test_json_says_what_the_text_says() -> None:
    question, shown, every = ask_check("deepseek-v3", {"hardware": "atlas_800t_a3"}, {})
    tree = check_document({"target": "deepseek-v3"}, shown, every)
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert tree["legal"] == ["all_to_all_v_grouped_matmul", "grouped_matmul_all_to_all_v", "mega_moe"]
    assert question.scenario.ep == 16.0
