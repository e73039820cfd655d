"""Where a calibration is written: a small profile that extends the base, or a file of the user's, in place.

A new file extends the base and holds only what was fitted: the base keeps its comments and what others put
right in it later. A file that is there already is edited in its text, so that whatever was written by hand
survives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mc2perf.calibrating import Calibrated
from mc2perf.problems import InputError
from mc2perf.readers.profiles import STANDARD_INPUT, check_machine, extended, find_profile, is_file_name
from mc2perf.readers.structure import parse_yaml, read_text
from mc2perf.writers.profile_text import edited, skeleton


def base_for(hardware: str, output: str | None, own: Sequence[Path] = ()) -> str:
    """The profile that is calibrated: what stands at the output, if it is or extends the base.

    Raises
    ------
    InputError
        Something else stands there.
    """
    if output in (None, "-") or not Path(str(output)).is_file():
        return hardware
    file, at = find_profile(hardware, own), Path(str(output))
    if os.path.realpath(file) == os.path.realpath(at):
        return str(output)
    tree = parse_yaml(read_text(at), str(output))
    base = tree.get("extends")
    told = base if isinstance(base, str) else ""
    whose = at.parent / told if is_file_name(told) else find_profile(told, own) if told else None
    if not is_file_name(str(output)) or whose is None or os.path.realpath(whose) != os.path.realpath(file):
        other = f"write another name, or --hardware {output}"
        raise InputError([f"output: '{output}' is there and does not extend {hardware}; {other}"])
    return str(output)


def profile_text(found: Calibrated, hardware: str, output: str | None, own: Sequence[Path] = ()) -> str:
    """Text of the calibrated profile, checked by reading it back.

    Parameters
    ----------
    found : Calibrated
        What was fitted.
    hardware : str
        The base, as `base_for` says.
    output : str, optional
        Where it will stand; standard output without.
    own : sequence of Path
        Folders with profiles of your own.

    Raises
    ------
    InputError
        The text of a file does not allow the edits.
    """
    at = Path("calibrated.yaml" if output in (None, "-") else str(output))
    text = read_text(at) if hardware == output else _new(found, hardware, at, output in (None, "-"), own)
    try:
        text = edited(text, found.edits)
    except LookupError as error:
        raise InputError([f"{output}: {error}: is no mapping; write it as 'key: value' lines"]) from None
    tree = extended(at, own, text)
    check_machine(tree, str(at))
    wrong = [".".join(map(str, path)) for path, value in found.edits if _at(tree, path) != value]
    if wrong:
        advice = "could not be edited; write it as 'key: value' lines"
        raise InputError(f"{output}: {path}: {advice}" for path in wrong)
    return text


def _new(found: Calibrated, hardware: str, at: Path, nowhere: bool, own: Sequence[Path]) -> str:
    """A file that extends the base by its name, or by its path as seen from there."""
    base = hardware
    if hardware == STANDARD_INPUT:
        raise InputError(["hardware: a base from standard input cannot be extended; write it to a file"])
    if is_file_name(hardware):
        file = find_profile(hardware, own).resolve()
        base = str(file) if nowhere else os.path.relpath(file, at.resolve().parent)
    name = f"{found.base.name}_calibrated" if nowhere else at.stem
    return skeleton(base, re.sub(r"\W+", "_", name), f"{found.base.title}, calibrated")


def _at(tree: Any, path: Sequence[Any]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree
