"""How far long work is, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

LARGE = 64 << 20
"""From this size on a terminal is told how far reading is [B]."""


@contextmanager
def reading(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error while a large file is read; ``None`` where nobody looks on.

    Yields
    ------
    callable or None
        What a reader tells bytes read and bytes in all.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as opened:
        bars: list[Any] = []

        def told(done: int, total: int) -> None:
            if total >= LARGE and not bars:
                bar = typer.progressbar(length=total, label=name, file=sys.stderr, show_eta=True)
                bars.append(opened.enter_context(bar))
            for bar in bars:
                bar.update(max(done - bar.pos, 0))  # what recognises a file may have read it before

        yield told


@contextmanager
def steps(label: str, count: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error over so many steps, told of each by its name; silent where nobody looks on."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    with typer.progressbar(length=count, label=label, file=sys.stderr) as bar:
        yield lambda step: bar.update(1)
