"""Output formats of a report: to add one, write a function and a line in `FORMATS`."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import UNPRINTABLE, InvalidDataError, StorageError
from incognita.files import replacing
from incognita.registry import need

if TYPE_CHECKING:
    import pandas
    import polars
    from rich.console import Console, RenderableType

WIDTH = 156  # columns of a table in a log, a pipe or a file
UNLIMITED = 10_000  # columns where nothing is left out


class Report(ABC):
    """Results that can be printed, saved and turned into a data frame.

    `print(report)` prints its table and the remarks a reader needs.
    """

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return one record per number."""

    @abstractmethod
    def headline(self) -> str:
        """Return one line on what was measured."""

    @abstractmethod
    def remarks(self) -> list[tuple[str, str]]:
        """Return what qualifies the numbers: the kind of remark, and a sentence."""

    @abstractmethod
    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the table that `rich` prints."""

    @abstractmethod
    def summary(self) -> str:
        """Return the most important numbers in a few lines."""

    def __str__(self) -> str:
        return as_text(self)

    def to_dataframe(self) -> "polars.DataFrame":
        """Return one row per number as a polars data frame."""
        import polars

        types = {"value": polars.Float64, "low": polars.Float64, "high": polars.Float64}
        records = self.records()
        names = records[0] if records else ()
        return polars.DataFrame(
            records, schema={name: types.get(name, polars.String) for name in names}
        )

    def to_pandas(self) -> "pandas.DataFrame":
        """Return one row per number as a pandas data frame."""
        found: pandas.DataFrame = need("pandas", extra="pandas").DataFrame(self.records())
        return found

    def save(self, path: str | Path) -> None:
        """Save the report in the format of the suffix (see `FORMATS`); JSON without a suffix.

        An existing file is replaced as a whole or not at all.
        """
        if not isinstance(path, str | PathLike):
            raise InvalidDataError(f"Expected the path of a file, got {path!r:.80}.")
        path = Path(path)
        suffix = path.suffix.lower() or ".json"
        if suffix not in FORMATS:
            raise InvalidDataError(
                f"Expected a file that ends in {', '.join(FORMATS)}, got {path.name}. Choose one."
            )
        save_text(path, FORMATS[suffix](self))

    def save_html(self, path: str | Path) -> None:
        """Save a page for a browser: one file that needs nothing else.

        It opens with the answer and its table; figures and pictures follow.
        """
        import_module("incognita.report").save_html(self, path)  # pages stand above results

    def _repr_html_(self) -> str:
        """Return the answer and its table for a notebook."""
        frame: str = import_module("incognita.report").frame_of(self)
        return frame


def save_text(path: Path, text: str) -> None:
    """Save a text; an existing file is replaced as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    except StorageError:
        raise
    except OSError as error:
        shown = str(path) if len(str(path)) < 120 else f"{str(path)[:120]}…"
        raise InvalidDataError(
            f"{shown} cannot be written: {error.strerror}. Choose another file."
        ) from error


def stdout_console(*, wide: bool = False) -> "Console":
    """Return the console of a command: as wide as the terminal, or `WIDTH` in a log or a pipe."""
    if wide:
        return safe_console(width=UNLIMITED)
    return safe_console() if sys.stdout.isatty() else safe_console(width=WIDTH)


def safe_console(**options: Any) -> "Console":
    """Return a console on which names from files cannot move the cursor or change colors."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*arguments, **keywords):
                # the codes of rich itself are in the style, not in the text
                shown = text if control else UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
                yield Segment(shown, style, control)

    return SafeConsole(**options)


def as_text(report: Report, *, width: int = WIDTH) -> str:
    """Return the headline, the table and the remarks as plain text."""
    console = safe_console(file=StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        print_report(report, console)
    return captured.get().rstrip("\n") + "\n"


def print_report(report: Report, console: "Console") -> None:
    """Print the headline, the table and the remarks."""
    from rich.text import Text

    console.print(Text(report.headline()))
    console.print(report.table(width=console.width))
    for kind, sentence in report.remarks():
        console.print(Text.assemble((f"{kind}: ", "yellow"), sentence))


def as_json_text(report: Report) -> str:
    """Return everything as JSON."""
    return json.dumps(report.as_json(), indent=1, allow_nan=False, default=str) + "\n"


def as_csv(report: Report) -> str:
    """Return one line per number, separated by commas."""
    return report.to_dataframe().write_csv()


def as_html(report: Report) -> str:
    """Return a page for a browser: one file that needs nothing else."""
    html: str = import_module("incognita.report").html_of(report)  # pages stand above results
    return html


FORMATS: dict[str, Callable[[Report], str]] = {
    ".json": as_json_text,
    ".csv": as_csv,
    ".txt": as_text,
    ".html": as_html,
}
