"""A certificate as tables for the terminal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from incognita.metrics.catalog import get_metric
from incognita.results.result import ClassThreshold, ConfidenceBin, Result


def certificate_table(results: Sequence[Result], *, width: int = 156) -> Table:
    """Lay out one row per metric and convention, one column per split, in the catalog's groups.

    Shares are in percent, counts as they are; brackets hold the bootstrap interval over images.
    Conventions with equal cells share a row. A narrow screen drops the meanings first, then the
    intervals; never a convention.
    """
    if width < NARROW:  # no room for the number of images
        results = [replace(result, units=None) for result in results]
    splits = list(dict.fromkeys(result.split for result in results))
    with_bounds = width >= MEDIUM and any(not math.isnan(result.low) for result in results)
    caption = CAPTION + (BOUNDS if with_bounds else "")
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption=caption, caption_justify="left")
    table.add_column("metric", no_wrap=True)
    table.add_column(
        "convention", style="dim", min_width=21 if width >= MEDIUM else 13, overflow="fold"
    )
    for split in splits:
        table.add_column(split, justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("what it is", style="dim", no_wrap=True)
    group = None
    for metric in _in_groups(results):
        info = get_metric(metric)
        if info.group != group:
            group = info.group
            table.add_section()
            table.add_row(Text(group, style="bold cyan"))
        name, meaning = f"  {info.title} {info.direction.arrow}", info.meaning
        for conventions, cells in _rows(results, metric, splits, with_bounds=with_bounds):
            last = (meaning,) if width >= WIDE else ()
            table.add_row(name, ", ".join(conventions), *cells, *last)
            name = meaning = ""
    return table


CONVENTIONS = (
    "paper", "coco", "voc07", "owod", "owdetr", "opendet", "fmiyc", "saod", "detection-calibration",
)  # fmt: skip
# columns of a screen with room for meanings, for intervals, for the number of images
WIDE, MEDIUM, NARROW = 156, 110, 80
CAPTION = (
    "percent, but counts for A-OSE; ↑ higher is better, ↓ lower is better; - undefined there, "
    "blank not defined at all"
)
BOUNDS = "; in brackets the 95 % bootstrap interval over images"


def threshold_table(thresholds: Sequence[ClassThreshold]) -> Table:
    """Lay out the LRP-optimal confidence of each known class and the error that remains."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title="Best threshold of each class")
    table.add_column("class")
    table.add_column("objects", justify="right")
    table.add_column("keep confidence ≥", justify="right")
    table.add_column("LRP ↓", justify="right")
    table.add_column("")
    for threshold in thresholds:
        name = Text(threshold.class_name)  # brackets in a name are not markup
        if math.isnan(threshold.optimal_lrp):
            table.add_row(name, str(threshold.objects), "-", "-", "[dim]no object[/]")
            continue
        cut = "-" if math.isnan(threshold.threshold) else _rounded_down(threshold.threshold)
        length = round(30 * threshold.optimal_lrp)
        bar = f"[red]{'━' * length}[/][dim]{'─' * (30 - length)}[/]"
        lrp = f"{100 * threshold.optimal_lrp:.1f}"
        table.add_row(name, str(threshold.objects), cut, lrp, bar)
    return table


def reliability_table(bins: Sequence[ConfidenceBin]) -> Table:
    """Lay out the reliability diagram: bars that should end at the mark."""
    table = Table(
        box=box.SIMPLE_HEAD, header_style="bold", title="Reliability: is the confidence honest?"
    )
    table.add_column("confidence")
    table.add_column("detections", justify="right")
    table.add_column("precision x IoU", justify="right")
    table.add_column("bar: measured quality, ┃: confidence")
    for confidence_bin in bins:
        if not confidence_bin.detections:
            continue
        end, mark = (
            round(40 * confidence_bin.quality),
            min(39, round(40 * confidence_bin.confidence)),
        )
        cells = ["━" if k < end else "─" for k in range(40)]
        cells[mark] = "┃"
        bar = Text("".join(cells), style="green" if end >= mark else "yellow")
        span = f"{confidence_bin.low:.1f} to {confidence_bin.high:.1f}"
        table.add_row(
            span, str(confidence_bin.detections), f"{100 * confidence_bin.quality:.1f}", bar
        )
    return table


def _rounded_down(threshold: float) -> str:
    """Round down to four decimals: rounding up would drop the detection that decides."""
    nearest = f"{threshold:.4f}"
    return nearest if float(nearest) <= threshold else f"{threshold - 1e-4:.4f}"


def _in_groups(results: Sequence[Result]) -> list[str]:
    """Return the metrics in the order of their groups."""
    metrics = list(dict.fromkeys(result.metric for result in results))
    groups = list(dict.fromkeys(get_metric(metric).group for metric in metrics))
    return sorted(metrics, key=lambda metric: groups.index(get_metric(metric).group))


def _place(convention: str) -> tuple[int, str]:
    """Sort key: the paper first, then the public codes, then others by name."""
    known = CONVENTIONS.index(convention) if convention in CONVENTIONS else len(CONVENTIONS)
    return known, convention


def _rows(
    results: Sequence[Result], metric: str, splits: Sequence[str], *, with_bounds: bool
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the conventions of a metric with their cells; equal cells share a row."""
    mine = {(r.convention, r.split): r for r in results if r.metric == metric}
    rows: dict[tuple[str, ...], list[str]] = {}
    for convention in sorted({convention for convention, _ in mine}, key=_place):
        records = (mine.get((convention, split)) for split in splits)
        cells = tuple(_cell(record, with_bounds=with_bounds) for record in records)
        rows.setdefault(cells, []).append(convention)
    for cells, conventions in rows.items():
        yield conventions, list(cells)


def _cell(result: Result | None, *, with_bounds: bool) -> str:
    if result is None:
        return ""
    if math.isnan(result.value):
        return "-"
    scale, decimals = (1.0, 0) if get_metric(result.metric).is_count else (100.0, 1)
    value = f"{scale * result.value:.{decimals}f}"
    if not with_bounds or math.isnan(result.low):
        return value + result.few
    low, high = (f"{scale * bound:.{decimals}f}" for bound in (result.low, result.high))
    return escape(f"{value} [{low}, {high}]")
