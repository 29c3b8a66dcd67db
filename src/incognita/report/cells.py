"""Numbers in the cells of a page, with their interval and, behind a click, their support."""

import math
from collections.abc import Sequence

from incognita.metrics.catalog import Direction, get_metric
from incognita.metrics.measure import Share
from incognita.report.charts import NO_VALUE
from incognita.report.numbers import INTERVAL, margin, percent
from incognita.report.page import Cell, PageColumn
from incognita.results.result import Result

BEST = "Percent. Bold: the best of a column, and those whose 95 % interval contains it."


def number_cell(result: Result | None, *, is_best: bool = False) -> Cell:
    """Return a number with its interval; a click shows the interval, the support or the reason."""
    if result is None:
        return Cell(note="It was not measured here.")
    if math.isnan(result.value):
        return Cell(note=f"Undefined: {result.reason}.")
    margin = f"± {shown(result.metric, half_interval(result))}" if has_interval(result) else ""
    return Cell(
        text=shown(result.metric, result.value),
        value=result.value,
        margin=margin or result.few.strip(),
        note=_note(result),
        is_best=is_best,
    )


def shown(metric: str, value: float) -> str:
    """Return a value as tables show it: percent with one decimal, or a count.

    >>> shown("auroc", 0.9167), shown("open_set_error", 1234.0)
    ('91.7', '1,234')
    """
    if math.isnan(value):
        return NO_VALUE
    return f"{value:,.0f}" if get_metric(metric).is_count else f"{100 * value:.1f}"


def has_interval(result: Result) -> bool:
    """Whether a result has an interval."""
    return not math.isnan(result.low)


def half_interval(result: Result) -> float:
    """Return half of the interval of a result; NaN without one."""
    return (result.high - result.low) / 2


def _note(result: Result) -> str:
    support = ", ".join(f"{n:,} {what}" for what, n in result.support.items())
    bounds = ""
    if has_interval(result):
        low, high = (shown(result.metric, value) for value in (result.low, result.high))
        bounds = f"95 % interval {low} to {high}; "
    return f"{bounds}{result.split}; {support}; convention {result.convention}"


def share_cell(share: Share, *, is_best: bool = False) -> Cell:
    """Return the cell of a share of rows, with Wilson's interval."""
    if not share.n:
        return Cell(note="there is no such image")
    note = (
        f"{share.n_counted:,} of {share.n:,}; 95 % interval (Wilson) {100 * share.low:.1f} to "
        f"{100 * share.high:.1f}"
    )
    return Cell(percent(share.value), share.value, margin(share.low, share.high), note, is_best)


def best_of(results: Sequence[Result | None]) -> list[bool]:
    """Return which results are the best, or have an interval that contains the best value."""
    defined = [r for r in results if r is not None and not math.isnan(r.value)]
    if len(defined) < 2:
        return [False] * len(results)
    is_higher = get_metric(defined[0].metric).direction is Direction.HIGHER
    best = (max if is_higher else min)(r.value for r in defined)
    return [
        r is not None and (r.value == best or (has_interval(r) and r.low <= best <= r.high))
        for r in results
    ]


def metric_column(
    key: str, metric: str, *, label: str = "", convention: str = "paper", is_shown: bool = True
) -> PageColumn:
    """Return the column of a metric, with its direction and its definition."""
    info = get_metric(metric)
    unit = "A count." if info.is_count else "In percent."
    return PageColumn(
        key=key,
        label=label or info.title,
        direction="up" if info.direction is Direction.HIGHER else "down",
        definition=f"{info.title}: {info.meaning}. {unit} {INTERVAL}",
        convention=convention,
        is_shown=is_shown,
    )
