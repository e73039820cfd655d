"""Launch scripts: recipes as pasted, shell variables, and what must stay unresolved."""

# ruff: noqa: E501 - lines of real files stand as they are
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mc2perf.measured import Launch, Measured
from mc2perf.problems import InputError
from mc2perf.readers.measured import read_measured


def measured(tmp_path: Path, text: str) -> Measured:
    file = tmp_path / "pasted"
    file.write_text(text)
    return read_measured(file)


def launch(tmp_path: Path, text: str) -> Launch:
    data = measured(tmp_path, text).data
    assert isinstance(data, Launch)
    return data


SCRIPT = """#!/bin/bash
# pretrain on {nodes} nodes
export CUDA_DEVICE_MAX_CONNECTIONS=1
NPUS_PER_NODE={per_node}
MASTER_ADDR=localhost # your address
NNODES={nodes}
NODE_RANK=0
WORLD_SIZE=$(($NPUS_PER_NODE * $NNODES))
CKPT_SAVE_DIR="your path"
TP={tp}
PP={pp}
EP={ep}
CP=1
MBS={mbs}
GBS={gbs}
SEQ_LEN=4096

DISTRIBUTED_ARGS="
    --nproc_per_node $NPUS_PER_NODE \\
    --nnodes $NNODES \\
    --node_rank $NODE_RANK \\
    --master_addr $MASTER_ADDR
"
MOE_ARGS="
    --moe-token-dispatcher-type {dispatcher} \\
    --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --n-shared-experts 1
"
GPT_ARGS=(
    --tensor-model-parallel-size ${{TP}}
    --pipeline-model-parallel-size ${{PP}}  # stages
    --expert-model-parallel-size ${{EP}}
    --context-parallel-size ${{CP}}
    --sequence-parallel
    --num-layers 64 --noop-layers 61,62,63
    --hidden-size 7168
    --first-k-dense-replace -1
    --micro-batch-size ${{MBS}} --global-batch-size ${{GBS}} --seq-length ${{SEQ_LEN}}
    --recompute-granularity full
    --bf16
)
python -m torch.distributed.launch $DISTRIBUTED_ARGS pretrain_gpt.py "${{GPT_ARGS[@]}}" $MOE_ARGS \\
    --load ${{CKPT_LOAD_DIR}} --distributed-backend nccl | tee logs/train_$(date +%F).log
"""

# model, nodes, NPUs of a node, tp, pp, ep, micro-batch, global batch, dispatcher, dp, micro-batches; recipes of
# Ascend/MindSpeed-LLM examples/ and tests/poc/, dp and micro-batches worked by hand
RECIPES = [
    ("DeepSeek-V3 A2", 64, 8, 4, 8, 32, 1, 7680, "alltoall", 16, 480),
    ("DeepSeek-V3 A3", 32, 16, 2, 4, 128, 1, 7680, "alltoall", 64, 120),
    ("DeepSeek-V3 A3 example", 32, 16, 2, 8, 32, 1, 3840, "alltoall", 32, 120),
    ("Kimi-K2 A3 64", 64, 16, 2, 8, 64, 1, 8192, "alltoall", 64, 128),
    ("Kimi-K2 A3 32", 32, 16, 2, 8, 64, 1, 4096, "alltoall", 32, 128),
    ("Mixtral-8x7B A3", 16, 16, 2, 1, 8, 1, 128, "alltoall_seq", 128, 1),
    ("Qwen3-30B-A3B A2", 2, 8, 1, 2, 8, 1, 256, "alltoall", 8, 32),
    ("Qwen3-30B-A3B A3", 1, 16, 1, 1, 16, 1, 256, "alltoall", 16, 16),
    ("Qwen3-235B A2", 16, 16, 1, 8, 8, 1, 1024, "alltoall_seq", 32, 32),
    ("Qwen3-235B A3", 16, 16, 1, 4, 32, 1, 1024, "alltoall_seq", 64, 16),
    ("Qwen3-Coder-480B A3", 16, 16, 4, 4, 32, 1, 64, "alltoall", 16, 4),
    ("MiniMax-M2.7 A3", 8, 16, 1, 2, 64, 1, 2048, "alltoall_seq", 64, 32),
    ("GLM-4.5-Air A3", 8, 16, 1, 4, 16, 1, 64, "alltoall_seq", 32, 2),
    ("GLM-4.5 LoRA A3", 1, 16, 4, 4, 1, 1, 128, "alltoall_seq", 1, 128),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=[str(row[0]) for row in RECIPES])
def test_recipes_as_pasted(tmp_path: Path, recipe: tuple[Any, ...]) -> None:
    _, nodes, per_node, tp, pp, ep, mbs, gbs, dispatcher, dp, micro_batches = recipe
    found = launch(
        tmp_path,
        SCRIPT.format(
            nodes=nodes, per_node=per_node, tp=tp, pp=pp, ep=ep, mbs=mbs, gbs=gbs, dispatcher=dispatcher
        ),
    )
    expected = {"tp": tp, "pp": pp, "ep": ep, "cp": 1, "dp": dp, "micro_batch_size": mbs, "nodes": nodes}
    expected |= {"global_batch_size": gbs, "seq_len": 4096, "sp": True, "dtype": "bf16", "recompute": "full"}
    assert found.inputs == expected and found.accumulation == micro_batches
    assert found.sizes == {
        "num_layers": 61, "hidden_size": 7168, "experts": 256, "top_k": 8, "expert_width": 2048,
        "shared_width": 2048,
    }  # fmt: skip
    assert found.other["moe-token-dispatcher-type"] == dispatcher
    assert any("CKPT_LOAD_DIR" in text for text in found.unresolved)
    assert "--distributed-backend" in found.unknown


def test_arguments_without_a_command(tmp_path: Path) -> None:
    found = launch(tmp_path, "--tensor-model-parallel-size 8 --micro-batch-size=2 --use-ascend-coc")
    assert found.inputs == {"tp": 8, "micro_batch_size": 2, "schedule": "coc"}
    pasted = launch(tmp_path, 'PP=4\nARGS="--num-layers 32 --pipeline-model-parallel-size ${PP}"\n')
    assert pasted.inputs == {"pp": 4} and pasted.sizes == {"num_layers": 32}


def test_serving_arguments(tmp_path: Path) -> None:
    found = launch(
        tmp_path,
        "vllm serve m --tensor-parallel-size 4 --data-parallel-size 2 --enable-expert-parallel "
        "--additional-config '{\"enable_fused_mc2\": 1}'",
    )
    assert found.inputs == {"tp": 4, "dp": 2, "ep": 8}


@pytest.mark.parametrize(
    "setting",
    [
        "TP=$1",
        "TP=$(nproc)",
        "TP=`nproc`",
        "",
        "if [ $A = 1 ]; then TP=2; else TP=4; fi",
        "TP=2\nif [ $A = 1 ]\nthen\n  TP=4\nfi",
        "TP=2\nfor i in 1 2; do TP=$((TP * 2)); done",
        "TP=2\n[ -n \"$A\" ] && TP=4",
        "TP=2\nread -r TP <<< $A",
        "TP=2\nTP=$((1 / 0))",
        "for TP in 2 4; do echo; done",
        "TP=2\ncase $A in\n  a) TP=4 ;;\n  *) echo ;;\nesac",
    ],
)  # fmt: skip
def test_what_cannot_be_known_stays_unresolved(tmp_path: Path, setting: str) -> None:
    text = f"{setting}\ntorchrun --nnodes 1 --nproc_per_node 8 x.py --tensor-model-parallel-size $TP --num-layers 4\n"
    found = launch(tmp_path, text)
    assert "tp" not in found.inputs and "dp" not in found.inputs
    assert any("$TP" in what for what in found.unresolved)


@pytest.mark.parametrize(
    ("setting", "tp"),
    [
        ("TP=${TENSOR:-4}", 4),
        ("export TP=4; echo $TP", 4),
        ("TP='4'\nTP=8", 8),
        ("N=2\nTP=$((N*4/2))", 4),
        ("if true; then TP=4; else TP=4; fi", 4),
        ("ARGS=()\nTP=2 # not 4", 2),
        ("TP=8\r", 8),
    ],
)
def test_what_can_be_known(tmp_path: Path, setting: str, tp: int) -> None:
    found = launch(tmp_path, f"{setting}\ntorchrun x.py --tensor-model-parallel-size $TP\n")
    assert found.inputs["tp"] == tp and not any("--tensor" in what for what in found.unresolved)


def test_contradictions_are_set_aside(tmp_path: Path) -> None:
    found = measured(tmp_path, "a --micro-batch-size 1\nb --micro-batch-size 2 --num-layers x --use-ascend-mc2\n"
                               "c --seq-length 4096 --use-ascend-coc --nnodes 1 --nproc-per-node 8\n"
                               "d --tensor-model-parallel-size 3\n")  # fmt: skip
    assert isinstance(found.data, Launch)
    assert found.data.inputs == {"seq_len": 4096, "tp": 3, "nodes": 1}
    assert {rows.first for rows in found.report.set_aside} == {
        "--micro-batch-size", "--num-layers", "--use-ascend-coc", "dp",
    }  # fmt: skip


def test_a_value_does_not_reach_over_a_line(tmp_path: Path) -> None:
    assert "tp" not in launch(tmp_path, "a --num-layers 2 --tensor-model-parallel-size\n8\n").inputs


def test_an_open_quote_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: a quote or bracket opens here and never closes"):
        launch(tmp_path, 'echo\nARGS="--num-layers 2\n--hidden-size 4\n')


def test_context_parallel_ranks_are_no_data_parallel_ones(tmp_path: Path) -> None:
    text = (
        "torchrun --nnodes 2 --nproc_per_node 8 x.py --tensor-model-parallel-size 2 --context-parallel-size 4"
    )
    assert launch(tmp_path, text).inputs["dp"] == 2


def test_a_sourced_file_is_told(tmp_path: Path) -> None:
    assert "source env.sh" in launch(tmp_path, "source env.sh\npython x.py --num-layers 2\n").unresolved


def test_virtual_stages(tmp_path: Path) -> None:
    """Qwen3-235B on 16 x 16 A2: 94 layers and 2 no-op ones on 8 stages, 2 layers in a virtual one: vpp 6."""
    found = launch(tmp_path, "--num-layers 96 --noop-layers 0,95 --pipeline-model-parallel-size 8 "
                             "--num-layers-per-virtual-pipeline-stage 2")  # fmt: skip
    assert found.inputs["vpp"] == 6 and found.sizes["num_layers"] == 94


def test_nodes_of_the_scheduler_are_not_guessed(tmp_path: Path) -> None:
    text = "NNODES=4\nNPUS_PER_NODE=8\ntorchrun {} x.py --tensor-model-parallel-size 2\n"
    assert launch(tmp_path, text.format("")).inputs["dp"] == 16
    assert "dp" not in launch(tmp_path, text.format("--nnodes $SLURM_NNODES")).inputs
