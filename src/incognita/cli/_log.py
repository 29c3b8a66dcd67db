"""`--log FILE`: what a command did and when, also where it failed."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita._version import __version__
from incognita.errors import count, printable

if TYPE_CHECKING:
    from incognita.results.export import Report

OnStep = Callable[[str], None]
OnProgress = Callable[[str, int, int], None]  # data set, images done, images in total
LogFile = Annotated[
    Path | None,
    typer.Option("--log", help="Append steps, notes, warnings and errors to this file."),
]
_START = time.monotonic()


def seconds_since_start() -> float:
    """Return the seconds since the program began."""
    return time.monotonic() - _START


def write_line(path: Path | None, text: str) -> None:
    """Append one line with the time and the seconds since the program began."""
    if path is None:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    seconds = seconds_since_start()
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"{now} {seconds:8.1f} s  {printable(' '.join(text.split()))}\n")


@contextmanager
def logged(
    path: Path | None, on_step: OnStep, on_progress: OnProgress
) -> Iterator[tuple[OnStep, OnProgress]]:
    """Log steps, finished sets, warnings, and the error that ends the work.

    Yields:
        The two functions, which also write lines.
    """
    write_line(path, f"incognita {__version__}: {' '.join(sys.argv[1:])}")

    def step(what: str) -> None:
        write_line(path, f"step: {what}")
        on_step(what)

    def progress(name: str, done: int, total: int) -> None:
        if done >= total:
            write_line(path, f"done: {name}, {count(total, 'image')}")
        on_progress(name, done, total)

    try:
        with _logged_warnings(path):
            yield step, progress
    except BaseException as error:
        write_line(path, f"stopped by {type(error).__name__}: {error}")
        raise


@contextmanager
def _logged_warnings(path: Path | None) -> Iterator[None]:
    """Log warnings, and show them as before."""
    show = warnings.showwarning

    def both(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        write_line(path, f"warning: {category.__name__}: {message}")
        show(message, category, *rest, **more)

    warnings.showwarning = both
    try:
        yield
    finally:
        warnings.showwarning = show


def log_report(path: Path | None, report: "Report") -> None:
    """Log the headline and the remarks of a report."""
    write_line(path, f"result: {report.headline()}")
    for kind, sentence in report.remarks():
        write_line(path, f"{kind}: {sentence}")
    write_line(path, "finished")
