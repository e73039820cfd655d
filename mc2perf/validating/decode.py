"""What a decode step is asked with: context, drafts, sequences; what is chosen where a row leaves it open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from scipy.optimize import brentq

from mc2perf.equations.serving import tokens_per_step
from mc2perf.measurement import Plain
from mc2perf.problems import InputError
from mc2perf.validating.layout import contradictions, degree, of_all_replicas, replicas
from mc2perf.validating.questions import number, refuse, schedule_of


def decode_choices(question: Mapping[str, Plain], per_card: float, experts: int) -> dict[str, Plain]:
    """What is chosen where a row of decode leaves it open; every choice is listed beside the prediction.

    Parameters
    ----------
    question : mapping
        Inputs of the row.
    per_card : float
        Ranks of a card.
    experts : int
        Routed experts of the model, 0 for a dense one.

    Returns
    -------
    dict
        No host issues kernels, for servers replay a graph; no sequence is cut, for there is one token of
        it; attention computes in the type of the cache where one of both is stated; several tokens of a
        request without a layer that drafts them (MTP) are looked up at no cost; without a layout attention
        runs on every rank and experts over all; with more ranks than divide the experts, as where copies of
        experts or shared ones have ranks of their own, so many ranks as do, each with its batch; requests
        are those of all replicas.

    Examples
    --------
    >>> decode_choices({"cards": 8, "kv_dtype": "int8"}, 2.0, 64)
    {'host': 'graph', 'sp': False, 'attention_dtype': 'int8', 'dies': 16.0, 'tp': 1.0, 'ep': 16.0}
    >>> decode_choices({"ep": 72, "batch_per_npu": 4, "host": "eager", "sp": False}, 1.0, 256)
    {'ep': 64.0}
    """
    found: dict[str, Plain] = {"host": "graph", "sp": False}
    for name, other in (("kv_dtype", "attention_dtype"), ("attention_dtype", "kv_dtype")):
        if other in question:
            found[name] = question[other]
    if new_tokens(question) > 1.0 and "mtp" not in question:
        found["speculative_method"] = "ngram"
    if "cards" in question and not {"npus", "dies"} & question.keys():
        ranks = number(question["cards"]) * per_card
        found["dies"] = ranks
        if not {"tp", "dp", "ep"} & question.keys():
            found |= {"tp": 1.0, "ep": ranks} if experts else {"tp": 1.0}
    left = {name: value for name, value in found.items() if name not in question}
    return {**left, **_fewer_ranks({**question, **left}, experts), **of_all_replicas(question)}


def _fewer_ranks(question: Mapping[str, Plain], experts: int) -> dict[str, Plain]:
    """The layout with the most ranks that divide the experts, where the batch is one of a rank."""
    ep = degree(question, "ep")
    if not experts or experts % ep == 0 or not {"batch_per_npu", "batch_per_die"} & question.keys():
        return {}
    most = max(ranks for ranks in range(1, min(int(ep), experts) + 1) if experts % ranks == 0)
    layout = ("ep", "dp", "npus", "dies", "cards")
    return {name: number(question[name]) * most / ep for name in layout if name in question}


def decode_inputs(question: Mapping[str, Plain], given: Mapping[str, Plain]) -> dict[str, Plain]:
    """What a decode step is asked with; a global batch is that of all replicas."""
    dp = replicas(question)
    refuse(contradictions(question, dp))
    refuse(_decode_contradictions(question))
    step = {name: value for name, value in given.items() if name != "global_batch_size"}
    return {
        **step, **_context(question), **_drafts(question), **_sequences(question, dp),
        "schedule": schedule_of(question), "dp": dp,
    }  # fmt: skip


def _decode_contradictions(question: Mapping[str, Plain]) -> Iterator[str]:
    """Tokens of a step that are not one and the drafts, and a prompt whose answer is not said."""
    drafts, new = question.get("mtp"), new_tokens(question)
    if drafts is not None and new != 1.0 + number(drafts):
        yield f"tokens_per_request: {new:g} are not one and {number(drafts):g} drafts"
    if "context_len" not in question and not {"prompt_len", "output_len"} <= question.keys():
        yield "unstated: context_len"


def new_tokens(question: Mapping[str, Plain]) -> float:
    """Tokens of a sequence that a step computes: stated, or one and the drafts."""
    return number(question.get("tokens_per_request", 1.0 + number(question.get("mtp", 0))))


def mean_context(prompt_len: float, output_len: float) -> float:
    """Tokens in the cache on average while an answer is written, or after many requests at random points.

    Parameters
    ----------
    prompt_len, output_len : float
        Tokens of the prompt and of the answer.

    Returns
    -------
    float
        The prompt and half of the tokens before the last one; the time of a step grows linearly with it.

    Examples
    --------
    >>> mean_context(1024.0, 3.0)
    1025.0
    """
    return prompt_len + (output_len - 1.0) / 2.0


def _context(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Tokens in the cache: stated, or on average while an answer is written, in whole tokens."""
    if "context_len" in question:
        return {}
    prompt, output = number(question["prompt_len"]), number(question["output_len"])
    return {"context_len": round(float(mean_context(prompt, output)))}


def _drafts(question: Mapping[str, Plain]) -> dict[str, Plain]:
    """Drafts of a step and the chance of each, from the chance or from how many are accepted on average."""
    drafts = new_tokens(question) - 1.0
    if not drafts:
        return {}
    if "mtp_accepted" not in question:
        return {"speculative_tokens": drafts, "acceptance": question.get("mtp_acceptance", 1.0)}
    accepted = number(question["mtp_accepted"])
    if not 0.0 <= accepted <= drafts:
        raise InputError([f"mtp_accepted: {accepted:g} of {drafts:g} drafts"])
    chance = brentq(lambda chance: float(tokens_per_step(chance, drafts)) - 1.0 - accepted, 0.0, 1.0)
    return {"speculative_tokens": drafts, "acceptance": float(chance)}


def _sequences(question: Mapping[str, Plain], dp: float) -> dict[str, Plain]:
    """Sequences of a replica; of the fullest one, which the others wait for, where they are not even."""
    if "batch_size" in question:
        return {}
    replica = degree(question, "tp", "cp", "pp")
    if "batch_per_die" in question:
        return {"batch_size": number(question["batch_per_die"]) * replica}
    if "batch_per_npu" in question:
        per_rank = degree(question, "npus") / degree(question, "dies") if "dies" in question else 1.0
        return {"batch_size": number(question["batch_per_npu"]) * per_rank * replica}
    whole = {"global_batch_size", "requests"} & question.keys()
    if not whole:
        raise InputError(["unstated: batch_size"])
    return {"batch_size": ceil(number(question[min(whole)]) / dp)}
