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
        work = sheet.put(f"{name}_b", "b: a piece computed, and its round", "s", f"{work} + {{{name}_round}}")
    h = sheet.compute(f"{name}_h", "h: computed beside", ((1.0, s) for s in p.beside), p.launched)
    return n, buffers, a, work, h


def two_stages(sheet: Sheet, name: str, p: Pipeline, f: str, g: str) -> tuple[str, str]:
    """Makespan and exposed communication of two stages; equations of ``overlap.two_stage_paths``."""
    n, buffers, a, b, h = _piece(sheet, name, p)
    comm = sheet.put(f"{name}_comm", "n a: all transfers alone", "s", f"{n}*{a}")
    work = sheet.put(f"{name}_serial", "W: one after the other", "s", f"{comm} + {n}*{b} + {h}")
    if p.on.buffers <= 1:
        return work, comm
    c1, c2, pace = f"{f}*(1 - 1/{g})", f"{g}*(1 - 1/{f})", f"{g}/{f}"
    paths = [
        ("head", f"{h} + {n}*{b} + {c1}*{comm}", "0", "h + n b + f (1-1/g) n a"),
        ("transfer", f"{a} + {n}*{b} + {c2}*{h} + {c1}*({comm} - {a})", f"{a} - {pace}*{h}",
         "a + n b + g (1-1/f) h + f (1-1/g) (n-1) a"),
        ("sending", f"{comm} + {b} + {c2}*({h} + {n}*{b} - {b})", f"{comm} - {pace}*({h} + {n}*{b} - {b})",
         "n a + b + g (1-1/f) (h + (n-1) b)"),
    ]  # fmt: skip
    if p.buffers < p.pieces:
        late = f"({n} - {buffers})*{a}"
        paths.append(
            ("ring", f"{h} + 2*{b} + {late} + {c1}*{buffers}*{a} + {c2}*({n} - 2)*{b}",
             f"{late} - {pace}*({n} - 2)*{b}", "h + 2 b + (n-B) a + f (1-1/g) B a + g (1-1/f) (n-2) b")
        )  # fmt: skip
    longest, alone = "", ""
    for path, time, uncovered, note in paths:
        time = sheet.put(f"{name}_{path}", f"{path} is critical", "s", time, note)
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
    """Makespan and exposed communication of dispatch, experts, combine; ``pipeline.three_stage_bounds``."""
    n, _, d, e, h = _piece(sheet, name, p)
    c = sheet.comm(f"{name}_c", "c: a piece combined", ((1.0, s) for s in p.combined), p.launched)
    comm = sheet.put(f"{name}_comm", "n (a + c): all transfers alone", "s", f"{n}*({d} + {c})")
    compute = sheet.put(f"{name}_compute", "n b + h: all kernels alone", "s", f"{n}*{e} + {h}")
    work = sheet.put(f"{name}_serial", "W: one after the other", "s", f"{comm} + {compute}")
    depth = min(p.buffers, p.pieces)
    if p.on.buffers <= 1 or depth < 2:
        return work, comm
    start, end = (f"MAX(0, {e} - {depth - 1.0!r}*{stage})" for stage in (d, c))
    wait = f"{start} + {end}" if depth < p.pieces else f"MAX({start}, {end})"
    late = sheet.put(f"{name}_late", "beside, not covered by a dispatch", "s", f"MAX({h} - {d}, 0)")
    t1 = sheet.put(f"{name}_t1", "T1: computation never waits", "s", f"{d} + {n}*{e} + {c} + {late}")
    t2 = sheet.put(f"{name}_t2", "T2: transfers wait as little as they can", "s", f"{comm} + {wait} + {late}")
    first = sheet.put(
        f"{name}_first", "computation is critical", "s",
        f"{t1} + ({work} - {t1})*{f}*(1 - 1/{g})", "T1 + (W - T1) f (1 - 1/g)",
    )  # fmt: skip
    second = sheet.put(
        f"{name}_second", "transfers are critical", "s",
        f"{t2} + ({work} - {t2})*{g}*(1 - 1/{f})", "T2 + (W - T2) g (1 - 1/f)",
    )  # fmt: skip
    later = sheet.switch(f"{name}_longer", "transfers are longer", second, first)
    covered = f"{t2} - {compute} + ({work} - {t2})*(1 - {g}/{f})"
    alone = sheet.put(
        f"{name}_alone", "not covered", "s",
        f"MAX(0, {later}*({covered}) + (1 - {later})*({t1} - {compute}))",
    )  # fmt: skip
    return _at_most(sheet, name, f"MAX({first}, {second})", alone, work, comm)
