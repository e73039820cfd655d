"""Words that many tests of the command line share."""

from __future__ import annotations

import subprocess
import sys

OPERATOR = ("all_to_all_matmul", "-m", "8192", "-n", "4096", "-k", "7168", "--ranks", "8")
MOE = ("moe_layer", "-m", "4096", "-n", "2048", "-k", "7168", "--ranks", "8", "--experts-per-rank", "4")
TINY = {
    "model_type": "mixtral",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3584,
    "num_local_experts": 16,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)


TOOL = f"{sys.executable} -m mc2perf"
