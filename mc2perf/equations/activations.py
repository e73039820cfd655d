"""Bytes of the activations of a training step: what the backward pass reads again, tensor by tensor.

``split`` is over how many ranks the tensors between matmuls are cut: tp with sequence parallelism, else 1
(every rank holds them whole).
"""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num

# --- activations of one layer --------------------------------------------------------------------------


@formula("tokens * hidden_size * (10 / split + 24 / tp) + kept_scores * 5 * tokens * heads * seq_len / tp")
def gpt_activation_bytes(
    tokens: Num, hidden_size: Num, heads: Num, seq_len: Num, tp: Num, split: Num, kept_scores: Num
) -> Num:
    r"""Activations of a GPT layer in 16 bit: multi-head attention, plain FFN of 4 h, dropout.

    .. math:: s b h \left(\frac{10}{r} + \frac{24}{t} + 5 \frac{a s}{h t}\right)

    Parameters
    ----------
    tokens, hidden_size, heads, seq_len : number or array
        Tokens of a micro-batch s b, h, a, s.
    tp, split : number or array
        Tensor-parallel ranks t; r = t with sequence parallelism, else 1.
    kept_scores : number or array
        1 if attention keeps its scores; 0 with selective recompute (or flash attention, which adds
        :func:`statistic_bytes`).

    Returns
    -------
    number or array
        Bytes. Without any parallelism s b h (34 + 5 a s / h). [B]

    References
    ----------
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, table 2.

    Examples
    --------
    >>> gpt_activation_bytes(1.0, 16.0, 2.0, 8.0, 1.0, 1.0, 1.0) / 16.0
    39.0
    """
    scores = kept_scores * 5.0 * tokens * heads * seq_len / tp
    return tokens * hidden_size * (10.0 / split + 24.0 / tp) + scores


@formula("tokens * hidden_size * (4 * item_size + 2 * mask_size) / split")
def residual_activation_bytes(
    tokens: Num, hidden_size: Num, item_size: Num, mask_size: Num, split: Num
) -> Num:
    """What a layer keeps between its matmuls: inputs of two norms and of two matmuls, two dropout masks.

    Parameters
    ----------
    tokens, hidden_size : number or array
        Tokens of a micro-batch and hidden size.
    item_size, mask_size : number or array
        Bytes of an element, and of a mask's: 1 with dropout, 0 without. [B]
    split : number or array
        Ranks these tensors are cut over.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., 2022, section 4.1, generalised: the 10 of its table 2 for 2 and 1 bytes.

    Examples
    --------
    >>> residual_activation_bytes(1.0, 1.0, 2.0, 1.0, 1.0)
    10.0
    """
    return tokens * hidden_size * (4.0 * item_size + 2.0 * mask_size) / split


@formula("tokens * item_size * (heads / tp + max(1, kv_heads / tp)) * (key_dim + value_dim)")
def attention_activation_bytes(
    tokens: Num, heads: Num, kv_heads: Num, key_dim: Num, value_dim: Num, item_size: Num, tp: Num
) -> Num:
    """Queries, keys, values and the attention's output, which the output projection reads.

    Parameters
    ----------
    tokens : number or array
        Tokens of a micro-batch.
    heads, kv_heads, key_dim, value_dim : number or array
        Query and key-value heads and the widths of keys and values. Latent attention in training unfolds
        keys and values of all heads (kv_heads = heads); its latents before and after their norms come on
        top, ``2 (q_lora_rank + kv_lora_rank)`` elements per token.
    item_size, tp : number or array
        Bytes of an element [B] and tensor-parallel ranks; fewer key-value heads than ranks are copied.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., 2022, section 4.1, generalised: 2 (Q) + 2 (K) + 2 (V) + 2 (output) bytes times h
    for multi-head attention; grouped queries shrink K and V.

    Examples
    --------
    >>> float(attention_activation_bytes(1.0, 4.0, 4.0, 8.0, 8.0, 2.0, 1.0)) / 32.0
    8.0
    """
    return tokens * item_size * (heads / tp + np.maximum(1.0, kv_heads / tp)) * (key_dim + value_dim)


@formula("tokens * context * heads * (2 * item_size + mask_size) / tp")
def score_activation_bytes(
    tokens: Num, context: Num, heads: Num, item_size: Num, mask_size: Num, tp: Num
) -> Num:
    """Attention scores kept without flash attention: after the softmax, after dropout, dropout's mask.

    Parameters
    ----------
    tokens, context : number or array
        Queries of a micro-batch and keys of each, the whole sequence as the masked half is stored too.
    heads, item_size, mask_size, tp : number or array
        Query heads, bytes of a score and of a mask's element [B], tensor-parallel ranks.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., 2022, section 4.1: 5 a s^2 b for 2 and 1 bytes.

    Examples
    --------
    >>> score_activation_bytes(1.0, 8.0, 2.0, 2.0, 1.0, 1.0)
    80.0
    """
    return tokens * context * heads * (2.0 * item_size + mask_size) / tp


@formula("tokens * heads * statistic_size / tp")
def statistic_bytes(tokens: Num, heads: Num, statistic_size: Num, tp: Num) -> Num:
    """What flash attention keeps in place of scores: the softmax statistics of every query and head.

    Parameters
    ----------
    tokens, heads, tp : number or array
        Queries of a micro-batch, query heads, tensor-parallel ranks.
    statistic_size : number or array
        Bytes per query and head: 4 for one fp32 log-sum-exp; kernels that keep maximum and sum, or pad
        them, take more. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Dao, "FlashAttention-2", 2023, section 3.1.

    Examples
    --------
    >>> statistic_bytes(4096.0, 32.0, 4.0, 8.0) / 1024
    64.0
    """
    return tokens * heads * statistic_size / tp


@formula("tokens * kept * width * item_size / tp")
def ffn_activation_bytes(tokens: Num, kept: Num, width: Num, item_size: Num, tp: Num) -> Num:
    """What a dense FFN keeps between its matmuls.

    Parameters
    ----------
    tokens, width : number or array
        Tokens of a micro-batch and inner width.
    kept : number or array
        Tensors of that width: 2 for a plain FFN (before and after the activation function), 3 for a gated
        one (gate, up, product); one fewer if the activation function is computed again.
    item_size, tp : number or array
        Bytes of an element [B] and tensor-parallel ranks.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., 2022, section 4.1, generalised: 8 + 8 bytes times h for a plain FFN of 4 h.

    Examples
    --------
    >>> ffn_activation_bytes(1.0, 2.0, 4.0, 2.0, 1.0)
    16.0
    """
    return tokens * kept * width * item_size / tp


@formula("rows * (kept_payloads * payload_width + kept * width / etp) * item_size")
def expert_activation_bytes(
    rows: Num, kept_payloads: Num, payload_width: Num, kept: Num, width: Num, etp: Num, item_size: Num
) -> Num:
    """What the routed experts of a rank keep.

    Parameters
    ----------
    rows : number or array
        Rows that the rank's experts get: tokens x top-k under even routing, times the imbalance. Not
        divided by ep, as other ranks' tokens come in.
    kept_payloads, payload_width : number or array
        Row-wide tensors and their width: 1 for the experts' input, 1 more for their output where routing
        weights multiply it after the experts.
    kept, width, etp : number or array
        As in :func:`ffn_activation_bytes`, with the inner width of an expert and the ranks it is cut over.
    item_size : number or array
        Bytes of an element. [B]

    Returns
    -------
    number or array
        Bytes; dispatch and combine themselves keep only indices. [B]

    Examples
    --------
    >>> expert_activation_bytes(2.0, 1.0, 8.0, 3.0, 4.0, 1.0, 2.0)
    80.0
    """
    return rows * (kept_payloads * payload_width + kept * width / etp) * item_size


@formula("tokens * hidden_size * item_size / split")
def boundary_bytes(tokens: Num, hidden_size: Num, item_size: Num, split: Num) -> Num:
    """One tensor between layers: what a fully recomputed layer keeps, and what a stage sends to the next.

    Parameters
    ----------
    tokens, hidden_size, split : number or array
        As in :func:`residual_activation_bytes`; as a message, split by the ranks that each send a part: tp
        with sequence parallelism (or scatter and gather), else 1.
    item_size : number or array
        Bytes of an element; 1 gives the mask of the dropout behind the embedding, which the first stage
        keeps for every micro-batch in flight. [B]

    Returns
    -------
    number or array
        Bytes. While a layer is computed again, its whole activations stand there once more. An inner stage
        sends them n_mb x vpp times per step, and as many gradients back. [B]

    References
    ----------
    Korthikanti et al., 2022, section 5 (2 s b h per layer) and 4.3; Narayanan et al., SC 2021, sections 3.2
    and 4.1 (b s h, and b s h / t).

    Examples
    --------
    >>> boundary_bytes(4096.0, 8192.0, 2.0, 8.0) / 2**20
    8.0
    """
    return tokens * hidden_size * item_size / split


# --- activations of a stage ----------------------------------------------------------------------------


@formula("min(n_mb * vpp, pp - stage if vpp < 2 else 2 * (pp - stage) - 1 + (vpp - 1) * pp)")
def chunks_in_flight(pp: Num, stage: Num, n_mb: Num, vpp: Num) -> Num:
    """Most forward passes of a model chunk whose backward has not ended, under 1F1B.

    Parameters
    ----------
    pp, stage : number or array
        Pipeline stages and the stage looked at, 0 for the first.
    n_mb, vpp : number or array
        Micro-batches of a data-parallel rank (a multiple of pp where vpp > 1), model chunks of a stage.

    Returns
    -------
    number or array
        Chunks, each of layers / (pp vpp) layers; micro-batches for vpp = 1.

    Notes
    -----
    On the first stage that is as much as ``layers`` layers of one micro-batch without interleaving, and
    ``1 + (pp - 1) / (pp vpp)`` times as much with it.

    References
    ----------
    Narayanan et al., SC 2021, section 2.2; Korthikanti et al., 2022, section 4.2.3.

    Examples
    --------
    >>> float(chunks_in_flight(4.0, 0.0, 8.0, 1.0)), float(chunks_in_flight(4.0, 0.0, 8.0, 2.0))
    (4.0, 11.0)
    """
    interleaved = 2.0 * (pp - stage) - 1.0 + (vpp - 1.0) * pp
    return np.minimum(n_mb * vpp, np.where(np.less(vpp, 2), pp - stage, interleaved))


@formula("tokens * (2 * hidden_size * item_size / split + vocab_size * logit_size / tp)")
def head_activation_bytes(
    tokens: Num, hidden_size: Num, vocab_size: Num, item_size: Num, logit_size: Num, tp: Num, split: Num
) -> Num:
    """What the last stage keeps besides its layers: inputs of the last norm and of the head, and logits.

    Parameters
    ----------
    tokens, hidden_size, vocab_size : number or array
        Tokens of a micro-batch, hidden size, vocabulary.
    item_size, logit_size : number or array
        Bytes of an element, and of a logit as the loss keeps it: 4 for fp32. [B]
    tp, split : number or array
        Ranks the vocabulary is cut over, and ranks the inputs are.

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    Korthikanti et al., 2022, section 4.3: 4 s b h / t (1 + v / h).

    Examples
    --------
    >>> head_activation_bytes(1.0, 8.0, 16.0, 2.0, 4.0, 1.0, 1.0) / (4.0 * (8.0 + 16.0))
    1.0
    """
    return tokens * (2.0 * hidden_size * item_size / split + vocab_size * logit_size / tp)
