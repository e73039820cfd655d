"""``mc2perf calibrate``: a better profile from measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mc2perf.cli.options import ProfileFolders, folders
from mc2perf.problems import InputError, did_you_mean
from mc2perf.scenario import DEFAULT_HARDWARE

if TYPE_CHECKING:
    from mc2perf.calibrating import Calibrated

EXAMPLE = "mc2perf calibrate all_reduce.txt matmul_bf16.csv scan.csv --hardware atlas_800t_a2 -o my_box.yaml"
FORMATS = ("table", "json")
FORMS = ("floor", "ramp", "line")
SIZES = "What files do not say of themselves"


def _given(help: str, *flags: str, metavar: str = "WORD") -> Any:
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=SIZES, show_default=False)


def calibrate(
    files: Annotated[
        list[Path], typer.Argument(help="Files of measurements, folders of them; - for standard input.")
    ],
    hardware: Annotated[
        str, typer.Option(metavar="WORD", help="the base: a profile's name or its .yaml file")
    ] = DEFAULT_HARDWARE,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="the profile, .yaml; one that is there and extends the base is edited in place "
            "[default: standard output, the report to standard error]",
        ),
    ] = None,
    profiles: ProfileFolders = None,
    engine: Annotated[
        str | None, typer.Option(metavar="WORD", help="whose curves are fitted (default: what answers)")
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="forms of bands, such as floor,ramp,line (default: the data choose)",
        ),
    ] = None,
    format: Annotated[str, typer.Option(metavar="WORD", help="of the report: table or json")] = "table",
    residuals: Annotated[bool, typer.Option("--residuals", help="name every outlier")] = False,
    op: Annotated[str | None, _given("collective of a benchmark")] = None,
    ranks: Annotated[str | None, _given("ranks of a collective or a scan", metavar="NUMBER")] = None,
    dtype: Annotated[str | None, _given("element type of a table of kernels or a scan")] = None,
    operator: Annotated[str | None, _given("fused operator of a scan over tiles")] = None,
    m: Annotated[str | None, _given("rows of it", "-m", metavar="NUMBER")] = None,
    n: Annotated[str | None, _given("columns of it", "-n", metavar="NUMBER")] = None,
    k: Annotated[str | None, _given("contraction of it", "-k", metavar="NUMBER")] = None,
    split_axis: Annotated[str | None, _given("axis that its tiles cut")] = None,
    experts_per_rank: Annotated[str | None, _given("its local experts", metavar="NUMBER")] = None,
) -> None:
    """Fit a machine's numbers to measurements, say what they do not tell, write a profile."""
    given = {
        "op": op, "ranks": ranks, "dtype": dtype, "operator": operator, "m": m, "n": n, "k": k,
        "split_axis": split_axis, "experts_per_rank": experts_per_rank,
    }  # fmt: skip
    from mc2perf.calibrating.profile import profile_text

    told = {name: value for name, value in given.items() if value is not None}
    found, base = _fitted(files, hardware, output, profiles, _Choices(engine, forms, format, told))
    report = _report(found, format, residuals)
    if not found.edits:
        sys.stderr.write(report)
        typer.echo("nothing could be fitted; no profile is written", err=True)
        raise typer.Exit(1)
    text = profile_text(found, base, output, folders(profiles))
    (sys.stderr if output in (None, "-") else sys.stdout).write(report)
    _write(text, output, files)


class _Choices(NamedTuple):
    """What was chosen beside files and base."""

    engine: str | None
    forms: str | None
    format: str
    told: dict[str, str]


def _fitted(
    files: list[Path], hardware: str, output: str | None, profiles: list[Path] | None, chosen: _Choices
) -> tuple[Calibrated, str]:
    """The fit and its base; every problem of options, base and files at once."""
    from mc2perf.calibrating import calibrate as fitted
    from mc2perf.calibrating.profile import base_for
    from mc2perf.cli.progress import reading

    problems, own, base = _problems(output, chosen.format, chosen.forms), folders(profiles), hardware
    try:
        base = base_for(hardware, output, own)
    except InputError as error:
        problems += error.problems
    shapes = tuple(chosen.forms.split(",")) if chosen.forms else ()
    try:
        found = fitted([Path(file) for file in files], base, chosen.told, chosen.engine, shapes, own, reading)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return found, base


def _report(found: Calibrated, format: str, residuals: bool) -> str:
    """What was fitted, what was not and why."""
    from mc2perf.writers.calibration import to_json, to_text

    groups, refused, notes = found.found.groups, found.found.refused, found.observations.notes
    if format == "json":
        return to_json(groups, refused, notes, found.base.name)
    return to_text(groups, refused, notes, found.base.name, residuals)


def _write(text: str, output: str | None, files: list[Path]) -> None:
    """The profile to its place."""
    from mc2perf.reading import forget
    from mc2perf.writers import files as writing

    measured = {Path(file).resolve() for file in files}
    if output not in (None, "-") and Path(str(output)).resolve() not in measured:
        forget(str(output))  # a profile that is there already was edited in its text
    writing.write(text, output)


def _problems(output: str | None, format: str, forms: str | None) -> list[str]:
    found = []
    if output not in (None, "-") and not str(output).endswith((".yaml", ".yml")):
        found.append(f"output: '{output}' is no profile; write a name that ends in .yaml")
    if format not in FORMATS:
        found.append(f"format: '{format}' is not known{did_you_mean(format, FORMATS)}")
    shapes = forms.split(",") if forms else []
    unknown = [form for form in shapes if form not in FORMS]
    return found + [f"forms: '{form}' is not known{did_you_mean(form, FORMS)}" for form in unknown]
