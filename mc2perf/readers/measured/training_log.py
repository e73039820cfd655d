"""Training logs of Megatron, MindSpeed-LLM and MindSpeed-MM, and time baselines of their tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mc2perf.measured import Iteration, Measured, TrainingLog, TrainingRun
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.units import COMPUTE, COUNT, TIME, WIDTH

KEY = "elapsed time per iteration"

_ITERATION = re.compile(r"\biteration:?\s+(\d{1,12})\b")
_FIELD = re.compile(r"([A-Za-z][\w /()-]*?)\s*:\s*([^\s|]+)")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = re.compile(rf"{KEY}\s*\((ms|s)\)")
_COMPLETE = re.compile(rf"{KEY}\s*\((?:ms|s)\)\s*:\s*\S+\s*(?:\||\s|$)")


def read(source: Source) -> Measured:
    """Read the iterations of a log.

    Parameters
    ----------
    source : Source
        Lines ``iteration N/ M | ... | elapsed time per iteration (ms): T | ...`` among any others; keys are
        found by name, in any order.

    Returns
    -------
    Measured
        `TrainingLog`. A number that does not grow starts another run; the same iteration printed by
        several ranks counts once, at its slowest.

    Raises
    ------
    InputError
        No iteration that can be used.
    """
    tally = Tally(source)
    found: list[tuple[Iteration, float | None]] = []
    for index, line in enumerate(source.lines(), 1):
        if KEY not in line:
            continue
        try:
            found.append(_iteration(_ESCAPES.sub("", line)))
        except ValueError as error:
            tally.aside(re.sub(r"^'.*' ", "a value ", str(error)), f"line {index}")
    return _close(_runs(found, tally), tally)


def _iteration(line: str) -> tuple[Iteration, float | None]:
    """One line, and the tokens consumed so far."""
    number, unit = _ITERATION.search(line), _TIME.search(line)
    fields = {key.strip().lower(): value for key, value in _FIELD.findall(line)}
    if not number or not unit or not _COMPLETE.search(line):
        raise ValueError("a line without iteration or without time")
    time = scaled(fields.get(unit[0].lower()), TIME, {"ms": 1e-3, "s": 1.0}[unit[1]])
    if not time:
        raise ValueError("the time is missing or zero")
    batch = scaled(fields.get("global batch size"), COUNT)
    rate = scaled(fields.get("throughput per gpu (tflop/s/gpu)"), COMPUTE, 1e12)
    made = Iteration(
        number=int(number[1]), time=time, global_batch_size=int(batch) if batch else None, compute_rate=rate
    )
    return made, scaled(fields.get("consumed tokens"), WIDTH)


def _runs(found: Iterable[tuple[Iteration, float | None]], tally: Tally) -> list[list[Iteration]]:
    """Split where numbers do not grow; tokens of an iteration are the difference of those consumed."""
    runs: list[list[Iteration]] = []
    before: float | None = None
    for made, consumed in found:
        last = runs[-1][-1] if runs else None
        if last and made.number == last.number:
            tally.aside(
                "an iteration printed again (by another rank); the slowest counts", f"iteration {made.number}"
            )
            runs[-1][-1] = replace(last, time=max(last.time, made.time))
            continue
        if last is None or made.number < last.number:
            runs.append([])
            before = 0.0 if made.number == 1 else None
        grows = consumed is not None and before is not None and consumed > before
        follows = not runs[-1] or made.number == runs[-1][-1].number + 1
        tokens = consumed - before if grows and follows and consumed and before is not None else None
        runs[-1].append(replace(made, tokens=tokens))
        before = consumed
    return runs


def _close(runs: list[list[Iteration]], tally: Tally) -> Measured:
    tally.read = sum(map(len, runs))
    tally.insist("iterations")
    data = TrainingLog(tuple(TrainingRun(tuple(run)) for run in runs))
    warm = tally.read - sum(len(run.steady) for run in data.runs)
    if warm:
        tally.note(f"{warm} iterations of warm-up or far above the median stay out of the steady time")
    if len(runs) > 1:
        tally.note(f"{len(runs)} runs, told apart by iteration numbers that start again")
    return tally.close("training_log", "iterations", data)


def read_baseline(source: Source) -> Measured:
    """Read a time baseline: JSON with a list ``time info`` in milliseconds, one per iteration.

    Raises
    ------
    InputError
        No JSON, or no time that can be used.
    """
    tree, tally = source.tree(), Tally(source)
    times: Any = tree.get("time info")
    found: list[tuple[Iteration, float | None]] = []
    for index, value in enumerate(times if isinstance(times, list) else []):
        try:
            time = scaled(value, TIME, 1e-3)
            if not time:
                raise ValueError("the time is missing or zero")
            found.append((Iteration(number=index + 1, time=time), None))
        except ValueError as error:
            tally.aside(re.sub(r"^'.*' ", "a value ", str(error)), f"time info.{index}")
    return replace(_close(_runs(found, tally), tally), format="training_baseline.json")


def _is_log(source: Source) -> bool:
    """Lines of iterations may come after megabytes of start-up messages."""
    if source.head.lstrip().startswith(("{", "[{")):
        return False
    return any(KEY in line and _TIME.search(line) for line in source.lines())


FORMATS = (
    Format(
        "training_baseline.json",
        "JSON with a list 'time info'",
        lambda source: source.head.lstrip().startswith("{") and '"time info"' in source.head,
        read_baseline,
    ),
    Format("training_log", f"lines with '{KEY} (ms)'", _is_log, read),
)
