"""The command line: read, call one function, write. The only place that prints and exits."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import Annotated, Any

import typer

from mc2perf import reading
from mc2perf.cli.audit import EXAMPLE as AUDIT
from mc2perf.cli.audit import audit
from mc2perf.cli.breakeven import EXAMPLE as BREAKEVEN
from mc2perf.cli.breakeven import breakeven
from mc2perf.cli.buffers import EXAMPLE as BUFFERS
from mc2perf.cli.buffers import buffers
from mc2perf.cli.calibrate import EXAMPLE as CALIBRATE
from mc2perf.cli.calibrate import calibrate
from mc2perf.cli.check import EXAMPLE as CHECK
from mc2perf.cli.check import check
from mc2perf.cli.compare import EXAMPLE as COMPARE
from mc2perf.cli.compare import compare
from mc2perf.cli.diff import EXAMPLE as DIFF
from mc2perf.cli.diff import diff
from mc2perf.cli.estimate import estimate
from mc2perf.cli.inspect import inspect
from mc2perf.cli.listings import columns, models_app, operators, profiles_app
from mc2perf.cli.options import GROUPS, GroupedHelp, PlainCommand, PlainGroup
from mc2perf.cli.paths import EXAMPLE as PATHS
from mc2perf.cli.paths import paths
from mc2perf.cli.plot import EXAMPLE as PLOT
from mc2perf.cli.plot import plot
from mc2perf.cli.report import EXAMPLE as REPORT
from mc2perf.cli.report import report
from mc2perf.cli.sensitivity import EXAMPLE as SENSITIVITY
from mc2perf.cli.sensitivity import sensitivity
from mc2perf.cli.streams import stand_in
from mc2perf.cli.sweep import EXAMPLE, sweep
from mc2perf.cli.validate import EXAMPLE as VALIDATE
from mc2perf.cli.validate import validate
from mc2perf.problems import InputError
from mc2perf.version import VERSION

__all__ = ["GROUPS", "app", "estimate", "main"]

app = typer.Typer(
    name="mc2perf",
    cls=PlainGroup,
    help="Predict how fast Ascend NPUs run when communication is fused with computation (MC2).",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    epilog="Example: mc2perf estimate mixtral-8x7b",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.add_typer(profiles_app, name="profiles")
app.add_typer(models_app, name="models")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mc2perf {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def top(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """Predict how fast Ascend NPUs run when communication is fused with computation (MC2)."""


app.command(cls=GroupedHelp, epilog="Example: mc2perf estimate mixtral-8x7b --ep 8 --seq-len 4096")(estimate)
app.command(cls=GroupedHelp, epilog=f"Example: {EXAMPLE}")(sweep)
app.command(cls=GroupedHelp, epilog=f"Example: {BREAKEVEN}")(breakeven)
app.command(cls=GroupedHelp, epilog=f"Example: {SENSITIVITY}")(sensitivity)
app.command(cls=GroupedHelp, epilog=f"Example: {DIFF}")(diff)
app.command(cls=GroupedHelp, epilog=f"Example: {CHECK}")(check)
app.command(cls=GroupedHelp, epilog=f"Example: {BUFFERS}")(buffers)
app.command(cls=GroupedHelp, epilog=f"Example: {PATHS}")(paths)
app.command(cls=GroupedHelp, epilog=f"Example: {VALIDATE}")(validate)
app.command(cls=GroupedHelp, epilog=f"Example: {CALIBRATE}")(calibrate)
app.command(cls=GroupedHelp, epilog=f"Example: {COMPARE}")(compare)
app.command(cls=GroupedHelp, epilog=f"Example: {AUDIT}")(audit)
app.command(cls=GroupedHelp, epilog=f"Example: {PLOT}")(plot)
app.command(cls=GroupedHelp, epilog=f"Example: {REPORT}")(report)
app.command(cls=PlainCommand, epilog="Example: mc2perf inspect hccl_test.txt")(inspect)
app.command(epilog="Example: mc2perf operators")(operators)
app.command(epilog="Example: mc2perf columns")(columns)


USAGE_ERROR: type[Any] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
"""What typer raises for wrong flags; older versions take it from click, newer ones carry their own."""


def main() -> None:
    """Run the tool; wrong input is one line per problem and exit 2, never a traceback."""
    stand_in()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    reading.forget()
    gc.disable()  # a short life with small numbers: collecting garbage costs a tenth of it
    try:
        code = app(prog_name="mc2perf", standalone_mode=False) or 0
        sys.stdout.flush()
    except InputError as error:
        code = _refused(*error.problems)
        _send_rest()
    except USAGE_ERROR as error:
        code = _refused(_usage(error))
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except SystemExit:  # the reader of a pipe is gone, which typer takes for a failure
        code = 0
    except BrokenPipeError:
        code = 0
        _drop_output()
    except OSError as error:
        code = _refused(f"{error.filename or 'standard output'}: {_why(error)}")
        _drop_output()
    sys.exit(code)


def _refused(*problems: str) -> int:
    typer.echo("\n".join(problems), err=True)
    return 2


def _why(error: OSError) -> str:
    """Why a file is no good, or standard output."""
    if error.errno == errno.EBADF and not error.filename:
        return "is closed; leave it open, or write a file with -o where a command has it"
    return error.strerror or str(error)


def _usage(error: Any) -> str:
    """What is wrong with the flags, on one line; the help itself where nothing was given."""
    context, text = getattr(error, "ctx", None), str(error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        return text
    command = context.command_path if context else "mc2perf"
    return f"{' '.join(text.split())} ('{command} --help' lists what there is)"


def _send_rest() -> None:
    """Write what was printed before the refusal; it may be of an output that takes no more."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Send what is still buffered nowhere: whoever read it is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
