"""The evaluation of a detector as tables for the terminal."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from incognita.metrics.catalog import get_metric
from incognita.results.analysis import (
    BOTH_FAMILIES,
    Correlations,
    FamilyMean,
    value_of,
)
from incognita.results.method_result import MethodResult
from incognita.results.result import Split

if TYPE_CHECKING:
    from incognita.results.evaluation import Evaluation

CAPTION = (
    "percent; ↑ higher is better, ↓ lower is better. AUROC and FPR (at 95 % known recall) separate "
    "boxes on known images from boxes on unknown ones; AP_U, P_U, R_U and nOSE compare boxes "
    "called unknown with real objects. nOSE by objects, as the paper defines it; /box: nOSE by "
    "boxes with the labels and the threshold of the paper's code"
)
SEEN = (
    "; no prediction: images without a box above t*; undetected: unknown objects that no box "
    "overlaps (FN^D); AUROC and FPR see neither"
)
BOUNDS = ". ± half of the 95 % bootstrap interval over images"
COVERAGE_CAPTION = (
    "no prediction: images without a box above t*; undetected: unknown objects that no box "
    "overlaps (FN^D). AUROC and FPR see neither"
)
_LINES = 5  # of the header above a metric: the group, and what AUROC cannot see
_BY_BOX = "\n" * _LINES + "/box↓"


def evaluation_table(evaluation: "Evaluation", *, width: int = 156) -> Group:
    """Lay out coverage, both families of metrics, and the mixed sets."""
    first = evaluation.results[0]
    splits = dict.fromkeys(Split.parse(result.split) for result in first.results)
    unknown = [split for split in splits if split.set and split.group in evaluation.groups]
    mixed = [Split(name, "all") for name in evaluation.mixed]
    parts: list[RenderableType] = [coverage_table(first, [Split("known"), *unknown, *mixed])]
    if evaluation.groups:
        parts.append(detection_table(evaluation.results, evaluation.groups, width=width))
    parts += [mixed_table(evaluation.results, name, width=width) for name in evaluation.mixed]
    return Group(*parts)


def further_tables(evaluation: "Evaluation") -> Group | None:
    """Lay out family means and correlations; None if there are too few methods for either."""
    if len(evaluation.methods) < 3 or not evaluation.groups:
        return None
    return Group(
        family_table(evaluation.family_means(), evaluation.groups),
        correlation_table(evaluation.correlations()),
    )


def detection_table(
    results: Sequence[MethodResult], groups: Sequence[str], *, width: int = 156
) -> Group:
    """Lay out one row per method with both families of metrics, the groups side by side.

    A narrow screen gets several tables below each other.
    """
    has_bounds = any(_bounds(result, group) for result in results for group in groups)
    tables: list[Table] = []
    for at_most in range(len(groups), 0, -1):
        blocks = [groups[k : k + at_most] for k in range(0, len(groups), at_most)]
        tables = [_block(results, block) for block in blocks]
        if all(_natural_width(table) <= width for table in tables):
            break  # otherwise names are folded
    tables[-1].caption = CAPTION + SEEN + (BOUNDS if has_bounds else "")
    return Group(*tables)


def _coverage(result: MethodResult, group: str) -> str:
    """Format what AUROC cannot see, the same for every method, as a header above it."""
    without = value_of(result, "images_without_detection", group)
    undetected = value_of(result, "unknown_objects_without_detection", group)
    lines = (group, "no prediction", _percent(without), "undetected", _percent(undetected))
    return "\n".join(lines)


def _natural_width(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum


def _bounds(result: MethodResult, group: str) -> str:
    """Format half of the interval of AUROC, or the number of images if they are too few for one."""
    found = [r for r in result.results if (r.metric, r.split) == ("auroc", group)]
    if not found or math.isnan(found[0].low):
        return found[0].few if found else ""
    return f" ±{50 * (found[0].high - found[0].low):.1f}"


def _block(results: Sequence[MethodResult], groups: Sequence[str]) -> Table:
    table = _table(padding=(0, 0))
    _add_names(table, "\n" * _LINES + "method")
    for group in groups:
        for place, metric in enumerate(BOTH_FAMILIES):
            arrow = get_metric(metric).direction.arrow
            above = _coverage(results[0], group) if place == 0 else "\n" * (_LINES - 1)
            title = _below(above, f"{_title(metric)}{arrow}")
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column(_BY_BOX, justify="right", no_wrap=True, style="dim")
    for place, result in enumerate(results):
        cells = [c for group in groups for c in _cells(result, group)]
        table.add_row(Text(result.title, style="bold" if place == 0 else ""), *cells)
    return table


def _cells(result: MethodResult, group: str) -> list[str]:
    cells = [_percent(value_of(result, metric, group)) for metric in BOTH_FAMILIES]
    cells[0] += _bounds(result, group)
    by_box = value_of(result, "normalized_open_set_error", group, "fmiyc")
    return [*cells, _percent(by_box)]


def coverage_table(result: MethodResult, splits: Sequence[str]) -> Table:
    """Lay out what the boxes leave out before any method scores them."""
    table = _table(COVERAGE_CAPTION)
    _add_names(table, "images of")
    for title in ("images", "unknown objects", "no prediction ↓", "undetected ↓"):
        table.add_column(title, justify="right", no_wrap=True)
    for split in splits:
        without = result.get("images_without_detection", split)
        undetected = result.get("unknown_objects_without_detection", split)
        table.add_row(
            Text(split),
            f"{without.support.get('images', 0):,}",
            f"{undetected.support.get('objects', 0):,}",
            _percent(without.value),
            _percent(undetected.value),
        )
    return table


def family_table(means: Iterable[FamilyMean], groups: Sequence[str]) -> Table:
    """Lay out means over families of methods, one row per family and group."""
    cells: dict[tuple[str, str], dict[str, FamilyMean]] = {}
    for mean in means:
        cells.setdefault((mean.group, mean.family), {})[mean.metric] = mean
    table = _table("means over the methods of a family, in percent; n: methods")
    _add_names(table, "unknown")
    _add_names(table, "family of methods")
    table.add_column("n", justify="right", no_wrap=True)
    for metric in BOTH_FAMILIES:
        arrow = get_metric(metric).direction.arrow
        table.add_column(f"{_title(metric)} {arrow}", justify="right", no_wrap=True)
    for group in groups:
        rows = {family: row for (at, family), row in cells.items() if at == group}
        for place, (family, row) in enumerate(rows.items()):
            n = max(mean.n_methods for mean in row.values())
            values = [_percent(row[metric].value) for metric in BOTH_FAMILIES]
            table.add_row(Text(group if place == 0 else ""), family, str(n), *values)
    return table


_MIXED = (
    "map_known", "unknown_ap", "unknown_precision", "unknown_recall", "open_set_error",
    "normalized_open_set_error",
)  # fmt: skip
# known-only images have no unknown objects, and the reverse
_OF_SPLIT = {"all": _MIXED, "known-only": _MIXED[:1], "unknown-only": _MIXED[1:]}


def mixed_table(results: Sequence[MethodResult], name: str, *, width: int = 156) -> Group:
    """Lay out a mixed set, with known and unknown objects in one image, split by split.

    A narrow screen gets one table per split.
    """
    tables = [_mixed_block(results, name, list(_OF_SPLIT))]
    if _natural_width(tables[0]) > width:
        tables = [_mixed_block(results, name, [split]) for split in _OF_SPLIT]
    caption = f"{escape(name)}: known beside unknown objects; percent, A-OSE is a count of objects"
    tables[-1].caption = caption
    return Group(*tables)


def _mixed_block(results: Sequence[MethodResult], name: str, splits: Sequence[str]) -> Table:
    table = _table()
    _add_names(table, "\nmethod")
    for split in splits:
        for place, metric in enumerate(_OF_SPLIT[split]):
            arrow = get_metric(metric).direction.arrow
            title = _below(split if place == 0 else "", f"{_title(metric)} {arrow}")
            table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        cells = [
            _shown(metric, value_of(result, metric, f"{name}/{split}"))
            for split in splits
            for metric in _OF_SPLIT[split]
        ]
        table.add_row(Text(result.title), *cells)
    return table


def _shown(metric: str, value: float) -> str:
    is_count = get_metric(metric).is_count and not math.isnan(value)
    return f"{value:.0f}" if is_count else _percent(value)


def correlation_table(correlations: Correlations) -> Table:
    """Lay out the correlation of each pair of metrics; the stronger, the brighter."""
    n = int(correlations.n_pairs.max()) if correlations.n_pairs.size else 0
    table = _table(f"Pearson correlation of the metrics over {n} pairs of method and set")
    table.add_column("", no_wrap=True)
    titles = [_title(metric) for metric in correlations.metrics]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for title, row in zip(titles, correlations.values.tolist(), strict=True):
        table.add_row(title, *(_shaded(value) for value in row))
    return table


def _shaded(value: float) -> Text:
    if math.isnan(value):
        return Text("-", style="dim")
    style = "bold" if abs(value) >= 0.7 else "" if abs(value) >= 0.3 else "dim"
    return Text(f"{value:.2f}", style=f"{style} {'red' if value < 0 else 'green'}".strip())


def _title(metric: str) -> str:
    return "FPR" if metric.startswith("fpr") else get_metric(metric).title


def _below(group: str, title: str) -> Text:
    return Text.assemble((group, "bold"), "\n", title)


def _add_names(table: Table, title: str) -> None:
    """Add a column of names, which are folded if there is no room."""
    table.add_column(title, overflow="fold")


def _table(caption: str | None = None, padding: tuple[int, int] = (0, 1)) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        header_style="",
        caption=caption,
        caption_justify="left",
        padding=padding,
        collapse_padding=True,
        pad_edge=False,
    )


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"
