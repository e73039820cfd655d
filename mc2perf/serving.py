"""What users of a served model are promised: time to the first token, time per token, tokens per second.

A pass over a cache is priced like any other study; here its time becomes these figures. Everything is an
array that broadcasts to (rows, counts), like :class:`mc2perf.results.Results`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mc2perf.equations import serving
from mc2perf.problems import InputError
from mc2perf.results import Results
from mc2perf.study import Study
from mc2perf.units import Num
from mc2perf.workload.decode import cache_of_sequence


class Decoded(NamedTuple):
    """A decode step: its time, time per output token, tokens per second.

    ``tokens_per_second`` is of one NPU, ``tokens_per_second_of_all`` of every NPU of the study. [s], [1/s]
    """

    step_time: Num
    tpot: Num
    tokens_per_second: Num
    tokens_per_second_of_all: Num


class Prefilled(NamedTuple):
    """Prefill of a batch: time of all its passes, time to the first token, prompt tokens per second.

    ``tokens_per_second`` is of one NPU, ``tokens_per_second_of_all`` of every NPU of the study. [s], [1/s]
    """

    time: Num
    ttft: Num
    tokens_per_second: Num
    tokens_per_second_of_all: Num


def decoded(study: Study, results: Results, step_tokens: Num = 1.0) -> Decoded:
    """What a decode step gives.

    Parameters
    ----------
    study : Study
        A study of :func:`mc2perf.workload.decode.cached_layers`.
    results : Results
        A schedule laid over it.
    step_tokens : number or array
        Tokens that a step yields per sequence: 1, or with drafts
        :func:`mc2perf.equations.serving.tokens_per_step`.

    Returns
    -------
    Decoded
        Throughput is sequences over time per token, exactly.
    """
    run, step = study.costs.ledger.run, np.asarray(results.total)
    sequences = sequences_of_npu(study)
    tpot = run("TPOT", serving.time_per_output_token, step_time=step, step_tokens=step_tokens)
    rate = run("throughput", serving.decode_throughput, sequences=sequences, tpot=tpot)
    return Decoded(step, tpot, rate, rate * study.npus)


def prefilled(
    study: Study, results: Results, chunks: bool = False, waiting: Num = 0.0, transfer: Num = 0.0
) -> Prefilled:
    """What the prefill of a batch gives.

    Parameters
    ----------
    study : Study
        A study of :func:`mc2perf.workload.decode.cached_layers`.
    results : Results
        A schedule laid over it.
    chunks : bool
        Whether the rows of the study are the chunks of one prompt, as of :func:`chunks_of`, and add up.
    waiting, transfer : number or array
        Time in the queue, and of moving the cache if the first token is held back until then. [s]

    Returns
    -------
    Prefilled
        The last pass yields the first token.
    """
    time, tokens = np.asarray(results.total), np.asarray(study.tokens)
    if chunks:
        time, tokens = (np.sum(column, axis=0, keepdims=True) for column in (time, tokens))
    ttft = study.costs.ledger.run(
        "TTFT", serving.time_to_first_token, waiting=waiting, prefill=time, transfer=transfer
    )
    rate = tokens / time
    return Prefilled(time, ttft, rate, rate * study.npus)


def sequences_of_npu(study: Study) -> Num:
    """Sequences over the NPUs that share them."""
    assert study.layout is not None
    return study.layout.tokens / study.layout.seq_len


def chunks_of(prompt_len: float, chunk_len: float, cached: float = 0.0) -> tuple[Num, Num]:
    """New tokens and context of every chunk of a prompt, as columns of a study.

    Parameters
    ----------
    prompt_len, chunk_len : float
        Tokens of a prompt, and most of them in one pass.
    cached : float
        Tokens at its beginning that are in the cache already.

    Returns
    -------
    tuple of column
        New tokens and tokens before them, of shape (chunks, 1); the last chunk may be short.

    Raises
    ------
    InputError
        Numbers that leave nothing to do.

    Examples
    --------
    >>> new, before = chunks_of(10.0, 4.0, cached=1.0)
    >>> new.ravel().tolist(), before.ravel().tolist()
    ([4.0, 4.0, 1.0], [1.0, 5.0, 9.0])
    """
    problems = []
    if chunk_len < 1.0:
        problems.append(f"chunk_len: {chunk_len:g} tokens are no chunk; write 1 or more")
    if not 0.0 <= cached < prompt_len:
        problems.append(
            f"context_len: {cached:g} of {prompt_len:g} prompt tokens leave nothing to read;"
            f" write 0 to {max(prompt_len - 1.0, 0.0):g}"
        )
    if problems:
        raise InputError(problems)
    before = np.arange(cached, prompt_len, chunk_len).reshape(-1, 1)
    return np.minimum(chunk_len, prompt_len - before), before


def mean_context(prompt_len: Num, output_len: Num) -> Num:
    """Tokens in the cache on average while an answer is written, or after many requests at random points.

    Parameters
    ----------
    prompt_len, output_len : number or array
        Tokens of the prompt and of the answer.

    Returns
    -------
    number or array
        The prompt and half of the tokens before the last one; the time of a step grows linearly with it.

    Examples
    --------
    >>> mean_context(1024.0, 3.0)
    1025.0
    """
    return prompt_len + (output_len - 1.0) / 2.0


def cache_transfer_time(study: Study, context: Num, kv_size: float, distance: float) -> Num:
    """Time to move the caches of an NPU's share of a batch to an NPU that decodes.

    Parameters
    ----------
    study : Study
        The prefill.
    context : number or array
        Tokens of every sequence.
    kv_size : float
        Bytes of an element of the cache. [B]
    distance : float
        Ranks between the two NPUs: beyond a server it goes over the outer links.

    Returns
    -------
    number or array
        Time of one message, nothing else on the link. [s]
    """
    assert study.model is not None and study.layout is not None
    layout = study.layout
    one = cache_of_sequence(study.model, context, kv_size, layout.tp)
    size = one * layout.gathered / layout.seq_len
    return study.costs.send("cache", size, distance).time
