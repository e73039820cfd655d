"""What an estimate used: sourced numbers, equations with their numbers, ranges left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mc2perf.answer import Step
from mc2perf.quantity import Quantity, quantities
from mc2perf.units import Num


@dataclass
class Ledger:
    """What an estimate used: numbers by path, equations in order, ranges left."""

    parts: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    extrapolated: dict[str, None] = field(default_factory=dict)
    recording: bool = False

    def use(self, path: str, part: Any) -> None:
        """Count every sourced number below a part of the machine as used."""
        self.parts.setdefault(path, part)

    @property
    def used(self) -> dict[str, Quantity]:
        """Every sourced number used, by path."""
        return {
            f"{path}.{name}".rstrip("."): quantity
            for path, part in self.parts.items()
            for name, quantity in quantities(part() if callable(part) else part)
        }

    def run(self, label: str, equation: Callable[..., Any], **numbers: Any) -> Any:
        """Evaluate an equation; write it down when an explanation was asked for."""
        value = equation(**numbers)
        if self.recording:
            plain = {name: _one(number) for name, number in numbers.items()}
            text = getattr(equation, "formula", "")
            result = tuple(map(_one, value)) if isinstance(value, tuple) else _one(value)
            self.steps.append(
                Step(label=label, equation=equation.__name__, formula=text, numbers=plain, value=result)
            )
        return value

    def once(self, label: str, equation: Callable[..., Any], **numbers: Any) -> None:
        """Write down what many equations rest on, before the first of them."""
        if self.recording and not any(step.label == label for step in self.steps):
            self.run(label, equation, **numbers)


def _one(value: Num) -> float | tuple[float, ...]:
    """A number; of unequal pieces one for each."""
    numbers = tuple(np.ravel(value).tolist())
    return numbers if len(numbers) > 1 else float(numbers[0])
