"""What comes back: rows of results with their segments, warnings, assumptions and where numbers came from."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Remark:
    """A remark with a stable code."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One schedule: times in seconds, or the reason why there are none.

    ``total_time = busy compute + exposed_comm_time + free_time`` exactly, where busy compute is
    ``compute_time`` plus what the overlap stretched it by (``compute_stretch``). ``comm_ratio`` is exposed
    communication over total; ``hidden_ratio`` the share of the communication that computation covers;
    ``overlap_efficiency`` the saved time over the most that overlap can save; ``speedup`` serial over
    total; ``ceiling`` the most that overlapping the uncut work can give: serial time over the longer of
    its two engines' sums. All pieces hold ``piece_rows``, or all but one, which holds ``rest_rows`` and runs
    first or last; ``tiles`` are then the rows of each, and ``cuts`` those of every count of the curve.
    ``traffic`` is communication by parallel group, and what of it is exposed.
    """

    schedule: str
    pieces: int = 1
    piece_rows: float = 0.0
    rest_rows: float = 0.0
    rest_first: float = 0.0
    tiles: tuple[float, ...] = ()
    reason: str = ""
    legal: bool = True
    total_time: float = 0.0
    serial_time: float = 0.0
    ceiling: float = 1.0
    compute_time: float = 0.0
    comm_time: float = 0.0
    compute_stretch: float = 0.0
    exposed_comm_time: float = 0.0
    free_time: float = 0.0
    host_time: float = 0.0
    comm_ratio: float = 0.0
    hidden_ratio: float = 0.0
    overlap_efficiency: float = 0.0
    speedup: float = 0.0
    tokens_per_second: float = 0.0
    mfu: float = 0.0
    bubble_share: float = 0.0
    time_per_output_token: float = 0.0
    time_to_first_token: float = 0.0
    imbalance: float = 1.0
    hottest_expert: float = 1.0
    bound: str = ""
    flat_region: tuple[int, int] = (1, 1)
    default_pieces: int = 0
    default_time: float = 0.0
    curve: dict[int, float] = field(default_factory=dict)
    cuts: dict[int, tuple[float, ...]] = field(default_factory=dict)
    segments: dict[str, float] = field(default_factory=dict)
    backward_segments: dict[str, float] = field(default_factory=dict)
    traffic: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A policy's tiles of a fused operator, what they take, and how far that is above the longer engine.

    ``tiles`` are rows in the order they run; ``above_bound`` is time over the larger of computation and
    communication of these tiles, less 1; ``reason`` says why there is no answer, ``why`` what decided.
    """

    policy: str
    tiles: tuple[float, ...] = ()
    total_time: float = 0.0
    speedup: float = 0.0
    above_bound: float = 0.0
    reason: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What an NPU of the fullest stage holds, by part. [B]"""

    parts: dict[str, float]
    total: float
    capacity: float
    fits: bool
    shortfall: str
    assumptions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """How far off validated answers like this one are: in words, and as numbers where there are any [1].

    ``median`` and ``worst`` are sizes of relative errors over ``rows`` rows of ``families``.
    """

    text: str
    like: str
    rows: int
    families: tuple[str, ...]
    median: float | None
    worst: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One equation as it was used: what for, the formula, the numbers put in, the value.

    Unequal pieces have a number each.
    """

    label: str
    equation: str
    formula: str
    numbers: dict[str, float | tuple[float, ...]]
    value: float | tuple[float | tuple[float, ...], ...]


ROUNDING = 1e-12
"""Times that differ by less than this share are equal: the same sum in another order."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The whole answer to one scenario."""

    kind: str
    inputs: dict[str, object]
    resolved: dict[str, object]
    rows: tuple[Row, ...]
    warnings: tuple[Remark, ...]
    assumptions: tuple[str, ...]
    sources: dict[str, int]
    facts: dict[str, float] = field(default_factory=dict)
    meaning: dict[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    memory: Memory | None = None
    policies: tuple[Cut, ...] = ()
    expect: Expectation | None = None

    @property
    def legal_rows(self) -> tuple[Row, ...]:
        """Rows with times."""
        return tuple(row for row in self.rows if row.legal)

    @property
    def best(self) -> Row | None:
        """The fastest legal row; the first, which is serial, wins ties, also those that rounding breaks."""
        fastest = min((row.total_time for row in self.legal_rows), default=0.0)
        return next((row for row in self.legal_rows if row.total_time <= fastest * (1.0 + ROUNDING)), None)
