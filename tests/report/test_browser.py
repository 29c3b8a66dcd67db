"""Reports in a real browser: Debian's chromium, driven by playwright."""

import csv
import json
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from tests.report.toy_runs import toy_evaluation

from incognita.report import html_of, save_html

CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs chromium: apt-get install chromium"
)
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with names of strangers, and pictures of the digits that the package holds."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    save_html(digits_run(), path)
    return path


def digits_run():
    """A run on the embedded digits, whose images can be loaded again."""
    from incognita.benchmarks.load import load_benchmark, test_sets
    from incognita.results.score_tables import ScoredSet

    benchmark = load_benchmark("digits/standard", limit=30)
    run = toy_evaluation(
        30, methods={"knn": 1.0, "msp": 0.6, EVIL: 0.3, "../../etc": 0.2, "a": 0.1, "b": 0}
    )
    sets = {s.name: s for s in run.sets}
    known = next(dataset for group, _, dataset in test_sets(benchmark) if group == "known")
    n = min(30, len(known.image_ids))
    old = sets["test"]
    keep = slice(0, n)
    sets["test"] = ScoredSet(
        "test",
        "known",
        known.image_ids[:n],
        old.predicted[keep],
        old.labels[keep],
        old.source_classes[:n],
    )
    object.__setattr__(run, "sets", tuple(sets.values()))
    scores = {t: m | {"test": m["test"][keep]} for t, m in run.scores.items()}
    object.__setattr__(run, "scores", scores)
    run.metadata.update(benchmark="digits/standard", limit=30, model=EVIL)
    return run


@contextmanager
def opened(browser, path, **options):
    """Open a page; nothing may be written to the console, and no request may leave it."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: wrong.extend(left(request.url, path)))
    page.goto(path.as_uri())
    yield page
    assert wrong == []
    context.close()


def left(url, path):
    return (
        []
        if url == path.as_uri() or url.startswith(("data:", "blob:", f"{path.as_uri()}#"))
        else [url]
    )


def column(page, place):
    cells = page.locator(f"#methods tbody tr:visible > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_a_page_opens_without_an_error(browser, report):
    with opened(browser, report) as page:
        assert (
            page.locator(".answer").inner_text().startswith("knn tells unknown images apart best")
        )
        assert page.locator("h1").inner_text().startswith(f"Unknown images: {EVIL}")
        assert page.locator("figure svg[role=img]").count() > 8


def test_sorting_by_mouse_and_keyboard(browser, report):
    with opened(browser, report) as page:
        before = column(page, 1)
        head = page.locator("#methods thead th").first
        head.locator("button").click()
        assert column(page, 1) == sorted(before, key=str.lower)
        assert head.get_attribute("aria-sort") == "ascending"
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert column(page, 1) == sorted(before, key=str.lower, reverse=True)
        assert head.get_attribute("aria-sort") == "descending"
        # a number is sorted by its value, best first; FPR is better when lower
        for place in range(1, page.locator("#methods thead th").count()):
            number = page.locator("#methods thead th").nth(place)
            if not number.is_visible():
                continue
            number.locator("button").click()
            cells = page.locator(f"#methods tbody tr > :nth-child({place + 1})")
            values = [cell.get_attribute("data-value") for cell in cells.all()]
            values = [float(value) for value in values if value is not None]
            is_lower = number.locator(".arrow").inner_text() == "↓"
            assert values == sorted(values, reverse=not is_lower)


def test_filtering(browser, report):
    with opened(browser, report) as page:
        box = page.locator("#methods input[type=search]")
        box.fill("alert(1)")
        assert column(page, 1) == [EVIL]
        assert page.locator("#methods [role=status]").inner_text() == "1 of 6 rows"
        box.fill("")
        assert len(column(page, 1)) == 6


def test_choosing_columns(browser, report):
    with opened(browser, report) as page:
        family = page.locator("#methods thead th", has_text="family")
        assert not family.is_visible()
        page.locator("#methods .tools summary").click()
        page.get_by_label("family", exact=True).check()
        assert family.is_visible()


def test_a_definition_opens(browser, report):
    with opened(browser, report) as page:
        definition = page.locator("#methods-auroc-near")
        assert not definition.is_visible()
        page.locator("a[href='#methods-auroc-near']").click()
        assert definition.is_visible()


def test_a_note_shows_the_interval(browser, report):
    with opened(browser, report) as page:
        cell = page.locator("#methods tbody tr").first.locator("td details").first
        cell.locator("summary").click()
        assert "95 % interval" in cell.inner_text()


def test_a_picture_opens(browser, report):
    with opened(browser, report) as page:
        picture = page.locator(".picture").first
        picture.scroll_into_view_if_needed()
        size = picture.locator("img").bounding_box()["width"]
        assert page.evaluate("() => [...document.images].every(i => i.complete && i.naturalWidth)")
        picture.locator("summary").focus()
        page.keyboard.press("Enter")
        assert picture.locator("dl").is_visible()
        assert picture.locator("img").bounding_box()["width"] > 1.5 * size


def test_a_permalink_leads_to_its_section(browser, report):
    with opened(browser, report) as page:
        page.locator("nav a", has_text="refusing").click()
        assert page.url.endswith("#what-does-refusing-to-answer-buy")
        heading = page.locator("#what-does-refusing-to-answer-buy h2")
        assert 0 <= heading.bounding_box()["y"] < 200


def test_a_link_that_was_cut_off_does_no_harm(browser, report):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{report.as_uri()}#%")
    assert page.locator("button.theme").count() == 1  # the last thing that the script adds
    assert problems == []
    page.close()


def test_a_caption_fits_the_screen_of_a_phone(browser, report):
    page = browser.new_page(viewport={"width": 360, "height": 800})
    page.goto(report.as_uri())
    widths = page.evaluate(
        "[...document.querySelectorAll('caption span')].map(c => c.getBoundingClientRect().right)"
    )
    assert widths
    assert max(widths) <= 360
    page.close()


def test_downloads(browser, report, tmp_path):
    with opened(browser, report, accept_downloads=True) as page:
        with page.expect_download() as waiting:
            page.locator("#methods .tools button").click()
        waiting.value.save_as(tmp_path / "table.csv")
        rows = list(csv.reader(StringIO((tmp_path / "table.csv").read_text())))
        assert waiting.value.suggested_filename == "methods.csv"
        assert [row[0] for row in rows[1:]] == column(page, 1)
        best = digits_run().mean_auroc("knn")[0]
        assert float(rows[1][rows[0].index("mean AUROC")]) == pytest.approx(best)
        figure = page.locator("figure").first
        for name, ends in ((".csv", ".csv"), ("button", ".svg")):
            with page.expect_download() as waiting:
                figure.locator(f".links {name}").click()
            assert waiting.value.suggested_filename.endswith(ends)
            waiting.value.save_as(tmp_path / f"figure{ends}")
        text = (tmp_path / "figure.csv").read_text()
        assert len(list(csv.DictReader(StringIO(text)))) == 6
        assert (tmp_path / "figure.svg").read_text().startswith("<svg")


def test_the_page_reads_without_a_script(browser, report):
    with opened(browser, report, java_script_enabled=False) as page:
        assert len(column(page, 1)) == 6
        page.locator("#methods .definitions summary").click()
        assert page.locator("#methods-auroc-near").is_visible()
        picture = page.locator(".picture").first
        picture.locator("summary").click()
        assert picture.locator("dl").is_visible()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(browser, report, width, scheme):
    with opened(
        browser, report, viewport={"width": width, "height": 700}, color_scheme=scheme
    ) as page:
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 20, 27)")
        page.locator(".theme").click()
        assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != paper


def test_figures_follow_the_dark(browser, report):
    with opened(browser, report, color_scheme="dark") as page:
        text = page.locator("figure svg text").first
        fill = text.evaluate("e => getComputedStyle(e).fill")
        assert fill in ("rgb(154, 165, 181)", "rgb(229, 233, 240)")


def test_a_notebook_frame_shows_the_table(browser, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{toy_evaluation(20)._repr_html_()}")
    with opened(browser, path) as page:
        frame = page.frame_locator("iframe")
        assert frame.locator("#methods tbody tr").count() == 3
        assert "knn" in frame.locator(".answer").inner_text()


def test_the_policy_stops_what_a_template_might_let_through(browser, tmp_path):
    """Even a script that got into the page would not run."""
    path = tmp_path / "hurt.html"
    html = html_of(toy_evaluation(20), is_brief=True)
    hurt = "<script>document.title='hurt'</script><img src=https://example.org/x>"
    path.write_text(html.replace("<main>", f"<main>{hurt}"))
    context = browser.new_context()
    page = context.new_page()
    blocked = []
    page.on("console", lambda message: blocked.append(message.text))
    page.goto(path.as_uri())
    assert page.title() != "hurt"
    assert len(blocked) == 2, json.dumps(blocked)
    context.close()
