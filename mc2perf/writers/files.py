"""Where text goes: standard output, or a file that is replaced only when the whole text is there."""

from __future__ import annotations

import os
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


def write(text: str, path: str | None) -> None:
    """Write to standard output, or to a temporary file that then takes the name.

    Raises
    ------
    InputError
        The file cannot be written; what was there before is still there.
    """
    import tempfile  # standard output does without

    if path in (None, "-"):
        sys.stdout.write(text)
        return
    try:
        target = Path(str(path)).resolve()
        if target.exists() and not target.is_file():
            _into(target, text)  # a pipe or a device cannot be replaced
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(
                handle, "w", encoding=_encoding(path), errors="backslashreplace", newline=""
            ) as file:
                file.write(text)
            Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError([f"output: '{path}' cannot be written ({reason})"]) from None


def _into(target: Path, text: str) -> None:
    with target.open("w", encoding=_encoding(target), errors="backslashreplace", newline="") as file:
        file.write(text)


def _encoding(path: object) -> str:
    """Spreadsheets take a CSV file for UTF-8 only with a byte-order mark."""
    return "utf-8-sig" if Path(str(path)).suffix == ".csv" else "utf-8"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
