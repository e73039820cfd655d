"""Which files have been read: an answer must not be written over the question."""

from __future__ import annotations

import os
from pathlib import Path

_read: set[str] = set()
"""Real paths of the files that this run has read."""


def note(path: str | Path) -> None:
    """Remember a file that is read, however it was spelled."""
    _read.add(os.path.realpath(path))


def was_read(path: str | Path) -> bool:
    """Whether a file has been read, under any name.

    Examples
    --------
    >>> note("question.yaml")
    >>> was_read("./question.yaml"), was_read("answer.yaml")
    (True, False)
    >>> forget()
    """
    try:
        return os.path.realpath(path) in _read
    except ValueError:  # a zero byte: no file has such a name
        return False


def forget(path: str | Path | None = None) -> None:
    """Forget one file, which may then be written; or all, for a new run."""
    if path is None:
        _read.clear()
    else:
        _read.discard(os.path.realpath(path))
