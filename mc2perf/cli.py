"""The command line: read, call one function, write. The only place that prints and exits."""

from __future__ import annotations

import gc
import inspect
import io
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mc2perf.problems import InputError
from mc2perf.scenario import Input, inputs
from mc2perf.version import VERSION

if TYPE_CHECKING:
    from mc2perf.answer import Answer

EXAMPLES = """\
mc2perf estimate mixtral-8x7b
    a training step's layers on Atlas 800I A2, every schedule side by side
mc2perf estimate deepseek-v3 --hardware atlas_800t_a3 --ep 16 --phase prefill
    another model, machine and phase
mc2perf estimate all_to_all_matmul -m 8192 -n 4096 -k 7168 --ranks 8 --hardware ascend_950pr
    one fused operator: the best tile count"""

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
    """A command whose options are text."""


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


app = typer.Typer(
    name="mc2perf",
    cls=PlainGroup,
    help="Predict how fast Ascend NPUs run when communication is fused with computation (MC2).",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    epilog="Example: mc2perf estimate mixtral-8x7b",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
profiles_app = typer.Typer(
    cls=PlainGroup,
    help="Hardware profiles: list, show, check.",
    epilog="Example: mc2perf profiles list",
    no_args_is_help=True,
    rich_markup_mode=None,
)
models_app = typer.Typer(
    cls=PlainGroup,
    help="Shipped models: list, show.",
    epilog="Example: mc2perf models list",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(profiles_app, name="profiles")
app.add_typer(models_app, name="models")


def _with_inputs(command: Callable[..., None]) -> Callable[..., None]:
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
    spelled = f"{flag}/--no-{name}" if default is True else flag
    shown = "auto" if how.auto else f"{default:g}" if isinstance(default, float) else default
    note = f" [{'|'.join(how.choices)}]" if how.choices else ""
    given = f" [default: {shown}]" if shown is not None and default is not True else ""
    kind = bool if default is True else str
    option = typer.Option(
        *((how.short,) if how.short else ()),
        spelled,
        help=how.help + note + given,
        rich_help_panel=GROUPS[how.group],
        show_default=False,
        metavar=None if default is True else "NUMBER" if how.dim else "WORD",
    )
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, option]
    )


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mc2perf {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def top(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """Predict how fast Ascend NPUs run when communication is fused with computation (MC2)."""


@app.command(cls=GroupedHelp, epilog="Example: mc2perf estimate mixtral-8x7b --ep 8 --seq-len 4096")
@_with_inputs
def estimate(
    target: Annotated[
        str | None,
        typer.Argument(
            help="an operator, a model, a config.json (or -), or a scenario file",
            show_default=False,
            metavar="TARGET",
            rich_help_panel=GROUPS["what"],
        ),
    ] = None,
    dispatcher: Annotated[
        str | None,
        typer.Option(
            help="alltoall (serial) or mc2, another word for --schedule",
            metavar="WORD",
            rich_help_panel=GROUPS["how"],
        ),
    ] = None,
    profiles: Annotated[
        list[Path] | None,
        typer.Option(
            help="folder with hardware profiles of your own; may be repeated",
            metavar="FOLDER",
            rich_help_panel=GROUPS["where"],
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUE",
            help="override a value of the profile, such as tiers.node.link_rate='25 GB/s'",
            rich_help_panel=GROUPS["where"],
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="print every formula with its numbers")] = False,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="table, json, csv or markdown [default: by suffix of -o, else table]"
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output"),
    ] = None,
    save_scenario: Annotated[
        str | None, typer.Option(metavar="FILE", help="write the question as a scenario file")
    ] = None,
    **given: Any,
) -> None:
    """Estimate one configuration: a fused operator or the layers of a model."""
    if target is None:
        typer.echo(f"estimate needs a target. Three examples:\n\n{EXAMPLES}", err=True)
        raise typer.Exit(2)
    from mc2perf.api import ask
    from mc2perf.readers.scenarios import scenario_tree
    from mc2perf.writers import files

    problems: list[str] = []
    overrides = dict(_assignments(set or [], problems))
    form = _format(output, format, problems)
    try:
        asked_for = {**given, "dispatcher": dispatcher}
        answer, scenario, overrides = ask(target, asked_for, overrides, _folders(profiles), explain)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    if save_scenario:
        files.write(_yaml(scenario_tree(scenario, overrides)), save_scenario)
    files.write(_text(answer, form, explain), output)
    if form in ("json", "csv"):
        for remark in answer.warnings:
            typer.echo(f"warning {remark.code}: {remark.text}", err=True)
    asked = answer.rows[-1:] if scenario.schedule != "all" else answer.rows
    if not any(row.legal for row in asked):
        raise typer.Exit(1)


def _folders(given: list[Path] | None) -> list[Path]:
    """Options arrive as text."""
    return [Path(folder) for folder in given or ()]


def _assignments(texts: list[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """``path=value`` texts."""
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path or not value:
            problems.append(
                f"--set: '{text}' is not PATH=VALUE; write for example tiers.node.link_rate='25 GB/s'"
            )
        else:
            yield path.strip(), value.strip()


def _format(output: str | None, asked: str | None, problems: list[str]) -> str:
    from mc2perf.problems import did_you_mean
    from mc2perf.writers.files import format_of

    if asked and asked not in _FORMATS:
        problems.append(f"format: '{asked}' is not known{did_you_mean(asked, _FORMATS)}")
        return "table"
    try:
        return format_of(output, asked)
    except InputError as error:
        problems += error.problems
        return "table"


def _table(answer: Answer) -> str:
    from mc2perf.writers.table import to_table

    return to_table(answer)


def _markdown(answer: Answer) -> str:
    from mc2perf.writers.table import to_markdown

    return to_markdown(answer)


def _json(answer: Answer) -> str:
    from mc2perf.writers.json_format import to_json

    return to_json(answer)


def _csv(answer: Answer) -> str:
    from mc2perf.writers.csv_format import to_csv

    return to_csv(answer)


_FORMATS: dict[str, Callable[[Answer], str]] = {
    "table": _table,
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}
"""Format -> text of an answer."""


def _text(answer: Answer, form: str, explain: bool) -> str:
    text = _FORMATS[form](answer)
    if explain and form in ("table", "markdown"):
        from mc2perf.writers.explain import to_explanation

        text += "\n" + to_explanation(answer)
    return text


def _yaml(tree: dict[str, object]) -> str:
    import yaml

    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


@app.command(epilog="Example: mc2perf operators")
def operators() -> None:
    """List the fused operators and what their m, n and k mean."""
    from mc2perf.operators import MOE_LAYER, MOE_LAYER_MEANING, OPERATORS

    meanings = {name: {axis: getattr(op, axis) for axis in "mnk"} for name, op in OPERATORS.items()}
    for name, meaning in (meanings | {MOE_LAYER: MOE_LAYER_MEANING}).items():
        op = OPERATORS.get(name)
        order = (
            f"{op.collective}, {op.order.replace('_', ' ')}, one piece per {op.pieces}"
            if op
            else "whole expert path"
        )
        typer.echo(f"{name}  ({order})")
        for axis, text in meaning.items():
            typer.echo(f"    {axis}: {text}")


@profiles_app.command(
    "list", cls=PlainCommand, epilog="Example: mc2perf profiles list --profiles my_machines"
)
def profiles_list(
    profiles: Annotated[list[Path] | None, typer.Option(help="folder of your own", metavar="FOLDER")] = None,
) -> None:
    """List every profile that can be named."""
    from mc2perf.readers.profiles import load_machine, profile_names

    own = _folders(profiles)
    typer.echo("\n".join(f"{name:24}{load_machine(name, own).title}" for name in profile_names(own)))


@profiles_app.command(
    "show", cls=PlainCommand, epilog="Example: mc2perf profiles show atlas_800i_a2 --resolved"
)
def profiles_show(
    name: Annotated[str, typer.Argument(help="Profile name.")],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="every number after extends and --set, with its source")
    ] = False,
    set: Annotated[list[str] | None, typer.Option(metavar="PATH=VALUE", help="override a value")] = None,
    profiles: Annotated[list[Path] | None, typer.Option(help="folder of your own", metavar="FOLDER")] = None,
) -> None:
    """Show a profile as written, or resolved to its numbers."""
    from mc2perf.readers.profiles import find_profile, load_machine
    from mc2perf.readers.structure import read_text

    problems: list[str] = []
    overrides = dict(_assignments(set or [], problems))
    if problems:
        raise InputError(problems)
    if not resolved and not overrides:
        typer.echo(read_text(find_profile(name, _folders(profiles))), nl=False)
        return
    from mc2perf.machine import quantities
    from mc2perf.units import show

    machine = load_machine(name, _folders(profiles), overrides)
    typer.echo(f"{machine.name}: {machine.title}; one rank is one {machine.rank}")
    for path, quantity in quantities(machine):
        typer.echo(f"{path} = {show(quantity, quantity.symbol, 9)}  [{quantity.kind}: {quantity.ref}]")


@profiles_app.command(
    "check", cls=PlainCommand, epilog="Example: mc2perf profiles check my_machines/box.yaml"
)
def profiles_check(file: Annotated[Path, typer.Argument(help="Profile file.")]) -> None:
    """Check a profile file: every problem at once."""
    from mc2perf.machine import quantities
    from mc2perf.readers.profiles import load_machine_file

    machine = load_machine_file(Path(file), [Path(file).parent])
    typer.echo(
        f"{file}: fine; {machine.title}, {sum(1 for _ in quantities(machine))} numbers, each with a source"
    )


@models_app.command("list", cls=PlainCommand, epilog="Example: mc2perf models list")
def models_list() -> None:
    """List every shipped model."""
    from mc2perf.readers.models import load_model, model_names

    for name in model_names():
        model = load_model(name)
        e = model.experts
        experts = (
            f"{e.count} experts, top {e.top_k}, width {e.width}" if e else f"dense, width {model.dense_width}"
        )
        size = f"{model.parameter_count / 1e9:7.0f} B parameters, {model.num_layers} layers"
        typer.echo(f"{name:24}{size}, hidden {model.hidden_size}, {experts}")


@models_app.command("show", cls=PlainCommand, epilog="Example: mc2perf models show mixtral-8x7b")
def models_show(name: Annotated[str, typer.Argument(help="Model name or file.")]) -> None:
    """Show the sizes of a model and what follows from them."""
    from dataclasses import asdict

    import yaml

    from mc2perf.equations.routing import flops_per_byte
    from mc2perf.readers.models import load_model

    model = load_model(name)
    tree = asdict(model)
    tree["layers"] = list(tree["layers"])
    tree["parameter_count"] = model.parameter_count
    if model.experts:
        e = model.experts
        tree["flops_per_byte"] = flops_per_byte(
            float(model.matrices), float(model.hidden_size), float(e.payload_width), float(e.width),
            float(e.shared_width), float(e.top_k),
        )  # fmt: skip
    typer.echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)


USAGE_ERROR: type[Any] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
"""What typer raises for wrong flags; older versions take it from click, newer ones carry their own."""


def main() -> None:
    """Run the tool; wrong input is one line per problem and exit 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    gc.disable()  # a short life with small numbers: collecting garbage costs a tenth of it
    try:
        code = app(prog_name="mc2perf", standalone_mode=False) or 0
        sys.stdout.flush()
    except InputError as error:
        code = _refused(*error.problems)
    except USAGE_ERROR as error:
        code = _refused(_usage(error))
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except SystemExit:  # the reader of a pipe is gone, which typer takes for a failure
        code = 0
    except BrokenPipeError:
        code = 0
        _drop_output()
    except OSError as error:
        code = _refused(f"{error.filename or 'standard output'}: {error.strerror or error}")
        _drop_output()
    sys.exit(code)


def _refused(*problems: str) -> int:
    typer.echo("\n".join(problems), err=True)
    return 2


def _usage(error: Any) -> str:
    """What is wrong with the flags, on one line; the help itself where nothing was given."""
    context, text = getattr(error, "ctx", None), str(error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        return text
    command = context.command_path if context else "mc2perf"
    return f"{' '.join(text.split())} ('{command} --help' lists what there is)"


def _drop_output() -> None:
    """Send what is still buffered nowhere: whoever read it is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


if __name__ == "__main__":
    main()
