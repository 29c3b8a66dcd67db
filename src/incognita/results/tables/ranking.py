"""The ranking of methods on a classifier as a table for the terminal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from incognita.errors import UnknownNameError
from incognita.metrics.measure import Difference
from incognita.results.method_result import Cost, MethodResult

if TYPE_CHECKING:
    from incognita.results.evaluation import Evaluation

CAPTION = (
    "percent; ↑ higher is better, ↓ lower is better; FPR at 95 % recall of the unknown; ± half of "
    "the 95 % bootstrap interval over images; = not significantly worse than the best; mistakes: "
    "AUROC of detecting misclassified known images; passes: forward+backward per image; µs per "
    "image and bytes without the network"
)
MEDIUM = 110


def evaluation_table(evaluation: "Evaluation", *, width: int = 156) -> Table:
    """Lay out the ranking of an evaluation."""
    gaps = {title: evaluation.gap_to_best(title) for title in evaluation.ranking()}
    return ranking_table(evaluation.results, evaluation.groups, gaps, width=width)


def further_tables(evaluation: "Evaluation") -> Table | None:
    """Lay out default and tuned parameters side by side; None if nothing was searched."""
    methods = evaluation.methods
    tuned = [record for record in evaluation.results if record.title.tuned]
    pairs = [(methods[record.method], record) for record in tuned if record.method in methods]
    return search_table(pairs, evaluation.groups) if pairs else None


def ranking_table(
    results: Sequence[MethodResult],
    groups: Sequence[str],
    gaps: Mapping[str, Difference],
    *,
    width: int = 156,
) -> Table:
    """Lay out one row per method, best first.

    A narrow screen drops the columns of the cost, then the intervals.
    """
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption=CAPTION, caption_justify="left")
    is_wide = width >= MEDIUM
    table.add_column("#", justify="right", style="dim", no_wrap=True, min_width=2)
    table.add_column("method", no_wrap=True)
    for group in groups:
        title = group.replace(" ", "\n")
        table.add_column(f"{title}\nAUROC ↑", justify="right", no_wrap=True)
        table.add_column("\nFPR@95 ↓", justify="right", no_wrap=True)
    table.add_column("behind\nthe best", justify="right", no_wrap=True)
    table.add_column("mistakes\nAUROC ↑", justify="right", no_wrap=True)
    for title in ("passes", "fit s", "µs", "bytes") if is_wide else ():
        table.add_column(title, justify="right", style="dim", no_wrap=True)
    for place, result in enumerate(results, start=1):
        table.add_row(
            str(place),
            Text(result.title, style="bold" if place == 1 else ""),
            *_group_cells(result, groups, with_bounds=is_wide),
            _gap(gaps[result.title]) if place > 1 else "",
            _percent(result, "auroc", "misclassified"),
            *(_cost(result.cost) if is_wide else ()),
        )
    return table


def _group_cells(
    result: MethodResult, groups: Sequence[str], *, with_bounds: bool
) -> Iterator[str]:
    for group in groups:
        yield _percent(result, "auroc", group, with_bounds=with_bounds)
        yield _percent(result, "fpr_at_95_unknown_recall", group)


def _percent(result: MethodResult, metric: str, split: str, *, with_bounds: bool = False) -> str:
    try:
        found = result.get(metric, split)
    except UnknownNameError:
        return "-"
    if math.isnan(found.value):
        return "-"
    if not with_bounds or math.isnan(found.low):
        return f"{100 * found.value:.1f}" + (found.few if metric == "auroc" else "")
    return f"{100 * found.value:.1f} ±{50 * (found.high - found.low):.1f}"


def _gap(difference: Difference) -> str:
    """Format the gap to the best; `=` marks a method whose interval includes zero."""
    sign = " =" if not math.isnan(difference.high) and difference.high >= 0 else "  "
    return f"{100 * difference.value:.1f}{sign}"


def _cost(cost: Cost) -> list[str]:
    passes = f"{cost.forwards}+{cost.backwards}" if cost.backwards else str(cost.forwards)
    return [
        passes,
        f"{cost.fit_seconds:.2f}",
        f"{cost.microseconds_per_sample:.1f}",
        _bytes(cost.state_bytes),
    ]


def _bytes(n: int) -> str:
    """Format a size.

    >>> _bytes(0), _bytes(20_480), _bytes(5_300_000)
    ('0', '20 kB', '5 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.0f} {unit}"
    return str(n)


def search_table(
    pairs: Sequence[tuple[MethodResult, MethodResult]], groups: Sequence[str]
) -> Table:
    """Lay out default and tuned AUROC on validation data and on each test group."""
    caption = "AUROC in percent: with default parameters → with those chosen on validation data"
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption=caption, caption_justify="left")
    table.add_column("method", no_wrap=True)
    table.add_column("chosen")
    table.add_column("points", justify="right")
    for name in ("validation", *groups):
        table.add_column(name, justify="right", no_wrap=True)
    for default, tuned in pairs:
        curve = tuned.search.curve if tuned.search else ()
        points = [point for point in curve if point.auroc is not None]
        best = max(points, key=lambda point: point.auroc or 0.0, default=curve[0])
        chosen = ", ".join(f"{name}={value}" for name, value in best.parameters.items())
        cells = [f"{_percent(default, 'auroc', g)} → {_percent(tuned, 'auroc', g)}" for g in groups]
        on_validation = " → ".join(
            "-" if point.auroc is None else f"{100 * point.auroc:.1f}" for point in (curve[0], best)
        )
        table.add_row(default.method, chosen, str(len(points)), on_validation, *cells)
    return table
