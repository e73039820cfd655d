"""Where measured files come from: opened as a stream, checked as text, counted while they are read."""

from __future__ import annotations

import codecs
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mc2perf import reading
from mc2perf.measured import Measured, Report, SetAside, Takes
from mc2perf.problems import InputError
from mc2perf.readers.structure import decode
from mc2perf.units import Dim

HEAD = 1 << 16
"""Bytes that are looked at to recognise a file."""
LONGEST_LINE = 1 << 20
"""Longest line of a text file [characters]; a row of a profiler has a few thousand."""
LARGEST_TREE = 1 << 29
"""Largest JSON or YAML file, which is held in memory as a whole [B]."""
EVERY = 1 << 20
"""Progress is told once per so many bytes."""

Progress = Callable[[int, int], None]
"""Called with bytes read and bytes in all."""

MISSING = frozenset({"", "n/a", "na", "-", "nan", "none", "null"})
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Source:
    """A text file that can be opened again and again; ``head`` is its beginning."""

    name: str
    size: int
    head: str
    open: Callable[[], BinaryIO]
    progress: Progress | None = None

    def lines(self) -> Iterator[str]:
        """Lines with their ends; one line too long or not UTF-8 is an `InputError`."""
        done, told, number = 0, 0, 0
        with self.open() as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
            while True:
                number += 1
                line = self._line(text, number)
                if not line:
                    break
                done += len(line)
                if self.progress and done - told >= EVERY:
                    told = done
                    self.progress(min(done, self.size), self.size)
                yield line
        if self.progress:
            self.progress(self.size, self.size)

    def _line(self, text: io.TextIOWrapper, number: int) -> str:
        try:
            line = text.readline(LONGEST_LINE)
        except UnicodeDecodeError:
            raise InputError([f"{self.name}: line {number} is not UTF-8; save the file as UTF-8"]) from None
        except OSError as error:
            raise InputError([f"{self.name}: cannot be read ({error.strerror or error})"]) from None
        if len(line) == LONGEST_LINE:
            raise InputError([f"{self.name}: line {number} is longer than {LONGEST_LINE} characters"])
        return line

    def text(self) -> str:
        """The whole file, for trees and scripts."""
        if self.size > LARGEST_TREE:
            raise InputError([f"{self.name}: larger than {LARGEST_TREE >> 20} MiB; not a file of this kind"])
        with self.open() as raw:
            return decode(raw.read(), self.name)

    def tree(self) -> Any:
        """The file as JSON, without keys that stand twice."""
        try:
            return json.loads(self.text(), object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise InputError([f"{self.name}: {where}: {error.msg}; is the file cut off?"]) from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            said = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError([f"{self.name}: is not JSON of this kind ({said})"]) from None

    @property
    def cut(self) -> bool:
        """Whether the last line has no end."""
        with self.open() as raw:
            if not self.size:
                return False
            raw.seek(-1, io.SEEK_END)
            return raw.read(1) not in (b"\n", b"\r")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"key '{twice}' stands twice; keep one")
    return found


def open_source(path: Path | str, progress: Progress | None = None) -> Source:
    """Open a file, or standard input for ``-``; say in one line why it cannot be text."""
    name = str(path)
    if name == "-":
        held = sys.stdin.buffer.read(LARGEST_TREE + 1)
        return _source("standard input", len(held), lambda: io.BytesIO(held), progress)
    try:
        if Path(path).is_dir():
            raise InputError([f"{name}: is a folder; name a file in it"])
        if not Path(path).is_file():
            raise InputError([f"{name}: is not there, or no file"])
        reading.note(path)
        return _source(name, Path(path).stat().st_size, lambda: Path(path).open("rb"), progress)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        said = getattr(error, "strerror", None) or error
        raise InputError([f"{name}: cannot be read ({said})"]) from None


def _source(name: str, size: int, opened: Callable[[], BinaryIO], progress: Progress | None) -> Source:
    with opened() as raw:
        start = raw.read(HEAD)
    if b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError([f"{name}: is not text; export it as CSV, JSON or a log"])
    whole = codecs.getincrementaldecoder("utf-8")("ignore").decode(start)
    if len(start) == HEAD and start.startswith(whole.encode()):  # the last character may be cut in two
        start = whole.encode()
    return Source(name, size, decode(start, name), opened, progress)


def number(value: object, dim: Dim) -> float | None:
    r"""A cell as a number in the unit of the file; ``None`` where it is missing.

    Raises
    ------
    ValueError
        Text that is no number, and numbers that ``dim`` does not allow.

    Examples
    --------
    >>> from mc2perf.units import TIME
    >>> number("1736405443881410.320\t", TIME), number("N/A", TIME)
    (1736405443881410.2, None)
    """
    text = (value if type(value) is str else str(value)).strip()
    if not _NUMBER.fullmatch(text) or isinstance(value, bool):
        if value is None or text.lower() in MISSING:
            return None
        raise ValueError(f"'{text[:40]}' is not a number")
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"'{text[:40]}' is not a finite number")
    if dim.whole and found != int(found):
        raise ValueError(f"'{text[:40]}' is not {dim.what}")
    if found < 0 and not dim.signed:
        raise ValueError(f"'{text[:40]}' is negative")
    return found


def scaled(value: object, dim: Dim, unit: float = 1.0) -> float | None:
    """As `number`, times a unit; what lies outside the range of the dimension is a ``ValueError``.

    Examples
    --------
    >>> from mc2perf.units import TIME
    >>> scaled("1500", TIME, 1e-6)
    0.0015
    """
    found = number(value, dim)
    if found is None:
        return None
    found *= unit
    if found > dim.at_most or found < dim.at_least or (found == 0 and not dim.may_be_zero):
        raise ValueError(f"'{str(value).strip()[:40]}' is out of range for {dim.what}")
    return found


class Tally:
    """Counts what a reader takes and sets aside, for one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.read = 0
        self._aside: dict[str, list[Any]] = {}
        self._notes: dict[str, None] = {}

    def aside(self, reason: str, where: object) -> None:
        """Set one row aside; many reasons with quoted text share one line."""
        key = reason if reason in self._aside or len(self._aside) < 50 else "other reasons"
        self._aside.setdefault(key, [0, str(where)])[0] += 1

    def note(self, text: str) -> None:
        """Say something once; a damaged file does not fill the screen."""
        if len(self._notes) < 20:
            self._notes[text] = None

    def close(self, form: str, what: str, data: Takes) -> Measured:
        """Make the answer; a file of which nothing could be read is an `InputError`."""
        self.insist(what)
        if self.source.cut and not form.endswith((".json", "launch script")):
            self.note("the last line has no end; if the file was cut off, its last number may be wrong")
        aside = tuple(SetAside(reason, count, first) for reason, (count, first) in self._aside.items())
        return Measured(self.source.name, form, data, Report(self.read, what, aside, tuple(self._notes)))

    def insist(self, what: str) -> None:
        """Refuse a file of which nothing could be read, before its numbers are used."""
        if not self.read:
            reasons = [f"{self.source.name}: {where}: {why}" for why, (_, where) in self._aside.items()]
            raise InputError([f"{self.source.name}: holds no {what} that can be used", *reasons])


@dataclass(frozen=True)
class Format:
    """One kind of file: its name, what recognises it, whether a source is one, and its reader."""

    name: str
    sign: str
    fits: Callable[[Source], bool]
    read: Callable[[Source], Measured]
