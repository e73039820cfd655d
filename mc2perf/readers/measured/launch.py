"""Launch scripts and pasted arguments of Megatron, MindSpeed and vllm-ascend."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from mc2perf.measured import Launch, Measured
from mc2perf.readers.measured.launch_flags import (
    DEFAULTS,
    FLAGS,
    INPUTS,
    OTHER,
    SIZES,
    WHOLE,
    WORDS,
    WORLD,
)
from mc2perf.readers.measured.shell import Shell, commands
from mc2perf.readers.measured.source import Format, Source, Tally, scaled
from mc2perf.units import CAPACITY, COUNT

_FLAG = re.compile(r"--([a-z][a-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_SIGN = re.compile(
    r"(?<![\w-])--(?:tensor-model-parallel-size|pipeline-model-parallel-size|expert-model-parallel-size"
    r"|context-parallel-size|micro-batch-size|global-batch-size|num-layers|hidden-size"
    r"|tensor-parallel-size|data-parallel-size|enable-expert-parallel|moe-token-dispatcher-type)\b"
)

END = "\n"
"""Stands between commands: no value reaches over it."""

Arguments = dict[str, list[str | None]]


def read(source: Source) -> Measured:
    """Read the arguments of a launch.

    Parameters
    ----------
    source : Source
        A shell script (variables, arrays, continuations, whole-number arithmetic), or arguments as pasted.

    Returns
    -------
    Measured
        `Launch`. What depends on the environment, on a branch or on another program stays unresolved and
        is listed, as is an argument that stands twice with different values.

    Raises
    ------
    InputError
        A quote that never closes, or no argument that is known.
    """
    tally, shell = Tally(source), Shell()
    words = [word for line in commands(source.text(), source.name) for word in (*shell.run(line), END)]
    words += [word for name in _unused(shell) for word in (shell.values[name] or "").split()]
    found = _arguments(words)
    values = dict(_single(found, tally))
    unresolved = [f"--{name} {value}" for name, value in values.items() if value and "$" in value]
    values = {name: value for name, value in values.items() if not (value and "$" in value)}
    launch = _launch(values, shell, [*unresolved, *_twice(found)], tally)
    tally.read = len(launch.inputs) + len(launch.sizes) + len(launch.other)
    return tally.close("launch script", "arguments", launch)


def _unused(shell: Shell) -> Iterator[str]:
    """Variables that hold arguments and that no line uses: people paste them without the command."""
    for name, value in shell.values.items():
        if value and name not in shell.used and re.search(r"(^|\s)--[a-z]", value):
            yield name


def _arguments(words: Iterable[str]) -> Arguments:
    """Every flag with the values that it is given, ``None`` for a switch."""
    found: Arguments = {}
    waiting: str | None = None
    for word in words:
        flag = _FLAG.fullmatch(word)
        if flag:
            name = flag[1].replace("_", "-")
            waiting = name if flag[2] is None else None
            found.setdefault(name, []).append(flag[2])
        elif waiting:
            found[waiting][-1] = None if word == END else word
            waiting = None
    return found


def _single(found: Arguments, tally: Tally) -> Iterator[tuple[str, str | None]]:
    """Flags that have one value; the others are set aside."""
    for name, values in found.items():
        if len(set(values)) == 1:
            yield name, values[0]
        else:
            tally.aside("an argument stands twice with different values", f"--{name}")


def _twice(found: Arguments) -> list[str]:
    return [f"--{name} (several values)" for name, values in found.items() if len(set(values)) > 1]


def _launch(values: Mapping[str, str | None], shell: Shell, unresolved: list[str], tally: Tally) -> Launch:
    inputs: dict[str, float | str | bool] = {}
    sizes: dict[str, float] = {}
    for name, key in INPUTS.items():
        _put(inputs, key, name, values, tally)
    for name, key in SIZES.items():
        _put(sizes, key, name, values, tally)
    for name, word in WORDS.items():
        if values.get(name):
            inputs[word] = str(values[name])
    for name, (key, said) in FLAGS.items():
        if name in values:
            _switch(inputs, key, said, name, tally)
    _virtual(inputs, sizes, values)
    _without_noop(sizes, values, tally)
    world = _world(values, shell, inputs, " ".join(unresolved))
    _parallel(inputs, world, unresolved, values, tally)
    _shared(sizes, values, tally)
    other = {name: values[name] or "yes" for name in OTHER if name in values}
    known = {*INPUTS, *SIZES, *WORDS, *FLAGS, *OTHER, *WHOLE, *WORLD}
    unknown = tuple(f"--{name}" for name in values if name not in known)
    missing = dict.fromkeys(
        [*unresolved, *(word for word in shell.unresolved if word not in " ".join(unresolved))]
    )
    return Launch(inputs, sizes, other, tuple(missing), unknown)


def _switch(
    inputs: dict[str, float | str | bool], key: str, said: str | bool, name: str, tally: Tally
) -> None:
    """A flag without value; two that say different things of one input cancel."""
    if inputs.get(key, said) != said:
        tally.aside(f"{key}: two arguments contradict each other", f"--{name}")
        inputs.pop(key)
    else:
        inputs[key] = said


def _put(
    into: dict[str, float | str | bool] | dict[str, float], key: str, name: str,
    values: Mapping[str, str | None], tally: Tally,
) -> None:  # fmt: skip
    """Put the number of an argument; one that is none is set aside."""
    if name not in values or key in into:
        return
    number = _number(name, values, tally)
    if number is not None:
        into[key] = number


def _number(name: str, values: Mapping[str, str | None], tally: Tally) -> float | None:
    try:
        number = scaled(values.get(name), CAPACITY if "capacity" in name else COUNT)
        if number is None and name in values:
            raise ValueError("has no value")
        return number
    except ValueError as error:
        tally.aside(str(error), f"--{name}")
        return None


def _without_noop(sizes: dict[str, float], values: Mapping[str, str | None], tally: Tally) -> None:
    """Layers that compute nothing are counted in ``--num-layers``."""
    noop = values.get("noop-layers")
    if not noop or "num_layers" not in sizes:
        return
    parts = noop.split(",")
    if all(part.strip().isdecimal() for part in parts) and len(set(parts)) < sizes["num_layers"]:
        sizes["num_layers"] -= len(set(parts))
        tally.note(f"{len(set(parts))} no-op layers taken off --num-layers")
    else:
        sizes.pop("num_layers")
        tally.aside("--noop-layers is no list of layers; num_layers is not known", "--noop-layers")


def _shared(sizes: dict[str, float], values: Mapping[str, str | None], tally: Tally) -> None:
    """A number of shared experts, each as wide as an expert, is a width."""
    count = _number("n-shared-experts", values, tally) if "n-shared-experts" in values else None
    if count and "expert_width" in sizes:
        sizes.setdefault("shared_width", count * sizes["expert_width"])


def _virtual(
    inputs: dict[str, float | str | bool], sizes: Mapping[str, float], values: Mapping[str, str | None]
) -> None:
    """Virtual stages from the layers of one, no-op layers counted; pipeline ranks are 1 unless given."""
    text = values.get("num-layers-per-virtual-pipeline-stage") or ""
    pipeline = inputs.get("pp")
    if not re.fullmatch(r"[1-9]\d{0,6}", text) or not pipeline or "num_layers" not in sizes:
        return
    count = sizes["num_layers"] / (float(pipeline) * float(text))
    if count == int(count):
        inputs.setdefault("vpp", count)


def _world(
    values: Mapping[str, str | None],
    shell: Shell,
    inputs: dict[str, float | str | bool],
    unresolved: str,
) -> float | None:
    """Nodes times NPUs of a node, from arguments of the launcher or else from the usual variables."""
    found = {}
    for key in ("nodes", "per_node"):
        flags = [name for name in WORLD if WORLD[name] == key]
        texts = [values[name] for name in flags if name in values]
        if not texts and not any(f"--{name} " in unresolved for name in flags):
            texts = [shell.values.get(name) for name in WHOLE if WHOLE[name] == key]
        numbers = {float(text) for text in texts if text and re.fullmatch(r"[1-9]\d{0,6}", text)}
        found[key] = numbers.pop() if len(numbers) == 1 else None
    if found["nodes"]:
        inputs["nodes"] = found["nodes"]
    if found["nodes"] and found["per_node"]:
        return found["nodes"] * found["per_node"]
    return None


def _parallel(
    inputs: dict[str, float | str | bool], world: float | None, unresolved: list[str],
    values: Mapping[str, str | None], tally: Tally,
) -> None:  # fmt: skip
    """Derive what a launch leaves implicit: tp pp cp of 1, dp, and vpp from its layers."""
    if "enable-expert-parallel" in values and "tp" in inputs:
        inputs.setdefault("ep", float(inputs["tp"]) * float(inputs.get("dp", 1.0)))
        return
    known = " ".join(unresolved)
    parts = [inputs.get(key, None if f"--{flag} " in known else 1.0) for key, flag in DEFAULTS.items()]
    if world is None or None in parts:
        tally.note("data-parallel ranks are not known: number of NPUs or a parallel size is not in the file")
        return
    share = math.prod(float(part) for part in parts if part)
    if world % share:
        tally.aside(f"{world:g} NPUs are no multiple of tp x pp x cp = {share:g}; dp is not known", "dp")
        return
    inputs["dp"] = world / share
    for key, part in zip(DEFAULTS, parts, strict=True):
        inputs.setdefault(key, part or 1.0)


FORMAT = Format(
    "launch script",
    "arguments such as --tensor-model-parallel-size or --micro-batch-size",
    lambda source: _SIGN.search(source.head) is not None,
    read,
)
