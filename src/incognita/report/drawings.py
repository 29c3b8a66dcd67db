"""Shapes of figures that several pages draw: grids, pairs of points, labelled scatter plots."""

import math
from collections.abc import Sequence

import altair
import numpy as np
import polars

from incognita.report.cells import has_interval
from incognita.report.charts import HEIGHT, PALETTE, WIDTH, chart_data, group_color
from incognita.results.result import Result
from incognita.shapes import Float64

Drawing = altair.LayerChart | altair.FacetChart
Range = tuple[float | int, float | int]
DASHED = [3, 3]  # chance, or what is best possible
LETTER, LINE = 6.3, 13  # pixels of a letter and of a line of a label


def heat_map(
    data: polars.DataFrame,
    x: str,
    y: str,
    value: str,
    *,
    digits: int = 0,
    least: int = 0,
) -> Drawing:
    """Draw a grid of percentages in the order of the rows, darker where they are higher.

    Args:
        data: One row per cell.
        x: The column with the names above the grid.
        y: The column with the names beside it.
        value: The column with the percentages.
        digits: Decimals that are written.
        least: The percentage up to which a cell is not shaded.
    """
    axis = altair.Axis(orient="top", labelAngle=-40, domain=False, ticks=False)
    plain = altair.Axis(domain=False, ticks=False)
    base = altair.Chart(data).encode(
        x=altair.X(f"{x}:N", title=None, sort=None, axis=axis),
        y=altair.Y(f"{y}:N", title=None, sort=None, axis=plain),
    )
    # text in ink stays readable on at most half of the color
    scale = altair.Scale(domain=[least, 100], range=[0, 0.55], clamp=True)
    cells = base.mark_rect(color=PALETTE["known"]).encode(
        opacity=altair.Opacity(f"{value}:Q", scale=scale, legend=None)
    )
    zero = 0.5 * 10**-digits  # a grid of zeros hides the other numbers
    numbers = base.transform_filter(altair.datum[value] >= zero).mark_text(fontSize=10)
    text = altair.Text(f"{value}:Q", format=f".{digits}f")
    width, height = 34 * data[x].n_unique(), 20 * data[y].n_unique()
    return altair.layer(cells, numbers.encode(text=text)).properties(width=width, height=height)


def dumbbells(data: polars.DataFrame, key: str, title: str, names: tuple[str, str]) -> Drawing:
    """Draw two values per row, in the columns `first` and `second`, joined by a line."""
    x = altair.X("value:Q", title=title, scale=altair.Scale(zero=False))
    y = altair.Y(f"{key}:N", sort=data[key].to_list(), title=None)
    kinds = {"first": names[0], "second": names[1]}
    long = data.unpivot(list(kinds), index=key).with_columns(
        kind=polars.col("variable").replace_strict(kinds)
    )
    scale = altair.Scale(domain=list(names), range=[PALETTE["muted"], PALETTE["near"]])
    color = altair.Color("kind:N", scale=scale, legend=altair.Legend(title=None))
    points = altair.Chart(long).mark_point(size=45).encode(x=x, y=y, color=color)
    lines = altair.Chart(data).mark_rule().encode(x="first:Q", x2="second:Q", y=y)
    return altair.layer(lines, points).properties(height=max(18 * len(data), 60))


def against(data: polars.DataFrame, x_title: str, y_title: str) -> Drawing:
    """Draw one percentage against another, with intervals and the line on which they are equal.

    Columns: method, x, x_low, x_high, y, y_low, y_high.
    """
    values = data.select("x", "y", "x_low", "y_low").to_numpy()
    low = 5 * math.floor(float(np.nanmin(values, initial=50)) / 5)
    scale = altair.Scale(domain=[low, 100], nice=False)
    x, y = altair.X("x:Q", title=x_title, scale=scale), altair.Y("y:Q", title=y_title, scale=scale)
    bars = altair.Chart(data).mark_rule(strokeWidth=0.7)
    ends = altair.Chart(chart_data({"x": [low, 100], "y": [low, 100]}))
    equal = ends.mark_line(strokeDash=DASHED, strokeWidth=1, color=PALETTE["muted"])
    return altair.layer(
        equal.encode(x=x, y=y),
        bars.encode(x=altair.X("x_low:Q", scale=scale), x2="x_high:Q", y=y),
        bars.encode(x=x, y=altair.Y("y_low:Q", scale=scale), y2="y_high:Q"),
        altair.Chart(data).mark_point().encode(x=x, y=y),
        name_labels(data, x, y, ((low, 100), (low, 100))),
    )


def interval_data(rows: Sequence[tuple[str, Result]]) -> polars.DataFrame:
    """Return results in percent by set of images; without an interval, its ends are the value."""
    return chart_data(
        {
            "images": [name for name, _ in rows],
            "value": [100 * r.value for _, r in rows],
            "low": [100 * (r.low if has_interval(r) else r.value) for _, r in rows],
            "high": [100 * (r.high if has_interval(r) else r.value) for _, r in rows],
        }
    )


def name_labels(
    data: polars.DataFrame, x: altair.X, y: altair.Y, ranges: tuple[Range, Range]
) -> Drawing:
    """Draw the names beside the points that have room for them, the first rows first.

    Args:
        data: Points with the columns method, x and y; `x` and `y` as the axes show them.
        x: Where the points are.
        y: Where the points are.
        ranges: From where to where the axes go, in the units of the columns.
    """
    places = np.column_stack(
        [
            (data[name].to_numpy() - low) / (high - low) * extent
            for name, (low, high), extent in zip("xy", ranges, (WIDTH, HEIGHT), strict=True)
        ]
    )
    names = data["method"].to_list()
    sides = label_sides(places, [LETTER * len(name) for name in names])
    shown = data.with_columns(side=polars.Series(sides, dtype=polars.Int8))
    right, left = (altair.Chart(shown.filter(polars.col("side") == side)) for side in (1, -1))
    texts = right.mark_text(align="left", dx=6, dy=-5), left.mark_text(align="right", dx=-6, dy=-5)
    return altair.layer(*(text.encode(x=x, y=y, text="method:N") for text in texts))


def label_sides(places: Float64[np.ndarray, "points 2"], widths: Sequence[float]) -> list[int]:
    """Return where the label of each point goes: 1 right of it, -1 left, 0 nowhere.

    A label may cover neither another point nor a label that was placed before it.

    >>> label_sides(np.array([[0.0, 0.0], [5.0, 0.0], [300.0, 0.0]]), [40.0, 40.0, 40.0])
    [0, 1, 1]
    """
    boxes: list[tuple[float, float, float]] = []
    sides = []
    for k, ((x, y), width) in enumerate(zip(places, widths, strict=True)):
        others = np.delete(places, k, axis=0)
        chosen = 0
        for side, left in ((1, x + 4), (-1, x - 4 - width)):
            is_inside = left >= 0 and left + width <= WIDTH + 30
            beside = (others[:, 0] > left - 2) & (others[:, 0] < left + width + 2)
            covers = bool((beside & (np.abs(others[:, 1] - y) < LINE / 2)).any())
            meets = any(
                abs(y - other) < LINE and left < end and start < left + width
                for start, end, other in boxes
            )
            if is_inside and not covers and not meets:
                boxes.append((left, left + width, float(y)))
                chosen = side
                break
        sides.append(chosen)
    return sides


def group_colors(groups: Sequence[str], *, of_points: bool = False) -> altair.Color:
    """Return the colors of groups of images, with their names above the figure."""
    colors = [group_color(group, tuple(groups)) for group in groups]
    legend = altair.Legend(
        title=None, symbolType="circle" if of_points else "stroke", symbolOpacity=1
    )
    scale = altair.Scale(domain=list(groups), range=colors)
    return altair.Color("group:N", scale=scale, legend=legend if len(groups) > 1 else None)
