"""The report on a self-aware detector: DAQ, what it is made of, and what qualifies it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from incognita.errors import UnknownNameError
from incognita.metrics.catalog import get_metric
from incognita.results.export import WIDTH, Report
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
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        found = {(result.split, result.metric): result for result in self.results}
        daq = found.get((Split("all"), "detection_awareness_quality"))
        shown = "no DAQ" if daq is None else f"DAQ {_percent(daq)}"
        return f"SelfAwareReport({shown}, {len(self.results)} results)"

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
            "notes": list(self.notes),
            "inputs": dict(self.inputs),
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one record per metric and set of images."""
        return [result.as_row() for result in self.results]

    def headline(self) -> str:
        """Return DAQ in one line."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes."""
        return [("note", note) for note in self.notes]

    def summary(self) -> str:
        """Return DAQ and the parts of it, one per line, and the notes."""
        lines = [f"{_title(result)}  {_percent(result)} %" for result in self._main()]
        return "\n".join([self.headline(), *lines, *(f"note: {note}" for note in self.notes)])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the table that `rich` prints: one row per metric."""
        from rich import box
        from rich.table import Table

        del width  # four narrow columns fit every screen
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption=_CAPTION)
        for name, justify in (("images", "left"), ("metric", "left"), ("%", "right")):
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        table.add_column("95 %", justify="right", no_wrap=True)
        rest = [result for result in self.results if result not in self._main()]
        last = None
        for result in [*self._main(), *rest]:
            if last is not None and result.split.group != last:  # type: ignore[attr-defined]
                table.add_section()
            last = result.split.group  # type: ignore[attr-defined]
            info = get_metric(result.metric)
            name = f"{info.title} {info.direction.arrow}"
            table.add_row(str(result.split), name, _percent(result), _bounds(result))
        return table

    def _main(self) -> list[Result]:
        found = {(result.split, result.metric): result for result in self.results}
        return [found[row] for row in _ROWS if row in found]


_CAPTION = "↑ higher is better, ↓ lower is better; - undefined; bootstrap interval over images"


def _title(result: Result) -> str:
    info = get_metric(result.metric)
    return f"{info.title} {info.direction.arrow} ({result.split})"


def _percent(result: Result) -> str:
    return "-" if math.isnan(result.value) else f"{100 * result.value:.1f}"


def _bounds(result: Result) -> str:
    if math.isnan(result.low):
        return "" if math.isnan(result.value) else result.few.strip()
    return f"{100 * result.low:.1f} to {100 * result.high:.1f}"
