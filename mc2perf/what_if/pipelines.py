"""Pipelines as formulas: the equations of :mod:`mc2perf.equations`, without conditions.

A formula knows no "if": a switch is 1 where a number is larger than another, and chooses by multiplying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

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


def _rest_piece(sheet: Sheet, name: str, p: Pipeline, a: str, b: str) -> tuple[str, str]:
    """Cells of the other piece, or those of any."""
    if p.rest is None:
        return a, b
    x = sheet.comm(f"{name}_x", "x: the other piece on the links", ((1.0, s) for s in p.rest.comm), False)
    work = ((1.0, s) for s in p.rest.compute)
    y = sheet.compute(f"{name}_rest_work", "the other piece computed", work, False)
    if p.round_cost:
        y = sheet.put(
            f"{name}_y", "y: the other piece computed, and its round", "s", f"{y} + {{{name}_round}}"
        )
    return x, y


class _Cells(NamedTuple):
    """Cells of two stages: numbers, one piece on either engine, what runs beside, the other piece, sums."""

    pieces: str
    buffers: str
    transfer: str
    computation: str
    beside: str
    rest_transfer: str
    rest_computation: str
    comm: str
    computed: str


def two_stages(sheet: Sheet, name: str, p: Pipeline, f: str, g: str) -> tuple[str, str]:
    """Makespan and exposed communication of two stages; equations of ``overlap`` and ``unequal``."""
    n, buffers, a, b, h = _piece(sheet, name, p)
    x, y = _rest_piece(sheet, name, p, a, b)
    comm = sheet.put(f"{name}_comm", "S: all transfers alone", "s", f"({n} - 1)*{a} + {x}")
    computed = sheet.put(f"{name}_computed", "C: all pieces computed alone", "s", f"({n} - 1)*{b} + {y}")
    work = sheet.put(f"{name}_serial", "W: one after the other", "s", f"{comm} + {computed} + {h}")
    if p.on.buffers <= 1:
        return work, comm
    cells = _Cells(n, buffers, a, b, h, x, y, comm, computed)
    longest, alone = _longest_path(sheet, name, _two_stage_paths(p, cells), cells, f, g)
    return _at_most(sheet, name, longest, alone, work, comm)


def _two_stage_paths(p: Pipeline, cells: _Cells) -> Iterator[tuple[str, str, str]]:
    """Paths that the pieces can take: name, transfers, covered computation.

    What is neither is critical computation.
    """
    n, buffers, a, b, h, x, y, comm, computed = cells
    two, first = p.rest is not None, p.rest is not None and p.rest.first
    early, late = (x, b) if first else (a, y)
    ring = f"({n} - {buffers})*{a}" if first else f"{comm} - {buffers}*{a}"
    waits = two and p.buffers < p.pieces
    beside = f"{h} + {y}" if first else f"{h} + {computed} - {b} - {y}"
    paths = [
        ("head", "0", "0", True),
        ("transfer", early, h, True),
        ("sending", comm, f"{h} + {computed} - {late}", True),
        ("turn", f"{a} + {x}" if first else f"{comm} - {x}", beside, two),
        ("ring", ring, f"{computed} - {b} - {y}", p.buffers < p.pieces),
        ("late_ring", f"({n} - 1 - {buffers})*{a}", f"{computed} - 2*{b} - {y}",
         two and p.buffers < p.pieces - 1.0),
        ("wait", f"{comm} - ({buffers} - 1)*{a}", f"{h} + {computed} - {b} - {y}", waits),
        ("long_wait", f"{a} + {x}", f"{h} + ({buffers} - 1)*{b}", waits),
        ("start", a if first else x, f"({buffers} - 1)*{b}", waits),
    ]  # fmt: skip
    return ((path, sent, covered) for path, sent, covered, possible in paths if possible)


def _longest_path(
    sheet: Sheet, name: str, paths: Iterable[tuple[str, str, str]], cells: _Cells, f: str, g: str
) -> tuple[str, str]:
    """The longest of the paths, and what it leaves uncovered."""
    comm, computed, h = cells.comm, cells.computed, cells.beside
    c1, c2, pace = f"{f}*(1 - 1/{g})", f"{g}*(1 - 1/{f})", f"{g}/{f}"
    longest, alone = "", ""
    for path, sent, covered in paths:
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
    return longest, alone


def _at_most(sheet: Sheet, name: str, longest: str, alone: str, work: str, comm: str) -> tuple[str, str]:
    """A schedule that loses is not overlapped."""
    pays = sheet.switch(f"{name}_pays", "overlapping pays", work, longest)
    total = sheet.put(f"{name}_total", "makespan", "s", f"MIN({longest}, {work})")
    exposed = f"{pays}*{alone} + (1 - {pays})*{comm}"
    return total, sheet.put(f"{name}_exposed", "communication that nothing covers", "s", exposed)


class _Taken(NamedTuple):
    """What is added to a path that takes in, instead of covering: a dispatch, a combine, and so on."""

    dispatch: str
    combine: str
    experts: str
    beside: str


class _ThreeCells(NamedTuple):
    """Cells of three stages: one piece in each, what runs beside, sums; covering in place of slowing down.

    ``covering_comm`` and ``covering_compute`` are what a covered second lengthens a path by, ``taken`` what a
    dispatch, a computation, a combine and what runs beside add to a path that takes them in instead.
    """

    dispatch: str
    experts: str
    combine: str
    beside: str
    comm: str
    compute: str
    covering_comm: str
    covering_compute: str
    pace: str
    taken: _Taken


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
    c1, c2 = f"{f}*(1 - 1/{g})", f"{g}*(1 - 1/{f})"
    taken = _taken(sheet, name, (d, c, e, h), c1, c2)
    cells = _ThreeCells(d, e, c, h, comm, compute, c1, c2, f"{g}/{f}", taken)
    computing = _computing(sheet, name, cells)
    sending = _sending(sheet, name, cells, depth, depth < p.pieces)
    longest, alone = _longer(sheet, f"{name}_longest", computing, sending)
    return _at_most(sheet, name, longest, alone, work, comm)


def _taken(sheet: Sheet, name: str, times: tuple[str, str, str, str], c1: str, c2: str) -> _Taken:
    """What a path gains by taking in what it would have covered."""
    d, c, e, h = times
    return _Taken(*(
        sheet.put(f"{name}_{cell}", f"{what}, taken in instead of covered", "s", f"(1 - {cost})*{time}", note)
        for cell, what, cost, time, note in (
            ("taken_d", "a dispatch", c1, d, "(1 - f (1 - 1/g)) d"),
            ("taken_c", "a combine", c1, c, "(1 - f (1 - 1/g)) c"),
            ("taken_e", "a piece computed", c2, e, "(1 - g (1 - 1/f)) e"),
            ("taken_h", "what runs beside", c2, h, "(1 - g (1 - 1/f)) h"),
        )
    ))  # fmt: skip


def _detour(sheet: Sheet, name: str, what: str, longer: str, uncovered: str) -> tuple[str, str]:
    """What a detour of a path adds where it lengthens it, to its time and to what nothing covers."""
    longer = sheet.put(name, what, "s", longer)
    taken = sheet.switch(f"{name}_taken", f"{what}: lengthens", longer, "0")
    return f"MAX(0, {longer})", f"{taken}*({uncovered})"


def _computing(sheet: Sheet, name: str, cells: _ThreeCells) -> tuple[str, str]:
    """The path of all computation, and what it leaves uncovered."""
    d, c, h, pace, taken = cells.dispatch, cells.combine, cells.beside, cells.pace, cells.taken
    fill, fill_alone = _detour(
        sheet, f"{name}_fill", "first dispatch, instead of what runs beside",
        f"{taken.dispatch} - {taken.beside}", f"{d} - {pace}*{h}",
    )  # fmt: skip
    time = sheet.put(
        f"{name}_t1", "computation is critical", "s",
        f"{cells.compute} + {c} + {cells.covering_comm}*({cells.comm} - {c}) + {fill}",
        "n e + h + c + f (1 - 1/g) (n (d+c) - c), and the first dispatch",
    )  # fmt: skip
    return time, f"{c} + {fill_alone}"


def _sending(sheet: Sheet, name: str, cells: _ThreeCells, depth: float, both: bool) -> tuple[str, str]:
    """The path of all transfers, and what it leaves uncovered; it may wait at ``both`` ends."""
    d, e, c, h, pace, taken = *cells[:4], cells.pace, cells.taken
    start = _detour(
        sheet, f"{name}_start", "first experts, instead of dispatches ahead",
        f"{taken.experts} - {depth - 1.0!r}*{taken.dispatch}", f"{pace}*{e} - {depth - 1.0!r}*{d}",
    )  # fmt: skip
    early = _detour(
        sheet, f"{name}_early", "first experts and what runs beside, instead of dispatches ahead",
        f"{taken.experts} + {taken.beside} - {depth!r}*{taken.dispatch}",
        f"{pace}*({e} + {h}) - {depth!r}*{d}",
    )  # fmt: skip
    end = _detour(
        sheet, f"{name}_end", "last experts, instead of combines before",
        f"{taken.experts} - {depth - 1.0!r}*{taken.combine}", f"{pace}*{e} - {depth - 1.0!r}*{c}",
    )  # fmt: skip
    begin = _longer(sheet, f"{name}_begin", start, early)
    if both:
        waits, waits_alone = f"{begin[0]} + {end[0]}", f"{begin[1]} + {end[1]}"
    else:
        waits, waits_alone = _longer(sheet, f"{name}_wait", begin, end)
    time = sheet.put(
        f"{name}_t2", "transfers are critical", "s",
        f"{cells.comm} + {cells.covering_compute}*{cells.compute} + {waits}",
        "n (d+c) + g (1 - 1/f) (n e + h), and what waits at both ends",
    )  # fmt: skip
    return time, f"{cells.comm} - {pace}*{cells.compute} + {waits_alone}"


def _longer(sheet: Sheet, name: str, one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    """The longer of two paths, and what it leaves uncovered; the first of equals."""
    later = sheet.switch(f"{name}_later", "the second is longer", other[0], one[0])
    alone = sheet.put(f"{name}_alone", "not covered", "s", f"{later}*({other[1]}) + (1 - {later})*({one[1]})")
    return f"MAX({one[0]}, {other[0]})", alone
