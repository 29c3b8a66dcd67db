"""What commands share: exit codes, interrupts, and how much they write to stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import Parameter, signature
from os.path import realpath
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from incognita.cli._log import OnProgress, OnStep, logged, seconds_since_start
from incognita.errors import InvalidDataError, count, printable

CRITERION_FAILED, WRONG_USAGE, DATA_MISSING, IN_PART = 1, 2, 3, 4
BY_SIGNAL = 128  # plus the number of the signal: 130 for Ctrl-C, 143 for SIGTERM
SECONDS_BETWEEN_LINES = 20.0  # of a log, while a data set is running
COMPILING = "Compiling kernels, about 20 seconds; only the first run has to.\n"
_RESUMES = "Interrupted; the same command goes on where this one has stopped."
_STARTS_AGAIN = "Interrupted."
interrupts: list[int] = []
unfinished: list[str] = []  # what to tell people who interrupt the command
_announcing: list[bool] = []
_volume = {"quiet": False, "verbose": False}


_MESSAGES = "Messages"
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", rich_help_panel=_MESSAGES, help="Write no progress and no notes."
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", rich_help_panel=_MESSAGES, help="Write a line with the time per step."
    ),
]


def with_volume(command: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with two more options, `--quiet` and `--verbose`."""

    @wraps(command)
    def louder(*arguments: Any, quiet: bool = False, verbose: bool = False, **options: Any) -> None:
        if quiet and verbose:
            raise InvalidDataError("Expected --quiet or --verbose, got both. Leave one out.")
        _volume.update(quiet=quiet, verbose=verbose)
        command(*arguments, **options)

    kinds = {"quiet": Quiet, "verbose": Verbose}
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in kinds.items()
    ]
    own = signature(command)
    vars(louder)["__signature__"] = own.replace(parameters=[*own.parameters.values(), *added])
    louder.__annotations__ = {**command.__annotations__, **kinds}
    return louder


def note(sentence: str) -> None:
    """Write a note to stderr, unless the command is quiet."""
    if not _volume["quiet"]:
        sys.stderr.write(f"note: {printable(sentence)}\n")


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT and SIGTERM; compiled code may swallow the exception, so both are kept."""
    interrupts.append(number)
    raise KeyboardInterrupt


def ignore_lost_interrupt(lost: "sys.UnraisableHookArgs") -> None:
    """Handle an error that cannot be raised: of an interrupt that hits compiled code, say nothing.

    It is kept in `interrupts` and ends the program at the next step.
    """
    if not (interrupts and issubclass(lost.exc_type, KeyboardInterrupt)):
        sys.__unraisablehook__(lost)


def stop_if_interrupted() -> None:
    """Stop between two steps if an interrupt was lost inside compiled code."""
    if interrupts:
        raise KeyboardInterrupt


@contextmanager
def progress_on_stderr(
    *,
    n_steps: int | None = None,
    first: str = "loading",
    log_steps: bool = False,
    resumes: bool = False,
    log: Path | None = None,
) -> Iterator[tuple[OnStep, OnProgress]]:
    """Show progress: a bar in a terminal, a line per data set in a log.

    Args:
        n_steps: The number of steps, if it is known in advance.
        first: What is shown before the first step.
        log_steps: Whether a log gets a line per step, too.
        resumes: Whether the same command goes on where an interrupted one has stopped.
        log: A file for steps, warnings and errors, each with its time.

    Yields:
        A function to call with the description of each step, and one to call with a data set's
        name, the images done, and the images in total.
    """
    unfinished[:] = [_RESUMES if resumes else _STARTS_AGAIN]
    _announce_compilation()
    shown = _shown_progress(n_steps=n_steps, first=first, log_steps=log_steps)
    with shown as callbacks, logged(log, *callbacks) as logging_callbacks:
        yield logging_callbacks


@contextmanager
def _shown_progress(
    *, n_steps: int | None, first: str, log_steps: bool
) -> Iterator[tuple[OnStep, OnProgress]]:
    if _volume["quiet"]:
        yield partial(_log_step, is_shown=False), _no_progress
        return
    if _volume["verbose"] or not sys.stderr.isatty():
        yield partial(_log_step, is_shown=log_steps or _volume["verbose"]), _Log()
        return
    with _rich_progress() as progress:
        images = progress.add_task("", total=None, visible=False)
        steps = progress.add_task(first, total=n_steps)

        def on_step(what: str) -> None:
            stop_if_interrupted()
            progress.update(steps, description=printable(what), advance=1 if n_steps else 0)

        def on_progress(name: str, done: int, total: int) -> None:
            stop_if_interrupted()
            name = printable(name)
            if progress.tasks[0].description != name:
                progress.reset(images, description=name, total=total, visible=True)
            progress.update(images, completed=done)

        yield on_step, on_progress


def _announce_compilation() -> None:
    """Write a line when kernels are compiled: many seconds of silence look like a hang."""
    if "numba" in sys.modules and not _announcing:
        import incognita.kernels as kernels

        _announcing.append(True)
        if not _volume["quiet"]:
            kernels.on_first_compilation(lambda: sys.stderr.write(COMPILING))


def _rich_progress() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            return Text(f"{task.speed:.0f}/s" if task.speed and task.total else "")

    described = TextColumn("{task.description}", markup=False)
    columns = (described, BarColumn(), MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _log_step(what: str, *, is_shown: bool) -> None:
    stop_if_interrupted()
    if is_shown:
        when = f"{seconds_since_start():8.1f} s  " if _volume["verbose"] else ""
        sys.stderr.write(f"{when}{printable(what)}\n")


def _no_progress(name: str, done: int, total: int) -> None:
    stop_if_interrupted()


class _Log:
    """Writes a line when a data set is done, and now and then before."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, name: str, done: int, total: int) -> None:
        stop_if_interrupted()
        name, now = printable(name), time.monotonic()
        if done >= total:
            sys.stderr.write(f"{name}: {count(total, 'image')}\n")
        elif now - self.last > SECONDS_BETWEEN_LINES:
            sys.stderr.write(f"{name}: {done:,} of {count(total, 'image')}\n")
        else:
            return
        self.last = now


def write_report(report: Any, *, as_json: bool) -> None:
    """Write a report to stdout, as text or as JSON."""
    from incognita.results.export import as_json_text

    sys.stdout.write(as_json_text(report) if as_json else str(report))


def names_in(text: str | None) -> list[str] | None:
    """Return the names of an option, which are separated by commas.

    >>> names_in("car, bus"), names_in(None)
    (['car', 'bus'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def refuse_overwriting(out: Path | None, *inputs: Path | None) -> None:
    """Raise if the output is one of the inputs, which would be lost."""
    for path in inputs:
        # realpath, because resolve() raises where links go in a circle
        if out is not None and path is not None and realpath(out) == realpath(path):
            raise InvalidDataError(f"--out {out} is one of the inputs. Choose another file.")
