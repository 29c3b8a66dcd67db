"""Output formats of a report: to add one, write a function and a line in `FORMATS`."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import InvalidDataError
from incognita.files import replacing
from incognita.registry import need

if TYPE_CHECKING:
    import pandas
    import polars
    from rich.console import RenderableType

WIDTH = 156  # columns of a table in a log, a pipe or a file


class Report(ABC):
    """Results that can be printed, saved and turned into a data frame.

    `print(report)` prints its table.
    """

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return one record per number."""

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

        return polars.DataFrame(self.rows(), infer_schema_length=None)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return one row per number as a pandas data frame."""
        found: pandas.DataFrame = need("pandas", extra="pandas").DataFrame(self.rows())
        return found

    def save(self, path: str | Path) -> None:
        """Save the report; the suffix chooses the format (see `FORMATS`), JSON by default.

        An existing file is replaced as a whole or not at all.
        """
        path = Path(path)
        text = FORMATS.get(path.suffix.lower(), as_json_text)(self)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as unfinished:
                unfinished.write_text(text)
        except OSError as error:
            shown = str(path) if len(str(path)) < 120 else f"{str(path)[:120]}…"
            raise InvalidDataError(
                f"{shown} cannot be written: {error.strerror}. Choose another file."
            ) from error


def as_text(report: Report, *, width: int = WIDTH) -> str:
    """Return the table as plain text."""
    from rich.console import Console

    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(report.table(width=width))
    return captured.get().rstrip("\n") + "\n"


def as_json_text(report: Report) -> str:
    """Return everything as JSON."""
    return json.dumps(report.as_json(), indent=1, allow_nan=False, default=str) + "\n"


def as_csv(report: Report) -> str:
    """Return one line per number, separated by commas."""
    return report.to_dataframe().write_csv()


FORMATS: dict[str, Callable[[Report], str]] = {
    ".json": as_json_text,
    ".csv": as_csv,
    ".txt": as_text,
}
