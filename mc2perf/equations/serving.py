"""Tokens that a decode step yields when drafts are checked beside it."""

from __future__ import annotations

import numpy as np

from mc2perf.equations.formula import formula
from mc2perf.units import Num


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
