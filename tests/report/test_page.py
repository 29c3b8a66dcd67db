"""A page is one file: everything is escaped, nothing is fetched, each part can be linked to."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import altair
import polars
import pytest
from PIL import Image

from incognita.errors import InvalidDataError
from incognita.report import charts, frame_of, html_of, page_of
from incognita.report.charts import PALETTE, Chart, as_svg, csv_link, thinned
from incognita.report.page import (
    FOLDER,
    Cell,
    Gallery,
    Page,
    PageColumn,
    PageTable,
    Picture,
    Section,
    render,
)
from incognita.results.export import Report

EVIL = "<script>alert(1)</script>"
QUOTES = "\" onmouseover='alert(1)' x=\""


class Reader(HTMLParser):
    """The elements, ids and texts of a page, as a browser would see them."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.ids, self.hrefs, self.text = [], [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.hrefs += [attributes["href"]] if "href" in attributes else []

    def handle_data(self, data):
        self.text += data


def webp(color=(10, 200, 30)):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), color).save(stream, "webp")
    return stream.getvalue()


def chart(name="a", n=3):
    data = charts.chart_data({"x": range(n), "y": [0.5] * n, "name": [name] * n})
    spec = altair.Chart(data).mark_text().encode(x="x:Q", y="y:Q", text="name:N")
    return Chart(title=f"Points of {name}", spec=spec, data=data, description=f"Shows {name}.")


def table(name="a"):
    columns = (
        PageColumn(key="method", label=name, is_number=False, definition=name, convention=name),
        PageColumn(key="value", label="AUROC", direction="up", definition="A chance."),
    )
    best = Cell("91.7", 0.917, margin="± 0.6", is_best=True, note=name)
    return PageTable(
        columns=columns, rows=({"method": Cell(name), "value": best}, {}), caption=name
    )


def page(name="a"):
    gallery = Gallery(
        title=name,
        caption=name,
        pictures=(Picture(image=webp(), caption=name, details=((name, name),), alt=name),),
    )
    parts = (chart(name), table(name), gallery)
    section = Section(question=name, sentence=name, parts=parts)
    pair = ((name, name),)
    return Page(
        title=name, answer=name, facts=pair, notes=pair, table=table(name),
        sections=(section, section, section), footer=pair,
    )  # fmt: skip


@pytest.mark.parametrize("name", [EVIL, QUOTES, "../../etc/passwd", "a\x00\x1b\ud800b"])
def test_names_of_strangers_do_no_harm(name):
    html = render(page(name))
    read = Reader(html)
    assert [tag for tag, _ in read.elements].count("script") == 1  # the page's own
    for tag, attributes in read.elements:
        assert not [key for key in attributes if key.startswith("on")], (tag, attributes)
    assert all(href.startswith(("#", "data:")) for href in read.hrefs)
    html.encode()


def test_control_characters_and_turned_text_become_escapes():
    html = render(page("a\x00\x1b[31m\x7f\u202eb\u2066"))
    assert not [c for c in html if ord(c) < 32 and c != "\n"]
    assert not {"\x7f", "\u202e", "\u2066"} & set(html)
    assert r"a\x00\x1b[31m\x7f\u202eb\u2066" in html


def test_a_number_with_a_verdict_keeps_its_place():
    column = PageColumn(key="n", label="n")
    part = PageTable(columns=(column,), rows=({"n": Cell("1", 1, tone="bad")}, {"n": Cell("2", 2)}))
    html = render(Page(title="t", answer="a", table=part))
    assert 'class="number bad"' in html
    assert 'class="number"' in html


def test_a_page_shows_every_text_of_its_parts():
    read = Reader(render(page("Zürich & Genf")))
    # title, heading, answer, 2 facts, 2 notes, 2 footer, then tables, figures, galleries
    assert read.text.count("Zürich & Genf") > 30


def test_ids_are_unique_and_links_lead_to_them():
    read = Reader(render(page("The same")))
    assert len(read.ids) == len(set(read.ids))
    places = {href[1:] for href in read.hrefs if href.startswith("#")}
    assert places <= set(read.ids)
    assert {"the-same", "the-same-2", "the-same-3"} <= places


def test_the_policy_allows_the_own_style_and_script_only():
    html = render(page())
    policy = next(a["content"] for t, a in Reader(html).elements if "http-equiv" in a)
    for kind in ("style", "script"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not any("style" in attributes for _, attributes in Reader(html).elements)


def test_style_and_script_are_small():
    assert (FOLDER / "style.css").stat().st_size < 10_000
    assert (FOLDER / "script.js").stat().st_size < 15_000


def test_the_dark_has_every_color_of_the_palette():
    style = (FOLDER / "style.css").read_text()
    for color in PALETTE.values():
        assert f'[fill="{color}"]' in style
        assert f'[stroke="{color}"]' in style


def luminance(color):
    channels = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_in_both_colors():
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for shapes that carry meaning."""
    style = (FOLDER / "style.css").read_text()
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w{6}, #\w{6})\)", style))
    paper = pairs["paper"].split(", ")
    for name, colors in pairs.items():
        least = {"paper": 1, "soft": 1, "hair": 1, "ink": 4.5, "muted": 4.5, "link": 4.5}.get(
            name, 3
        )
        for color, ground in zip(colors.split(", "), paper, strict=True):
            low, high = sorted((luminance(color), luminance(ground)))
            assert (high + 0.05) / (low + 0.05) >= least, (name, color)


def test_a_figure_is_text_and_shapes_that_fit_any_width():
    svg = as_svg(chart("knn <&>", 4), "place")
    read = Reader(svg)
    root = read.elements[0][1]
    assert root["role"] == "img"
    assert root["aria-label"] == "Shows knn <&>."
    assert "viewbox" in root
    assert "height" not in root
    assert read.text.count("knn <&>") == 4
    assert "class=" not in svg


def test_figures_do_not_share_ids():
    data = polars.DataFrame({"x": [0, 1], "y": [0, 1]})
    spec = altair.Chart(data).mark_line(clip=True).encode(x="x", y="y")
    clipped = Chart(title="t", spec=spec, data=data, description="d")
    first, second = (Reader(as_svg(clipped, name)) for name in ("one", "two"))
    assert first.ids
    assert not set(first.ids) & set(second.ids)
    used = [a["clip-path"] for _, a in first.elements if "clip-path" in a]
    assert {f"url(#{name})" for name in first.ids} == set(used)


def test_a_figure_that_cannot_be_drawn_says_which():
    broken = Chart(title="Broken", spec=altair.Chart(), data=polars.DataFrame(), description="")
    object.__setattr__(broken, "spec", altair.Chart().mark_point())
    broken.spec.mark = "no such mark"
    with pytest.raises(InvalidDataError, match="The figure 'Broken' cannot be drawn"):
        as_svg(broken, "x")


def test_the_download_of_a_figure_is_its_data():
    from urllib.parse import unquote

    data = polars.DataFrame({"name": ['a,"b"', "c&#d\n"], "value": [1 / 3, None]})
    shown = Chart(title="t", spec=None, data=data, description="")
    text = unquote(csv_link(shown).partition(",")[2])
    read = polars.read_csv(io.StringIO(text))
    assert read["name"].to_list() == data["name"].to_list()
    assert read["value"].to_list() == [pytest.approx(1 / 3, abs=1e-6), None]


def test_thinning_keeps_both_ends_and_the_order():
    curve = polars.DataFrame({"x": range(12345)})
    assert thinned(curve, 20000).height == 12345
    few = thinned(curve, 100)["x"]
    assert few.len() == 100
    assert (few[0], few[-1]) == (0, 12344)
    assert few.is_sorted()


@pytest.mark.parametrize("href", ["javascript:alert(1)", "//evil.example", "data:text/html,x"])
def test_a_cell_links_nowhere_else(href):
    with pytest.raises(InvalidDataError, match="Expected a link"):
        Cell("x", href=href)


@pytest.mark.parametrize("href", ["#row", "runs/a.html", "../a.html#b", "https://doi.org/1"])
def test_a_cell_links_to_places(href):
    assert Cell("x", href=href).href == href


def test_a_picture_must_be_one():
    with pytest.raises(InvalidDataError, match="Expected the bytes of a WebP"):
        render(
            Page(
                title="t",
                answer="a",
                sections=(
                    Section(
                        question="q",
                        sentence="s",
                        parts=(
                            Gallery(title="g", pictures=(Picture(image=b"<svg>", caption="c"),)),
                        ),
                    ),
                ),
            )
        )


class Odd(Report):
    """A report that has no page of its own."""

    def as_json(self):
        return {}

    def records(self):
        return [{"what": EVIL, "value": 0.25}, {"what": "b", "value": None}]

    def headline(self):
        return "Two numbers"

    def remarks(self):
        return [("note", "so it is")]

    def table(self, *, width=80):
        return ""

    def summary(self):
        return ""


def test_a_report_without_a_page_shows_its_numbers(tmp_path):
    found = page_of(Odd())
    assert found.answer == "Two numbers"
    assert [row["value"].value for row in found.table.rows] == [0.25, None]
    Odd().save_html(tmp_path / "deep" / "odd.html")
    assert (tmp_path / "deep" / "odd.html").read_text() == html_of(Odd())
    with pytest.raises(InvalidDataError, match="Expected reports of one kind, got none"):
        page_of([])


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    frame = Reader(Odd()._repr_html_())
    (tag, attributes), *rest = frame.elements
    assert (tag, rest) == ("iframe", [])
    assert attributes["srcdoc"] == html_of(Odd(), is_brief=True)
    assert "allow-same-origin" not in attributes["sandbox"]
    assert json.dumps(frame_of(Odd()))
