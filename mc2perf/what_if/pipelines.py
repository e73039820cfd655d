"""Pipelines as formulas: the equations of :mod:`mc2perf.equations`, without conditions.

A formula knows no "if": a switch is 1 where a number is larger than another, and chooses by multiplying.
"""

from __future__ import annotations

from mc2perf.what_if.laying import Pipeline
from mc2perf.what_if.sheet import Sheet


def _piece(sheet: Sheet, name: str, p: Pipeline) -> tuple[str, str, str, str, str]:
    """Cells of pieces, buffers, one transfer, one computation, what runs beside."""
    n = sheet.put(f"{name}_n", "n: pieces", "1", p.pieces)
    buffers = sheet.put(f"{name}_buffers", "B: buffers", "1", p.buffers)
    a = sheet.comm(f"{name}_a", "a: a piece on the links", ((1.0, s) for s in p.comm), p.launched)
    work = sheet.compute(f"{name}_work", "a piece computed", ((1.0, s) for s in p.compute), p.launched)
    if p.round_cost:
        sheet.ask(f"{name}_round", "between two pieces", "s", p.round_cost)
        if p.on_links:
            a = sheet.put(
                f"{name}_sent", "a piece on the links, and its round", "s", f"{a} + {{{name}_round}}"
            )
        else:
            work = sheet.put(
                f"{name}_b", "b: a piece computed, and its round", "s", f"{work} + {{{name}_round}}"
            )
    h = sheet.compute(f"{name}_h", "h: computed beside", ((1.0, s) for s in p.beside), p.launched)
    return n, buffers, a, work, h


def _rest_piece(sheet: Sheet, name: str, p: Pipeline, a: str, b: str) -> tuple[str, str, bool]:
    """Cells of the other piece, or those of any; whether it is the first."""
    if p.rest is None:
        return a, b, False
    x = sheet.comm(f"{name}_x", "x: the other piece on the links", ((1.0, s) for s in p.rest.comm), False)
    work = ((1.0, s) for s in p.rest.compute)
    y = sheet.compute(f"{name}_rest_work", "the other piece computed", work, False)
    if p.round_cost:
        y = sheet.put(
            f"{name}_y", "y: the other piece computed, and its round", "s", f"{y} + {{{name}_round}}"
        )
    return x, y, p.rest.first


def two_stages(sheet: Sheet, name: str, p: Pipeline, f: str, g: str) -> tuple[str, str]:
    """Makespan and exposed communication of two stages; equations of ``overlap`` and ``unequal``."""
    n, buffers, a, b, h = _piece(sheet, name, p)
    x, y, first = _rest_piece(sheet, name, p, a, b)
    comm = sheet.put(f"{name}_comm", "S: all transfers alone", "s", f"({n} - 1)*{a} + {x}")
    computed = sheet.put(f"{name}_computed", "C: all pieces computed alone", "s", f"({n} - 1)*{b} + {y}")
    work = sheet.put(f"{name}_serial", "W: one after the other", "s", f"{comm} + {computed} + {h}")
    if p.on.buffers <= 1:
        return work, comm
    c1, c2, pace = f"{f}*(1 - 1/{g})", f"{g}*(1 - 1/{f})", f"{g}/{f}"
    # transfers and covered computation of every path; what is neither is critical computation
    early, late = (x, b) if first else (a, y)
    ring = f"({n} - {buffers})*{a}" if first else f"{comm} - {buffers}*{a}"
    waits = p.rest is not None and p.buffers < p.pieces
    beside = f"{h} + {y}" if first else f"{h} + {computed} - {b} - {y}"
    paths = [
        ("head", "0", "0", True),
        ("transfer", early, h, True),
        ("sending", comm, f"{h} + {computed} - {late}", True),
        ("turn", f"{a} + {x}" if first else f"{comm} - {x}", beside, p.rest is not None),
        ("ring", ring, f"{computed} - {b} - {y}", p.buffers < p.pieces),
        ("late_ring", f"({n} - 1 - {buffers})*{a}", f"{computed} - 2*{b} - {y}",
         p.rest is not None and p.buffers < p.pieces - 1.0),
        ("wait", f"{comm} - ({buffers} - 1)*{a}", f"{h} + {computed} - {b} - {y}", waits),
        ("long_wait", f"{a} + {x}", f"{h} + ({buffers} - 1)*{b}", waits),
        ("start", a if first else x, f"({buffers} - 1)*{b}", waits),
    ]  # fmt: skip
    longest, alone = "", ""
    for path, sent, covered, possible in paths:
        if not possible:
            continue
        time = sheet.put(
            f"{name}_{path}", f"{path} is critical", "s",
            f"{sent} + {h} + {computed} - ({covered}) + {c1}*({comm} - ({sent})) + {c2}*({covered})",
            "A + B + f (1-1/g) (S - A) + g (1-1/f) (h + C - B) of its transfers A and computation B",
        )  # fmt: skip
        uncovered = f"{sent} - {pace}*({covered})"
        if longest:
            later = sheet.switch(f"{name}_{path}_longer", f"{path} is longer than those above", time, longest)
            alone = f"{later}*({uncovered}) + (1 - {later})*{alone}"
            alone = sheet.put(f"{name}_{path}_alone", "not covered, so far", "s", alone)
            longest = sheet.put(f"{name}_{path}_longest", "longest, so far", "s", f"MAX({longest}, {time})")
        else:
            longest, alone = time, uncovered
    return _at_most(sheet, name, longest, alone, work, comm)


def _at_most(sheet: Sheet, name: str, longest: str, alone: str, work: str, comm: str) -> tuple[str, str]:
    """A schedule that loses is not overlapped."""
    pays = sheet.switch(f"{name}_pays", "overlapping pays", work, longest)
    total = sheet.put(f"{name}_total", "makespan", "s", f"MIN({longest}, {work})")
    exposed = f"{pays}*{alone} + (1 - {pays})*{comm}"
    return total, sheet.put(f"{name}_exposed", "communication that nothing covers", "s", exposed)


def three_stages(sheet: Sheet, name: str, p: Pipeline, f: str, g: str) -> tuple[str, str]:
    """Makespan and exposed communication of dispatch, experts, combine; equations of ``three_stages``."""
    n, _, d, e, h = _piece(sheet, name, p)
    c = sheet.comm(f"{name}_c", "c: a piece combined", ((1.0, s) for s in p.combined), p.launched)
    comm = sheet.put(f"{name}_comm", "n (a + c): all transfers alone", "s", f"{n}*({d} + {c})")
    compute = sheet.put(f"{name}_compute", "n b + h: all kernels alone", "s", f"{n}*{e} + {h}")
    work = sheet.put(f"{name}_serial", "W: one after the other", "s", f"{comm} + {compute}")
    depth = min(p.buffers, p.pieces)
    if p.on.buffers <= 1 or depth < 2:
        return work, comm
    c1, c2, pace = f"{f}*(1 - 1/{g})", f"{g}*(1 - 1/{f})", f"{g}/{f}"
    d1, c3, e2, h2 = (
        sheet.put(f"{name}_{cell}", f"{what}, taken in instead of covered", "s", f"(1 - {cost})*{time}", note)
        for cell, what, cost, time, note in (
            ("taken_d", "a dispatch", c1, d, "(1 - f (1 - 1/g)) d"),
            ("taken_c", "a combine", c1, c, "(1 - f (1 - 1/g)) c"),
            ("taken_e", "a piece computed", c2, e, "(1 - g (1 - 1/f)) e"),
            ("taken_h", "what runs beside", c2, h, "(1 - g (1 - 1/f)) h"),
        )
    )

    def detour(cell: str, what: str, longer: str, uncovered: str) -> tuple[str, str]:
        longer = sheet.put(f"{name}_{cell}", what, "s", longer)
        taken = sheet.switch(f"{name}_{cell}_taken", f"{what}: lengthens", longer, "0")
        return f"MAX(0, {longer})", f"{taken}*({uncovered})"

    fill, fill_alone = detour(
        "fill", "first dispatch, instead of what runs beside", f"{d1} - {h2}", f"{d} - {pace}*{h}"
    )
    t1 = sheet.put(
        f"{name}_t1", "computation is critical", "s", f"{compute} + {c} + {c1}*({comm} - {c}) + {fill}",
        "n e + h + c + f (1 - 1/g) (n (d+c) - c), and the first dispatch",
    )  # fmt: skip
    start, start_alone = detour(
        "start", "first experts, instead of dispatches ahead", f"{e2} - {depth - 1.0!r}*{d1}",
        f"{pace}*{e} - {depth - 1.0!r}*{d}",
    )  # fmt: skip
    early, early_alone = detour(
        "early", "first experts and what runs beside, instead of dispatches ahead",
        f"{e2} + {h2} - {depth!r}*{d1}", f"{pace}*({e} + {h}) - {depth!r}*{d}",
    )  # fmt: skip
    end, end_alone = detour(
        "end", "last experts, instead of combines before", f"{e2} - {depth - 1.0!r}*{c3}",
        f"{pace}*{e} - {depth - 1.0!r}*{c}",
    )  # fmt: skip
    start, start_alone = _longer(sheet, f"{name}_begin", (start, start_alone), (early, early_alone))
    if depth < p.pieces:
        waits, waits_alone = f"{start} + {end}", f"{start_alone} + {end_alone}"
    else:
        waits, waits_alone = _longer(sheet, f"{name}_wait", (start, start_alone), (end, end_alone))
    t2 = sheet.put(
        f"{name}_t2", "transfers are critical", "s", f"{comm} + {c2}*{compute} + {waits}",
        "n (d+c) + g (1 - 1/f) (n e + h), and what waits at both ends",
    )  # fmt: skip
    longest, alone = _longer(
        sheet,
        f"{name}_longest",
        (t1, f"{c} + {fill_alone}"),
        (t2, f"{comm} - {pace}*{compute} + {waits_alone}"),
    )
    return _at_most(sheet, name, longest, alone, work, comm)


def _longer(sheet: Sheet, name: str, one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    """The longer of two paths, and what it leaves uncovered; the first of equals."""
    later = sheet.switch(f"{name}_later", "the second is longer", other[0], one[0])
    alone = sheet.put(f"{name}_alone", "not covered", "s", f"{later}*({other[1]}) + (1 - {later})*({one[1]})")
    return f"MAX({one[0]}, {other[0]})", alone
