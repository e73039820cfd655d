"""Audits of claims for people, as JSON, and as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mc2perf.studies.audit import Audit, Judged, value
from mc2perf.studies.layouts import Candidate
from mc2perf.table import Block, Column, in_columns
from mc2perf.units import show
from mc2perf.version import VERSION

SCHEMA_VERSION = 1

NEAREST = 3
"""Layouts that a person is shown for each claim, and the nearest of each place and degree; files have all."""

SMALL = 0.05
"""Share of the links below which bandwidth cannot be what a transfer waits for."""

COLUMNS = (
    Column("claims", "", "set of claims"),
    Column("claim", "", "name of the claim"),
    Column("verdict", "", "base, cannot tell, holds, unexplained, implausible or impossible"),
    Column("comm_ratio", "1", "claimed: exposed communication over the step"),
    Column("tokens_per_second", "1/s", "claimed, of one NPU"),
    Column("speedup", "1", "claimed, against the base"),
    Column("ceiling", "1", "most that overlap alone can gain over the base"),
    Column("ceiling_tokens_per_second", "1/s", "tokens per second of one NPU at that ceiling"),
    Column("share_speedup", "1", "gain that the stated shares imply"),
    Column("share_tokens_per_second", "1/s", "tokens per second that the stated shares imply"),
    Column("unexplained", "1", "claimed gain over the one that the shares imply"),
    Column("hidden_share", "1", "share of the base's communication that overlap would have to hide"),
    Column("mfu", "1", "model FLOPs of the claimed rate over the peak of the cubes"),
    Column("nearness", "1", "rank of the layout among those tried, nearest in communication ratio first"),
    Column("layout", "", "what is laid out how"),
    Column("degrees", "", "ranks that share experts and matmuls"),
    Column("place", "", "servers"),
    Column("schedule", "", "how communication is overlapped"),
    Column("predicted_comm_ratio", "1", "of this layout"),
    Column("predicted_tokens_per_second", "1/s", "of this layout, one NPU"),
    Column(
        "claimed_over_predicted", "1", "tokens per second that the layout leaves unexplained, as a factor"
    ),
    Column("note", "", "why the schedule equals serial"),
)
"""Columns of a file: a row for each claim and layout."""


def to_text(audits: Sequence[Audit]) -> str:
    """Tables for a terminal."""
    return "\n".join(map(_rendered, audits))


def _rendered(audit: Audit) -> str:
    from tabulate import tabulate  # costs 40 ms

    def table(rows: list[list[str]], headers: Sequence[str], left: int) -> str:
        align = [*("left",) * left, *("right",) * (len(headers) - left - 1), "left"]
        return str(tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True))

    head = [verdict(audit), f"{audit.claims.name}: {audit.claims.title}" if audit.claims.title else ""]
    head.append(f"source: {audit.claims.source}" if audit.claims.source else "")
    blocks = [
        "\n".join(line for line in head if line),
        table([_claim_row(j) for j in audit.judgements], _CLAIM_HEADERS, 1),
        "\n".join(_findings(audit)),
    ]
    nearest = [row for j in audit.judgements for row in _nearest_rows(j)]
    if nearest:
        blocks.append(f"nearest in communication ratio, {audit.target} on {audit.hardware}")
        blocks.append(table(nearest, _NEAREST_HEADERS, 5))
        blocks.append("\n".join(_behind(audit)))
    blocks.append("\n".join(_said(audit)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def verdict(audit: Audit) -> str:
    """The first sentence.

    Examples
    --------
    >>> from mc2perf.auditing import ask_audit
    >>> verdict(ask_audit([], ["a:comm_ratio=50%", "b:comm_ratio=20%,speedup=1.6x"], {})[0])
    'Holds: b.'
    """
    broken = [_broken(j) for j in audit.judgements if j.verdict not in ("base", "cannot tell", "holds")]
    untold = [f"{j.claim.name}: {j.findings[0]}" for j in audit.judgements if j.verdict == "cannot tell"]
    sound = [j.claim.name for j in audit.judgements if j.verdict == "holds"]
    if not (broken or untold or sound):
        untold = [_alone(audit)]
    said = {"Does not hold": broken, "Cannot tell": untold, "Holds": sound if not broken else []}
    return " ".join(f"{word}: {'; '.join(parts)}." for word, parts in said.items() if parts)


def _alone(audit: Audit) -> str:
    """What a second claim would have to say beside the first."""
    base = audit.judgements[0].claim if audit.judgements else None
    name = f"'{base.name}' stands alone" if base else "no claim is made"
    also = " (and of the first)" if base and base.comm_ratio is None else ""
    return f"{name}; add a second claim with its comm_ratio{also}, and its tokens_per_second or speedup"


def _broken(judgement: Judged) -> str:
    name = judgement.claim.name
    if judgement.verdict == "unexplained":
        return f"{name} leaves {judgement.unexplained:.3f}x unexplained"
    if judgement.verdict == "impossible" and judgement.speedup > judgement.ceiling:
        ceiling = f"{judgement.speedup:.3f}x claimed, {judgement.ceiling:.3f}x the ceiling"
        return f"{name} is impossible by overlap alone ({ceiling})"
    return f"{name} is {judgement.verdict}"


_CLAIM_HEADERS = (
    "claim", "comm_ratio", "tokens/s/NPU", "speed-up", "ceiling", "shares give", "unexplained", "MFU",
    "verdict",
)  # fmt: skip
_NEAREST_HEADERS = (
    "claim", "layout", "degrees", "where", "schedule", "comm_ratio", "tokens/s/NPU", "claimed/predicted",
    "note",
)  # fmt: skip


def _claim_row(j: Judged) -> list[str]:
    shares = _times(j.share_speedup)
    if not math.isnan(j.share_rate):
        shares += f" ({j.share_rate:.0f})"
    return [
        j.claim.name, _percent(value(j.claim.comm_ratio)), _plain(value(j.claim.tokens_per_second)),
        _times(j.speedup), _times(j.ceiling), shares, _times(j.unexplained), _percent(j.mfu), j.verdict,
    ]  # fmt: skip


def _times(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3f}x"


def _percent(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.1%}"


def _plain(number: float) -> str:
    return "" if math.isnan(number) else f"{number:g}"


def _findings(audit: Audit) -> Iterator[str]:
    for j in audit.judgements:
        yield from (f"{j.claim.name}: {text}" for text in j.findings)
        yield from (f"{j.claim.name}: {_as_traffic(*row)}" for row in j.bandwidth)
    yield from audit.remarks


def _as_traffic(layout: str, bandwidth: float, links: float) -> str:
    share = bandwidth / links
    text = f"as traffic of {layout} its share means {show(bandwidth, 'B/s', 3)}, {share:.0%} of the links"
    if share > 1.0:
        return f"{text}: more than they carry"
    return f"{text}: too little for bandwidth to be the cause" if share < SMALL else text


def _nearest_rows(j: Judged) -> Iterator[list[str]]:
    first = {id(c) for key in ("place", "parallel") for c in _first_of_each(j.candidates, key)}
    shown = [c for n, c in enumerate(j.candidates) if n < NEAREST or id(c) in first]
    for number, c in enumerate(shown):
        yield [
            j.claim.name if number == 0 else "", c.layout, c.parallel, c.place, c.schedule,
            _percent(c.comm_ratio), f"{c.tokens_per_second:.0f}", _factor(j, c), c.note,
        ]  # fmt: skip


def _first_of_each(candidates: Sequence[Candidate], key: str) -> Iterator[Candidate]:
    yield from {getattr(c, key): c for c in reversed(candidates)}.values()


def _factor(j: Judged, c: Candidate) -> str:
    rate = value(j.claim.tokens_per_second)
    return "" if math.isnan(rate) else f"{rate / c.tokens_per_second:.2f}x"


def _behind(audit: Audit) -> Iterator[str]:
    """What comes nearest to each claim and to all of them, and what that leaves open."""
    for j in audit.judgements:
        if not j.candidates or math.isnan(value(j.claim.comm_ratio)):
            continue
        best = j.candidates[0]
        line = f"{j.claim.name}: nearest is {best.layout} on {best.place}, {_percent(best.comm_ratio)}"
        factor = _factor(j, best)
        rate = f"{best.tokens_per_second:.0f} tokens/s/NPU"
        yield f"{line} at {rate}; the claim is {factor} that, which stays unexplained" if factor else line
    if audit.layout is None:
        return
    found = audit.layout
    shares = ", ".join(f"{_percent(c.comm_ratio)} ({c.place}, {c.schedule})" for c in found.candidates)
    rates = ", ".join(f"{c.tokens_per_second:.0f}" for c in found.candidates)
    yield f"one layout for all claims: {found.layout}: {shares}; {rates} tokens/s/NPU"


def _said(audit: Audit) -> Iterator[str]:
    yield from (f"note: {note}" for note in audit.claims.notes)
    yield from (f"assumes: {text}" for text in audit.assumptions)


# --- files ---------------------------------------------------------------------------------------------


def as_block(audits: Sequence[Audit]) -> Block:
    """A row for each claim and layout; a claim without layouts has one."""
    records = [record for audit in audits for j in audit.judgements for record in _records(audit, j)]
    return in_columns(COLUMNS, records)


def _records(audit: Audit, j: Judged) -> Iterator[dict[str, Any]]:
    front = {"claims": audit.claims.name, **_numbers(j)}
    yield from (front | _prediction(j, c, rank) for rank, c in enumerate(j.candidates, 1))
    if not j.candidates:
        yield front


def _numbers(j: Judged) -> dict[str, Any]:
    """Words and numbers of a claim under the names of the columns."""
    return {
        "claim": j.claim.name,
        "verdict": j.verdict,
        "comm_ratio": value(j.claim.comm_ratio),
        "tokens_per_second": value(j.claim.tokens_per_second),
        "speedup": j.speedup,
        "ceiling": j.ceiling,
        "ceiling_tokens_per_second": j.ceiling_rate,
        "share_speedup": j.share_speedup,
        "share_tokens_per_second": j.share_rate,
        "unexplained": j.unexplained,
        "hidden_share": j.hidden_share,
        "mfu": j.mfu,
    }


def _prediction(j: Judged, c: Candidate, rank: int) -> dict[str, Any]:
    return {
        "nearness": float(rank),
        "layout": c.layout,
        "degrees": c.parallel,
        "place": c.place,
        "schedule": c.schedule,
        "predicted_comm_ratio": c.comm_ratio,
        "predicted_tokens_per_second": c.tokens_per_second,
        "claimed_over_predicted": value(j.claim.tokens_per_second) / c.tokens_per_second,
        "note": c.note,
    }


def document(audits: Sequence[Audit]) -> dict[str, Any]:
    """The audits as a tree; ``data/audit.schema.json`` describes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mc2perf", "version": VERSION},
        "holds": all(audit.holds for audit in audits),
        "audits": [_audit(audit) for audit in audits],
    }


def _audit(audit: Audit) -> dict[str, Any]:
    c = audit.claims
    tree: dict[str, Any] = {
        "name": c.name, "title": c.title, "source": c.source, "target": audit.target,
        "hardware": audit.hardware, "verdict": verdict(audit), "holds": audit.holds,
        "claims": [_judgement(j) for j in audit.judgements], "remarks": list(audit.remarks),
        "notes": list(c.notes), "assumptions": list(audit.assumptions),
    }  # fmt: skip
    if audit.layout:
        tree["layout_for_all"] = {
            "layout": audit.layout.layout,
            "largest_distance": audit.layout.off,
            "claims": [_layout(candidate) for candidate in audit.layout.candidates],
        }
    return tree


def _judgement(j: Judged) -> dict[str, Any]:
    numbers = {name: number for name, number in _numbers(j).items() if number == number}
    timed = {"other_time": j.other_time, "comm_time": j.comm_time}
    return {
        **numbers,
        **{name: number for name, number in timed.items() if number == number},
        "base": j.base.name if j.base else "",
        "findings": list(j.findings),
        "bandwidth": [
            {"layout": layout, "implied": implied, "links": links} for layout, implied, links in j.bandwidth
        ],
        "layouts": [_layout(c) for c in j.candidates],
    }


def _layout(c: Candidate) -> dict[str, Any]:
    names = ("layout", "place", "schedule", "note", "comm_ratio", "tokens_per_second")
    return {name: getattr(c, name) for name in names} | {"inputs": dict(c.inputs)}
