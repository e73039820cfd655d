"""Numbers written into the text of a profile: whatever is not touched, comments too, stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z0-9_][\w ./^-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def skeleton(extends: str, name: str, title: str) -> str:
    """A profile that says nothing of its own yet.

    Examples
    --------
    >>> print(skeleton("atlas_800t_a2", "mine", "My box"), end="")
    # Fitted by 'mc2perf calibrate'. What is not here is as in the profile that it extends.
    extends: atlas_800t_a2
    name: mine
    title: My box
    """
    head = "# Fitted by 'mc2perf calibrate'. What is not here is as in the profile that it extends.\n"
    return f"{head}extends: {_scalar(extends)}\nname: {_scalar(name)}\ntitle: {_scalar(title)}\n"


def edited(text: str, edits: Iterable[tuple[tuple[Any, ...], Any]]) -> str:
    r"""Text of a profile with some of its numbers replaced or added.

    Parameters
    ----------
    text : str
        YAML, a mapping.
    edits : iterable of (path, tree)
        Keys from the root, and what stands there: a scalar, a mapping, a list of mappings, or ``None`` for
        the ``null`` that takes a key of an extended profile away. Paths do not lead through lists.

    Returns
    -------
    str
        Comments are kept, those inside a replaced block above it.

    Raises
    ------
    LookupError
        A path that leads through something that is no mapping.

    Examples
    --------
    >>> text = "a: 1  # one\nb:\n  # two\n  c: 2\n"
    >>> print(edited(text, [(("b", "c"), 3), (("b", "d", "e"), 4)]), end="")
    a: 1  # one
    b:
      # two
      c: 3
      d:
        e: 4
    """
    for path, tree in edits:
        text = _written(text, path, tree)
    return text


def _written(text: str, path: tuple[Any, ...], tree: Any) -> str:
    node: Any = yaml.compose(text, Loader=yaml.CSafeLoader)
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise LookupError(".".join(map(str, path[:depth])))
        pair = next(((k, v) for k, v in node.value if k.value == str(name)), None)
        if pair is None or (depth + 1 < len(path) and _empty(pair[1])):
            nested = _nested(path[depth + 1 :], tree)
            if pair is None:
                return _inserted(text, node, str(name), nested)
            return _replaced(text, *pair, nested)
        key, node = pair
    return _replaced(text, key, node, tree)


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == ""


def _nested(path: tuple[Any, ...], tree: Any) -> Any:
    for name in reversed(path):
        tree = {name: tree}
    return tree


def _inserted(text: str, node: yaml.MappingNode, name: str, tree: Any) -> str:
    """A new key at the end of a mapping."""
    if node.flow_style:
        at = node.end_mark.index - 1
        comma = ", " if node.value else ""
        return f"{text[:at].rstrip()}{comma}{name}: {_flow(tree)}{text[at:]}"
    column = node.value[0][0].start_mark.column
    end = text.find("\n", _end(node))
    end = len(text) if end < 0 else end
    lines = "\n".join(_block(name, tree, column))
    return f"{text[:end]}\n{lines}{text[end:] or chr(10)}"


def _replaced(text: str, key: yaml.Node, old: yaml.Node, tree: Any) -> str:
    """Another value for a key; comments inside the old one come before it."""
    start, end = old.start_mark.index, _end(old)
    column, flat = key.start_mark.column, _is_flat(tree)
    on_its_line = "\n" not in text[key.end_mark.index : start]
    if flat and on_its_line:
        return f"{text[:start]}{' ' * text[:start].endswith(':')}{_flow(tree)}{text[end:]}"
    comments = [f"{' ' * (column + 2)}{comment}" for comment in _comments(text, old, start, end)]
    head = text[: key.end_mark.index] + ":" if on_its_line else text[:start].rstrip(" ").rstrip("\n")
    body = [f"{' ' * (column + 2)}{_flow(tree)}"] if flat else list(_block("", tree, column))[1:]
    return "\n".join([head, *comments, *body]) + text[end:]


def _comments(text: str, node: yaml.Node, start: int, end: int) -> Iterator[str]:
    """Comments between two places, none of which is part of a scalar."""
    inside = [(scalar.start_mark.index, scalar.end_mark.index) for scalar in _scalars(node)]
    for found in re.finditer(r"(?:(?<=\s)|^)#[^\n]*", text[start:end]):
        at = start + found.start()
        if not any(a <= at < b for a, b in inside):
            yield found[0]


def _scalars(node: Any) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for child in node.value if not isinstance(node, yaml.ScalarNode) else ():
        for part in child if isinstance(child, tuple) else (child,):
            yield from _scalars(part)


def _end(node: Any) -> int:
    """Where a node really ends: a block collection's own mark lies behind the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


# --- trees as YAML


def _is_flat(tree: Any) -> bool:
    """Scalars, and numbers with their source: they fit on one line."""
    return not isinstance(tree, dict | list) or (isinstance(tree, dict) and "value" in tree)


def _block(name: str, tree: Any, column: int) -> Iterator[str]:
    """Lines of a key with what is below it."""
    space = " " * column
    if _is_flat(tree) or not tree:
        yield f"{space}{name}: {_flow(tree)}"
    elif isinstance(tree, dict):
        yield f"{space}{name}:"
        for key, value in tree.items():
            yield from _block(str(key), value, column + 2)
    else:
        yield f"{space}{name}:"
        for item in tree:
            lines = [line for key, value in item.items() for line in _block(str(key), value, column + 4)]
            yield f"{space}  - {lines[0].lstrip()}"
            yield from lines[1:]


def _flow(tree: Any) -> str:
    """A tree on one line."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_flow(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_flow, tree)) + "]"
    return _scalar(tree)


def _scalar(value: Any) -> str:
    """A scalar that reads back as itself; JSON's strings are YAML's."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text == text.strip() and text.lower() not in _WORDS
    reads_back = plain and yaml.safe_load(text) == text
    return text if reads_back else json.dumps(text, ensure_ascii=False)
