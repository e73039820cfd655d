"""What somebody claims: numbers as they were printed, with the rounding that print implies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?\s*(%|x)?", re.ASCII)


@dataclass(frozen=True)
class Stated:
    """A number as it was printed, and half a unit of its last digit: the truth may lie anywhere between.

    Zeros at the end of a whole number may be rounding: only its first two digits count for sure.
    """

    value: float
    half: float = 0.0

    @property
    def low(self) -> float:
        """Smallest value that prints so."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Largest value that prints so."""
        return self.value + self.half


def stated(text: str) -> Stated:
    """Read a printed number: ``47%``, ``0.47``, ``580`` or ``2.4x``.

    Raises
    ------
    ValueError
        No number.

    Examples
    --------
    >>> stated("40%"), stated("580"), stated("1.30x")
    (Stated(value=0.4, half=0.005), Stated(value=580.0, half=5.0), Stated(value=1.3, half=0.005))
    """
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        raise ValueError(f"'{text}' is no number; write for example 47%, 0.47, 580 or 2.4x")
    digits, exponent, sign = found[1], int(found[2] or 0), found[3]
    decimals = len(digits.partition(".")[2])
    zeros = (
        0 if sign or "." in digits else min(len(digits) - len(digits.rstrip("0")), max(len(digits) - 2, 0))
    )
    power = exponent - (2 if sign == "%" else 0)
    if abs(power) > 100:
        raise ValueError(f"'{text}' is out of range")
    return Stated(float(f"{digits}e{power}"), float(f"5e{zeros - decimals - 1 + power}"))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of claims. ``inputs`` are what it says of its configuration, in the words of a scenario.

    ``base`` names the claim that it is compared with. ``overlappable_ratio`` is the share of the step that
    may run beside communication, where the claim says so.
    """

    name: str
    comm_ratio: Stated | None = None
    tokens_per_second: Stated | None = None
    speedup: Stated | None = None
    overlappable_ratio: Stated | None = None
    base: str = ""
    inputs: Mapping[str, object] = field(default_factory=dict)


NUMBERS = ("comm_ratio", "tokens_per_second", "speedup", "overlappable_ratio")
"""What a claim may state."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Claims that belong together: where they come from, and what of the configuration all share."""

    name: str
    title: str = ""
    source: str = ""
    target: str = ""
    inputs: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...]

    def base_of(self, claim: Claim) -> Claim | None:
        """What this claim is compared with: the one it names, else the first; none for that itself."""
        wanted = claim.base or self.claims[0].name
        found = next(c for c in self.claims if c.name == wanted)
        return None if found is claim else found
