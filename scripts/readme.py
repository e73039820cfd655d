"""Fill the README's worked examples with what the tool prints: ``python scripts/readme.py [--check]``.

The error bands that they show are made anew first, as ``python scripts/bands.py`` does alone.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

README = Path(__file__).parent.parent / "README.md"
EXAMPLE = re.compile(
    r"<!-- example: (mc2perf [^\n]*?)( \(lines (\d+)-(\d+)\))? -->\n(?:\n```console\n.*?\n```\n)?", re.DOTALL
)
"""A command, and which lines of its output are shown if not all of them."""


def output(command: str) -> str:
    """What a command prints."""
    from mc2perf import cli

    printed = io.StringIO()
    argv = mock.patch.object(sys, "argv", shlex.split(command))
    with argv, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main()
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def _lines(text: str, first: int, last: int) -> str:
    """Some lines, with dots where others are left out."""
    lines = text.splitlines()
    shown = lines[first - 1 : last]
    return "\n".join([*["..."] * (first > 1), *shown, *["..."] * (last < len(lines))])


def filled(text: str) -> str:
    """The README with every example's output as it is now."""

    def example(found: re.Match[str]) -> str:
        command, some, first, last = found.groups()
        shown = _lines(output(command), int(first), int(last)) if some else output(command)
        return f"<!-- example: {command}{some or ''} -->\n\n```console\n$ {command}\n{shown}\n```\n"

    return EXAMPLE.sub(example, text)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        import bands

        bands.main()  # what the examples expect of themselves
    old = README.read_text(encoding="utf-8")
    new = filled(old)
    if "--check" in sys.argv and new != old:
        sys.exit("README.md: examples are out of date; run python scripts/readme.py")
    README.write_text(new, encoding="utf-8")
