"""Folders of a profiler: the files in them that are measurements."""

from __future__ import annotations

from pathlib import Path

from mc2perf.problems import InputError

INSIDE = "ASCEND_PROFILER_OUTPUT"
"""Where the PyTorch profiler of Ascend puts what it has analysed."""

SUFFIXES = (".csv", ".json", ".log", ".txt")
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
