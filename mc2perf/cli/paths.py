"""``mc2perf paths``: which path an MoE layer takes in serving, and which one is fastest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.options import Overrides, ProfileFolders, Target, assignments, folders, with_inputs
from mc2perf.problems import InputError, did_you_mean

EXAMPLE = "mc2perf paths qwen3-235b-a22b --hardware atlas_800t_a3 --tp 8 --ep 16 --prefill-mc2"
FORMATS = ("table", "json")
PANEL = "How serving was started"


def _number(help: str) -> Any:
    return typer.Option(metavar="NUMBER", help=help, rich_help_panel=PANEL)


@with_inputs
def paths(
    target: Target = None,
    profiles: ProfileFolders = None,
    set: Overrides = None,
    max_num_batched_tokens: Annotated[str | None, _number("tokens of a step [default: 8192]")] = None,
    max_num_seqs: Annotated[str | None, _number("sequences of a step [default: 256]")] = None,
    graph_size: Annotated[str | None, _number("tokens of the largest captured graph")] = None,
    prefill_mc2: Annotated[
        bool, typer.Option("--prefill-mc2", help="prompts may use mc2, too", rich_help_panel=PANEL)
    ] = False,
    fused: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="off, dispatch_ffn_combine or mega_moe [default: off]", rich_help_panel=PANEL
        ),
    ] = None,
    mega_moe_max_tokens: Annotated[
        str | None, _number("tokens per rank that mega_moe is started for [default: 4096]")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="with LoRA adapters", rich_help_panel=PANEL)] = False,
    format: Annotated[str, typer.Option(metavar="WORD", help="table or json")] = "table",
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="write there instead of standard output"),
    ] = None,
    **given: Any,
) -> None:
    """Tell the path an MoE layer takes in serving from the fastest one; exit 1 if the start is refused."""
    if target is None:
        typer.echo(f"paths needs a target. An example:\n\n{EXAMPLE}", err=True)
        raise typer.Exit(2)
    from mc2perf.pathing import ask_paths
    from mc2perf.readers.scenarios import scenario_tree
    from mc2perf.writers import files
    from mc2perf.writers.paths import to_paths_json, to_paths_text

    problems: list[str] = []
    overrides = dict(assignments(set or [], problems))
    if format not in FORMATS:
        problems.append(f"format: '{format}' is not known{did_you_mean(format, FORMATS)}")
    started = {
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
        "graph_size": graph_size,
        "prefill_mc2": prefill_mc2,
        "fused": fused,
        "mega_moe_max_tokens": mega_moe_max_tokens,
        "lora": lora,
    }
    try:
        scenario, found = ask_paths(target, given, overrides, started, folders(profiles))
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    as_json = format == "json"
    text = (
        to_paths_json(scenario_tree(scenario, overrides), found)
        if as_json
        else to_paths_text(scenario, found)
    )
    files.write(text, output)
    if found.refusals:
        raise typer.Exit(1)
