"""What a schedule takes on the device, added up over segments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mc2perf.units import Num
from mc2perf.workload.parts import Part, Segments, all_segments, launches_of, reads_of, time_of


class Timing(NamedTuple):
    """What a schedule takes on the device. [s]

    ``total = busy + exposed + idle`` exactly, and only pipeline stages are idle; ``compute`` and ``comm``
    are stand-alone sums; ``memory`` is the part of the computation that memory bounds; ``launches`` counts
    kernels issued by the host, ``reads`` results that it waits for.
    """

    total: Num
    compute: Num
    comm: Num
    busy: Num
    exposed: Num
    memory: Num
    launches: Num
    idle: Num = 0.0
    reads: Num = 0.0

    def __add__(self, other: object) -> Timing:
        assert isinstance(other, Timing)
        return Timing(*(_plus(a, b) for a, b in zip(self, other, strict=True)))

    def times(self, count: float) -> Timing:
        """The same, ``count`` times in a row."""
        return Timing(*(count * value for value in self))


def _plus(a: Num, b: Num) -> Num:
    """A sum; nothing is not added to millions of rows."""
    return b if type(a) is float and a == 0.0 else a if type(b) is float and b == 0.0 else a + b


NOTHING = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def serial(segments: Segments) -> Timing:
    """One after the other."""
    compute, comm = time_of(segments, "compute"), time_of(segments, "comm")
    return Timing(
        compute + comm, compute, comm, compute, comm, memory_of(segments), launches_of(segments),
        reads=reads_of(segments),
    )  # fmt: skip


def memory_of(segments: Segments) -> Num:
    """The part of their computation that memory bounds. [s]"""
    return sum((s.cost.memory for s in segments), 0.0)


def pair_serial(part: Part) -> Timing:
    """A part without overlap: the base line of every speed-up."""
    return serial(all_segments(part))


def scalar(timing: Timing) -> Timing:
    """The timing of one row and one count as plain numbers."""
    return Timing(*(float(np.asarray(value).item()) for value in timing))


def exact(timing: Timing) -> Timing:
    """Restore ``total = busy + exposed`` after sums that round."""
    return timing._replace(total=timing.busy + timing.exposed)
