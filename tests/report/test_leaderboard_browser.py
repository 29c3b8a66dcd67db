"""The leaderboard in Chromium: sort, filter, choose columns, follow links, download a table."""

import csv
import threading
from pathlib import Path

import pytest
from tests.report.simulated_runs import simulate

from incognita.cli.leaderboard import make_server
from incognita.report.leaderboard import collect
from incognita.report.leaderboard_site import Site, save_site

CHROMIUM = Path("/usr/bin/chromium")
METHODS = {f"method-{k:02}": k / 10 for k in range(12)}
EVIL = "<script>alert(1)</script>"
N_ROWS = 2 * len(METHODS)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("leaderboard")
    simulate(root / "one", METHODS, model="first", disclosure={"outlier data": "none"})
    simulate(root / "two", METHODS, model="second", disclosure={"outlier data": "Tiny Images"})
    simulate(root / "three", {EVIL: 1.0}, model=EVIL, benchmark=EVIL)
    many = {f"m{k}": k / 400 for k in range(350)}
    simulate(root / "four", many, benchmark="long", n_images=20, n_resamples=10)
    out = root / "site"
    save_site(out, Site(collect([root]), has_reports=False).files())
    return out


@pytest.fixture(scope="module", params=["file", "serve"])
def address(request, site):
    """The site as a folder of files, and as it is served."""
    if request.param == "file":
        yield site.as_uri()
        return
    server = make_server(site, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with api.sync_playwright() as playwright:
        options = {"executable_path": str(CHROMIUM), "args": ["--no-sandbox", "--disable-gpu"]}
        found = playwright.chromium.launch(**options)
        yield found
        found.close()


@pytest.fixture
def page(browser, address):
    """A page whose console stays silent and whose requests stay in the site."""
    found = browser.new_page(viewport={"width": 1280, "height": 800})
    problems, requested = [], []
    found.on("console", lambda message: problems.append(message.text))
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("dialog", lambda dialog: (problems.append("a dialog opened"), dialog.dismiss()))
    found.on("request", lambda request: requested.append(request.url))
    yield found
    assert problems == []
    assert [url for url in requested if not url.startswith((address, "data:", "blob:"))] == []
    found.close()


@pytest.fixture
def board(page, address):
    page.goto(f"{address}/benchmarks/simulated-v1.html")
    return page


def texts(page, column):
    """The visible texts of a column, from top to bottom."""
    heads = page.locator("thead th .label").all_text_contents()
    cells = page.locator(f"tbody tr > :nth-child({heads.index(column) + 1})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_the_index_leads_to_every_benchmark(page, address):
    page.goto(f"{address}/index.html")
    page.get_by_role("link", name="simulated v1").click()
    assert page.locator("h1").inner_text() == "simulated, version 1"
    page.get_by_role("link", name="Leaderboard").click()
    assert page.locator("h1").inner_text() == "Leaderboard"


def test_rows_are_sorted_by_a_click_or_a_key(board):
    assert texts(board, "method")[0] == "method-11"
    head = board.locator("thead button", has_text="AUROC near")
    head.click()
    falling = [float(text.split()[0]) for text in texts(board, "AUROC near")]
    assert falling == sorted(falling, reverse=True)
    assert len(set(falling)) > 5
    head.focus()
    board.keyboard.press("Enter")
    rising = [float(text.split()[0]) for text in texts(board, "AUROC near")]
    assert rising == falling[::-1]
    cell = board.locator("thead th", has_text="AUROC near")
    assert cell.get_attribute("aria-sort") == "ascending"


def test_rows_are_filtered_by_words(board):
    board.get_by_placeholder("Filter rows").fill("second method-03")
    assert texts(board, "method") == ["method-03"]
    assert texts(board, "model") == ["second"]
    assert "1 of 24 rows" in board.get_by_role("status").inner_text()
    board.get_by_placeholder("Filter rows").fill("")
    assert len(texts(board, "method")) == N_ROWS


def test_rows_are_filtered_by_what_they_disclose(board):
    board.get_by_label("outlier data").first.select_option("Tiny Images")
    assert set(texts(board, "model")) == {"second"}
    assert len(texts(board, "model")) == len(METHODS)
    board.get_by_label("outlier data").first.select_option("any")
    assert len(texts(board, "model")) == N_ROWS


def test_columns_are_chosen(board):
    column = board.locator("thead th", has_text="AUPR unknown near")
    assert not column.is_visible()
    board.get_by_text("Columns", exact=True).click()
    box = board.get_by_role("checkbox", name="AUPR unknown near")
    box.check()
    assert column.is_visible()
    assert texts(board, "AUPR unknown near")[0]
    box.uncheck()
    assert not column.is_visible()


def test_a_link_to_a_row_leads_to_it(board):
    row = board.locator("tbody tr", has_text="method-05").first
    name = row.get_attribute("id")
    row.get_by_role("link", name="#").click()
    assert board.url.endswith(f"#{name}")
    assert board.evaluate("document.querySelector(':target').id") == name
    link = board.url
    board.goto("about:blank")
    board.goto(link)
    assert board.locator(f"#{name}").is_visible()


def test_a_long_table_shows_its_first_rows_and_all_when_asked(page, address):
    page.goto(f"{address}/benchmarks/long-v1.html")
    assert len(texts(page, "method")) == 100
    page.get_by_placeholder("Filter rows").fill("m349")
    assert texts(page, "method") == ["m349"]
    page.get_by_placeholder("Filter rows").fill("")
    page.locator("thead button", has_text="method").click()
    assert texts(page, "method")[:3] == ["m0", "m1", "m2"]
    page.get_by_role("button", name="Show all 350 rows").click()
    assert len(texts(page, "method")) == 350


def test_a_link_leads_to_a_row_far_down(page, address):
    page.goto(f"{address}/benchmarks/long-v1.html")
    page.get_by_role("button", name="Show all").click()
    name = page.locator("tbody tr").last.get_attribute("id")
    page.goto("about:blank")
    page.goto(f"{address}/benchmarks/long-v1.html#{name}")
    assert page.locator(f"#{name}").is_visible()


def test_tables_are_downloaded(board):
    with board.expect_download() as waiting:
        board.get_by_role("link", name="CSV").click()
    with waiting.value.path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N_ROWS
    assert float(rows[0]["auroc mean"]) > float(rows[-1]["auroc mean"])
    with board.expect_download() as waiting:
        board.get_by_role("button", name="CSV").click()
    with waiting.value.path().open(newline="") as file:
        assert len(list(csv.DictReader(file))) == N_ROWS


def test_names_of_strangers_are_only_text(page, address, site):
    for file in sorted(site.rglob("*.html")):
        if "script" in file.name:
            page.goto(f"{address}/{file.relative_to(site).as_posix()}")
            assert page.locator("h1", has_text=EVIL).is_visible()


def test_all_rows_are_there_without_a_script(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/benchmarks/long-v1.html")
    assert page.locator("tbody tr").last.is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_tables_not_the_page(browser, address, scheme):
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page.goto(f"{address}/benchmarks/simulated-v1.html")
    widths = "[document.documentElement.scrollWidth, innerWidth]"
    assert page.evaluate(widths)[0] <= page.evaluate(widths)[1]
    page.close()
