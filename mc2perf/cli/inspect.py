"""What a file of measurements is, what would be taken from it, and a launch script as a scenario."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mc2perf.cli.progress import reading
from mc2perf.problems import InputError

if TYPE_CHECKING:
    from mc2perf.measured import Measured


SUFFIXES = (".csv", ".json", ".log", ".sh", ".txt", ".yaml", ".yml")
"""What is looked at in a folder."""


def inspect(
    files: Annotated[
        list[Path], typer.Argument(help="Files of measurements, folders of them; - for standard input.")
    ],
    save_scenario: Annotated[
        str | None,
        typer.Option("--save-scenario", help="Write a launch script as a scenario for 'mc2perf estimate'."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Model of the scenario (default: the one that the script describes)."),
    ] = None,
) -> None:
    """Say what files of measurements are, and what would be taken from them."""
    problems: list[str] = []
    found: list[Measured] = []
    for file in map(Path, files):  # the command line gives text as it is
        (_read_folder if file.is_dir() else _read)(file, found, problems)
    if target and not save_scenario:
        problems.append("target: goes with --save-scenario")
    if problems:
        raise InputError(problems)
    if save_scenario:
        _save(found, save_scenario, target)


def _read(file: Path, found: list[Measured], problems: list[str]) -> None:
    from mc2perf.readers.measured import read_measured

    try:
        with reading(str(file)) as progress:
            found.append(read_measured(file, progress))
        typer.echo("\n".join(described(found[-1])))
    except InputError as error:
        problems += error.problems


def _read_folder(folder: Path, found: list[Measured], problems: list[str]) -> None:
    """Whatever a folder holds of known kinds; an export has many files that say nothing here."""
    before, unread, left = len(found), list[str](), list[str]()
    for file in sorted(_files(folder, unread)):
        if file.is_file() and file.suffix in SUFFIXES:
            _read(file, found, left)
    if len(found) == before:
        problems += unread or [f"{folder}: holds no file of a known kind ({', '.join(SUFFIXES)})"]
    else:
        left += unread
    for problem in left:
        typer.echo(f"left out: {problem.partition('; looked for')[0]}", err=True)


def _files(folder: Path, unread: list[str]) -> Iterator[Path]:
    """Every file below a folder; folders that cannot be opened are noted."""

    def note(error: OSError) -> None:
        unread.append(f"{error.filename}: cannot be read ({error.strerror})")

    for place, _, names in os.walk(folder, onerror=note):
        yield from (Path(place, name) for name in names)


def _save(found: list[Measured], path: str, target: str | None) -> None:
    """Write the scenario of the one launch script, and its model where none is shipped."""
    from mc2perf.measured import Launch
    from mc2perf.readers.launch_scenario import asked_by
    from mc2perf.writers import files

    scripts = [one for one in found if isinstance(one.data, Launch)]
    if len(scripts) != 1 or not isinstance(scripts[0].data, Launch):
        raise InputError([f"save_scenario: needs one launch script, {len(scripts)} given"])
    if not path.endswith((".yaml", ".yml")) or path == scripts[0].name:
        raise InputError([f"save_scenario: '{path}': write another name that ends in .yaml"])
    model_file = f"{path.rpartition('.')[0]}.model.yaml"
    asked = asked_by(scripts[0].data, scripts[0].name, target, model_file)
    trees = {model_file: asked.model, path: asked.scenario}
    texts = {name: _yaml(tree) for name, tree in trees.items() if tree is not None}
    if model_file in texts and _holds_else(Path(model_file), texts[model_file]):
        said = f"'{model_file}' is there already, and would hold the model; move it, or write another name"
        raise InputError([f"save_scenario: {said}"])
    for name, text in texts.items():
        files.write(text, name, "save_scenario")
        typer.echo(f"wrote {name}", err=True)
    for note in asked.notes:
        typer.echo(f"note: {_visible(note)}", err=True)


def _yaml(tree: dict[str, object]) -> str:
    import yaml

    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _holds_else(file: Path, text: str) -> bool:
    """Whether a file that nobody named is there with something else in it."""
    return file.exists() and not (file.is_file() and file.read_bytes() == text.encode())


def described(found: Measured) -> Iterator[str]:
    """Lines about one file: kind and count, what may be used, what was set aside, remarks."""
    yield from map(_visible, _lines(found))


def _visible(line: str) -> str:
    """What a file says of itself, without control codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _lines(found: Measured) -> Iterator[str]:
    report = found.report
    yield f"{found.name}: {found.format}, {report.read} {report.what}"
    yield from (f"    {line}" for line in found.data.takes())
    for rows in report.set_aside:
        yield f"    set aside: {rows.count} x {rows.reason} (first: {rows.first})"
    yield from (f"    note: {note}" for note in report.notes)
