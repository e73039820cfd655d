"""Do claims hang together? What overlap can give, what stated shares imply, what stays unexplained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mc2perf.claims import Claim, Claims, Stated
from mc2perf.equations import claims as equations
from mc2perf.studies.layouts import Candidate

VERDICTS = ("base", "cannot tell", "holds", "unexplained", "implausible", "impossible")
"""What becomes of a claim, the worst last."""

PLAUSIBLE = 1.25
"""A rate may exceed what the model gives with communication for free by this factor before it is doubted."""

APART = 1.05
"""Work beside communication that differs by more is not the same work."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim and what follows from it; not-a-number where it does not say enough."""

    claim: Claim
    base: Claim | None = None
    speedup: float = math.nan
    ceiling: float = math.nan
    ceiling_rate: float = math.nan
    share_speedup: float = math.nan
    share_rate: float = math.nan
    unexplained: float = math.nan
    hidden_share: float = math.nan
    other_time: float = math.nan
    comm_time: float = math.nan
    mfu: float = math.nan
    bandwidth: tuple[tuple[str, float, float], ...] = ()
    verdict: str = "holds"
    findings: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    def found(self, verdict: str, text: str) -> Judged:
        """The same with one more finding; the worst verdict stays."""
        worst = max(self.verdict, verdict, key=VERDICTS.index)
        return replace(self, verdict=worst, findings=(*self.findings, text))


def value(number: Stated | None) -> float:
    """A printed number, not-a-number where there is none."""
    return math.nan if number is None else number.value


def judged(claims: Claims) -> list[Judged]:
    """Every claim against its base, by arithmetic alone.

    Examples
    --------
    >>> from mc2perf.claims import stated
    >>> before = Claim(name="a", comm_ratio=stated("50%"), tokens_per_second=stated("100"))
    >>> after = Claim(name="b", comm_ratio=stated("20%"), tokens_per_second=stated("300"))
    >>> [(j.claim.name, j.verdict) for j in judged(Claims(name="x", claims=(before, after)))]
    [('a', 'base'), ('b', 'impossible')]
    """
    return [_judged(claim, claims.base_of(claim)) for claim in claims.claims]


def _judged(claim: Claim, base: Claim | None) -> Judged:
    rate, share = value(claim.tokens_per_second), value(claim.comm_ratio)
    judgement = Judged(
        claim=claim, base=base,
        other_time=float(equations.time_per_token(1.0 - share, rate)),
        comm_time=float(equations.time_per_token(share, rate)),
        verdict="holds" if base else "base",
    )  # fmt: skip
    before = value((base or claim).comm_ratio)
    covering = _overlappable(base or claim)
    base_rate = value((base or claim).tokens_per_second)
    ceiling = float(equations.overlap_ceiling(before, covering))
    judgement = replace(judgement, ceiling=ceiling, ceiling_rate=ceiling * base_rate)
    if base is None:
        return judgement
    gain = _speedup(claim, base)
    implied = float(equations.share_speedup(before, share))
    judgement = replace(
        judgement, speedup=gain.value, share_speedup=implied, share_rate=implied * base_rate,
        unexplained=float(equations.unexplained_speedup(gain.value, before, share)),
        hidden_share=float(equations.hidden_share(before, share)) if before > 0.0 else math.nan,
    )  # fmt: skip
    return _compared(judgement, base, gain)


def _overlappable(claim: Claim) -> float:
    """What may run beside communication: as stated, else all other work."""
    given = value(claim.overlappable_ratio)
    return 1.0 - value(claim.comm_ratio) if math.isnan(given) else given


def _speedup(claim: Claim, base: Claim) -> Stated:
    """Gain over the base with its rounding: as stated, else the quotient of the rates."""
    if claim.speedup:
        return claim.speedup
    if not claim.tokens_per_second or not base.tokens_per_second:
        return Stated(math.nan)
    above, below = claim.tokens_per_second, base.tokens_per_second
    gain = above.value / below.value
    return Stated(gain, gain - above.low / below.high)


def _compared(judgement: Judged, base: Claim, gain: Stated) -> Judged:
    """The findings of a claim beside its base; rounding counts in its favour."""
    claim = judgement.claim
    if missing := _untold(claim, base, gain):
        return replace(judgement, verdict="cannot tell", findings=(missing,))
    assert base.comm_ratio is not None
    before = base.comm_ratio
    covering = _overlappable(base) + (before.half if base.overlappable_ratio is None else 0.0)
    ceiling = float(equations.overlap_ceiling(before.high, covering))
    if gain.low > ceiling:
        text = (
            f"a gain of {gain.value:.3f}x is above the ceiling of overlap, {judgement.ceiling:.3f}x: "
            "something else became faster"
        )
        fits = float(equations.unhidden_share(before.value, gain.value))
        if fits > 1.0:
            text += f"; the communication of '{base.name}' alone would take {fits:.0%} of the new step"
        judgement = judgement.found("impossible", text)
    if claim.comm_ratio is None:
        return judgement
    least = float(equations.least_comm_ratio(before.value, _overlappable(base)))
    if claim.comm_ratio.high < float(equations.least_comm_ratio(before.low, covering)):
        text = f"at least {least:.1%} stays exposed where only {_overlappable(base):.0%} can cover it"
        judgement = judgement.found("impossible", text)
    return _beside_shares(judgement, before, claim.comm_ratio, gain)


def _untold(claim: Claim, base: Claim, gain: Stated) -> str:
    """What would have to be stated for a claim to be judged beside its base; empty if enough is."""
    if base.comm_ratio is None:
        return f"'{base.name}' states no comm_ratio; write it"
    if claim.comm_ratio is None and math.isnan(gain.value):
        both = "" if base.tokens_per_second else " of both"
        return f"states no gain over '{base.name}'; write comm_ratio, speedup or tokens_per_second{both}"
    return ""


def _beside_shares(judgement: Judged, before: Stated, after: Stated, gain: Stated) -> Judged:
    """Whether the shares give the gain."""
    if math.isnan(gain.value):
        return judgement
    most = float(equations.share_speedup(min(before.high, 1.0 - 1e-9), max(after.low, 0.0)))
    least = float(equations.share_speedup(before.low, min(after.high, 1.0 - 1e-9)))
    left = judgement.unexplained
    if gain.low > most:
        text = (
            f"the stated shares give {judgement.share_speedup:.3f}x{_rate(judgement.share_rate)}; "
            f"{left:.3f}x stays unexplained: other work would have to take {1.0 / left:.1%} of its time"
        )
        return judgement.found("unexplained", text)
    if gain.high < least:
        text = f"the stated shares alone would give {judgement.share_speedup:.3f}x: other work became slower"
        return judgement.found("holds", text)
    return judgement.found("holds", f"the stated shares give {judgement.share_speedup:.3f}x")


def _rate(rate: float) -> str:
    return "" if math.isnan(rate) else f" ({rate:.0f} tokens/s)"


def different_work(judgements: Sequence[Judged]) -> Iterator[str]:
    """Claims beside the same base whose other work differs: no one change of the network explains both."""
    timed = [j for j in judgements if j.base and not math.isnan(j.other_time)]
    for index, one in enumerate(timed):
        for other in timed[index + 1 :]:
            ratio = max(one.other_time, other.other_time) / min(one.other_time, other.other_time)
            if one.base is other.base and ratio > APART:
                yield (
                    f"'{one.claim.name}' leaves {one.other_time * 1e6:.0f} us of other work a token, "
                    f"'{other.claim.name}' {other.other_time * 1e6:.0f} us: "
                    "not one configuration on two networks"
                )


# --- beside the model ----------------------------------------------------------------------------------


def beside_model(judgement: Judged, candidates: Sequence[Candidate]) -> Judged:
    """A claim beside the layouts that could lie behind it: physical limits, and the nearest layouts first.

    Parameters
    ----------
    judgement : Judged
        By arithmetic.
    candidates : sequence of Candidate
        Predictions under the inputs that the claim states.
    """
    share, rate = value(judgement.claim.comm_ratio), value(judgement.claim.tokens_per_second)
    if not candidates:
        return judgement
    nearest = sorted(candidates, key=lambda c: (abs(c.comm_ratio - share), c.tokens_per_second))
    judgement = replace(judgement, candidates=tuple(nearest if not math.isnan(share) else candidates))
    return judgement if math.isnan(rate) else _physical(judgement, candidates, share, rate)


def _physical(judgement: Judged, candidates: Sequence[Candidate], share: float, rate: float) -> Judged:
    flops = candidates[0].flops_per_token
    mfu = rate * flops / candidates[0].peak
    judgement = replace(judgement, mfu=mfu, bandwidth=tuple(_bandwidths(judgement, candidates, share, rate)))
    if mfu > 1.0:
        text = f"the rate is an MFU of {mfu:.0%}: more than the cubes can do"
        return judgement.found("impossible", text + _per_die(candidates))
    best = max(c.tokens_per_second_without_comm for c in candidates)
    if rate > best * PLAUSIBLE:
        text = (
            f"the rate is {rate / best:.2f}x what any layout here reaches with communication for free "
            f"({best:.0f} tokens/s)"
        )
        judgement = judgement.found("implausible", text + _per_die(candidates))
    wires = [c for c in candidates if c.wire_bytes and c.bandwidth]
    if wires and all(rate * c.wire_bytes > c.bandwidth for c in wires):
        text = "the traffic of every layout here would not fit into the step at the full rate of the links"
        judgement = judgement.found("impossible", text)
    return judgement


def _per_die(candidates: Sequence[Candidate]) -> str:
    """What tables of machines with two dies on a card may count."""
    return "; is it the rate of a card with two dies?" if candidates[0].unit == "die" else ""


def _bandwidths(
    judgement: Judged, candidates: Sequence[Candidate], share: float, rate: float
) -> Iterator[tuple[str, float, float]]:
    """Layout, bandwidth that the claimed share implies for its traffic, bandwidth of its links. [B/s]"""
    if judgement.base is not None or not share > 0.0:
        return  # of an overlapped step the share says only what is exposed
    seen: set[float] = set()
    for c in candidates:
        if c.wire_bytes and c.wire_bytes not in seen:
            seen.add(c.wire_bytes)
            yield c.parallel, float(equations.implied_bandwidth(c.wire_bytes, rate, share)), c.bandwidth


@dataclass(frozen=True, kw_only=True)
class Together:
    """One layout behind all claims: a candidate for each, and how far the worst share is off."""

    layout: str
    off: float
    candidates: tuple[Candidate, ...]


def together(judgements: Sequence[Judged]) -> Together | None:
    """The layout that comes nearest to all claims at once, only schedule and place changing between them."""
    stating = [j for j in judgements if j.candidates and j.claim.comm_ratio]
    if len(stating) < 2:
        return None
    layouts = dict.fromkeys(c.layout for j in stating for c in j.candidates)
    rows = [row for layout in layouts if (row := _together(stating, layout))]
    return min(rows, key=lambda row: row.off, default=None)


def _together(judgements: Sequence[Judged], layout: str) -> Together | None:
    chosen = []
    for judgement in judgements:
        found = next((c for c in judgement.candidates if c.layout == layout), None)
        if found is None:
            return None
        chosen.append(found)
    pairs = zip(judgements, chosen, strict=True)
    off = max(abs(c.comm_ratio - value(j.claim.comm_ratio)) for j, c in pairs)
    return Together(layout=layout, off=off, candidates=tuple(chosen))


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A set of claims, what becomes of each, and of all together."""

    claims: Claims
    judgements: tuple[Judged, ...]
    remarks: tuple[str, ...] = ()
    layout: Together | None = None
    target: str = ""
    hardware: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every claim holds; of a base alone nothing can be told."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        return "holds" in verdicts and verdicts <= {"base", "holds"}
