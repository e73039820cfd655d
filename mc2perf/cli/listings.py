"""What there is: operators, hardware profiles, models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mc2perf.cli.options import PlainCommand, PlainGroup, assignments, folders
from mc2perf.problems import InputError, Problems

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


def operators() -> None:
    """List the fused operators and what their m, n and k mean."""
    from mc2perf.operators import MOE_LAYER, MOE_LAYER_MEANING, OPERATORS
    from mc2perf.rules.catalogue import OPERATORS as JUDGED

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
    for name in (name for name in JUDGED if name not in meanings):
        typer.echo(f"{name}  (judged by 'mc2perf check', not priced)")


@profiles_app.command(
    "list", cls=PlainCommand, epilog="Example: mc2perf profiles list --profiles my_machines"
)
def profiles_list(
    profiles: Annotated[list[Path] | None, typer.Option(help="folder of your own", metavar="FOLDER")] = None,
) -> None:
    """List every profile that can be named."""
    from mc2perf.readers.profiles import load_machine, profile_names

    own = folders(profiles)
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
    from mc2perf.readers.profiles import find_profile, load_machine, read_profile

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    if problems:
        raise InputError(problems)
    if not resolved and not overrides:
        typer.echo(read_profile(find_profile(name, folders(profiles))), nl=False)
        return
    from mc2perf.quantity import quantities
    from mc2perf.units import show

    machine = load_machine(name, folders(profiles), overrides)
    typer.echo(f"{machine.name}: {machine.title}; one rank is one {machine.rank}")
    for path, quantity in quantities(machine):
        typer.echo(f"{path} = {show(quantity, quantity.symbol, 9)}  [{quantity.kind}: {quantity.ref}]")


@profiles_app.command(
    "check", cls=PlainCommand, epilog="Example: mc2perf profiles check my_machines/box.yaml"
)
def profiles_check(
    files: Annotated[list[Path], typer.Argument(help="Profile files, folders of them.")],
) -> None:
    """Check profile files: every problem at once."""
    from mc2perf.quantity import quantities
    from mc2perf.readers.profiles import load_machine_file, profiles_in

    problems = Problems()
    for file in (f for path in files for f in profiles_in(Path(path))):
        machine = problems.kept(load_machine_file, file, [file.parent])
        if machine is not None:
            numbers = sum(1 for _ in quantities(machine))
            typer.echo(f"{file}: fine; {machine.title}, {numbers} numbers, each with a source")
    problems.refuse()


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


def columns() -> None:
    """List every column of tables: name, SI unit, meaning."""
    from mc2perf.columns import dictionary

    for column in dictionary():
        typer.echo(f"{column.name:38}{column.unit:6}{column.meaning}")
