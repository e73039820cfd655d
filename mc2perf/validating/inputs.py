"""From a row's words to the inputs of a scenario: operators, models."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, gcd

from mc2perf.measurement import Plain
from mc2perf.problems import InputError
from mc2perf.validating.decode import decode_inputs
from mc2perf.validating.layout import contradictions, degree, of_all_replicas, replicas
from mc2perf.validating.questions import SIZES, defaults, is_decode, number, refuse, schedule_of


def operator_inputs(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """What an operator is asked with; the experts of all ranks give those of one, its rows say the phase.

    Examples
    --------
    >>> operator_inputs({"target": "moe_layer", "ranks": 4, "experts": 128})
    {'ranks': 4, 'experts_per_rank': 32.0, 'schedule': 'serial'}
    """
    given = {name: value for name, value in question.items() if name in defaults() and name != "phase"}
    if "experts" in question:
        local = number(question["experts"]) / number(question.get("ranks", 1))
        if given.setdefault("experts_per_rank", local) != local:
            raise InputError([f"experts: {question['experts']} on these ranks are {local:g} per rank"])
    return {**given, "schedule": schedule_of(question)}


def model_inputs(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """What a model is asked with: layout from NPUs, batch from requests, schedule serial unless stated.

    Parameters
    ----------
    question : mapping
        Inputs of a row.

    Returns
    -------
    dict
        Fields of a scenario.

    Raises
    ------
    InputError
        Numbers that contradict each other, and requests of which it is not said whose they are.

    Examples
    --------
    >>> asked = model_inputs({"target": "qwen3-8b", "npus": 8, "tp": 2, "prompt_len": 64, "requests": 4})
    Traceback (most recent call last):
    mc2perf.problems.InputError: requests: whether 4 are of one of 4 replicas or of all is not stated
    >>> model_inputs({"target": "qwen3-8b", "tp": 2, "prompt_len": 64, "requests": 4})["batch_size"]
    4
    """
    taken = defaults().keys() - SIZES - {"nodes", "micro_batches"}
    given = {name: value for name, value in question.items() if name in taken} | _software(question)
    if is_decode(question):
        return decode_inputs(question, given)
    if "fused_operator" in question:
        given["sp"] = False  # a fused all-reduce leaves whole sequences on every rank
    if "prompt_len" in question:
        given["seq_len"] = question["prompt_len"]
    dp = replicas(question)
    refuse(contradictions(question, dp))
    return {**given, "schedule": schedule_of(question), "dp": dp, **_batch(question, dp)}


COUNTED = ("tokens", "tokens_per_npu", "batch_tokens", "global_batch_size")
"""Words of a row that say how many tokens there are."""


def prefill_choices(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """What is chosen where a row of prefill leaves it open; every choice is listed beside the prediction.

    Requests are those of all replicas, as in decode; prompts are padded until the ranks that share them
    have whole tokens.

    Examples
    --------
    >>> prefill_choices({"tp": 8, "ep": 16, "requests": 4, "prompt_len": 3538})
    {'batch_size': 2, 'prompt_len': 3540}
    """
    if any(name in question for name in COUNTED):
        return {}
    found = of_all_replicas(question)
    ranks = int(degree(question, "tp", "cp"))
    if "requests" in question and "prompt_len" in question:
        prompt = number(question["prompt_len"])
        batch = int(number({**question, **found}.get("batch_size", question["requests"])))
        step = ranks // gcd(ranks, batch)
        if prompt % step:
            found["prompt_len"] = ceil(prompt / step) * step
    return found


def _software(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """How the software does it, from the words of launch scripts."""
    said = ((name, str(question[name])) for name in SOFTWARE if name in question)
    return {SOFTWARE[name][0]: SOFTWARE[name][1][word] for name, word in said if word in SOFTWARE[name][1]}


SOFTWARE: dict[str, tuple[str, dict[str, Plain]]] = {
    "dispatcher": (
        "token_dispatcher",
        {"allgather": "all_gather", "alltoall": "all_to_all", "alltoall_seq": "all_to_all"},
    ),
    "launch_blocking": ("host", {"True": "blocking"}),
    "recompute_parts": ("recompute", {"swiglu": "activation"}),
}
"""Word of a row -> input of a scenario, and what its values are there."""


def _batch(question: Mapping[str, Plain], dp: float) -> dict[str, Plain]:
    """Tokens of an NPU or samples of a replica, from what a server counts."""
    if {"tokens", "global_batch_size", "batch_size"} & question.keys():
        return {}
    if "tokens_per_npu" in question:
        per_rank = degree(question, "npus") / degree(question, "dies") if "dies" in question else 1.0
        return {"tokens": number(question["tokens_per_npu"]) * per_rank}
    if "batch_tokens" in question:
        return {"tokens": number(question["batch_tokens"]) / (degree(question, "tp", "cp") * dp)}
    if "requests" not in question:
        return {}
    if dp > 1.0:
        message = f"whether {question['requests']} are of one of {dp:g} replicas or of all is not stated"
        raise InputError([f"requests: {message}"])
    return {"batch_size": question["requests"]}
