"""Files of measurements to `mc2perf.measured`: recognised by what stands in them, never by their name."""

from __future__ import annotations

from pathlib import Path

from mc2perf.measured import Measured
from mc2perf.problems import InputError
from mc2perf.readers.kinds import keys_of, refuse_other
from mc2perf.readers.measured import (
    communication,
    communication_matrix,
    expert_counts,
    expert_load,
    groups,
    hccl_test,
    kernels,
    launch,
    nccl_tests,
    op_statistic,
    step_trace,
    tables,
    tiles,
    training_log,
)
from mc2perf.readers.measured.kernels import iterate_kernels
from mc2perf.readers.measured.source import Format, Progress, Source, open_source

__all__ = ["FORMATS", "iterate_kernels", "read_measured", "recognise"]

FORMATS: tuple[Format, ...] = (
    step_trace.FORMAT,
    op_statistic.FORMAT,
    kernels.FORMAT,
    communication.FORMAT,
    communication_matrix.FORMAT,
    groups.FORMAT,
    *tables.FORMATS,
    *tiles.FORMATS,
    expert_load.FORMAT,
    expert_counts.FORMAT,
    hccl_test.FORMAT,
    *nccl_tests.FORMATS,
    *training_log.FORMATS,
    launch.FORMAT,
)
"""Every known format, the most telling signs first."""


def recognise(path: Path | str) -> str:
    r"""Say which format a file has.

    Parameters
    ----------
    path : Path or str
        A text file, or ``-`` for standard input.

    Returns
    -------
    str
        The name of the format.

    Raises
    ------
    InputError
        No text, or no known format; says what was looked for.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mail.txt"
    >>> _ = file.write_text("data_size(Bytes): | avg_time(us): |\n1024 | 60.7 |\n")
    >>> recognise(file)
    'hccl_test'
    """
    return _format(open_source(path)).name


def read_measured(path: Path | str, progress: Progress | None = None) -> Measured:
    r"""Read a file of any known format.

    Parameters
    ----------
    path : Path or str
        A text file, or ``-`` for standard input.
    progress : callable, optional
        Called with bytes read and bytes in all, about once per MiB.

    Returns
    -------
    Measured
        What the file holds, in SI, and a report: what was read, what was set aside and why.

    Raises
    ------
    InputError
        No known format, or a file of which nothing can be used, one line per problem.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "times.csv"
    >>> _ = file.write_text("tile_cnt,time_us\n1,100\n4,80\n8,N/A\n")
    >>> found = read_measured(file)
    >>> found.format, found.data.scans[0].best[0], found.report.set_aside[0].reason
    ('tile_times', 4, 'time_us: is missing')
    """
    source = open_source(path, progress)
    return _format(source).read(source)


def _format(source: Source) -> Format:
    found = next((form for form in FORMATS if form.fits(source)), None)
    if found is None:
        refuse_other(keys_of(source.head), source.name)
        looked = "; ".join(f"{form.sign} ({form.name})" for form in FORMATS)
        raise InputError([f"{source.name}: is of no known kind; looked for {looked}"])
    return found
