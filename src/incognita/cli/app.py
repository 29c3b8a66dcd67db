"""The program: its commands, and how errors and interrupts end it."""

import signal
import sys
from io import StringIO, TextIOWrapper
from typing import Annotated, Any

import typer

from incognita._version import __version__
from incognita.cli import _terminal as terminal
from incognita.cli.audit import audit_command
from incognita.cli.build import build_app
from incognita.cli.certify import certify_command
from incognita.cli.check import check_command
from incognita.cli.compare import compare_command
from incognita.cli.confusions import confusions_command
from incognita.cli.corrupt import corrupt_command
from incognita.cli.data import data_app
from incognita.cli.demo import demo_command
from incognita.cli.doctor import doctor_command
from incognita.cli.leaderboard import leaderboard_command, serve_command
from incognita.cli.list import list_command
from incognita.cli.report import report_command
from incognita.cli.reproduce import reproduce_command
from incognita.cli.results import results_app
from incognita.cli.run import run_command, show_command
from incognita.cli.selfaware import selfaware_app
from incognita.cli.store import store_app
from incognita.errors import (
    IncognitaError,
    MissingDataError,
    NoSpaceError,
    StorageError,
    printable,
)
from incognita.files import FULL_DISK

# the base of all errors about options; typer has its own copy of click, so it is found through one
ClickError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="incognita",
    help="Measures what a vision model does when it meets something it does not know.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("certify")(certify_command)
app.command("demo")(demo_command)
app.command("run")(run_command)
app.command("show")(show_command)
app.command("compare")(compare_command)
app.command("reproduce")(reproduce_command)
app.command("list")(list_command)
app.command("corrupt")(corrupt_command)
app.command("audit")(audit_command)
app.command("confusions")(confusions_command)
app.command("report")(report_command)
app.command("check")(check_command)
app.command("doctor")(doctor_command)
app.command("leaderboard")(leaderboard_command)
app.command("serve")(serve_command)
app.add_typer(data_app, name="data")
app.add_typer(build_app, name="build")
app.add_typer(selfaware_app, name="selfaware")
app.add_typer(results_app, name="results")
app.add_typer(store_app, name="store")
for commands in (app, *(group.typer_instance for group in app.registered_groups)):
    for command in commands.registered_commands if commands else ():
        if command.callback is not None:
            command.callback = terminal.with_volume(command.callback)


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
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, terminal.interrupt)
    sys.unraisablehook = terminal.ignore_lost_interrupt
    _repair_streams()
    try:
        sys.exit(app(standalone_mode=False))
    except BaseException as error:
        if terminal.interrupts:  # compiled code turns an interrupt into errors of its own
            _exit_interrupted()
        if (ending := _ending(error)) is None:
            raise
        _exit(*ending)


def _ending(error: BaseException) -> tuple[str, int] | None:
    """Return the sentence and the exit code of an expected error."""
    if isinstance(error, StorageError) and not isinstance(error, NoSpaceError):
        return str(error), terminal.IN_PART
    if isinstance(error, IncognitaError):
        is_missing = isinstance(error, MissingDataError | NoSpaceError)
        return str(error), terminal.DATA_MISSING if is_missing else terminal.WRONG_USAGE
    if isinstance(error, ClickError):
        return _usage_sentence(error), terminal.WRONG_USAGE
    if isinstance(error, MemoryError):
        return f"Out of memory: {error}. Process less at once.", terminal.WRONG_USAGE
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        where = error.filename or "the output"
        return f"The disk is too full to write {where}. Make room first.", terminal.IN_PART
    if isinstance(error, OSError):
        where = error.filename or "The output"
        return printable(f"{where}: {error.strerror}."), terminal.WRONG_USAGE
    return None


def _exit_interrupted() -> None:
    """End as interrupted programs do; a second signal must not disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sentence = terminal.unfinished[-1] if terminal.unfinished else "Interrupted."
    _exit(sentence, terminal.BY_SIGNAL + terminal.interrupts[0])


def _usage_sentence(error: Any) -> str:
    """Return what is wrong with the options, and where they are listed."""
    message = str(error.format_message()).rstrip()
    if not message or type(error).__name__ == "NoArgsIsHelpError":  # the help was printed
        sys.exit(terminal.WRONG_USAGE)
    end = "" if message.endswith((".", "?", "!")) else "."
    where = "" if error.ctx is None else f" See {error.ctx.command_path} --help."
    return printable(f"{message}{end}{where}")


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
