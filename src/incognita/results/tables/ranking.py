"""The ranking of methods on a classifier as a table for the terminal."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from incognita.errors import UnknownNameError
from incognita.metrics.measure import Difference
from incognita.results.method_result import Cost, GridPoint, MethodResult
from incognita.results.tables.layout import Column, Layout, fit, names

if TYPE_CHECKING:
    from incognita.results.evaluation import Evaluation

COST, MISTAKES, FPR, INTERVALS = "cost", "mistakes", "FPR@95", "intervals"
DETAILS = (COST, MISTAKES, FPR, INTERVALS)  # what a narrow screen leaves out, in this order
MEANINGS = {
    FPR: "FPR at 95 % recall of the unknown",
    INTERVALS: "± half of the 95 % bootstrap interval over images",
    "": "= not significantly worse than the best",
    MISTAKES: "mistakes: AUROC of detecting misclassified known images",
    COST: "passes: forward+backward per image; µs per image and bytes without the network",
}


def evaluation_table(evaluation: "Evaluation", *, width: int = 156) -> Group:
    """Lay out the ranking of an evaluation."""
    gaps = {title: evaluation.gap_to_best(title) for title in evaluation.ranking()}
    return ranking_table(evaluation.distinct_results, evaluation.groups, gaps, width=width)


def further_tables(evaluation: "Evaluation", *, width: int = 156) -> Group | None:
    """Lay out default and tuned parameters side by side; None if no search changed any."""
    methods = evaluation.methods
    tuned = [record for record in evaluation.distinct_results if record.title.tuned]
    pairs = [(methods[record.method], record) for record in tuned if record.method in methods]
    return search_table(pairs, evaluation.groups, width=width) if pairs else None


def ranking_table(
    results: Sequence[MethodResult],
    groups: Sequence[str],
    gaps: Mapping[str, Difference],
    *,
    width: int = 156,
) -> Group:
    """Lay out one row per method, best first.

    A narrow screen leaves out the cost, then mistakes, FPR and intervals.
    """

    def build(left_out: Collection[str]) -> Layout:
        units = [_group_columns(results, group, left_out) for group in groups]
        units.append([_gaps(results, gaps)])
        if MISTAKES not in left_out:
            cells = [_percent(result, "auroc", "misclassified") for result in results]
            units.append([Column("mistakes\nAUROC ↑", cells)])
        if COST not in left_out:
            units.append(_cost_columns(results))
        return Layout(_places_and_names(results), units)

    return fit(build, DETAILS, width, caption=_caption, title="the ranking")


def _caption(left_out: Collection[str]) -> str:
    meanings = [meaning for detail, meaning in MEANINGS.items() if detail not in left_out]
    return "; ".join(["percent; ↑ higher is better, ↓ lower is better", *meanings])


def _places_and_names(results: Sequence[MethodResult]) -> list[Column]:
    places = [str(place) for place in range(1, len(results) + 1)]
    titles = [Text(result.title, style="" if k else "bold") for k, result in enumerate(results)]
    return [Column("#", places, style="dim"), names("method", titles)]


def _group_columns(
    results: Sequence[MethodResult], group: str, left_out: Collection[str]
) -> list[Column]:
    with_bounds = INTERVALS not in left_out
    above = group.replace(" ", "\n")
    cells = [_percent(result, "auroc", group, with_bounds=with_bounds) for result in results]
    columns = [Column("AUROC ↑", cells, above)]
    if FPR not in left_out:
        cells = [_percent(result, "fpr_at_95_unknown_recall", group) for result in results]
        columns.append(Column("FPR@95 ↓", cells, above))
    return columns


def _gaps(results: Sequence[MethodResult], gaps: Mapping[str, Difference]) -> Column:
    cells = ["", *(_gap(gaps[result.title]) for result in results[1:])]
    return Column("behind\nthe best", cells[: len(results)])


def _cost_columns(results: Sequence[MethodResult]) -> list[Column]:
    rows = [_cost(result.cost) for result in results]
    titles = ("passes", "fit s", "µs", "bytes")
    return [Column(title, [row[k] for row in rows], style="dim") for k, title in enumerate(titles)]


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
    pairs: Sequence[tuple[MethodResult, MethodResult]], groups: Sequence[str], *, width: int = 156
) -> Group:
    """Lay out default and tuned AUROC on validation data and on each test group."""
    caption = "AUROC in percent: with default parameters → with those chosen on validation data"
    curves = [tuned.search.curve if tuned.search else () for _, tuned in pairs]
    defined = [[point for point in curve if point.auroc is not None] for curve in curves]
    best = [
        max(points, key=lambda point: point.auroc or 0.0, default=curve[0])
        for points, curve in zip(defined, curves, strict=True)
    ]
    chosen = [
        Text(", ".join(f"{name}={value}" for name, value in point.parameters.items()))
        for point in best
    ]
    validation = [
        f"{_of_point(curve[0])} → {_of_point(point)}"
        for curve, point in zip(curves, best, strict=True)
    ]
    columns = [
        Column("points", [str(len(points)) for points in defined]),
        Column("validation", validation),
        *(
            Column(group, [" → ".join(_percent(r, "auroc", group) for r in pair) for pair in pairs])
            for group in groups
        ),
    ]
    methods = names("method", [Text(default.method) for default, _ in pairs])
    layout = Layout([methods, names("chosen", chosen)], [[column] for column in columns])
    return fit(lambda _: layout, (), width, caption=lambda _: caption, title="the search")


def _of_point(point: GridPoint) -> str:
    return "-" if point.auroc is None else f"{100 * point.auroc:.1f}"
