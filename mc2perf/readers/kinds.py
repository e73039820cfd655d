"""What a file of ours is that was given for something else, and where it belongs."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from mc2perf.problems import InputError


@dataclass(frozen=True)
class Kind:
    """A kind of file: keys of which one gives it away, what it is, and what to write."""

    signs: frozenset[str]
    what: str
    use: str


PROFILE = Kind(
    frozenset({"profile_version", "extends"}), "a hardware profile", "write --hardware {file}, and a target"
)
MODEL = Kind(
    frozenset({"model_version", "model_type", "architectures"}),
    "a model",
    "write it as the target, 'mc2perf estimate {file}'",
)
CLAIMS = Kind(frozenset({"claims_version"}), "a set of claims", "write 'mc2perf audit {file}'")
SCENARIO = Kind(frozenset({"scenario_version"}), "a scenario", "write 'mc2perf estimate {file}'")
ANSWER = Kind(
    frozenset({"schema_version"}),
    "an answer",
    "write 'mc2perf diff {file} OTHER' to tell answers apart, or the question itself (--save-scenario)",
)
TABLE = Kind(
    frozenset({"tool_version"}), "a table of answers", "write the question itself, a model or an operator"
)
KINDS = (PROFILE, MODEL, CLAIMS, SCENARIO, ANSWER, TABLE)

_KEY = re.compile(r'^(?: {2})?"?([a-z_]+)"?:', re.MULTILINE)


def refuse_other(keys: Collection[object], file: str, *wanted: Kind) -> None:
    """Refuse a file whose keys are those of another kind, in one line.

    Parameters
    ----------
    keys : collection
        Top-level keys of the file, or names of its columns.
    file : str
        Its name.
    *wanted : Kind
        What it may be.

    Raises
    ------
    InputError
        It is of another kind.

    Examples
    --------
    >>> refuse_other(["claims_version", "claims"], "mine.yaml", MODEL)
    Traceback (most recent call last):
    mc2perf.problems.InputError: mine.yaml: is a set of claims, not a model; write 'mc2perf audit mine.yaml'
    """
    if any(kind.signs & set(keys) for kind in wanted):
        return
    for kind in KINDS:
        if kind not in wanted and kind.signs & set(keys):
            expected = f", not {' or '.join(one.what for one in wanted)}" if wanted else ""
            raise InputError([f"{file}: is {kind.what}{expected}; {kind.use.format(file=file)}"])


def keys_of(text: str) -> list[str]:
    r"""Top-level keys of YAML or JSON text as this tool writes it, and columns of a table.

    Examples
    --------
    >>> keys_of('{\n  "schema_version": 1,\n  "tool": {\n    "name": "mc2perf"')
    ['schema_version', 'tool']
    """
    header = text.partition("\n")[0].lstrip("\ufeff")
    return [*_KEY.findall(text), *(header.split(",") if "," in header else ())]
