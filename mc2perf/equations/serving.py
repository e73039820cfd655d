"""Serving steps: what decode reads, time per token, first token, throughput, speculative tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.formula import formula
from mc2perf.equations.routing import distinct_experts
from mc2perf.units import Num

# --- what a decode step reads --------------------------------------------------------------------------


@formula(
    "item_size * (dense_parameters"
    " + experts / ep * (1 - (1 - top_k / experts) ** tokens) * expert_parameters)"
)
def decode_weight_bytes(
    dense_parameters: Num,
    expert_parameters: Num,
    experts: Num,
    top_k: Num,
    tokens: Num,
    ep: Num,
    item_size: Num,
) -> Num:
    """Bytes of weights that a rank reads in one step: all dense ones, and the experts that got a token.

    Parameters
    ----------
    dense_parameters, expert_parameters : number or array
        Weights of a rank outside the experts, and of one routed expert over all MoE layers.
    experts, top_k, ep : number or array
        Routed experts of a layer, experts per token, ranks they are dealt to.
    tokens : number or array
        Tokens of a step in the whole expert-parallel group: sequences x (1 + drafts).
    item_size : number or array
        Bytes of a weight. [B]

    Returns
    -------
    number or array
        Bytes, expected under even routing; the busiest rank may touch more. [B]

    Examples
    --------
    >>> decode_weight_bytes(10.0, 4.0, 8.0, 2.0, 1.0, 1.0, 2.0)
    36.0
    """
    touched = distinct_experts(experts, top_k, tokens) / ep
    return item_size * (dense_parameters + touched * expert_parameters)


@formula("sequences * layers * token_bytes * (min(context, window) + new_tokens)")
def decode_attention_bytes(
    sequences: Num, layers: Num, token_bytes: Num, context: Num, window: Num, new_tokens: Num
) -> Num:
    """Bytes of the KV cache that a decode step moves: the kept tokens read once, the new ones written.

    Parameters
    ----------
    sequences, layers : number or array
        Sequences of a rank and layers of one kind.
    token_bytes : number or array
        Cache of a token in one layer, :func:`mc2perf.equations.memory.kv_token_bytes`. [B]
    context, window : number or array
        Tokens before this step, and the sliding window; infinity for none.
    new_tokens : number or array
        1 + drafts; they share one read of the cache.

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> float(decode_attention_bytes(2.0, 1.0, 1024.0, 4096.0, 128.0, 1.0)) / 1024
    258.0
    """
    return sequences * layers * token_bytes * (np.minimum(context, window) + new_tokens)


@formula("2 * heads * (key_dim + value_dim) * new_tokens / token_bytes")
def decode_attention_intensity(
    heads: Num, key_dim: Num, value_dim: Num, new_tokens: Num, token_bytes: Num
) -> Num:
    """FLOPs of decode attention per byte of cache, for long contexts: memory-bound below peak / rate.

    Parameters
    ----------
    heads, key_dim, value_dim : number or array
        Query heads of a rank and the widths they are multiplied with; for absorbed latent attention the
        latent width with the rotary part, and the latent width.
    new_tokens : number or array
        1 + drafts.
    token_bytes : number or array
        Cache of a token in one layer on that rank. [B]

    Returns
    -------
    number or array
        FLOP per byte.

    Examples
    --------
    >>> decode_attention_intensity(32.0, 128.0, 128.0, 1.0, 4096.0)
    4.0
    >>> round(decode_attention_intensity(128.0, 576.0, 512.0, 1.0, 1152.0), 1)
    241.8
    """
    return 2.0 * heads * (key_dim + value_dim) * new_tokens / token_bytes


@formula("max(weight_time, matmul_time) + attention_time + exposed_comm + overhead")
def decode_step_time(
    weight_time: Num, matmul_time: Num, attention_time: Num, exposed_comm: Num, overhead: Num
) -> Num:
    """Time of a decode step: its parts one after the other, not the largest of them.

    Parameters
    ----------
    weight_time, matmul_time : number or array
        Reading the weights, and the matmuls at their rate; one hides the other inside a kernel. [s]
    attention_time : number or array
        Reading caches or computing on them, the longer one. [s]
    exposed_comm, overhead : number or array
        Communication nothing covers; launches and latencies of all layers. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> float(decode_step_time(5.0, 2.0, 3.0, 1.0, 0.5))
    9.5
    """
    return np.maximum(weight_time, matmul_time) + attention_time + exposed_comm + overhead


# --- speculative tokens --------------------------------------------------------------------------------


@formula("(1 - acceptance ** (drafts + 1)) / (1 - acceptance) if acceptance < 1 else drafts + 1")
def tokens_per_step(acceptance: Num, drafts: Num) -> Num:
    r"""Tokens that a step yields on average: drafts accepted up to the first refusal, and one more.

    .. math:: \sum_{i=0}^{d} a^i = \frac{1 - a^{d+1}}{1 - a}

    Parameters
    ----------
    acceptance : number or array
        Chance that a draft is accepted if those before it were, a in [0, 1].
    drafts : number or array
        Drafts of a step, d >= 0.

    Returns
    -------
    number or array
        Tokens, from 1 to d + 1.

    References
    ----------
    Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023, eq. 1.

    Examples
    --------
    >>> round(float(tokens_per_step(0.7, 1.0)), 12), float(tokens_per_step(1.0, 3.0))
    (1.7, 4.0)
    """
    # Written in the chance of a refusal, and away from 0/0, it is exact up to acceptance 1.
    refusal = np.clip(1.0 - acceptance, np.finfo(float).tiny, 1.0 - np.finfo(float).eps)
    tokens: Num = -np.expm1((drafts + 1.0) * np.log1p(-refusal)) / refusal
    return tokens


def tokens_per_step_by_position(acceptance: NDArray[np.floating[Any]]) -> Num:
    """Tokens that a step yields on average when every draft has its own chance.

    Parameters
    ----------
    acceptance : array, shape (..., drafts)
        Chance of each draft if those before it were accepted.

    Returns
    -------
    number or array
        Tokens, of shape (...).

    Examples
    --------
    >>> float(tokens_per_step_by_position(np.array([0.75, 0.5])))
    2.125
    """
    tokens: Num = 1.0 + np.sum(np.cumprod(acceptance, axis=-1), axis=-1)
    return tokens


@formula("step_tokens * plain_step / (verify_step + drafts * draft_time)")
def speculative_speedup(
    step_tokens: Num, drafts: Num, plain_step: Num, verify_step: Num, draft_time: Num
) -> Num:
    """How much faster tokens come with drafts than without.

    Parameters
    ----------
    step_tokens, drafts : number or array
        Tokens of a step, :func:`tokens_per_step`, and its drafts.
    plain_step, verify_step, draft_time : number or array
        A step of one token, a step of drafts + 1 tokens, the making of one draft. [s]

    Returns
    -------
    number or array
        Factor; below 1 drafts do not pay.

    References
    ----------
    Leviathan et al., 2023, theorem 3.8, where both steps take the same time.

    Examples
    --------
    >>> speculative_speedup(1.75, 1.0, 8.0, 8.0, 2.0)
    1.4
    """
    return step_tokens * plain_step / (verify_step + drafts * draft_time)


# --- times and rates that users are promised -----------------------------------------------------------


@formula("step_time / step_tokens")
def time_per_output_token(step_time: Num, step_tokens: Num) -> Num:
    """Mean time between tokens of a sequence (TPOT).

    Parameters
    ----------
    step_time, step_tokens : number or array
        Time of a step [s], and tokens it yields per sequence; 1 without drafts.

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> time_per_output_token(0.068, 1.7)
    0.04
    """
    return step_time / step_tokens


@formula("sequences / tpot")
def decode_throughput(sequences: Num, tpot: Num) -> Num:
    """Tokens per second of sequences that decode together.

    Parameters
    ----------
    sequences, tpot : number or array
        Sequences in a batch, and the time per output token. [s]

    Returns
    -------
    number or array
        Tokens per second, of one NPU if the sequences are counted per NPU. [1/s]

    Examples
    --------
    >>> decode_throughput(96.0, 0.048)
    2000.0
    """
    return sequences / tpot


@formula("waiting + prefill + transfer")
def time_to_first_token(waiting: Num, prefill: Num, transfer: Num) -> Num:
    """Time from a request to its first token (TTFT), which prefill yields.

    Parameters
    ----------
    waiting, prefill, transfer : number or array
        In the queue; the forward pass of the prompt, all its chunks; moving the KV cache to another NPU
        where the first token is held back until then, else 0. [s]

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> time_to_first_token(0.25, 0.5, 0.0)
    0.75
    """
    return waiting + prefill + transfer


@formula("ttft + (output_tokens - 1) * tpot")
def request_time(ttft: Num, tpot: Num, output_tokens: Num) -> Num:
    """Time from a request to its last token.

    Parameters
    ----------
    ttft, tpot, output_tokens : number or array
        Time to the first token [s], per token after it [s], tokens of the answer.

    Returns
    -------
    number or array
        Time. [s]

    Examples
    --------
    >>> request_time(0.5, 0.25, 3.0)
    1.0
    """
    return ttft + (output_tokens - 1.0) * tpot


@formula("sequences * output_tokens / (sequences * prefill + (output_tokens - 1) * tpot)")
def shared_throughput(sequences: Num, output_tokens: Num, prefill: Num, tpot: Num) -> Num:
    """Output tokens per second of NPUs that prefill and decode in turn, the batch always full.

    Parameters
    ----------
    sequences, output_tokens : number or array
        Sequences in a batch, and tokens of each answer.
    prefill, tpot : number or array
        Prefill of one request while decoding stands still, and time per output token. [s]

    Returns
    -------
    number or array
        Tokens per second; an upper bound, requests never lacking. [1/s]

    Examples
    --------
    >>> shared_throughput(4.0, 5.0, 0.25, 0.25)
    10.0
    """
    return sequences * output_tokens / (sequences * prefill + (output_tokens - 1.0) * tpot)


@formula("prompt_tokens / prefill_rate * decode_rate / output_tokens")
def prefill_npus_per_decode_npu(
    prompt_tokens: Num, output_tokens: Num, prefill_rate: Num, decode_rate: Num
) -> Num:
    """Prefill NPUs that keep one decode NPU busy when the two are apart.

    Parameters
    ----------
    prompt_tokens, output_tokens : number or array
        Tokens of a prompt and of an answer.
    prefill_rate, decode_rate : number or array
        Tokens per second and NPU of each phase. [1/s]

    Returns
    -------
    number or array
        Ratio.

    Examples
    --------
    >>> prefill_npus_per_decode_npu(4096.0, 1024.0, 8000.0, 2000.0)
    1.0
    """
    return prompt_tokens / prefill_rate * decode_rate / output_tokens


@formula("max(0, floor((limit - fixed) / per_sequence))")
def largest_batch(limit: Num, fixed: Num, per_sequence: Num) -> Num:
    """Sequences that fit under a limit: step time under a promised TPOT, or bytes under the memory.

    Parameters
    ----------
    limit : number or array
        TPOT x tokens per step [s], or memory [B].
    fixed, per_sequence : number or array
        What a step or the weights take without any sequence, and what each adds, in the same unit.

    Returns
    -------
    number or array
        Whole sequences; 0 where none fits.

    Examples
    --------
    >>> float(largest_batch(64.0, 40.0, 5.0)), float(largest_batch(64.0, 70.0, 5.0))
    (4.0, 0.0)
    """
    return np.maximum(0.0, np.floor((limit - fixed) / per_sequence))
