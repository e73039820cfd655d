"""Every equation with its numbers, in order: what a spreadsheet owner checks by hand."""

from __future__ import annotations

import re
import textwrap

from mc2perf.answer import Answer, Step

WIDTH = 110
"""Longest line of a formula [characters]."""


def to_explanation(answer: Answer) -> str:
    """Numbered steps in SI units."""
    best = answer.best
    if best is None or not answer.steps:
        return "nothing to explain: no schedule is legal\n"
    how = f"{best.schedule}, {best.pieces} pieces"
    head = f"Equations of one layer of {answer.inputs['target']}, forward, {how} (SI units)"
    lines = [head, ""]
    for number, step in enumerate(answer.steps, start=1):
        lines += [f"{number}. {step.label}  [{step.equation}]", *(_lines(step)), ""]
    lines.append(f"The whole answer: {best.total_time:.9g} s; serial {best.serial_time:.9g} s.")
    return "\n".join(lines) + "\n"


def _lines(step: Step) -> list[str]:
    value = ", ".join(map(_said, step.value)) if isinstance(step.value, tuple) else _said(step.value)
    if not step.formula:
        given = ", ".join(f"{name} = {_said(number)}" for name, number in step.numbers.items())
        return [*_folded(f"with {given}"), *_folded(f"= {value}")]
    return [*_folded(step.formula), *_folded(f"= {substituted(step)}"), *_folded(f"= {value}")]


def _folded(text: str) -> list[str]:
    """Lines that a terminal holds; what goes on is set in further."""
    return textwrap.wrap(
        text, WIDTH, initial_indent="   ", subsequent_indent="      ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _said(number: float | tuple[float, ...]) -> str:
    """A number, or one for each of unequal pieces."""
    return f"[{', '.join(map(_said, number))}]" if isinstance(number, tuple) else f"{number:.9g}"


def substituted(step: Step) -> str:
    """The formula with every name replaced by its number.

    Examples
    --------
    >>> substituted(Step(label="", equation="", formula="a + b / a", numbers={"a": 2.0, "b": 3.0}, value=3.5))
    '2 + 3 / 2'
    """
    names = re.compile(r"\b(" + "|".join(map(re.escape, step.numbers)) + r")\b")
    return names.sub(lambda found: _said(step.numbers[found[0]]), step.formula)
