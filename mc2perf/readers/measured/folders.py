"""Folders of a profiler: the files in them that are measurements."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable
from pathlib import Path

from mc2perf.problems import InputError
from mc2perf.readers.measured import recognise

INSIDE = "ASCEND_PROFILER_OUTPUT"
"""Where the PyTorch profiler of Ascend puts what it has analysed."""

SUFFIXES = (".csv", ".json", ".log", ".txt", ".yaml", ".yml")
NOT_MEASURED = ("trace_view.json", "profiler_info", "profiler_metadata", "operator_details.csv")
"""Starts of names that lie beside measurements, large and of no use here."""


def measured_files(path: str) -> list[str]:
    """The file itself, or the files of a folder that may be measurements, sorted.

    Raises
    ------
    InputError
        A folder without any.

    Examples
    --------
    >>> measured_files("step_trace_time.csv")
    ['step_trace_time.csv']
    """
    try:
        if path == "-" or not Path(path).is_dir():
            return [path]
        inside = Path(path) / INSIDE
        folder = inside if inside.is_dir() else Path(path)
        found = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())
    except OSError as error:
        raise InputError([f"{path}: cannot be read ({error.strerror or error})"]) from None
    found = [file for file in found if not file.name.startswith(NOT_MEASURED)]
    if not found:
        raise InputError(
            [f"{path}: holds no {', '.join(SUFFIXES)} file; name a file or the profiler's folder"]
        )
    return [str(file) for file in found]


def measured_in(path: str) -> list[str]:
    """The file itself, or those files of a folder that are measurements of a known kind.

    Raises
    ------
    InputError
        A folder without any.
    """
    files = measured_files(path)
    if files == [path]:
        return files
    known = [file for file in files if _is_known(file)]
    if not known:
        said = f"none of its {len(files)} files is a measurement; 'mc2perf inspect' says why"
        raise InputError([f"{path}: {said}"])
    return known


def _is_known(file: str) -> bool:
    try:
        recognise(file)
    except InputError:
        return False
    return True


def once(files: Iterable[str]) -> tuple[list[str], list[str]]:
    """Files without those that were named before, or are copies: they are no further measurement.

    Returns
    -------
    tuple of lists
        The files left, and a note on each that is left out.

    Examples
    --------
    >>> once(["a.csv", "b.csv", "a.csv"])
    (['a.csv', 'b.csv'], ['a.csv: is named twice; counted once'])
    """
    left, notes = list[str](), list[str]()
    for file in files:
        if twin := twin_of(file, left):
            said = "is named twice" if twin == file else f"is the same as '{twin}'"
            notes.append(f"{file}: {said}; counted once")
        else:
            left.append(file)
    return left, notes


def twin_of(file: str, others: Iterable[str]) -> str | None:
    """The first of other files that is the same one under any name, or holds the same."""
    return next((other for other in others if file == other or _hold_the_same(file, other)), None)


def _hold_the_same(one: str, other: str) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except (OSError, ValueError):  # what cannot be read is told where it is read
        return False
