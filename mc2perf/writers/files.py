"""Where text goes: standard output, or a file that is replaced only when the whole text is there."""

from __future__ import annotations

import sys
from pathlib import Path

from mc2perf.problems import InputError

SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".txt": "table"}
"""File suffix -> format."""


def format_of(path: str | None, asked: str | None) -> str:
    """The format asked for, else the one the suffix says, else a table."""
    if asked or path in (None, "-"):
        return asked or "table"
    suffix = Path(str(path)).suffix
    if suffix not in SUFFIXES:
        raise InputError(
            [f"output: '{path}' ends in no known suffix; write one of {', '.join(SUFFIXES)} or --format"]
        )
    return SUFFIXES[suffix]


def write(text: str, path: str | None, option: str = "output") -> None:
    """Write to standard output, or to a file that takes its name when all of the text is there.

    ``option`` is what named the file, for messages.

    Raises
    ------
    InputError
        The file cannot be written; what was there before is still there.
    """
    if path in (None, "-"):
        sys.stdout.write(text)
        return
    write_bytes(text.encode(_encoding(str(path)), "backslashreplace"), str(path), option)


def write_bytes(content: bytes, path: str, option: str = "output") -> None:
    """Write what is no text to a file, in the same way.

    Raises
    ------
    InputError
        The file cannot be written; what was there before is still there.
    """
    from mc2perf.writers.into_place import into_place  # standard output does without

    try:
        with into_place(path, option) as file:
            file.write(content)
    except OSError as error:
        raise InputError([f"{option}: '{path}' cannot be written ({error.strerror or error})"]) from None


def _encoding(path: str) -> str:
    """Spreadsheets take a CSV file for UTF-8 only with a byte-order mark."""
    return "utf-8-sig" if Path(path).suffix == ".csv" else "utf-8"
