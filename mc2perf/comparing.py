"""From the words of a comparison to its answer: files by run, predictions, every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from mc2perf.machine import Machine
from mc2perf.measured import Measured, TileScan, TileTimes
from mc2perf.model import Model
from mc2perf.problems import InputError, Problems
from mc2perf.readers.measured import read_measured
from mc2perf.readers.measured.folders import measured_in, once, twin_of
from mc2perf.readers.measured.source import Progress
from mc2perf.readers.question import read_question
from mc2perf.scenario import SCHEDULES, Scenario
from mc2perf.studies.compare import SCHEDULE_OF, predict
from mc2perf.studies.compared import Comparison, Run, Scan, gain_of, run_of, scan_of
from mc2perf.studies.observed import observed

LABELS = (*SCHEDULE_OF, *SCHEDULES)
"""What a run may be called, in front of ``=``."""

UNLABELLED = "run"

TIMES = "the times of a step: step_trace_time.csv, kernel_details.csv or the log of a training run"
"""What a run must have."""

Reading = Callable[[str], AbstractContextManager[Progress | None]]


def _silently(path: str) -> AbstractContextManager[None]:
    return nullcontext()


def ask_compare(
    target: str,
    measurements: Sequence[str],
    given: Mapping[str, object],
    overrides: Mapping[str, str],
    own: Sequence[Path] = (),
    reading: Reading = _silently,
) -> Comparison:
    """Compare measurements with predictions.

    Parameters
    ----------
    target : str
        An operator, a model, a ``config.json`` or a scenario file.
    measurements : sequence of str
        Files or folders of a profiler; ``alltoall=FILE`` and ``mc2=FILE`` tell runs apart.
    given : mapping
        Inputs of a scenario.
    overrides : mapping
        Overrides of the hardware profile.
    own : sequence of path
        Folders with profiles of your own.
    reading : callable, optional
        Opens what tells how far the reading of a file is.

    Raises
    ------
    InputError
        Every problem, one line each.
    """
    problems = Problems()
    given = {name: value for name, value in given.items() if value is not None}
    problems += map(_unknown_label, filter(_has_unknown_label, measurements))
    files, notes = _files(_by_run(m for m in measurements if not _has_unknown_label(m)), problems)
    runs = {label: list(_read(some, reading, problems)) for label, some in files.items()}
    if not any(runs.values()) and not problems:
        problems.append("measurements: are missing; name files such as step_trace_time.csv")
    if given.get("schedule") and set(runs) - {UNLABELLED}:
        problems.append("schedule: the labels of the runs say it; leave it out")
    with problems:
        asked = read_question(target, {**_of_scans(runs, target), **given}, overrides, own)
    problems.refuse()
    return _compared(asked, runs, notes)


def _has_unknown_label(text: str) -> bool:
    """Whether a word such as ``base=a.csv`` names a run by what is no label; a file may be called so."""
    label, equals, _ = text.partition("=")
    return bool(equals) and label.isidentifier() and label not in LABELS and not Path(text).exists()


def _unknown_label(text: str) -> str:
    label = text.partition("=")[0]
    return f"{text}: '{label}' is no label of a run; write alltoall=FILE and mc2=FILE, or a schedule's name"


def _by_run(measurements: Iterable[str]) -> dict[str, list[str]]:
    """Paths by the label in front of them."""
    runs: dict[str, list[str]] = {}
    for text in measurements:
        label, equals, path = text.partition("=")
        if not equals or label not in LABELS:
            label, path = UNLABELLED, text
        runs.setdefault(label, []).append(path)
    return runs


def _files(runs: Mapping[str, Sequence[str]], problems: Problems) -> tuple[dict[str, list[str]], list[str]]:
    """The files of every run, each once, and notes on copies; two runs cannot be the same one."""
    found, notes = dict[str, list[str]](), list[str]()
    for label, paths in runs.items():
        listed = [file for path in paths for file in problems.kept(measured_in, path) or ()]
        others = [file for files in found.values() for file in files]
        found[label], said = once(listed)
        notes += said
        twins = [(file, twin) for file in found[label] if (twin := twin_of(file, others))]
        problems += [f"{label}={file}: is the same as '{twin}'; name another run" for file, twin in twins]
    return found, notes


def _read(files: Sequence[str], reading: Reading, problems: Problems) -> Iterator[Measured]:
    for file in files:
        with problems, reading(file) as progress:
            yield read_measured(file, progress)


def _scans(runs: Mapping[str, Sequence[Measured]], target: str) -> list[TileScan]:
    """Scans of this operator, or of one that the file does not name."""
    tables = [file.data for files in runs.values() for file in files if isinstance(file.data, TileTimes)]
    return [s for table in tables for s in table.scans if s.inputs.get("target", target) == target]


def _of_scans(runs: Mapping[str, Sequence[Measured]], target: str) -> dict[str, object]:
    """Inputs of the first scan, where an operator needs some to be a question at all."""
    found = _scans(runs, target)
    return _inputs(found[0]) if found else {}


def _inputs(scan: TileScan) -> dict[str, object]:
    return {name: value for name, value in scan.inputs.items() if name != "target"}


def _compared(
    asked: tuple[Scenario, Machine, Model | None],
    runs: Mapping[str, Sequence[Measured]],
    notes: list[str],
) -> Comparison:
    scenario, machine, _ = asked
    scans = [_scan(scan, asked) for scan in _scans(runs, scenario.target)]
    compared = [run for label, files in runs.items() if (run := _run(label, files, asked, notes))]
    if not scans and not compared:
        kinds = ", ".join(sorted({file.format for files in runs.values() for file in files}))
        said = f"measurements: {kinds}: nothing to lay beside {scenario.target}"
        raise InputError([f"{said}; name with it {TIMES}"])
    resolved = compared[0].told.answer.resolved if compared else {}
    return Comparison(
        target=scenario.target, hardware=machine.name, resolved=dict(resolved), runs=tuple(compared),
        scans=tuple(scans), gain=gain_of(compared), notes=tuple(notes),
    )  # fmt: skip


def _scan(scan: TileScan, asked: tuple[Scenario, Machine, Model | None]) -> Scan:
    scenario, machine, model = asked
    return scan_of(scan, replace(scenario, **_inputs(scan)), machine, model)  # type: ignore[arg-type]


def _run(
    label: str, files: Sequence[Measured], asked: tuple[Scenario, Machine, Model | None], notes: list[str]
) -> Run | None:
    """A run with times of a step; one of tile scans alone has none."""
    scenario, machine, model = asked
    seen = observed([file for file in files if not isinstance(file.data, TileTimes)])
    if seen.step != seen.step and seen.hccl != seen.hccl and seen.gmm != seen.gmm:
        notes += [note for note in seen.notes if "set aside" in note]
        return None
    schedule = SCHEDULE_OF.get(label, label)
    if label == UNLABELLED:
        schedule = "serial" if scenario.schedule == "all" else scenario.schedule
        if scenario.schedule == "all":
            seen = seen.noted("taken as a serial run (alltoall); --schedule, or mc2=FILE, says otherwise")
    told = predict(scenario, machine, model, schedule)
    return run_of(label, [file.name for file in files], seen, told)
