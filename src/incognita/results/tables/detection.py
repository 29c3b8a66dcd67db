"""The evaluation of a detector as tables for the terminal."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from incognita.metrics.catalog import get_metric
from incognita.results.analysis import (
    BOTH_FAMILIES,
    Correlations,
    FamilyMean,
    value_of,
)
from incognita.results.method_result import MethodResult
from incognita.results.result import ALL_BOXES, Split
from incognita.results.tables.layout import Column, Layout, fit, names

if TYPE_CHECKING:
    from incognita.results.evaluation import Evaluation

CAPTION = (
    "percent; ↑ higher is better, ↓ lower is better. AUROC and FPR (at 95 % known recall) separate "
    "boxes on known images from boxes on unknown ones; AP_U, P_U, R_U and nOSE compare boxes "
    "called unknown with real objects. nOSE by objects, as the paper defines it"
)
BY_BOX_CAPTION = "; /box: nOSE by boxes with the labels and the threshold of the paper's code"
SEEN = (
    "; no prediction: images without a box above t*; undetected: unknown objects that no box "
    "overlaps (FN^D); AUROC and FPR see neither"
)
BOUNDS = ". ± half of the 95 % bootstrap interval over images"
COVERAGE_CAPTION = (
    "no prediction: images without a box above t*; undetected: unknown objects that no box "
    "overlaps (FN^D). AUROC and FPR see neither"
)
BY_BOX, INTERVALS = "nOSE by boxes", "intervals"
DETAILS = (BY_BOX, INTERVALS)  # what a screen leaves out that is too narrow for one group


def evaluation_table(evaluation: "Evaluation", *, width: int = 156) -> Group:
    """Lay out coverage, both families of metrics, and the mixed sets."""
    results = evaluation.distinct_results
    splits = dict.fromkeys(Split.parse(result.split) for result in results[0].results)
    unknown = [split for split in splits if split.set and split.group in evaluation.groups]
    mixed = [Split(name, "all") for name in evaluation.mixed]
    covered = [Split("known"), *unknown, *mixed]
    parts: list[RenderableType] = [coverage_table(results[0], covered, width=width)]
    if evaluation.groups:
        parts.append(detection_table(results, evaluation.groups, width=width))
    parts += [mixed_table(results, name, width=width) for name in evaluation.mixed]
    return Group(*parts)


def further_tables(evaluation: "Evaluation", *, width: int = 156) -> Group | None:
    """Lay out family means and correlations; None if there are too few methods for either."""
    if len(evaluation.methods) < 3 or not evaluation.groups:
        return None
    return Group(
        family_table(evaluation.family_means(), evaluation.groups, width=width),
        correlation_table(evaluation.correlations(), width=width),
    )


def detection_table(
    results: Sequence[MethodResult], groups: Sequence[str], *, width: int = 156
) -> Group:
    """Lay out one row per method with both families of metrics, the groups side by side.

    A narrow screen gets several tables below each other.
    """
    has_bounds = any(_bounds(result, group) for result in results for group in groups)
    details = DETAILS if has_bounds else DETAILS[:1]

    def build(left_out: Collection[str]) -> Layout:
        units = [_group_columns(results, group, left_out) for group in groups]
        return Layout([_methods(results)], units, padding=(0, 0))

    def caption(left_out: Collection[str]) -> str:
        by_box = "" if BY_BOX in left_out else BY_BOX_CAPTION
        bounds = BOUNDS if has_bounds and INTERVALS not in left_out else ""
        return CAPTION + by_box + SEEN + bounds

    return fit(build, details, width, caption=caption, title="metrics of boxes", stacks=True)


def _methods(results: Sequence[MethodResult]) -> Column:
    titles = [Text(result.title, style="" if k else "bold") for k, result in enumerate(results)]
    return names("method", titles)


def _group_columns(
    results: Sequence[MethodResult], group: str, left_out: Collection[str]
) -> list[Column]:
    above = _coverage(results[0], group)
    columns = [_metric_column(results, metric, group, above) for metric in BOTH_FAMILIES]
    if INTERVALS not in left_out:
        first = columns[0]
        bounds = [_bounds(result, group) for result in results]
        cells = [f"{cell}{bound}" for cell, bound in zip(first.cells, bounds, strict=True)]
        columns[0] = Column(first.title, cells, above)
    if BY_BOX not in left_out:
        values = [value_of(r, "normalized_open_set_error", group, "fmiyc") for r in results]
        columns.append(Column("/box↓", list(map(_percent, values)), above, style="dim"))
    return columns


def _metric_column(results: Sequence[MethodResult], metric: str, group: str, above: str) -> Column:
    title = f"{_title(metric)}{get_metric(metric).direction.arrow}"
    return Column(title, [_percent(value_of(r, metric, group)) for r in results], above)


def _coverage(result: MethodResult, group: str) -> str:
    """Format what AUROC cannot see, the same for every method, as a header above it."""
    without = value_of(result, "images_without_detection", group)
    undetected = value_of(result, "unknown_objects_without_detection", group)
    lines = (group, "no prediction", _percent(without), "undetected", _percent(undetected))
    return "\n".join(lines)


def _bounds(result: MethodResult, group: str) -> str:
    """Format half of the interval of AUROC, or the number of images if they are too few for one."""
    found = [r for r in result.results if (r.metric, r.split) == ("auroc", group)]
    if not found or math.isnan(found[0].low):
        return found[0].few if found else ""
    return f" ±{50 * (found[0].high - found[0].low):.1f}"


def coverage_table(result: MethodResult, splits: Sequence[str], *, width: int = 156) -> Group:
    """Lay out what the boxes leave out before any method scores them."""
    without = [result.get("images_without_detection", split) for split in splits]
    undetected = [result.get("unknown_objects_without_detection", split) for split in splits]
    columns = [
        Column("images", [f"{found.support.get('images', 0):,}" for found in without]),
        Column("unknown objects", [f"{found.support.get('objects', 0):,}" for found in undetected]),
        Column("no prediction ↓", [_percent(found.value) for found in without]),
        Column("undetected ↓", [_percent(found.value) for found in undetected]),
    ]
    layout = Layout([names("images of", [Text(split) for split in splits])], [columns])
    return _fit(layout, width, COVERAGE_CAPTION, "the coverage")


def _fit(layout: Layout, width: int, caption: str, title: str) -> Group:
    """Fit a layout of which nothing is left out."""
    return fit(lambda _: layout, (), width, caption=lambda _: caption, title=title, stacks=True)


def family_table(means: Iterable[FamilyMean], groups: Sequence[str], *, width: int = 156) -> Group:
    """Lay out means over families of methods, one row per family and group."""
    rows: dict[tuple[str, str], dict[str, FamilyMean]] = {}
    for mean in means:
        rows.setdefault((mean.group, mean.family), {})[mean.metric] = mean
    keys = sorted(rows, key=lambda key: groups.index(key[0]))
    firsts = {next(key for key in keys if key[0] == group) for group, _ in keys}
    columns = [
        Column("n", [str(max(m.n_methods for m in rows[key].values())) for key in keys]),
        *(
            Column(
                f"{_title(metric)} {get_metric(metric).direction.arrow}",
                [_percent(rows[key][metric].value) for key in keys],
            )
            for metric in BOTH_FAMILIES
        ),
    ]
    unknown = names("unknown", [Text(key[0] if key in firsts else "") for key in keys])
    families = names("family of methods", [Text(family) for _, family in keys])
    caption = "means over the methods of a family, in percent; n: methods"
    return _fit(Layout([unknown, families], [columns]), width, caption, "means over families")


_MIXED = (
    "map_known", "unknown_ap", "unknown_precision", "unknown_recall", "open_set_error",
    "normalized_open_set_error",
)  # fmt: skip
# known-only images have no unknown objects, and the reverse
_OF_SPLIT = {"all": _MIXED, "known-only": _MIXED[:1], "unknown-only": _MIXED[1:]}
# papers on open-set detectors leave no box out
_OF_ALL_BOXES = {"all": ("unknown_ap", "ap_all"), "unknown-only": ("ap_all", "ap_superclass")}


def mixed_table(results: Sequence[MethodResult], name: str, *, width: int = 156) -> Group:
    """Lay out a mixed set, with known and unknown objects in one image, split by split.

    A narrow screen gets one table per split.
    """
    units = [
        [_mixed_column(results, metric, name, split) for metric in metrics]
        for split, metrics in _OF_SPLIT.items()
    ]
    units += [
        [_mixed_column(results, metric, name, split, ALL_BOXES) for metric in metrics]
        for split, metrics in _OF_ALL_BOXES.items()
    ]
    caption = (
        f"{name}: known beside unknown objects; percent, A-OSE is a count of objects; all boxes: "
        f"also those below t*"
    )
    return _fit(Layout([_methods(results)], units), width, caption, f"metrics of {name}")


def _mixed_column(
    results: Sequence[MethodResult],
    metric: str,
    name: str,
    split: str,
    setting: str | None = None,
) -> Column:
    title = f"{_title(metric)} {get_metric(metric).direction.arrow}"
    images = Split(name, split, setting)
    cells = [_shown(result, metric, images) for result in results]
    return Column(title, cells, f"{setting}\n{split}" if setting else split)


def _shown(result: MethodResult, metric: str, split: str) -> str:
    """Format a number, with the number of images behind it if they are few."""
    if math.isnan(value_of(result, metric, split)):
        return "-"
    found = result.get(metric, split)
    value = f"{found.value:.0f}" if get_metric(metric).is_count else _percent(found.value)
    return value + found.few


def correlation_table(correlations: Correlations, *, width: int = 156) -> Group:
    """Lay out the correlation of each pair of metrics; the stronger, the brighter."""
    n = int(correlations.n_pairs.max()) if correlations.n_pairs.size else 0
    titles = [_title(metric) for metric in correlations.metrics]
    columns = [
        Column(title, [_shaded(value) for value in column])
        for title, column in zip(titles, correlations.values.T.tolist(), strict=True)
    ]
    caption = f"Pearson correlation of the metrics over {n} pairs of method and set"
    layout = Layout([names("", [Text(title) for title in titles])], [columns])
    return _fit(layout, width, caption, "correlations of metrics")


def _shaded(value: float) -> Text:
    if math.isnan(value):
        return Text("-", style="dim")
    style = "bold" if abs(value) >= 0.7 else "" if abs(value) >= 0.3 else "dim"
    return Text(f"{value:.2f}", style=f"{style} {'red' if value < 0 else 'green'}".strip())


def _title(metric: str) -> str:
    return "FPR" if metric.startswith("fpr") else get_metric(metric).title


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"
