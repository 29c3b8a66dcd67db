"""The page of a detector in a browser: nothing fails, nothing is fetched, pictures open."""

from pathlib import Path

import pytest
from tests.evaluation.box_worlds import CellDetector, box_benchmark

import incognita

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    run = incognita.evaluate(
        CellDetector(), box_benchmark(), "msp, energy, knn(k=3)", n_resamples=10
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    run.save_html(path)
    return path


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture(params=[1280, 360])
def opened(request, browser, path):
    page = browser.new_page(viewport={"width": request.param, "height": 800})
    page.problems, page.requested = [], []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requested.append(request.url))
    page.goto(path.as_uri())
    yield page
    outside = [url for url in page.requested if not url.startswith(("data:", path.as_uri()))]
    assert page.problems == []
    assert outside == []
    page.close()


def test_the_page_fits_the_window(opened):
    width = opened.evaluate("document.documentElement.scrollWidth")
    assert width <= opened.viewport_size["width"]


def test_a_picture_of_the_gallery_opens(opened):
    picture = opened.locator("#pictures .picture").first
    picture.scroll_into_view_if_needed()
    assert not picture.locator("dl").is_visible()
    small = picture.locator("img").bounding_box()["width"]
    picture.locator("summary").click()
    assert picture.locator("dl").is_visible()
    assert picture.locator("img").bounding_box()["width"] > small
    is_drawn = "image => image.complete && image.naturalWidth > 0"
    opened.wait_for_function(is_drawn, arg=picture.locator("img").element_handle())


def test_every_figure_is_drawn_and_has_its_data(opened):
    figures = opened.locator("figure")
    assert figures.count() >= 8
    for k in range(figures.count()):
        figure = figures.nth(k)
        assert figure.locator("svg").bounding_box()["height"] > 30
        assert figure.locator("a.csv").get_attribute("href").startswith("data:text/csv")
