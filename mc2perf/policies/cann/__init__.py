"""CANN's own tiling policies, to compare a cut with: which tiles would its operators run?"""

from __future__ import annotations

from collections.abc import Callable

from mc2perf.operators import DTYPES, OPERATORS
from mc2perf.policies.cann import fit_balance, operators
from mc2perf.policies.cann.case import CannTiling, Case
from mc2perf.policies.cann.constants import SOCS
from mc2perf.policies.cann.hccl_time import CommTime, fit_balance_time
from mc2perf.problems import InputError, did_you_mean

__all__ = ["CannTiling", "cann_tiling"]

_FORMULAIC: dict[str, Callable[[Case], CannTiling]] = {
    "all_gather_matmul": operators.all_gather_matmul,
    "matmul_reduce_scatter": operators.matmul_reduce_scatter,
    "matmul_all_reduce": operators.matmul_all_reduce,
    "all_to_all_matmul": operators.all_to_all,
    "matmul_all_to_all": operators.all_to_all,
}
_FIT_BALANCE: dict[str, Callable[[Case, CommTime], CannTiling]] = {
    "all_gather_matmul": fit_balance.all_gather_matmul,
    "matmul_reduce_scatter": fit_balance.matmul_reduce_scatter,
    "matmul_all_reduce": fit_balance.matmul_all_reduce,
    "matmul_all_to_all": fit_balance.matmul_all_to_all,
}
# (operator, family) without any policy in the source
_ABSENT = {("matmul_all_reduce", "a3"), ("matmul_all_to_all", "a2")}
_RANKS = {"a2": (2, 4, 8), "a3": (2, 4, 8, 16, 32), "950": (2, 4, 8, 16, 32, 64)}


def cann_tiling(
    operator: str,
    m: float,
    n: float,
    k: float,
    ranks: int,
    *,
    family: str,
    cores: int,
    dtype: str = "bf16",
    deterministic: bool = False,
    engine: str = "ccu",
    experts: int = 1,
    keep_exchanged: bool = False,
) -> CannTiling:
    """Cut a fused operator as CANN's tiling code does.

    Parameters
    ----------
    operator : str
        Name in :data:`mc2perf.operators.OPERATORS`.
    m, n, k : float
        Problem size as the catalogue of operators defines it. [rows, columns]
    ranks : int
        Ranks that communicate: 2, 4, 8 on A2; up to 32 on A3; up to 64 on the 950.
    family : str
        "a2", "a3" or "950".
    cores : int
        Cube cores.
    dtype : str
        Element type of the matmul's inputs.
    deterministic : bool
        Reduce in a fixed order (reduce-scatter).
    engine : str
        Who drives communication on the 950: "ccu" or "aicpu".
    experts : int
        Local experts of a grouped operator.
    keep_exchanged : bool
        The rows as they arrive are an output too (all-to-all + matmul in mxfp8 on the 950).

    Returns
    -------
    CannTiling
        Tiles, CANN's own totals, its bound, and the rule that decided.

    Raises
    ------
    InputError
        Wrong arguments, or a combination for which CANN has no policy.

    Notes
    -----
    The times are CANN's estimates, not ours: on A3 those of all-gather and reduce-scatter carry the number
    of ranks once too often, as does matmul time in the formulaic policy of all-to-all, which the 950 falls
    back to. Not modelled: all-reduce that sends int8, the divisors that fit-balance may look for where
    rows are not a multiple of 256, and A2's table of rounds beyond its defaults.

    References
    ----------
    hicann/ops-transformer: ``mc2/common/src``, trees c29bc106 and 0892d120.

    Examples
    --------
    >>> cut = cann_tiling("matmul_all_reduce", 4096, 8192, 4096, 8, family="a2", cores=24)
    >>> cut.tiles, cut.bound, round(cut.matmul_time * 1e6)
    ((512.0, 896.0, 896.0, 896.0, 896.0), 'comm', 892)
    """
    case = Case(
        operator=operator,
        m=m,
        n=n,
        k=k,
        ranks=ranks,
        family=family,  # type: ignore[arg-type]  # checked next
        cores=cores,
        dtype=dtype,
        deterministic=deterministic,
        engine=engine,  # type: ignore[arg-type]
        experts=experts,
        keep_exchanged=keep_exchanged,
    )
    if problems := [*_wrong(case)] or [*_absent(case)]:
        raise InputError(problems)
    return _policy(case)


def _wrong(case: Case) -> list[str]:
    """Arguments that no policy could take, one line each."""
    found = [
        f"{name}: {word!r} is not known{did_you_mean(word, known)}"
        for name, word, known in (
            ("operator", case.operator, OPERATORS),
            ("family", case.family, SOCS),
            ("dtype", case.dtype, DTYPES),
            ("engine", case.engine, ("ccu", "aicpu")),
        )
        if word not in known
    ]
    counts = {"m": case.m, "n": case.n, "k": case.k, "cores": case.cores, "experts": case.experts}
    return found + [
        f"{name}: {x} is not positive; write 1 or more" for name, x in counts.items() if not x > 0
    ]


def _absent(case: Case) -> list[str]:
    """Why CANN has no policy for a combination, if so."""
    if case.entry.grouped:
        return []
    if (case.operator, case.family) in _ABSENT:
        return [f"operator: CANN has no tiling policy for {case.operator} on {case.family}"]
    if case.dtype not in case.soc.mac_rate:
        return [f"dtype: CANN has no tiling policy for {case.dtype} on {case.family}"]
    if case.ranks not in _RANKS[case.family]:
        legal = ", ".join(map(str, _RANKS[case.family]))
        return [
            f"ranks: CANN has no tiling policy for {case.ranks} ranks on {case.family}; write one of {legal}"
        ]
    return []


def _policy(case: Case) -> CannTiling:
    """Choose the policy as the operators' tiling code does."""
    if case.entry.grouped:
        return operators.per_expert(case)
    comm = fit_balance_time(case) if case.family == "950" else None
    if comm is None or not _fits(case):
        return _FORMULAIC[case.operator](case)
    if case.operator == "all_to_all_matmul":
        return fit_balance.all_to_all_matmul(case)
    return _FIT_BALANCE[case.operator](case, comm)


def _fits(case: Case) -> bool:
    """mxfp8 all-to-all + matmul takes fit-balance only for 4 ranks and an exchanged output."""
    special = case.operator == "all_to_all_matmul" and case.dtype == "mxfp8"
    return not special or (case.ranks == 4 and case.keep_exchanged)
