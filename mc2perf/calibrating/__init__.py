"""From files of measurements to a calibrated profile: read, fit in order, edit the base."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mc2perf.calibrating.editing import applied
from mc2perf.calibrating.observations import Observations, Reading, observe, together
from mc2perf.machine import Machine
from mc2perf.problems import InputError, Problems
from mc2perf.readers.profiles import check_machine, find_profile, resolved_tree
from mc2perf.studies.calibrate.collectives import fit_collective
from mc2perf.studies.calibrate.kernels import fit_kernels
from mc2perf.studies.calibrate.result import Calibration, Edit, NotFittedError, Outcome
from mc2perf.studies.calibrate.scans import Scan, fit_scans

__all__ = ["Calibrated", "calibrate"]


@dataclass(frozen=True)
class Calibrated:
    """What was found, the machine with it, and what has to be written over the base."""

    found: Calibration
    base: Machine
    machine: Machine
    edits: list[Edit]
    observations: Observations


class _Fitting:
    """The base while it gets better: every fit sees what the ones before it told."""

    def __init__(self, tree: dict[Any, Any], name: str) -> None:
        self.tree, self.name = tree, name
        self.machine = check_machine(tree, name)
        self.found = Calibration()

    def take(self, what: str, fit: Callable[[Machine], Outcome]) -> None:
        """Fit one group and keep it, or note why not."""
        try:
            edits = self.found.add(fit(self.machine))
        except NotFittedError as error:
            self.found.refused.append(f"{what}: {error}")
            return
        except InputError as error:
            self.found.refused += [f"{what}: {problem}" for problem in error.problems]
            return
        self.tree, _ = applied(self.tree, edits)
        self.machine = check_machine(self.tree, self.name)


def calibrate(
    files: Sequence[Path],
    hardware: str,
    given: Mapping[str, str] | None = None,
    engine: str | None = None,
    forms: Sequence[str] = (),
    own: Sequence[Path] = (),
    reading: Reading = nullcontext,
) -> Calibrated:
    r"""Fit what files of measurements tell of a machine.

    Parameters
    ----------
    files : sequence of Path
        Collective benchmarks, kernel tables, profiler exports, scans over tiles; ``-`` is standard input.
    hardware : str
        The base: a profile's name or file.
    given : mapping, optional
        What files do not say: ``op``, ``ranks``, ``dtype``, ``operator``, ``m``, ``n``, ``k``, ...
    engine : str, optional
        Whose curves collectives are; default what the profile says answers.
    forms : sequence of str
        Forms of the bands of curves, if known: ``floor``, ``ramp``, ``line``.
    own : sequence of Path
        Folders with profiles of your own.
    reading : callable, optional
        A file's name to a context that gives what is called with bytes read and bytes in all, or nothing.

    Returns
    -------
    Calibrated
        Collectives are fitted first, then kernels, then scans with both known.

    Raises
    ------
    InputError
        Every problem of files and base, one line each.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "all_reduce.csv"
    >>> rows = [f"all_reduce,8,{2**n},{60 + 2**n / 8e4:.2f}" for n in range(10, 28)]
    >>> _ = file.write_text("\n".join(["op,ranks,size_bytes_whole_array,time_us", *rows]))
    >>> (group,) = calibrate([file], "atlas_800t_a2").found.groups
    >>> group.form, [f"{value.value:.3g}" for value in group.values]
    ('line', ['6e-05', '1.4e+11'])
    """
    problems = Problems()
    with problems:
        base = find_profile(hardware, own)
        fitting = _Fitting(resolved_tree(base, own, {}), str(base))
    with problems:
        seen = observe(files, given or {}, reading)
    problems.refuse()
    machine = fitting.machine
    for points in seen.collectives():
        what = f"{points.origin.file}: {points.what}"
        fitting.take(what, lambda m, p=points: fit_collective(m, p, engine, forms))  # type: ignore[misc]
    for table, origin in seen.tables:
        what = f"{origin.file}: {table.kind.name}, {table.dtype}"
        fitting.take(what, lambda m, t=table, o=origin: fit_kernels(m, t, o))  # type: ignore[misc]
    for scans in _by_engine(seen.scans):
        known = [group.what for group in fitting.found.groups]
        what = f"{together(s.origin for s in scans).file}: scan over tiles"
        fitting.take(what, lambda m, s=scans, k=known: fit_scans(m, s, k))  # type: ignore[misc]
    fitting.found.refused += seen.useless
    _, edits = applied(resolved_tree(base, own, {}), fitting.found.edits)
    return Calibrated(fitting.found, machine, fitting.machine, edits, seen)


def _by_engine(scans: Sequence[Scan]) -> list[list[Scan]]:
    """Scans whose rounds and slow-downs are the same numbers: those of the same reach."""
    groups: dict[float, list[Scan]] = {}
    for scan in scans:
        groups.setdefault(float(scan.scenario.ranks or 0.0), []).append(scan)
    return list(groups.values())
