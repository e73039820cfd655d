"""What routing tokens to experts costs: payloads, FLOPs, experts and servers touched."""

from __future__ import annotations

from math import comb

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


@formula("tokens * top_k * (payload_width * item_size + scale_bytes)")
def dispatch_bytes(tokens: Num, top_k: Num, payload_width: Num, item_size: Num, scale_bytes: Num) -> Num:
    """Bytes that one rank's tokens send to their experts, its own share included.

    Parameters
    ----------
    tokens, top_k : number or array
        Tokens of the rank and experts of each.
    payload_width : number or array
        Elements per token: the hidden size or the latent width.
    item_size, scale_bytes : number or array
        Bytes of an element, and of the scales of one token. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    Examples
    --------
    >>> dispatch_bytes(1.0, 2.0, 4096.0, 2.0, 0.0) / 1024
    16.0
    """
    return tokens * top_k * (payload_width * item_size + scale_bytes)


@formula("ceil(elements / block) * scale_size")
def mx_scale_bytes(elements: Num, block: Num, scale_size: Num) -> Num:
    """Bytes of the scales of a row in a block-scaled (microscaling) format.

    Parameters
    ----------
    elements, block : number or array
        Elements of the row, and how many share a scale; the last block may be short.
    scale_size : number or array
        Bytes of a scale. [B]

    Returns
    -------
    number or array
        Bytes. [B]

    References
    ----------
    OCP Microscaling Formats (MX) Specification 1.0, 2023: blocks of 32, scales of 1 byte.

    Examples
    --------
    >>> float(mx_scale_bytes(4096.0, 32.0, 1.0))
    128.0
    """
    return np.ceil(elements / block) * scale_size


@formula("2 * matrices * payload_width * width * top_k")
def routed_flops_per_token(matrices: Num, payload_width: Num, width: Num, top_k: Num) -> Num:
    """FLOPs of the routed experts per token.

    Parameters
    ----------
    matrices : number or array
        3 for a gated FFN, 2 for a plain one.
    payload_width, width : number or array
        Input width and inner width of an expert.
    top_k : number or array
        Experts per token.

    Returns
    -------
    number or array
        FLOPs.

    Examples
    --------
    >>> routed_flops_per_token(3.0, 4096.0, 14336.0, 2.0) / 1e6
    704.643072
    """
    return 2.0 * matrices * payload_width * width * top_k


@formula("2 * matrices * hidden_size * shared_width")
def shared_flops_per_token(matrices: Num, hidden_size: Num, shared_width: Num) -> Num:
    """FLOPs of the shared experts per token; they work on the hidden size, also beside latent experts.

    Parameters
    ----------
    matrices : number or array
        3 for a gated FFN, 2 for a plain one.
    hidden_size, shared_width : number or array
        Hidden size and inner width of all shared experts together.

    Returns
    -------
    number or array
        FLOPs.

    Examples
    --------
    >>> shared_flops_per_token(3.0, 7168.0, 2048.0) / 1e6
    88.080384
    """
    return 2.0 * matrices * hidden_size * shared_width


@formula(
    "matrices * (payload_width * width * top_k + hidden_size * shared_width) / (2 * payload_width * top_k)"
)
def flops_per_byte(
    matrices: Num, hidden_size: Num, payload_width: Num, width: Num, shared_width: Num, top_k: Num
) -> Num:
    """FLOPs of routed and shared experts over the bytes of dispatch and combine, both in bf16.

    The one number that says how much there is to hide behind: hidden size and top-k cancel without
    shared experts, 1.5 x width remains for a gated FFN.

    Parameters
    ----------
    matrices, hidden_size, payload_width, width, shared_width, top_k : number or array
        As in :class:`mc2perf.model.Experts`.

    Returns
    -------
    number or array
        FLOP per byte.

    Examples
    --------
    >>> flops_per_byte(3.0, 7168.0, 7168.0, 2048.0, 2048.0, 8.0)
    3456.0
    """
    return (
        matrices
        * (payload_width * width * top_k + hidden_size * shared_width)
        / (2.0 * payload_width * top_k)
    )


@formula("experts * (1 - (1 - top_k / experts) ** tokens)")
def distinct_experts(experts: Num, top_k: Num, tokens: Num) -> Num:
    r"""Experts that at least one of the tokens goes to, expected under even routing.

    .. math:: E \left(1 - (1 - k/E)^B\right)

    Parameters
    ----------
    experts, top_k, tokens : number or array
        E, k <= E, B.

    Returns
    -------
    number or array
        Expected number of experts.

    Examples
    --------
    >>> distinct_experts(8.0, 2.0, 1.0)
    2.0
    """
    return experts * (1.0 - (1.0 - top_k / experts) ** tokens)


def distinct_servers(experts: float, top_k: float, servers: float, groups: float, top_groups: float) -> float:
    r"""Servers that one token's experts lie on, expected under even routing.

    .. math:: s \left(1 - \binom{E - E/s}{k} / \binom{E}{k}\right)

    A router that first picks ``top_groups`` of ``groups`` draws the k experts from those groups only: the
    sum runs over how many of a server's groups are among them.

    Parameters
    ----------
    experts, top_k, servers : float
        E, k, s; E/s experts on every server.
    groups, top_groups : float
        The router's groups and how many it picks; equal for a free router. Exact where a server holds
        whole groups or a group fills whole servers, and the picked groups have at least k experts.

    Returns
    -------
    float
        Expected number of servers, at most ``servers`` and ``top_k``.

    References
    ----------
    Hypergeometric draws without replacement, first of groups, then of experts.

    Examples
    --------
    >>> [round(distinct_servers(256.0, 8.0, s, 8.0, 4.0), 2) for s in (2.0, 4.0, 8.0)]
    [1.93, 2.93, 3.63]
    """
    here = max(round(groups / servers), 1)
    pool = experts * top_groups / groups
    own = min(experts / servers, experts / groups)
    chance = 0.0
    for picked in range(1, min(here, round(top_groups)) + 1):
        share = comb(here, picked) * comb(round(groups) - here, round(top_groups) - picked)
        chance += share / comb(round(groups), round(top_groups)) * _touched(pool, own * picked, top_k)
    return min(servers * chance, top_k)


def _touched(total: float, inside: float, drawn: float) -> float:
    """Chance that at least one of ``drawn`` items out of ``total`` lies among ``inside`` of them."""
    index = np.arange(round(drawn))
    missed = np.maximum(total - inside - index, 0.0) / (total - index)
    return float(1.0 - np.prod(missed))


@formula("copies * (servers - 1) / servers")
def crossing_copies(copies: Num, servers: Num) -> Num:
    """Copies of a token that leave its own server.

    Parameters
    ----------
    copies, servers : number or array
        Copies sent (distinct servers, or top-k without de-duplication) and servers.

    Returns
    -------
    number or array
        Copies over the outer links.

    Examples
    --------
    >>> crossing_copies(2.0, 2.0)
    1.0
    """
    return copies * (servers - 1.0) / servers


@formula("capacity_factor * tokens * top_k / experts")
def capacity_rows(capacity_factor: Num, tokens: Num, top_k: Num, experts: Num) -> Num:
    """Rows of every expert when padded or dropped to a capacity.

    Parameters
    ----------
    capacity_factor : number or array
        Multiple of the even share.
    tokens, top_k, experts : number or array
        Tokens of the whole group, experts per token, experts.

    Returns
    -------
    number or array
        Rows.

    References
    ----------
    Lepikhin et al., "GShard", 2020.

    Examples
    --------
    >>> capacity_rows(1.25, 64.0, 2.0, 8.0)
    20.0
    """
    return capacity_factor * tokens * top_k / experts
