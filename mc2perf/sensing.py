"""From the words of a sensitivity to its answer: the question, the machine, how far numbers may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mc2perf.problems import Problems, did_you_mean
from mc2perf.quantity import KINDS
from mc2perf.readers.question import read_question
from mc2perf.studies.sensitivity import Sensitivity, sensitivity
from mc2perf.studies.uncertainty import UNCERTAINTY, Uncertainty
from mc2perf.units import COUNT, NUMBER, parse

MOST_SAMPLES = 65536
"""More samples say nothing new."""


def ask_sensitivity(
    target: str,
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    by: str = "10%",
    uncertainty: Sequence[str] = (),
    samples: str = "512",
    own: Sequence[Path] = (),
) -> Sensitivity:
    """What an answer hangs on.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    given : mapping
        Inputs, as text or values.
    overrides : mapping
        Overrides of the hardware profile.
    by : str
        How much less and more of every parameter, such as ``10%``.
    uncertainty : sequence of str
        ``KIND=SHARE``, how far numbers of a kind are off; several may stand in one text.
    samples : str
        Samples of the uncertain parameters.
    own : sequence of path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        Every problem, one line each.

    Examples
    --------
    >>> found = ask_sensitivity("all_gather_matmul", {"m": "8K", "n": "4K", "k": "8K", "ranks": 8}, {})
    >>> found.effects[0].path
    'cube.peak.bf16'
    """
    problems = Problems()
    off = _uncertainty(uncertainty, problems)
    step = _share("by", by, problems)
    count = _count(samples, problems)
    with problems:
        scenario, machine, model = read_question(target, given, overrides, own)
    problems.refuse()
    return sensitivity(scenario, machine, model, step, off, count)


def _share(name: str, text: str, problems: list[str]) -> float:
    """A share above 0 and below 1, as ``10%`` or ``0.1``."""
    try:
        value = parse(text.strip().removesuffix("%"), NUMBER) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        problems.append(f"{name}: '{text}' is not a share between 0 and 1; write for example 10%")
        return 0.1
    return value


def _uncertainty(texts: Sequence[str], problems: list[str]) -> Uncertainty:
    """How far every kind of number is off."""
    kinds: dict[str, float] = {}
    for text in (part for one in texts for part in one.split(",")):
        kind, equals, share = (part.strip() for part in text.partition("="))
        if not equals or kind not in KINDS:
            known = did_you_mean(kind, KINDS)
            problems.append(f"uncertainty: '{text}' is not KIND=SHARE{known}; write for example assumed=50%")
        else:
            kinds[kind] = _share(f"uncertainty: {kind}", share, problems)
    return Uncertainty({**UNCERTAINTY, **kinds}, frozenset(kinds))


def _count(text: str, problems: list[str]) -> int:
    try:
        count = parse(text, COUNT)
    except ValueError as error:
        problems.append(f"samples: {error}")
        return 1
    if not 10.0 <= count <= MOST_SAMPLES:
        problems.append(f"samples: '{text}' is not a number from 10 to {MOST_SAMPLES}")
    return int(count)
