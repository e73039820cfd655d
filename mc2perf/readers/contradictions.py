"""What contradicts itself in the words of a sweep, before any row is worked out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mc2perf.columns import METRICS
from mc2perf.operators import OPERATORS
from mc2perf.problems import did_you_mean
from mc2perf.readers.axes import Value
from mc2perf.resolve import misplaced
from mc2perf.scenario import Scenario, inputs, is_operator

NEEDS = {
    "npus_needed": "target_tokens_per_second",
    "servers_needed": "target_tokens_per_second",
    "cost_per": "price_per_npu_hour",
}
"""How the names of a planner's columns begin -> what they are worked out from."""

PER_TOKEN = ("tokens_per", *NEEDS)
"""How the names of columns begin that count tokens."""


def named(vary: Sequence[str]) -> list[str]:
    """Names of the axes of the command line."""
    return [text.partition("=")[0].strip() for text in vary]


def fixed_values(given: Mapping[str, object], overrides: Mapping[str, str]) -> dict[str, object]:
    """What the command line gives one value: inputs and paths of the profile."""
    fixed = {name: value for name, value in given.items() if value is not None} | dict(overrides)
    if "dispatcher" in fixed:
        fixed["schedule"] = fixed.pop("dispatcher")
    return fixed


def still_varied(block: object, fixed: Mapping[str, object]) -> object:
    """The axes of a file, without those that the command line gives one value."""
    if not isinstance(block, Mapping):
        return block
    return {name: spec for name, spec in block.items() if str(name) not in fixed}


def twice(
    target: str,
    scenario: Scenario,
    varied: Sequence[str],
    axes: Mapping[str, tuple[Value, ...]],
    fixed: Mapping[str, object],
    from_file: Mapping[str, str],
    at: str,
) -> Iterator[str]:
    """Inputs that one place both fixes and varies; the command line may well do either to a file's."""
    filed = {spec.name: spec.default for spec, _ in inputs()}
    once: dict[str, object] = {n: getattr(scenario, n) for n in filed if getattr(scenario, n) != filed[n]}
    once |= from_file
    for name, values in axes.items():
        of, where = (fixed, "") if name in varied else (once, at)
        if name in of:
            yield f"{where}vary: '{name}' varies and is {plain(of[name])} as well; write one of both"
        if name == "target" and scenario.target not in values and (scenario.target == target or where):
            yield f"{where}vary: 'target' leaves out '{scenario.target}'; add it, or name one that varies"


def unfit(scenario: Scenario, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[str]:
    """What no row could answer: inputs that no target takes."""
    targets = [str(target) for target in axes.get("target", (scenario.target,))]
    kinds = {"operator" if is_operator(target) else "model" for target in targets}
    for spec, how in inputs():
        if spec.name in axes and how.only and how.only not in kinds:
            yield f"vary: '{spec.name}' is for {how.only}s; {', '.join(targets)} is none; leave it out"
    if len(targets) == 1:
        yield from misplaced(replace(scenario, target=targets[0]))


def unranked(by: str, targets: Sequence[str], asked: Mapping[str, object]) -> Iterator[str]:
    """Why rows cannot be ranked by a column; ``asked`` holds what a planner gave."""
    if by not in METRICS:
        yield f"by: '{by}' is no number to rank by{did_you_mean(by, METRICS, 'mc2perf columns')}"
    for start, name in NEEDS.items():
        if by.startswith(start) and asked.get(name) is None:
            yield f"by: {by} needs a number; add --{name.replace('_', '-')}"
    if by.startswith(PER_TOKEN) and all(target in OPERATORS for target in targets):
        yield f"by: {by} is of models and moe_layer; {', '.join(targets)} has no tokens"


def unplanned(targets: Sequence[str], asked: Mapping[str, object]) -> Iterator[str]:
    """What a planner gave of which no target has any use: operators have no tokens."""
    if all(target in OPERATORS for target in targets):
        for name in dict.fromkeys(NEEDS.values()):
            if asked.get(name) is not None:
                yield f"{name}: is of models and moe_layer; {', '.join(targets)} has no tokens; leave it out"


def plain(value: object) -> str:
    """A value as a person writes it."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)
