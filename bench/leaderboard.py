"""A leaderboard of 2,000 results: 50 models with 40 methods each, built and opened in Chromium.

Results are written as `incognita run` writes them: 600 images in four sets, 200 replicates. The
time of the command is the processor time of its process: start, verification of every number, ranks
over all pairs of rows, pages and downloads, without reports of runs. Times of the browser are wall
clock: from opening the file to the end of its load event, from a click to the frame after it.
"""

import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.report.simulated_runs import simulate

from bench.harness import Row, at_most, timed

N_MODELS, N_METHODS, N_IMAGES = 50, 40, 150
CHROMIUM = "/usr/bin/chromium"
_CLICK = """(label) => new Promise((done) => {
  const heads = [...document.querySelectorAll("thead .sort")];
  const button = heads.find((head) => head.textContent === label);
  const start = performance.now();
  button.click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
})"""
_LOAD = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"


def rows() -> list[Row]:
    with TemporaryDirectory() as folder:
        runs, site = Path(folder, "runs"), Path(folder, "site")
        write_runs(runs)
        found = [
            timed("command", "2,000 results, verified", build(runs, site), at_most(20)),
            timed("command", "not verified", build(runs, site, "--no-verify"), None),
        ]
        return found + browser_rows(site)


def write_runs(folder: Path) -> None:
    methods = {f"method-{k}": k / N_METHODS for k in range(N_METHODS)}
    for model in range(N_MODELS):
        simulate(
            folder / str(model), methods, model=f"model-{model}", draw=model, n_images=N_IMAGES,
            n_resamples=200,
        )  # fmt: skip


def build(runs: Path, site: Path, *options: str) -> float:
    program = [sys.executable, "-m", "incognita.cli", "leaderboard", str(runs)]
    before = _processor_time()
    subprocess.run(
        [*program, "--out", str(site), "--no-reports", *options], check=True, capture_output=True
    )
    return _processor_time() - before


def _processor_time() -> float:
    """Return that of all processes this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def browser_rows(site: Path) -> list[Row]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return [Row("Chromium", "playwright is missing")]
    if not Path(CHROMIUM).exists():
        return [Row("Chromium", f"there is no {CHROMIUM}")]
    (page_file,) = (site / "benchmarks").glob("*.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        loads, sorts = [], []
        for _ in range(3):
            page = browser.new_page()
            page.goto(page_file.as_uri())
            loads.append(page.evaluate(_LOAD) / 1000)
            sorts += [_sorted(page, label) for label in ("AUROC near", "model", "AUROC far")]
            page.close()
        browser.close()
    size = page_file.stat().st_size / 1e6
    by_number = min(sorts[0::3] + sorts[2::3])
    return [
        timed("Chromium", f"open the page of {size:.1f} MB", min(loads), at_most(1)),
        timed("Chromium", "sort 2,000 rows by a number", by_number, at_most(0.1)),
        timed("Chromium", "sort 2,000 rows by a text", min(sorts[1::3]), at_most(0.1)),
    ]


def _sorted(page: Any, label: str) -> float:
    return float(page.evaluate(_CLICK, label)) / 1000
