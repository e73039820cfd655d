"""A command that asks a question: target, inputs, overrides and folders read once, every problem kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import typer

from mc2perf.cli.options import (
    Dispatcher,
    Overrides,
    ProfileFolders,
    Target,
    assignments,
    folders,
    with_inputs,
)
from mc2perf.problems import Problems


class Asked(NamedTuple):
    """The question as the command line has it: target, inputs, overrides of the profile, own folders."""

    target: str
    given: dict[str, Any]
    overrides: dict[str, str]
    own: list[Path]


def asking(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of what was asked, problems so far, and options of its own.

    Parameters
    ----------
    example : str
        Shown where no target is given.
    """

    def command(answer: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(answer, eval_str=True).parameters

        @functools.wraps(answer)
        def asked(target: Any, dispatcher: Any, profiles: Any, set: Any, **options: Any) -> None:
            if target is None:
                name, said = answer.__name__, "Examples" if "\n" in example else "An example"
                typer.echo(f"{name} needs a target. {said}:\n\n{example}", err=True)
                raise typer.Exit(2)
            problems = Problems()
            mine = {name: options.pop(name) for name in own if name in options}
            overrides = dict(assignments(set or [], problems))
            question = Asked(target, {**options, "dispatcher": dispatcher}, overrides, folders(profiles))
            answer(question, problems, **mine)

        asked.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                _option("target", Target),
                *(p for name, p in own.items() if p.kind is p.POSITIONAL_OR_KEYWORD and name not in READ),
                _option("dispatcher", Dispatcher),
                _option("profiles", ProfileFolders),
                _option("set", Overrides),
            ]
        )
        return with_inputs(asked)

    return command


READ = ("asked", "problems")
"""What a command gets beside its own options."""


def _option(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=None, annotation=annotation)
