"""Pipelines of any stages, played step by step: a device runs its steps in order and waits for the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc2perf.equations.stage_order import Work
from mc2perf.units import Num

Message = tuple[str, int, int]
"""Activations (F) or their gradients (B) of a micro-batch that a chunk hands on."""


class Turn(NamedTuple):
    """A step of a device, the messages that it waits for and those that it sends."""

    device: int
    work: Work
    waits: tuple[Message, ...]
    sends: tuple[Message, ...]


def turns(orders: Sequence[Sequence[Work]], route: Sequence[tuple[int, int]]) -> list[Turn]:
    """Steps of all devices, each after those that it waits for.

    Parameters
    ----------
    orders : sequence of sequences of Work
        Steps of every device, :mod:`mc2perf.equations.stage_order`.
    route : sequence of (device, chunk)
        Every chunk in the order of the model: a micro-batch goes there, and its gradients back.

    Returns
    -------
    list of Turn
        Every step once.

    Raises
    ------
    ValueError
        If devices wait for each other for ever.

    Examples
    --------
    >>> one = [Work(forward=0), Work(None, 0, 0)]
    >>> [(turn.device, turn.work.forward) for turn in turns([one, one], [(0, 0), (1, 0)])]
    [(0, 0), (1, 0), (1, None), (0, None)]
    """
    found: list[Turn] = []
    sent: set[Message] = set()
    left = [list(_messages(device, order, route))[::-1] for device, order in enumerate(orders)]
    while any(left):
        before = len(found)
        for queue in left:
            while queue and sent.issuperset(queue[-1].waits):
                found.append(queue.pop())
                sent.update(found[-1].sends)
        if len(found) == before:
            raise ValueError("devices wait for each other")
    return found


def _messages(device: int, order: Sequence[Work], route: Sequence[tuple[int, int]]) -> Iterator[Turn]:
    """The steps of a device, with what they wait for and what they send."""
    places = {chunk: place for place, (where, chunk) in enumerate(route) if where == device}
    begun: defaultdict[tuple[str, int], int] = defaultdict(int)
    last = len(route) - 1
    for work in order:
        waits, sends = [], []
        for kind, chunk, ahead in (("F", work.forward, 1), ("B", work.backward, -1)):
            if chunk is None:
                continue
            place, batch = places[chunk], begun[kind, chunk]
            begun[kind, chunk] += 1
            if 0 <= place - ahead <= last:
                waits.append((kind, place, batch))
            elif kind == "B":  # the loss turns activations into gradients
                waits.append(("L", place, batch))
            if 0 <= place + ahead <= last:
                sends.append((kind, place + ahead, batch))
            elif kind == "F":
                sends.append(("L", place, batch))
        yield Turn(device, work, tuple(waits), tuple(sends))


def makespan(played: Sequence[Turn], times: Sequence[Mapping[Work, Num]]) -> Num:
    r"""Time until the last device has ended, where each starts a step as soon as it may.

    .. math:: e_k = \max(e_{k'}, \max_{j \to k} e_j) + t_k

    with k' the step before on the same device, and j the steps that it waits for.

    Parameters
    ----------
    played : sequence of Turn
        Steps of all devices, :func:`turns`.
    times : sequence of mappings
        Time of every kind of step of every device. [s]

    Returns
    -------
    number or array
        Makespan. [s]

    References
    ----------
    Baccelli, Cohen, Olsder, Quadrat, "Synchronization and Linearity", 1992.

    Examples
    --------
    >>> one = [Work(forward=0), Work(None, 0, 0)]
    >>> times = {Work(forward=0): 1.0, Work(None, 0, 0): 2.0}
    >>> float(makespan(turns([one, one], [(0, 0), (1, 0)]), [times, times]))
    6.0
    """
    free: list[Any] = [np.zeros(())] * len(times)
    under_way: dict[Message, NDArray[Any]] = {}
    for device, work, waits, sends in played:
        start = free[device]
        for message in waits:
            start = np.maximum(start, under_way.pop(message))
        free[device] = start + times[device][work]
        under_way.update(dict.fromkeys(sends, free[device]))
    ends: Num = np.max(np.stack(np.broadcast_arrays(*free)), axis=0)
    return ends
