"""The command line in this process, for tests; no fixture, so that laws may use it too."""

from __future__ import annotations

import contextlib
import io
import sys

from mc2perf import cli


def run(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, what was printed, what was complained of."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["mc2perf", *words], io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stopped:
        out.flush()
        return int(stopped.code or 0), out.buffer.getvalue().decode(), err.getvalue()
    finally:
        sys.argv, sys.stdin = before
    raise AssertionError("main must exit")
