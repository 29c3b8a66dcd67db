"""The program: its commands, and how errors and interrupts end it."""

import signal
import sys
from io import StringIO, TextIOWrapper
from typing import Annotated

import typer

from incognita._version import __version__
from incognita.cli import _terminal as terminal
from incognita.cli.build import build_app
from incognita.cli.certify import certify_command
from incognita.cli.corrupt import corrupt_command
from incognita.cli.data import data_app
from incognita.cli.demo import demo_command
from incognita.cli.list import list_command
from incognita.cli.run import run_command
from incognita.errors import IncognitaError, MissingDataError

app = typer.Typer(
    name="incognita",
    help="Measures what a vision model does when it meets something it does not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("certify")(certify_command)
app.command("demo")(demo_command)
app.command("run")(run_command)
app.command("list")(list_command)
app.command("corrupt")(corrupt_command)
app.add_typer(data_app, name="data")
app.add_typer(build_app, name="build")


@app.callback(invoke_without_command=True)
def options(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show version and exit.")] = False,
) -> None:
    """Measures what a vision model does when it meets something it does not know."""
    if version:
        typer.echo(f"incognita {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; an expected error is one sentence and an exit code, not a traceback."""
    signal.signal(signal.SIGINT, terminal.interrupt)
    _repair_streams()
    try:
        app()
    except IncognitaError as error:
        is_missing = isinstance(error, MissingDataError)
        _exit(str(error), terminal.DATA_MISSING if is_missing else terminal.WRONG_USAGE)
    except MemoryError as error:
        _exit(f"Out of memory: {error}. Process less at once.", terminal.WRONG_USAGE)
    except OSError as error:
        _exit(f"{error.filename or 'The output'}: {error.strerror}.", terminal.WRONG_USAGE)
    except BaseException:
        if terminal.interrupts:  # compiled code turns an interrupt into errors of its own
            sys.exit(terminal.INTERRUPTED)
        raise


def _repair_streams() -> None:
    """Replace closed streams, and characters that a stream cannot encode."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, StringIO())
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _exit(sentence: str, code: int) -> None:
    sys.stderr.write(f"incognita: {sentence}\n")
    sys.exit(code)
