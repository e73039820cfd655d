"""``mc2perf paths``: which path an MoE layer takes in serving, and which one is fastest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mc2perf.cli.asking import Asked, asking
from mc2perf.cli.reports import TextFormat, TextOutput, as_json
from mc2perf.problems import Problems

EXAMPLE = "mc2perf paths qwen3-235b-a22b --hardware atlas_800t_a3 --tp 8 --ep 16 --prefill-mc2"
PANEL = "How serving was started"


def _number(help: str) -> Any:
    return typer.Option(metavar="NUMBER", help=help, rich_help_panel=PANEL)


@asking(EXAMPLE)
def paths(
    asked: Asked,
    problems: Problems,
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
    format: TextFormat = "table",
    output: TextOutput = None,
) -> None:
    """Tell the path an MoE layer takes in serving from the fastest one; exit 1 if the start is refused."""
    from mc2perf.pathing import ask_paths
    from mc2perf.readers.scenarios import scenario_tree
    from mc2perf.writers import files
    from mc2perf.writers.paths import to_paths_json, to_paths_text

    with problems:
        to_json = as_json(format)
    started = {
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
        "graph_size": graph_size,
        "prefill_mc2": prefill_mc2,
        "fused": fused,
        "mega_moe_max_tokens": mega_moe_max_tokens,
        "lora": lora,
    }
    with problems:
        scenario, found = ask_paths(asked.target, asked.given, asked.overrides, started, asked.own)
    problems.refuse()
    text = (
        to_paths_json(scenario_tree(scenario, asked.overrides), found)
        if to_json
        else to_paths_text(scenario, found)
    )
    files.write(text, output)
    if found.refusals:
        raise typer.Exit(1)
