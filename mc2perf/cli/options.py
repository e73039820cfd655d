"""How options are asked for: text under headings, read together by the readers."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mc2perf.problems import InputError
from mc2perf.scenario import Input, inputs

GROUPS = {
    "what": "What is estimated",
    "where": "Where it runs",
    "how": "How it is scheduled",
    "output": "Output",
}


class _AsGiven:
    """Takes what the command line gave: text stays text, repeated options become a list."""

    def coerce(self, value: Any, **_: Any) -> Any:
        """Return the value."""
        return list(value) if isinstance(value, tuple) else value


class _TextMixin:
    """Leaves the text of options to the readers.

    Every option here is text or a flag. Newer typers would still import pydantic to see that text is
    text, which doubles the start-up time; older ones do not look at the attribute.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Every option, set to take its text as given."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            param._runtime_param = _AsGiven()
        return params


class PlainGroup(_TextMixin, TyperGroup):
    """A group of commands whose options are text."""


class PlainCommand(_TextMixin, TyperCommand):
    """A command whose options are text, and none of them empty."""

    def invoke(self, ctx: Any) -> Any:
        """Refuse empty text, which a shell leaves of a variable that is not set; then run."""
        given = {name: value if isinstance(value, list) else [value] for name, value in ctx.params.items()}
        empty = [name for name, values in given.items() if "" in values]
        if empty:
            raise InputError(f"{name}: is empty; write something, or leave it out" for name in empty)
        return super().invoke(ctx)


class GroupedHelp(PlainCommand):
    """Options under headings: what, where, how, output."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write each option below the heading of its group."""
        groups: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for param in self.get_params(ctx):
            shown = param.get_help_record(ctx)
            if shown:
                groups[str(getattr(param, "rich_help_panel", None) or GROUPS["output"])].append(shown)
        for title in [*GROUPS.values(), *(g for g in groups if g not in GROUPS.values())]:
            if groups[title]:
                with formatter.section(title):
                    formatter.write_dl(groups[title])


def with_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per field of a scenario; all are text, read together later."""
    own = inspect.signature(command, eval_str=True).parameters
    listed = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    asked = [_option(spec.name, how, spec.default) for spec, how in inputs()]
    after = [p for p in listed if p.name != "target"]
    first = [p for p in listed if p.name == "target"]
    command.__signature__ = inspect.Signature([*first, *asked, *after])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*first, *asked, *after)}
    return command


def _option(name: str, how: Input, default: object) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    switch = isinstance(default, bool)
    spelled = f"{flag}/--no-{flag[2:]}" if default is True else flag
    shown = "auto" if how.auto else f"{default:g}" if isinstance(default, float) else default
    note = f" [{'|'.join(how.choices)}]" if how.choices else ""
    given = f" [default: {shown}]" if shown is not None and not switch else ""
    kind = bool if switch else str
    option = typer.Option(
        *((how.short,) if how.short else ()),
        spelled,
        help=how.help + note + given,
        rich_help_panel=GROUPS[how.group],
        show_default=False,
        metavar=None if switch else "NUMBER" if how.dim else "WORD",
    )
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, option]
    )


def folders(given: list[Path] | None) -> list[Path]:
    """Options arrive as text."""
    return [Path(folder) for folder in given or ()]


def assignments(texts: list[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """``path=value`` texts."""
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path or not value:
            problems.append(
                f"--set: '{text}' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'"
            )
        else:
            yield path.strip(), value.strip()


ProfileFolders = Annotated[
    list[Path] | None,
    typer.Option(
        help="folder with hardware profiles of your own; may be repeated",
        metavar="FOLDER",
        rich_help_panel=GROUPS["where"],
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=VALUE",
        help="override a value of the profile, such as tiers.node.link_rate='25 GB/s'",
        rich_help_panel=GROUPS["where"],
    ),
]
Target = Annotated[
    str | None,
    typer.Argument(
        help="an operator, a model, a config.json (or -), or a scenario file",
        show_default=False,
        metavar="TARGET",
        rich_help_panel=GROUPS["what"],
    ),
]
Dispatcher = Annotated[
    str | None,
    typer.Option(
        help="alltoall (serial) or mc2, another word for --schedule",
        metavar="WORD",
        rich_help_panel=GROUPS["how"],
    ),
]
