"""Where text goes: standard output, or a file that is replaced only when the whole text is there."""

from __future__ import annotations

import os
import sys
import tempfile
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


def write(text: str, path: str | None) -> None:
    """Write to standard output, or to a temporary file that then takes the name.

    Raises
    ------
    InputError
        The file cannot be written; what was there before is still there.
    """
    if path in (None, "-"):
        sys.stdout.write(text)
        return
    target = Path(str(path))
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(
                handle, "w", encoding="utf-8-sig" if target.suffix == ".csv" else "utf-8", newline=""
            ) as file:
                file.write(text)
            Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError([f"output: '{path}' cannot be written ({error.strerror or error})"]) from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
