"""Standard streams that whoever started the tool has closed."""

from __future__ import annotations

import os
import sys

MODES = {"stdin": (os.O_RDONLY, "r"), "stdout": (os.O_RDONLY, "w"), "stderr": (os.O_WRONLY, "w")}
"""Stream -> how its stand-in is opened, and used: nothing to read; refused once written; unheard."""


def stand_in() -> None:
    """Open closed streams on nothing, so that no output file gets their numbers and no code finds ``None``.

    Standard output is what was asked for: its stand-in cannot be written, so that losing it is an error,
    and none where the answer goes into a file.
    """
    for name, (flags, mode) in MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))
