"""Cells from top to bottom, and the formulas that every part needs: kernels and transfers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mc2perf.what_if.laying import one
from mc2perf.what_if.lines import Line, Links
from mc2perf.workload.parts import Segment
from mc2perf.writers.tables.what_if import Cell

Counted = tuple[float, Segment]
"""A segment, and how often it runs."""


def literal(number: float) -> str:
    """A number in a formula: workbooks spell exponents with a capital letter.

    Examples
    --------
    >>> literal(2.5e-7)
    '2.5E-07'
    """
    return repr(float(number)).upper()


@dataclass
class Sheet:
    """Cells from top to bottom; formulas that several parts share."""

    links: Links
    cells: list[Cell] = field(default_factory=list)

    def heading(self, name: str, label: str, note: str = "") -> None:
        """A line of text."""
        self.cells.append(Cell(name=name, label=label, unit="", note=note))

    def ask(self, name: str, label: str, unit: str, value: float, note: str = "") -> None:
        """A number to change."""
        self.cells.append(Cell(name=name, label=label, unit=unit, value=float(value), note=note))

    def put(self, name: str, label: str, unit: str, formula: str | float, note: str = "") -> str:
        """A number that follows, or one that the tool computed; the name in braces."""
        text = formula if isinstance(formula, str) else literal(formula)
        self.cells.append(Cell(name=name, label=label, unit=unit, formula=text, note=note))
        return f"{{{name}}}"

    def switch(self, name: str, label: str, larger: str, than: str) -> str:
        """1 where one number is larger than another, else 0."""
        return self.put(name, label, "1", f"MIN(1, MAX(0, ({larger} - {than})*1E30))", "1 for yes, 0 for no")

    def compute(self, name: str, label: str, work: Iterable[Counted], launched: bool = True) -> str:
        """Time of kernels: bound by cubes, bound by memory, launches."""
        work = [(n, s) for n, s in work if s.engine == "compute"]
        memory = sum((n * one(s.cost.memory) for n, s in work), 0.0)
        cubes = sum((n * (one(s.cost.work) - one(s.cost.memory)) for n, s in work), 0.0)
        launch = sum((n * one(s.cost.launch) for n, s in work), 0.0) if launched else 0.0
        parts = [
            f"{self.put(f'{name}_cubes', f'{label}: bound by cubes', 's', cubes)}/{{matmul_speed}}",
            f"{self.put(f'{name}_memory', f'{label}: bound by memory', 's', memory)}/{{memory_speed}}",
        ]
        if launch:
            parts.append(self.put(f"{name}_launch", f"{label}: launches", "s", launch))
        return self.put(name, label, "s", " + ".join(parts), "each over its speed factor")

    def comm(self, name: str, label: str, work: Iterable[Counted], launched: bool = True) -> str:
        """Time of transfers: fixed, by gigabytes over the links, added latency."""
        work = [(n, s) for n, s in work if s.engine == "comm"]
        lines = [(n, self.links.lines[id(s)]) for n, s in work]
        alone = [(n, line) for n, line in lines if line.across is None]
        fixed = sum((n * line.fixed for n, line in alone), 0.0)
        fixed += sum((n * one(s.cost.launch) for n, s in work), 0.0) if launched else 0.0
        parts = [self.put(f"{name}_fixed", f"{label}: whatever the links", "s", fixed)]
        for tier in dict.fromkeys(tier for _, line in alone for tier in line.sent):
            sent = sum((n * line.sent.get(tier, 0.0) for n, line in alone), 0.0)
            volume = self.put(f"{name}_{tier}", f"{label}: over one {tier} link", "GB", sent)
            parts.append(f"{volume}/{{link_{tier}}}")
        parts += [
            f"{literal(n)}*MAX({_line(line)}, {_line(line.across)})" for n, line in lines if line.across
        ]
        messages = sum((n for n, s in work if one(s.cost.work) > 0.0), 0.0)
        if messages:
            parts.append(f"{literal(messages)}*{{added_latency}}")
        return self.put(name, label, "s", " + ".join(parts), "fixed + gigabytes / bandwidth + added latency")


def _line(line: Line) -> str:
    return " + ".join(
        [literal(line.fixed), *(f"{literal(gb)}/{{link_{tier}}}" for tier, gb in line.sent.items())]
    )
