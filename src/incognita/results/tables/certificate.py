"""A certificate as tables for the terminal."""

import math
from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from incognita.errors import printable
from incognita.metrics.catalog import get_metric
from incognita.results.claims import CheckedClaim, ClaimVerdict
from incognita.results.result import ClassThreshold, ConfidenceBin, Result
from incognita.results.tables.layout import Column, Layout, fit, names, natural_width

CONVENTIONS = (
    "paper", "coco", "voc07", "owod", "owdetr", "opendet", "fmiyc", "saod", "detection-calibration",
)  # fmt: skip
MEANINGS, INTERVALS = "meanings", "intervals"
CAPTION = (
    "percent, but counts for A-OSE; ↑ higher is better, ↓ lower is better; - undefined there, "
    "blank not defined at all"
)
BOUNDS = "; in brackets the 95 % bootstrap interval over images"


def certificate_table(results: Sequence[Result], *, width: int = 156) -> Group:
    """Lay out one row per metric and convention, one column per split, in the catalog's groups.

    Shares are in percent, counts as they are; brackets hold the bootstrap interval over images.
    Conventions with equal cells share a row. A narrow screen drops the meanings first, then the
    intervals; never a convention.
    """
    has_bounds = any(not math.isnan(result.low) for result in results)

    def caption(left_out: Collection[str]) -> str:
        return CAPTION + (BOUNDS if has_bounds and INTERVALS not in left_out else "")

    details = (MEANINGS, INTERVALS) if has_bounds else (MEANINGS,)
    return fit(
        lambda left_out: _layout(results, left_out),
        details,
        width,
        caption=caption,
        title="the certificate",
    )


def _layout(results: Sequence[Result], left_out: Collection[str]) -> Layout:
    """Return the columns: names, conventions, one per split, and meanings."""
    splits = list(dict.fromkeys(result.split for result in results))
    rows: list[tuple[str | Text, ...]] = []
    sections: list[int] = []
    group = None
    for metric in _in_groups(results):
        info = get_metric(metric)
        if info.group != group:
            group = info.group
            sections.append(len(rows))
            rows.append((Text(group, style="bold cyan"), "", *("" for _ in splits), ""))
        name, meaning = f"  {info.title} {info.direction.arrow}", info.meaning
        for conventions, cells in _rows(
            results, metric, splits, with_bounds=INTERVALS not in left_out
        ):
            rows.append((name, Text(", ".join(conventions), style="dim"), *cells, meaning))
            name = meaning = ""
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(splits) + 3)
    units = [[Column(split, cells)] for split, cells in zip(splits, columns[2:], strict=False)]
    if MEANINGS not in left_out:
        units.append([Column("what it is", columns[-1], justify="left", style="dim")])
    heads = [names("metric", columns[0]), names("convention", columns[1], width=22)]
    return Layout(heads, units, sections, padding=(0, 1))


_WIDE_CLAIMS = 100  # columns of a screen from which claims are shown with what they rest on
_STYLES = {
    ClaimVerdict.PASS: "green",
    ClaimVerdict.FAIL: "bold red",
    ClaimVerdict.UNDEFINED: "yellow",
}


def claim_table(claims: Sequence[CheckedClaim], *, width: int = 156) -> Table:
    """Lay out each claim with its verdict, what was measured, and what it rests on.

    A narrow screen leaves out what it rests on; no number is folded.
    """
    title = "Claims (fractions and counts)"
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title=title, padding=(0, 1))
    heads = ["", "claim", "measured", "why"] + ["rests on"] * (width >= _WIDE_CLAIMS)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in ("", "measured"))
    for checked in claims:
        verdict = Text(checked.verdict.value, style=_STYLES[checked.verdict])
        texts = (str(checked.claim), _measured(checked), checked.reason, _basis(checked))
        cells = [Text(printable(text)) for text in texts]  # brackets are not markup
        table.add_row(verdict, *cells[: len(heads) - 1])
    return table


def _measured(checked: CheckedClaim) -> str:
    """Return the value and the interval, as fractions or counts like the limit."""
    if checked.result is None or math.isnan(checked.result.value):
        return "-"
    shown = f"{checked.result.value:.4g}"
    low, high = checked.bounds
    return shown if math.isnan(low) else f"{shown} [{low:.4g}, {high:.4g}]"


def _basis(checked: CheckedClaim) -> str:
    if checked.result is None:
        return "-"
    support = [f"{n:,} {what}" for what, n in checked.result.support.items()]
    parameters = [f"{name} = {value}" for name, value in checked.result.parameters.items()]
    return ", ".join([*support, *parameters]) or "-"


def threshold_table(thresholds: Sequence[ClassThreshold], *, width: int = 156) -> Table:
    """Lay out the LRP-optimal confidence of each known class and the error that remains."""
    for length in (30, 20, 10, 0):
        table = _threshold_table(thresholds, length)
        if natural_width(table) <= width:
            break
    return table


def _threshold_table(thresholds: Sequence[ClassThreshold], length: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title="Best threshold of each class")
    table.add_column("class", overflow="fold", max_width=28)
    for title in ("objects", "keep\nconfidence ≥", "LRP ↓"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for threshold in thresholds:
        name = Text(threshold.class_name)  # brackets in a name are not markup
        if math.isnan(threshold.optimal_lrp):
            table.add_row(name, str(threshold.objects), "-", "-", "[dim]no object[/]")
            continue
        cut = "-" if math.isnan(threshold.threshold) else _rounded_down(threshold.threshold)
        filled = round(length * threshold.optimal_lrp)
        bar = Text("━" * filled, style="red") + Text("─" * (length - filled), style="dim")
        lrp = f"{100 * threshold.optimal_lrp:.1f}"
        table.add_row(name, str(threshold.objects), cut, lrp, bar)
    return table


def reliability_table(bins: Sequence[ConfidenceBin], *, width: int = 156) -> Table:
    """Lay out the reliability diagram: bars that should end at the mark."""
    for length in (40, 20, 10):
        table = _reliability_table(bins, length)
        if natural_width(table) <= width:
            break
    return table


def _reliability_table(bins: Sequence[ConfidenceBin], length: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title="Reliability: is the confidence honest?\n(bar: measured quality, ┃: confidence)",
    )
    for title in ("confidence", "detections", "precision\nx IoU"):
        table.add_column(title, justify="left" if title == "confidence" else "right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for confidence_bin in bins:
        if not confidence_bin.detections:
            continue
        span = f"{confidence_bin.low:.1f} to {confidence_bin.high:.1f}"
        quality = f"{100 * confidence_bin.quality:.1f}"
        bar = _bar(confidence_bin, length)
        table.add_row(span, str(confidence_bin.detections), quality, bar)
    return table


def _bar(confidence_bin: ConfidenceBin, length: int) -> Text:
    end = round(length * confidence_bin.quality)
    mark = min(length - 1, round(length * confidence_bin.confidence))
    cells = ["━" if k < end else "─" for k in range(length)]
    cells[mark] = "┃"
    return Text("".join(cells), style="green" if end >= mark else "yellow")


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
    return f"{value} [{low}, {high}]"
