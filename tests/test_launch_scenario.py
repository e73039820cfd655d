"""Launch scripts become scenarios that an estimate reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_measured_launch as scripts
import yaml

from mc2perf.api import estimate
from mc2perf.cli.inspect import inspect
from mc2perf.measured import Launch
from mc2perf.problems import InputError
from mc2perf.readers.launch_scenario import Asked, asked_by, listed_layers
from mc2perf.readers.measured import read_measured
from mc2perf.readers.models import load_model
from mc2perf.scenario import Scenario

MIXTRAL = """NPUS_PER_NODE=8
TP=2
torchrun --nproc_per_node $NPUS_PER_NODE --nnodes 1 pretrain_gpt.py --tensor-model-parallel-size $TP \\
  --expert-model-parallel-size 4 --sequence-parallel --num-layers {layers} --hidden-size 4096 \\
  --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
  --num-experts 8 --moe-router-topk 2 --swiglu --untie-embeddings-and-output-weights \\
  --padded-vocab-size 32000 --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16 \\
  --use-distributed-optimizer --moe-token-dispatcher-type mc2
"""


def asked(tmp_path: Path, text: str, target: str | None = None) -> Asked:
    file = tmp_path / "run.sh"
    file.write_text(text)
    data = read_measured(file).data
    assert isinstance(data, Launch)
    return asked_by(data, "run.sh", target, str(tmp_path / "made.model.yaml"))


def test_a_script_of_a_shipped_model_names_it(tmp_path: Path) -> None:
    found = asked(tmp_path, MIXTRAL.format(layers=32))
    assert found.model is None and found.scenario == {
        "scenario_version": 1, "target": "mixtral-8x7b", "seq_len": 4096, "global_batch_size": 64, "nodes": 1,
        "tp": 2, "dp": 4, "ep": 4, "schedule": "mc2", "micro_batch_size": 1,
        "fused_cross_entropy": False, "fused_permute": False,
    }  # fmt: skip


def test_how_the_software_does_it(tmp_path: Path) -> None:
    text = MIXTRAL.format(layers=32).replace("--moe-token-dispatcher-type mc2", "{words}")
    plain = asked(tmp_path, text.format(words="--moe-token-dispatcher-type allgather")).scenario
    off = {"token_dispatcher": "all_gather", "grouped_matmul": False, "fused_permute": False}
    assert off.items() <= plain.items() and "gradient_accumulation_fusion" not in plain
    words = (
        "--moe-grouped-gemm --moe-permute-fusion --cross-entropy-loss-fusion --moe-expert-capacity-factor 1.1"
        " --no-gradient-accumulation-fusion --context-parallel-size 2 --context-parallel-algo hybrid_cp_algo"
        " --ulysses-degree-in-cp 2"
    )
    fused = asked(tmp_path, text.format(words=words)).scenario
    assert not {"grouped_matmul", "fused_permute", "fused_cross_entropy", "token_dispatcher"} & fused.keys()
    on = {"gradient_accumulation_fusion": False, "pad_to_capacity": False, "cp_kind": "hybrid", "ulysses": 2}
    assert on.items() <= fused.items()


def test_a_saved_scenario_is_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six layers of Mixtral are no shipped model: its file stands next to the scenario."""
    script, saved = tmp_path / "run.sh", tmp_path / "saved.yaml"
    script.write_text(MIXTRAL.format(layers=6))
    inspect([script], save_scenario=str(saved))
    assert "saved.model.yaml" in capsys.readouterr().err
    six, whole = load_model(str(tmp_path / "saved.model.yaml")), load_model("mixtral-8x7b")
    assert (six.experts, six.mixers, six.num_layers) == (whole.experts, whole.mixers, 6)
    rows = estimate(str(saved)).rows
    assert [row.schedule for row in rows] == ["serial", "mc2"] and all(row.legal for row in rows)


# recipe, what it trains, its machine, micro-batches of a step, the model's layers and the idle ones
RECIPES = [
    ("DeepSeek-V3 A2", "deepseek-v3", "atlas_800t_a2", 480, 61, "61,62,63"),
    ("DeepSeek-V3 A3", "deepseek-v3", "atlas_800t_a3", 120, 61, "61,62,63"),
    ("Kimi-K2 A3 64", "kimi-k2", "atlas_800t_a3", 128, 61, "61,62,63"),
    ("Qwen3-235B A2", "qwen3-235b-a22b", "atlas_800t_a2", 32, 94, "0,95"),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=[row[0] for row in RECIPES])
def test_recipes_are_estimated_as_they_run(
    tmp_path: Path, recipe: tuple[str, str, str, int, int, str]
) -> None:
    """Layers that compute nothing fill the stages: without them no recipe here divides."""
    name, target, hardware, micro_batches, layers, idle = recipe
    keys = ("_", "nodes", "per_node", "tp", "pp", "ep", "mbs", "gbs", "dispatcher")
    row = next(row for row in scripts.RECIPES if row[0] == name)
    text = scripts.SCRIPT.format(**dict(zip(keys, row, strict=False)))
    text = text.replace("--num-layers 64", f"--num-layers {layers + len(idle.split(','))}")
    script, saved = tmp_path / "run.sh", tmp_path / "saved.yaml"
    script.write_text(text.replace("61,62,63", idle))
    inspect([script], save_scenario=str(saved), target=target)
    answer = estimate(str(saved), hardware=hardware, schedule="serial")
    inputs: dict[str, Any] = dict(answer.inputs)
    assert inputs["dp"] == row[9]
    assert inputs["global_batch_size"] / (inputs["micro_batch_size"] * inputs["dp"]) == micro_batches
    assert (
        load_model(str(tmp_path / "saved.model.yaml")).parameter_count == load_model(target).parameter_count
    )


def test_sizes_that_are_not_there_are_named(tmp_path: Path) -> None:
    text = scripts.SCRIPT.format(nodes=1, per_node=8, tp=1, pp=1, ep=8, mbs=1, gbs=8, dispatcher="alltoall")
    with pytest.raises(InputError) as caught:
        asked(tmp_path, text)
    said = str(caught.value)
    assert "--num-attention-heads, --padded-vocab-size not given" in said
    assert "deepseek-v3, deepseek-v3.2" in said and "--target" in said


def test_one_shipped_model_of_the_sizes_given_is_taken(tmp_path: Path) -> None:
    found = asked(
        tmp_path, "x --num-layers 94 --hidden-size 4096 --num-experts 128 --moe-router-topk 8 --bf16"
    )
    assert found.scenario["target"] == "qwen3-235b-a22b"
    assert any("one model of these sizes" in note for note in found.notes)


DENSE = (
    "--num-layers 4 --hidden-size 64 --ffn-hidden-size 256 --num-attention-heads 4 --vocab-size 1000 "
    "--tensor-model-parallel-size 2 --micro-batch-size 2 --seq-length 128 "
)


def test_switches_that_are_not_there_are_off(tmp_path: Path) -> None:
    """Without its flag there is no sequence parallelism, gate, sharded optimizer or second embedding."""
    found = asked(tmp_path, DENSE + "--num-query-groups 2 --global-batch-size 8")
    assert found.model is not None
    assert (found.model["matrices"], found.model["tied_embeddings"]) == (2, True)
    assert found.model["mixers"]["full"]["kv_heads"] == 4  # type: ignore[index]
    assert found.scenario["sp"] is False and found.scenario["distributed_optimizer"] is False
    assert any("bf16" in note for note in found.notes)
    more = "--swiglu --sequence-parallel --group-query-attention --num-query-groups 2"
    again = asked(tmp_path, f"{DENSE} {more} --untie-embeddings-and-output-weights")
    assert again.model is not None and "sp" not in again.scenario
    assert (again.model["matrices"], again.model["tied_embeddings"]) == (3, False)
    assert again.model["mixers"]["full"]["kv_heads"] == 2  # type: ignore[index]


def test_without_a_global_batch_the_layers_of_a_micro_batch_are_asked(tmp_path: Path) -> None:
    scenario = asked(tmp_path, DENSE).scenario
    assert scenario["batch_size"] == 2 and "micro_batch_size" not in scenario


@pytest.mark.parametrize(
    ("words", "recompute"),
    [
        ("--recompute-granularity selective", "selective"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", "block:3"),
    ],
)
def test_recompute(tmp_path: Path, words: str, recompute: str) -> None:
    assert asked(tmp_path, f"{DENSE} {words}").scenario["recompute"] == recompute


LATENT = (
    "--num-layers 8 --noop-layers 6,7 --hidden-size 128 --ffn-hidden-size 512 --num-attention-heads 4 "
    "--vocab-size 1000 --multi-latent-attention --q-lora-rank 48 --kv-lora-rank 32 --qk-head-dim 16 "
    "--qk-pos-emb-head-dim 8 --v-head-dim 16 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 64 "
    "--n-shared-experts 1 --moe-router-num-groups 4 --moe-router-group-topk 2 --swiglu --bf16 "
)


@pytest.mark.parametrize(
    ("words", "dense"),
    [
        ("--first-k-dense-replace 2", 2),
        ("--first-k-dense-replace -1", 0),
        ("--moe-layer-freq ([0]*1+[1]*5)", 1),
        ("--moe-layer-freq 2", 3),
        ("", 0),
    ],
)
def test_latent_attention_and_experts(tmp_path: Path, words: str, dense: int) -> None:
    model: Any = asked(
        tmp_path, f"x {LATENT} {words.replace('(', chr(34) + '(').replace(')', ')' + chr(34))}"
    ).model
    mixer, experts = model["mixers"]["full"], model["experts"]
    assert (mixer["kind"], mixer["head_dim"], mixer["rope_head_dim"], mixer["v_head_dim"]) == (
        "mla",
        24,
        8,
        16,
    )
    assert (experts["shared_width"], experts["groups"], experts["top_groups"]) == (64, 4, 2)
    layers = {group["ffn"]: group["count"] for group in model["layers"]}
    assert layers == {"moe": 6 - dense, None: 2} | ({"dense": dense} if dense else {})


def test_serving_arguments_are_a_decode_step(tmp_path: Path) -> None:
    text = "vllm --tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel --max-num-seqs=64"
    found = asked(tmp_path, text, "deepseek-v3")
    assert (found.scenario["phase"], found.scenario["batch_size"], found.scenario["ep"]) == ("decode", 64, 8)


def test_what_is_no_list_of_layers() -> None:
    assert listed_layers("[0]*x") == [] and listed_layers("[2]") == [] and listed_layers("([1,0])*2") == []


def test_a_script_that_makes_no_model_is_told_in_lines(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run.sh: .*divisor"):
        asked(tmp_path, DENSE + "--group-query-attention --num-query-groups 3")


def test_nothing_is_written_if_the_script_is_refused(tmp_path: Path) -> None:
    script, saved = tmp_path / "run.sh", tmp_path / "saved.yaml"
    script.write_text("x --num-layers 3 --bf16")
    saved.write_text("mine")
    for words in ({"save_scenario": str(saved)}, {"target": "x"}, {"save_scenario": str(script)}):
        with pytest.raises(InputError):
            inspect([script], **words)
    assert saved.read_text() == "mine" and sorted(p.name for p in tmp_path.iterdir()) == [
        "run.sh",
        "saved.yaml",
    ]


def test_a_model_file_that_nobody_named_is_not_overwritten(tmp_path: Path) -> None:
    script, saved, mine = (tmp_path / name for name in ("run.sh", "saved.yaml", "saved.model.yaml"))
    script.write_text(MIXTRAL.format(layers=6))
    mine.write_text("mine")
    with pytest.raises(InputError, match=r"saved\.model\.yaml' is there already.*another name"):
        inspect([script], save_scenario=str(saved))
    assert mine.read_text() == "mine" and not saved.exists()
    mine.unlink()
    inspect([script], save_scenario=str(saved))
    inspect([script], save_scenario=str(saved))  # the same again harms nobody


def test_the_tree_reads_back(tmp_path: Path) -> None:
    """What is written names known inputs only, with whole numbers as whole numbers."""
    text = yaml.safe_dump(asked(tmp_path, MIXTRAL.format(layers=32)).scenario)
    tree = yaml.safe_load(text)
    assert Scenario(target=tree["target"]).hardware == "atlas_800i_a2" and ".0" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--schedules-method dualpipev --moe-fb-overlap",
            {"pipeline": "dualpipev", "schedule": "dual_batch"},
        ),
        ("--schedules-method dualpipev", {"pipeline": "dualpipev", "schedule": "mc2"}),
        ("--moe-fb-overlap", {"schedule": "dual_batch"}),
        ("--overlap-moe-expert-parallel-comm", {"schedule": "dual_batch"}),
        ("--schedules-method other", {"schedule": "mc2"}),
    ],
)
def test_pipelines_of_scripts(tmp_path: Path, words: str, said: dict[str, str]) -> None:
    """MindSpeed names its pipeline, and apart from it whether a forward runs beside a backward."""
    text = MIXTRAL.format(layers=32) + f"--pipeline-model-parallel-size 4 {words}\n"
    found = asked(tmp_path, text.replace("\n--pipeline", " --pipeline"))
    assert {key: found.scenario[key] for key in ("pipeline", "schedule") if key in found.scenario} == said


def test_coc_beside_pairs_is_said(tmp_path: Path) -> None:
    text = MIXTRAL.format(layers=32).rstrip().replace("--moe-token-dispatcher-type mc2", "--use-ascend-coc")
    found = asked(tmp_path, f"{text} --moe-fb-overlap\n")
    assert found.scenario["schedule"] == "dual_batch"
    assert any("--moe-fb-overlap beside coc" in note for note in found.notes)


def test_a_recipe_under_dualpipev_is_estimated(tmp_path: Path) -> None:
    """64 layers, three of them idle, fill the 16 half stages of 8 ranks."""
    keys = ("_", "nodes", "per_node", "tp", "pp", "ep", "mbs", "gbs", "dispatcher")
    row = next(row for row in scripts.RECIPES if row[0] == "DeepSeek-V3 A3 example")
    text = scripts.SCRIPT.format(**dict(zip(keys, row, strict=False)))
    script, saved = tmp_path / "run.sh", tmp_path / "saved.yaml"
    script.write_text(text.replace("--bf16", "--schedules-method dualpipev --moe-fb-overlap --bf16"))
    inspect([script], save_scenario=str(saved), target="deepseek-v3")
    serial, paired = estimate(str(saved), hardware="atlas_800t_a3").rows
    assert (paired.schedule, paired.legal) == ("dual_batch", True)
    assert 1.0 < paired.speedup < paired.ceiling
    plain = estimate(str(saved), hardware="atlas_800t_a3", schedule="serial", pipeline="1f1b").rows[0]
    assert serial.bubble_share < plain.bubble_share
