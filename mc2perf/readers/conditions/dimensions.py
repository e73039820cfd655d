"""Dimensions of the parts of a condition, as powers of units: of columns, of products, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mc2perf.conditions import Node, Powers
from mc2perf.units import SPELLINGS

SYMBOLS = {unit: symbol for symbol, units in SPELLINGS.items() for unit in units}
"""A unit as it is written -> the SI symbol of what it measures."""


def powers_of(symbol: str) -> Powers:
    """``B/s`` as powers of its units.

    Examples
    --------
    >>> powers_of("s/B^2")
    (('B', -2), ('s', 1))
    """
    powers: Counter[str] = Counter()
    for place, part in enumerate(symbol.split("/")):
        unit, _, power = part.partition("^")
        powers[unit] += int(power or 1) * (-1 if place else 1)
    return _sorted(powers)


def product(nodes: Sequence[Node], operators: Sequence[str]) -> Powers | None:
    """The dimension of a product; of bare numbers alone it stays open."""
    if all(node.powers is None for node in nodes):
        return None
    powers: Counter[str] = Counter()
    for sign, node in zip(("*", *operators), nodes, strict=True):
        for unit, power in node.powers or ():
            powers[unit] += power if sign == "*" else -power
    return _sorted(powers)


def _sorted(powers: Counter[str]) -> Powers:
    return tuple(sorted((unit, power) for unit, power in powers.items() if power and unit != "1"))


def spelled(powers: Powers | None) -> str:
    """``in B/s``, or ``a plain number``."""
    if not powers:
        return "a plain number"
    up, down = ([f"{u}^{abs(p)}" if abs(p) > 1 else u for u, p in powers if p * s > 0] for s in (1, -1))
    return f"in {'/'.join(['*'.join(up) or '1', *down])}"
