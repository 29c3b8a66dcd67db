"""The report on a self-aware detector: DAQ, what it is made of, and what qualifies it."""

import math
from collections.abc import Iterable, Mapping
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
        before: The same of the detector as it is, where that was measured.
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Result, ...] = ()

    def __repr__(self) -> str:
        return f"SelfAwareReport({self._awareness()}, {len(self.results)} results)"

    def _awareness(self) -> str:
        daq = (Split("all"), "detection_awareness_quality")
        now, before = (_by_place(results).get(daq) for results in (self.results, self.before))
        shown = "no DAQ" if now is None else f"DAQ {_percent(now)}"
        return shown if before is None else f"{shown}, {_percent(before)} before"

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
        lines = [f"{_title(result)}  {_percent(result)} %" for result in self._main()]
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
        rest = [result for result in self.results if result not in self._main()]
        last = None
        for result in [*self._main(), *rest]:
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

    def _main(self) -> list[Result]:
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
