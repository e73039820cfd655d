"""Hardware profiles: find them, merge ``extends`` and ``--set``, check them, build a Machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mc2perf.equations.collectives import PASSES, RANK_RULES, REFERENCE_RANKS
from mc2perf.machine import Machine
from mc2perf.machine.links import Curve, Engine
from mc2perf.readers.kinds import PROFILE, keys_of, refuse_other
from mc2perf.readers.overrides import override
from mc2perf.readers.structure import (
    LARGEST_FILE,
    InputError,
    Place,
    decode,
    did_you_mean,
    parse_yaml,
    read_text,
    structure,
)
from mc2perf.scenario import Scenario

SEARCH_PATH = "MC2PERF_PROFILES"
"""Environment variable: folders with profiles of your own, searched before the shipped ones."""

STANDARD_INPUT = "-"
"""A profile of this name is read from standard input."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")


def shipped_folder() -> Path:
    """The shipped profiles: inside an installed package, else beside it in the source tree."""
    packaged = Path(__file__).parent.parent / "hardware_profiles"
    return packaged if packaged.is_dir() else packaged.parent.parent / "hardware_profiles"


def search_path(own: Sequence[Path] = ()) -> list[Path]:
    """Folders in the order they are searched: given ones, ``MC2PERF_PROFILES``, the shipped ones."""
    listed = [Path(part) for part in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if part]
    missing = [("--profiles", folder) for folder in own if not _is_folder(folder)]
    missing += [(SEARCH_PATH, folder) for folder in listed if not _is_folder(folder)]
    if missing:
        raise InputError(f"{where}: '{folder}' is no folder" for where, folder in missing)
    return [*own, *listed, shipped_folder()]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def profile_names(own: Sequence[Path] = ()) -> list[str]:
    """Every profile that can be named, sorted."""
    stems = {file.stem for folder in search_path(own) for file in folder.glob("*.yaml")}
    return sorted(name for name in stems if _NAME.fullmatch(name))


def is_file_name(name: str) -> bool:
    """Whether a profile is named by its file: a YAML file, or ``-`` for standard input."""
    return name == STANDARD_INPUT or (name.endswith((".yaml", ".yml")) and "\0" not in name)


def find_profile(name: str, own: Sequence[Path] = ()) -> Path:
    """The file of a profile; the first folder that has it wins. A file may be named itself."""
    if is_file_name(name):
        return Path(name)
    if not _NAME.fullmatch(name):
        raise InputError(
            [
                f"hardware: '{name}' is not a profile name (small letters, digits, _); "
                f"write the .yaml file of your own, or put it into a folder of {SEARCH_PATH} or --profiles"
            ]
        )
    for folder in search_path(own):
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = did_you_mean(name, profile_names(own), "mc2perf profiles list")
    raise InputError([f"hardware: profile '{name}' is unknown{known}"])


def load_machine(name: str, own: Sequence[Path] = (), overrides: Mapping[str, str] | None = None) -> Machine:
    """Load a profile by name, apply typed overrides, check everything, build the machine.

    Parameters
    ----------
    name : str
        Such as ``atlas_800i_a2``, see ``mc2perf profiles list``; a YAML file of your own; ``-`` for standard
        input.
    own : sequence of Path
        Folders searched before ``MC2PERF_PROFILES`` and the shipped profiles.
    overrides : mapping
        Dotted path to text, such as ``{"tiers.node.link_rate": "25 GB/s"}``; their kind is ``assumed``. A
        path may have ``*`` for any one name, and a number may be ``x0.5``: half of what it was.

    Raises
    ------
    InputError
        Every problem of the profile and the overrides, one line each.

    Examples
    --------
    >>> load_machine("atlas_800i_a2").cube.cores
    20.0
    """
    file = find_profile(name, own)
    tree = resolved_tree(file, own, overrides or {})
    return check_machine(tree, str(file) if is_file_name(name) else f"{name}.yaml")


def profiles_in(path: Path) -> list[Path]:
    """The file itself, or the profiles of a folder, sorted."""
    return (sorted(path.glob("*.yaml")) if _is_folder(path) else []) or [path]


def named(scenario: Scenario, machine: Machine) -> Scenario:
    """The question with its profile's name, where that came through standard input."""
    return replace(scenario, hardware=machine.name) if scenario.hardware == STANDARD_INPUT else scenario


def load_machine_file(path: Path, own: Sequence[Path] = ()) -> Machine:
    """Load and check a profile from a file that need not be on the search path."""
    return check_machine(resolved_tree(path, own, {}), str(path))


def resolved_tree(path: Path, own: Sequence[Path], overrides: Mapping[str, str]) -> dict[Any, Any]:
    """The YAML tree with ``extends`` merged in and overrides applied."""
    tree = extended(path, own)
    problems: list[str] = []
    for dotted, text in overrides.items():
        override(tree, dotted, text, problems)
    if problems:
        raise InputError(problems)
    return tree


def extended(path: Path, own: Sequence[Path], text: str | None = None) -> dict[Any, Any]:
    """The tree of a profile, or of another text in its place, over what it extends; ``null`` takes away."""
    tree = _extended(path, own, (_identity(path),), read_profile(path) if text is None else text)
    return _merged({}, tree)


def _extended(path: Path, own: Sequence[Path], seen: tuple[str, ...], text: str) -> dict[Any, Any]:
    """A profile over the one it extends: by name, or a YAML file named as seen from this one."""
    refuse_other(keys_of(text), path.name, PROFILE)
    tree = parse_yaml(text, path.name)
    base = tree.pop("extends", None)
    if base is None:
        return tree
    if not isinstance(base, str) or base == STANDARD_INPUT:
        raise InputError([f"{path.name}: extends: '{base}' is not the name of a profile"])
    try:
        file = path.parent / base if is_file_name(base) else find_profile(base, own)
    except InputError as error:
        raise InputError(f"{path.name}: extends: {problem}" for problem in error.problems) from None
    if _identity(file) in seen:
        raise InputError([f"{path.name}: extends: '{base}' leads back to itself; name another profile"])
    return _merged(_extended(file, own, (*seen, _identity(file)), read_profile(file)), tree)


def _identity(path: Path) -> str:
    """The same for every way to name a file."""
    return os.path.realpath(path)


def read_profile(path: Path) -> str:
    """The text of a profile; ``-`` is standard input."""
    return _standard_input() if str(path) == STANDARD_INPUT else read_text(path)


@cache
def _standard_input() -> str:
    """Standard input can be read once, and a profile is asked for several times."""
    return decode(sys.stdin.buffer.read(LARGEST_FILE), "standard input")


def _merged(base: Mapping[Any, Any], change: Mapping[Any, Any]) -> dict[Any, Any]:
    """Deep merge; a number with its source and a list are replaced whole, ``null`` takes a key away."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        deep = isinstance(value, Mapping) and "value" not in value
        result[key] = _merged(old if isinstance(old, Mapping) else {}, value) if deep else value
    return {key: value for key, value in result.items() if value is not None}


def check_machine(tree: Mapping[Any, Any], file: str) -> Machine:
    """Build a machine from a tree; all problems at once, those of meaning after those of form."""
    problems: list[str] = []
    machine = structure(Machine, tree, Place(file, problems, needs_source=True))
    if not problems:
        problems += [f"{file}: {problem}" for problem in _contradictions(machine)]
    if problems:
        raise InputError(problems)
    assert isinstance(machine, Machine)
    return machine


def _contradictions(machine: Machine) -> list[str]:
    """What each field allows but together makes no sense."""
    found = []
    if machine.cube.rule not in machine.cube.rules:
        rule = machine.cube.rule
        found.append(f"cube.rule: '{rule}' is unknown{did_you_mean(rule, machine.cube.rules)}")
    reach = 0.0
    for name, tier in machine.tiers.items():
        at = f"tiers.{name}"
        if tier.engine not in tier.engines:
            found.append(f"{at}.engine: '{tier.engine}' is unknown{did_you_mean(tier.engine, tier.engines)}")
        if tier.decode_engine and tier.decode_engine not in tier.engines:
            name = f"'{tier.decode_engine}' is unknown{did_you_mean(tier.decode_engine, tier.engines)}"
            found.append(f"{at}.decode_engine: {name}")
        if tier.ranks <= reach:
            found.append(f"{at}.ranks: {tier.ranks:g} does not reach further than the tier before")
        reach = tier.ranks
        for key, engine in tier.engines.items():
            found += [f"{at}.engines.{key}{problem}" for problem in _engine_problems(engine)]
    return found


def _engine_problems(engine: Engine) -> list[str]:
    """Overlap that pays, curves that say what they belong to, a price for everything it carries."""
    found = []
    if 1 / engine.comm_under_compute + 1 / engine.compute_under_comm < 1:
        found.append(": overlap would be slower than no overlap; lower the two factors")
    if engine.curves and engine.fitted_at == float("inf"):
        found.append(": has curves; write 'fitted_at', the link bandwidth they belong to")
    unknown = [name for name in engine.carries if name not in PASSES]
    found += [f".carries: '{name}' is no collective{did_you_mean(name, PASSES)}" for name in unknown]
    missing = [name for name in engine.carries or PASSES if name not in engine.curves]
    if missing and engine.wires is None and not engine.leaves_server:
        found.append(f": no curve for {', '.join(missing)}; add them or 'wires'")
    for name, curve in engine.curves.items():
        found += [f".curves.{name}: {problem}" for problem in _curve_problems(curve)]
    return found


def _curve_problems(curve: Curve) -> list[str]:
    """Bands must rise, the last one be open; a fit for 8 ranks needs a rule, several need interpolation."""
    found = []
    for name, fits in (("ranks", curve.ranks), ("device", curve.device)):
        for ranks, bands in fits.items():
            ends = [band.up_to for band in bands]
            if not bands or ends != sorted({*ends} - {0.0}) or ends[-1] != float("inf"):
                found.append(f"{name}.{ranks}: up_to must rise from more than 0, and the last band has none")
    if curve.rank_rule in RANK_RULES and list(curve.ranks) != [REFERENCE_RANKS]:
        found.append(f"rank_rule: '{curve.rank_rule}' needs one fit, made with {REFERENCE_RANKS} ranks")
    if curve.device and curve.device.keys() != curve.ranks.keys():
        found.append("device: must have the same rank counts as 'ranks'")
    return found
