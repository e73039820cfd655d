"""In which order devices of a pipeline run forwards, input gradients and weight gradients of their chunks.

A device holds one chunk of the model's layers, or two: then the pipeline is folded, and chunk 1 lies as far
from the end of the model as chunk 0 from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """One step of a device: the chunk whose forward, input gradients, weight gradients it runs; or several.

    A forward beside input gradients is of another micro-batch.
    """

    forward: int | None = None
    backward: int | None = None
    weights: int | None = None


def zb_h1(device: int, devices: int, n_mb: int) -> list[Work]:
    """Steps of a device under ZB-H1: as 1F1B, with the i-th device i weight gradients behind.

    Parameters
    ----------
    device, devices, n_mb : int
        Number of the device from 0, devices of the pipeline, micro-batches; each device has one chunk.

    Returns
    -------
    list of Work
        Every forward, input gradient and weight gradient once.

    Notes
    -----
    All devices keep as many micro-batches as the first one does under 1F1B, :func:`most_held`.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", 2023, section 2.3.

    Examples
    --------
    >>> ["".join("FBW"[work.index(0)] for work in zb_h1(device, 2, 3)) for device in (0, 1)]
    ['FFBWFBWBW', 'FBFBWFBWW']
    """
    warm_up = min(devices - device - 1, n_mb)
    steps = [Work(forward=0)] * warm_up
    for i in range(n_mb):
        steps += [Work(forward=0)] if i < n_mb - warm_up else []
        steps.append(Work(backward=0))
        steps += [Work(weights=0)] if i >= device else []
    return steps + [Work(weights=0)] * min(device, n_mb)


def dualpipe(device: int, devices: int, n_mb: int) -> list[Work]:
    """Steps of a device of a pipeline folded into a V: two chunks each, forwards beside backwards.

    Parameters
    ----------
    device, devices : int
        Number of the device from 0, devices of the folded pipeline. DualPipe feeds p devices from both ends:
        devices i and p - 1 - i do the same, so that it is p / 2 devices here.
    n_mb : int
        Micro-batches, at least two for every device; of DualPipe those that enter at one end.

    Returns
    -------
    list of Work
        Every forward and backward of each chunk once, weight gradients with it or after it.

    Notes
    -----
    Each device keeps 2 x devices + 1 chunks of micro-batches at most, :func:`most_held`: the PP + 1 of the
    report.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, figure 5 and table 2; deepseek-ai/DualPipe, the eight
    steps of ``DualPipeV.step``.

    Examples
    --------
    >>> order = dualpipe(0, 4, 8)
    >>> len(order), sum(work.forward is not None and work.backward is not None for work in order)
    (34, 5)
    """
    after, last = devices - device - 1, device == devices - 1
    main = [Work(0, 1, 1), Work(1, 0, 0)] * (n_mb - 2 * devices + device + 1)
    if last:  # nothing beside the first backward pass: its results are waited for
        main[:1] = [Work(forward=0), Work(None, 1, 1)]
    return [
        *[Work(forward=0)] * (2 * after),
        *[Work(forward=0), Work(forward=1)] * (device + 1),
        *[Work(backward=1), Work(weights=1), Work(forward=1)] * after,
        *main,
        *[Work(None, 1, 1), Work(1, 0, 0)] * after,
        *_drained(device, after),
    ]


def _drained(device: int, after: int) -> Iterator[Work]:
    """The end of a device: backwards of both chunks, of the later half input gradients first."""
    put_off = []
    for i, chunk in enumerate((1, 0) * (device + 1)):
        if i > device:
            put_off.append(chunk)
            yield Work(backward=chunk)
        else:
            yield Work(None, chunk, chunk)
    for _ in range(after):
        yield Work(weights=put_off.pop(0))
        put_off.append(0)
        yield Work(backward=0)
    yield from (Work(weights=chunk) for chunk in put_off)


def most_held(order: Sequence[Work]) -> list[tuple[int, int]]:
    """Micro-batches of chunk 0 and of chunk 1 that a device keeps at once, wherever more of either are none.

    A micro-batch is kept from its forward on until its weight gradients are done.

    Parameters
    ----------
    order : sequence of Work
        Steps of a device.

    Returns
    -------
    list of pairs
        Most micro-batches of the one with so many of the other; a device of one chunk keeps 0 of the other.

    Examples
    --------
    >>> most_held(zb_h1(2, 4, 9)), most_held(dualpipe(1, 4, 9))
    ([(4, 0)], [(7, 2)])
    """
    kept, seen = [0, 0], set()
    for work in order:
        if work.forward is not None:
            kept[work.forward] += 1
            seen.add((kept[0], kept[1]))
        if work.weights is not None:
            kept[work.weights] -= 1
    return sorted(a for a in seen if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in seen))
