"""A file that takes its name only when all of it is there."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mc2perf.problems import InputError
from mc2perf.reading import was_read


@contextmanager
def into_place(path: str, option: str = "output") -> Iterator[BinaryIO]:
    """Open standard output for ``-``, a device or a pipe as it is, anything else under a temporary name.

    ``option`` is what named it, for messages.

    Raises
    ------
    InputError
        It was read for what is written.
    OSError
        It cannot be opened, written or moved; what was there before is still there, as after any
        exception of the body.
    """
    if path == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    given = Path(path)
    if given.exists() and not given.is_file():
        with given.open("wb") as file:  # a pipe or a device cannot be replaced, nor an open pipe resolved
            yield file
    elif was_read(path):
        raise InputError([f"{option}: '{path}' was read for this answer; write another name"])
    else:
        with _replacing(_resolved(path)) as file:
            yield file


def _resolved(path: str) -> Path:
    try:
        return Path(path).resolve()
    except (RuntimeError, ValueError) as error:  # a ring of links, a zero byte
        raise OSError(str(error)) from None


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
    except OSError as error:  # the temporary name says nothing to anybody
        raise OSError(error.errno, error.strerror, str(target)) from None
    file = os.fdopen(handle, "wb")
    try:
        yield file
        file.close()  # the last bytes may find the disk full
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            file.close()
        Path(name).unlink(missing_ok=True)
        raise


_ASKING = threading.Lock()
"""The system tells the mask only while setting it: two threads at once could leave it open."""


def _umask() -> int:
    with _ASKING:
        current = os.umask(0)
        os.umask(current)
    return current
