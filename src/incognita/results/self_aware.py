"""The report on a self-aware detector: DAQ, what it is made of, and what qualifies it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.files import load_json
from incognita.metrics.catalog import get_metric
from incognita.results.export import WIDTH, Report, save_text
from incognita.results.result import Result, Split

if TYPE_CHECKING:
    from rich.console import RenderableType

# the first rows of the table: the group of the images, and the metric
_ROWS = (
    ("all", "detection_awareness_quality"),
    ("unknown", "balanced_accuracy"),
    ("unknown", "known_accepted"),
    ("unknown", "unknown_rejected"),
    *(
        (group, metric)
        for group in ("known", "shifted")
        for metric in (
            "in_distribution_quality",
            "laece",
            "lrp",
            "lrp_localization",
            "lrp_false_positive",
            "lrp_false_negative",
        )
    ),
)


@dataclass(frozen=True, repr=False)
class SelfAwareReport(Report):
    """Results of a self-aware detector, and notes.

    Args:
        results: One record per metric and set of images.
        notes: What was left out or looks wrong.
        inputs: What it was computed from: files, hashes, options.
        before: The same of the detector as it is, where that was measured.
        study: The tables that show why it is as good as it is, where they were measured.
        pictures: The folder with pictures, where they were drawn.
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Result, ...] = ()
    study: "SelfAwareStudy | None" = None
    pictures: Path | None = None

    def __repr__(self) -> str:
        return f"SelfAwareReport({self._awareness()}, {len(self.results)} results)"

    def _awareness(self) -> str:
        daq = (Split("all"), "detection_awareness_quality")
        now, before = (_by_place(results).get(daq) for results in (self.results, self.before))
        shown = "no DAQ" if now is None else f"DAQ {_percent(now)}"
        return shown if before is None else f"{shown}, {_percent(before)} before"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "SelfAwareReport":
        """Load report.json of a run, with the study and the pictures beside it if they are there.

        Args:
            path: The file, or the folder it is in.
        """
        file = Path(path) / "report.json" if Path(path).is_dir() else Path(path)
        record = load_json(file)
        study, pictures = file.parent / "study" / "study.json", file.parent / "pictures"
        try:
            results, before = (
                tuple(map(Result.from_json, record[name])) for name in ("results", "before")
            )
            notes, inputs = tuple(map(str, record["notes"])), dict(record["inputs"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidDataError):
                raise
            raise InvalidDataError(
                f"Expected the report of a self-aware detector in {file}: {error}."
            ) from error
        return cls(
            results,
            notes,
            inputs,
            before,
            SelfAwareStudy.load(study) if study.is_file() else None,
            pictures if pictures.is_dir() else None,
        )

    @property
    def is_complete(self) -> bool:
        """Whether no set is missing and no image failed."""
        return not self.inputs.get("missing") and not self.inputs.get("failed_images")

    def get(self, metric: str, split: str = "all") -> Result:
        """Return one result."""
        for result in self.results:
            if (result.metric, result.split) == (metric, split):
                return result
        splits = [str(result.split) for result in self.results if result.metric == metric]
        if not splits:
            raise UnknownNameError(
                f"No result is called {metric!r}. Choose one of: "
                f"{', '.join(dict.fromkeys(result.metric for result in self.results))}."
            )
        raise UnknownNameError(f"{metric} has no value on {split!r}. Splits: {', '.join(splits)}.")

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {
            "results": [result.as_json() for result in self.results],
            "before": [result.as_json() for result in self.before],
            "notes": list(self.notes),
            "inputs": dict(self.inputs),
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one record per metric and set of images."""
        return [result.as_row() for result in self.results]

    def headline(self) -> str:
        """Return DAQ in one line."""
        named = [str(self.inputs[key]) for key in ("model", "benchmark") if key in self.inputs]
        return f"{' on '.join(named)}: {self._awareness()}" if named else repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes."""
        return [("note", note) for note in self.notes]

    def summary(self) -> str:
        """Return DAQ and the parts of it, one per line, and the notes."""
        lines = [f"{_title(result)}  {_percent(result)} %" for result in self.main_results()]
        return "\n".join([self.headline(), *lines, *(f"note: {note}" for note in self.notes)])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the table that `rich` prints: one row per metric."""
        from rich import box
        from rich.table import Table

        del width  # four narrow columns fit every screen
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption=self._caption)
        table.add_column("images", no_wrap=True)
        table.add_column("metric", no_wrap=True)
        for name in (["before"] if self.before else []) + ["%", "95 %"]:
            table.add_column(name, justify="right", no_wrap=True)
        rest = [result for result in self.results if result not in self.main_results()]
        last = None
        for result in [*self.main_results(), *rest]:
            if last is not None and result.split.group != last:  # type: ignore[attr-defined]
                table.add_section()
            last = result.split.group  # type: ignore[attr-defined]
            table.add_row(*self._row(result))
        return table

    @property
    def _caption(self) -> str:
        return f"{_CAPTION}\n{_BEFORE}" if self.before else _CAPTION

    def _row(self, result: Result) -> list[str]:
        info = get_metric(result.metric)
        cells = [str(result.split), f"{info.title} {info.direction.arrow}"]
        if self.before:
            earlier = _by_place(self.before).get((result.split, result.metric))
            cells.append("" if earlier is None else _percent(earlier))
        return [*cells, _percent(result), _bounds(result)]

    def main_results(self) -> list[Result]:
        """Return DAQ and the parts of it, in the order of the table."""
        found = _by_place(self.results)
        return [found[row] for row in _ROWS if row in found]


def _by_place(results: Iterable[Result]) -> dict[tuple[str, str], Result]:
    return {(result.split, result.metric): result for result in results}


_CAPTION = "↑ higher is better, ↓ lower is better; - undefined; bootstrap interval over images"
_BEFORE = "before: boxes above 0.5, not calibrated, 95 % of the validation images accepted"


def _title(result: Result) -> str:
    info = get_metric(result.metric)
    return f"{info.title} {info.direction.arrow} ({result.split})"


def _percent(result: Result) -> str:
    return "-" if math.isnan(result.value) else f"{100 * result.value:.1f}"


def _bounds(result: Result) -> str:
    if math.isnan(result.low):
        return "" if math.isnan(result.value) else result.few.strip()
    return f"{100 * result.low:.1f} to {100 * result.high:.1f}"


@dataclass(frozen=True)
class StudyTable:
    """One table of a study.

    Args:
        name: Of the file it is saved to.
        title: What it shows, and the table of the paper it corresponds to.
        keys: The columns that tell rows apart; every other one is a number.
        rows: One record per row, all with the same columns; None where a number is undefined. A
            column `reason` says why, where a whole row was not measured.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.rows[0]) if self.rows else self.keys

    def as_csv(self) -> str:
        """Return one line per row, separated by commas."""
        import polars

        names = None if self.rows else list(self.keys)
        return polars.DataFrame(self.rows, schema=names, infer_schema_length=None).write_csv()


@dataclass(frozen=True, repr=False)
class SelfAwareStudy(Report):
    """The tables that show why a self-aware detector is as good as it is.

    Args:
        tables: In the order of the paper.
        notes: What could not be measured, and why.
        inputs: What it was computed from: files, options.
    """

    tables: tuple[StudyTable, ...]
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        n_rows = sum(len(table.rows) for table in self.tables)
        return f"SelfAwareStudy({len(self.tables)} tables, {n_rows} rows)"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "SelfAwareStudy":
        """Load study.json of a folder that `save_folder` wrote."""
        record = load_json(Path(path))
        try:
            tables = tuple(
                StudyTable(name, table["title"], tuple(table["keys"]), tuple(table["rows"]))
                for name, table in record["tables"].items()
            )
            return cls(tables, tuple(map(str, record["notes"])), dict(record["inputs"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidDataError(f"Expected the tables of a study in {path}: {error}.") from error

    def get(self, name: str) -> StudyTable:
        """Return one table."""
        for table in self.tables:
            if table.name == name:
                return table
        names = ", ".join(table.name for table in self.tables)
        raise UnknownNameError(f"No table is called {name!r}. Choose one of: {names}.")

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        tables = {
            table.name: {"title": table.title, "keys": table.keys, "rows": table.rows}
            for table in self.tables
        }
        return {"tables": tables, "notes": list(self.notes), "inputs": dict(self.inputs)}

    def records(self) -> list[dict[str, Any]]:
        """Return one record per number: its table, its row, the metric and the value."""
        return [
            {
                "table": table.name,
                "row": ", ".join(f"{key}={row[key]}" for key in table.keys),
                "metric": metric,
                "value": value,
            }
            for table in self.tables
            for row in table.rows
            for metric, value in row.items()
            if metric not in (*table.keys, _REASON)
        ]

    def headline(self) -> str:
        """Return the number of tables in one line."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes."""
        return [("note", note) for note in self.notes]

    def summary(self) -> str:
        """Return the ablation, one line per row, and the notes."""
        lines = [
            f"DAQ {_shown('daq', row['daq'])} %  ({', '.join(str(row[k]) for k in table.keys)})"
            for table in self.tables
            if table.name == "ablation"
            for row in table.rows
        ]
        return "\n".join([self.headline(), *lines, *(f"note: {note}" for note in self.notes)])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the tables that `rich` prints; of a long one its number of rows."""
        from rich.console import Group

        del width  # the widest table has eleven narrow columns
        return Group(*(_study_table(table) for table in self.tables))

    def save_folder(self, folder: str | PathLike[str]) -> list[Path]:
        """Save one CSV file per table and everything as study.json; return the files."""
        folder = Path(folder)
        paths = [folder / name for name in self.file_names()]
        for path, table in zip(paths, self.tables, strict=False):
            save_text(path, table.as_csv())
        self.save(paths[-1])
        return paths

    def file_names(self) -> list[str]:
        """Return the names of the files that `save_folder` writes, study.json the last."""
        return [*(f"{table.name}.csv" for table in self.tables), "study.json"]


_REASON = "reason"
_LONGEST = 40  # rows of a table that is printed
# columns that are not shares; all others are printed in percent
_PLAIN = {
    "n_images",
    "n_detections",
    "n_objects",
    "detections_per_image",
    "u",
    "fitted",
    "oracle",
    "offset",
    "tau",
    "low",
    "high",
}


def _study_table(table: StudyTable) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if len(table.rows) > _LONGEST:
        return Text(f"{table.title}: {len(table.rows)} rows, in {table.name}.csv\n")
    shown = Table(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    names = [name for name in table.columns if name != _REASON]  # which the notes have
    for name in names:
        shown.add_column(name, justify="left" if name in table.keys else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(_shown(name, row[name]) for name in names))
    return shown


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if name in _PLAIN else f"{100 * value:.1f}"
