"""What launch arguments mean in the words of a scenario and of a model.

References
----------
Arguments of NVIDIA/Megatron-LM, Ascend/MindSpeed, Ascend/MindSpeed-LLM and vllm-project/vllm-ascend.
"""

INPUTS = {
    "tensor-model-parallel-size": "tp",
    "tensor-parallel-size": "tp",
    "pipeline-model-parallel-size": "pp",
    "num-virtual-stages-per-pipeline-rank": "vpp",
    "expert-model-parallel-size": "ep",
    "expert-tensor-parallel-size": "etp",
    "context-parallel-size": "cp",
    "data-parallel-size": "dp",
    "micro-batch-size": "micro_batch_size",
    "global-batch-size": "global_batch_size",
    "seq-length": "seq_len",
    "moe-expert-capacity-factor": "capacity_factor",
}
"""Argument -> input of a scenario that is a number."""

SIZES = {
    "num-layers": "num_layers",
    "hidden-size": "hidden_size",
    "ffn-hidden-size": "dense_width",
    "num-attention-heads": "heads",
    "num-query-groups": "kv_heads",
    "kv-channels": "head_dim",
    "qk-nope-head-dim": "nope_head_dim",
    "qk-head-dim": "nope_head_dim",
    "qk-rope-head-dim": "rope_head_dim",
    "qk-pos-emb-head-dim": "rope_head_dim",
    "v-head-dim": "v_head_dim",
    "q-lora-rank": "q_lora_rank",
    "kv-lora-rank": "kv_lora_rank",
    "num-experts": "experts",
    "moe-router-topk": "top_k",
    "moe-ffn-hidden-size": "expert_width",
    "moe-intermediate-size": "expert_width",
    "moe-shared-expert-intermediate-size": "shared_width",
    "moe-router-num-groups": "groups",
    "n-group": "groups",
    "moe-router-group-topk": "top_groups",
    "topk-group": "top_groups",
    "padded-vocab-size": "vocab_size",
    "vocab-size": "vocab_size",
}
"""Argument -> size of a model; of several names the first given wins."""

WORDS = {"recompute-granularity": "recompute"}
"""Argument -> input that is a word."""

FLAGS: dict[str, tuple[str, str | bool]] = {
    "sequence-parallel": ("sp", True),
    "bf16": ("dtype", "bf16"),
    "fp16": ("dtype", "fp16"),
    "use-ascend-mc2": ("schedule", "mc2"),
    "use-ascend-coc": ("schedule", "coc"),
    "use-distributed-optimizer": ("distributed_optimizer", True),
    "overlap-grad-reduce": ("grad_overlap", True),
}
"""Switch -> the input that it sets, and to what; MindSpeed's MC2 and CoC exclude each other."""

WORLD = {
    "nnodes": "nodes",
    "num-nodes": "nodes",
    "nproc-per-node": "per_node",
}
"""Arguments of launchers that count NPUs."""

WHOLE = {
    "NNODES": "nodes",
    "NODES": "nodes",
    "NPUS_PER_NODE": "per_node",
    "GPUS_PER_NODE": "per_node",
    "NPROC_PER_NODE": "per_node",
}
"""Variables that usually count NPUs."""

DEFAULTS = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
}
"""Parallel sizes that are 1 where a launch does not give them."""

OTHER = (
    "num-layers-per-virtual-pipeline-stage",
    "context-parallel-algo",
    "ulysses-degree-in-cp",
    "cross-entropy-loss-fusion",
    "no-gradient-accumulation-fusion",
    "noop-layers",
    "n-shared-experts",
    "first-k-dense-replace",
    "moe-layer-freq",
    "moe-pad-expert-input-to-capacity",
    "moe-token-drop-policy",
    "moe-token-dispatcher-type",
    "moe-grouped-gemm",
    "moe-permute-fusion",
    "moe-permutation-async-comm",
    "moe-alltoall-overlap-comm",
    "moe-shared-expert-overlap",
    "moe-fb-overlap",
    "schedules-method",
    "moe-hierarchical-alltoallv",
    "moe-tp-extend-ep",
    "moe-zero-memory",
    "overlap-moe-expert-parallel-comm",
    "delay-wgrad-compute",
    "coc-mode",
    "coc-parallel-num",
    "coc-fused-kernel",
    "recompute-method",
    "recompute-num-layers",
    "recompute-activation-function",
    "recompute-norm",
    "swap-optimizer",
    "swap-attention",
    "reuse-fp32-param",
    "overlap-param-gather",
    "hccl-group-buffer",
    "hccl-group-buffer-adaptive",
    "group-query-attention",
    "multi-latent-attention",
    "multi-head-latent-attention",
    "swiglu",
    "untie-embeddings-and-output-weights",
    "enable-expert-parallel",
    "max-num-batched-tokens",
    "max-num-seqs",
    "additional-config",
)
"""Arguments that are known and told, but are no input."""
