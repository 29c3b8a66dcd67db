"""Figures of a page: drawn by Vega-Lite, rebuilt as small SVG whose colors follow the page.

`Chart` holds an altair chart and its data. The theme, the palette and the fonts are set here once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import polars

from incognita.errors import UNPRINTABLE, InvalidDataError

# One palette for all pages. `style.css` replaces each of these colors in the dark; a color that is
# not in this table stays as it is there.
PALETTE = {
    "known": "#475569",
    "near": "#d97706",
    "far": "#7c3aed",
    "farther": "#0f766e",
    "shifted": "#64748b",
    "rejected": "#b91c1c",
    "accepted": "#15803d",
    "ink": "#1f2937",
    "muted": "#6b7280",
    "hair": "#e5e7eb",
}
OTHER_GROUPS = ("#0369a1", "#be185d", "#4d7c0f")  # groups of a benchmark with other names
WIDTH, HEIGHT = 380, 260  # of the area a chart draws in, before its axes
SCALE = 1.2  # how much larger a figure is shown where there is room
N_PREVIEW = 12  # rows of data shown in the page; all of them are in the download
MAX_POINTS = 200  # of a curve
NO_VALUE = "\N{EN DASH}"  # stands where there is no number

_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "clipPath"}
_ATTRIBUTES = {
    *("viewBox", "width", "height", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r"),
    *("transform", "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap"),
    *("stroke-linejoin", "stroke-miterlimit", "opacity", "fill-opacity", "stroke-opacity"),
    *("text-anchor", "font-size", "font-weight", "font-style", "id", "clip-path", "rx", "ry"),
}
_DEFAULTS = {("opacity", "1"), ("stroke-width", "1"), ("font-weight", "normal")}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure with the data it shows.

    Args:
        title: The finding, as a sentence.
        spec: An altair chart, without title.
        data: What the chart shows, for the download: at most a few hundred rows.
        description: What a reader who cannot see it is told.
        definition: What the numbers are.
        convention: Which variant of the definition was used.
        is_wide: Whether it takes the whole width of the page.
    """

    title: str
    spec: Any
    data: polars.DataFrame
    description: str
    definition: str = ""
    convention: str = ""
    is_wide: bool = False


def group_color(group: str, groups: tuple[str, ...] = ()) -> str:
    """Return the color of a group of images; groups of other names take further colors in turn.

    >>> group_color("near"), group_color("insects", ("near", "insects"))
    ('#d97706', '#0369a1')
    """
    if group in PALETTE:
        return PALETTE[group]
    others = [name for name in groups if name not in PALETTE]
    place = others.index(group) if group in others else 0
    return OTHER_GROUPS[place % len(OTHER_GROUPS)]


def chart_data(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> polars.DataFrame:
    """Return the data of a figure; names in it come from strangers and are made printable."""
    return polars.DataFrame(
        {
            name: column if isinstance(column, np.ndarray) else _printable(list(column))
            for name, column in columns.items()
        }
    )


def thinned(curve: polars.DataFrame, n_points: int = MAX_POINTS) -> polars.DataFrame:
    """Return at most so many rows of a curve, evenly spaced, with the first and the last one.

    >>> thinned(polars.DataFrame({"x": range(1001)}), 3)["x"].to_list()
    [0, 500, 1000]
    """
    if curve.height <= n_points:
        return curve
    rows = polars.linear_space(0, curve.height - 1, n_points, eager=True).round().cast(polars.Int64)
    return curve[rows.unique(maintain_order=True)]


def theme() -> dict[str, Any]:
    """Return the look of all figures: a hair grid, axis titles in words, no frame."""
    ink, muted, hair = (PALETTE[name] for name in ("ink", "muted", "hair"))
    text = {"labelColor": muted, "titleColor": ink, "labelFontSize": 11, "titleFontSize": 12}
    return {
        "aria": False,  # the figure as a whole has a description
        "background": None,
        # labels are wider in the fonts of a browser than where they were measured
        "padding": {"left": 16, "right": 12, "top": 5, "bottom": 5},
        "font": "sans-serif",
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT},
        "axis": text
        | {"titleFontWeight": "normal", "gridColor": hair, "domainColor": hair, "tickColor": hair}
        | {"labelLimit": 160, "titlePadding": 8},
        "legend": text | {"titleFontWeight": "normal", "orient": "top", "symbolStrokeWidth": 2},
        "header": text | {"titleFontWeight": "normal", "labelFontWeight": "bold"},
        "range": {"category": [ink, *OTHER_GROUPS, muted]},
        "mark": {"color": ink},
        "text": {"color": ink, "fontSize": 11},
        "rule": {"color": muted},
        "line": {"strokeWidth": 1.5, "strokeJoin": "round"},
        "point": {"filled": True, "size": 40, "opacity": 1},
        "bar": {"color": PALETTE["known"]},
    }


def as_svg(chart: Chart, name: str) -> str:
    """Return a figure as SVG to be put into a page; `name` is its place there.

    The drawing is rebuilt from a list of allowed elements and attributes, so that nothing but
    shapes and text can reach the page.
    """
    import vl_convert

    spec = _printable(chart.spec.to_dict(validate=False) | {"config": theme()})
    try:
        drawing = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec))
    except (ValueError, ElementTree.ParseError) as error:
        raise InvalidDataError(f"The figure {chart.title!r} cannot be drawn: {error}.") from error
    root = _rebuilt(drawing, name)
    width = float(drawing.get("width", WIDTH))
    root.attrib |= {"width": f"{SCALE * width:.0f}", "role": "img", "font-family": "sans-serif"}
    root.attrib.pop("height", None)
    root.set("aria-label", chart.description)
    root.set("xmlns", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _rebuilt(element: ElementTree.Element, name: str) -> ElementTree.Element:
    kept = ElementTree.Element(element.tag.removeprefix(_SVG))
    for key, value in element.attrib.items():
        if key in _ATTRIBUTES and (key, value) not in _DEFAULTS:
            kept.set(key, _attribute(key, value, name))
    kept.text = element.text
    for child in element:
        if child.tag.removeprefix(_SVG) in _ELEMENTS and _is_visible(child):
            kept.append(_rebuilt(child, name))
    return kept


def _is_visible(element: ElementTree.Element) -> bool:
    is_empty_group = element.tag == f"{_SVG}g" and len(element) == 0
    is_empty_path = element.tag == f"{_SVG}path" and element.get("d", "") in ("", "M0,0h0v0h0Z")
    is_hidden = element.get("display") == "none" or element.get("fill") == "white"
    return not (is_empty_group or is_empty_path or is_hidden)


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "clip-path":  # ids are shared by all figures of a page
        return re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", value)
    if key in ("d", "transform", "x", "y", "x2", "y2", "width", "height"):
        return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", value)
    return value


def _printable(value: Any) -> Any:
    """Return a specification without characters that neither JSON nor XML can hold."""
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if isinstance(value, dict):
        return {key: _printable(entry) for key, entry in value.items()}
    return [_printable(entry) for entry in value] if isinstance(value, list) else value


def csv_link(chart: Chart) -> str:
    """Return the data of a figure as a link that holds a CSV file."""
    return "data:text/csv;charset=utf-8," + quote(_rounded(chart.data).write_csv(), safe=",. ()/:")


def preview(chart: Chart) -> list[list[str]]:
    """Return the head and the first rows of the data, as texts."""
    data = _rounded(chart.data.head(N_PREVIEW))
    rows = [[NO_VALUE if value is None else str(value) for value in row] for row in data.rows()]
    return [data.columns, *rows]


def _rounded(data: polars.DataFrame) -> polars.DataFrame:
    import polars.selectors

    return data.with_columns(polars.selectors.float().round_sig_figs(6))
