"""Numbers that remember where they come from, and the way to each of them through a tree of parts.

Parts are dataclasses, dicts and tuples; the path of a number is the fields, keys and indices that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args

Kind = Literal["datasheet", "vendor_model", "measured", "fitted", "assumed"]
KINDS: tuple[str, ...] = get_args(Kind)


class Quantity(float):
    """A number in SI with its unit, its kind (see ``KINDS``) and its reference.

    Arithmetic gives plain floats: a result is not a quantity with a source.
    """

    symbol: str
    kind: str
    ref: str

    def __new__(cls, value: float, symbol: str, kind: str, ref: str) -> Quantity:
        """Refuse a number without a known kind or without a reference."""
        if kind not in KINDS:
            raise ValueError(f"kind '{kind}' is not one of {', '.join(KINDS)}")
        if not ref.strip():
            raise ValueError("a number needs a reference; write where it comes from in 'ref'")
        made = super().__new__(cls, value)
        made.symbol, made.kind, made.ref = symbol, kind, ref
        return made

    def __reduce__(self) -> tuple[type[Quantity], tuple[float, str, str, str]]:
        return Quantity, (float(self), self.symbol, self.kind, self.ref)


def quantities(part: Any) -> Iterator[tuple[str, Quantity]]:
    """Walk every sourced number below ``part`` with its dotted path.

    Examples
    --------
    >>> [(path, q.kind) for path, q in quantities({"a": Quantity(1.0, "1", "assumed", "a guess")})]
    [('a', 'assumed')]
    """
    if isinstance(part, Quantity):
        yield "", part
        return
    for name, child in _children(part):
        for path, quantity in quantities(child):
            yield f"{name}.{path}".rstrip("."), quantity


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of everything directly inside a dataclass, a dict or a tuple."""
    if is_dataclass(part):
        yield from ((f.name, getattr(part, f.name)) for f in fields(part))
    elif isinstance(part, dict):
        yield from ((str(key), value) for key, value in part.items())
    elif isinstance(part, tuple):
        yield from ((str(index), value) for index, value in enumerate(part))


def replaced(part: Any, path: tuple[Any, ...], value: float) -> Any:
    """The same part of a machine with one number changed.

    Parameters
    ----------
    part : dataclass, dict, tuple or number
        Where the path begins.
    path : tuple
        Names of fields, keys and indices; empty for the number itself.
    value : float
        In SI.

    Raises
    ------
    LookupError
        The path leads nowhere.

    Examples
    --------
    >>> replaced({"a": (1.0, 2.0)}, ("a", 1), 3.0)
    {'a': (1.0, 3.0)}
    """
    if not path:
        return value
    name, *rest = path
    if is_dataclass(part) and not isinstance(part, type):
        if name not in vars(part):
            raise LookupError(name)
        return replace(part, **{name: replaced(getattr(part, name), tuple(rest), value)})
    if isinstance(part, dict):
        return {**part, name: replaced(part[name], tuple(rest), value)}
    if not isinstance(part, tuple):
        raise LookupError(name)
    return (*part[:name], replaced(part[name], tuple(rest), value), *part[name + 1 :])


def found(part: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path, as in `replaced`.

    Examples
    --------
    >>> found({"a": (1.0, 2.0)}, ("a", 1))
    2.0
    """
    for name in path:
        part = getattr(part, name) if is_dataclass(part) else part[name]
    return part
