"""`make docs`: the site builds without warnings, its links lead somewhere."""

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import incognita
from incognita.methods import METHODS
from incognita.metrics.catalog import METRICS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("material", "mkdocstrings_handlers")),
        reason="the documentation needs pip install '.[docs]'",
    ),
]
ROOT = Path(__file__).parents[1]
# what a browser fetches by itself, unlike a link that a reader may follow
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Links(HTMLParser):
    """Collects ids, links and what is loaded."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get(LOADED.get(tag, "")) and found.get("rel") != "canonical":
            self.loaded.append(found[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", target],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {path: Links(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_of_the_repository_is_on_the_site(site, pages):
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    studies = {path.parent.name for path in (ROOT / "studies").glob("*/README.md")}
    assert written | studies | {"index", "changelog", "conventions"} <= {p.stem for p in pages}
    assert not list(site.rglob("*.py"))


def test_every_link_leads_to_a_page_and_a_place(pages):
    broken = []
    for page, found in pages.items():
        for link in (*found.links, *found.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            has_place = target in pages and unquote(parts.fragment) in pages[target].ids
            if not target.is_file() or (parts.fragment and not has_place):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_another_place(site, pages):
    loaded = {link for found in pages.values() for link in found.loaded}
    assert loaded
    assert [link for link in loaded if urlsplit(link).scheme or urlsplit(link).netloc] == []
    sheets = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheets)


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_every_method_and_its_equation_are_on_the_site(site):
    page = (site / "every-method.html").read_text()
    heads = re.findall(r"<h2 id=.*?>\s*(.*?)\s*<a", page, flags=re.DOTALL)
    shown = [re.sub(r"<[^>]+>", "", head).strip() for head in heads]
    assert shown == list(METHODS.homes)
    n_equations = sum("$$" in METHODS.docstring(name) for name in METHODS.homes)
    assert n_equations > 30
    assert page.count('<math display="block">') >= n_equations
    assert "$$" not in page
    assert "Departures:" in page


def test_every_metric_and_every_public_name_are_on_the_site(site):
    catalog = (site / "every-metric.html").read_text()
    assert [name for name in METRICS if f"<code>{name}</code>" not in catalog] == []
    row = re.search(r"<code>laece</code>.*?</tr>", catalog, flags=re.DOTALL)
    assert row is not None
    assert re.findall(r"<code>(.*?)</code>", row[0]) == [
        "laece", "paper", "saod", "detection-calibration",
    ]  # fmt: skip
    names = text_of(site / "python.html")
    assert [name for name in incognita.__all__ if name[0] != "_" and name not in names] == []


def test_how_tos_show_the_file_that_is_tested(site):
    for path in (ROOT / "examples").glob("my_*.py"):
        shown = text_of(site / f"{path.stem.replace('_', '-')}.html")
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert [line for line in lines if line not in shown] == []
